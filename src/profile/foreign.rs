//! Runs a command with our injection library in it and gathers what it left: one file for each process that used CUDA.
//!
//! The command is a guest. Its standard streams and exit code are its own; signals that reach us reach it.

use super::native::{self, Recording};
use crate::error::{Error, Result};
use crate::files::Whole;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub use cupti_collect::{Mode, Parts};

/// What to trace and how.
#[derive(Clone, Debug)]
pub struct Request {
    pub command: Vec<OsString>,
    /// Folder for the parts; it must exist.
    pub folder: PathBuf,
    pub mode: Mode,
    /// Parts to collect instead of the mode's own.
    pub parts: Option<Parts>,
    /// How often finished records reach the disk.
    pub flush_every: Duration,
    pub after: Option<Duration>,
    pub duration: Option<Duration>,
    pub latency: bool,
}

/// How the command ended.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// Its exit code; 128 plus the signal that ended it.
    pub code: u8,
    pub wall: Duration,
}

/// The injection library: beside the program (a bundle), or where cargo puts it.
pub fn library() -> Result<PathBuf> {
    const NAME: &str = "libcupti_inject.so";
    let explicit = std::env::var_os("WORKBENCH_INJECT").map(PathBuf::from);
    let program = std::env::current_exe().map_err(Error::from)?;
    let beside = program.parent().unwrap_or(Path::new("."));
    let places = [
        beside.join(NAME),
        beside.join("deps").join(NAME),
        beside.join("../lib").join(NAME),
        beside.join("..").join(NAME),
    ];
    let found = explicit.into_iter().chain(places).find(|p| p.is_file());
    let found = found.ok_or_else(|| {
        Error::no_device(format!("{NAME} is not beside the program ({})", beside.display()))
            .try_next("`cargo build --release`, or a folder from `cargo xtask bundle`; WORKBENCH_INJECT=FILE names it")
    })?;
    // CUDA wants an absolute path, and the command may change its folder.
    found.canonicalize().map_err(Error::from)
}

/// Runs the command untraced, for comparison; `heard` gets what it writes to its standard output, which goes on to ours.
pub fn run_untraced(command: &[OsString], heard: Option<&mut String>) -> Result<Exit> {
    listened(&mut build(command)?, heard, || {})
}

/// Runs a command to its end. To be heard it writes into a pipe, and what it wrote is passed on as it comes.
fn listened(command: &mut Command, heard: Option<&mut String>, look: impl FnMut()) -> Result<Exit> {
    let Some(heard) = heard else { return wait(start(command)?, look) };
    command.stdout(Stdio::piped());
    let (mut child, began) = start(command)?;
    let (tell, text) = mpsc::channel();
    if let Some(mut pipe) = child.stdout.take() {
        std::thread::spawn(move || {
            let (mut kept, mut part) = (Vec::new(), [0; 1 << 16]);
            while let Ok(n @ 1..) = pipe.read(&mut part) {
                let _ = io::stdout().write_all(&part[..n]).and_then(|()| io::stdout().flush());
                // The end is what matters of a long output.
                kept.extend_from_slice(&part[..n]);
                if kept.len() > 2 * HEARD {
                    kept.drain(..kept.len() - HEARD);
                }
            }
            let _ = tell.send(String::from_utf8_lossy(&kept).into_owned());
        });
    }
    let exit = wait((child, began), look)?;
    // A child of the command's that goes on may hold the pipe; it is not waited for.
    *heard = text.recv_timeout(Duration::from_secs(2)).unwrap_or_default();
    Ok(exit)
}

/// Bytes kept of what a command writes.
const HEARD: usize = 1 << 20;

/// What a process must find in its environment to be traced, beyond its own.
///
/// # Errors
/// No injection library; another tool's in its place.
pub fn environment(request: &Request) -> Result<Vec<(&'static str, OsString)>> {
    let inject = library()?;
    for other in ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"] {
        if let Some(tool) = std::env::var_os(other).filter(|v| !v.is_empty()) {
            return Err(Error::untrusted(format!(
                "another tool already traces this command ({other}={})",
                tool.display()
            ))
            .try_next(format!("run it without the other profiler, or unset {other}")));
        }
    }
    let ms = |d: Duration| OsString::from(d.as_millis().to_string());
    let mut set = vec![
        ("CUDA_INJECTION64_PATH", inject.clone().into()),
        ("NVTX_INJECTION64_PATH", inject.into()),
        ("WORKBENCH_TRACE_OUT", request.folder.canonicalize().map_err(Error::from)?.into()),
        ("WORKBENCH_TRACE_MODE", request.mode.label().into()),
        ("WORKBENCH_TRACE_FLUSH_MS", ms(request.flush_every)),
        ("WORKBENCH_TRACE_LATENCY", if request.latency { "1" } else { "0" }.into()),
    ];
    set.extend(request.parts.map(|parts| ("WORKBENCH_TRACE_PARTS", parts.label().into())));
    set.extend(request.after.map(|after| ("WORKBENCH_TRACE_AFTER_MS", ms(after))));
    set.extend(request.duration.map(|duration| ("WORKBENCH_TRACE_FOR_MS", ms(duration))));
    // The traced program's own CUPTI comes first; this is for programs that have none.
    set.extend(cupti_sys::load().ok().map(|lib| ("WORKBENCH_CUPTI_HINT", lib.path.clone().into())));
    Ok(set)
}

/// Runs the command traced. `stopped` is called once, while the command goes on, after a limited duration has passed.
/// `heard` is as in [`run_untraced`].
pub fn run(request: &Request, heard: Option<&mut String>, mut stopped: impl FnMut()) -> Result<Exit> {
    let set = environment(request)?;
    let mut command = build(&request.command)?;
    command.envs(set);
    let limit = request.duration.map(|d| d + request.after.unwrap_or_default() + Duration::from_millis(500));
    let (mut first_seen, mut told) = (None, limit.is_none());
    listened(&mut command, heard, || {
        if told {
            return;
        }
        if first_seen.is_none() && !parts(&request.folder).is_empty() {
            first_seen = Some(Instant::now());
        }
        if let (Some(seen), Some(limit)) = (first_seen, limit)
            && seen.elapsed() > limit
        {
            told = true;
            stopped();
        }
    })
}

fn build(command: &[OsString]) -> Result<Command> {
    let (program, args) = command.split_first().ok_or_else(|| Error::usage("no command to trace"))?;
    let mut built = Command::new(program);
    built.args(args);
    Ok(built)
}

fn start(command: &mut Command) -> Result<(Child, Instant)> {
    guard_signals();
    let began = Instant::now();
    let child = command.spawn().map_err(|e| {
        let program = command.get_program().display();
        Error::usage(format!("cannot run {program}: {e}"))
    })?;
    CHILD.store(child.id() as i32, Ordering::Release);
    Ok((child, began))
}

/// Waits for the command, and looks in every tenth of a second. The end is timed by a thread that does nothing else.
fn wait((mut child, began): (Child, Instant), mut look: impl FnMut()) -> Result<Exit> {
    let (tell, ended) = mpsc::channel();
    let pid = child.id();
    let waiter = std::thread::spawn(move || {
        // SAFETY: a zeroed siginfo_t is valid, and outlives the call. WNOWAIT leaves the child to be reaped below, so
        // that its id stays its own until no signal can be sent to it any more.
        let mut info = unsafe { std::mem::zeroed::<libc::siginfo_t>() };
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: as above.
        while unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, flags) } != 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        let _ = tell.send(began.elapsed());
    });
    let wall = loop {
        match ended.recv_timeout(Duration::from_millis(100)) {
            Ok(wall) => break wall,
            Err(mpsc::RecvTimeoutError::Timeout) => look(),
            Err(mpsc::RecvTimeoutError::Disconnected) => break began.elapsed(),
        }
    };
    CHILD.store(0, Ordering::Release);
    let _ = waiter.join();
    let status = child.wait().map_err(Error::from)?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Exit { code: code as u8, wall })
}

/// The command that signals go on to.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// From now on an interrupt from the terminal, which the command gets too, does not end us before the report; a signal sent
/// to us alone is passed on. Handlers and not "ignore", for the command would inherit that.
fn guard_signals() {
    extern "C" fn nothing(_: libc::c_int) {}
    extern "C" fn pass_on(signal: libc::c_int) {
        let child = CHILD.load(Ordering::Acquire);
        if child > 0 {
            // SAFETY: kill may be called from a handler; the child is not reaped while its id is here.
            unsafe { libc::kill(child, signal) };
        }
    }
    let set = |signal, handler: extern "C" fn(libc::c_int)| {
        // SAFETY: both handlers only do what a handler may.
        unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
    };
    set(libc::SIGINT, nothing);
    set(libc::SIGQUIT, nothing);
    set(libc::SIGTERM, pass_on);
    set(libc::SIGHUP, pass_on);
}

/// The recordings of a folder, by name.
pub fn parts(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut parts: Vec<PathBuf> =
        entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "wbt")).collect();
    parts.sort();
    parts
}

/// Reads all parts as one recording. A part that cannot be read at all is told in `errors`.
pub fn gather(folder: &Path) -> (Recording, Vec<Error>) {
    let mut recording = Recording::default();
    let errors = parts(folder).iter().filter_map(|part| recording.add_file(part).err()).collect();
    recording.finish();
    (recording, errors)
}

/// Writes all parts into one file, whole or not at all; a part that was cut off goes in up to the cut.
pub fn merge(folder: &Path, out: &Path) -> Result<u64> {
    let mut total = 0;
    let write = |total: &mut u64| -> io::Result<()> {
        let mut file = Whole::create(out)?;
        for path in parts(folder) {
            let Some(sound) = native::sound_bytes(&path) else { continue };
            *total += io::copy(&mut io::Read::take(std::fs::File::open(path)?, sound), &mut file)?;
        }
        file.keep()
    };
    write(&mut total).map_err(|e| {
        Error::usage(format!("cannot write {}: {e}", out.display()))
            .try_next(format!("the parts are still in {}", folder.display()))
    })?;
    Ok(total)
}
