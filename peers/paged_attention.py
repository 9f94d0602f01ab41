"""One decode step of attention over a paged bf16 KV cache: FlashInfer in several plans, and cuDNN on a contiguous cache.

No one plan of FlashInfer's is best everywhere, so each is a row; the fastest is what a user could have. cuDNN and
PyTorch's flash kernel read a contiguous cache, which no server has: theirs is what paging costs, and not a rival.
"""
import math
import random

import common
from common import Contender, error_of, normal, poison, sets_for, shape_text

FLASHINFER = ["flashinfer-cuda", "flashinfer-tc", "flashinfer-tc-split32", "flashinfer-tc-split64", "flashinfer-tc-split128",
              "flashinfer-persistent", "flashinfer-xqa"]
CONTIGUOUS = {"sdpa-cudnn": "CUDNN_ATTENTION", "sdpa-flash": "FLASH_ATTENTION"}
PEERS = FLASHINFER + list(CONTIGUOUS)
UNIFORM = [(1, 2048), (1, 32768), (1, 131072), (16, 4096), (64, 8192), (256, 2048)]
CHECKED = 3  # requests compared in double precision
SCRATCH = 256 << 20


def ragged(requests=64, shortest=128, longest=32768, seed=7):
    """Lengths whose logarithms are uniform: the ragged batch of `workbench bench paged_attention`."""
    draw = random.Random(seed)
    return [int(math.exp(draw.uniform(math.log(shortest), math.log(longest)))) for _ in range(requests)]


def defaults(_):
    lens = ragged()
    pages = sum(-(-n // 16) for n in lens)
    return [shape_text(batch=b, ctx=c) for b, c in UNIFORM] + [
        shape_text(lens=":".join(map(str, lens)), page=16, pool_pages=pages)]


class Problem:
    """Input sets of one batch: pools of pages in random order, one page table for all of them."""

    def __init__(self, s):
        torch = common.torch
        given = s.get("lens")
        self.lens = [int(n) for n in str(given).split(":")] if given is not None else [s["ctx"]] * s["batch"]
        self.heads, self.kv_heads, self.d, self.page = s.get("heads", 32), s.get("kv_heads", 8), s.get("d", 128), s.get("page", 16)
        self.batch, tokens = len(self.lens), sum(self.lens)
        self.touched = 4 * tokens * self.kv_heads * self.d + 4 * self.batch * self.heads * self.d
        self.flops = 4 * tokens * self.heads * self.d
        self.sets = sets_for(self.touched)
        self.pages = [-(-n // self.page) for n in self.lens]
        self.first = [0]
        for p in self.pages:
            self.first.append(self.first[-1] + p)
        int32 = lambda values: torch.tensor(values, dtype=torch.int32, device="cuda")
        self.table = torch.randperm(self.first[-1], device="cuda", dtype=torch.int32)
        self.indptr = int32(self.first)
        self.last = int32([(n - 1) % self.page + 1 for n in self.lens])
        self.lengths = int32(self.lens)
        self.q = [normal(self.batch, self.heads, self.d) for _ in range(self.sets)]
        self.out = [poison(self.batch, self.heads, self.d) for _ in range(self.sets)]
        self.pools = None

    def fill(self):
        """Pools [pages, 2, page, kv_heads, d]."""
        self.pools = [normal(self.first[-1], 2, self.page, self.kv_heads, self.d) for _ in range(self.sets)]

    def requests(self):
        return sorted({0, self.batch // 2, self.batch - 1})[:CHECKED]

    def attend(self, q, k, v):
        """Reference for one request: q [heads, d], k and v [tokens, kv_heads, d]."""
        torch = common.torch
        q = q.double().view(self.kv_heads, -1, self.d)
        scores = torch.einsum("hgd,thd->hgt", q, k.double()) / math.sqrt(self.d)
        return torch.einsum("hgt,thd->hgd", torch.softmax(scores, -1), v.double()).reshape(self.heads, self.d)

    def wanted(self, r):
        held = self.pools[0][self.table[self.first[r]:self.first[r + 1]].long()]
        k, v = (held[:, j].reshape(-1, self.kv_heads, self.d)[: self.lens[r]] for j in (0, 1))
        return self.attend(self.q[0][r], k, v)

    def error(self, got, wanted):
        return max(error_of(got[r], wanted(r)) for r in self.requests())


def flashinfer_makers(p):
    torch = common.torch

    def planned(peer, tensor_cores, split):
        import flashinfer
        scratch = torch.zeros(SCRATCH * (4 if split else 1), dtype=torch.uint8, device="cuda")
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(scratch, "NHD", use_tensor_cores=tensor_cores)
        wrapper.plan(p.indptr, p.table, p.last, p.heads, p.kv_heads, p.d, p.page, q_data_type=torch.bfloat16,
                     kv_data_type=torch.bfloat16, **(dict(fixed_split_size=split) if split else {}))

        def call(i):
            wrapper.run(p.q[i], p.pools[i], out=p.out[i])

        p.out[0].fill_(float("nan"))
        return Contender(peer, call)

    def persistent(peer):
        import flashinfer
        wrapper = flashinfer.BatchAttention("NHD")
        queries = torch.arange(p.batch + 1, dtype=torch.int32, device="cuda")
        wrapper.plan(queries, p.indptr, p.table, p.lengths, p.heads, p.kv_heads, p.d, p.d, p.page,
                     q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)

        def call(i):
            wrapper.run(p.q[i], p.pools[i], out=p.out[i])

        p.out[0].fill_(float("nan"))
        return Contender(peer, call)

    def xqa(peer):
        from flashinfer.decode import xqa_batch_decode_with_kv_cache
        table = torch.zeros(p.batch, max(p.pages), dtype=torch.int32, device="cuda")
        for r in range(p.batch):
            table[r, : p.pages[r]] = p.table[p.first[r]:p.first[r + 1]]
        scratch = torch.zeros(SCRATCH, dtype=torch.uint8, device="cuda")
        halves = [pool.unbind(1) for pool in p.pools]
        lengths = p.lengths.view(torch.uint32)

        def call(i):
            xqa_batch_decode_with_kv_cache(p.q[i], halves[i], scratch, table, lengths, max(p.lens), 1 / math.sqrt(p.d), 1.0,
                                           out=p.out[i], kv_layout="NHD")

        p.out[0].fill_(float("nan"))
        return Contender(peer, call)

    makers = []
    for peer in FLASHINFER:
        if peer == "flashinfer-persistent":
            makers.append((peer, lambda peer=peer: persistent(peer)))
        elif peer == "flashinfer-xqa":
            makers.append((peer, lambda peer=peer: xqa(peer)))
        else:
            split = int(peer.rsplit("split", 1)[1]) if "split" in peer else None
            makers.append((peer, lambda peer=peer, split=split: planned(peer, "-tc" in peer, split)))
    return makers


def contiguous_makers(p, k, v):
    torch = common.torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def make(peer):
        backend = getattr(SDPBackend, CONTIGUOUS[peer])
        q = [t.view(p.batch, p.heads, 1, p.d) for t in p.q]

        def call(i):
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q[i], k[i], v[i], enable_gqa=True)

        return Contender(peer, call)

    return [(peer, lambda peer=peer: make(peer)) for peer in CONTIGUOUS]


def measure(s, text, out):
    p = Problem(s)
    if any(out.wants(peer) for peer in FLASHINFER):
        p.fill()
        out.case(text, flashinfer_makers(p), p.sets, p.touched, p.flops, lambda _c, _r: p.error(p.out[0], p.wanted),
                 2 * common.BF16_EPSILON)
        p.pools = None
        common.release()
    if len(set(p.lens)) > 1 or not any(out.wants(peer) for peer in CONTIGUOUS):
        return  # a contiguous cache has one length
    k, v = ([normal(p.batch, p.kv_heads, p.lens[0], p.d) for _ in range(p.sets)] for _ in range(2))
    wanted = lambda r: p.attend(p.q[0][r], k[0][r].transpose(0, 1), v[0][r].transpose(0, 1))
    out.case(text, contiguous_makers(p, k, v), p.sets, p.touched, p.flops,
             lambda _c, result: p.error(result.view(p.batch, p.heads, p.d), wanted), 2 * common.BF16_EPSILON)


if __name__ == "__main__":
    common.run(__doc__, "paged_attention", PEERS, defaults, measure)
