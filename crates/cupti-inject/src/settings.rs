//! What `workbench trace` asks of us, through the environment: it is inherited by every child of the traced command.

use cupti_collect::{Mode, Parts};
use std::path::PathBuf;
use std::time::Duration;

/// Folder for the recordings, one file a process. Without it the library does nothing.
pub const OUT: &str = "WORKBENCH_TRACE_OUT";
/// `full`, `kernels` or `graph`.
pub const MODE: &str = "WORKBENCH_TRACE_MODE";
/// Parts to collect in the place of the mode's own: `kernel,memcpy,calls`.
pub const PARTS: &str = "WORKBENCH_TRACE_PARTS";
/// How often finished records go to the file, ms: a killed process loses no more than this.
pub const FLUSH_MS: &str = "WORKBENCH_TRACE_FLUSH_MS";
/// Begin this long after CUDA is initialised, ms.
pub const AFTER_MS: &str = "WORKBENCH_TRACE_AFTER_MS";
/// Collect for this long, then leave the process, ms.
pub const FOR_MS: &str = "WORKBENCH_TRACE_FOR_MS";
/// Also collect queued and submitted times (1).
pub const LATENCY: &str = "WORKBENCH_TRACE_LATENCY";

pub struct Settings {
    pub folder: PathBuf,
    pub mode: Mode,
    pub parts: Option<Parts>,
    pub flush_every: Duration,
    pub after: Option<Duration>,
    pub duration: Option<Duration>,
    pub latency: bool,
}

impl Settings {
    pub fn from_env() -> Option<Self> {
        let text = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let ms = |name: &str| text(name)?.parse().ok().map(Duration::from_millis);
        Some(Self {
            folder: std::env::var_os(OUT).filter(|v| !v.is_empty())?.into(),
            mode: text(MODE).and_then(|m| Mode::parse(&m)).unwrap_or_default(),
            parts: text(PARTS).and_then(|p| Parts::parse(&p).ok()),
            flush_every: ms(FLUSH_MS).unwrap_or(Duration::from_millis(250)),
            after: ms(AFTER_MS),
            duration: ms(FOR_MS),
            latency: text(LATENCY).is_some_and(|v| v == "1"),
        })
    }
}
