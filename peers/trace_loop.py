"""A Llama-shaped decode loop in plain PyTorch, eager or as one CUDA graph a step: the guest that `workbench trace` is tried on.

    workbench trace -o loop.wbt -- python3 peers/trace_loop.py --graph
    python3 peers/trace_loop.py --graph --profile loop.json.gz      # the same loop under PyTorch's own profiler

One token a step and sequence; the host reads the token before it asks for the next, as a server does. Weights are random,
so only times mean anything. The last line on standard output is JSON: median, p10 and p90 of the step in ns by the host's
clock over `--steps` steps after `--warmup`, and the mean over all of them.
"""
import argparse
import json
import os
import sys
import time

p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
for name, value in dict(hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64, intermediate=8192, vocab=32000, batch=1,
                        context=1024, steps=100, warmup=10).items():
    p.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
p.add_argument("--graph", action="store_true", help="capture the step once and replay it")
p.add_argument("--nvtx", action="store_true", help="an NVTX range `decode` around each step")
p.add_argument("--profile", metavar="FILE", help="record the steps with PyTorch's profiler into FILE (.json or .json.gz)")
a = p.parse_args()
if a.profile:
    # Set before torch loads Kineto: taking CUPTI down and up again loses graphs that were captured in between.
    os.environ.setdefault("TEARDOWN_CUPTI", "0")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

torch.manual_seed(1)
dev, dt = "cuda", torch.bfloat16


def weight(*shape):
    return torch.randn(*shape, device=dev, dtype=dt) * shape[-1] ** -0.5


H, Q, KV, D = a.hidden, a.heads, a.kv_heads, a.head_dim
embed, head = weight(a.vocab, H), weight(a.vocab, H)
layers = [dict(n1=weight(H), n2=weight(H), qkv=weight((Q + 2 * KV) * D, H), o=weight(H, Q * D),
               up=weight(2 * a.intermediate, H), down=weight(H, a.intermediate),
               k=weight(a.batch, KV, a.context, D), v=weight(a.batch, KV, a.context, D)) for _ in range(a.layers)]
last = weight(H)
token = torch.zeros(a.batch, dtype=torch.long, device=dev)
place = torch.full((1,), a.context // 2, dtype=torch.long, device=dev)
angle = torch.outer(torch.arange(a.context, device=dev).float(), 500000.0 ** (-torch.arange(0, D, 2, device=dev).float() / D))
cos, sin = torch.cat((angle, angle), 1).cos().to(dt), torch.cat((angle, angle), 1).sin().to(dt)


def norm(x, w):
    return F.rms_norm(x, (H,), w, 1e-5)


def rotate(x, c, s):
    left, right = x.chunk(2, -1)
    return x * c + torch.cat((-right, left), -1) * s


@torch.no_grad()
def step():
    """One token for each sequence; `token` [batch] is read and written, the cache slot `place` is written."""
    x = F.embedding(token, embed)
    c, s = cos.index_select(0, place), sin.index_select(0, place)
    for w in layers:
        q, k, v = F.linear(norm(x, w["n1"]), w["qkv"]).split((Q * D, KV * D, KV * D), -1)
        q = rotate(q.view(a.batch, Q, 1, D), c, s)
        w["k"].index_copy_(2, place, rotate(k.view(a.batch, KV, 1, D), c, s))
        w["v"].index_copy_(2, place, v.reshape(a.batch, KV, 1, D))
        # The place never moves, so the shape does not either and a graph can hold it.
        keys, values = w["k"][:, :, : a.context // 2 + 1], w["v"][:, :, : a.context // 2 + 1]
        y = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        x = x + F.linear(y.reshape(a.batch, Q * D), w["o"])
        gate, up = F.linear(norm(x, w["n2"]), w["up"]).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, w["down"])
    token.copy_(F.linear(norm(x, last), head).argmax(-1))


side = torch.cuda.Stream()
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.synchronize()

profiler = None
if a.profile:
    from torch.profiler import ProfilerActivity, profile

    # A first, empty session: CUPTI must be there when the graph is made, or its nodes have no names.
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        token.add_(0)
        torch.cuda.synchronize()

play = step
if a.graph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    play = graph.replay


def one():
    play()
    return token[0].item()


for _ in range(a.warmup):
    one()
torch.cuda.synchronize()
if a.profile:
    profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    profiler.start()
times = []
began = time.perf_counter_ns()
for _ in range(a.steps):
    t = time.perf_counter_ns()
    if profiler:
        with torch.profiler.record_function("decode"):
            one()
    elif a.nvtx:
        torch.cuda.nvtx.range_push("decode")
        one()
        torch.cuda.nvtx.range_pop()
    else:
        one()
    times.append(time.perf_counter_ns() - t)
mean = (time.perf_counter_ns() - began) / a.steps
torch.cuda.synchronize()
if profiler:
    profiler.stop()
    profiler.export_chrome_trace(a.profile)
times.sort()
rank = lambda q: times[min(int(q * len(times)), len(times) - 1)]  # noqa: E731
print(json.dumps(dict(loop="graph" if a.graph else "eager", step_ns=rank(0.5), p10_ns=rank(0.1), p90_ns=rank(0.9),
                      mean_ns=round(mean), n=a.steps, torch=torch.__version__, gpu=torch.cuda.get_device_name())))
sys.stdout.flush()
