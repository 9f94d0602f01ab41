//! Why the device was idle: one gap, cut where its cause changes. The rules are told with an example in `docs/ledger.md`.

use super::cause::{Cause, Why};
use super::host::{Doing, Thread, blocks};
use super::index::Accountant;
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
    fn plain(start: i64, end: i64, cause: Cause, runner_up: Cause, why: Why, margin: i64) -> Self {
        Self { start, end, cause, name: None, record: NONE, runner_up, why, margin }
    }
}

impl Accountant<'_> {
    /// Cuts the idle interval `[g0, g1)` between two positions (either may be [`NONE`]) into pieces that tile it.
    pub(super) fn classify(&self, previous: u32, next: u32, g0: i64, g1: i64, out: &mut Vec<Found>) {
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

    /// A launch or a dispatch cannot take for ever: what lasts longer than plausible after `from` is unknown.
    fn limit(&self, from: i64, out: &mut Vec<Found>) {
        let Some(last) = out.last_mut().filter(|f| f.cause != Cause::EventWait) else { return };
        let most = self.options.plausible_ns.max(0);
        let cut = from.saturating_add(most).max(last.start);
        if cut >= last.end {
            return;
        }
        let rest = Found::plain(cut, last.end, Cause::HeldUnseen, last.cause, Why::Implausible, most);
        last.end = cut;
        if last.start == last.end {
            out.pop();
        }
        out.push(rest);
    }

    /// The clock error that decides what can be told apart.
    pub(super) fn clock(&self) -> i64 {
        self.options.clock_ns.unwrap_or(self.trace.resolution_ns).clamp(0, i64::MAX / 4)
    }

    fn floor_before(&self, next: u32, otherwise: i64) -> i64 {
        match self.options.labels.get(self.order[next as usize]) {
            Some(label) if label.programmatic => self.options.floors.pdl_ns,
            _ => otherwise,
        }
        .max(0)
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
                Doing::Overhead(i) => Found {
                    name: Some(self.trace.overheads[i as usize].name),
                    record: i,
                    ..Found::plain(s, e, Cause::Profiler, rest(s, e).cause, Why::Covered, 0)
                },
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

    /// The launch call had returned by `from` (at the latest) and the device still idled until `g1`.
    fn submitted(
        &self,
        previous: u32,
        next: u32,
        graph: bool,
        (g0, from, g1): (i64, i64, i64),
        launch: &Call,
        out: &mut Vec<Found>,
    ) {
        let own = self.stream_previous[next as usize];
        let wait = self.wait_before(next, own, launch);
        if launch.end > g0 || previous == NONE {
            let cause = if graph { Cause::GraphLaunchLatency } else { Cause::LaunchLatency };
            let found = match wait {
                Some(record) => {
                    Found { record, ..Found::plain(from, g1, cause, Cause::EventWait, Why::EventReached, 0) }
                }
                None => {
                    let margin = launch.end.saturating_sub(g0);
                    Found::plain(from, g1, cause, Cause::DispatchExcess, Why::SubmittedIdle, margin)
                }
            };
            out.push(found);
            return;
        }
        let early = g0.saturating_sub(launch.end);
        let own_end = if own == NONE { i64::MIN } else { self.op(own).end };
        if own_end >= g0 {
            if graph {
                let cause = Cause::GraphLaunchLatency;
                out.push(Found::plain(from, g1, cause, Cause::DispatchExcess, Why::SubmittedBefore, early));
            } else {
                let floor = self.floor_before(next, self.options.floors.stream_ns);
                let causes = (Cause::DispatchFloor, Cause::DispatchExcess);
                dispatch(from, g1, floor, causes, Why::SubmittedBefore, early, out);
            }
        } else if let Some(record) = wait {
            let free = g0.saturating_sub(own_end.max(launch.end));
            out.push(Found {
                record,
                ..Found::plain(from, g1, Cause::EventWait, Cause::OtherStream, Why::EventHeld, free)
            });
        } else {
            out.push(Found::plain(from, g1, Cause::OtherStream, Cause::EventWait, Why::NoEvent, early));
        }
    }

    /// The last event wait put on the operation's stream after that stream's previous launch and before this one.
    fn wait_before(&self, next: u32, own: u32, launch: &Call) -> Option<u32> {
        let op = self.op(next);
        let list = self.waits.get(&(op.process, op.stream))?;
        let upto = list.partition_point(|&i| self.trace.syncs[i as usize].start <= launch.start);
        let record = *list[..upto].last()?;
        let since = match own {
            NONE => i64::MIN,
            own => self.trace.calls.get(self.launch[own as usize] as usize).map_or(i64::MIN, |c| c.start),
        };
        (self.trace.syncs[record as usize].start >= since).then_some(record)
    }
}

/// Splits a back-to-back gap into the hardware's floor and the excess.
fn dispatch(
    g0: i64,
    g1: i64,
    floor: i64,
    (within, beyond): (Cause, Cause),
    why: Why,
    margin: i64,
    out: &mut Vec<Found>,
) {
    let cut = g0.saturating_add(floor).min(g1);
    let late = match within {
        Cause::GraphNode => Cause::GraphLaunchLatency,
        _ => Cause::LaunchLatency,
    };
    if cut > g0 {
        out.push(Found::plain(g0, cut, within, late, why, margin));
    }
    if g1 > cut {
        let second = if beyond == Cause::GraphNodeExcess { late } else { Cause::OtherStream };
        let why = if beyond == Cause::GraphNodeExcess { why } else { Why::SameStream };
        out.push(Found::plain(cut, g1, beyond, second, why, margin));
    }
}
