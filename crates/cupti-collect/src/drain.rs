//! The thread that turns full buffers into recording bytes, so that the traced threads never wait for a disk.

use crate::hub::{Hub, Next};
use crate::options::Options;
use crate::translate::Translator;
use cupti_sys::call;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wbtrace::{Record, Writer};

/// How a recording went.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub records: u64,
    pub operations: u64,
    /// The sink failed (disk full); what was written before it is sound.
    pub error: Option<String>,
}

/// A running drain.
pub struct Drain {
    done: Receiver<Outcome>,
    thread: JoinHandle<()>,
}

const IDLE: Duration = Duration::from_millis(100);
/// The clock pairing is repeated this often, for recordings long enough to drift.
const CLOCK_EVERY: Duration = Duration::from_secs(5);

impl Drain {
    pub fn start(hub: &'static Hub, options: &Options, sink: Box<dyn Write + Send>) -> io::Result<Self> {
        let (tell, done) = sync_channel(1);
        let options = options.clone();
        let thread = std::thread::Builder::new().name("workbench-trace".into()).spawn(move || {
            crate::block_signals();
            run(hub, &options, sink, &tell);
        })?;
        Ok(Self { done, thread })
    }

    /// Waits for the last buffer to be written; None if the thread is stuck, which it is then left to be.
    pub fn finish(self, hub: &Hub, patience: Duration) -> Option<Outcome> {
        hub.close();
        let outcome = self.done.recv_timeout(patience).ok()?;
        let _ = self.thread.join();
        Some(outcome)
    }
}

fn run(hub: &'static Hub, options: &Options, sink: Box<dyn Write + Send>, tell: &SyncSender<Outcome>) {
    let mut outcome = Outcome::default();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        if let Err(e) = drain(hub, options, sink, &mut outcome) {
            outcome.error = Some(e.to_string());
            swallow(hub);
        }
    }));
    if caught.is_err() {
        outcome.error = Some("the tracing thread failed".into());
        swallow(hub);
    }
    let _ = tell.send(outcome);
}

fn drain(hub: &'static Hub, options: &Options, sink: Box<dyn Write + Send>, outcome: &mut Outcome) -> io::Result<()> {
    let mut out = Translator::new(Writer::new(sink)?, hub);
    for (key, value) in &options.facts {
        out.plain(&Record::Fact { key: key.clone(), value: value.clone() })?;
    }
    out.plain(&process())?;
    out.clock()?;
    out.flush()?;
    let (mut flushed, mut paired) = (Instant::now(), Instant::now());
    let began = Instant::now();
    loop {
        let every = options.flush_every.map(|most| period(began.elapsed(), most));
        match hub.next(every.map_or(IDLE, |e| e.min(IDLE))) {
            Next::Buffer(full) => {
                let buffer = full.buffer as *mut u8;
                // SAFETY: CUPTI completed it and gave it up; it is passed on once and then given back.
                let written = unsafe { out.buffer(buffer, full.valid) };
                // SAFETY: read to the end, above.
                unsafe { hub.pool.give(buffer) };
                (outcome.records, outcome.operations) = (out.records, out.operations);
                written?;
            }
            Next::Idle => {}
            Next::Closed => break,
        }
        if hub.queue_is_empty() {
            out.aside()?;
            if paired.elapsed() >= CLOCK_EVERY {
                out.clock()?;
                paired = Instant::now();
            }
            out.flush()?;
            hub.written();
        }
        if every.is_some_and(|every| flushed.elapsed() >= every) {
            // Completed records of buffers that are not full yet; the completion callback queues them for us.
            // SAFETY: takes a flag. This is no CUPTI callback.
            let _ = unsafe { call!(hub.lib, cuptiActivityFlushAll(0)) };
            flushed = Instant::now();
        }
    }
    out.end().map(drop)
}

/// How long to wait for the next flush: a program that dies early shall not lose most of its life, nor shall one that runs
/// long be flushed without end. So the fiftieth part of the time so far, and `most` at most.
fn period(so_far: Duration, most: Duration) -> Duration {
    const LEAST: Duration = Duration::from_millis(10);
    (so_far / 50).max(LEAST).min(most)
}

/// Who this is.
pub fn process() -> Record {
    let raw = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let command = String::from_utf8_lossy(&raw).trim_end_matches('\0').replace('\0', " ");
    Record::Process { pid: std::process::id(), parent: std::os::unix::process::parent_id(), command }
}

/// Keeps the pool going after the sink has failed: the program must not notice.
fn swallow(hub: &Hub) {
    loop {
        match hub.next(IDLE) {
            // SAFETY: CUPTI gave it up, and nobody will read it.
            Next::Buffer(full) => unsafe { hub.pool.give(full.buffer as *mut u8) },
            Next::Idle => {}
            Next::Closed => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_life_is_flushed_often() {
        let ms = Duration::from_millis;
        assert_eq!(period(ms(0), ms(250)), ms(10));
        assert_eq!(period(ms(2_000), ms(250)), ms(40));
        assert_eq!(period(ms(600_000), ms(250)), ms(250));
        assert_eq!(period(ms(600_000), ms(3)), ms(3));
    }
}
