//! Round trips of random recordings, and files that are cut, torn or hostile.

use proptest::prelude::*;
use wbtrace::*;

fn operation() -> impl Strategy<Value = Operation> {
    let id = any::<u32>();
    let three = any::<[u32; 3]>();
    (
        (0usize..9, 0u32..4, any::<[u32; 3]>(), any::<[u64; 4]>()),
        (id, any::<u64>(), id, three, three, three),
        (id, id, id, any::<u64>()),
    )
        .prop_map(
            |((w, name, dcs, times), (correlation, node, graph, grid, block, cluster), (regs, st, dy, bytes))| {
                Operation {
                    work: Work::ALL[w],
                    name,
                    device: dcs[0],
                    context: dcs[1],
                    stream: dcs[2],
                    start: times[0],
                    end: times[1],
                    queued: times[2],
                    submitted: times[3],
                    correlation,
                    graph_node: node,
                    graph,
                    grid,
                    block,
                    cluster,
                    registers: regs,
                    static_shared: st,
                    dynamic_shared: dy,
                    bytes,
                }
            },
        )
}

fn record() -> impl Strategy<Value = Record> {
    let id = any::<u32>();
    let t = any::<u64>();
    prop_oneof![
        operation().prop_map(Record::Operation),
        (".{0,20}", ".{0,20}").prop_map(|(key, value)| Record::Fact { key, value }),
        (t, t, t).prop_map(|(capture, realtime, monotonic)| Record::Clock { capture, realtime, monotonic }),
        (id, id, ".{0,20}").prop_map(|(pid, parent, command)| Record::Process { pid, parent, command }),
        (id, id, id, ".{0,9}").prop_map(|(id, sm, sms, name)| Record::Device { id, sm, sms, uuid: name.clone(), name }),
        (0u32..4, any::<bool>(), id, t, t, id, id).prop_map(
            |(name, driver, thread, start, end, correlation, result)| Record::Call(Call {
                name,
                driver,
                thread,
                start,
                end,
                correlation,
                result
            })
        ),
        (id, t, t, id, id, id, id, t).prop_map(|(kind, start, end, correlation, context, stream, event, sync_id)| {
            Record::Sync(Sync { kind, start, end, correlation, context, stream, event, sync_id })
        }),
        (id, id, id, id, t).prop_map(|(correlation, context, stream, event, sync_id)| {
            Record::Event(EventRecord { correlation, context, stream, event, sync_id })
        }),
        (0u32..4, id, t, t, id).prop_map(|(name, thread, start, end, correlation)| {
            Record::Overhead(Overhead { name, thread, start, end, correlation })
        }),
        (0usize..3, id, id, t, 0u32..4, 0u32..4).prop_map(|(e, id, thread, time, name, domain)| {
            let edge = [MarkerEdge::Point, MarkerEdge::Start, MarkerEdge::End][e];
            Record::Marker(Marker { edge, id, thread, time, name, domain })
        }),
        (t, id).prop_map(|(label, correlation)| Record::External { label, correlation }),
        (t, t).prop_map(|(node, label)| Record::Node { node, label }),
        (t, 0u32..4).prop_map(|(label, name)| Record::Label { label, name }),
        (0u32..4, t, t).prop_map(|(name, start, end)| Record::Window { name, start, end }),
        (t, t).prop_map(|(count, time)| Record::Dropped { count, time }),
    ]
}

/// Writes records after four names; flushes after each of those in `cuts`.
fn write(records: &[Record], cuts: &[usize]) -> Vec<u8> {
    let mut w = Writer::new(Vec::new()).unwrap();
    for n in ["a", "void k<float>()", "λ", ""] {
        w.name(n).unwrap();
    }
    for (i, r) in records.iter().enumerate() {
        w.record(r).unwrap();
        if cuts.contains(&i) {
            w.flush().unwrap();
        }
    }
    w.record(&Record::End { time: 5 }).unwrap();
    w.into_inner().unwrap()
}

fn read(bytes: &[u8]) -> (Vec<Record>, Health) {
    let mut r = Reader::new(bytes).unwrap();
    let mut records = Vec::new();
    while let Some(record) = r.next().unwrap() {
        records.push(record);
    }
    (records, *r.health())
}

proptest! {
    #[test]
    fn what_is_written_is_read(records in prop::collection::vec(record(), 0..60), cuts in prop::collection::vec(0usize..60, 0..6)) {
        let bytes = write(&records, &cuts);
        let (got, health) = read(&bytes);
        prop_assert_eq!(&got[4..got.len() - 1], &records[..]);
        prop_assert!(health.ended && health.first_flaw.is_none() && health.bytes == bytes.len() as u64);
    }

    /// A file cut anywhere gives the chunks before the cut, and says so.
    #[test]
    fn a_cut_file_is_read_to_the_cut(records in prop::collection::vec(record(), 1..40), at in 0.0f64..1.0) {
        let all: Vec<usize> = (0..records.len()).collect();
        let bytes = write(&records, &all);
        let cut = 16 + ((bytes.len() - 16) as f64 * at) as usize;
        let (got, health) = read(&bytes[..cut]);
        let (whole, _) = read(&bytes);
        prop_assert_eq!(&got[..], &whole[..got.len()]);
        prop_assert!(!health.ended);
        prop_assert_eq!(health.bytes, cut as u64);
    }

    /// One flipped byte costs one chunk at most (or the rest, where it hits a length), and never a wrong record in silence.
    #[test]
    fn a_flipped_byte_is_noticed(records in prop::collection::vec(record(), 1..20), at in 0.0f64..1.0, flip in 1u8..=255) {
        let all: Vec<usize> = (0..records.len()).collect();
        let mut bytes = write(&records, &all);
        let i = 16 + ((bytes.len() - 17) as f64 * at) as usize;
        bytes[i] ^= flip;
        let (_, health) = read(&bytes);
        prop_assert!(health.first_flaw.is_some());
    }

    #[test]
    fn garbage_neither_panics_nor_hangs(body in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = b"WBTRACE\n\x01\0\0\0\0\0\0\0".to_vec();
        bytes.extend_from_slice(&body);
        let (got, health) = read(&bytes);
        prop_assert!(got.len() <= body.len());
        prop_assert!(body.is_empty() || health.first_flaw.is_some() || health.unknown_records > 0 || !got.is_empty() || health.chunks > 0);
    }
}

#[test]
fn other_files_are_refused() {
    assert!(matches!(Reader::new(&b"not a trace at all"[..]), Err(Error::NotARecording)));
    assert!(matches!(Reader::new(&b""[..]), Err(Error::NotARecording)));
    assert!(matches!(Reader::new(&b"WBTRACE\n\x09\0\0\0\0\0\0\0"[..]), Err(Error::Schema(9))));
}

#[test]
fn recordings_may_be_put_end_to_end() {
    let one = write(&[Record::Window { name: 1, start: 5, end: 6 }], &[]);
    let both = [one.clone(), one.clone()].concat();
    let (got, health) = read(&both);
    let (single, _) = read(&one);
    assert_eq!(got, [single.clone(), vec![Record::Begin], single].concat());
    assert!(health.ended && health.first_flaw.is_none());
    let (_, health) = read(&both[..one.len() + 12]);
    assert_eq!((health.ended, health.truncated_at), (false, Some(one.len() as u64)));
}

#[test]
fn a_claimed_chunk_of_4_gib_takes_no_memory() {
    let mut bytes = b"WBTRACE\n\x01\0\0\0\0\0\0\0".to_vec();
    bytes.extend_from_slice(&[0xff; 8]);
    let (got, health) = read(&bytes);
    assert!(got.is_empty() && health.bad_chunks == 1);
}

/// The size that the design allows for one replay of a decode step.
#[test]
fn a_replay_of_170_kernels_is_small() {
    let replay = |w: &mut Writer<Vec<u8>>, step: u64| {
        let base = 1_764_000_000_000_000_000 + step * 5_000_000;
        for i in 0..170u64 {
            let name = w.name(&format!("matmul_gemv_bf16_variant_number_{}", i % 6)).unwrap();
            let start = base + i * 29_000;
            w.operation(&Operation {
                name,
                device: 0,
                context: 1,
                stream: 13,
                start,
                end: start + 28_000 + i * 7,
                correlation: 1000 + step as u32,
                graph_node: (3 << 32) + i,
                graph: 3,
                grid: [1056, 1, 1],
                block: [256, 1, 1],
                registers: 64,
                ..Operation::default()
            })
            .unwrap();
        }
    };
    let mut w = Writer::new(Vec::new()).unwrap();
    replay(&mut w, 0);
    w.flush().unwrap();
    let first = w.written();
    replay(&mut w, 1);
    w.flush().unwrap();
    let second = w.written() - first;
    assert!(first < 30_000, "{first} bytes for the first replay");
    assert!(second < 170 * 16, "{second} bytes for the second");
}

#[test]
fn endless_names_cost_bounded_memory_and_still_read() {
    let mut w = Writer::new(Vec::new()).unwrap();
    let mut resets = 0;
    for i in 0..1200 {
        resets += u32::from(w.trim().unwrap());
        let name = w.name(&format!("{i}{}", "x".repeat(60_000))).unwrap();
        w.record(&Record::Window { name, start: i, end: i + 1 }).unwrap();
    }
    assert!(resets >= 2);
    let bytes = w.into_inner().unwrap();
    let (mut names, mut seen) = (std::collections::HashMap::new(), 0);
    for r in read(&bytes).0 {
        match r {
            Record::Name { id, text } => drop(names.insert(id, text)),
            Record::Reset => names.clear(),
            Record::Window { name, start, .. } => {
                assert!(names[&name].starts_with(&format!("{start}x")));
                seen += 1;
            }
            _ => {}
        }
    }
    assert_eq!(seen, 1200);
}

#[test]
fn dump_is_one_object_a_line() {
    let mut w = Writer::new(Vec::new()).unwrap();
    let name = w.name("k<\"a\\b\n>").unwrap();
    w.operation(&Operation { name, start: 10, end: 20, ..Operation::default() }).unwrap();
    w.record(&Record::Fact { key: "tool".into(), value: "x".into() }).unwrap();
    let bytes = w.into_inner().unwrap();
    let mut out = Vec::new();
    dump(&mut Reader::new(&bytes[..]).unwrap(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with(r#"{"op":"kernel","name":"k<\"a\\b\u000a>","device":0"#), "{}", lines[0]);
    assert_eq!(lines[1], r#"{"fact":"tool","value":"x"}"#);
}
