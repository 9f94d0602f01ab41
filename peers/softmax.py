"""Row softmax in bf16, plain and with scale and mask: PyTorch, torch.compile, a small Triton kernel, QuACK, a copy, and ours.

The copy (`clone`) moves the least bytes that any softmax must and computes nothing: no row can be honest and faster. From
1 GiB on it runs in a stream, because copy nodes of that size run slower inside a CUDA graph.

Ours (`workbench`) is launched here too where the program is found, so that all alternate in one process on the same buffers.
"""
import common
import workbench
from common import Contender, error_of, normal, poison, sets_for, shape_text

PEERS = ["workbench", "torch", "compile", "compile-max", "triton", "quack", "clone"]
PLAIN = [(1048576, 256), (65536, 1024), (1048576, 2048), (32768, 4096), (8192, 8192), (8192, 16384), (4096, 32768),
         (2048, 50257), (1024, 128256), (64, 128256)]
MASKED = ["additive", "causal"]
LARGE_COPY = 1 << 30
IN_REGISTERS = 65536  # widest row that the Triton kernel holds whole


def defaults(_):
    plain = [shape_text(rows=r, cols=c) for r, c in PLAIN]
    return plain + [shape_text(rows=1048576, cols=2048, mask=m, mask_rows=2048, scale=0.125) for m in MASKED]


def triton_kernels():
    """The two kernels, made when they are first needed: Triton may be missing."""
    import triton
    import triton.language as tl

    @triton.jit
    def whole(src, dst, mask, cols, mask_rows, scale, MODE: tl.constexpr, WIDTH: tl.constexpr):
        """A row per program, read once, held in registers."""
        row = tl.program_id(0).to(tl.int64)
        at = tl.arange(0, WIDTH)
        inside = at < cols
        query = row % mask_rows
        if MODE == 2:
            # Whole vectors up to the diagonal, so that the last load is as wide as the others.
            values = tl.load(src + row * cols + at, mask=inside & ((at & -8) <= query), other=0.0).to(tl.float32) * scale
            values = tl.where(at <= query, values, -float("inf"))
        else:
            values = tl.load(src + row * cols + at, mask=inside, other=-float("inf")).to(tl.float32) * scale
            if MODE == 1:
                values += tl.load(mask + query * cols + at, mask=inside, other=0.0).to(tl.float32)
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(dst + row * cols + at, (powers / tl.sum(powers, axis=0)).to(dst.dtype.element_ty), mask=inside)

    @triton.jit
    def online(src, dst, cols, WIDTH: tl.constexpr):
        """A row per program in two passes: running maximum and sum of each lane, then the quotient."""
        first = tl.program_id(0).to(tl.int64) * cols
        lane = tl.arange(0, WIDTH)
        top = tl.full([WIDTH], -1e30, tl.float32)
        total = tl.zeros([WIDTH], tl.float32)
        for at in range(0, cols, WIDTH):
            values = tl.load(src + first + at + lane, mask=at + lane < cols, other=-1e30).to(tl.float32)
            higher = tl.maximum(top, values)
            total = total * tl.exp(top - higher) + tl.exp(values - higher) * tl.where(at + lane < cols, 1.0, 0.0)
            top = higher
        peak = tl.max(top, axis=0)
        share = 1.0 / tl.sum(total * tl.exp(top - peak), axis=0)
        for at in range(0, cols, WIDTH):
            values = tl.load(src + first + at + lane, mask=at + lane < cols, other=0.0).to(tl.float32)
            tl.store(dst + first + at + lane, (tl.exp(values - peak) * share).to(dst.dtype.element_ty), mask=at + lane < cols)

    return triton, whole, online


_KERNELS = None
_OURS = None


def triton_call(x, y, mask, s, scale):
    """(call with a configuration, configurations to try)."""
    global _KERNELS
    _KERNELS = _KERNELS or triton_kernels()
    triton, whole, online = _KERNELS
    rows, cols = s["rows"], s["cols"]
    mode = {None: 0, "none": 0, "additive": 1, "causal": 2}[s.get("mask")]
    if cols <= IN_REGISTERS:
        width = triton.next_power_of_2(cols)
        warps = sorted({max(1, min(32, width // (32 * per_lane))) for per_lane in (8, 16, 32)})

        def call(i, warps):
            whole[(rows,)](x[i], y[i], mask if mask is not None else x[i], cols, s.get("mask_rows", 1), scale, MODE=mode,
                           WIDTH=width, num_warps=warps)

        return call, warps
    if mode:
        raise ValueError(f"the Triton kernel masks rows of up to {IN_REGISTERS}")

    def call(i, config):
        width, warps = config
        online[(rows,)](x[i], y[i], cols, WIDTH=width, num_warps=warps)

    return call, [(4096, 8), (8192, 16), (16384, 32)]


def measure(s, text, out):
    torch = common.torch
    rows, cols, kind = s["rows"], s["cols"], s.get("mask", "none")
    scale = float(s.get("scale", 1.0))
    queries = s.get("mask_rows", cols)
    seen = rows * cols
    if kind == "causal":
        if rows % queries or queries > cols:
            raise ValueError("causal: rows must be a multiple of mask_rows, and mask_rows at most cols")
        seen = rows // queries * sum(min(q + 1, cols) for q in range(queries))
    touched = 2 * (seen + rows * cols) + (2 * queries * cols if kind == "additive" else 0)
    sets = sets_for(touched)
    x, y = [normal(rows, cols) for _ in range(sets)], [poison(rows, cols) for _ in range(sets)]
    mask = normal(queries, cols) if kind == "additive" else None
    some = torch.linspace(0, rows - 1, min(rows, 256), device="cuda").long()

    def masked(values, query):
        values = values * scale
        if kind == "additive":
            return values + mask[query].to(values.dtype)
        if kind == "causal":
            return values.masked_fill(torch.arange(cols, device="cuda")[None, :] > query[:, None], float("-inf"))
        return values

    want = torch.softmax(masked(x[0][some].double(), some % queries), -1)

    def formula(values):
        """The whole op as a user would write it."""
        if kind == "none":
            return torch.softmax(values * scale if scale != 1.0 else values, -1)
        values = values.view(-1, queries, cols) * scale
        if kind == "additive":
            values = values + mask
        else:
            position = torch.arange(cols, device=values.device)
            values = values.masked_fill(position[None, :] > torch.arange(queries, device=values.device)[:, None], float("-inf"))
        return torch.softmax(values, -1).view(rows, cols)

    def eager():
        if kind != "none" or scale != 1.0:
            return Contender("torch", lambda i: formula(x[i]))

        def call(i):
            torch.softmax(x[i], -1, out=y[i])

        return Contender("torch", call)

    def compiled(name, mode):
        torch._dynamo.reset()
        f = torch.compile(formula, dynamic=False, fullgraph=True, mode=mode)
        return Contender(name, lambda i: f(x[i]))

    def small_triton():
        call, configs = triton_call(x, y, mask, s, scale)
        best = None
        for config in configs:
            trial = Contender("triton", lambda i, config=config: call(i, config))
            graph, launches = common.graph_of(trial, sets)
            best = min(filter(None, [best, (min(common.replay_ns(graph, 5)) / launches, config)]))
        return Contender("triton", lambda i: call(i, best[1]), config=best[1])

    def quack():
        if kind != "none" or scale != 1.0:
            raise NotImplementedError("QuACK's softmax takes no scale and no mask")
        from quack.softmax import softmax_fwd
        return Contender("quack", lambda i: softmax_fwd(x[i]))

    def copied():
        def call(i):
            y[i].copy_(x[i])

        return Contender("clone", call, graphed=4 * rows * cols < LARGE_COPY)

    def ours():
        global _OURS
        program = workbench.find(out.args.workbench)
        if program is None:
            raise ImportError("no workbench program: cargo build --release, or --workbench PROGRAM")
        _OURS = _OURS or workbench.Workbench(program, out.args.gpu)
        return _OURS.contender("softmax", text, [dict(x=x[i], out=y[i], mask=mask) for i in range(sets)])

    def check(contender, result):
        got = y[0] if result is None else result
        if contender.peer == "clone":
            return 0.0 if torch.equal(x[0], got) else float("nan")
        return error_of(got[some], want)

    makers = [("workbench", ours), ("torch", eager), ("compile", lambda: compiled("compile", None)),
              ("compile-max", lambda: compiled("compile-max", "max-autotune-no-cudagraphs")), ("triton", small_triton), ("quack", quack)]
    if kind == "none" and scale == 1.0:
        makers.append(("clone", copied))
    out.case(text, makers, sets, touched, 5 * rows * cols, check, 2 * common.BF16_EPSILON, reset=lambda: y[0].fill_(float("nan")))


def extra(parser):
    parser.add_argument("--workbench", metavar="PROGRAM", help="ours (default: this checkout's release build, or on the PATH)")


if __name__ == "__main__":
    common.run(__doc__, "softmax", PEERS, defaults, measure, extra)
