//! What to collect, and how much memory to spend on it.

use std::time::Duration;

/// How much detail, at what cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every operation, every API call, events, external labels, NVTX.
    #[default]
    Full,
    /// Every operation, and only the calls that launch, copy, synchronise or play graphs.
    Kernels,
    /// A graph launch is one record; operations outside graphs as in `Kernels`.
    Graph,
}

impl Mode {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "full" => Self::Full,
            "kernels" => Self::Kernels,
            "graph" => Self::Graph,
            _ => return None,
        })
    }
    pub fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Kernels => "kernels",
            Self::Graph => "graph",
        }
    }
}

/// Options of a session.
#[derive(Clone, Debug)]
pub struct Options {
    pub mode: Mode,
    /// Bytes of one activity buffer. CUPTI advises 1 to 10 MB.
    pub buffer_bytes: usize,
    /// Buffers allocated and touched before the session starts.
    pub buffers: usize,
    /// Buffers at most; past it records are dropped and counted.
    pub max_buffers: usize,
    /// Collect queued and submitted times of each kernel (must be set before CUDA is initialised).
    pub latency: bool,
    /// Ask CUPTI for its finished buffers this often, so that a killed process loses no more than that. None: only at the end.
    pub flush_every: Option<Duration>,
    /// Enable the activity kinds at once. Otherwise [`crate::Collector::resume`] does it.
    pub enabled: bool,
    /// Written at the head of the recording.
    pub facts: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Full,
            buffer_bytes: 4 << 20,
            buffers: 8,
            max_buffers: 64,
            latency: false,
            flush_every: None,
            enabled: true,
            facts: Vec::new(),
        }
    }
}
