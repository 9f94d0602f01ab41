"""bf16 product x[m,k] · w[n,k]ᵀ by cuBLAS and cuBLASLt, through PyTorch.

Both libraries get the same buffers and are timed in turn: alone, whichever runs second meets the lower clocks that the
first one's heat has left.
"""
import common
from common import Contender, error_of, normal, poison, sets_for, shape_text

PEERS = ["cublas", "cublaslt"]
# (n, k) of one Llama-3-8B layer (query, key and value; output; gate and up; down) and of its output head.
WEIGHTS = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)]
ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
LARGE = [(8192, 8192, 8192), (4096, 4096, 4096), (16384, 4096, 4096)]
CHECKED = 64  # rows of the result that are compared


def defaults(_):
    cases = [(m, n, k) for n, k in WEIGHTS for m in ROWS] + LARGE
    return [shape_text(m=m, n=n, k=k, dtype="bf16") for m, n, k in cases]


def measure(s, text, out):
    torch = common.torch
    m, n, k = s["m"], s["n"], s["k"]
    touched = 2 * (m * k + n * k + m * n)
    sets = sets_for(touched)
    x, w = [normal(m, k) for _ in range(sets)], [normal(n, k) for _ in range(sets)]
    y = [poison(m, n) for _ in range(sets)]
    rows = torch.linspace(0, m - 1, min(m, CHECKED), device="cuda").long()
    want = x[0][rows].double() @ w[0].double().t()

    def make(library):
        def call(i):
            torch.backends.cuda.preferred_blas_library(library)
            torch.mm(x[i], w[i].t(), out=y[i])

        y[0].fill_(float("nan"))
        return Contender(library, call)

    def check(_contender, _result):
        return error_of(y[0][rows], want)

    out.case(text, [(p, lambda p=p: make(p)) for p in PEERS], sets, touched, 2 * m * n * k, check, common.BF16_EPSILON)


if __name__ == "__main__":
    common.run(__doc__, "matmul", PEERS, defaults, measure)
