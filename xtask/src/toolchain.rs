//! `cargo xtask toolchain`: the pinned CUDA toolkit from Python wheels, hash-checked, into an ignored folder, once.

use crate::{Result, hash::Hash, run};
use std::path::Path;
use std::process::{Command, Stdio};

/// Installs what `toolchain/wheels.txt` lists, unless exactly that is there already.
pub fn install(project: &Path) -> Result<()> {
    let folder = project.join("toolchain");
    let list = folder.join("wheels.txt");
    let text = std::fs::read(&list).map_err(|e| format!("cannot read {}: {e}", list.display()))?;
    let (stamp, key) = (folder.join("installed"), Hash::new().field(&text).hex());
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == key) {
        return Ok(());
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(
            "the pinned wheels are for Linux on x86-64; elsewhere install a CUDA 13 toolkit and set CUDA_HOME".into()
        );
    }
    let python = python()?;
    eprintln!("toolchain: installing the CUDA toolkit wheels into toolchain/ (120 MB to download)");
    for old in ["nvidia", "installed"] {
        let old = folder.join(old);
        let _ = if old.is_dir() { std::fs::remove_dir_all(&old) } else { std::fs::remove_file(&old) };
    }
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-warn-script-location"]);
    pip.args(["--require-hashes", "--no-deps", "--only-binary", ":all:", "--upgrade", "--target"]);
    // As root, pip would advise a virtual environment, which a private folder is already.
    pip.env("PIP_ROOT_USER_ACTION", "ignore");
    run(pip.arg(&folder).arg("-r").arg(&list).stdin(Stdio::null()))
        .map_err(|e| format!("{e}\nif the wheels cannot be had, install a CUDA 13 toolkit and set CUDA_HOME"))?;
    std::fs::write(&stamp, key).map_err(|e| format!("cannot write {}: {e}", stamp.display()))?;
    // build.rs watches the list, not the thousands of files that came with it.
    let touched = std::fs::File::options().append(true).open(&list);
    touched
        .and_then(|f| f.set_modified(std::time::SystemTime::now()))
        .map_err(|e| format!("cannot touch the list: {e}"))
}

/// A Python 3 that has pip.
fn python() -> Result<&'static str> {
    let works = |program: &&str| {
        let mut pip = Command::new(program);
        pip.args(["-m", "pip", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        pip.status().is_ok_and(|s| s.success())
    };
    ["python3", "python"].into_iter().find(|p| works(p)).ok_or_else(|| {
        "python3 with pip is needed to fetch the CUDA toolkit (Debian: apt-get install python3-pip); \
         or install a CUDA 13 toolkit and set CUDA_HOME"
            .into()
    })
}
