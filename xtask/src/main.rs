//! Chores of the repository that cargo does not do by itself: `cargo xtask help` lists them.
//!
//! It compiles the kernel registry in, as `build.rs` does, instead of depending on the library: `cargo xtask toolchain`
//! must run before there is an nvcc to build the library with.

#[allow(dead_code, unused_imports, unused_macros)]
#[path = "../../kernels/mod.rs"]
mod kernels;
#[allow(dead_code)]
#[path = "../../src/op.rs"]
mod op;
#[allow(dead_code)]
#[path = "../../src/units.rs"]
mod units;

#[path = "../../build/hash.rs"]
mod hash;
#[allow(dead_code)]
#[path = "../../build/sources.rs"]
mod sources;

mod bundle;
mod emulate;
mod test;
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask toolchain          install the pinned CUDA toolkit wheels into toolchain/ (once)
cargo xtask emulate [--asan]   compile the emulated kernels with g++ into target/emulated[-asan]/
cargo xtask test               everything that can be tested without a GPU
cargo xtask budgets            write kernels/budgets.json anew from what the assembler reports
cargo xtask bundle [--out DIR] one folder that runs on a GPU machine without Rust (default: bundle/)";

/// A chore's result; the text says what to do.
type Result<T, E = String> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = project().and_then(|project| match args.as_slice() {
        ["toolchain"] => toolchain::install(&project),
        ["emulate"] => emulate::run(&project, false),
        ["emulate", "--asan"] => emulate::run(&project, true),
        ["test"] => test::run(&project),
        ["budgets"] => budgets(&project),
        ["bundle"] => bundle::run(&project, &project.join("bundle")),
        ["bundle", "--out", dir] => bundle::run(&project, Path::new(dir)),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(format!("no such chore: {}\n{HELP}", other.join(" "))),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's folder: cargo says where this package is.
fn project() -> Result<PathBuf> {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("run me as `cargo xtask`")?;
    Ok(Path::new(&here).parent().ok_or("xtask/ has no folder above it")?.to_path_buf())
}

/// Cargo's output folder.
fn target(project: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| project.join("target"), |dir| project.join(dir))
}

/// The cargo that runs this.
fn cargo(project: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(project);
    command
}

/// Runs a command to its end with its output shown.
fn run(command: &mut Command) -> Result<()> {
    let text = text(command);
    let status = command.status().map_err(|e| format!("cannot run `{text}`: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{text}` failed: {status}")) }
}

/// A command as one would type it.
fn text(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let args = command.get_args().map(|a| a.to_string_lossy().into_owned());
    std::iter::once(program).chain(args).collect::<Vec<_>>().join(" ")
}

/// What a cargo run built, from its JSON messages.
struct Built {
    /// Target name, kind (`bin`, `test`, `bench`) and file.
    executables: Vec<(String, String, PathBuf)>,
    /// Output folders of build scripts.
    out_dirs: Vec<PathBuf>,
}

/// Runs a building cargo command.
fn build(command: &mut Command) -> Result<Built> {
    command.arg("--message-format=json-render-diagnostics").stderr(std::process::Stdio::inherit());
    let text = text(command);
    let output = command.output().map_err(|e| format!("cannot run `{text}`: {e}"))?;
    if !output.status.success() {
        return Err(format!("`{text}` failed: {}", output.status));
    }
    let mut built = Built { executables: Vec::new(), out_dirs: Vec::new() };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let (target, file) = (&message["target"], message["executable"].as_str());
        if let (Some(file), Some(name), Some(kind)) = (file, target["name"].as_str(), target["kind"][0].as_str()) {
            built.executables.push((name.to_string(), kind.to_string(), PathBuf::from(file)));
        }
        built.out_dirs.extend(message["out_dir"].as_str().map(PathBuf::from));
    }
    Ok(built)
}

/// Writes the resource snapshot by running its own test in writing mode.
fn budgets(project: &Path) -> Result<()> {
    toolchain::install(project)?;
    let mut test = cargo(project);
    test.args(["test", "--quiet", "--test", "budgets", "resources_agree_with_the_snapshot"])
        .env("WORKBENCH_UPDATE_BUDGETS", "1");
    run(test.env("WORKBENCH_REQUIRE_NVCC", "1"))
}
