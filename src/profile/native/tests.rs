use super::join::readable;
use super::*;
use crate::profile::trace::{CallKind, SyncKind};
use wbtrace::{MarkerEdge, Record, Writer};

fn record(build: impl FnOnce(&mut Writer<Vec<u8>>)) -> Vec<u8> {
    let mut w = Writer::new(Vec::new()).unwrap();
    w.record(&Record::Process { pid: 42, parent: 1, command: "python decode.py".into() }).unwrap();
    w.record(&Record::Clock { capture: 1_000, realtime: 1_100, monotonic: 5 }).unwrap();
    build(&mut w);
    w.into_inner().unwrap()
}

#[test]
fn joins_labels_events_and_ranges() {
    let bytes = record(|w| {
        let kernel = w.name("_Z3fooILi4EEvPf").unwrap();
        let launch = w.name("cudaLaunchKernel_v7000").unwrap();
        let range = w.name("step").unwrap();
        let none = w.name("").unwrap();
        let k = |start, node, correlation| wbtrace::Operation {
            name: kernel,
            device: 1,
            context: 3,
            stream: 7,
            start,
            end: start + 10,
            graph_node: node,
            correlation,
            static_shared: 16,
            dynamic_shared: 32,
            ..Default::default()
        };
        // Out of order, as buffers of several threads come.
        w.operation(&k(2_000, 0, 9)).unwrap();
        w.operation(&k(1_500, 77, 8)).unwrap();
        let mark =
            |edge, name, time| Record::Marker(wbtrace::Marker { edge, id: 5, thread: 11, time, name, domain: none });
        w.record(&mark(MarkerEdge::Start, range, 1_400)).unwrap();
        for r in [
            Record::Call(wbtrace::Call {
                name: launch,
                thread: 11,
                start: 1_900,
                end: 1_950,
                correlation: 9,
                ..Default::default()
            }),
            Record::External { label: 4, correlation: 9 },
            Record::Node { node: 77, label: 3 },
            Record::Sync(wbtrace::Sync {
                kind: 2,
                start: 1_960,
                end: 1_970,
                correlation: 10,
                context: 3,
                stream: 8,
                event: 2,
                sync_id: 600,
            }),
            Record::Event(wbtrace::EventRecord { correlation: 6, context: 3, stream: 7, event: 2, sync_id: 600 }),
            Record::Dropped { count: 12, time: 2_100 },
            mark(MarkerEdge::End, none, 2_050),
            Record::End { time: 2_200 },
        ] {
            w.record(&r).unwrap();
        }
    });
    let r = read(&bytes[..]).unwrap();
    let t = &r.trace;
    assert_eq!(t.operations.iter().map(|o| (o.start, o.external)).collect::<Vec<_>>(), [(1_500, 3), (2_000, 4)]);
    let o = &t.operations[0];
    assert_eq!((t.names.text(o.name), o.process, o.device, o.shared), ("void foo<4>(float*)", 42, 1, 48));
    assert_eq!((t.names.text(t.calls[0].name), t.calls[0].kind), ("cudaLaunchKernel", CallKind::Launch));
    let s = &t.syncs[0];
    assert_eq!((s.kind, s.device, s.stream), (SyncKind::StreamWaitEvent, 1, 8));
    assert_eq!((s.event_stream, s.event_correlation), (Some(7), Some(6)));
    let m = &t.markers[0];
    assert_eq!((t.names.text(m.name), t.names.text(m.category), m.start, m.end), ("step", "nvtx", 1_400, 2_050));
    assert_eq!(t.defects.len(), 1);
    assert_eq!((t.defects[0].defect.as_str(), t.defects[0].count), ("dropped_records", 12));
    assert!(r.processes[0].ended);
}

/// Without sync ids (before 12.8) a wait joins the event's last record before it.
#[test]
fn an_event_wait_takes_the_last_record_before_it() {
    let event =
        |correlation, stream| wbtrace::EventRecord { correlation, context: 1, stream, event: 2, sync_id: u64::MAX };
    let bytes = record(|w| {
        for e in [event(30, 9), event(10, 7), event(20, 8)] {
            w.record(&Record::Event(e)).unwrap();
        }
        let wait = wbtrace::Sync {
            kind: 2,
            start: 1,
            end: 2,
            correlation: 25,
            context: 1,
            stream: 5,
            event: 2,
            sync_id: u64::MAX,
        };
        w.record(&Record::Sync(wait)).unwrap();
    });
    let r = read(&bytes[..]).unwrap();
    assert_eq!((r.trace.syncs[0].event_stream, r.trace.syncs[0].event_correlation), (Some(8), Some(20)));
    assert_eq!(r.trace.defects[0].defect, "unfinished");
}

#[test]
fn a_cut_recording_is_used_to_the_cut() {
    let mut bytes = record(|w| {
        let name = w.name("k").unwrap();
        for i in 0..3 {
            w.operation(&wbtrace::Operation { name, start: 100 * i + 1, end: 100 * i + 50, ..Default::default() })
                .unwrap();
            w.flush().unwrap();
        }
    });
    bytes.truncate(bytes.len() - 2);
    let r = read(&bytes[..]).unwrap();
    assert_eq!(r.trace.operations.len(), 2);
    assert_eq!(r.trace.defects[0].defect, "truncated");
}

#[test]
fn graph_launches_are_labelled_by_order_only_where_they_fit() {
    let bytes = record(|w| {
        let (a, b) = (w.name("a").unwrap(), w.name("b").unwrap());
        for (i, (name, correlation)) in [(a, 1), (b, 1), (b, 2), (a, 2), (a, 3)].into_iter().enumerate() {
            let start = 1_000 + 10 * i as u64;
            w.operation(&wbtrace::Operation {
                name,
                start,
                end: start + 5,
                correlation,
                graph: 1,
                ..Default::default()
            })
            .unwrap();
        }
    });
    let mut r = read(&bytes[..]).unwrap();
    assert_eq!(r.label_by_order(&[(1, "a"), (2, "b")]), 1);
    assert_eq!(r.trace.operations.iter().map(|o| o.external).collect::<Vec<_>>(), [1, 2, 0, 0, 0]);
}

/// Two processes that each call another card "device 0", and a third on the first's card.
#[test]
fn cards_are_told_apart_by_their_uuid() {
    let process = |pid, uuid: &str| {
        let mut w = Writer::new(Vec::new()).unwrap();
        w.record(&Record::Process { pid, parent: 1, command: String::new() }).unwrap();
        let (name, uuid) = ("NVIDIA H200".to_string(), uuid.to_string());
        w.record(&Record::Device { id: 0, sm: 90, sms: 132, name, uuid }).unwrap();
        let name = w.name("k").unwrap();
        w.operation(&wbtrace::Operation { name, start: pid.into(), end: 50, ..Default::default() }).unwrap();
        w.record(&Record::End { time: 60 }).unwrap();
        w.into_inner().unwrap()
    };
    let file = [process(1, "aa"), process(2, "bb"), process(3, "aa")].concat();
    let r = read(&file[..]).unwrap();
    assert_eq!(r.trace.operations.iter().map(|o| (o.process, o.device)).collect::<Vec<_>>(), [(1, 0), (2, 1), (3, 0)]);
    assert_eq!(r.processes.iter().map(|p| (p.pid, p.ended)).collect::<Vec<_>>(), [(1, true), (2, true), (3, true)]);
    assert!(r.trace.defects.is_empty(), "{:?}", r.trace.defects);
}

#[test]
fn names_are_made_readable() {
    assert_eq!(readable("cudaMemcpyAsync_v3020".into()), "cudaMemcpyAsync");
    assert_eq!(readable("cuMemcpyHtoDAsync_v2".into()), "cuMemcpyHtoDAsync_v2");
    assert_eq!(readable("_Znonsense".into()), "_Znonsense");
}

/// Wherever a compressed recording is cut, what can be decompressed of it is read, and the loss is reported.
#[test]
fn a_cut_gzip_file_is_read_as_far_as_it_goes() {
    use std::io::Write;
    let whole = record(|w| {
        let (mut start, mut noise) = (1_000, 1u64);
        // Times that hardly compress, so that the file has many deflate blocks, and more than a chunk in each half.
        for i in 0..80_000u64 {
            let name = w.name(&format!("kernel {}", i % 7)).unwrap();
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            start += 10 + (noise >> 48);
            w.operation(&wbtrace::Operation { name, start, end: start + 5, ..Default::default() }).unwrap();
        }
        w.record(&Record::End { time: start + 100 }).unwrap();
    });
    let gz = |plain: &[u8]| {
        let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        w.write_all(plain).unwrap();
        w.finish().unwrap()
    };
    let bytes = gz(&whole);
    let read_gz = |bytes: &[u8]| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("graph.wbt.gz");
        std::fs::write(&file, bytes).unwrap();
        // Both ways in: by the name (`step --from`), and by the content (`gaps`, `doctor`).
        let (named, told) = (open(&file).unwrap(), crate::profile::import::load(&file).unwrap());
        assert_eq!(named.trace.operations, told.trace.operations);
        assert_eq!(named.trace.defects, told.trace.defects);
        named
    };
    assert!(read_gz(&bytes).trace.defects.is_empty());
    let (mut last, mut operations) = (0, 0);
    for cut in [bytes.len() / 2, bytes.len() * 9 / 10, bytes.len() - 4] {
        let r = read_gz(&bytes[..cut]);
        let d = &r.trace.defects;
        assert_eq!((d.len(), d[0].defect.as_str(), d[0].count), (1, "truncated", 1), "cut at {cut}: {d:?}");
        let offset = d[0].first_offset.unwrap();
        assert!(offset > last && offset <= whole.len() as u64, "cut at {cut}: {offset}");
        assert_eq!(r.processes[0].truncated_at, Some(offset));
        assert!(r.trace.operations.len() > operations, "cut at {cut}: {} operations", r.trace.operations.len());
        (last, operations) = (offset, r.trace.operations.len());
    }
    // A damaged middle may be decompressed to nonsense, which no chunk's checksum fits; it is reported in one way or another.
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xff);
    let d = read_gz(&damaged).trace.defects;
    assert!(d.iter().any(|d| ["truncated", "malformed_event"].contains(&d.defect.as_str())), "{d:?}");
    // The prefix ends exactly where a chunk does: the reader itself sees no flaw.
    let mut short = gz(&whole);
    short.truncate(short.len() - 8);
    assert_eq!(read_gz(&short).trace.defects[0].first_offset, Some(whole.len() as u64));
    // Nothing is left of the header: no recording.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.wbt.gz");
    std::fs::write(&file, &bytes[..14]).unwrap();
    assert!(open(&file).unwrap_err().what.contains("damaged from its start"));
}
