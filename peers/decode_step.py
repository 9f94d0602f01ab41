"""One decode step of a Llama-3-8B shape with random weights and a full static KV cache, in one CUDA graph: PyTorch eager
and torch.compile, with bf16 weights and with 4-bit weights by tinygemm (group 128; the output head stays bf16).

torch.compile is given one layer, whose code all 32 share. A layer takes the projection of the one before as `delta`, so
that the residual addition can still fuse with the norm that follows it, as it would in a model compiled whole.
The workbench's own step is `workbench step`; its batch and context are given in the same words.
"""

import common
from common import Contender, error_of, normal, shape_text

PEERS = ["eager", "compile", "tinygemm-eager", "tinygemm-compile"]
LAYERS, HIDDEN, HEADS, KV_HEADS, D, INNER, VOCABULARY, GROUP = 32, 4096, 32, 8, 128, 14336, 128256, 128
CASES = [(1, 2048), (8, 2048), (32, 2048)]
REPLAYS = 40
# 32 layers of rounding to bf16, against the same step in fp32.
TOLERANCE = 0.08


def defaults(_):
    return [shape_text(batch=b, ctx=c) for b, c in CASES]


def project(x, w):
    torch = common.torch
    if len(w) == 1:
        return torch.nn.functional.linear(x, w[0])
    return torch._weight_int4pack_mm(x, w[0], GROUP, w[1])


def norm(x, gain):
    return common.torch.nn.functional.rms_norm(x, (HIDDEN,), gain, 1e-5)


def rotate(x, cosine, sine):
    halves = x.chunk(2, -1)
    return x * cosine + common.torch.cat((-halves[1], halves[0]), -1) * sine


def layer(x, delta, at, cosine, sine, keys, values, gain1, wqkv, wo, gain2, wup, wdown):
    F = common.torch.nn.functional
    batch = x.shape[0]
    x = x + delta
    q, k, v = project(norm(x, gain1), wqkv).split((HEADS * D, KV_HEADS * D, KV_HEADS * D), -1)
    keys[:, :, at] = rotate(k.view(batch, KV_HEADS, 1, D), cosine, sine)
    values[:, :, at] = v.view(batch, KV_HEADS, 1, D)
    q = rotate(q.view(batch, HEADS, 1, D), cosine, sine)
    seen = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
    x = x + project(seen.reshape(batch, HEADS * D), wo)
    gate, up = project(norm(x, gain2), wup).chunk(2, -1)
    return x, project(F.silu(gate) * up, wdown)


def head(x, delta, gain, w):
    logits = common.torch.nn.functional.linear(norm(x + delta, gain), w)
    return logits, logits.argmax(-1)


class Matrix:
    """A projection: what the kernel is given, and the same numbers as an fp32 matrix."""

    def __init__(self, n, k, four_bits):
        torch = common.torch
        self.four_bits = four_bits
        if not four_bits:
            self.parts = (normal(n, k, std=0.02),)
            return
        self.q = torch.randint(0, 16, (n, k), dtype=torch.uint8, device="cuda")
        scale = torch.full((k // GROUP, n), 0.02 / 4.6, device="cuda")  # 4.6: standard deviation of 0 … 15
        offset = torch.randn(k // GROUP, n, device="cuda") * 2e-3
        both = torch.stack((scale, offset), -1).to(torch.bfloat16)
        self.parts = (torch._convert_weight_to_int4pack((self.q[:, ::2] * 16 + self.q[:, 1::2]).contiguous(), 8), both)

    def dense(self):
        if not self.four_bits:
            return self.parts[0].float()
        wide = self.parts[1].float().repeat_interleave(GROUP, 0)
        return (self.q.float() - 8) * wide[..., 0].t() + wide[..., 1].t()

    def bytes(self):
        return sum(t.numel() * t.element_size() for t in self.parts)


class Model:
    def __init__(self, four_bits):
        matrix = lambda n, k: Matrix(n, k, four_bits)
        gain = lambda: 1 + normal(HIDDEN, std=0.1)
        qkv = (HEADS + 2 * KV_HEADS) * D
        self.layers = [dict(gain1=gain(), wqkv=matrix(qkv, HIDDEN), wo=matrix(HIDDEN, HEADS * D), gain2=gain(),
                            wup=matrix(2 * INNER, HIDDEN), wdown=matrix(HIDDEN, INNER)) for _ in range(LAYERS)]
        self.table, self.gain = normal(VOCABULARY, HIDDEN), gain()
        self.head = normal(VOCABULARY, HIDDEN, std=0.02)
        matrices = [m for l in self.layers for m in l.values() if isinstance(m, Matrix)]
        self.bytes = sum(m.bytes() for m in matrices) + 2 * self.head.numel()
        self.weights = LAYERS * (qkv * HIDDEN + HIDDEN * HEADS * D + 3 * INNER * HIDDEN) + VOCABULARY * HIDDEN

    def step(self, s, layer, head, weights=lambda m: m.parts, kind=lambda t: t):
        x, delta = kind(self.table[s["tokens"]]), kind(s["zero"])
        for l, (keys, values) in zip(self.layers, s["cache"]):
            x, delta = layer(x, delta, s["at"], kind(s["cosine"]), kind(s["sine"]), kind(keys), kind(values),
                             *(weights(v) if isinstance(v, Matrix) else kind(v) for v in l.values()))
        return head(x, delta, kind(self.gain), kind(self.head))


def state(batch, ctx):
    torch = common.torch
    frequency = 5e5 ** (-torch.arange(0, D, 2, device="cuda", dtype=torch.float64) / D)
    angle = torch.cat((frequency, frequency)) * (ctx - 1)
    bf16 = torch.bfloat16
    return dict(
        tokens=torch.randint(0, VOCABULARY, (batch,), device="cuda"), at=torch.tensor([ctx - 1], device="cuda"),
        zero=torch.zeros(batch, HIDDEN, dtype=bf16, device="cuda"), cosine=angle.cos().to(bf16), sine=angle.sin().to(bf16),
        cache=[(normal(batch, KV_HEADS, ctx, D), normal(batch, KV_HEADS, ctx, D)) for _ in range(LAYERS)])


_MODEL = {}


def model(four_bits):
    """One model at a time: two do not fit every card."""
    if four_bits not in _MODEL:
        _MODEL.clear()
        common.release()
        _MODEL[four_bits] = Model(four_bits)
    return _MODEL[four_bits]


def measure(s, text, out):
    torch = common.torch
    batch, ctx = s["batch"], s["ctx"]
    for four_bits, pair in ((False, PEERS[:2]), (True, PEERS[2:])):
        if not any(out.wants(p) for p in pair):
            continue
        with torch.no_grad():
            try:
                steps(model(four_bits), batch, ctx, text, pair, out)
            except Exception as e:  # noqa: BLE001
                for peer in filter(out.wants, pair):
                    out.failed(peer, text, e)
        common.release()


def steps(m, batch, ctx, text, pair, out):
    torch = common.torch
    s = state(batch, ctx)
    want = m.step(s, layer, head, weights=lambda v: (v.dense(),), kind=lambda t: t.float())[0]
    touched = m.bytes + 4 * LAYERS * batch * ctx * KV_HEADS * D
    flops = 2 * m.weights * batch + 4 * LAYERS * batch * ctx * HEADS * D

    def eager():
        return Contender(pair[0], lambda _: m.step(s, layer, head)[0])

    def compiled():
        torch._dynamo.reset()
        of = lambda f: torch.compile(f, fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs")
        fast, last = of(layer), of(head)
        return Contender(pair[1], lambda _: m.step(s, fast, last)[0])

    check = lambda _contender, logits: error_of(logits, want)
    # A step's weights pass L2 many times over: one set is cold.
    out.case(text, [(pair[0], eager), (pair[1], compiled)], 1, touched, flops, check, TOLERANCE, rounds=REPLAYS)


if __name__ == "__main__":
    common.run(__doc__, "step", PEERS, defaults, measure)
