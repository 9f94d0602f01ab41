"""Two GPUs: one process that drives both (products, a copy from one to the other, an event between them), then two
processes, one a GPU, that reduce over NCCL. `one` or `two` as argument; the guest of a multi-GPU trace."""
import os
import sys

import torch


def one():
    a, b = torch.device("cuda:0"), torch.device("cuda:1")
    x, y = (torch.randn(2048, 2048, device=d, dtype=torch.bfloat16) for d in (a, b))
    for _ in range(20):
        x = (x @ x) * 0.02
        moved = x.to(b, non_blocking=True)
        y = (y @ moved) * 0.02
    torch.cuda.synchronize(a)
    torch.cuda.synchronize(b)
    print("one", torch.isfinite(y).all().item())


def member(rank, world):
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    w = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) * 0.015
    x = torch.randn(8, 4096, device="cuda", dtype=torch.bfloat16)
    for _ in range(30):
        torch.cuda.nvtx.range_push("decode")
        x = x @ w
        dist.all_reduce(x)
        x = x * 0.5
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
    print("two", rank, torch.isfinite(x).all().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "one":
        one()
    else:
        torch.multiprocessing.spawn(member, args=(2,), nprocs=2)
