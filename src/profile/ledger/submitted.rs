//! Why the device idled although the next operation had been submitted.

use super::cause::{Cause, Why};
use super::classify::Found;
use super::index::Accountant;
use super::types::NONE;
use crate::profile::trace::Call;

impl Accountant<'_> {
    /// The launch call had returned by `from` (at the latest) and the device still idled until `g1`.
    pub(super) fn submitted(
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
            match wait {
                None => {
                    let margin = launch.end.saturating_sub(g0);
                    out.push(Found::plain(from, g1, cause, Cause::DispatchExcess, Why::SubmittedIdle, margin));
                }
                // An event that nothing recorded still holds back was reached, unless the wait outlasts any launch:
                // then it stood for something that is not recorded (a host function, another device or process).
                Some(record) => {
                    let usual = self.options.launch_ns.max(0);
                    let since = if previous == NONE { launch.end } else { from };
                    let cut = since.saturating_add(usual).clamp(from, g1);
                    let latency = Found::plain(from, cut, cause, Cause::EventWait, Why::EventReached, 0);
                    let held = Found::plain(cut, g1, Cause::EventWait, cause, Why::Implausible, usual);
                    out.extend([latency, held].map(|f| Found { record, ..f }).into_iter().filter(|f| f.start < f.end));
                }
            }
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
                // A wait that stands between the two launches is what a plain dispatch does not have.
                if let (Some(record), Some(last)) = (wait, out.last_mut().filter(|f| f.cause == Cause::DispatchExcess))
                {
                    (last.cause, last.record) = (Cause::EventWait, record);
                    (last.runner_up, last.why) = (Cause::DispatchExcess, Why::WaitBetween);
                }
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

    /// A launch or a dispatch cannot take for ever: what lasts longer than plausible after `from` is unknown.
    pub(super) fn limit(&self, from: i64, out: &mut Vec<Found>) {
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

    /// The measured floor of the gap before an operation.
    pub(super) fn floor_before(&self, next: u32, otherwise: i64) -> i64 {
        match self.options.labels.get(self.order[next as usize]) {
            Some(label) if label.programmatic => self.options.floors.pdl_ns,
            _ => otherwise,
        }
        .max(0)
    }
}

/// Splits a back-to-back gap into the hardware's floor and the excess.
pub(super) fn dispatch(
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
