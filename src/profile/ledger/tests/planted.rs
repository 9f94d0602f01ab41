//! Small captures whose causes are known because they were planted.

use super::*;

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
    let name = t.names.intern("Lazy Function Loading");
    t.overheads.push(Overhead { name, process: 0, thread: 1, start: 7_000, end: 7_300 });
    let l = account(&t, 0, 0, 12_000, &exact()).unwrap();
    assert_eq!(l.residual_ns, 0);
    assert_eq!(ns(&l, LineKind::Head, "host code"), 100);
    assert_eq!(ns(&l, LineKind::Head, "launch call"), 400);
    assert_eq!(ns(&l, LineKind::Head, "launch latency"), 500);
    assert_eq!(ns(&l, LineKind::Kernel, "a"), 1_000);
    assert_eq!(ns(&l, LineKind::Gap, "host blocked in sync cudaStreamSynchronize"), 400);
    assert_eq!(ns(&l, LineKind::Gap, "host code"), 600 + 1_000);
    assert_eq!(ns(&l, LineKind::Gap, "host in API cudaMalloc"), 2_000);
    assert_eq!(ns(&l, LineKind::Gap, "launch call"), 1_200);
    assert_eq!(
        ns(&l, LineKind::Gap, "driver Lazy Function Loading"),
        300,
        "the program pays it without a profiler, too"
    );
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
    assert_eq!(ns(&l, LineKind::Gap, "dispatch floor"), 500 + 475);
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
    assert_eq!(ns(&l, LineKind::Gap, "graph node"), 500 + 540);
    assert_eq!(ns(&l, LineKind::Gap, "graph node excess"), 960);
    assert_eq!(ns(&l, LineKind::Gap, "event wait"), 500);
    assert_eq!(ns(&l, LineKind::Gap, "other stream"), 500);
}

#[test]
fn an_event_that_outlasts_a_launch_is_waited_for() {
    let mut t = Trace::default();
    // Launched after the device fell idle, behind an event that a host function holds for 600 µs.
    kernel(&mut t, "a", 7, (1_000, 20_000), 1);
    call(&mut t, CallKind::Launch, "cuLaunchKernel", (100, 900), 1);
    kernel(&mut t, "b", 8, (640_000, 660_000), 2);
    call(&mut t, CallKind::Launch, "cuLaunchKernel", (28_000, 30_000), 2);
    // Then a wait between two launches on one stream, both made in time.
    kernel(&mut t, "c", 8, (664_000, 665_000), 3);
    call(&mut t, CallKind::Launch, "cuLaunchKernel", (32_000, 33_000), 3);
    for (start, correlation) in [(25_000, 0), (31_000, 0)] {
        t.syncs.push(Sync {
            kind: SyncKind::StreamWaitEvent,
            process: 0,
            device: 0,
            stream: 8,
            start,
            end: start + 10,
            correlation,
            event_stream: Some(7),
            event_correlation: None,
            event: 1,
        });
    }
    let l = account(&t, 0, 1_000, 665_000, &exact()).unwrap();
    assert_eq!(ns(&l, LineKind::Gap, "launch latency"), 10_000);
    assert_eq!(ns(&l, LineKind::Gap, "dispatch floor"), 900);
    assert_eq!(ns(&l, LineKind::Gap, "event wait"), (640_000 - 40_000) + (4_000 - 900));
    let worst = &l.lines.iter().find(|x| x.name == "event wait").unwrap().evidence;
    assert!(worst.iter().all(|e| e.records.iter().any(|r| r.role == "event wait")));
}

#[test]
fn a_graph_launch_call_that_a_profiler_stretches_is_said_to_be_one() {
    let with_call_of = |call_ns: i64| {
        let mut t = Trace::default();
        kernel(&mut t, "before", 7, (0, 1_000), 1);
        for n in 0..3 {
            let start = 202_000 + 1_000 * n;
            let i = kernel(&mut t, "node", 7, (start, start + 400), 2);
            (t.operations[i].graph_node, t.operations[i].graph) = (n as u64 + 1, 3);
        }
        call(&mut t, CallKind::GraphLaunch, "cudaGraphLaunch", (200_000 - call_ns, 200_000), 2);
        account(&t, 0, 0, 210_000, &exact()).unwrap()
    };
    let long = with_call_of(100_000);
    assert_eq!(ns(&long, LineKind::Gap, "graph launch call"), 100_000);
    assert!(long.notes[0].contains("the device idled 100.000 µs inside each graph launch call"), "{:?}", long.notes);
    assert_eq!(with_call_of(5_000).notes.len(), 0);
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

/// A graph that was captured before the profiler began leaves its launch and nothing else. The host then waits for work that
/// nobody recorded: to call that time idle would be false.
#[test]
fn a_launch_without_a_record_is_unknown_until_the_host_has_waited_for_it() {
    let mut t = Trace::default();
    for step in 0..3i64 {
        let (at, id) = (10_000 * step, step as u64 + 1);
        call(&mut t, CallKind::GraphLaunch, "cudaGraphLaunch", (at, at + 100), id);
        call(&mut t, CallKind::Sync, "cudaStreamSynchronize", (at + 150, at + 9_000), 100 + id);
        // The middle one is not recorded.
        if step != 1 {
            kernel(&mut t, "node", 7, (at + 400, at + 8_900), id);
        }
    }
    let l = account(&t, 0, 400, 28_900, &exact()).unwrap();
    assert_eq!(
        ns(&l, LineKind::Unknown, "launched work not recorded"),
        9_000,
        "from its launch to the end of the wait"
    );
    assert_eq!(ns(&l, LineKind::Gap, "host code"), 1_000 + 1_000, "before its launch, and after the wait for it");
    assert_eq!(ns(&l, LineKind::Gap, "host blocked in sync cudaStreamSynchronize"), 100);
    let unknown = l.lines.iter().find(|x| x.kind == LineKind::Unknown).unwrap();
    let worst = &unknown.evidence[0];
    assert!(worst.records.iter().any(|r| r.role == "unrecorded launch" && r.name == "cudaGraphLaunch"), "{worst:?}");
    assert!(l.notes[0].starts_with("1 launches"), "{:?}", l.notes);
    // What a thread launches while it captures does not run, and so is not missed.
    call(&mut t, CallKind::Other, "cudaStreamBeginCapture", (9_990, 9_995), 0);
    call(&mut t, CallKind::Other, "cudaStreamEndCapture", (10_110, 10_120), 0);
    let l = account(&t, 0, 400, 28_900, &exact()).unwrap();
    assert_eq!(ns(&l, LineKind::Unknown, "launched work not recorded"), 0);
}

#[test]
fn an_operation_without_times_ran_at_a_time_that_is_not_known() {
    let mut t = Trace::default();
    for (id, times) in [(1u64, (1_000, 2_000)), (2, (0, 0)), (3, (9_000, 10_000)), (4, (11_000, 12_000))] {
        kernel(&mut t, "k", 7, times, id);
        let at = 100 * id as i64;
        call(&mut t, CallKind::Launch, "cudaLaunchKernel", (at, at + 50), id);
    }
    let l = account(&t, 0, 1_000, 12_000, &exact()).unwrap();
    assert_eq!(ns(&l, LineKind::Unknown, "operation without times"), 7_000);
    assert_eq!(ns(&l, LineKind::Gap, "dispatch floor"), 900, "the gap after the next one is not touched");
    // Values that stand for "no time": the window does not reach to the end of the clock, nor back to 1970.
    let (now, far) = (1_700_000_000_000_000_000, [(i64::MAX, i64::MAX), (0, 1_700_000_000_000_009_000), (i64::MIN, 5)]);
    for times in far {
        let mut t = Trace::default();
        kernel(&mut t, "k", 7, (now, now + 1_000), 1);
        kernel(&mut t, "k", 7, times, 2);
        let o = exact();
        assert_eq!(Accountant::new(&t, 0, &o).span(), Some((now, now + 1_000)), "{times:?}");
    }
}

/// Streams are numbered within a device: a wait on stream 8 of another card says nothing of this one's stream 8.
#[test]
fn an_event_wait_is_of_its_own_device() {
    let mut t = Trace::default();
    kernel(&mut t, "a", 7, (1_000, 2_000), 1);
    kernel(&mut t, "b", 8, (2_500, 3_000), 2);
    call(&mut t, CallKind::Launch, "cudaLaunchKernel", (100, 200), 1);
    call(&mut t, CallKind::Launch, "cudaLaunchKernel", (400, 500), 2);
    let wait = |device| Sync {
        kind: SyncKind::StreamWaitEvent,
        process: 0,
        device,
        stream: 8,
        start: 300,
        end: 310,
        correlation: 0,
        event_stream: Some(7),
        event_correlation: None,
        event: 1,
    };
    for (device, cause) in [(1, "other stream"), (0, "event wait")] {
        t.syncs = vec![wait(device)];
        let l = account(&t, 0, 1_000, 3_000, &exact()).unwrap();
        assert_eq!(ns(&l, LineKind::Gap, cause), 500, "device {device}");
    }
}
