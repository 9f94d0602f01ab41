"""What every peer script needs: cases by name, a fair clock, a check in double precision, rows that `workbench` reads.

A case is one op at one shape, in the workbench's own spelling. Its contenders share the input sets; there are so many sets
that a launch finds nothing of its inputs in L2. Each contender's launches over all sets are captured into one CUDA graph,
and the graphs are replayed in turn, A B C A B C …, so that clocks and power drift alike for all of them.
"""
import argparse
import datetime
import fnmatch
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import traceback

try:
    import torch
except ImportError:  # --dry-run works without it
    torch = None

BF16_EPSILON = 2.0 ** -8
ROUNDS = 20  # least number of timed replays
REPLAY_US = 1_000.0  # least length of one replay
NODES = 4_096  # most launches in a graph
MOST_SETS = 1_024
NOTHING = 5  # exit code where no peer is left to measure


def shape_text(**dims):
    """`m=1,n=4096,dtype=bf16`: the spelling of a shape on the workbench's command line."""
    return ",".join(f"{key}={value}" for key, value in dims.items())


def parse_shape(text):
    """The sizes of a shape as numbers; words and lists stay text. A size may end in k, m or g (powers of 1024)."""
    found = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise SystemExit(f"`{part}` in shape `{text}` is not key=value")
        scale = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(value[-1:].lower(), 1)
        digits = value[:-1] if scale > 1 else value
        found[key.strip()] = int(digits) * scale if digits.isdigit() else value
    return found


def arguments(doc, peers):
    p = argparse.ArgumentParser(description=doc.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--out", default="-", metavar="FILE", help="where the rows go, JSON lines; - for standard output")
    p.add_argument("--only", action="append", metavar="NAME", help=f"only these peers, * allowed: {', '.join(peers)}")
    p.add_argument("--shapes", action="append", metavar="SHAPE",
                   help="these shapes in place of the default ones, as `workbench bench --shape` takes them")
    p.add_argument("--gpu", type=int, default=0, help="which GPU")
    p.add_argument("--dry-run", action="store_true", help="list the cases and stop; needs no GPU and no PyTorch")
    return p


def wanted(args, peer):
    return not args.only or any(fnmatch.fnmatch(peer, pattern) for pattern in args.only)


def run(doc, op, peers, defaults, measure, extra=None):
    """Main program of a script: `measure(shape, run)` for each shape, each failure a row and not the end."""
    parser = arguments(doc, peers)
    if extra:
        extra(parser)
    args = parser.parse_args()
    shapes = args.shapes or defaults(args)
    chosen = [p for p in peers if wanted(args, p)]
    if not chosen:
        print(f"--only {' '.join(args.only)} names none of {', '.join(peers)}", file=sys.stderr)
        raise SystemExit(NOTHING)
    if args.dry_run:
        for text in shapes:
            print(f"{op} {text}: {', '.join(chosen)}")
        return
    if torch is None:
        raise SystemExit("PyTorch is not installed: pip install -r peers/requirements.txt")
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no GPU; --dry-run lists the cases without one")
    torch.cuda.set_device(args.gpu)
    torch.manual_seed(1)
    out = Run(op, args)
    for text in shapes:
        try:
            measure(parse_shape(text), text, out)
        except Exception as e:  # noqa: BLE001 - a failed shape is a row
            out.failed("all", text, e)
        release()
    out.finish()


def release():
    gc.collect()
    torch.cuda.empty_cache()


# ---- the machine -------------------------------------------------------------------------------------------------------


def card(gpu):
    """nvidia-smi's name of PyTorch's device `gpu`: its own numbers count cards that CUDA_VISIBLE_DEVICES hides."""
    uuid = getattr(torch.cuda.get_device_properties(gpu), "uuid", None)  # None before PyTorch 2.4
    return str(gpu) if uuid is None else f"GPU-{uuid}"


def smi(gpu, *fields):
    """Values of `nvidia-smi --query-gpu`, None where it cannot say."""
    command = ["nvidia-smi", f"--id={card(gpu)}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        line = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return [None] * len(fields)
    cells = [c.strip() for c in line.split(",")]
    return [None if c.startswith("[") or not c else c for c in cells]


def reading(gpu):
    """Clocks, power and heat now, as the workbench's environment has them."""
    sm, memory, power, heat = smi(gpu, "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
    number = lambda text, kind: None if text is None else kind(float(text))
    return dict(sm_mhz=number(sm, int), memory_mhz=number(memory, int), power_w=number(power, float),
                temperature_c=number(heat, int), throttle=[])


def git(*command):
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        return subprocess.run(["git", "-C", here, *command], capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def commit():
    """The commit of these scripts and whether they differ from it: of the repository that holds them, else of the bundle
    they came in. A folder that only lies inside some other repository has neither."""
    if git("ls-files", "--error-unmatch", "common.py"):
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))
    try:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "COMMIT"), encoding="utf-8") as f:
            words = f.read().split()
            return words[0], "dirty" in words[1:]
    except (OSError, IndexError):
        return None, False


def versions():
    found = dict(torch=torch.__version__)
    for name in ("triton", "flashinfer", "humming", "quack"):
        try:
            module = __import__(name)
            found[name] = getattr(module, "__version__", "?")
        except Exception:  # noqa: BLE001 - a broken install is the same as none
            found[name] = None
    return found


def environment(gpu):
    p = torch.cuda.get_device_properties(gpu)
    uuid, driver, limit = smi(gpu, "uuid", "driver_version", "power.limit")
    at, dirty = commit()
    return dict(
        gpu=p.name, uuid_tail=(uuid or "-").rsplit("-", 1)[-1], compute_capability=f"{p.major}.{p.minor}",
        sms=p.multi_processor_count, l2_bytes=p.L2_cache_size, memory_bytes=p.total_memory,
        power_limit_w=None if limit is None else float(limit), driver=driver, cuda=torch.version.cuda or "", cupti=None,
        nvcc=None, nvrtc=None, workbench="peers", commit=at, dirty=dirty,
        command=" ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        started=datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z"),
        before=reading(gpu), after=dict(sm_mhz=None, memory_mhz=None, power_w=None, temperature_c=None, throttle=[]))


# ---- the clock ---------------------------------------------------------------------------------------------------------


def sets_for(touched):
    """Input sets whose rotation passes five times the L2 (and 300 MiB) before it returns to the first."""
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    return max(1, min(MOST_SETS, math.ceil(max(5 * l2, 300 << 20) / max(touched, 1))))


class Contender:
    """One peer at one case. `call(i)` enqueues the op on input set i; a peer that allocates its own result returns it.
    `graphed=False`: one launch at a time in a stream, for what a CUDA graph would slow down."""

    def __init__(self, peer, call, graphed=True, **extra):
        self.peer, self.call, self.graphed, self.extra = peer, call, graphed, extra
        self.kept = {}

    def enqueue(self, i):
        result = self.call(i)
        if result is not None:
            # Results must stay alive: freed ones would be handed out again and the outputs would not rotate.
            self.kept[i] = result
        return result


def queue_ahead():
    """Keeps the device busy for some 2 ms, so that all that follows is queued before the first replay begins."""
    torch.cuda._sleep(4_000_000)


def capture(contender, launches, sets):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            contender.enqueue(i % sets)
    return graph


def replay_ns(graph, times):
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    queue_ahead()
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e6 for a, b in zip(marks, marks[1:])]


class Direct:
    """What stands for the graph of a contender that takes none: a launch for each replay, over the sets in turn."""

    def __init__(self, contender, sets):
        self.contender, self.sets, self.done = contender, sets, 0

    def replay(self):
        self.contender.enqueue(self.done % self.sets)
        self.done += 1


def graph_of(contender, sets):
    """A graph of at least REPLAY_US of the contender's launches, and how many there are in it."""
    if not contender.graphed:
        return Direct(contender, sets), 1
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(sets):
            contender.enqueue(i)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = capture(contender, sets, sets)
    replay_ns(graph, 2)
    once = min(replay_ns(graph, 3))
    rounds = max(1, min(math.ceil(REPLAY_US * 1e3 / once), NODES // sets))
    if rounds > 1:
        graph = capture(contender, sets * rounds, sets)
        replay_ns(graph, 2)
    return graph, sets * rounds


def alternate(graphs, rounds=ROUNDS):
    """Times of each graph's replays in ns, taken in turn: A B C, C B A, A B C, ..., so that none always follows the same one.
    The n-th times of all graphs lie within one round: a pair of them is a comparison."""
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2 * rounds)] for _ in graphs]
    done = 0
    while done < rounds:
        some = min(8, rounds - done)  # short batches: the device must not starve while the host queues
        queue_ahead()
        for r in range(done, done + some):
            for graph, events in list(zip(graphs, marks))[::-1 if r % 2 else 1]:
                events[2 * r].record()
                graph.replay()
                events[2 * r + 1].record()
        torch.cuda.synchronize()
        done += some
    return [[a.elapsed_time(b) * 1e6 for a, b in zip(events[::2], events[1::2])] for events in marks]


# ---- checks and rows ---------------------------------------------------------------------------------------------------


def error_of(got, want):
    """‖got − want‖ / ‖want‖ in double precision; an unwritten (NaN) element makes it NaN, which passes nothing."""
    got, want = got.double(), want.double()
    return ((got - want).norm() / want.norm()).item()


def normal(*size, dtype=None, std=1.0):
    tensor = torch.empty(size, dtype=dtype or torch.bfloat16, device="cuda").normal_()
    return tensor.mul_(std) if std != 1.0 else tensor


def poison(*size, dtype=None):
    return torch.full(size, math.nan, dtype=dtype or torch.bfloat16, device="cuda")


def quantile(sorted_values, q):
    return sorted_values[min(len(sorted_values) - 1, int(q * (len(sorted_values) - 1) + 0.5))]


class Run:
    """The rows of one script, written after every case so that nothing measured is lost."""

    def __init__(self, op, args):
        self.op, self.args = op, args
        self.head = dict(schema=1, provenance="measured", environment=environment(args.gpu), libraries=versions(), note=None)
        self.rows = []
        self.told = False

    def wants(self, peer):
        return wanted(self.args, peer)

    def case(self, text, contenders, sets, touched, flops, check, tolerance, rounds=ROUNDS, reset=lambda: None):
        """Checks each contender once, then times all that are right in alternation, and writes their rows.

        `contenders` are makers, (peer, function that builds a Contender): building may fail (a library that is missing, a
        shape that it refuses) and costs that peer alone. `check(contender, result)` gives the error of set 0."""
        ready = []
        for peer, make in contenders:
            if not self.wants(peer):
                continue
            try:
                contender = make()
                reset()
                result = contender.enqueue(0)
                torch.cuda.synchronize()
                error = check(contender, result)
                graph, launches = graph_of(contender, sets)
                ready.append((contender, error, graph, launches))
            except Exception as e:  # noqa: BLE001 - that peer's row says what happened
                self.failed(peer, text, e)
        if not ready:
            return
        times = alternate([graph for _, _, graph, _ in ready], rounds)
        for (contender, error, _, launches), samples in zip(ready, times):
            self.add(contender, text, samples, launches, sets, touched, flops, error, tolerance)

    def add(self, contender, text, samples, launches, sets, touched, flops, error, tolerance):
        ns = sorted(t / launches for t in samples)
        median = statistics.median(ns)
        row = dict(
            op=self.op, variant=contender.peer, peer=contender.peer, shape=text,
            mode="graph" if contender.graphed else "stream", ns=round(median),
            ns_p10=round(quantile(ns, 0.1)), ns_p90=round(quantile(ns, 0.9)), n=launches * len(ns), bytes=int(touched),
            flops=int(flops), sets=sets, median_ns=median,
            mad_ns=1.4826 * statistics.median(abs(t - median) for t in ns), launches_per_sample=launches,
            samples_ns=[round(t / launches, 1) for t in samples], ok=bool(error <= tolerance),
            error=None if math.isnan(error) else error, tolerance=tolerance, warnings=[])
        row.update(contender.extra)
        self.write(row)
        self.say(contender.peer, text, f"{median / 1e3:10.2f} {touched / median:8.0f} {flops / median / 1e3:8.1f} {error:9.1e}"
                 + ("" if row["ok"] else "  WRONG"))

    def failed(self, peer, text, e):
        """A row with the reason and no time."""
        why = f"{type(e).__name__}: {e}".splitlines()[0][:300]
        self.write(dict(op=self.op, variant=peer, peer=peer, shape=text, failed=why))
        self.say(peer, text, f"failed: {why}")
        if not isinstance(e, ImportError):
            traceback.print_exc(limit=-3)
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            pass  # a broken context fails every later case in its own row

    def say(self, peer, text, numbers):
        if not self.told:
            self.told = True
            print(f"{'peer':<26} {'shape':<52} {'µs':>10} {'GB/s':>8} {'TFLOP/s':>8} {'error':>9}", file=sys.stderr)
        shown = text if len(text) <= 52 else text[:51] + "…"
        print(f"{peer:<26} {shown:<52} {numbers}", file=sys.stderr, flush=True)

    def write(self, row):
        self.rows.append(row)
        if self.args.out != "-":
            self.flush()

    def flush(self):
        text = "".join(json.dumps(r) + "\n" for r in [self.head, *self.rows])
        if self.args.out == "-":
            sys.stdout.write(text)
            return
        with open(self.args.out + ".part", "w") as f:
            f.write(text)
        os.replace(self.args.out + ".part", self.args.out)

    def finish(self):
        self.head["environment"]["after"] = reading(self.args.gpu)
        self.flush()
