//! An activity session around our own work: start, run, finish, and the recording is a [`Trace`](super::trace::Trace).
//!
//! ```no_run
//! # fn main() -> workbench::error::Result<()> {
//! use workbench::profile::session::{Options, Session};
//! let session = Session::start(&Options::default())?;
//! // Capture and instantiate graphs now, inside the session: CUPTI sees the nodes of those only.
//! let t0 = session.timestamp()?;
//! {
//!     let _label = session.label(1); // launches of plan node 0
//! }
//! // … launch, then synchronise the device …
//! session.window("step 0", t0, session.timestamp()?);
//! let captured = session.finish()?;
//! println!("{} operations", captured.recording.trace.operations.len());
//! # Ok(())
//! # }
//! ```

use super::native::{self, Recording};
use crate::error::{Error, Kind, Result};
use cupti_collect::{Collector, Problem};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use cupti_collect::{Label, Mode, Options, graph_node_id};

/// How long to wait for the recording thread at the end.
const PATIENCE: Duration = Duration::from_secs(60);

/// An open session; one at a time in a process.
pub struct Session {
    collector: Collector,
    bytes: Bytes,
}

/// What a session saw.
pub struct Captured {
    /// The recording as it would lie in a file: commit it, and the account can be made again.
    pub bytes: Vec<u8>,
    pub recording: Recording,
    /// Records that CUPTI dropped; the account cannot be trusted where it is not 0.
    pub dropped: u64,
    /// Activity buffers made, and made while work was being launched.
    pub buffers: usize,
    pub late_buffers: usize,
}

/// The CUPTI that a session would use, as `13.0 (130001)`; None where there is none.
pub fn cupti_version() -> Option<String> {
    cupti_sys::load().ok().map(|lib| format!("{} ({})", lib.version, lib.api_version))
}

/// Sets what has to be set before CUDA is initialised (latency stamps). Call it first thing, where `options.latency` is on.
pub fn prepare(options: &Options) -> Result<()> {
    cupti_collect::prepare(options).map(drop).map_err(error)
}

impl Session {
    /// Subscribes and begins to record. Device work in flight should be finished first.
    ///
    /// # Errors
    /// `NoDevice` where there is no CUPTI, driver or GPU; `Untrusted` where another profiler is attached.
    pub fn start(options: &Options) -> Result<Self> {
        let bytes = Bytes::default();
        let collector = Collector::start(options, Box::new(bytes.clone())).map_err(error)?;
        Ok(Self { collector, bytes })
    }

    /// Now, on the clock of the records, in ns.
    pub fn timestamp(&self) -> Result<i64> {
        cupti_collect::timestamp(self.collector.library()).map(|t| t as i64).map_err(|e| error(e.into()))
    }

    /// Labels this thread's launches, and the graph nodes that it captures, until the value is dropped. `label` is the plan
    /// node's id plus one; see [`super::trace::Operation::external`].
    pub fn label(&self, label: u64) -> Label {
        Label::new(label)
    }

    /// Says what a label stands for.
    pub fn name_label(&self, label: u64, name: &str) {
        self.collector.label(label, name);
    }

    /// Marks a window on the records' clock: a step.
    pub fn window(&self, name: &str, start: i64, end: i64) {
        self.collector.window(name, start as u64, end as u64);
    }

    /// Writes a fact into the recording.
    pub fn fact(&self, key: &str, value: &str) {
        self.collector.fact(key, value);
    }

    /// Ends the session and removes CUPTI from the process, so that launches are as fast as before. Synchronise the device
    /// first, and do not play graphs that were instantiated inside the session afterwards: make them anew.
    ///
    /// # Errors
    /// `Untrusted` where the recording could not be completed.
    pub fn finish(self) -> Result<Captured> {
        let (dropped_before, (buffers, late_buffers, _)) = (self.collector.dropped(), self.collector.buffers());
        let outcome = self.collector.stop(true, PATIENCE);
        let outcome = outcome.ok_or_else(|| Error::untrusted("the recording thread did not finish"))?;
        if let Some(e) = outcome.error {
            return Err(Error::untrusted(format!("the recording broke off: {e}")));
        }
        let bytes = self.bytes.take();
        let recording = native::read(&bytes[..])?;
        let dropped = recording.processes.iter().map(|p| p.dropped).sum::<u64>().max(dropped_before);
        Ok(Captured { bytes, recording, dropped, buffers, late_buffers })
    }
}

/// An error with the exit code of what stands in the way.
pub fn error(problem: Problem) -> Error {
    let kind = match problem {
        Problem::AnotherSubscriber(_) | Problem::HardwareBusy | Problem::AlreadyActive => Kind::Untrusted,
        _ => Kind::NoDevice,
    };
    Error::new(kind, problem.to_string()).try_next(problem.fix())
}

/// A sink whose bytes can be had back.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Bytes {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With no GPU the error says what is missing and what to do; with one, an empty session gives an empty recording that
    /// was closed in order. Both leave the process able to start another.
    #[test]
    fn an_empty_session_or_a_named_obstacle() {
        for _ in 0..2 {
            match Session::start(&Options { buffers: 2, buffer_bytes: 1 << 20, ..Options::default() }) {
                Ok(session) => {
                    let t0 = session.timestamp().unwrap();
                    session.window("nothing", t0, session.timestamp().unwrap());
                    let captured = session.finish().unwrap();
                    let r = &captured.recording;
                    assert!(r.processes[0].ended && r.windows[0].0 == "nothing" && captured.dropped == 0);
                }
                Err(e) => {
                    assert_eq!(e.kind, Kind::NoDevice, "{e}");
                    assert!(e.next.is_some());
                }
            }
        }
    }
}
