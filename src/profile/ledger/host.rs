//! What each host thread was doing: disjoint spans of outermost calls, with the profiler's own records cut out of them.

use super::FastMap;
use crate::profile::trace::{Call, CallKind, Trace};
use std::cell::Cell;
use std::cmp::Reverse;

/// What occupies a host thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Call(u32),
    Overhead(u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start: i64,
    pub end: i64,
    pub doing: Doing,
}

/// One thread's spans, sorted and disjoint, with a cursor: queries mostly move forward.
#[derive(Debug, Default)]
pub struct Thread {
    spans: Vec<Span>,
    cursor: Cell<usize>,
}

impl Thread {
    /// Spans that overlap `[a, b)`, in order.
    pub fn within(&self, a: i64, b: i64) -> impl Iterator<Item = Span> + '_ {
        let mut i = self.cursor.get();
        let fits = |i: usize| i == 0 || self.spans[i - 1].end <= a;
        if i > self.spans.len() || !fits(i) {
            i = self.spans.partition_point(|s| s.end <= a);
        } else {
            let mut steps = 0;
            while i < self.spans.len() && self.spans[i].end <= a {
                i += 1;
                steps += 1;
                if steps == 16 {
                    i += self.spans[i..].partition_point(|s| s.end <= a);
                }
            }
        }
        self.cursor.set(i);
        self.spans[i..].iter().take_while(move |s| s.start < b).copied()
    }
}

/// All threads of a trace.
#[derive(Debug, Default)]
pub struct Threads(FastMap<(u32, u64), Thread>);

impl Threads {
    pub fn new(trace: &Trace) -> Self {
        let mut calls: FastMap<(u32, u64), Vec<u32>> = FastMap::default();
        for (i, c) in trace.calls.iter().enumerate().filter(|(_, c)| c.end > c.start) {
            calls.entry((c.process, c.thread)).or_default().push(i as u32);
        }
        let mut overheads: FastMap<(u32, u64), Vec<Span>> = FastMap::default();
        for (i, o) in trace.overheads.iter().enumerate().filter(|(_, o)| o.end > o.start) {
            overheads.entry((o.process, o.thread)).or_default().push(Span {
                start: o.start,
                end: o.end,
                doing: Doing::Overhead(i as u32),
            });
        }
        for spans in overheads.values_mut() {
            spans.sort_by_key(|s| (s.start, Reverse(s.end), trace.overheads[index_of(s.doing)].name));
            *spans = outermost(spans);
        }
        let mut threads = FastMap::default();
        for (key, mut list) in calls {
            if !list.is_sorted_by_key(|&i| rank(&trace.calls[i as usize])) {
                list.sort_by_key(|&i| rank(&trace.calls[i as usize]));
            }
            let spans: Vec<Span> = list
                .iter()
                .map(|&i| {
                    let c = &trace.calls[i as usize];
                    Span { start: c.start, end: c.end, doing: Doing::Call(i) }
                })
                .collect();
            let spans = outermost(&spans);
            let spans = match overheads.remove(&key) {
                Some(o) => cut(&spans, &o),
                None => spans,
            };
            threads.insert(key, Thread { spans, cursor: Cell::new(0) });
        }
        for (key, spans) in overheads {
            threads.insert(key, Thread { spans, cursor: Cell::new(0) });
        }
        Self(threads)
    }
    pub fn get(&self, process: u32, thread: u64) -> Option<&Thread> {
        self.0.get(&(process, thread))
    }
}

fn index_of(doing: Doing) -> usize {
    match doing {
        Doing::Call(i) | Doing::Overhead(i) => i as usize,
    }
}

/// Order in which the first of nested calls is the outermost; ties broken by content, never by position in the file.
fn rank(c: &Call) -> impl Ord + use<> {
    (c.start, Reverse(c.end), c.driver, c.name, c.correlation)
}

/// Keeps the outermost of nested spans; of partly overlapping ones (a clock's fault) the later keeps its rest.
fn outermost(sorted: &[Span]) -> Vec<Span> {
    let mut out: Vec<Span> = Vec::with_capacity(sorted.len());
    for s in sorted {
        let from = out.last().map_or(s.start, |p| p.end.max(s.start));
        if from < s.end {
            out.push(Span { start: from, ..*s });
        }
    }
    out
}

/// Lays `over` on top of `base`.
fn cut(base: &[Span], over: &[Span]) -> Vec<Span> {
    let mut out = Vec::with_capacity(base.len() + over.len());
    let mut k = 0usize;
    for b in base {
        // An overhead record that began in an earlier call may reach into this one.
        let mut at = k.checked_sub(1).map_or(b.start, |j| b.start.max(over[j].end));
        while k < over.len() && over[k].start < b.end {
            let o = over[k];
            if o.start > at {
                out.push(Span { start: at, end: o.start, doing: b.doing });
            }
            at = at.max(o.end);
            out.push(o);
            k += 1;
        }
        if at < b.end {
            out.push(Span { start: at, end: b.end, doing: b.doing });
        }
    }
    out.extend_from_slice(&over[k..]);
    out
}

/// Whether the host waits for the device in this call: a synchronisation, or a copy without `Async` in its name.
pub fn blocks(call: &Call, name: &str) -> bool {
    call.kind == CallKind::Sync || (call.kind == CallKind::Launch && name.contains("emcpy") && !name.contains("Async"))
}
