//! The trace: everything a capture says, on one clock, in integer nanoseconds, with no judgement passed yet.
//!
//! Every source (our CUPTI session, Kineto JSON, Nsight Systems SQLite) becomes this value; the ledger reads only this.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Interned text. Kernel names repeat thousands of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(pub u32);

/// The table behind [`Name`].
#[derive(Clone, Debug, Default)]
pub struct Names {
    texts: Vec<String>,
    index: HashMap<String, Name>,
}

impl Names {
    pub fn intern(&mut self, text: &str) -> Name {
        if let Some(&n) = self.index.get(text) {
            return n;
        }
        let n = Name(self.texts.len() as u32);
        self.texts.push(text.to_string());
        self.index.insert(text.to_string(), n);
        n
    }
    /// The text of a name; empty for one that is not of this table.
    pub fn text(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("", String::as_str)
    }
    pub fn len(&self) -> usize {
        self.texts.len()
    }
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// Copy directions as CUPTI names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyKind {
    HtoD,
    DtoH,
    DtoD,
    HtoH,
    PtoP,
    Other,
}

/// What ran on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    Kernel,
    Memcpy(CopyKind),
    Memset,
    /// A whole CUDA graph recorded as one interval (graph mode): what ran inside is not known.
    Graph,
}

/// One operation on a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    pub work: Work,
    pub name: Name,
    pub process: u32,
    pub device: u32,
    pub stream: u64,
    /// Start and end; both 0 where the capture did not collect them.
    pub start: i64,
    pub end: i64,
    /// Joins with [`Call::correlation`] of the same process; 0 if unknown. One graph launch shares one among its nodes.
    pub correlation: u64,
    /// Node and graph, 0 outside graphs.
    pub graph_node: u64,
    pub graph: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub registers: u32,
    pub shared: u32,
    /// Bytes of a copy or set.
    pub bytes: u64,
    /// Our own label of the launch (external correlation): the plan node's id plus one, 0 if none.
    pub external: u64,
}

impl Default for Operation {
    fn default() -> Self {
        Self {
            work: Work::Kernel,
            name: Name(0),
            process: 0,
            device: 0,
            stream: 0,
            start: 0,
            end: 0,
            correlation: 0,
            graph_node: 0,
            graph: 0,
            grid: [0; 3],
            block: [0; 3],
            registers: 0,
            shared: 0,
            bytes: 0,
            external: 0,
        }
    }
}

/// A time above this, about the twelfth day, is of a clock that did not begin with the capture.
const LONG_AGO: i64 = 1_000_000_000_000_000;

impl Operation {
    /// Whether times were collected. 0 and the ends of the clock stand for "unknown" in CUPTI and elsewhere; a 0 beside a
    /// time of the host's clock is one of them, and not the beginning of a kernel of decades.
    pub fn collected(&self) -> bool {
        let ends = [i64::MIN, i64::MAX];
        let (start, end) = (self.start, self.end);
        !(ends.contains(&start) || ends.contains(&end) || end == 0 && start >= 0 || start == 0 && end >= LONG_AGO)
    }
    /// Whether it has times that are an interval: only such operations are on a ledger's line.
    pub fn timed(&self) -> bool {
        self.collected() && self.end >= self.start
    }
}

/// What a CUDA call does, as far as gaps care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallKind {
    /// Launches a kernel, copy or set.
    Launch,
    GraphLaunch,
    /// Waits on the host for the device.
    Sync,
    /// Anything else.
    Other,
}

/// One runtime or driver API call on a host thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub kind: CallKind,
    pub name: Name,
    pub process: u32,
    pub thread: u64,
    pub start: i64,
    pub end: i64,
    pub correlation: u64,
    /// A driver call (often nested in a runtime call of the same correlation).
    pub driver: bool,
}

/// CUPTI's synchronisation types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncKind {
    Event,
    StreamWaitEvent,
    Stream,
    Context,
    Unknown,
}

/// A synchronisation record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sync {
    pub kind: SyncKind,
    pub process: u32,
    pub device: u32,
    /// The stream that waits (`StreamWaitEvent`) or is waited for; `u64::MAX` if none.
    pub stream: u64,
    pub start: i64,
    pub end: i64,
    pub correlation: u64,
    /// For an event wait: the stream and the correlation of the event's record call, where known.
    pub event_stream: Option<u64>,
    pub event_correlation: Option<u64>,
    pub event: u64,
}

/// Time the profiler itself spent (CUPTI overhead records).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    pub name: Name,
    pub process: u32,
    pub thread: u64,
    pub start: i64,
    pub end: i64,
}

/// A named host range: NVTX, a profiler step, a framework operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marker {
    pub name: Name,
    pub category: Name,
    pub process: u32,
    pub thread: u64,
    pub start: i64,
    pub end: i64,
}

/// A device seen in the capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    pub id: u32,
    pub name: String,
    /// Compute capability as one number, 0 if unknown.
    pub sm: u32,
    pub sms: u32,
}

/// What the place of a defect counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Bytes of the (decompressed) file.
    #[default]
    Byte,
    /// Operations of the trace.
    Operation,
    /// API calls of the trace.
    Call,
}

/// A known flaw of a file or capture, found before any number is believed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Defect {
    /// Stable name: `zero_times`, `end_before_start`, `kernel_before_launch`, `duplicate`, `launch_without_operation`,
    /// `unrecorded_launch`, `operation_without_launch`, `graph_under_recorded`, `missing_node_ids`, `overlap_on_stream`,
    /// `implausible_duration`, `no_gpu_work`, `dropped_records`, `truncated`, `malformed_event`, `non_finite_number`,
    /// `invalid_utf8`, …
    pub defect: String,
    pub count: u64,
    /// Place of the first; `place` says of what.
    pub first_offset: Option<u64>,
    #[serde(default)]
    pub place: Place,
    /// What it means for the numbers, one sentence.
    pub detail: String,
}

impl Defect {
    /// Where the first is, for a table; empty where that is not known.
    pub fn first(&self) -> String {
        let word = match self.place {
            Place::Byte => "byte",
            Place::Operation => "operation",
            Place::Call => "call",
        };
        self.first_offset.map_or(String::new(), |at| format!("{word} {at}"))
    }
}

/// A whole capture.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// `workbench`, `kineto`, `nsys`.
    pub format: String,
    pub names: Names,
    pub devices: Vec<DeviceInfo>,
    pub operations: Vec<Operation>,
    pub calls: Vec<Call>,
    pub syncs: Vec<Sync>,
    pub overheads: Vec<Overhead>,
    pub markers: Vec<Marker>,
    pub defects: Vec<Defect>,
    /// Unix time of this clock's zero in ns, where known.
    pub base_unix_ns: Option<i64>,
    /// Half-width of what the clock can tell apart, ns (1 for integer-ns captures; 500 for µs captures).
    pub resolution_ns: i64,
    /// Free text facts from the file (device, tool, versions), for the environment block.
    pub facts: Vec<(String, String)>,
}
