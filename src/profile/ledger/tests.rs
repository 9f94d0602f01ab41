//! Properties that must hold for any capture, and small captures whose causes are known because they were planted.

use super::*;
use crate::profile::trace::*;
use proptest::prelude::*;

fn kernel(t: &mut Trace, name: &str, stream: u64, (start, end): (i64, i64), correlation: u64) -> usize {
    let name = t.names.intern(name);
    t.operations.push(Operation { name, stream, start, end, correlation, ..Operation::default() });
    t.operations.len() - 1
}

fn call(t: &mut Trace, kind: CallKind, name: &str, (start, end): (i64, i64), correlation: u64) {
    let name = t.names.intern(name);
    t.calls.push(Call { kind, name, process: 0, thread: 1, start, end, correlation, driver: false });
}

fn exact() -> Options {
    Options { clock_ns: Some(0), ..Options::default() }
}

/// Floors and limits short enough that random captures cross them.
fn tight() -> Options {
    let floors = Floors { stream_ns: 5, graph_node_ns: 3, ..Floors::default() };
    Options { floors, plausible_ns: 12, ..exact() }
}

/// `kind name` → ns.
fn sums(l: &Ledger) -> Vec<(String, i64)> {
    let mut all: Vec<_> = l.lines.iter().map(|x| (format!("{:?} {}", x.kind, x.name), x.ns)).collect();
    all.sort();
    all
}

fn ns(l: &Ledger, kind: LineKind, name: &str) -> i64 {
    l.lines.iter().filter(|x| x.kind == kind && x.name == name).map(|x| x.ns).sum()
}

#[test]
fn planted_host_causes_are_cut_where_they_change() {
    let mut t = Trace::default();
    kernel(&mut t, "a", 7, (1_000, 2_000), 1);
    kernel(&mut t, "b", 7, (10_000, 11_000), 2);
    call(&mut t, CallKind::Launch, "cudaLaunchKernel", (100, 500), 1);
    call(&mut t, CallKind::Sync, "cudaStreamSynchronize", (600, 2_400), 0);
    call(&mut t, CallKind::Other, "cudaMalloc", (3_000, 5_000), 0);
    call(&mut t, CallKind::Launch, "cudaLaunchKernel", (6_000, 8_000), 2);
    let name = t.names.intern("activity buffer request");
    t.overheads.push(Overhead { name, process: 0, thread: 1, start: 6_500, end: 7_000 });
    let l = account(&t, 0, 0, 12_000, &exact()).unwrap();
    assert_eq!(l.residual_ns, 0);
    assert_eq!(ns(&l, LineKind::Head, "host code"), 100);
    assert_eq!(ns(&l, LineKind::Head, "launch call"), 400);
    assert_eq!(ns(&l, LineKind::Head, "launch latency"), 500);
    assert_eq!(ns(&l, LineKind::Kernel, "a"), 1_000);
    assert_eq!(ns(&l, LineKind::Gap, "host blocked in sync cudaStreamSynchronize"), 400);
    assert_eq!(ns(&l, LineKind::Gap, "host code"), 600 + 1_000);
    assert_eq!(ns(&l, LineKind::Gap, "host in API cudaMalloc"), 2_000);
    assert_eq!(ns(&l, LineKind::Gap, "launch call"), 1_500);
    assert_eq!(ns(&l, LineKind::Gap, "profiler activity buffer request"), 500);
    assert_eq!(ns(&l, LineKind::Gap, "launch latency"), 2_000);
    assert_eq!(ns(&l, LineKind::Tail, "host code"), 1_000);
    let worst = &l.lines.iter().find(|x| x.name == "launch latency" && x.kind == LineKind::Gap).unwrap().evidence[0];
    assert_eq!((worst.start_ns, worst.ns), (8_000, 2_000));
    assert!(worst.records.iter().any(|r| r.role == "launch" && r.index == 3));
    assert_eq!(worst.runner_up.cause, Cause::DispatchExcess);
}

#[test]
fn queued_work_pays_the_floor_and_the_excess() {
    let mut t = Trace::default();
    for (i, start) in [(1u64, 1_000i64), (2, 2_500), (3, 6_000)] {
        kernel(&mut t, "k", 7, (start, start + 1_000), i);
        let at = 10 * i as i64;
        call(&mut t, CallKind::Launch, "cuLaunchKernelEx", (at, at + 5), i);
    }
    let l = account(&t, 0, 1_000, 7_000, &exact()).unwrap();
    assert_eq!(ns(&l, LineKind::Gap, "dispatch floor"), 500 + 900);
    assert_eq!(ns(&l, LineKind::Gap, "dispatch excess"), 2_500 - 900);
    let mut o = exact();
    o.labels.set(2, Label { class: "c".into(), floor_ns: Some(700), programmatic: true, ..Label::default() });
    let l = account(&t, 0, 1_000, 7_000, &o).unwrap();
    assert_eq!(ns(&l, LineKind::Gap, "dispatch floor"), 500 + 580);
    let c = l.lines.iter().find(|x| x.name == "c").unwrap();
    assert_eq!((c.ns, c.count, c.floor_ns, c.predicted_ns), (1_000, 1, Some(700), None));
}

#[test]
fn graphs_events_and_other_streams() {
    let mut t = Trace::default();
    for (node, start) in [(11u64, 1_000i64), (12, 2_000), (13, 4_000)] {
        let i = kernel(&mut t, "node", 7, (start, start + 500), 5);
        (t.operations[i].graph_node, t.operations[i].graph) = (node, 3);
    }
    call(&mut t, CallKind::GraphLaunch, "cudaGraphLaunch", (100, 400), 5);
    // Stream 8 waits for an event of stream 7; stream 9 waits for nothing that is recorded.
    call(&mut t, CallKind::Launch, "cudaLaunchKernel", (500, 600), 6);
    call(&mut t, CallKind::Launch, "cudaLaunchKernel", (700, 800), 7);
    kernel(&mut t, "waiter", 8, (5_000, 5_500), 6);
    kernel(&mut t, "stranger", 9, (6_000, 6_500), 7);
    t.syncs.push(Sync {
        kind: SyncKind::StreamWaitEvent,
        process: 0,
        device: 0,
        stream: 8,
        start: 450,
        end: 460,
        correlation: 0,
        event_stream: Some(7),
        event_correlation: Some(5),
        event: 1,
    });
    let l = account(&t, 0, 0, 6_500, &exact()).unwrap();
    assert_eq!(ns(&l, LineKind::Head, "graph launch call"), 300);
    assert_eq!(ns(&l, LineKind::Head, "graph launch latency"), 600);
    assert_eq!(ns(&l, LineKind::Gap, "graph node"), 500 + 700);
    assert_eq!(ns(&l, LineKind::Gap, "graph node excess"), 800);
    assert_eq!(ns(&l, LineKind::Gap, "event wait"), 500);
    assert_eq!(ns(&l, LineKind::Gap, "other stream"), 500);
}

#[test]
fn missing_records_are_unknown_and_never_idle() {
    let mut t = Trace::default();
    for (launch, nodes) in [(1u64, 3i64), (2, 2)] {
        for n in 0..nodes {
            let start = 10_000 * launch as i64 + 1_000 * n;
            let i = kernel(&mut t, "node", 7, (start, start + 400), launch);
            (t.operations[i].graph_node, t.operations[i].graph) = (n as u64 + 1, 3);
        }
        let at = 10_000 * launch as i64 - 2_000;
        call(&mut t, CallKind::GraphLaunch, "cudaGraphLaunch", (at, at + 500), launch);
    }
    kernel(&mut t, "orphan", 7, (30_000, 31_000), 99);
    kernel(&mut t, "orphan", 7, (32_000, 33_000), 98);
    let l = account(&t, 0, 10_000, 33_000, &exact()).unwrap();
    assert_eq!(ns(&l, LineKind::Unknown, "graph under-recorded"), 600 + 8_600);
    assert_eq!(ns(&l, LineKind::Unknown, "launch outside capture"), 1_000);
    assert_eq!(l.notes.len(), 1);
    t.calls.clear();
    let l = account(&t, 0, 31_000, 33_000, &exact()).unwrap();
    assert_eq!(ns(&l, LineKind::Unknown, "no API calls in the capture"), 1_000);
}

#[test]
fn no_launch_takes_for_ever() {
    let mut t = Trace::default();
    kernel(&mut t, "a", 7, (1_000, 2_000), 1);
    kernel(&mut t, "b", 7, (900_000, 901_000), 2);
    call(&mut t, CallKind::Launch, "cudaLaunchKernel", (100, 200), 1);
    call(&mut t, CallKind::Launch, "cudaLaunchKernel", (300, 400), 2);
    let l = account(&t, 0, 1_000, 901_000, &exact()).unwrap();
    assert_eq!(ns(&l, LineKind::Gap, "dispatch floor"), 900);
    assert_eq!(ns(&l, LineKind::Gap, "dispatch excess"), 100_000 - 900);
    assert_eq!(ns(&l, LineKind::Unknown, "submitted, held by nothing recorded"), 898_000 - 100_000);
}

#[test]
fn overlap_is_one_line_and_bad_times_are_none() {
    let mut t = Trace::default();
    kernel(&mut t, "b", 7, (0, 100), 1);
    kernel(&mut t, "a", 8, (40, 140), 2);
    kernel(&mut t, "lost", 8, (0, 0), 3);
    kernel(&mut t, "lost", 8, (50, 20), 4);
    let l = account(&t, 0, 0, 140, &exact()).unwrap();
    assert_eq!(
        sums(&l),
        [("Kernel a".to_string(), 40), ("Kernel b".to_string(), 40), ("Overlap a ∥ b".to_string(), 60)]
    );
    assert_eq!((l.busy_ns, l.duration_ns, l.operations), (140, 200, 2));
    assert!(l.notes[0].starts_with("2 operations"));
    assert!(account(&t, 0, 10, 0, &exact()).is_err());
    let empty = account(&Trace::default(), 0, 5, 9, &exact()).unwrap();
    assert_eq!(ns(&empty, LineKind::Unknown, "nothing follows in the capture"), 4);
}

/// A random capture with every kind of record, times colliding often.
fn captures() -> impl Strategy<Value = Trace> {
    let op = (0..4u8, 0..3u32, 0..3u64, 0..400i64, 0..60i64, 0..30u64, 0..3u32);
    let host = (0..4u8, 0..3u64, 0..400i64, 0..50i64, 0..30u64, any::<bool>());
    let sync = (0..3u64, 0..400i64, 0..9i64);
    let over = (0..3u64, 0..400i64, 0..30i64);
    (
        prop::collection::vec(op, 0..40),
        prop::collection::vec(host, 0..40),
        prop::collection::vec(sync, 0..6),
        prop::collection::vec(over, 0..6),
    )
        .prop_map(|(ops, calls, syncs, overs)| {
            let mut t = Trace { resolution_ns: 1, ..Trace::default() };
            for (work, name, stream, start, len, correlation, graph) in ops {
                let work = [Work::Kernel, Work::Memset, Work::Memcpy(CopyKind::HtoD), Work::Graph][work as usize];
                let name = t.names.intern(["k", "l", "m"][name as usize]);
                let graph_node = u64::from(graph);
                t.operations.push(Operation {
                    work,
                    name,
                    stream,
                    start,
                    // Now and then an end before its start.
                    end: start + len - 2,
                    correlation,
                    graph,
                    graph_node,
                    ..Operation::default()
                });
            }
            for (kind, thread, start, len, correlation, driver) in calls {
                let kind = [CallKind::Launch, CallKind::GraphLaunch, CallKind::Sync, CallKind::Other][kind as usize];
                let name = t.names.intern(&format!("{kind:?}"));
                t.calls.push(Call { kind, name, process: 0, thread, start, end: start + len, correlation, driver });
            }
            for (stream, start, len) in syncs {
                t.syncs.push(Sync {
                    kind: SyncKind::StreamWaitEvent,
                    process: 0,
                    device: 0,
                    stream,
                    start,
                    end: start + len,
                    correlation: 0,
                    event_stream: None,
                    event_correlation: None,
                    event: 0,
                });
            }
            for (thread, start, len) in overs {
                let name = t.names.intern("flush");
                t.overheads.push(Overhead { name, process: 0, thread, start, end: start + len });
            }
            t
        })
}

/// Lines with head, tail and gap folded together: a cut turns one into the other.
fn folded<'a>(ledgers: impl IntoIterator<Item = &'a Ledger>) -> Vec<((bool, String), i64)> {
    let mut all = std::collections::BTreeMap::new();
    for x in ledgers.into_iter().flat_map(|l| &l.lines) {
        *all.entry((x.kind.is_busy(), x.name.clone())).or_insert(0) += x.ns;
    }
    all.into_iter().filter(|(_, ns)| *ns > 0).collect()
}

fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut rng = crate::op::Rng(seed);
    for i in (1..list.len()).rev() {
        list.swap(i, rng.range(0, i as u64) as usize);
    }
}

/// A slow second opinion: what runs at each nanosecond, one at a time.
fn busy_by_nanosecond(t: &Trace, t0: i64, t1: i64) -> i64 {
    (t0..t1).filter(|&at| t.operations.iter().any(|o| index::timed(o) && o.start <= at && at < o.end)).count() as i64
}

proptest! {
    #[test]
    fn any_capture_sums_to_its_window(t in captures(), t0 in -20..420i64, len in 0..500i64) {
        let l = account(&t, 0, t0, t0 + len, &tight()).unwrap();
        prop_assert_eq!(l.lines.iter().map(|x| x.ns).sum::<i64>(), len);
        prop_assert_eq!(l.busy_ns, busy_by_nanosecond(&t, t0, t0 + len));
        // The segments say the same as the lines.
        let mut by_line = vec![0; l.lines.len()];
        for s in &l.segments {
            by_line[s.line as usize] += s.end - s.start;
        }
        prop_assert_eq!(by_line, l.lines.iter().map(|x| x.ns).collect::<Vec<_>>());
        for p in &l.pieces {
            prop_assert_eq!(l.lines[p.line as usize].cause, Some(p.cause));
        }
        for x in &l.lines {
            prop_assert!(x.at_least_ns.is_none_or(|v| v >= l.busy_ns && v <= x.without_ns.unwrap()));
        }
    }

    #[test]
    fn the_order_of_records_does_not_matter(t in captures(), seed: u64) {
        let mut s = t.clone();
        shuffle(&mut s.operations, seed);
        shuffle(&mut s.calls, seed ^ 1);
        shuffle(&mut s.syncs, seed ^ 2);
        shuffle(&mut s.overheads, seed ^ 3);
        let (a, b) = (account(&t, 0, 0, 450, &tight()).unwrap(), account(&s, 0, 0, 450, &tight()).unwrap());
        prop_assert_eq!(sums(&a), sums(&b));
        let plain = |l: &Ledger| l.segments.iter().map(|s| (s.start, s.end, s.line)).collect::<Vec<_>>();
        prop_assert_eq!(plain(&a), plain(&b));
    }

    #[test]
    fn two_halves_add_up_to_the_whole(t in captures(), cut in 0..450i64) {
        let o = tight();
        let a = Accountant::new(&t, 0, &o);
        let (whole, left, right) =
            (a.window(0, 450).unwrap(), a.window(0, cut).unwrap(), a.window(cut, 450).unwrap());
        prop_assert_eq!(folded([&whole]), folded([&left, &right]));
        prop_assert_eq!(whole.operations, left.operations + right.operations);
        prop_assert_eq!(whole.duration_ns, left.duration_ns + right.duration_ns);
    }
}
