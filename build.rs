//! Builds what the kernel registry lists and embeds it: compiled images, sources, the assembler's resource report and
//! the facts of the toolchain. Without nvcc the sources alone are embedded, to be compiled at run time.
//!
//! The registry itself is compiled in here (it is pure), so it is the build list and there is no second one.

#[allow(dead_code, unused_imports, unused_macros)]
#[path = "kernels/mod.rs"]
mod kernels;
#[allow(dead_code)]
#[path = "src/op.rs"]
mod op;
#[allow(dead_code)]
#[path = "src/toolchain.rs"]
mod toolchain;
#[allow(dead_code)]
#[path = "src/units.rs"]
mod units;

#[path = "build/compile.rs"]
mod compile;
#[path = "build/embed.rs"]
mod embed;
#[path = "build/hash.rs"]
mod hash;
#[path = "build/ptxas.rs"]
mod ptxas;
#[path = "build/sources.rs"]
mod sources;
#[cfg(feature = "cust")]
#[path = "build/trampolines.rs"]
mod trampolines;

use compile::Compiler;
use embed::{Facts, Home, Row};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

fn main() {
    if let Err(e) = build() {
        for line in e.lines() {
            println!("cargo::error={line}");
        }
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let project = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").ok_or("run by cargo only")?);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("run by cargo only")?);
    let kernels = project.join("kernels");
    #[cfg(feature = "cust")]
    trampolines::build(include_str!("build/cuda_symbols.txt"), &out)?;
    // `src` is watched so that the dirty mark below is true whenever the library is rebuilt.
    // `cargo xtask toolchain` touches its list when the wheels arrive.
    for watched in ["build.rs", "build", "kernels", "src", "Cargo.toml", "toolchain/wheels.txt"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    for name in [
        "WORKBENCH_NVCC",
        "WORKBENCH_ARCHS",
        "WORKBENCH_REQUIRE_NVCC",
        "WORKBENCH_IMAGES",
        "CUDA_HOME",
        "CUDA_PATH",
        "VIRTUAL_ENV",
    ] {
        println!("cargo::rerun-if-env-changed={name}");
    }

    let units = sources::units(&kernels)?;
    let compiler = compiler(&project, &kernels, &out)?;
    let mut rows = Vec::new();
    for unit in units {
        let mut headers = sources::headers(&kernels, &unit.file)?;
        headers.retain(|h| !sources::host_only(&h.path));
        let key = compile::key(&kernels, &unit, &headers, &["source"])?;
        rows.push(Row { unit, headers, built: None, key });
    }
    if let Some(compiler) = &compiler {
        compile_all(compiler, &mut rows)?;
    }
    let (commit, dirty) = git(&project);
    let facts = Facts {
        nvcc: compiler.as_ref().map(|c| c.version.clone()),
        origin: compiler.as_ref().map(|c| c.toolkit.origin),
        flags: compile::NVCC_FLAGS.join(" "),
        commit,
        dirty,
    };
    let mut home = match std::env::var("WORKBENCH_IMAGES").as_deref() {
        Ok("beside") => Home::Beside(embed::Pack::default()),
        Ok("") | Err(_) => Home::Embedded,
        Ok(other) => return Err(format!("WORKBENCH_IMAGES is `{other}`; it may be `beside` or unset")),
    };
    let table = embed::table(&rows, &facts, &mut home, &kernels, &out)?;
    std::fs::write(out.join("images.rs"), table).map_err(|e| e.to_string())
}

/// nvcc, if there is one.
fn compiler(project: &Path, kernels: &Path, out: &Path) -> Result<Option<Compiler>, String> {
    let required = std::env::var("WORKBENCH_REQUIRE_NVCC").is_ok_and(|v| !v.is_empty() && v != "0");
    let Some(toolkit) = toolchain::find("nvcc", project)? else {
        if required {
            return Err(
                "WORKBENCH_REQUIRE_NVCC is set and there is no nvcc: run `cargo xtask toolchain`, or set CUDA_HOME"
                    .into(),
            );
        }
        println!(
            "cargo::warning=no nvcc: kernels are embedded as source and compile at run time; `cargo xtask toolchain` brings nvcc"
        );
        return Ok(None);
    };
    let version = toolchain::version(&toolkit.tool("nvcc"))?;
    let only = match std::env::var("WORKBENCH_ARCHS") {
        Ok(list) if !list.trim().is_empty() => Some(
            list.split(',')
                .map(|a| a.trim().parse().map_err(|_| format!("WORKBENCH_ARCHS={list} is no list such as 80,90")))
                .collect::<Result<Vec<u32>, String>>()?,
        ),
        _ => None,
    };
    // Kept beside the profiles' folders, so that debug and release builds share one compilation.
    let target = out.ancestors().find(|p| p.ends_with("build")).and_then(|p| p.parent()?.parent()).unwrap_or(out);
    let cache = target.join("kernels");
    std::fs::create_dir_all(&cache).map_err(|e| format!("cannot make {}: {e}", cache.display()))?;
    let kernels = kernels.canonicalize().map_err(|e| e.to_string())?;
    Ok(Some(Compiler { toolkit, version, kernels, cache, only }))
}

/// Compiles every row, as many at a time as there are cores; all failures are told, not only the first.
fn compile_all(compiler: &Compiler, rows: &mut [Row]) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let jobs = std::thread::available_parallelism().map_or(2, |n| n.get()).max(2);
    let shared = &*rows;
    let mut built = std::thread::scope(|scope| {
        let worker = || {
            let mut done = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(row) = shared.get(i) else { return done };
                done.push((i, compiler.build(&row.unit, &row.headers)));
            }
        };
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|w| w.join().expect("a compile thread")).collect::<Vec<_>>()
    });
    built.sort_by_key(|(i, _)| *i);
    let mut faults = Vec::new();
    for (i, result) in built {
        match result {
            Ok(b) => {
                for warning in &b.notes.warnings {
                    println!("cargo::warning={}: {warning}", rows[i].unit.file);
                }
                rows[i].key.clone_from(&b.key);
                rows[i].built = Some(b);
            }
            Err(e) => faults.push(e),
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// The commit that is being built, and whether the work tree differs from it; neither outside a git repository.
fn git(project: &Path) -> (Option<String>, bool) {
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git").arg("-C").arg(project).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else { return (None, false) };
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", file])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| !s.is_empty());
    (Some(commit), dirty)
}
