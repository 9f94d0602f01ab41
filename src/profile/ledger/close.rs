//! The end of a sweep: bounds, order of the lines, and the evidence of the worst idle pieces.

use super::cause::Cause;
use super::index::Accountant;
use super::sweep::{Open, Sweep};
use super::types::{Evidence, Ledger, Piece, RecordKind, RecordRef, RunnerUp};
use crate::profile::trace::Name;
use crate::units::Nanos;
use std::cmp::Reverse;

impl Accountant<'_> {
    /// What speaks for the cause of an idle piece, and what came second.
    pub fn evidence(&self, piece: &Piece) -> Evidence {
        evidence(self, piece, self.clock())
    }
}

impl Sweep<'_, '_> {
    pub(super) fn close(mut self, window_ns: i64) -> Ledger {
        for open in &mut self.open {
            let line = &mut open.line;
            let Some(cause) = line.cause.filter(|c| !c.is_unknown()) else { continue };
            line.without_ns = Some(window_ns - line.ns);
            // A host that runs earlier may close every later gap that waited for the host; a device-side gap that
            // closes makes nothing else shorter.
            let most = if cause.is_host() { self.host - open.host_before } else { line.ns };
            line.at_least_ns = Some(window_ns - most);
        }
        let mut order: Vec<u32> = (0..self.open.len() as u32).collect();
        order.sort_by(|&x, &y| {
            let rank = |i: u32| {
                let l = &self.open[i as usize].line;
                (!l.kind.is_busy(), Reverse(l.ns), l.kind, l.name.clone())
            };
            rank(x).cmp(&rank(y))
        });
        let mut to = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            to[old as usize] = new as u32;
        }
        for s in &mut self.segments {
            s.line = to[s.line as usize];
        }
        for p in &mut self.pieces {
            p.line = to[p.line as usize];
        }
        let clock_ns = self.a.clock();
        let notes = self.notes();
        let mut open: Vec<Option<Open>> = self.open.into_iter().map(Some).collect();
        let mut lines = Vec::with_capacity(open.len());
        for old in order {
            if let Some(mut o) = open[old as usize].take() {
                o.line.evidence = o.worst.iter().map(|p| evidence(self.a, p, clock_ns)).collect();
                lines.push(o.line);
            }
        }
        let sum: i64 = lines.iter().map(|l| l.ns).sum();
        Ledger {
            device: self.a.device,
            t0: self.t0,
            t1: self.t1,
            window_ns,
            residual_ns: window_ns - sum,
            operations: self.operations,
            busy_ns: self.busy,
            duration_ns: self.duration,
            clock_ns,
            floors: self.a.options.floors.clone(),
            lines,
            notes,
            segments: self.segments,
            pieces: self.pieces,
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.a.untimed > 0 {
            notes.push(format!(
                "{} operations of this device carry no usable times and are on no line; when they ran is not known",
                self.a.untimed
            ));
        }
        if let Some((got, expected)) = self.a.under_recorded.values().min() {
            notes.push(format!(
                "{} graph launches have fewer records than another launch of the same graph ({got} of {expected} at \
                 worst); idle time in and after them is unknown, not idle",
                self.a.under_recorded.len()
            ));
        }
        let unseen = self.a.unseen.launches();
        if unseen > 0 {
            notes.push(format!(
                "{unseen} launches of kernels or graphs have no record of what they ran; idle time in which that may have \
                 been is unknown, not idle"
            ));
        }
        let calls = self.open.iter().map(|o| &o.line).filter(|l| l.cause == Some(Cause::GraphLaunchCall));
        let (ns, pieces) = calls.fold((0, 0), |(ns, n), l| (ns + l.ns, n + l.count as i64));
        if pieces > 0 && ns / pieces > LONG_GRAPH_LAUNCH_NS && ns > (self.t1 - self.t0) / 50 {
            notes.push(format!(
                "the device idled {} inside each graph launch call: under a profiler the call goes through the graph's \
                 nodes (0.1 to 1.6 µs each on an H200), without one it takes a few µs whatever their number; most of this \
                 is the profiler's own cost",
                Nanos(ns / pieces)
            ));
        }
        notes
    }
}

/// Without a profiler a graph's launch call takes 2 to 3 µs on an H200, 256 nodes or one; several times that is not its own.
const LONG_GRAPH_LAUNCH_NS: i64 = 20_000;

/// A piece with the names of its records.
fn evidence(a: &Accountant<'_>, p: &Piece, clock: i64) -> Evidence {
    let trace = a.trace;
    let mut records = Vec::new();
    let mut push = |role: &str, record: RecordKind, index: u32| {
        let name = match record {
            RecordKind::Operation => trace.operations.get(index as usize).map(|o| o.name),
            RecordKind::Call => trace.calls.get(index as usize).map(|c| c.name),
            RecordKind::Overhead => trace.overheads.get(index as usize).map(|o| o.name),
            RecordKind::Sync => trace.syncs.get(index as usize).map(|_| Name(u32::MAX)),
        };
        if let Some(name) = name {
            records.push(RecordRef { role: role.into(), record, index, name: trace.names.text(name).into() });
        }
    };
    push("previous", RecordKind::Operation, p.previous);
    push("next", RecordKind::Operation, p.next);
    push("launch", RecordKind::Call, p.launch);
    match p.cause {
        Cause::Driver | Cause::Profiler => push("inside", RecordKind::Overhead, p.record),
        Cause::HostInApi | Cause::HostBlockedInSync => push("inside", RecordKind::Call, p.record),
        Cause::NotRecorded | Cause::NoTimes => push("unrecorded launch", RecordKind::Call, p.record),
        _ => push("event wait", RecordKind::Sync, p.record),
    }
    Evidence {
        start_ns: p.start,
        ns: p.end - p.start,
        records,
        runner_up: RunnerUp { cause: p.runner_up, why: p.why.text(p.margin) },
        below_clock: p.end - p.start < 2 * clock,
    }
}
