//! `cargo xtask test`: all that can be tested without a GPU, cheapest first, with what each phase took.

use crate::{Result, build, cargo, emulate, run as shell, toolchain};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Without these two the tests may skip, aloud, what they cannot do; here nothing may be skipped.
const STRICT: [(&str, &str); 2] = [("WORKBENCH_REQUIRE_NVCC", "1"), ("WORKBENCH_REQUIRE_EMULATED", "1")];

fn phases(project: &Path) -> Result<Vec<(&'static str, f64)>> {
    let mut took = Vec::new();
    let mut phase = |name, work: &dyn Fn() -> Result<()>| {
        eprintln!("--- {name}");
        let start = Instant::now();
        work()?;
        took.push((name, start.elapsed().as_secs_f64()));
        Ok::<(), String>(())
    };
    phase("toolchain", &|| toolchain::install(project))?;
    phase("emulate", &|| emulate::run(project, false))?;
    phase("emulate --asan", &|| emulate::run(project, true))?;
    phase("build", &|| shell(cargo(project).args(["test", "--workspace", "--no-run"]).envs(STRICT)))?;
    phase("test", &|| shell(cargo(project).args(["test", "--workspace", "--no-fail-fast"]).envs(STRICT)))?;
    // Its own test only: everything else is the same code without the feature.
    let cust = ["test", "--package", "workbench", "--features", "cust", "--test", "cust"];
    phase("cust backend", &|| shell(cargo(project).args(cust).envs(STRICT)))?;
    phase("emulated under AddressSanitizer", &|| sanitized(project))?;
    Ok(took)
}

pub fn run(project: &Path) -> Result<()> {
    let took = phases(project)?;
    eprintln!("--- all passed");
    for (name, seconds) in &took {
        eprintln!("{seconds:8.1} s  {name}");
    }
    Ok(())
}

/// Runs the emulated test once more on the instrumented libraries. The sanitizer's runtime must be the first library
/// of the process, and cargo must not run under it, hence the test executable by its path.
fn sanitized(project: &Path) -> Result<()> {
    let built = build(cargo(project).args(["test", "--test", "emulated", "--no-run"]).envs(STRICT))?;
    let (_, _, test) = built
        .executables
        .iter()
        .find(|(name, _, _)| name == "emulated")
        .ok_or("cargo built no test named `emulated`")?;
    let output = Command::new(emulate::compiler()).arg("-print-file-name=libasan.so").output();
    let runtime = output.map_err(|e| format!("cannot ask {} for libasan: {e}", emulate::compiler()))?;
    let runtime = String::from_utf8_lossy(&runtime.stdout).trim().to_string();
    if !Path::new(&runtime).is_file() {
        return Err(format!("{} has no libasan.so (it said `{runtime}`)", emulate::compiler()));
    }
    let mut command = Command::new(test);
    command.current_dir(project).envs(STRICT).env("LD_PRELOAD", runtime);
    command.env("WORKBENCH_EMULATED_DIR", emulate::folder(project, true));
    // Leaks are not the kernels' business, and the fibers' stacks are announced to the sanitizer by the emulator.
    command.env("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=1:detect_stack_use_after_return=0");
    shell(&mut command)
}
