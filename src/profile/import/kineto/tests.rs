use super::*;
use crate::profile::trace::{CallKind, CopyKind, SyncKind, Work};
use std::io::Cursor;

fn parse(text: &[u8]) -> Trace {
    read(Box::new(Cursor::new(text.to_vec()))).unwrap()
}

fn defect(t: &Trace, name: &str) -> Option<(u64, Option<u64>)> {
    t.defects.iter().find(|d| d.defect == name).map(|d| (d.count, d.first_offset))
}

const KERNEL: &str = r#"{"ph": "X", "cat": "kernel", "name": "k<int>", "pid": 0, "tid": 7, "ts": 100.5, "dur": 2.001,
  "args": {"device": 0, "stream": 7, "correlation": 9, "grid": [4, 2, 1], "block": [128, 1, 1], "registers per thread": 32,
  "shared memory": 0, "graph node id": 18446744073709551615, "graph id": 3}}"#;

#[test]
fn every_list_gets_its_events() {
    let t = parse(
        format!(
            r#"{{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "X", "computeMajor": 9, "computeMinor": 0, "numSms": 132}}],
            "traceEvents": [{KERNEL},
            {{"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 4, "tid": 5, "ts": 90, "dur": 3, "args": {{"correlation": 9}}}},
            {{"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "pid": 4, "tid": 5, "ts": 91, "dur": 1, "args": {{"correlation": "10"}}}},
            {{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "pid": 0, "tid": 7, "ts": "103", "dur": "1", "args": {{"bytes": 64, "memory bandwidth (GB/s)": inf}}}},
            {{"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 8, "ts": 92, "dur": 1, "args": {{"cuda_sync_kind": "Stream Wait Event", "stream": 8, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 11}}}},
            {{"ph": "X", "cat": "overhead", "name": "Buffer Flush", "pid": 4, "tid": 5, "ts": 95, "dur": 1}},
            {{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 4, "tid": 5, "ts": 80, "dur": 50, "args": {{}}}},
            {{"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#1", "pid": 0, "tid": 7, "ts": 80, "dur": 50}},
            {{"ph": "s", "cat": "ac2g", "id": 9, "pid": 4, "tid": 5, "ts": 90}}
            ], "baseTimeNanoseconds": 1700000000000000000, "traceName": "x"}}"#
        )
        .as_bytes(),
    );
    assert_eq!((t.operations.len(), t.calls.len(), t.syncs.len(), t.overheads.len(), t.markers.len()), (2, 2, 1, 1, 1));
    let k = &t.operations[0];
    assert_eq!((k.start, k.end, k.stream, k.correlation), (100_500, 102_501, 7, 9));
    assert_eq!((k.grid, k.registers, k.graph, k.graph_node), ([4, 2, 1], 32, 3, u64::MAX));
    assert_eq!(t.operations[1].work, Work::Memcpy(CopyKind::DtoH));
    assert_eq!((t.operations[1].start, t.operations[1].end, t.operations[1].bytes), (103_000, 104_000, 64));
    assert_eq!((t.calls[0].kind, t.calls[1].driver, t.calls[1].correlation), (CallKind::GraphLaunch, true, 10));
    assert_eq!((t.syncs[0].kind, t.syncs[0].event_correlation), (SyncKind::StreamWaitEvent, Some(11)));
    assert_eq!((t.devices[0].sm, t.devices[0].sms), (90, 132));
    assert_eq!((t.base_unix_ns, t.resolution_ns), (Some(1_700_000_000_000_000_000), 1));
    assert_eq!(defect(&t, "non_finite_number").unwrap().0, 1);
    assert_eq!(defect(&t, "quoted_number").unwrap().0, 1);
    assert_eq!(defect(&t, "malformed_event"), None);
    assert!(t.facts.contains(&("traceName".into(), "x".into())));
}

#[test]
fn a_broken_event_costs_only_itself() {
    let bad_name = KERNEL.replace("k<int>", r#"say "hi" now"#);
    let windows = KERNEL.replace("k<int>", r"C:\dir\x");
    let hopeless = KERNEL.replace("\"ts\": 100.5", "\"ts\": @");
    let text = format!(r#"{{"traceEvents": [{bad_name}, {hopeless}, {windows}, {KERNEL}]}}"#);
    let t = parse(text.as_bytes());
    let names: Vec<&str> = t.operations.iter().map(|o| t.names.text(o.name)).collect();
    assert_eq!(names, [r#"say "hi" now"#, r"C:\dir\x", "k<int>"]);
    assert_eq!(defect(&t, "malformed_event"), Some((2, Some(17))));
}

#[test]
fn a_file_that_stops_is_read_up_to_there() {
    let text = format!(r#"{{"traceEvents": [{KERNEL}, {KERNEL}, {KERNEL}]}}"#);
    let second = 17 + KERNEL.len() + 2;
    for cut in [second + 1, second + 40, second + KERNEL.len() - 1] {
        let t = parse(&text.as_bytes()[..cut]);
        assert_eq!(t.operations.len(), 1, "cut at {cut}");
        assert_eq!(defect(&t, "truncated"), Some((1, Some(second as u64))), "cut at {cut}");
        assert_eq!(t.defects.len(), 1, "the cut is told of once: {:?}", t.defects);
    }
    for cut in 0..text.len() {
        // No place to stop may fail or hang, and complete events are never lost.
        if cut > 0 {
            let t = parse(&text.as_bytes()[..cut]);
            let complete = [17, second, second + KERNEL.len() + 2].iter().filter(|s| cut >= *s + KERNEL.len()).count();
            assert_eq!(t.operations.len(), complete, "cut at {cut}");
        }
    }
    assert!(read(Box::new(Cursor::new(Vec::new()))).is_err());
    assert!(read(Box::new(Cursor::new(b"hello".to_vec()))).is_err());
}

#[test]
fn bytes_that_are_not_utf8_and_control_characters_pass() {
    let mut text = format!("[{KERNEL}]").into_bytes();
    let at = text.windows(6).position(|w| w == b"k<int>").unwrap();
    text[at] = 0xff;
    text[at + 1] = 1;
    let t = parse(&text);
    assert_eq!(t.names.text(t.operations[0].name), "\u{fffd}\u{1}int>");
    assert_eq!(defect(&t, "invalid_utf8").unwrap().0, 1);
}

#[test]
fn small_reads_change_nothing() {
    struct Drip(Vec<u8>, usize);
    impl Read for Drip {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let n = to.len().min(3).min(self.0.len() - self.1);
            to[..n].copy_from_slice(&self.0[self.1..self.1 + n]);
            self.1 += n;
            Ok(n)
        }
    }
    let events: Vec<String> = (0..50).map(|i| KERNEL.replace("100.5", &format!("{i}.25"))).collect();
    let text = format!("{{\"x\": {{\"y\": [1, \"]\"]}}, \"traceEvents\": [\n{}\n]}}", events.join(",\n"));
    let whole = parse(text.as_bytes());
    let drip = read(Box::new(Drip(text.into_bytes(), 0))).unwrap();
    assert_eq!(whole.operations, drip.operations);
    assert_eq!(whole.operations.len(), 50);
    assert!(whole.defects.is_empty());
}

#[test]
fn hostile_files_take_no_longer_than_honest_ones() {
    // Each of these made every event a guess that reads on to the end.
    let units = [r#"},{"x"y"#, r#"},{"a":[["#, r#"{"a":[{},"#, r#"},{"a":{"#, r#"},{""#, "{", "}", "[", r#"""#, r"\"];
    for unit in units {
        let text = format!("{{\"traceEvents\": [{}", unit.repeat(400_000 / unit.len()));
        let begun = std::time::Instant::now();
        let t = parse(text.as_bytes());
        assert!(!t.defects.is_empty(), "{unit}");
        assert!(begun.elapsed().as_secs() < 60, "{unit} took {:?}", begun.elapsed());
    }
}

#[test]
fn kernels_without_ids_are_joined_by_order_only_where_that_proves_something() {
    let api = |ts: u32| {
        format!(
            r#"{{"ph": "X", "cat": "cuda_api", "name": "cudaLaunchKernel_v7000", "tid": "CUDA API 9", "pid": "Host 0", "ts": {ts}, "dur": 1, "args": {{"correlationId": {ts}}}}}"#
        )
    };
    let kernel = |ts: u32, stream: u32| {
        format!(
            r#"{{"ph": "X", "cat": "cuda", "name": "k", "tid": "CUDA API {stream}", "pid": "Device 0", "ts": {ts}, "dur": 1}}"#
        )
    };
    let joined = |events: &[String]| {
        let t = parse(format!("[{}]", events.join(",")).as_bytes());
        t.operations.iter().map(|o| o.correlation).collect::<Vec<_>>()
    };
    assert_eq!(joined(&[kernel(25, 7), kernel(15, 7), api(10), api(20)]), [20, 10]);
    assert_eq!(joined(&[kernel(15, 7), kernel(25, 8), api(10), api(20)]), [0, 0], "two streams");
    assert_eq!(joined(&[kernel(15, 7), api(10), api(20)]), [0], "a launch too many");
    assert_eq!(joined(&[kernel(15, 7), kernel(18, 7), api(10), api(20)]), [0, 0], "before its launch");
}

#[test]
fn what_is_no_json_is_read_and_told() {
    let t = parse(format!(r#"{{"a": inf, "b": NaN, "traceEvents": [{KERNEL} {KERNEL}, {KERNEL}, ]}}"#).as_bytes());
    assert_eq!(t.operations.len(), 3);
    assert_eq!(defect(&t, "non_finite_number"), Some((2, Some(6))));
    assert_eq!(defect(&t, "missing_comma").unwrap().0, 1);
    assert_eq!(t.defects.len(), 2, "{:?}", t.defects);
}

/// 2^64 - 1 ns and the like stand for "unknown": the kernel ran, and nobody knows when.
#[test]
fn an_operation_whose_times_are_no_numbers_is_kept() {
    for ts in ["18446744073709551.615", "\"\"", "nan", "9223372036854775.807"] {
        let t = parse(format!("[{}]", KERNEL.replace("100.5", ts)).as_bytes());
        assert!(t.operations.len() == 1 && !t.operations[0].timed() && !t.operations[0].collected(), "{ts}");
        assert_eq!(defect(&t, "missing_time"), None);
    }
}

/// Texts that a program put into the file as they were: nothing of them is JSON, and each event still has its numbers.
#[test]
fn an_event_that_no_rule_fits_is_taken_by_its_keys() {
    let info = KERNEL.replace("\"device\": 0", r#""INFO": "says "hello, {world}" : ok", "device": 1"#);
    let name = KERNEL.replace("k<int>", r#"C:\dir\file "a", "b": 1"#);
    let t = parse(format!(r#"{{"traceEvents": [{info}, {name}, {KERNEL}, {info}], "traceName": "x"}}"#).as_bytes());
    let names: Vec<&str> = t.operations.iter().map(|o| t.names.text(o.name)).collect();
    assert_eq!(names, ["k<int>", r#"C:\dir\file "a", "b": 1"#, "k<int>", "k<int>"]);
    for (o, device) in t.operations.iter().zip([1, 0, 0, 1]) {
        assert_eq!((o.start, o.end, o.correlation, o.device), (100_500, 102_501, 9, device));
        assert_eq!((o.stream, o.grid, o.block), (7, [4, 2, 1], [128, 1, 1]));
    }
    assert_eq!(defect(&t, "malformed_event"), Some((3, Some(17))));
    assert!(t.defects.len() == 1 && t.facts == [("traceName".into(), "x".into())], "{:?} {:?}", t.defects, t.facts);
}
