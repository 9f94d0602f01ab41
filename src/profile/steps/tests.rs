use super::*;
use crate::profile::ledger::Options;
use crate::profile::trace::{Call, Marker, Operation};

/// `steps` decode steps of `layers` layers (two kernels each) between an embedding and a sampler, one marker each.
fn decode(steps: u64, layers: u64) -> Trace {
    let mut t = Trace { resolution_ns: 1, ..Trace::default() };
    let (mut at, mut correlation) = (1_000i64, 0u64);
    for s in 0..steps {
        let begin = at - 900;
        let mut run = |t: &mut Trace, name: &str, ns: i64, gap: i64| {
            correlation += 1;
            let call = t.names.intern("cudaLaunchKernel");
            let start = at - 500;
            let kind = CallKind::Launch;
            t.calls.push(Call {
                kind,
                name: call,
                process: 0,
                thread: 1,
                start,
                end: start + 50,
                correlation,
                driver: false,
            });
            let name = t.names.intern(name);
            t.operations.push(Operation {
                name,
                stream: 7,
                start: at,
                end: at + ns,
                correlation,
                ..Operation::default()
            });
            at += ns + gap;
        };
        run(&mut t, "embed", 100, 10);
        for _ in 0..layers {
            run(&mut t, "matmul", 1_000, 10);
            run(&mut t, "attention", 500 + if s == 3 { 40 } else { 0 }, 10);
        }
        run(&mut t, "sample", 100, 3_000);
        let name = t.names.intern(&format!("ProfilerStep#{s}"));
        t.markers.push(Marker { name, category: name, process: 0, thread: 1, start: begin, end: at - 2_000 });
    }
    t
}

fn found(t: &Trace, how: &str) -> Steps {
    let o = Options::default();
    find(t, &Accountant::new(t, 0, &o), &how.parse().unwrap()).unwrap()
}

#[test]
fn markers_and_repetition_find_the_same_steps() {
    let t = decode(6, 8);
    let by_marker = found(&t, "profiler");
    assert_eq!(by_marker.windows.len(), 6);
    assert_eq!((by_marker.stability, by_marker.operations), (1.0, (18, 18)));
    let times = |s: &Steps| s.windows.iter().map(|w| (w.start, w.end, w.open)).collect::<Vec<_>>();
    let mut bare = t.clone();
    bare.markers.clear();
    for how in ["repeat", "auto", "kernel:^embed$"] {
        assert_eq!(times(&found(&bare, how)), times(&by_marker), "{how}");
    }
    assert_eq!(times(&found(&t, "range:Step#[0-9]")), times(&by_marker));
    // Steps tile.
    for w in by_marker.windows.windows(2) {
        assert_eq!(w[0].end, w[1].start);
    }
}

/// Ranges of another process on another device lie across ours: theirs are no outer ranges of ours.
#[test]
fn ranges_of_two_processes_are_told_apart() {
    let mut t = decode(6, 8);
    let name = t.names.intern("ProfilerStep#of another");
    let all = (t.markers[0].start, t.markers[5].end);
    t.markers.push(Marker { name, category: name, process: 1, thread: 1, start: all.0 - 10, end: all.1 });
    let steps = found(&t, "range:Step#");
    assert_eq!(steps.windows.len(), 6);
    assert!(steps.windows.iter().all(|w| w.end > w.start));
}

#[test]
fn the_slow_step_is_explained_to_the_nanosecond() {
    let t = decode(6, 8);
    let o = Options::default();
    let a = Accountant::new(&t, 0, &o);
    let steps = find(&t, &a, &Selector::Profiler).unwrap();
    let (r, all, m, p) = report(&a, &steps).unwrap();
    assert_eq!((r.n, all.len(), r.p99), (5, 6, 3));
    assert_eq!(p.window_ns - m.window_ns, 8 * 40);
    assert_eq!((r.difference.wall_delta_ns, r.difference.residual_ns), (320, 0));
    assert_eq!((r.difference.lines[0].name.as_str(), r.difference.lines[0].delta_ns), ("attention", 320));
}

#[test]
fn graph_launches_are_steps() {
    let mut t = decode(4, 2);
    t.calls.clear();
    let name = t.names.intern("cudaGraphLaunch");
    for s in 0..4u64 {
        let nodes = &mut t.operations[(6 * s) as usize..(6 * s + 6) as usize];
        for (k, o) in nodes.iter_mut().enumerate() {
            (o.correlation, o.graph_node) = (s + 1, k as u64 + 1);
        }
        let start = nodes[0].start - 700;
        let (kind, correlation) = (CallKind::GraphLaunch, s + 1);
        t.calls.push(Call { kind, name, process: 0, thread: 1, start, end: start + 90, correlation, driver: false });
    }
    let s = found(&t, "graph");
    assert_eq!((s.windows.len(), s.stability), (4, 1.0));
    assert_eq!(s.windows[1].start, t.operations[6].start);
}

#[test]
fn what_is_not_there_is_said() {
    let mut t = decode(3, 2);
    t.markers.clear();
    let o = Options::default();
    let a = Accountant::new(&t, 0, &o);
    let e = find(&t, &a, &Selector::Profiler).unwrap_err();
    assert!(e.to_string().contains("no ProfilerStep ranges"), "{e}");
    assert!("nonsense".parse::<Selector>().is_err());
    assert!("range:(".parse::<Selector>().is_err());
    let empty = Trace::default();
    let a = Accountant::new(&empty, 0, &o);
    assert!(find(&empty, &a, &Selector::Auto).is_err());
    t.operations.truncate(1);
    let s = found(&t, "auto");
    assert_eq!((s.windows.len(), s.windows[0].open), (1, true));
}
