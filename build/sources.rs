//! What there is to compile: the registry's variants held against the files in `kernels/`, and each file's headers.

use crate::kernels;
use crate::op::{Arch, Variant};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One variant to build. Paths are relative to `kernels/`.
pub struct Unit {
    /// Image name, `op/variant`.
    pub name: String,
    pub file: String,
    pub archs: &'static [Arch],
    pub emulated: bool,
}

impl Unit {
    pub fn is_ptx(&self) -> bool {
        self.file.ends_with(".ptx")
    }
}

/// A header as its includer spells it, and the file that the spelling means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub include: String,
    pub path: String,
}

/// Every variant, in the registry's order. Fails with one line for each file without an entry, entry without a file,
/// or name used twice.
pub fn units(root: &Path) -> Result<Vec<Unit>, String> {
    let mut units = Vec::new();
    let mut faults = Vec::new();
    let ops = kernels::OPS.iter().map(|op| (op.name(), op.variants()));
    let folders: Vec<(&str, &'static [Variant])> = ops.chain([("common", kernels::COMMON)]).collect();
    for (folder, variants) in &folders {
        for v in *variants {
            let file = format!("{folder}/{}", v.file);
            if !root.join(&file).is_file() {
                faults.push(format!("kernels/{folder}/mod.rs lists `{}`, but there is no kernels/{file}", v.name));
            }
            if !(file.ends_with(".cu") || file.ends_with(".ptx")) {
                faults.push(format!("kernels/{file} of variant `{}` is neither .cu nor .ptx", v.name));
            }
            let unit = Unit { name: format!("{folder}/{}", v.name), file, archs: v.archs, emulated: v.emulated };
            if units.iter().any(|u: &Unit| u.name == unit.name) {
                faults.push(format!("variant `{}` is listed twice", unit.name));
            }
            if unit.emulated && unit.is_ptx() {
                faults.push(format!("variant `{}` is hand-written PTX, which the host emulator cannot run", unit.name));
            }
            units.push(unit);
        }
    }
    for file in files(root)? {
        if (file.ends_with(".cu") || file.ends_with(".ptx")) && !units.iter().any(|u| u.file == file) {
            let folder = file.split('/').next().unwrap_or_default();
            let known = folders.iter().any(|(f, _)| *f == folder);
            let place = if known { format!("kernels/{folder}/mod.rs") } else { "kernels/mod.rs".to_string() };
            faults.push(format!("kernels/{file} has no Variant entry in {place}: add one or delete the file"));
        }
    }
    if faults.is_empty() { Ok(units) } else { Err(faults.join("\n")) }
}

/// All files below `root`, relative, sorted.
fn files(root: &Path) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).map_err(|e| format!("cannot list {}: {e}", dir.display()))? {
            let path = entry.map_err(|e| e.to_string())?.path();
            if path.is_dir() {
                open.push(path);
            } else if let Ok(relative) = path.strip_prefix(root) {
                all.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    all.sort();
    Ok(all)
}

/// The project's headers that a source reaches, each once for each spelling, as NVRTC wants them: it matches the text
/// between the quotes, so one spelling must mean one file.
pub fn headers(root: &Path, file: &str) -> Result<Vec<Header>, String> {
    let mut spellings: BTreeMap<String, String> = BTreeMap::new();
    let mut open = vec![file.to_string()];
    let mut seen = vec![file.to_string()];
    while let Some(file) = open.pop() {
        let text = std::fs::read_to_string(root.join(&file)).map_err(|e| format!("cannot read kernels/{file}: {e}"))?;
        let folder = Path::new(&file).parent().unwrap_or(Path::new(""));
        for include in text.lines().filter_map(quoted_include) {
            let Some(path) =
                [folder.join(include), PathBuf::from(include)].iter().map(|p| tidy(p)).find(|p| root.join(p).is_file())
            else {
                continue; // A system header in quotes, or one that another compiler's branch would include.
            };
            if let Some(other) = spellings.insert(include.to_string(), path.clone()).filter(|o| *o != path) {
                return Err(format!("`#include \"{include}\"` means kernels/{other} and kernels/{path}: rename one"));
            }
            if !seen.contains(&path) {
                seen.push(path.clone());
                open.push(path);
            }
        }
    }
    Ok(spellings.into_iter().map(|(include, path)| Header { include, path }).collect())
}

/// The emulator's headers are read by the host's compiler alone: they are not embedded, and a change to them makes no
/// GPU image stale.
pub fn host_only(path: &str) -> bool {
    path.starts_with("common/emu")
}

fn quoted_include(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
    rest.strip_prefix('"')?.split('"').next()
}

/// Resolves `..` and `.` in a relative path without asking the file system.
fn tidy(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.iter().filter_map(|p| p.to_str()) {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    parts.join("/")
}
