//! What to collect, and how much memory to spend on it.

use cupti_sys::CUpti_ActivityKind as Kind;
use std::time::Duration;

/// How much detail, at what cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every operation, every API call but those that only read a property, events, external labels, NVTX.
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

/// One thing that a session can collect; each has its own cost (`docs/tracing.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A kind of activity record.
    Kind(Kind),
    /// The calls that launch, copy or wait, and no others.
    Calls,
    /// With `runtime` or `driver`: also the calls that only read a property.
    Small,
    /// Labels of graph nodes, taken when a graph is made.
    Nodes,
    /// CUPTI's own records lie in pinned host memory until they are read, not in the device's.
    Pinned,
}

/// The parts by name. GRAPH_TRACE replaces the records of a graph's nodes, and switching it off does not bring them back.
/// KERNEL in the place of CONCURRENT_KERNEL would serialise the kernels.
const PARTS: [(&str, Part); 16] = [
    ("graph", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE)),
    ("kernel", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)),
    ("memcpy", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_MEMCPY)),
    ("peer", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_MEMCPY2)),
    ("memset", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_MEMSET)),
    ("sync", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)),
    ("overhead", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_OVERHEAD)),
    ("nvtx", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_MARKER)),
    ("runtime", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_RUNTIME)),
    ("driver", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_DRIVER)),
    ("event", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_CUDA_EVENT)),
    ("label", Part::Kind(Kind::CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)),
    ("calls", Part::Calls),
    ("small", Part::Small),
    ("nodes", Part::Nodes),
    ("pinned", Part::Pinned),
];

/// A choice of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u32);

impl Parts {
    /// `kernel,memcpy,calls`, in any order; `none` is no part. The error is the word that names none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Self::default();
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty() && *w != "none") {
            let i = PARTS.iter().position(|(name, _)| *name == word).ok_or_else(|| word.to_string())?;
            parts.0 |= 1 << i;
        }
        Ok(parts)
    }

    /// Every name, for a message.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PARTS.iter().map(|(name, _)| *name)
    }

    pub fn label(self) -> String {
        let chosen: Vec<_> = (0..).zip(Self::names()).filter(|(i, _)| self.0 >> i & 1 == 1).map(|(_, n)| n).collect();
        if chosen.is_empty() { "none".into() } else { chosen.join(",") }
    }

    pub fn has(self, part: Part) -> bool {
        self.iter().any(|p| p == part)
    }

    pub fn iter(self) -> impl Iterator<Item = Part> {
        (0..).zip(PARTS).filter(move |(i, _)| self.0 >> i & 1 == 1).map(|(_, (_, part))| part)
    }

    pub fn kinds(self) -> impl Iterator<Item = Kind> {
        self.iter().filter_map(|p| if let Part::Kind(kind) = p { Some(kind) } else { None })
    }
}

impl Mode {
    /// What the mode collects.
    pub fn parts(self) -> Parts {
        let text = match self {
            Self::Full => "kernel,memcpy,peer,memset,sync,overhead,nvtx,runtime,driver,event,label,nodes",
            Self::Kernels => "kernel,memcpy,peer,memset,sync,overhead,nvtx,calls,nodes",
            Self::Graph => "graph,kernel,memcpy,peer,memset,sync,overhead,nvtx,calls",
        };
        Parts::parse(text).unwrap_or_default()
    }
}

/// Options of a session.
#[derive(Clone, Debug)]
pub struct Options {
    pub mode: Mode,
    /// These parts instead of the mode's own.
    pub parts: Option<Parts>,
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
            parts: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_names() {
        for mode in [Mode::Full, Mode::Kernels, Mode::Graph] {
            let parts = mode.parts();
            assert!(parts.kinds().count() >= 7, "{mode:?}");
            assert_eq!(Parts::parse(&parts.label()), Ok(parts));
            // One of the two says what calls there were.
            assert_eq!(parts.has(Part::Calls), mode != Mode::Full);
            assert_eq!(parts.has(Part::Kind(Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE)), mode == Mode::Graph);
        }
        assert_eq!(Parts::parse("none").map(Parts::label), Ok("none".into()));
        assert_eq!(Parts::parse("kernel, kernels"), Err("kernels".into()));
    }
}
