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


def exact_durations(path):
    """(start, duration) of each operation on the device from its decimal text, in microseconds."""
    with open(path, encoding="utf-8", errors="replace") as f:
        events = json.load(f, parse_float=Decimal, parse_int=Decimal)["traceEvents"]
    kinds = {"kernel", "gpu_memcpy", "gpu_memset"}
    return [(e["ts"], e["dur"]) for e in events if e.get("ph") == "X" and e.get("cat") in kinds]


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
        kept = frame[frame["stream"] >= 0]
        exact = exact_durations(source)
        total = sum(d for _, d in exact)
        # Its parser moves starts up and ends down to whole microseconds.
        rounded = sum((t + d).__floor__() - t.__ceil__() for t, d in exact)
        print(
            f"hta, the same file: {size / 1e6 / cpu:.0f} MB/s of processor time, {size / 1e6 / wall:.0f} MB/s of wall "
            f"time ({wall:.1f} s), peak {max(peak - base, 0) / 1024:.0f} MiB more ({max(peak - base, 0) * 1024 / size:.2f} of the file's size); "
            f"{len(kept)} of {len(exact)} operations kept with {float(kept['dur'].sum()):.0f} us; "
            f"rounding alone makes {rounded} us of {total} us ({100 * (float(rounded) / float(total) - 1):+.1f} %)"
        )
        print(breakdown.to_string(index=False), file=sys.stderr)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
