"""Time, memory and rounding loss of Holistic Trace Analysis on one trace, for benches/trace_import.rs.

    python3 -m pip install HolisticTraceAnalysis==0.5.0 'pandas<3'
    WORKBENCH_HTA=python3 cargo bench --bench trace_import
"""

import json
import resource
import shutil
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path


def exact_kernel_us(path):
    """Sum of kernel durations from their decimal text, in microseconds."""
    with open(path, encoding="utf-8", errors="replace") as f:
        events = json.load(f, parse_float=Decimal)["traceEvents"]
    return sum(Decimal(e["dur"]) for e in events if e.get("ph") == "X" and e.get("cat") == "kernel")


def main():
    source = Path(sys.argv[1])
    # HTA wants a folder of files with a rank in each.
    folder = Path(tempfile.mkdtemp())
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
        head, rest = text.split("{", 1)
        (folder / "rank0.json").write_text(head + '{"distributedInfo": {"rank": 0}, ' + rest)
        del text, head, rest
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        wall, cpu = time.perf_counter(), time.process_time()
        from hta.trace_analysis import TraceAnalysis

        analysis = TraceAnalysis(trace_dir=str(folder))
        breakdown = analysis.get_temporal_breakdown(visualize=False)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size = source.stat().st_size
        frame = analysis.t.get_trace(0)
        kernels = frame[frame["stream"] >= 0]["dur"].sum()
        exact = exact_kernel_us(source)
        print(
            f"hta, the same file: {size / 1e6 / cpu:.0f} MB/s of processor time, {size / 1e6 / wall:.0f} MB/s of wall "
            f"time, peak at least {max(peak - base, 0) * 1024 / size:.2f} of the file's size; kernel time "
            f"{float(kernels):.0f} us of {float(exact):.3f} us ({100 * (float(kernels) / float(exact) - 1):+.1f} % by rounding)"
        )
        print(breakdown.to_string(index=False), file=sys.stderr)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
