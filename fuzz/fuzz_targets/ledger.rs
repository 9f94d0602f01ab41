//! Any records at any times: the ledger closes, whole and in two halves that add up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workbench::profile::ledger::{Accountant, Options};
use workbench::profile::trace::*;

/// One record from sixteen bytes.
fn record(t: &mut Trace, b: &[u8; 16]) {
    let word = |i: usize| i64::from(u16::from_le_bytes([b[i], b[i + 1]]));
    let (start, length, correlation) = (word(2), word(4) - 3, word(6) as u64);
    let (start, end) = match b[15] {
        // Now and then the ends of the clock.
        0 => (i64::MIN + start, (i64::MIN + start).saturating_add(length)),
        1 => (i64::MAX - start, i64::MAX),
        _ => (start, start + length),
    };
    let name = t.names.intern(["a", "b", "cudaMemcpy"][usize::from(b[8] % 3)]);
    let (process, lane) = (u32::from(b[9] % 2), u64::from(b[10] % 3));
    match b[0] % 4 {
        0 => t.operations.push(Operation {
            work: [Work::Kernel, Work::Memset, Work::Memcpy(CopyKind::DtoH), Work::Graph][usize::from(b[11] % 4)],
            name,
            process,
            stream: lane,
            start,
            end,
            correlation,
            graph_node: u64::from(b[12] % 3),
            graph: u32::from(b[13] % 3),
            ..Operation::default()
        }),
        1 => t.calls.push(Call {
            kind: [CallKind::Launch, CallKind::GraphLaunch, CallKind::Sync, CallKind::Other][usize::from(b[11] % 4)],
            name,
            process,
            thread: lane,
            start,
            end,
            correlation,
            driver: b[12] % 2 == 1,
        }),
        2 => t.syncs.push(Sync {
            kind: SyncKind::StreamWaitEvent,
            process,
            device: 0,
            stream: lane,
            start,
            end,
            correlation,
            event_stream: None,
            event_correlation: None,
            event: 0,
        }),
        _ => t.overheads.push(Overhead { name, process, thread: lane, start, end }),
    }
}

fuzz_target!(|data: &[u8]| {
    let mut trace = Trace { resolution_ns: 1, ..Trace::default() };
    for chunk in data.chunks_exact(16) {
        record(&mut trace, chunk.try_into().expect("sixteen bytes"));
    }
    let options = Options { plausible_ns: 300, ..Options::default() };
    let accountant = Accountant::new(&trace, 0, &options);
    let (t0, t1) = (100, 60_000);
    let whole = accountant.window(t0, t1).expect("it closes");
    let cut = 100 + i64::from(data.first().copied().unwrap_or(0)) * 200;
    let (left, right) = (accountant.window(t0, cut).expect("it closes"), accountant.window(cut, t1).expect("it closes"));
    assert_eq!(whole.busy_ns, left.busy_ns + right.busy_ns);
    assert_eq!(whole.operations, left.operations + right.operations);
    if let Some((a, b)) = accountant.span() {
        assert_eq!(accountant.window(a, b).is_ok(), b.checked_sub(a).is_some());
    }
});
