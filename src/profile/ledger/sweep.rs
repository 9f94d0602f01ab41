//! The sweep: one pass over the operations of a window, device-wide, that puts every nanosecond on a line.

use super::cause::Cause;
use super::classify::Found;
use super::fast::FastMap;
use super::index::Accountant;
use super::types::{Detail, Ledger, Line, LineKind, NONE, Piece, Segment};
use crate::error::{Error, Result};
use crate::profile::trace::{Name, Work};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// More operations than this at once share one line: naming them all would help nobody.
const NAMED: usize = 8;

#[derive(PartialEq, Eq, Hash)]
pub(super) enum Key {
    Operation(Work, Name),
    Class(String),
    Overlap([u32; NAMED]),
    Crowd,
    Idle(LineKind, Cause, Option<Name>),
}

/// A line while it is summed.
pub(super) struct Open {
    pub line: Line,
    pub worst: Vec<Piece>,
    /// Host-caused idle time of the window before this line's first piece.
    pub host_before: i64,
}

pub(super) struct Sweep<'a, 't> {
    pub a: &'a Accountant<'t>,
    pub t0: i64,
    pub t1: i64,
    pub detail: Detail,
    pub open: Vec<Open>,
    pub by_key: FastMap<Key, u32>,
    pub segments: Vec<Segment>,
    pub pieces: Vec<Piece>,
    pub found: Vec<Found>,
    /// Line and operation of the last stretch, so that a stretch that goes on is not counted twice.
    pub latest: (u32, u32),
    pub operations: u64,
    pub duration: i64,
    pub busy: i64,
    pub host: i64,
}

/// Accounts `[t0, t1)`.
pub(super) fn window(a: &Accountant<'_>, t0: i64, t1: i64, detail: Detail) -> Result<Ledger> {
    let window_ns = t1.checked_sub(t0).filter(|w| *w >= 0).ok_or_else(|| {
        Error::usage(format!("the window [{t0}, {t1}) ends before it begins"))
            .try_next("`workbench gaps FILE` without a window accounts the whole capture")
    })?;
    let mut sweep = Sweep {
        a,
        t0,
        t1,
        detail,
        open: Vec::new(),
        by_key: FastMap::default(),
        segments: Vec::new(),
        pieces: Vec::new(),
        found: Vec::new(),
        latest: (NONE, NONE),
        operations: 0,
        duration: 0,
        busy: 0,
        host: 0,
    };
    sweep.run();
    let ledger = sweep.close(window_ns);
    ledger.verify()?;
    Ok(ledger)
}

impl Sweep<'_, '_> {
    fn run(&mut self) {
        let n = self.a.order.len() as u32;
        let positions: usize = self.a.order.len();
        // First position that can matter: it begins in the window, or something up to it ends in the window.
        let mut next =
            partition(positions, |p| self.a.op(p).start < self.t0 && self.a.op(self.a.last[p as usize]).end <= self.t0);
        let mut running: BinaryHeap<Reverse<(i64, u32, u32)>> = BinaryHeap::new();
        let mut t = self.t0;
        while t < self.t1 {
            while next < n && self.a.op(next).start <= t {
                self.admit(next, t, &mut running);
                next += 1;
            }
            while running.peek().is_some_and(|Reverse((end, ..))| *end <= t) {
                running.pop();
            }
            let upcoming = if next < n { self.a.op(next).start.min(self.t1) } else { self.t1 };
            match running.peek() {
                None => {
                    self.idle(t, upcoming, next, n);
                    t = upcoming;
                }
                Some(&Reverse((end, position, line))) => {
                    let until = end.min(upcoming);
                    let line = if running.len() == 1 { line } else { self.overlap(&running) };
                    self.busy(t, until, line, position);
                    t = until;
                }
            }
        }
    }

    /// Takes in an operation that begins at or before `t`.
    fn admit(&mut self, position: u32, t: i64, running: &mut BinaryHeap<Reverse<(i64, u32, u32)>>) {
        let op = self.a.op(position);
        if op.start < self.t0 && op.end <= self.t0 {
            return;
        }
        let line = self.operation_line(position);
        let inside = op.end.min(self.t1).saturating_sub(op.start.max(self.t0));
        let label = self.a.options.labels.get(self.a.order[position as usize]);
        let sum = &mut self.open[line as usize].line;
        sum.duration_ns = sum.duration_ns.saturating_add(inside);
        self.duration = self.duration.saturating_add(inside);
        if op.start >= self.t0 {
            sum.count += 1;
            self.operations += 1;
            let add = |to: &mut Option<i64>, v: Option<i64>| {
                if let Some(v) = v {
                    *to = Some(to.unwrap_or(0).saturating_add(v));
                }
            };
            add(&mut sum.floor_ns, label.and_then(|l| l.floor_ns));
            add(&mut sum.predicted_ns, label.and_then(|l| l.predicted_ns));
        }
        if op.end > t {
            running.push(Reverse((op.end, position, line)));
        }
    }

    fn operation_line(&mut self, position: u32) -> u32 {
        let op = self.a.op(position);
        let label = self.a.options.labels.get(self.a.order[position as usize]);
        let key = match label {
            Some(label) => Key::Class(label.class.clone()),
            None if matches!(op.work, Work::Kernel | Work::Graph) => Key::Operation(op.work, op.name),
            // Names of copies vary by tool; the kind is what matters.
            None => Key::Operation(op.work, Name(0)),
        };
        let names = &self.a.trace.names;
        self.line(key, || {
            let text = names.text(op.name);
            let text = if text.is_empty() { "(unnamed)" } else { text };
            match (label, op.work) {
                (Some(label), Work::Memcpy(_)) => (LineKind::Memcpy, label.class.clone()),
                (Some(label), Work::Memset) => (LineKind::Memset, label.class.clone()),
                (Some(label), _) => (LineKind::Kernel, label.class.clone()),
                (None, Work::Memcpy(kind)) => (LineKind::Memcpy, format!("{kind:?}")),
                (None, Work::Memset) => (LineKind::Memset, "memset".into()),
                (None, Work::Graph) => (LineKind::Kernel, format!("whole graph {text}")),
                (None, Work::Kernel) => (LineKind::Kernel, text.into()),
            }
        })
    }

    /// The line of several operations at once, whatever streams they are on.
    fn overlap(&mut self, running: &BinaryHeap<Reverse<(i64, u32, u32)>>) -> u32 {
        if running.len() > NAMED {
            return self.line(Key::Crowd, || (LineKind::Overlap, format!("more than {NAMED} operations")));
        }
        let mut lines = [NONE; NAMED];
        for (slot, Reverse((_, _, line))) in lines.iter_mut().zip(running) {
            *slot = *line;
        }
        lines[..running.len()].sort_unstable();
        if let Some(&have) = self.by_key.get(&Key::Overlap(lines)) {
            return have;
        }
        let mut names: Vec<&str> =
            lines.iter().filter(|l| **l != NONE).map(|l| self.open[*l as usize].line.name.as_str()).collect();
        names.sort_unstable();
        let text = names.join(" ∥ ");
        self.line(Key::Overlap(lines), || (LineKind::Overlap, text))
    }

    pub(super) fn line(&mut self, key: Key, make: impl FnOnce() -> (LineKind, String)) -> u32 {
        let host_before = self.host;
        *self.by_key.entry(key).or_insert_with(|| {
            let (kind, name) = make();
            self.open.push(Open {
                line: Line {
                    kind,
                    name,
                    count: 0,
                    ns: 0,
                    floor_ns: None,
                    predicted_ns: None,
                    duration_ns: 0,
                    cause: None,
                    below_clock_ns: 0,
                    without_ns: None,
                    at_least_ns: None,
                    evidence: Vec::new(),
                },
                worst: Vec::new(),
                host_before,
            });
            self.open.len() as u32 - 1
        })
    }

    fn busy(&mut self, start: i64, end: i64, line: u32, position: u32) {
        let entry = &mut self.open[line as usize].line;
        entry.ns += end - start;
        self.busy += end - start;
        let overlap = entry.kind == LineKind::Overlap;
        let operation = self.a.order[position as usize];
        let goes_on = self.latest.0 == line && (overlap || self.latest.1 == operation);
        if overlap && !goes_on {
            entry.count += 1;
        }
        self.latest = (line, operation);
        if self.detail == Detail::Segments {
            match self.segments.last_mut() {
                Some(last) if goes_on && last.end == start => last.end = end,
                _ => self.segments.push(Segment { start, end, line, operation, piece: NONE }),
            }
        }
    }
}

/// First of `0..n` for which a predicate that holds up to some point no longer does.
fn partition(n: usize, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, n);
    while low < high {
        let mid = low + (high - low) / 2;
        if holds(mid as u32) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    low as u32
}
