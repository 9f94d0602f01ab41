//! What a recording can say.

/// Number of a text of the recording, defined by an earlier [`Record::Name`].
pub type NameId = u32;

/// What ran on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Work {
    #[default]
    Kernel = 0,
    CopyHtoD = 1,
    CopyDtoH = 2,
    CopyDtoD = 3,
    CopyHtoH = 4,
    CopyPtoP = 5,
    CopyOther = 6,
    Memset = 7,
    /// A whole graph launch, with no view of its nodes.
    Graph = 8,
}

impl Work {
    pub const ALL: [Self; 9] = [
        Self::Kernel,
        Self::CopyHtoD,
        Self::CopyDtoH,
        Self::CopyDtoD,
        Self::CopyHtoH,
        Self::CopyPtoP,
        Self::CopyOther,
        Self::Memset,
        Self::Graph,
    ];
    pub fn label(self) -> &'static str {
        ["kernel", "HtoD", "DtoH", "DtoD", "HtoH", "PtoP", "copy", "memset", "graph"][self as usize]
    }
}

/// One operation on a device. `start` and `end` are 0 where the profiler could not collect them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    pub work: Work,
    pub name: NameId,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub start: u64,
    pub end: u64,
    /// When the launch was queued in the driver and submitted to the device; 0 where not collected.
    pub queued: u64,
    pub submitted: u64,
    pub correlation: u32,
    /// Node and graph, 0 outside graphs.
    pub graph_node: u64,
    pub graph: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub registers: u32,
    pub static_shared: u32,
    pub dynamic_shared: u32,
    /// Bytes of a copy or set.
    pub bytes: u64,
}

/// One API call on a host thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    pub name: NameId,
    /// A driver call; else a runtime call.
    pub driver: bool,
    pub thread: u32,
    pub start: u64,
    pub end: u64,
    pub correlation: u32,
    /// The CUDA error code that it returned.
    pub result: u32,
}

/// A synchronisation; `kind` is CUPTI's number (1 event, 2 stream waits for event, 3 stream, 4 context).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    pub kind: u32,
    pub start: u64,
    pub end: u64,
    pub correlation: u32,
    pub context: u32,
    /// `u32::MAX` where it does not apply; so for `event`.
    pub stream: u32,
    pub event: u32,
    /// Joins with [`EventRecord::sync_id`]; `u64::MAX` where the profiler does not say.
    pub sync_id: u64,
}

/// An event recorded into a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventRecord {
    pub correlation: u32,
    pub context: u32,
    pub stream: u32,
    pub event: u32,
    pub sync_id: u64,
}

/// Time that the profiler or the driver took for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    pub name: NameId,
    pub thread: u32,
    pub start: u64,
    pub end: u64,
    pub correlation: u32,
}

/// One edge of a named range of the host, or a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerEdge {
    Point,
    Start,
    End,
}

/// An NVTX mark. Ends carry no name; they join their start by `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    pub edge: MarkerEdge,
    pub id: u32,
    pub thread: u32,
    pub time: u64,
    pub name: NameId,
    pub domain: NameId,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The recording of another process begins: files may be put end to end.
    Begin,
    Name {
        id: NameId,
        text: String,
    },
    /// A free fact: tool version, driver, GPU, command.
    Fact {
        key: String,
        value: String,
    },
    /// The capture's clock and the host's, read together, in ns.
    Clock {
        capture: u64,
        realtime: u64,
        monotonic: u64,
    },
    Process {
        pid: u32,
        parent: u32,
        command: String,
    },
    Device {
        id: u32,
        /// Compute capability as one number (90), 0 if unknown.
        sm: u32,
        sms: u32,
        name: String,
        /// Hexadecimal, empty if unknown. The same card may be device 0 of one process and 1 of another.
        uuid: String,
    },
    Operation(Operation),
    Call(Call),
    Sync(Sync),
    Event(EventRecord),
    Overhead(Overhead),
    Marker(Marker),
    /// Calls of this correlation were made under an external label.
    External {
        label: u64,
        correlation: u32,
    },
    /// A graph node was made under an external label, or cloned from one that was.
    Node {
        node: u64,
        label: u64,
    },
    /// What an external label stands for.
    Label {
        label: u64,
        name: NameId,
    },
    /// A window that the recording program marked: a step.
    Window {
        name: NameId,
        start: u64,
        end: u64,
    },
    /// The profiler lost records, found out at `time`.
    Dropped {
        count: u64,
        time: u64,
    },
    /// All tables begin anew.
    Reset,
    /// The recording was closed in order.
    End {
        time: u64,
    },
}
