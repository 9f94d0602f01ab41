//! Why a device was idle, in a closed set of words, and why the second-best word lost.

use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// Cause of one idle piece. The rules are in `docs/ledger.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The next operation's launch call had not begun; its thread was in no CUDA call.
    HostCode,
    /// The same, the thread was inside another CUDA call.
    HostInApi,
    /// The same, the thread was inside a synchronising call.
    HostBlockedInSync,
    /// Inside the launch call itself.
    LaunchCall,
    /// Submitted while the device was idle; nothing to wait for.
    LaunchLatency,
    /// Submitted before the previous operation ended: the hardware's own back-to-back gap, up to the measured floor.
    DispatchFloor,
    /// What exceeds that floor.
    DispatchExcess,
    /// Inside the graph launch call, before its first node.
    GraphLaunchCall,
    /// The graph is submitted, its first node has not started.
    GraphLaunchLatency,
    /// Between nodes of one graph launch, up to the measured floor.
    GraphNode,
    /// What exceeds that floor.
    GraphNodeExcess,
    /// Held by an event of another stream.
    EventWait,
    /// Submitted, its own stream free, no event recorded; it began only after work elsewhere had ended.
    OtherStream,
    /// The driver at work for the program, by an overhead record: compiling, loading code, out of room for commands.
    Driver,
    /// Inside one of the profiler's own overhead records.
    Profiler,
    /// Unknown: the next operation has no launch record, though others have.
    NoLaunchRecord,
    /// Unknown: the capture holds no API calls at all.
    NoApiRecords,
    /// Unknown: this graph launch has fewer records than another launch of the same graph.
    GraphUnderRecorded,
    /// Unknown: the launch is recorded after its operation had started.
    LaunchAfterStart,
    /// Unknown: submitted, and idle for longer than a launch or dispatch can take; what held it is not recorded.
    HeldUnseen,
    /// Unknown: work was launched of which nothing is recorded; it may have run here.
    NotRecorded,
    /// Unknown: an operation whose times were not collected may have run here.
    NoTimes,
    /// Unknown: no operation follows in the capture and no thread is known to have launched the last one.
    NothingFollows,
}

impl Cause {
    /// The text of a line; for the causes that name a call, the call follows it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::HostCode => "host code",
            Self::HostInApi => "host in API",
            Self::HostBlockedInSync => "host blocked in sync",
            Self::LaunchCall => "launch call",
            Self::LaunchLatency => "launch latency",
            Self::DispatchFloor => "dispatch floor",
            Self::DispatchExcess => "dispatch excess",
            Self::GraphLaunchCall => "graph launch call",
            Self::GraphLaunchLatency => "graph launch latency",
            Self::GraphNode => "graph node",
            Self::GraphNodeExcess => "graph node excess",
            Self::EventWait => "event wait",
            Self::OtherStream => "other stream",
            Self::Driver => "driver",
            Self::Profiler => "profiler",
            Self::NoLaunchRecord => "launch outside capture",
            Self::NoApiRecords => "no API calls in the capture",
            Self::GraphUnderRecorded => "graph under-recorded",
            Self::LaunchAfterStart => "launch recorded after its operation",
            Self::HeldUnseen => "submitted, held by nothing recorded",
            Self::NotRecorded => "launched work not recorded",
            Self::NoTimes => "operation without times",
            Self::NothingFollows => "nothing follows in the capture",
        }
    }
    /// Of an overhead record, by its name. CUPTI files under "overhead" also what the program pays without any profiler.
    pub fn of_overhead(name: &str) -> Self {
        const DRIVERS: [&str; 6] = ["compil", "module", "lazy", "command buffer", "managed memory", "uvm"];
        let name = name.to_ascii_lowercase();
        if DRIVERS.iter().any(|d| name.contains(d)) { Self::Driver } else { Self::Profiler }
    }
    /// Whether the capture cannot say.
    pub const fn is_unknown(self) -> bool {
        matches!(
            self,
            Self::NoLaunchRecord
                | Self::NoApiRecords
                | Self::GraphUnderRecorded
                | Self::LaunchAfterStart
                | Self::HeldUnseen
                | Self::NotRecorded
                | Self::NoTimes
                | Self::NothingFollows
        )
    }
    /// Whether the host had not handed the work over yet, so that an earlier host would have closed the gap.
    pub const fn is_host(self) -> bool {
        matches!(
            self,
            Self::HostCode
                | Self::HostInApi
                | Self::HostBlockedInSync
                | Self::LaunchCall
                | Self::LaunchLatency
                | Self::GraphLaunchCall
                | Self::GraphLaunchLatency
                | Self::Driver
                | Self::Profiler
        )
    }
    /// Whether the line's name ends in the call's name.
    pub const fn names_call(self) -> bool {
        matches!(self, Self::HostInApi | Self::HostBlockedInSync | Self::Driver | Self::Profiler)
    }
}

/// Why the runner-up lost; the text takes a margin in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    NotLaunched,
    InsideCall,
    CallRunning,
    SubmittedIdle,
    SubmittedBefore,
    WithinFloor,
    SameStream,
    EventHeld,
    EventReached,
    WaitBetween,
    NoEvent,
    SameGraph,
    Covered,
    Implausible,
    Unrecorded,
    NoRecord,
}

impl Why {
    pub fn text(self, margin: i64) -> String {
        let margin = Nanos(margin);
        match self {
            Self::NotLaunched => format!("the next launch call began {margin} after the device went idle"),
            Self::InsideCall => "the thread was inside that call throughout".into(),
            Self::CallRunning => "the launch call had not returned".into(),
            Self::SubmittedIdle => format!("the launch call returned {margin} after the device went idle"),
            Self::SubmittedBefore => format!("the launch call had returned {margin} before the device went idle"),
            Self::WithinFloor => format!("it lies within the measured floor of {margin}"),
            Self::SameStream => {
                "the previous operation of its own stream ended last, so no other stream held it".into()
            }
            Self::EventHeld => format!("its own stream had been free for {margin} when the event was reached"),
            Self::EventReached => "the event that its stream waited for had been reached before".into(),
            Self::WaitBetween => "an event wait was put on the stream between the two launches".into(),
            Self::NoEvent => "no event wait is recorded on its stream since that stream's previous operation".into(),
            Self::SameGraph => "both operations are nodes of one graph launch, submitted at once".into(),
            Self::Covered => "an overhead record covers it".into(),
            Self::Implausible => format!("it does not last longer than {margin}"),
            Self::Unrecorded => {
                "work that was launched before may have run here, and no record says when it did".into()
            }
            Self::NoRecord => "the capture has no record that places the host".into(),
        }
    }
}
