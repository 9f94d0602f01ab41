"""16-bit activations by 4-bit weights in groups of 128: tinygemm (in PyTorch), humming, and the bf16 product of the shape.

Every format has its own packing and its own bytes; a row's `bytes` are those that its format must read and write. The bf16
product reads four times as much: it is what 4-bit weights have to beat at all.
"""
import json

import common
from common import Contender, error_of, normal, poison, sets_for, shape_text

PEERS = ["tinygemm", "humming", "bf16"]
GROUP = 128
WEIGHTS = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (57344, 8192)]
ROWS = [1, 2, 4, 8, 16, 32, 64]


def defaults(_):
    return [shape_text(m=m, n=n, k=k) for n, k in WEIGHTS for m in ROWS]


class Format:
    """Weights of one (n, k) in a peer's own packing: `sets` copies, their bytes, and the matrix that they stand for."""

    def __init__(self, peer, n, k):
        torch = common.torch
        self.peer = peer
        if peer == "bf16":
            self.bytes = 2 * n * k
            self.sets = sets_for(self.bytes)
            self.weights = [normal(n, k) for _ in range(self.sets)]
            self.dense = self.weights[0].double()
        elif peer == "tinygemm":
            self.bytes = n * k // 2 + 4 * n * k // GROUP
            self.sets = sets_for(self.bytes)
            q = torch.randint(0, 16, (n, k), dtype=torch.uint8, device="cuda")
            pairs = (q[:, ::2] * 16 + q[:, 1::2]).contiguous()
            packed = torch._convert_weight_to_int4pack(pairs, 8)
            scale = torch.rand(k // GROUP, n, device="cuda") * 0.15 + 0.05
            offset = torch.randn(k // GROUP, n, device="cuda") * 0.1
            both = torch.stack((scale, offset), -1).to(torch.bfloat16)
            wide = both.double().repeat_interleave(GROUP, 0)
            self.dense = (q.double() - 8) * wide[..., 0].t() + wide[..., 1].t()
            self.weights = [(packed.clone(), both.clone()) for _ in range(self.sets)]
        else:
            self.humming(n, k)

    def humming(self, n, k):
        torch = common.torch
        from humming.layer import HummingLayer
        from humming.tune import get_heuristics_config
        layer = HummingLayer(shape_n=n, shape_k=k, weight_config={"dtype": "int4", "group_size": GROUP},
                             torch_dtype=torch.bfloat16).cuda()
        tensors = layer.weight_schema.quant_tensor(normal(n, k), layer.weight_schema, torch.bfloat16)
        self.dense = layer.weight_schema.dequant_tensors(tensors).double()
        layer.load_from_tensors(tensors)
        layer.transform()
        self.config, self.tuning = layer.humming_config, None
        try:
            # Only the rows that are measured: each entry compiles a kernel.
            entries = get_heuristics_config(layer_config=self.config)
            self.tuning = json.dumps([e for e in entries if e[0] <= max(ROWS)])
        except Exception:  # noqa: BLE001 - without it humming picks for itself
            pass
        names = ("weight", "weight_scale", "zero_point", "weight_scale_2")
        parts = {name: getattr(layer, name).detach() for name in names if getattr(layer, name, None) is not None}
        self.bytes = sum(t.numel() * t.element_size() for t in parts.values())
        self.sets = sets_for(self.bytes)
        parts["locks"] = layer.locks
        self.weights = [{name: t.clone() for name, t in parts.items()} for _ in range(self.sets)]

    def contender(self, x, y):
        torch = common.torch
        if self.peer == "bf16":
            def call(i):
                torch.mm(x[i], self.weights[i].t(), out=y[i])
        elif self.peer == "tinygemm":
            def call(i):
                packed, both = self.weights[i]
                return torch._weight_int4pack_mm(x[i], packed, GROUP, both)
        else:
            from humming.forward import humming_forward

            def call(i):
                humming_forward(self.config, x[i], outputs=y[i], tuning_config=self.tuning, **self.weights[i])
        return Contender(self.peer, call)


_LAST = {}


def weights(peer, n, k):
    """The format of the last (n, k) of a peer is kept: shapes come in order, and packing is slow."""
    if _LAST.get(peer, (None,))[0] != (n, k):
        _LAST.pop(peer, None)
        common.release()
        _LAST[peer] = ((n, k), Format(peer, n, k))
    return _LAST[peer][1]


def measure(s, text, out):
    m, n, k = s["m"], s["n"], s["k"]
    if k % GROUP:
        raise ValueError(f"k={k} is no multiple of the group of {GROUP}")
    for peer in PEERS:
        if not out.wants(peer):
            continue
        try:
            f = weights(peer, n, k)
        except Exception as e:  # noqa: BLE001
            out.failed(peer, text, e)
            continue
        x, y = [normal(m, k) for _ in range(f.sets)], [poison(m, n) for _ in range(f.sets)]

        def check(_contender, result):
            return error_of(y[0] if result is None else result, x[0].double() @ f.dense.t())

        out.case(text, [(peer, lambda: f.contender(x, y))], f.sets, f.bytes + 2 * m * (n + k), 2 * m * n * k, check,
                 2 * common.BF16_EPSILON)


if __name__ == "__main__":
    common.run(__doc__, "w4a16", PEERS, defaults, measure)
