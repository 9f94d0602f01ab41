//! What is wrong with a capture, found before any number of it is believed.
//!
//! Nothing is mended here: a flaw is counted, placed and explained, and the ledger books what it touches as unknown.

use super::ledger::FastMap;
use super::trace::{Call, CallKind, Defect, Operation, Trace};
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
        | "coarse_clock"
        | "joined_by_order"
        | "missing_node_ids"
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
    count: u64,
    first: Option<u64>,
}

impl Tally {
    fn new(name: &'static str) -> Self {
        Self { name, count: 0, first: None }
    }
    fn hit(&mut self, index: usize) {
        self.count += 1;
        self.first.get_or_insert(index as u64);
    }
    fn report(self, out: &mut Vec<Defect>, detail: impl FnOnce() -> String) {
        if self.count > 0 {
            let (defect, count, first_offset) = (self.name.to_string(), self.count, self.first);
            out.push(Defect { defect, count, first_offset, detail: detail() });
        }
    }
}

/// Audits a whole capture.
pub fn audit(trace: &Trace) -> Audit {
    let mut out = Audit { defects: trace.defects.clone(), clock_error_ns: 0 };
    times(trace, &mut out.defects);
    joins(trace, &mut out);
    streams(trace, &mut out.defects);
    if trace.resolution_ns > 1 {
        out.defects.push(Defect {
            defect: "coarse_clock".into(),
            count: 1,
            first_offset: None,
            detail: format!(
                "times are multiples of {} ns: gaps and kernels shorter than that cannot be told apart",
                2 * trace.resolution_ns
            ),
        });
    }
    out.defects.sort_by_key(|d| std::cmp::Reverse(severity(&d.defect)));
    out
}

fn never_collected(o: &Operation) -> bool {
    (o.start == 0 && o.end == 0) || o.start == i64::MIN || o.end == i64::MIN
}

fn times(trace: &Trace, out: &mut Vec<Defect>) {
    let ops = &trace.operations;
    if ops.is_empty() {
        let calls = trace.calls.len();
        out.push(Defect {
            defect: "no_gpu_work".into(),
            count: 1,
            first_offset: None,
            detail: format!(
                "the capture holds no operation of a device ({calls} API calls, {} ranges); there is nothing to account",
                trace.markers.len()
            ),
        });
        return;
    }
    let (mut zero, mut backwards, mut instant) =
        (Tally::new("zero_times"), Tally::new("end_before_start"), Tally::new("zero_duration"));
    for (i, o) in ops.iter().enumerate() {
        match () {
            () if never_collected(o) => zero.hit(i),
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
            detail: "no operation carries usable times".into(),
        });
    }
    // A tail of the capture without times is the profiler's buffer pool running dry; say where it begins.
    let tail = ops.iter().rev().take_while(|o| never_collected(o)).count();
    let total = zero.count;
    zero.report(out, || match tail > 1 && tail < ops.len() {
        true => format!("operations whose times were not collected; {tail} of {total} are the capture's end"),
        false => "operations whose times were not collected; they are on no line".into(),
    });
    backwards.report(out, || "operations that end before they start; they are on no line".into());
    instant.report(out, || "operations of no length at this clock's resolution; counted, on no nanosecond".into());
}

fn joins(trace: &Trace, out: &mut Audit) {
    let mut launches: FastMap<(u32, u64), u32> = FastMap::default();
    for (i, c) in trace.calls.iter().enumerate() {
        if c.correlation != 0 && matches!(c.kind, CallKind::Launch | CallKind::GraphLaunch) {
            let have = launches.entry((c.process, c.correlation)).or_insert(i as u32);
            let old = &trace.calls[*have as usize];
            if (c.driver, c.start) < (old.driver, old.start) {
                *have = i as u32;
            }
        }
    }
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
        if !never_collected(o) && o.start < call.start {
            early.hit(i);
            out.clock_error_ns = out.clock_error_ns.max(call.start.saturating_sub(o.start));
        }
    }
    let mut idle = Tally::new("launch_without_operation");
    let mut apis = 0u64;
    let captures = captures(trace);
    for (key, &call) in &launches {
        apis += 1;
        if !used.contains_key(key) && !captured(&captures, &trace.calls[call as usize]) {
            idle.count += 1;
            idle.first = Some(idle.first.map_or(u64::from(call), |f| f.min(u64::from(call))));
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
            first_offset: None,
            detail: "no API call was recorded: what ran is known, why the device idled between is not".into(),
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
        format!("of {apis} launches, these have no operation in the capture: host-side, dropped or after its end")
    });
    nodeless.report(&mut out.defects, || "graph nodes without node ids; they are joined by their launch alone".into());
    graphs(trace, &used, &launches, &mut out.defects);
}

/// While a thread captures a stream, what it launches becomes a graph's node and does not run: the times between the calls
/// that begin and end captures, by thread and in order. A capture without an end reaches to the end.
fn captures(trace: &Trace) -> FastMap<(u32, u64), Vec<(i64, i64)>> {
    let mut edges: Vec<(u32, u64, i64, bool)> = Vec::new();
    for c in &trace.calls {
        let name = trace.names.text(c.name);
        if let Some(begins) =
            name.contains("EndCapture").then_some(false).or(name.contains("BeginCapture").then_some(true))
        {
            edges.push((c.process, c.thread, c.start, begins));
        }
    }
    edges.sort_unstable();
    let mut out: FastMap<(u32, u64), Vec<(i64, i64)>> = FastMap::default();
    for (process, thread, time, begins) in edges {
        let list = out.entry((process, thread)).or_default();
        match list.last_mut().filter(|(_, end)| *end == i64::MAX) {
            Some(open) if !begins => open.1 = time,
            // A driver call inside the runtime call that has opened it already.
            Some(_) => {}
            None if begins => list.push((time, i64::MAX)),
            None => {}
        }
    }
    out
}

fn captured(captures: &FastMap<(u32, u64), Vec<(i64, i64)>>, call: &Call) -> bool {
    let Some(list) = captures.get(&(call.process, call.thread)) else { return false };
    let i = list.partition_point(|&(begin, _)| begin <= call.start);
    i > 0 && call.start < list[i - 1].1
}

/// Launches of one graph must all record the same number of operations.
fn graphs(trace: &Trace, used: &FastMap<(u32, u64), u32>, launches: &FastMap<(u32, u64), u32>, out: &mut Vec<Defect>) {
    let mut of: FastMap<(u32, u64), u32> = FastMap::default();
    for o in trace.operations.iter().filter(|o| o.graph != 0) {
        of.insert((o.process, o.correlation), o.graph);
    }
    let mut most: FastMap<(u32, u32), u32> = FastMap::default();
    for (key, &graph) in &of {
        let m = most.entry((key.0, graph)).or_insert(0);
        *m = (*m).max(used[key]);
    }
    let mut few = Tally::new("graph_under_recorded");
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

fn streams(trace: &Trace, out: &mut Vec<Defect>) {
    let mut order: Vec<u32> = (0..trace.operations.len() as u32).collect();
    let key = |i: &u32| {
        let o = &trace.operations[*i as usize];
        (o.process, o.device, o.stream, o.start, o.end, o.name, o.correlation, o.graph_node)
    };
    if !order.is_sorted_by_key(key) {
        order.sort_unstable_by_key(key);
    }
    let (mut overlap, mut twice) = (Tally::new("overlap_on_stream"), Tally::new("duplicate"));
    let mut overlap_ns = 0i64;
    let mut reach: Option<(u32, u32, u64, i64)> = None;
    for pair in order.windows(2) {
        let (a, b) = (&trace.operations[pair[0] as usize], &trace.operations[pair[1] as usize]);
        if b.end > b.start && key(&pair[0]) == key(&pair[1]) {
            twice.hit(pair[1] as usize);
        }
        let lane = (b.process, b.device, b.stream);
        let end = match reach {
            Some((p, d, s, end)) if (p, d, s) == lane => end.max(a.end),
            _ if (a.process, a.device, a.stream) == lane => a.end,
            _ => i64::MIN,
        };
        if b.start < end && b.end > b.start && !never_collected(b) {
            overlap.hit(pair[1] as usize);
            overlap_ns = overlap_ns.saturating_add(end.min(b.end).saturating_sub(b.start));
        }
        reach = Some((lane.0, lane.1, lane.2, end));
    }
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
