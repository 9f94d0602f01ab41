//! The values of a ledger: what goes in beside the trace, and what comes out.

use super::cause::{Cause, Why};
use super::fast::FastMap;
use crate::units::Provenance;
use serde::{Deserialize, Serialize};

/// Index that stands for "no record".
pub const NONE: u32 = u32::MAX;

/// The hardware's own back-to-back gaps, ns, as measured on a card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floors {
    /// Between two kernels of a stream.
    pub stream_ns: i64,
    /// Between two nodes of a graph.
    pub graph_node_ns: i64,
    /// Between two kernels joined by a programmatic dependent launch.
    pub pdl_ns: i64,
    pub provenance: Provenance,
    pub source: String,
}

impl Default for Floors {
    /// As recorded on an H200; for another card they are an assumption, and the report says so.
    fn default() -> Self {
        Self {
            stream_ns: 900,
            graph_node_ns: 540,
            pdl_ns: 475,
            provenance: Provenance::Recorded,
            source: "empty-kernel chains on an H200, 2026-11-30".into(),
        }
    }
}

/// What the caller knows of an operation beyond its record: the plan's class and the node's numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Label {
    /// Name of the line that the operation goes to.
    pub class: String,
    pub floor_ns: Option<i64>,
    pub predicted_ns: Option<i64>,
    /// Launched with programmatic stream serialisation, so the PDL floor holds before it.
    pub programmatic: bool,
}

/// Labels by operation index.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    labels: Vec<Label>,
    of: FastMap<u32, u32>,
}

impl Labels {
    /// Labels one operation of the trace (index into its `operations`).
    pub fn set(&mut self, operation: usize, label: Label) {
        // Successive nodes of one class share their text, not their numbers: one entry each is cheap enough.
        self.of.insert(operation as u32, self.labels.len() as u32);
        self.labels.push(label);
    }
    pub fn get(&self, operation: u32) -> Option<&Label> {
        self.of.get(&operation).map(|&i| &self.labels[i as usize])
    }
}

/// How much to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Lines, each gap line with its worst pieces.
    Lines,
    /// Also every segment and every idle piece, for a timeline.
    #[default]
    Segments,
}

/// What the accountant is told.
#[derive(Clone, Debug)]
pub struct Options {
    pub floors: Floors,
    pub labels: Labels,
    pub detail: Detail,
    /// Worst idle pieces kept with their evidence on each gap line.
    pub worst: usize,
    /// Longest usual time from a launch to its start on an idle device, ns; a stream that waits for an event longer than
    /// this waits for the event.
    pub launch_ns: i64,
    /// Longest that a launch or a dispatch takes on an idle device, ns; idle time beyond it is unknown.
    pub plausible_ns: i64,
    /// The trace's clock error, ns; the trace's own resolution where none is given.
    pub clock_ns: Option<i64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            floors: Floors::default(),
            labels: Labels::default(),
            detail: Detail::default(),
            worst: 5,
            launch_ns: 10_000,
            plausible_ns: 100_000,
            clock_ns: None,
        }
    }
}

/// Kinds of line, as the JSON names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LineKind {
    #[default]
    Kernel,
    Overlap,
    Memcpy,
    Memset,
    Gap,
    /// Idle from the window's start to its first operation; the name is the cause.
    Head,
    /// Idle from the last operation to the window's end; the name is the cause.
    Tail,
    Unknown,
}

impl LineKind {
    pub const fn is_busy(self) -> bool {
        matches!(self, Self::Kernel | Self::Overlap | Self::Memcpy | Self::Memset)
    }
}

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub kind: LineKind,
    pub name: String,
    /// Operations that began in the window; for overlap and idle lines, pieces.
    pub count: u64,
    /// Nanoseconds of the window that are this line's alone.
    pub ns: i64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub floor_ns: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predicted_ns: Option<i64>,
    /// Operations' own durations inside the window, overlapped time included; 0 for idle lines.
    pub duration_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<Cause>,
    /// Part of `ns` in pieces shorter than what the clock can tell apart.
    pub below_clock_ns: i64,
    /// Idle lines: the window less these nanoseconds, if nothing else moved.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub without_ns: Option<i64>,
    /// Idle lines: the window cannot become shorter than this if the cause vanished, whatever follows from it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at_least_ns: Option<i64>,
    /// Idle lines: the worst pieces.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub evidence: Vec<Evidence>,
}

/// A stretch of the window on one line; segments tile the window in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    pub start: i64,
    pub end: i64,
    /// Index into `lines`.
    pub line: u32,
    /// The operation that runs (the first of several), or [`NONE`] where the device is idle.
    pub operation: u32,
    /// Index into `pieces` where the device is idle, else [`NONE`].
    pub piece: u32,
}

/// An idle stretch with one cause, in record indices of the trace; [`NONE`] where there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub start: i64,
    pub end: i64,
    /// Index into `lines`.
    pub line: u32,
    pub cause: Cause,
    /// Operations before and after the gap.
    pub previous: u32,
    pub next: u32,
    /// The launch call of the next operation.
    pub launch: u32,
    /// The call, overhead or synchronisation record that decides it.
    pub record: u32,
    pub runner_up: Cause,
    pub why: Why,
    pub margin: i64,
}

/// Which list of the trace an index points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordKind {
    Operation,
    Call,
    Sync,
    Overhead,
}

/// A record of the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRef {
    /// `previous`, `next`, `launch`, `inside`, `event wait`, `unrecorded launch`.
    pub role: String,
    pub record: RecordKind,
    pub index: u32,
    pub name: String,
}

/// The cause that came second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerUp {
    pub cause: Cause,
    /// Why it lost, one clause.
    pub why: String,
}

/// One idle piece with what speaks for its cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub start_ns: i64,
    pub ns: i64,
    pub records: Vec<RecordRef>,
    pub runner_up: RunnerUp,
    pub below_clock: bool,
}

/// A closed window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    pub device: u32,
    pub t0: i64,
    pub t1: i64,
    pub window_ns: i64,
    /// Window less the sum of the lines; always 0, kept so that a reader can see it.
    pub residual_ns: i64,
    /// Operations that began in the window.
    pub operations: u64,
    /// Device-wide union of all operations.
    pub busy_ns: i64,
    /// Sum of the operations' own durations inside the window.
    pub duration_ns: i64,
    /// Clock error used for `below_clock_ns`.
    pub clock_ns: i64,
    pub floors: Floors,
    /// Busy lines by time, then idle lines by time.
    pub lines: Vec<Line>,
    /// What the ledger cannot know, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub segments: Vec<Segment>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub pieces: Vec<Piece>,
}
