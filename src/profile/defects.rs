//! What is wrong with a capture, found before any number of it is believed.
//!
//! Nothing is mended here: a flaw is counted, placed and explained, and the ledger books what it touches as unknown.

use super::captured::Captures;
use super::ledger::FastMap;
use super::trace::{CallKind, Defect, Operation, Place, Trace, Work};
use serde::Serialize;

/// What a defect does to the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; the ledger stands.
    Note,
    /// Some of the ledger is unknown or uncertain.
    Warn,
    /// The file cannot carry an account of its time.
    Fail,
}

/// Severity by the defect's stable name.
pub fn severity(defect: &str) -> Severity {
    match defect {
        "no_gpu_work" | "no_usable_times" => Severity::Fail,
        "overlap_on_stream"
        | "zero_duration"
        | "quoted_number"
        | "non_finite_number"
        | "invalid_utf8"
        | "missing_comma"
        | "coarse_clock"
        | "joined_by_order"
        | "missing_node_ids"
        | "graph_perhaps_under_recorded"
        | "conditional_graph"
        | "launch_without_operation" => Severity::Note,
        _ => Severity::Warn,
    }
}

/// All that is known against a capture.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Audit {
    /// Reading flaws and found ones, worst first.
    pub defects: Vec<Defect>,
    /// The clock's error cannot be smaller than this: the largest time by which an operation precedes its own launch.
    pub clock_error_ns: i64,
}

impl Audit {
    pub fn worst(&self) -> Option<Severity> {
        self.defects.iter().map(|d| severity(&d.defect)).max()
    }
}

/// Counts one defect as its records are met.
struct Tally {
    name: &'static str,
    place: Place,
    count: u64,
    first: Option<u64>,
}

impl Tally {
    /// Of operations.
    fn new(name: &'static str) -> Self {
        Self { name, place: Place::Operation, count: 0, first: None }
    }
    fn of_calls(name: &'static str) -> Self {
        Self { place: Place::Call, ..Self::new(name) }
    }
    fn hit(&mut self, index: usize) {
        self.count += 1;
        self.first = Some(self.first.map_or(index as u64, |first| first.min(index as u64)));
    }
    fn report(self, out: &mut Vec<Defect>, detail: impl FnOnce() -> String) {
        if self.count > 0 {
            let (defect, count, first_offset) = (self.name.to_string(), self.count, self.first);
            out.push(Defect { defect, count, first_offset, place: self.place, detail: detail() });
        }
    }
}

/// Audits a whole capture.
pub fn audit(trace: &Trace) -> Audit {
    let mut out = Audit { defects: trace.defects.clone(), clock_error_ns: 0 };
    times(trace, &mut out.defects);
    host_times(trace, &mut out.defects);
    let launches = launches(trace);
    joins(trace, &launches, &mut out);
    streams(trace, &launches, &mut out.defects);
    if trace.resolution_ns > 1 {
        out.defects.push(Defect {
            defect: "coarse_clock".into(),
            count: 1,
            detail: format!(
                "times are multiples of {} ns: gaps and kernels shorter than that cannot be told apart",
                2 * trace.resolution_ns
            ),
            ..Defect::default()
        });
    }
    out.defects.sort_by_key(|d| std::cmp::Reverse(severity(&d.defect)));
    out
}

fn times(trace: &Trace, out: &mut Vec<Defect>) {
    let ops = &trace.operations;
    if ops.is_empty() {
        let calls = trace.calls.len();
        out.push(Defect {
            defect: "no_gpu_work".into(),
            count: 1,
            detail: format!(
                "the capture holds no operation of a device ({calls} API calls, {} ranges); there is nothing to account",
                trace.markers.len()
            ),
            ..Defect::default()
        });
        return;
    }
    let (mut zero, mut backwards, mut instant) =
        (Tally::new("zero_times"), Tally::new("end_before_start"), Tally::new("zero_duration"));
    for (i, o) in ops.iter().enumerate() {
        match () {
            () if !o.collected() => zero.hit(i),
            () if o.end < o.start => backwards.hit(i),
            () if o.end == o.start => instant.hit(i),
            () => {}
        }
    }
    if zero.count + backwards.count == ops.len() as u64 {
        out.push(Defect {
            defect: "no_usable_times".into(),
            count: ops.len() as u64,
            first_offset: Some(0),
            place: Place::Operation,
            detail: "no operation carries usable times".into(),
        });
    }
    // A tail of the capture without times is the profiler's buffer pool running dry; say where it begins.
    let tail = ops.iter().rev().take_while(|o| !o.collected()).count();
    let total = zero.count;
    zero.report(out, || match tail > 1 && tail < ops.len() {
        true => format!("operations whose times were not collected; {tail} of {total} are the capture's end: it can be used up to there"),
        false => "operations whose times were not collected; they are on no line, and where they may have run is unknown".into(),
    });
    backwards.report(out, || "operations that end before they start; they are on no line".into());
    instant.report(out, || "operations of no length at this clock's resolution; counted, on no nanosecond".into());
}

/// Calls, overheads and ranges of the host that end before they start: no ledger uses them.
fn host_times(trace: &Trace, out: &mut Vec<Defect>) {
    let mut backwards = Tally::of_calls("call_ends_before_start");
    trace.calls.iter().enumerate().filter(|(_, c)| c.end < c.start).for_each(|(i, _)| backwards.hit(i));
    let others = trace.overheads.iter().filter(|o| o.end < o.start).count()
        + trace.markers.iter().filter(|m| m.end < m.start).count();
    backwards.count += others as u64;
    backwards.report(out, || {
        "calls, ranges or overhead records that end before they start; what the host did then is not known".into()
    });
}

/// The launch call of each correlation of a process; of nested ones the outermost.
type Launches = FastMap<(u32, u64), u32>;

fn launches(trace: &Trace) -> Launches {
    let mut launches = Launches::default();
    for (i, c) in trace.calls.iter().enumerate() {
        if c.correlation != 0 && matches!(c.kind, CallKind::Launch | CallKind::GraphLaunch) {
            let have = launches.entry((c.process, c.correlation)).or_insert(i as u32);
            let old = &trace.calls[*have as usize];
            if (c.driver, c.start) < (old.driver, old.start) {
                *have = i as u32;
            }
        }
    }
    launches
}

fn joins(trace: &Trace, launches: &Launches, out: &mut Audit) {
    let mut early = Tally::new("kernel_before_launch");
    let (mut orphan, mut nodeless) = (Tally::new("operation_without_launch"), Tally::new("missing_node_ids"));
    let mut orphan_ns = 0i64;
    let mut used: FastMap<(u32, u64), u32> = FastMap::default();
    for (i, o) in trace.operations.iter().enumerate() {
        let key = (o.process, o.correlation);
        *used.entry(key).or_insert(0) += 1;
        let Some(&call) = launches.get(&key) else {
            orphan.hit(i);
            orphan_ns = orphan_ns.saturating_add(o.end.saturating_sub(o.start).max(0));
            continue;
        };
        let call = &trace.calls[call as usize];
        if call.kind == CallKind::GraphLaunch && o.graph_node == 0 {
            nodeless.hit(i);
        }
        if o.collected() && o.start < call.start {
            early.hit(i);
            out.clock_error_ns = out.clock_error_ns.max(call.start.saturating_sub(o.start));
        }
    }
    let (mut idle, mut lost) = (Tally::of_calls("launch_without_operation"), Tally::of_calls("unrecorded_launch"));
    let timed = || trace.operations.iter().filter(|o| o.timed());
    let (first, last) =
        (timed().map(|o| o.start).min().unwrap_or(i64::MAX), timed().map(|o| o.end).max().unwrap_or(i64::MIN));
    let (mut apis, mut before, mut after) = (0u64, 0u64, 0u64);
    let mut captures: Option<Captures> = None;
    for (key, &i) in launches {
        apis += 1;
        let call = &trace.calls[i as usize];
        if used.contains_key(key) || captures.get_or_insert_with(|| Captures::new(trace)).hold(call) {
            continue;
        }
        idle.hit(i as usize);
        match () {
            () if call.end < first => before += 1,
            () if call.start > last => after += 1,
            // A copy may be of nothing, or between hosts; a kernel or a graph ran.
            () if call.kind == CallKind::GraphLaunch || trace.names.text(call.name).contains("Launch") => {
                lost.hit(i as usize);
            }
            () => {}
        }
    }
    let error = out.clock_error_ns;
    early.report(&mut out.defects, || {
        format!("operations that start before their own launch, by up to {error} ns: the clock errs by at least that")
    });
    if trace.calls.is_empty() && !trace.operations.is_empty() {
        out.defects.push(Defect {
            defect: "no_api_calls".into(),
            count: 1,
            detail: "no API call was recorded: what ran is known, why the device idled between is not".into(),
            ..Defect::default()
        });
    } else {
        orphan.report(&mut out.defects, || {
            let ms = orphan_ns as f64 / 1e6;
            format!(
                "operations ({ms:.1} ms of work) whose launch is not in the capture; the gaps before them are unknown"
            )
        });
    }
    idle.report(&mut out.defects, || {
        format!(
            "of {apis} launches, these have no operation in the capture ({before} before its first operation, {after} after \
             its last): host-side, dropped or outside"
        )
    });
    lost.report(&mut out.defects, || {
        "launches of kernels or graphs of which no operation was recorded though others before and after were; idle time \
         in which they may have run is unknown"
            .into()
    });
    nodeless.report(&mut out.defects, || "graph nodes without node ids; they are joined by their launch alone".into());
    graphs(trace, &used, launches, &mut out.defects);
    uneven(trace, launches, &mut out.defects);
    conditional(trace, &mut out.defects);
}

/// Launches of one graph must all record the same number of operations.
fn graphs(trace: &Trace, used: &FastMap<(u32, u64), u32>, launches: &Launches, out: &mut Vec<Defect>) {
    let mut of: FastMap<(u32, u64), u32> = FastMap::default();
    for o in trace.operations.iter().filter(|o| o.graph != 0) {
        of.insert((o.process, o.correlation), o.graph);
    }
    let mut most: FastMap<(u32, u32), u32> = FastMap::default();
    for (key, &graph) in &of {
        let m = most.entry((key.0, graph)).or_insert(0);
        *m = (*m).max(used[key]);
    }
    let mut few = Tally::of_calls("graph_under_recorded");
    let (mut missing, mut first) = (0u64, None);
    for (key, &graph) in &of {
        let lack = most[&(key.0, graph)] - used[key];
        if lack > 0 {
            few.count += 1;
            missing += u64::from(lack);
            let call = launches.get(key).copied().map(u64::from);
            first = match (first, call) {
                (Some(a), Some(b)) => Some(std::cmp::min::<u64>(a, b)),
                (a, b) => a.or(b),
            };
        }
    }
    few.first = first;
    few.report(out, || {
        format!("graph launches with {missing} records fewer than other launches of the same graph; idle time in them is unknown")
    });
}

/// Graph launches of files that give graphs no ids, by their kernels: the one launch that has some of what many alike have is
/// suspect. It may be another graph, so it is only said.
fn uneven(trace: &Trace, launches: &Launches, out: &mut Vec<Defect>) {
    let mut of: FastMap<(u32, u64), Vec<(i64, u32)>> = FastMap::default();
    for o in trace.operations.iter().filter(|o| o.graph == 0 && o.timed()) {
        let key = (o.process, o.correlation);
        if launches.get(&key).is_some_and(|&c| trace.calls[c as usize].kind == CallKind::GraphLaunch) {
            of.entry(key).or_default().push((o.start, o.name.0));
        }
    }
    let mut alike: FastMap<Vec<u32>, Vec<u32>> = FastMap::default();
    for (key, mut nodes) in of {
        nodes.sort_unstable();
        alike.entry(nodes.into_iter().map(|n| n.1).collect()).or_default().push(launches[&key]);
    }
    let part = |few: &[u32], all: &[u32]| {
        let mut rest = all.iter();
        few.len() < all.len() && few.iter().all(|n| rest.any(|m| m == n))
    };
    let common: Vec<&Vec<u32>> =
        alike.iter().filter(|(_, calls)| calls.len() >= 3).map(|(names, _)| names).take(64).collect();
    let mut suspect = Tally::of_calls("graph_perhaps_under_recorded");
    for (names, calls) in alike.iter().filter(|(_, calls)| calls.len() == 1) {
        if common.iter().any(|all| part(names, all)) {
            suspect.hit(calls[0] as usize);
        }
    }
    suspect.report(out, || {
        "graph launches with some of the kernels that three or more others have: another graph, or records are missing and \
         idle time in them is not real (the file has no graph ids to tell)"
            .into()
    });
}

/// Of a conditional node's body CUPTI records one round, if any.
fn conditional(trace: &Trace, out: &mut Vec<Defect>) {
    let mut made = Tally::of_calls("conditional_graph");
    for (i, c) in trace.calls.iter().enumerate().filter(|(_, c)| c.kind == CallKind::Other) {
        if trace.names.text(c.name).contains("GraphConditionalHandleCreate") {
            made.hit(i);
        }
    }
    made.report(out, || {
        "graphs with conditional nodes were made: rounds after a body's first may be missing from the capture".into()
    });
}

fn streams(trace: &Trace, launches: &Launches, out: &mut Vec<Defect>) {
    let mut order: Vec<u32> = (0..trace.operations.len() as u32).collect();
    let key = |i: &u32| {
        let o = &trace.operations[*i as usize];
        (o.process, o.device, o.stream, o.start, o.end, o.name, o.correlation, o.graph_node)
    };
    if !order.is_sorted_by_key(key) {
        order.sort_unstable_by_key(key);
    }
    let in_graph = |o: &Operation| {
        let call = launches.get(&(o.process, o.correlation)).map(|&c| trace.calls[c as usize].kind);
        o.graph_node != 0 || o.work == Work::Graph || call == Some(CallKind::GraphLaunch)
    };
    let (mut overlap, mut twice, mut endless) =
        (Tally::new("overlap_on_stream"), Tally::new("duplicate"), Tally::new("implausible_duration"));
    let (mut overlap_ns, mut endless_ns) = (0i64, 0i64);
    // The operation of the lane that ends last so far, and how many whole later ones it has outlasted.
    let mut longest: Option<(u32, u32)> = None;
    for pair in order.windows(2) {
        let (a, b) = (&trace.operations[pair[0] as usize], &trace.operations[pair[1] as usize]);
        if b.end > b.start && key(&pair[0]) == key(&pair[1]) {
            twice.hit(pair[1] as usize);
        }
        let lane = |o: &Operation| (o.process, o.device, o.stream);
        longest = longest.filter(|l| lane(&trace.operations[l.0 as usize]) == lane(b));
        if a.timed() && lane(a) == lane(b) && longest.is_none_or(|l| trace.operations[l.0 as usize].end < a.end) {
            longest = Some((pair[0], 0));
        }
        let Some((i, outlasted)) = longest.as_mut().filter(|_| b.timed() && b.end > b.start) else { continue };
        let long = &trace.operations[*i as usize];
        if b.start >= long.end {
            continue;
        }
        overlap.hit(pair[1] as usize);
        overlap_ns = overlap_ns.saturating_add(long.end.min(b.end).saturating_sub(b.start));
        // On one stream the next may begin early, but it does not end before the one ahead of it, and the one after it
        // does not begin. Branches of a graph may do both, and an operation recorded twice is no second one.
        if b.end < long.end && !in_graph(b) && !in_graph(long) {
            *outlasted += 1;
            if *outlasted == 2 {
                endless.hit(*i as usize);
                endless_ns = endless_ns.max(long.end.saturating_sub(long.start));
            }
        }
    }
    endless.report(out, || {
        format!(
            "operations (the longest of {:.1} µs) that last beyond two whole later ones of their stream, which no stream \
             does: their ends are not to be believed, and lines and windows that hold them are too long",
            endless_ns as f64 / 1e3
        )
    });
    overlap.report(out, || {
        format!(
            "operations that start before the previous one of their stream has ended, {:.1} µs together: programmatic \
             dependent launch, or parallel branches of a graph; booked as overlap",
            overlap_ns as f64 / 1e3
        )
    });
    twice.report(out, || "operations recorded twice; they stand on an overlap line with themselves".into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::trace::{Call, Overhead};

    fn op(start: i64, end: i64, correlation: u64) -> Operation {
        Operation { start, end, correlation, stream: 7, ..Operation::default() }
    }

    fn count(a: &Audit, name: &str) -> Option<(u64, Option<u64>)> {
        a.defects.iter().find(|d| d.defect == name).map(|d| (d.count, d.first_offset))
    }

    #[test]
    fn each_flaw_is_counted_and_placed() {
        let mut t = Trace { resolution_ns: 1, ..Trace::default() };
        t.operations = vec![
            op(100, 200, 1),
            op(150, 250, 2),
            op(150, 250, 2),
            op(300, 290, 3),
            op(400, 400, 4),
            op(0, 0, 5),
            op(0, 0, 6),
        ];
        let name = t.names.intern("cudaLaunchKernel");
        for (correlation, start) in [(1, 90), (2, 180), (9, 500)] {
            let (kind, driver) = (CallKind::Launch, false);
            t.calls.push(Call { kind, name, process: 0, thread: 1, start, end: start + 5, correlation, driver });
        }
        let a = audit(&t);
        assert_eq!(count(&a, "zero_times"), Some((2, Some(5))));
        assert_eq!(count(&a, "end_before_start"), Some((1, Some(3))));
        assert_eq!(count(&a, "zero_duration"), Some((1, Some(4))));
        assert_eq!(count(&a, "kernel_before_launch"), Some((2, Some(1))));
        assert_eq!(a.clock_error_ns, 30);
        assert_eq!(count(&a, "duplicate"), Some((1, Some(2))));
        assert_eq!(count(&a, "overlap_on_stream"), Some((2, Some(1))));
        assert_eq!(count(&a, "operation_without_launch"), Some((4, Some(3))));
        assert_eq!(count(&a, "launch_without_operation"), Some((1, Some(2))));
        assert_eq!(a.worst(), Some(Severity::Warn));
        assert_eq!(count(&a, "no_gpu_work"), None);
    }

    #[test]
    fn unknown_times_have_many_spellings() {
        let now = 1_700_000_000_000_000_000;
        for (start, end) in [(0, 0), (i64::MAX, i64::MAX), (i64::MIN, 5), (0, now), (now, 0), (now, i64::MAX)] {
            let mut t = Trace { resolution_ns: 1, ..Trace::default() };
            t.operations = vec![op(now, now + 5, 1), op(start, end, 2)];
            assert_eq!(count(&audit(&t), "zero_times"), Some((1, Some(1))), "{start} {end}");
        }
        // A capture that begins at 0 is none of these.
        assert!(op(0, 5, 1).timed() && op(-5, 0, 1).timed());
    }

    #[test]
    fn host_records_that_end_before_they_start_are_counted() {
        let mut t = Trace { resolution_ns: 1, ..Trace::default() };
        let name = t.names.intern("cudaEventRecord");
        for (start, end) in [(10, 20), (30, 25)] {
            let kind = CallKind::Other;
            t.calls.push(Call { kind, name, process: 0, thread: 1, start, end, correlation: 0, driver: false });
        }
        t.overheads.push(Overhead { name, process: 0, thread: 1, start: 7, end: 3 });
        assert_eq!(count(&audit(&t), "call_ends_before_start"), Some((2, Some(1))));
    }

    /// A duration that overflowed: the kernel reaches over those that came after it on its stream.
    #[test]
    fn a_kernel_that_outlasts_its_successors_is_not_believed() {
        let mut t = Trace { resolution_ns: 1, ..Trace::default() };
        t.operations = vec![op(100, 5_000_000, 1), op(200, 300, 2), op(400, 500, 3), op(600, 700, 4)];
        let a = audit(&t);
        assert_eq!(count(&a, "implausible_duration"), Some((1, Some(0))));
        assert_eq!((severity("implausible_duration"), count(&a, "overlap_on_stream").unwrap().0), (Severity::Warn, 3));
        // A programmatic launch lets the next begin early, and a graph's branches may do what they like.
        t.operations = vec![op(100, 310, 1), op(200, 420, 2), op(400, 500, 3)];
        assert_eq!(count(&audit(&t), "implausible_duration"), None);
        t.operations = vec![op(100, 5_000, 1), op(200, 300, 1), op(400, 500, 1), op(600, 700, 1)];
        t.operations.iter_mut().for_each(|o| o.graph_node = 4);
        assert_eq!(count(&audit(&t), "implausible_duration"), None);
    }

    #[test]
    fn launches_that_left_no_record_are_told_from_those_outside() {
        let mut t = Trace { resolution_ns: 1, ..Trace::default() };
        let mut call = |name: &str, kind, start, correlation| {
            let name = t.names.intern(name);
            t.calls.push(Call { kind, name, process: 0, thread: 1, start, end: start + 5, correlation, driver: false });
        };
        call("cudaLaunchKernel", CallKind::Launch, 10, 1);
        call("cudaLaunchKernel", CallKind::Launch, 90, 2);
        call("cudaGraphLaunch", CallKind::GraphLaunch, 150, 3);
        call("cudaMemcpyAsync", CallKind::Launch, 160, 4);
        call("cudaLaunchKernel", CallKind::Launch, 450, 5);
        call("cudaGraphConditionalHandleCreate", CallKind::Other, 5, 6);
        t.operations = vec![op(100, 200, 2), op(300, 400, 2)];
        let a = audit(&t);
        assert_eq!(count(&a, "launch_without_operation"), Some((4, Some(0))));
        assert_eq!(count(&a, "unrecorded_launch"), Some((1, Some(2))));
        assert_eq!(count(&a, "conditional_graph"), Some((1, Some(5))));
        let d = a.defects.iter().find(|d| d.defect == "launch_without_operation").unwrap();
        assert!(d.detail.contains("1 before its first operation, 1 after its last") && d.first() == "call 0", "{d:?}");
    }

    #[test]
    fn a_graph_launch_unlike_the_others_is_suspect_where_graphs_have_no_ids() {
        let mut t = Trace { resolution_ns: 1, ..Trace::default() };
        let name = t.names.intern("cudaGraphLaunch");
        let nodes: Vec<_> = ["a", "b", "c"].map(|n| t.names.intern(n)).into();
        for launch in 1..6u64 {
            let at = 1_000 * launch as i64;
            let (kind, end) = (CallKind::GraphLaunch, at + 5);
            t.calls.push(Call {
                kind,
                name,
                process: 0,
                thread: 1,
                start: at,
                end,
                correlation: launch,
                driver: false,
            });
            for (k, name) in nodes.iter().enumerate().filter(|(k, _)| launch != 3 || *k != 1) {
                let start = at + 10 + 100 * k as i64;
                t.operations.push(Operation { name: *name, ..op(start, start + 90, launch) });
            }
        }
        assert_eq!(count(&audit(&t), "graph_perhaps_under_recorded"), Some((1, Some(2))));
        t.operations.retain(|o| o.correlation != 3);
        assert_eq!(count(&audit(&t), "graph_perhaps_under_recorded"), None);
        assert_eq!(count(&audit(&t), "unrecorded_launch"), Some((1, Some(2))));
    }

    #[test]
    fn a_captured_launch_is_not_missed() {
        let mut t = Trace { resolution_ns: 1, ..Trace::default() };
        let mut call = |name: &str, kind, thread, start, correlation| {
            let name = t.names.intern(name);
            t.calls.push(Call { kind, name, process: 0, thread, start, end: start + 5, correlation, driver: false });
        };
        call("cudaStreamBeginCapture", CallKind::Other, 1, 10, 1);
        call("cudaLaunchKernel", CallKind::Launch, 1, 20, 2);
        call("cudaLaunchKernel", CallKind::Launch, 2, 20, 3);
        call("cudaStreamEndCapture", CallKind::Other, 1, 30, 4);
        call("cudaLaunchKernel", CallKind::Launch, 1, 40, 5);
        t.operations = vec![op(100, 200, 9)];
        assert_eq!(count(&audit(&t), "launch_without_operation"), Some((2, Some(2))));
    }

    #[test]
    fn a_clean_capture_has_none_and_an_empty_one_fails() {
        let mut t = Trace { resolution_ns: 1, ..Trace::default() };
        assert_eq!(audit(&t).worst(), Some(Severity::Fail));
        t.operations = vec![op(100, 200, 1), op(200, 250, 2)];
        let name = t.names.intern("cudaLaunchKernel");
        for correlation in [1, 2] {
            let (kind, driver) = (CallKind::Launch, false);
            t.calls.push(Call { kind, name, process: 0, thread: 1, start: 10, end: 20, correlation, driver });
        }
        assert_eq!(audit(&t).defects, []);
    }
}
