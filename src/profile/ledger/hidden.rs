//! Work that was launched and of which no record says when it ran: graphs captured before the profiler began, records that
//! were dropped, operations without times. Where it may have run, idle time is unknown and not idle.

use super::cause::{Cause, Why};
use super::classify::Found;
use super::fast::FastMap;
use super::host;
use super::index::Accountant;
use super::types::NONE;
use crate::profile::captured::Captures;
use crate::profile::trace::{CallKind, Trace};

/// When unseen work may have run: from its launch to the end of a call that waited for it.
#[derive(Clone, Copy, Debug)]
struct Hidden {
    start: i64,
    end: i64,
    /// The launch call.
    call: u32,
    cause: Cause,
}

/// All of a device's unseen work, by launch; a launch tells no device, so one without a record counts for each.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    list: Vec<Hidden>,
    /// Latest end of the entries up to each.
    reach: Vec<i64>,
}

/// Whether a call runs something on the device whatever its arguments are: a copy may be of nothing or between hosts.
fn runs(kind: CallKind, name: &str) -> bool {
    match kind {
        CallKind::GraphLaunch => true,
        CallKind::Launch => name.contains("Launch"),
        CallKind::Sync | CallKind::Other => false,
    }
}

impl Unseen {
    /// `used` tells the calls that an operation names as its launch, `outermost` those that stand for their correlation;
    /// `untimed` are the launch calls of operations of this device without usable times.
    pub(super) fn new(
        trace: &Trace,
        used: impl Fn(u32) -> bool,
        outermost: impl Fn(u32) -> bool,
        untimed: &[u32],
    ) -> Self {
        let mut known: FastMap<u32, bool> = FastMap::default();
        let mut found: Vec<(u32, Cause)> = Vec::new();
        for (i, c) in (0..).zip(&trace.calls) {
            // Nearly all are used: the cheap question first.
            if !used(i)
                && matches!(c.kind, CallKind::Launch | CallKind::GraphLaunch)
                && c.correlation != 0
                && c.end >= c.start
                && *known.entry(c.name.0).or_insert_with(|| runs(c.kind, trace.names.text(c.name)))
                && outermost(i)
            {
                found.push((i, Cause::NotRecorded));
            }
        }
        if !found.is_empty() {
            let captures = Captures::new(trace);
            found.retain(|&(i, _)| !captures.hold(&trace.calls[i as usize]));
        }
        found.extend(untimed.iter().map(|&i| (i, Cause::NoTimes)));
        if found.is_empty() {
            return Self::default();
        }
        let waits = waits(trace);
        let mut list: Vec<Hidden> = found
            .into_iter()
            .map(|(call, cause)| {
                let c = &trace.calls[call as usize];
                // What the host waited for has ended by then.
                let end = waits
                    .get(&(c.process, c.thread))
                    .and_then(|list: &Vec<(i64, i64)>| list.get(list.partition_point(|w| w.0 < c.end)).map(|w| w.1));
                Hidden { start: c.start, end: end.unwrap_or(i64::MAX), call, cause }
            })
            .collect();
        list.sort_unstable_by_key(|h| {
            let c = &trace.calls[h.call as usize];
            (h.start, h.end, h.cause, c.process, c.thread, c.correlation)
        });
        let mut latest = i64::MIN;
        let reach = list.iter().map(|h| {
            latest = latest.max(h.end);
            latest
        });
        Self { reach: reach.collect(), list }
    }

    /// How many launches left no record of what they ran.
    pub(super) fn launches(&self) -> usize {
        self.list.iter().filter(|h| h.cause == Cause::NotRecorded).count()
    }
}

/// By thread, the calls in which the host waited for a stream or the device, in order.
fn waits(trace: &Trace) -> FastMap<(u32, u64), Vec<(i64, i64)>> {
    let mut out: FastMap<(u32, u64), Vec<(i64, i64)>> = FastMap::default();
    for c in trace.calls.iter().filter(|c| c.end >= c.start) {
        let name = trace.names.text(c.name);
        if host::blocks(c, name) && !name.contains("Event") {
            out.entry((c.process, c.thread)).or_default().push((c.start, c.end));
        }
    }
    out.values_mut().for_each(|list| list.sort_unstable());
    out
}

impl Accountant<'_> {
    /// Lays unseen work over the pieces of a gap that were found from `first` on: that which was launched after the
    /// operation before the gap and before the one after it.
    pub(super) fn unseen(&self, first: usize, previous: u32, next: u32, (g0, g1): (i64, i64), out: &mut Vec<Found>) {
        let Unseen { list, reach } = &self.unseen;
        if list.is_empty() {
            return;
        }
        let call = |p: u32| if p == NONE { NONE } else { self.launch[p as usize] };
        let launched = |p: u32| self.trace.calls.get(call(p) as usize).map(|c| c.start);
        let after = match previous {
            NONE => i64::MIN,
            p => launched(p).unwrap_or(self.op(p).start),
        };
        let before = if next == NONE { i64::MAX } else { launched(next).unwrap_or(g1) };
        let from = list.partition_point(|h| h.start < after).max(reach.partition_point(|end| *end <= g0));
        // Nodes of a graph share its launch, and any of them may be the one without times.
        let around = [call(previous), call(next)];
        let mut at = g0;
        let mut found: Vec<Found> = Vec::new();
        for h in list[from..].iter().take_while(|h| h.start <= before && h.start < g1) {
            let between = after < h.start && h.start < before;
            let (start, end) = (h.start.max(at), h.end.min(g1));
            if start < end && (between || around.contains(&h.call)) {
                let whole = Found::plain(start, end, h.cause, Cause::HostCode, Why::Unrecorded, 0);
                found.push(Found { record: h.call, ..whole });
                at = end;
            }
            if at >= g1 {
                break;
            }
        }
        if !found.is_empty() {
            let pieces = out.split_off(first);
            overlay(&pieces, &found, out);
        }
    }
}

/// Cuts `over` out of the pieces and puts it in its place, with what a piece was taken for as the runner-up. What is
/// unknown already stays as it is. Both lists are in order.
fn overlay(pieces: &[Found], over: &[Found], out: &mut Vec<Found>) {
    let mut k = 0;
    for p in pieces {
        if p.cause.is_unknown() {
            out.push(*p);
            continue;
        }
        let mut at = p.start;
        while k > 0 && over[k - 1].end > at {
            k -= 1;
        }
        while k < over.len() && over[k].start < p.end {
            let (start, end) = (over[k].start.max(at), over[k].end.min(p.end));
            if start < end {
                if at < start {
                    out.push(Found { start: at, end: start, ..*p });
                }
                out.push(Found { start, end, runner_up: p.cause, ..over[k] });
                at = end;
            }
            k += 1;
        }
        if at < p.end {
            out.push(Found { start: at, ..*p });
        }
    }
}
