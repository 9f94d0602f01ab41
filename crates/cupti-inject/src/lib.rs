//! Traces a process that we did not write. CUDA loads this library when it is initialised (`CUDA_INJECTION64_PATH`), NVTX
//! when it is first used (`NVTX_INJECTION64_PATH`).
//!
//! The process is a guest: nothing is printed, no signal is handled, its exit code stays its own, no panic or error of ours
//! ends it. What goes wrong is written into the recording, for `workbench trace` to tell.

mod exit;
mod nvtx;
mod settings;

use cupti_collect::{Collector, Options, Problem};
use settings::Settings;
use std::fs::{File, OpenOptions};
use std::io;
use std::panic::catch_unwind;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use wbtrace::{Record, Writer};

/// The session of this process, until it is ended.
static SESSION: Mutex<Option<Collector>> = Mutex::new(None);

/// How long an exiting process waits for its recording.
const PATIENCE: Duration = Duration::from_secs(10);

/// CUDA calls this once, inside its initialisation. Returns 1 whatever happened: the program must go on.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> libc::c_int {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        // The hook of this library's own copy of the standard library: panics stay silent.
        std::panic::set_hook(Box::new(|_| {}));
        let _ = catch_unwind(begin);
    });
    1
}

fn begin() {
    let Some(settings) = Settings::from_env() else { return };
    let Ok(file) = create(&settings) else { return };
    let options = Options {
        mode: settings.mode,
        parts: settings.parts,
        latency: settings.latency,
        flush_every: Some(settings.flush_every),
        enabled: settings.after.is_none(),
        ..Options::default()
    };
    let spare = file.try_clone();
    match Collector::start(&options, Box::new(file)) {
        Ok(collector) => {
            *lock() = Some(collector);
            exit::at_exit();
            if settings.after.is_some() || settings.duration.is_some() {
                timer(settings);
            }
        }
        Err(problem) => {
            if let Ok(file) = spare {
                let _ = write_problem(file, &problem);
            }
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Collector>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file of this process's own: by its id, and by a number where that id has been here before (a program that became
/// another by `exec`).
fn create(settings: &Settings) -> io::Result<File> {
    let pid = std::process::id();
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for n in 1..100 {
        let name = if n == 1 { format!("{pid}.wbt") } else { format!("{pid}-{n}.wbt") };
        match OpenOptions::new().write(true).create_new(true).open(settings.folder.join(name)) {
            Ok(file) => return Ok(file),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

/// A recording that says only why there is none.
fn write_problem(file: File, problem: &Problem) -> io::Result<()> {
    use std::io::{Seek, Write};
    // A collector that failed half way may have written its beginning.
    (&file).rewind()?;
    file.set_len(0)?;
    let mut writer = Writer::new(file)?;
    writer.record(&cupti_collect::process_record())?;
    writer.record(&Record::Fact { key: "problem".into(), value: format!("{}: {problem}", problem.name()) })?;
    writer.record(&Record::Fact { key: "problem_fix".into(), value: problem.fix().into() })?;
    let (capture, monotonic) = cupti_collect::host_clocks();
    writer.record(&Record::Clock { capture, realtime: capture, monotonic })?;
    writer.record(&Record::End { time: capture })?;
    writer.into_inner()?.flush()
}

/// Begins the collection late, ends it early, or both.
fn timer(settings: Settings) {
    let run = move || {
        cupti_collect::block_signals();
        let _ = catch_unwind(|| {
            if let Some(after) = settings.after {
                std::thread::sleep(after);
                if let Some(c) = lock().as_ref()
                    && let Err(problem) = c.resume()
                {
                    c.fact("problem", &format!("{}: {problem}", problem.name()));
                }
            }
            if let Some(duration) = settings.duration {
                std::thread::sleep(duration);
                if let Some(c) = lock().take() {
                    c.stop_at_next_call(PATIENCE);
                }
            }
        });
    };
    let _ = std::thread::Builder::new().name("workbench-timer".into()).spawn(run);
}
