//! Stream captures: what a thread launches while it captures becomes a graph's node and does not run.

use super::ledger::FastMap;
use super::trace::{Call, Trace};

/// The times between the calls that begin and end captures, by process and thread and in order.
pub struct Captures(FastMap<(u32, u64), Vec<(i64, i64)>>);

impl Captures {
    /// A capture without an end reaches to the end.
    pub fn new(trace: &Trace) -> Self {
        let edge = |name: &str| {
            let begins = name.contains("BeginCapture");
            (begins || name.contains("EndCapture")).then_some(begins)
        };
        let mut known: FastMap<u32, Option<bool>> = FastMap::default();
        let mut edges: Vec<(u32, u64, i64, bool)> = Vec::new();
        for c in &trace.calls {
            let kind = *known.entry(c.name.0).or_insert_with(|| edge(trace.names.text(c.name)));
            edges.extend(kind.map(|begins| (c.process, c.thread, c.start, begins)));
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
        Self(out)
    }

    /// Whether a call was made while its thread captured.
    pub fn hold(&self, call: &Call) -> bool {
        let Some(list) = self.0.get(&(call.process, call.thread)) else { return false };
        let i = list.partition_point(|&(begin, _)| begin <= call.start);
        i > 0 && call.start < list[i - 1].1
    }
}
