//! CUDA libraries that are optional at run time (NVRTC, cuBLASLt): found where people really have them.
//!
//! The bindings ask the dynamic loader for a bare name. A library already loaded under that name satisfies it, so
//! opening a wheel's copy by its full path first is enough; nothing has to be exported before the program starts.

use crate::toolchain;
use std::path::{Path, PathBuf};

/// Folders that may hold CUDA's libraries, most explicit first.
pub fn folders() -> Vec<PathBuf> {
    let project = std::env::current_exe().ok().and_then(|p| {
        // A bundle or a build tree with the pinned wheels beside or above the program.
        p.ancestors().skip(1).take(4).find(|dir| dir.join(toolchain::WHEELS).is_dir()).map(Path::to_path_buf)
    });
    let roots = toolchain::candidates(project.as_deref().unwrap_or(Path::new(".")));
    let mut found: Vec<PathBuf> = roots.iter().flat_map(|t| ["lib64", "lib"].map(|lib| t.root.join(lib))).collect();
    let mut pythons: Vec<PathBuf> = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from).into_iter().collect();
    if let Some(path) = std::env::var_os("PATH") {
        pythons.extend(
            std::env::split_paths(&path)
                .filter(|bin| bin.join("python3").exists())
                .filter_map(|bin| bin.parent().map(Path::to_path_buf)),
        );
    }
    // Where system-wide installs go although their interpreter may not be first in PATH.
    pythons.extend(["/usr/local", "/usr", "/opt/conda"].map(PathBuf::from));
    for root in pythons {
        for python in children(&root.join("lib")).filter(|p| name(p).starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                for component in children(&python.join(packages).join("nvidia")) {
                    found.push(component.join("lib"));
                }
            }
        }
    }
    found.retain(|p| p.is_dir());
    let mut seen = std::collections::HashSet::new();
    found.retain(|p| seen.insert(p.clone()));
    found
}

/// Makes `stem` (`nvrtc`, `cublasLt`) loadable by its bare name if any folder holds a copy; `loads` asks the bindings.
pub fn available(stem: &str, loads: impl Fn() -> bool) -> bool {
    if loads() {
        return true;
    }
    for folder in folders() {
        let prefix = format!("lib{stem}.so");
        let candidates = children(&folder)
            .filter(|p| name(p).strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')));
        for file in candidates {
            // SAFETY: loading a CUDA library runs its initialisers, as the bindings themselves would.
            if let Ok(library) = unsafe { libloading::Library::new(&file) } {
                std::mem::forget(library); // it must stay for the bindings to find it by name
                if loads() {
                    return true;
                }
            }
        }
    }
    false
}

fn children(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    entries.sort();
    entries.into_iter()
}

fn name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
