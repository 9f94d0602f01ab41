//! The index of one device's part of a trace: operations in time order, each joined to its launch, stream and graph.

use super::fast::FastMap;
use super::hidden::Unseen;
use super::host::Threads;
use super::types::{Detail, Labels, Ledger, NONE, Options};
use crate::error::Result;
use crate::profile::trace::{CallKind, Operation, Sync, SyncKind, Trace};
use std::cmp::Reverse;

/// Accounts windows of one device; building it costs a pass over the trace, each window only its own operations.
pub struct Accountant<'t> {
    pub(super) trace: &'t Trace,
    pub(super) device: u32,
    pub(super) options: &'t Options,
    /// Operation indices in time order. "Position" below means an index into this.
    pub(super) order: Vec<u32>,
    /// By position: the position of the operation that ends last among those up to it.
    pub(super) last: Vec<u32>,
    /// By position: the previous position on the same stream of the same process.
    pub(super) stream_previous: Vec<u32>,
    /// By position: the call that launched it.
    pub(super) launch: Vec<u32>,
    /// By position: the first position of its graph launch; [`NONE`] outside graphs.
    pub(super) group: Vec<u32>,
    /// Graph launches (by first position) with fewer records than another launch of the same graph.
    pub(super) under_recorded: FastMap<u32, (u32, u32)>,
    /// Stream waits by process and waiting stream, in time order.
    pub(super) waits: FastMap<(u32, u64), Vec<u32>>,
    pub(super) threads: Threads,
    pub(super) any_launch: bool,
    /// Operations left out because their times are no interval.
    pub(super) untimed: u64,
    /// Work that ran at a time that no record tells.
    pub(super) unseen: Unseen,
}

impl<'t> Accountant<'t> {
    pub fn new(trace: &'t Trace, device: u32, options: &'t Options) -> Self {
        let (mut keys, mut untimed) = (Vec::new(), Vec::new());
        for (i, op) in trace.operations.iter().enumerate().filter(|(_, op)| op.device == device) {
            match op.timed() {
                true => keys.push((op.start, op.end, i as u32)),
                false => untimed.push(i as u32),
            }
        }
        // Ties are broken by what the records say, so that the order of the file cannot matter.
        let full = |&(start, end, i): &(i64, i64, u32)| {
            let o = &trace.operations[i as usize];
            (start, end, o.process, o.stream, o.correlation, o.graph_node, o.name, o.work, o.external, i)
        };
        if !keys.is_sorted_by_key(full) {
            keys.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| full(a).cmp(&full(b))));
        }
        let order: Vec<u32> = keys.iter().map(|k| k.2).collect();
        let mut last: Vec<u32> = Vec::with_capacity(order.len());
        for (p, key) in keys.iter().enumerate() {
            let before = last.last().copied().filter(|&q| keys[q as usize].1 > key.1);
            last.push(before.unwrap_or(p as u32));
        }
        drop(keys);
        let by_id = Joined::new(trace);
        let launch = |i: u32| {
            let op = &trace.operations[i as usize];
            by_id.get(op.process, op.correlation)
        };
        let launches: Vec<u32> = order.iter().map(|&i| launch(i)).collect();
        let mut lost: Vec<u32> = untimed.iter().map(|&i| launch(i)).filter(|&c| c != NONE).collect();
        lost.sort_unstable();
        lost.dedup();
        let elsewhere = (0..).zip(&trace.operations).filter(|(_, op)| op.device != device).map(|(i, _)| launch(i));
        let unseen = unseen(trace, &by_id, launches.iter().copied().chain(elsewhere), &lost);
        let mut made = Self {
            trace,
            device,
            options,
            stream_previous: stream_previous(trace, &order),
            launch: launches,
            order,
            last,
            group: Vec::new(),
            under_recorded: FastMap::default(),
            waits: waits(trace, device),
            threads: Threads::new(trace),
            any_launch: trace.calls.iter().any(|c| matches!(c.kind, CallKind::Launch | CallKind::GraphLaunch)),
            untimed: untimed.len() as u64,
            unseen,
        };
        made.find_graphs();
        made
    }

    /// Accounts `[t0, t1)` in the detail that the options ask for.
    pub fn window(&self, t0: i64, t1: i64) -> Result<Ledger> {
        self.window_in(t0, t1, self.options.detail)
    }

    /// Accounts `[t0, t1)` in a given detail.
    pub fn window_in(&self, t0: i64, t1: i64, detail: Detail) -> Result<Ledger> {
        super::sweep::window(self, t0, t1, detail)
    }

    /// First start and last end of the device's operations, the natural window of a whole capture.
    pub fn span(&self) -> Option<(i64, i64)> {
        let (first, last) = (*self.order.first()?, *self.last.last()?);
        Some((self.trace.operations[first as usize].start, self.op(last).end))
    }

    /// Operation indices of the device in time order.
    pub fn in_order(&self) -> &[u32] {
        &self.order
    }

    /// What the caller told of the operations.
    pub fn labels(&self) -> &'t Labels {
        &self.options.labels
    }

    /// Index of the call that launched the operation at a position of [`Self::in_order`].
    pub fn launch_of(&self, position: usize) -> Option<u32> {
        self.launch.get(position).copied().filter(|&c| c != NONE)
    }

    pub(super) fn op(&self, position: u32) -> &'t Operation {
        &self.trace.operations[self.order[position as usize] as usize]
    }

    /// Groups the nodes of each graph launch and finds the launches that lack records.
    fn find_graphs(&mut self) {
        let mut first: FastMap<(u32, u64), u32> = FastMap::default();
        let mut counts: FastMap<u32, (u32, u32)> = FastMap::default();
        let mut most: FastMap<(u32, u32), u32> = FastMap::default();
        self.group = vec![NONE; self.order.len()];
        for p in 0..self.order.len() as u32 {
            let op = self.op(p);
            let call = self.launch[p as usize];
            let by_call = call != NONE && self.trace.calls[call as usize].kind == CallKind::GraphLaunch;
            if op.correlation == 0 || !(by_call || op.graph_node != 0 || op.graph != 0) {
                continue;
            }
            let head = *first.entry((op.process, op.correlation)).or_insert(p);
            self.group[p as usize] = head;
            let count = counts.entry(head).or_insert((0, op.graph));
            count.0 += 1;
            let most = most.entry((op.process, op.graph)).or_insert(0);
            *most = (*most).max(count.0);
        }
        for (head, (count, graph)) in counts {
            let expected = most[&(self.op(head).process, graph)];
            if graph != 0 && count < expected {
                self.under_recorded.insert(head, (count, expected));
            }
        }
    }
}

fn stream_previous(trace: &Trace, order: &[u32]) -> Vec<u32> {
    let mut tails: FastMap<(u32, u64), u32> = FastMap::default();
    order
        .iter()
        .enumerate()
        .map(|(p, &i)| {
            let op = &trace.operations[i as usize];
            tails.insert((op.process, op.stream), p as u32).unwrap_or(NONE)
        })
        .collect()
}

/// The unseen work of a device: launches that no operation of any device names, and those of its operations without times.
fn unseen(trace: &Trace, by_id: &Joined, named: impl Iterator<Item = u32>, lost: &[u32]) -> Unseen {
    let mut used = vec![false; trace.calls.len()];
    for i in named.chain(lost.iter().copied()) {
        if let Some(used) = used.get_mut(i as usize) {
            *used = true;
        }
    }
    let outermost = |i: u32| {
        let c = &trace.calls[i as usize];
        by_id.get(c.process, c.correlation) == i
    };
    Unseen::new(trace, |i| used[i as usize], outermost, lost)
}

/// Calls by (process, correlation). A profiler counts its correlations up, so each process has a table from its first one;
/// where the numbers are spread too far for that, a hash map.
struct Joined {
    tables: FastMap<u32, (u64, Vec<u32>)>,
    spread: FastMap<(u32, u64), u32>,
}

impl Joined {
    /// The launch call of each correlation; of nested calls with one correlation, the outermost.
    fn new(trace: &Trace) -> Self {
        let mut by_id = Self::for_calls(trace);
        let better = |a: u32, b: u32| {
            let rank = |i: u32| {
                let c = &trace.calls[i as usize];
                let launches = matches!(c.kind, CallKind::Launch | CallKind::GraphLaunch);
                (!launches, c.driver, c.start, Reverse(c.end), c.thread, c.name)
            };
            rank(a) < rank(b)
        };
        for (i, c) in trace.calls.iter().enumerate().filter(|(_, c)| c.correlation != 0) {
            let slot = by_id.slot(c.process, c.correlation);
            if *slot == NONE || better(i as u32, *slot) {
                *slot = i as u32;
            }
        }
        by_id
    }

    fn for_calls(trace: &Trace) -> Self {
        let mut ranges: FastMap<u32, (u64, u64, u64)> = FastMap::default();
        for c in trace.calls.iter().filter(|c| c.correlation != 0) {
            let (low, high, count) = ranges.entry(c.process).or_insert((u64::MAX, 0, 0));
            (*low, *high, *count) = ((*low).min(c.correlation), (*high).max(c.correlation), *count + 1);
        }
        let dense = |(low, high, count): &(u64, u64, u64)| (high - low) / 4 <= *count;
        let tables = ranges.into_iter().filter(|(_, r)| dense(r));
        let tables = tables.map(|(p, (low, high, _))| (p, (low, vec![NONE; (high - low) as usize + 1]))).collect();
        Self { tables, spread: FastMap::default() }
    }

    /// Where the call of a correlation that a call has is noted.
    fn slot(&mut self, process: u32, correlation: u64) -> &mut u32 {
        match self.tables.get_mut(&process) {
            Some((low, table)) => &mut table[(correlation - *low) as usize],
            None => self.spread.entry((process, correlation)).or_insert(NONE),
        }
    }

    fn get(&self, process: u32, correlation: u64) -> u32 {
        match self.tables.get(&process) {
            Some((low, table)) => correlation.checked_sub(*low).and_then(|i| table.get(i as usize)).copied(),
            None => self.spread.get(&(process, correlation)).copied(),
        }
        .unwrap_or(NONE)
    }
}

/// Streams are numbered within a device: another device's stream of the same number waits for itself.
fn waits(trace: &Trace, device: u32) -> FastMap<(u32, u64), Vec<u32>> {
    let mut out: FastMap<(u32, u64), Vec<u32>> = FastMap::default();
    let here = |s: &Sync| s.kind == SyncKind::StreamWaitEvent && s.device == device;
    for (i, s) in trace.syncs.iter().enumerate().filter(|(_, s)| here(s)) {
        out.entry((s.process, s.stream)).or_default().push(i as u32);
    }
    for list in out.values_mut() {
        list.sort_by_key(|&i| {
            let s = &trace.syncs[i as usize];
            (s.start, s.end, s.correlation, s.event)
        });
    }
    out
}
