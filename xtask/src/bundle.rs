//! `cargo xtask bundle`: one folder that runs on a GPU machine without Rust.

use crate::{Result, build, cargo, toolchain};
use std::path::{Path, PathBuf};
use std::process::Command;

/// More than this does not travel well; past it the bundle is refused.
const LIMIT: u64 = 64 << 20;

/// The bench that needs no GPU stays where it was built.
const HOST_BENCH: &str = "trace_import";

/// The bench that is built a second time with the `cust` backend in it, and the most that it may weigh.
const CUST_BENCH: &str = "launch_overhead";
const CUST_LIMIT: u64 = 8 << 20;

/// The file that `WORKBENCH_IMAGES=beside` makes of the kernels.
const IMAGES: &str = "workbench.images";

const README: &str = "\
# workbench, ready to run

Needs Linux on x86-64 and, to measure, an NVIDIA driver; no Rust, no CUDA toolkit. libcupti is looked for in CUDA_HOME,
the usual folders and the library path.

    ./workbench doctor                what this machine can do, and what to fix
    ./workbench step                  one decode step: predicted, run, accounted
    ./workbench verify                every kernel variant against its f64 reference
    ./workbench list                  what there is
    ./benches/softmax_fusion --bench  a benchmark; the others are started likewise
                                      (launch_overhead_cust has the `cust` crate among its ways to launch)
    ./tests/NAME                      a test program; --list says what is in it

`workbench.images` has the kernels of all these programs and stays beside `workbench`.
`libcupti_inject.so` traces a foreign process (`./workbench trace -- CMD`) and is found beside the program.
`peers/` has the scripts that measure other libraries into the same format.
";

pub fn run(project: &Path, out: &Path) -> Result<()> {
    toolchain::install(project)?;
    let part = out.with_extension("part");
    let _ = std::fs::remove_dir_all(&part);
    make(&part)?;
    let built = build(bundled(project).args(["build", "--release", "--package", "workbench", "--bins"]))?;
    let images = built.out_dirs.iter().map(|dir| dir.join(IMAGES)).find(|f| f.is_file());
    let images = images.ok_or("build.rs wrote no images file: is nvcc there?")?;
    copy(&images, &part.join(IMAGES))?;
    for (name, _, file) in built.executables.iter().filter(|(_, kind, _)| kind == "bin") {
        place(file, &part.join(name))?;
        beside(&images, file)?;
        reads_its_images(file)?;
        reads_its_images(&part.join(name))?;
    }
    // Tests that need no GPU have been run where the bundle was made.
    let tests =
        build(bundled(project).args(["test", "--release", "--package", "workbench", "--test", "gpu*", "--no-run"]))?;
    for (name, _, file) in tests.executables.iter().filter(|(_, kind, _)| kind == "test") {
        place(file, &part.join("tests").join(name))?;
    }
    let benches = build(bundled(project).args(["bench", "--package", "workbench", "--benches", "--no-run"]))?;
    for (name, _, file) in benches.executables.iter().filter(|(n, kind, _)| kind == "bench" && n != HOST_BENCH) {
        place(file, &part.join("benches").join(name))?;
    }
    let cust = ["bench", "--package", "workbench", "--features", "cust", "--bench", CUST_BENCH, "--no-run"];
    for (name, _, file) in build(bundled(project).args(cust))?.executables.iter().filter(|(n, ..)| n == CUST_BENCH) {
        let to = part.join("benches").join(format!("{name}_cust"));
        place(file, &to)?;
        if std::fs::metadata(&to).is_ok_and(|m| m.len() > CUST_LIMIT) {
            eprintln!("bundle: {name}_cust is left out, it is larger than {} MiB", CUST_LIMIT >> 20);
            std::fs::remove_file(&to).map_err(|e| e.to_string())?;
        }
    }
    crate::run(cargo(project).args(["build", "--release", "--package", "cupti-inject"]))?;
    let inject = crate::target(project).join("release/libcupti_inject.so");
    if inject.is_file() {
        place(&inject, &part.join("libcupti_inject.so"))?;
    }
    copy_folder(&project.join("peers"), &part.join("peers"))?;
    // Their rows name the commit they were measured at; there is no repository to ask on the other machine.
    if let Some(commit) = commit(project) {
        std::fs::write(part.join("peers/COMMIT"), commit).map_err(|e| e.to_string())?;
    }
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&project.join(licence), &part.join(licence))?;
    }
    std::fs::write(part.join("README.md"), README).map_err(|e| e.to_string())?;
    report(&part)?;
    let _ = std::fs::remove_dir_all(out);
    std::fs::rename(&part, out).map_err(|e| format!("cannot make {}: {e}", out.display()))?;
    println!("bundle: {}", out.display());
    Ok(())
}

/// `HASH` or `HASH dirty`; none outside a repository.
fn commit(project: &Path) -> Option<String> {
    let git = |words: &[&str]| {
        let output = Command::new("git").arg("-C").arg(project).args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let dirty = if git(&["status", "--porcelain"])?.is_empty() { "" } else { " dirty" };
    Some(format!("{}{dirty}\n", git(&["rev-parse", "HEAD"])?))
}

/// Cargo for programs that share one images file instead of carrying a copy each.
fn bundled(project: &Path) -> Command {
    let mut command = cargo(project);
    command.env("WORKBENCH_IMAGES", "beside").env("WORKBENCH_REQUIRE_NVCC", "1");
    command
}

/// Puts the images beside a program where cargo built it, too: it stays there, and without them it could launch nothing.
/// Tests and benches, a folder below it, find the same file.
fn beside(images: &Path, program: &Path) -> Result<()> {
    copy(images, &program.with_file_name(IMAGES))
}

/// Asks a program for something that only its images have.
fn reads_its_images(program: &Path) -> Result<()> {
    let output = Command::new(program).args(["show", "common/probe_launch", "--ptx"]).output();
    let output = output.map_err(|e| format!("cannot run {}: {e}", program.display()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Copies an executable and takes its symbols out.
fn place(from: &Path, to: &Path) -> Result<()> {
    copy(from, to)?;
    let stripped = Command::new("strip").arg("--strip-unneeded").arg(to).status();
    if !stripped.is_ok_and(|s| s.success()) {
        eprintln!("bundle: `strip` failed on {}: it stays as it is", to.display());
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    make(to.parent().unwrap_or(to))?;
    std::fs::copy(from, to).map(|_| ()).map_err(|e| format!("cannot copy {}: {e}", from.display()))
}

fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))
}

/// Copies what git knows of a folder would be better, but a bundle may be made outside a repository: plain files only.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    for file in files(from) {
        let relative = file.strip_prefix(from).expect("listed below it");
        if !relative.iter().any(|p| p.to_string_lossy().starts_with(['.', '_'])) {
            copy(&file, &to.join(relative))?;
        }
    }
    Ok(())
}

/// Every plain file below a folder, sorted; none where there is no folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(dir) = open.pop() {
        for path in std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|e| e.path()) {
            if path.is_dir() {
                open.push(path);
            } else {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

/// Prints what is in the bundle; refuses one that is too large.
fn report(folder: &Path) -> Result<()> {
    let mut total = 0;
    for file in files(folder) {
        let size = std::fs::metadata(&file).map_err(|e| e.to_string())?.len();
        total += size;
        println!(
            "{:9.2} MiB  {}",
            size as f64 / (1 << 20) as f64,
            file.strip_prefix(folder).unwrap_or(&file).display()
        );
    }
    println!("{:9.2} MiB  in all", total as f64 / (1 << 20) as f64);
    if total > LIMIT {
        return Err(format!("the bundle would be {} MiB, more than {} MiB", total >> 20, LIMIT >> 20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_not_parted_from_its_images() {
        let folder = std::env::temp_dir().join(format!("xtask-bundle-{}", std::process::id()));
        let (out, release) = (folder.join("out"), folder.join("release"));
        std::fs::create_dir_all(&out).unwrap();
        std::fs::create_dir_all(&release).unwrap();
        std::fs::write(out.join(IMAGES), "new").unwrap();
        // The images of an earlier bundle must not stay.
        std::fs::write(release.join(IMAGES), "old").unwrap();
        beside(&out.join(IMAGES), &release.join("workbench")).unwrap();
        assert_eq!(std::fs::read(release.join(IMAGES)).unwrap(), b"new");
        // A program that can read its images says so by its exit code, and what it complains of is passed on.
        assert!(reads_its_images(Path::new("/bin/true")).is_ok());
        assert!(reads_its_images(Path::new("/bin/false")).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
