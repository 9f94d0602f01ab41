"""All peer benchmarks, one process each: OUT/<op>.jsonl, read by `workbench bench OP --peers OUT/<op>.jsonl`.

A script that hangs or dies costs its own rows only.
"""
import argparse
import os
import subprocess
import sys
import time

from common import NOTHING

# Script and its time limit in seconds; first runs compile (torch.compile, Triton, FlashInfer, humming).
SCRIPTS = {"matmul": 120, "softmax": 420, "paged_attention": 420, "w4a16": 300, "decode_step": 420}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("out", nargs="?", default="peers-out", help="folder of the results")
    p.add_argument("--scripts", nargs="+", choices=SCRIPTS, default=list(SCRIPTS), help="which of them")
    p.add_argument("--only", action="append", metavar="NAME", help="only these peers, * allowed")
    p.add_argument("--gpu", type=int, default=0, help="which GPU")
    p.add_argument("--dry-run", action="store_true", help="list the cases and stop")
    a = p.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    if not a.dry_run:
        os.makedirs(a.out, exist_ok=True)
    failed = []
    for name in a.scripts:
        command = [sys.executable, os.path.join(here, f"{name}.py"), "--gpu", str(a.gpu)]
        command += [word for peer in a.only or [] for word in ("--only", peer)]
        command += ["--dry-run"] if a.dry_run else ["--out", os.path.join(a.out, f"{name}.jsonl")]
        begun = time.time()
        try:
            code = subprocess.run(command, timeout=SCRIPTS[name]).returncode
        except subprocess.TimeoutExpired:
            code = f"none after {SCRIPTS[name]} s"
        print(f"== {name}: exit code {code}, {time.time() - begun:.0f} s", file=sys.stderr, flush=True)
        if code not in (0, NOTHING):
            failed.append(name)
    if failed:
        sys.exit(f"did not end well: {', '.join(failed)}")


if __name__ == "__main__":
    main()
