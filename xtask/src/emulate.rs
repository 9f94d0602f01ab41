//! `cargo xtask emulate`: every emulated variant's `.cu` text through g++ into a shared library that the emulator's
//! executor loads. The same text that nvcc compiles, no copy.

use crate::{Result, hash::Hash, sources, target};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Frame pointers and line numbers make AddressSanitizer's reports readable; -O1 because the fibers' switches dominate.
const FLAGS: &[&str] = &[
    "-x",
    "c++",
    "-std=c++17",
    "-O1",
    "-g1",
    "-fPIC",
    "-shared",
    "-fno-omit-frame-pointer",
    "-fno-strict-aliasing",
    "-DWB_EMULATE",
    "-I.",
    "-Wno-unknown-pragmas",
];
const ASAN: &[&str] = &["-fsanitize=address"];

/// Where the libraries are, below cargo's output folder.
pub fn folder(project: &Path, asan: bool) -> PathBuf {
    target(project).join(if asan { "emulated-asan" } else { "emulated" })
}

/// The C++ compiler: `CXX`, or g++.
pub fn compiler() -> String {
    std::env::var("CXX").ok().filter(|c| !c.is_empty()).unwrap_or_else(|| "g++".into())
}

struct Job {
    name: String,
    file: String,
    library: PathBuf,
    key: String,
}

/// Compiles what has changed, as many at a time as there are cores.
pub fn run(project: &Path, asan: bool) -> Result<()> {
    let start = Instant::now();
    let (kernels, folder) = (project.join("kernels"), folder(project, asan));
    std::fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    let units: Vec<_> = sources::units(&kernels)?.into_iter().filter(|u| u.emulated).collect();
    let version = version()?;
    let flags: Vec<&str> = FLAGS.iter().chain(if asan { ASAN } else { &[] }).copied().collect();
    let mut jobs = Vec::new();
    for unit in &units {
        let mut hash = Hash::new().field(&version).field(flags.join(" "));
        let mut paths: Vec<String> = sources::headers(&kernels, &unit.file)?.into_iter().map(|h| h.path).collect();
        paths.push(unit.file.clone());
        paths.sort();
        paths.dedup();
        for path in paths {
            let text = std::fs::read(kernels.join(&path)).map_err(|e| format!("cannot read kernels/{path}: {e}"))?;
            hash = hash.field(&path).field(text);
        }
        let library = folder.join(format!("{}.so", unit.name.replace('/', "_")));
        jobs.push(Job { name: unit.name.clone(), file: unit.file.clone(), library, key: hash.hex() });
    }
    remove_strays(&folder, &jobs)?;
    let stale: Vec<&Job> = jobs
        .iter()
        .filter(|j| !(j.library.is_file() && std::fs::read_to_string(stamp(j)).is_ok_and(|k| k == j.key)))
        .collect();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get()).max(2);
    let faults: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mut faults = Vec::new();
            while let Some(job) = stale.get(next.fetch_add(1, Ordering::Relaxed)) {
                faults.extend(compile(&kernels, job, &flags).err());
            }
            faults
        };
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|w| w.join().expect("a compile thread")).collect()
    });
    if !faults.is_empty() {
        return Err(faults.join("\n"));
    }
    eprintln!(
        "emulate{}: {} variants, {} compiled anew, {:.1} s",
        if asan { " --asan" } else { "" },
        jobs.len(),
        stale.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn stamp(job: &Job) -> PathBuf {
    job.library.with_extension("key")
}

fn compile(kernels: &Path, job: &Job, flags: &[&str]) -> Result<()> {
    let part = job.library.with_extension("part");
    let mut command = Command::new(compiler());
    command.current_dir(kernels).args(flags).arg("-o").arg(&part).arg(&job.file);
    let output = command.output().map_err(|e| format!("cannot run {}: {e}", compiler()))?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} does not compile for the emulator\n  {}\n{log}", job.name, crate::text(&command)));
    }
    std::fs::rename(&part, &job.library).map_err(|e| format!("cannot keep {}: {e}", job.library.display()))?;
    std::fs::write(stamp(job), &job.key).map_err(|e| e.to_string())
}

/// Deletes libraries of variants that are no longer registered, which a test would otherwise still find.
fn remove_strays(folder: &Path, jobs: &[Job]) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(|e| e.to_string())?.flatten() {
        let path = entry.path();
        if !jobs.iter().any(|j| j.library.file_stem() == path.file_stem()) {
            std::fs::remove_file(&path).map_err(|e| format!("cannot remove {}: {e}", path.display()))?;
        }
    }
    Ok(())
}

fn version() -> Result<String> {
    let program = compiler();
    let output = Command::new(&program).arg("--version").output();
    let output = output.map_err(|e| format!("cannot run {program}: {e} (Debian: apt-get install g++)"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_string())
}
