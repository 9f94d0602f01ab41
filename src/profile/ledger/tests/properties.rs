//! What must hold for any capture.

use super::*;
use proptest::prelude::*;

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
    (t0..t1).filter(|&at| t.operations.iter().any(|o| o.timed() && o.start <= at && at < o.end)).count() as i64
}

/// The same capture with some times moved to the ends of the clock, as broken files have them.
fn stretched(mut t: Trace, ends: &[(u8, i64)]) -> Trace {
    let far = |k: u8, by: i64| if k.is_multiple_of(2) { i64::MAX - by } else { i64::MIN + by };
    for (i, &(k, by)) in ends.iter().enumerate() {
        if let Some(o) = t.operations.get_mut(3 * i) {
            if k & 4 == 0 { o.end = far(k, by) } else { o.start = far(k, by) }
        }
        if let Some(c) = t.calls.get_mut(2 * i) {
            if k & 2 == 0 { c.end = far(k, by) } else { c.start = far(k, by) }
        }
        if let Some(o) = t.overheads.get_mut(i) {
            o.end = far(k, by);
        }
    }
    t
}

proptest! {
    #[test]
    fn the_ends_of_the_clock_break_nothing(
        t in captures(),
        ends in prop::collection::vec((any::<u8>(), 0..300i64), 1..12),
        t0 in -20..420i64,
    ) {
        let t = stretched(t, &ends);
        let audit = crate::profile::defects::audit(&t);
        let o = Options { clock_ns: Some(audit.clock_error_ns), ..tight() };
        let a = Accountant::new(&t, 0, &o);
        prop_assert_eq!(a.window(t0, t0 + 200).unwrap().residual_ns, 0);
        if let Some((from, to)) = a.span() {
            prop_assert_eq!(a.window(from, to).is_ok(), to.checked_sub(from).is_some());
        }
    }

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
