//! Why the device was idle: one gap, cut where its cause changes. The rules are told with an example in `docs/ledger.md`.

use super::cause::{Cause, Why};
use super::host::{Doing, Thread, blocks};
use super::index::Accountant;
use super::submitted::dispatch;
use super::types::NONE;
use crate::profile::trace::{Call, Name};

/// A piece of a gap before it has a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub start: i64,
    pub end: i64,
    pub cause: Cause,
    /// The call, for causes that name one.
    pub name: Option<Name>,
    /// The deciding record; which list it is in follows from the cause.
    pub record: u32,
    pub runner_up: Cause,
    pub why: Why,
    pub margin: i64,
}

impl Found {
    /// A piece with no deciding record of its own.
    pub(super) fn plain(start: i64, end: i64, cause: Cause, runner_up: Cause, why: Why, margin: i64) -> Self {
        Self { start, end, cause, name: None, record: NONE, runner_up, why, margin }
    }
}

impl Accountant<'_> {
    /// Cuts the idle interval `[g0, g1)` between two positions (either may be [`NONE`]) into pieces that tile it.
    pub(super) fn classify(&self, previous: u32, next: u32, g0: i64, g1: i64, out: &mut Vec<Found>) {
        let first = out.len();
        self.causes(previous, next, g0, g1, out);
        self.unseen(first, previous, next, (g0, g1), out);
    }

    /// The same by what is recorded.
    fn causes(&self, previous: u32, next: u32, g0: i64, g1: i64, out: &mut Vec<Found>) {
        let whole = |cause, why| Found::plain(g0, g1, cause, Cause::HostCode, why, 0);
        if next == NONE {
            // Nothing follows: the thread that launched the last operation is the best witness of what was waited for.
            let call = if previous == NONE { NONE } else { self.launch[previous as usize] };
            match self.trace.calls.get(call as usize) {
                Some(c) => self.host(c, g0, g1, 0, out),
                None => out.push(whole(Cause::NothingFollows, Why::NoRecord)),
            }
            return;
        }
        let group = self.group[next as usize];
        let previous_group = if previous == NONE { NONE } else { self.group[previous as usize] };
        let inside_graph = group != NONE && group != next;
        let holes = |g: u32| g != NONE && self.under_recorded.contains_key(&g);
        if holes(previous_group) || (inside_graph && holes(group)) {
            out.push(whole(Cause::GraphUnderRecorded, Why::NoRecord));
            return;
        }
        if inside_graph {
            let floor = self.floor_before(next, self.options.floors.graph_node_ns);
            dispatch(g0, g1, floor, (Cause::GraphNode, Cause::GraphNodeExcess), Why::SameGraph, 0, out);
            return self.limit(g0, out);
        }
        let Some(launch) = self.trace.calls.get(self.launch[next as usize] as usize) else {
            let cause = if self.any_launch { Cause::NoLaunchRecord } else { Cause::NoApiRecords };
            out.push(whole(cause, Why::NoRecord));
            return;
        };
        // Two stamps each off by the resolution may cross; more than that is a clock that cannot be trusted here.
        if launch.start.saturating_sub(g1) > 2 * self.trace.resolution_ns.clamp(0, i64::MAX / 4) {
            out.push(whole(Cause::LaunchAfterStart, Why::NotLaunched));
            return;
        }
        let graph = group == next;
        let begun = launch.start.clamp(g0, g1);
        let returned = launch.end.clamp(begun, g1);
        self.host(launch, g0, begun, launch.start.saturating_sub(g0), out);
        self.inside_launch(launch, graph, begun, returned, out);
        if returned < g1 {
            self.submitted(previous, next, graph, (g0, returned, g1), launch, out);
            // Before the capture's first operation the window's start says nothing; the launch does.
            self.limit(if previous == NONE { launch.end } else { returned }, out);
        }
    }

    /// The clock error that decides what can be told apart.
    pub(super) fn clock(&self) -> i64 {
        self.options.clock_ns.unwrap_or(self.trace.resolution_ns).clamp(0, i64::MAX / 4)
    }

    /// What the launching thread did in `[a, b)`, before its launch call began `margin` ns after the device fell idle.
    fn host(&self, launch: &Call, a: i64, b: i64, margin: i64, out: &mut Vec<Found>) {
        let not_launched = |s, e| Found::plain(s, e, Cause::HostCode, Cause::LaunchLatency, Why::NotLaunched, margin);
        self.walk(launch, a, b, not_launched, true, out);
    }

    /// The launch call itself; only the profiler's own records are cut out of it.
    fn inside_launch(&self, launch: &Call, graph: bool, a: i64, b: i64, out: &mut Vec<Found>) {
        let (cause, runner_up) = match graph {
            true => (Cause::GraphLaunchCall, Cause::GraphLaunchLatency),
            false => (Cause::LaunchCall, Cause::LaunchLatency),
        };
        let inside = |s, e| Found::plain(s, e, cause, runner_up, Why::CallRunning, 0);
        self.walk(launch, a, b, inside, false, out);
    }

    /// Lays the spans of the launching thread over `[a, b)`; `rest` makes the pieces between them.
    fn walk(
        &self,
        launch: &Call,
        a: i64,
        b: i64,
        rest: impl Fn(i64, i64) -> Found,
        with_calls: bool,
        out: &mut Vec<Found>,
    ) {
        let mut at = a;
        let none = Thread::default();
        let thread = self.threads.get(launch.process, launch.thread).unwrap_or(&none);
        for span in thread.within(a, b) {
            let (s, e) = (span.start.max(at), span.end.min(b));
            let piece = match span.doing {
                Doing::Overhead(i) => {
                    let name = self.trace.overheads[i as usize].name;
                    let cause = Cause::of_overhead(self.trace.names.text(name));
                    let found = Found::plain(s, e, cause, rest(s, e).cause, Why::Covered, 0);
                    Found { name: Some(name), record: i, ..found }
                }
                Doing::Call(i) if with_calls => {
                    let call = &self.trace.calls[i as usize];
                    let cause = match blocks(call, self.trace.names.text(call.name)) {
                        true => Cause::HostBlockedInSync,
                        false => Cause::HostInApi,
                    };
                    let found = Found::plain(s, e, cause, Cause::HostCode, Why::InsideCall, 0);
                    Found { name: Some(call.name), record: i, ..found }
                }
                Doing::Call(_) => continue,
            };
            if s >= e {
                continue;
            }
            if at < s {
                out.push(rest(at, s));
            }
            out.push(piece);
            at = e;
        }
        if at < b {
            out.push(rest(at, b));
        }
    }
}
