//! Finds and opens libcupti when the program runs, and can say where it looked.
//!
//! A process must not hold two copies of CUPTI (frameworks bring their own), so a copy that is already loaded wins over all
//! but an explicit choice. The library is never closed: CUPTI keeps threads and callbacks.

use crate::bindings::Cupti;
use crate::version::Version;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// An opened CUPTI.
pub struct Library {
    pub raw: Cupti,
    pub path: PathBuf,
    /// What `cuptiGetVersion` said.
    pub api_version: u32,
    pub version: Version,
    /// What was tried before this one.
    pub tried: Vec<Attempt>,
}

/// One place that was tried and why it did not serve.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub path: PathBuf,
    pub reason: String,
}

/// No CUPTI could be opened.
#[derive(Clone, Debug)]
pub struct LoadError {
    pub tried: Vec<Attempt>,
    /// Folders that were looked through and had none.
    pub folders: Vec<PathBuf>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no libcupti was found in {} folders, nor by the dynamic linker", self.folders.len())?;
        // A place that does not exist is no news; one that failed otherwise is.
        for a in self.tried.iter().filter(|a| a.path.exists()) {
            write!(f, "; {}: {}", a.path.display(), a.reason)?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

/// Opens CUPTI once for the whole process; later calls give the same library or the same error.
pub fn load() -> Result<&'static Library, LoadError> {
    static LOADED: OnceLock<Result<Library, LoadError>> = OnceLock::new();
    LOADED.get_or_init(open_first).as_ref().map_err(Clone::clone)
}

fn open_first() -> Result<Library, LoadError> {
    let mut tried = Vec::new();
    for path in search_path() {
        match open(&path) {
            Ok(library) => return Ok(Library { tried, ..library }),
            Err(reason) => tried.push(Attempt { path, reason }),
        }
    }
    Err(LoadError { tried, folders: folders() })
}

fn open(path: &Path) -> Result<Library, String> {
    if path.is_absolute() && !path.exists() {
        return Err("does not exist".into());
    }
    // SAFETY: runs libcupti's initialisers, which is what we mean to do. RTLD_NOW, so that a library that lacks its own
    // dependencies fails here and not in the middle of a measurement.
    let library = unsafe { libloading::os::unix::Library::open(Some(path), libc::RTLD_NOW | libc::RTLD_LOCAL) }
        .map_err(reason)?;
    // SAFETY: looks up symbols only; each is a Result of its own.
    let raw = unsafe { Cupti::from_library(library) }.map_err(reason)?;
    let mut api_version = 0;
    match &raw.cuptiGetVersion {
        // SAFETY: writes one u32.
        Ok(get) => unsafe { get(&mut api_version) },
        Err(e) => return Err(e.to_string()),
    };
    let path = loaded().into_iter().find(|p| p.file_name() == path.file_name()).unwrap_or_else(|| path.to_path_buf());
    Ok(Library { raw, path, api_version, version: Version::of(api_version), tried: Vec::new() })
}

fn reason(e: libloading::Error) -> String {
    use std::error::Error;
    e.source().map_or_else(|| e.to_string(), ToString::to_string)
}

fn var(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// Every file that [`load`] tries, in order. The last ones are bare names for the dynamic linker's own path.
pub fn search_path() -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some(explicit) = var("WORKBENCH_CUPTI") {
        match explicit.is_dir() {
            true => found.extend(in_folder(&explicit)),
            false => found.push(explicit),
        }
    }
    found.extend(loaded());
    // What `workbench trace` found for itself; the traced program's own copy, if it has loaded one, comes first.
    found.extend(var("WORKBENCH_CUPTI_HINT"));
    found.extend(folders().iter().flat_map(|f| in_folder(f)));
    found.extend(["libcupti.so.13", "libcupti.so.12", "libcupti.so"].map(PathBuf::from));
    let mut seen = std::collections::HashSet::new();
    found.retain(|p| seen.insert(p.clone()));
    found
}

/// The folders that may hold libcupti, most explicit first; whether they exist is not asked.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for root in ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|v| var(v)) {
        folders.extend(["extras/CUPTI/lib64", "lib64", "lib"].map(|f| root.join(f)));
    }
    if let Some(beside) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        folders.extend([beside.to_path_buf(), beside.join("lib"), beside.join("toolchain/nvidia/cu13/lib")]);
    }
    folders.push("toolchain/nvidia/cu13/lib".into());
    for prefix in ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|v| var(v)) {
        folders.extend(wheels(&prefix.join("lib"), "site-packages"));
    }
    let mut toolkits = matching(Path::new("/usr/local"), "cuda");
    // The plain `cuda` link first, then the newest.
    toolkits.sort_by_key(|p| std::cmp::Reverse((p.ends_with("cuda"), p.clone())));
    for root in toolkits {
        folders.extend(["extras/CUPTI/lib64", "targets/x86_64-linux/lib", "lib64"].map(|f| root.join(f)));
    }
    folders.extend(wheels(Path::new("/usr/local/lib"), "dist-packages"));
    folders.extend(wheels(Path::new("/usr/local/lib"), "site-packages"));
    folders.extend(wheels(Path::new("/usr/lib"), "dist-packages"));
    folders.extend(var("HOME").iter().flat_map(|h| wheels(&h.join(".local/lib"), "site-packages")));
    folders
}

/// The copies of libcupti that this process has mapped already.
fn loaded() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut paths: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])))
        .filter(|p| is_cupti(p))
        .collect();
    paths.dedup();
    paths
}

fn is_cupti(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("libcupti.so"))
}

/// The best libcupti of a folder: the newest major version.
fn in_folder(folder: &Path) -> Option<PathBuf> {
    let names = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];
    names.iter().map(|n| folder.join(n)).find(|p| p.exists()).or_else(|| {
        let mut any = matching(folder, "libcupti.so");
        any.sort();
        any.pop()
    })
}

/// The CUPTI folders of NVIDIA's wheels under `lib/python3.*/PACKAGES`: `cu13` since 13.0, `cuda_cupti` before.
fn wheels(lib: &Path, packages: &str) -> Vec<PathBuf> {
    let mut pythons = matching(lib, "python3");
    pythons.sort();
    pythons.reverse();
    let nvidia = pythons.into_iter().map(|p| p.join(packages).join("nvidia"));
    nvidia.flat_map(|n| [n.join("cu13/lib"), n.join("cuda_cupti/lib")]).collect()
}

/// Entries of a folder whose name begins with `prefix`.
fn matching(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|e| e.file_name().to_string_lossy().starts_with(prefix)).map(|e| e.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call;

    /// Where a real CUPTI is installed its version, clock and names work without a GPU; elsewhere the error says what was
    /// tried.
    #[test]
    fn the_real_library_or_a_full_account() {
        match load() {
            Ok(lib) => {
                assert!(lib.version >= Version::new(11, 0), "version {} at {}", lib.api_version, lib.path.display());
                let (mut a, mut b) = (0, 0);
                // SAFETY: both write one u64.
                unsafe {
                    call!(lib, cuptiGetTimestamp(&mut a)).unwrap();
                    call!(lib, cuptiGetTimestamp(&mut b)).unwrap();
                }
                assert!(a > 0 && b >= a);
                assert!(std::ptr::eq(lib, load().unwrap()), "one library for the whole process");
            }
            Err(e) => {
                assert!(e.tried.iter().any(|a| a.path == Path::new("libcupti.so.13")));
                assert!(e.tried.iter().all(|a| !a.reason.is_empty()));
            }
        }
    }

    #[test]
    fn a_file_that_is_no_library_is_named() {
        let file = std::env::temp_dir().join(format!("libcupti.so.{}", std::process::id()));
        std::fs::write(&file, "not an ELF file").unwrap();
        let reason = open(&file).err().unwrap();
        std::fs::remove_file(&file).unwrap();
        let tried = vec![Attempt { path: "/".into(), reason: reason.clone() }];
        let error = LoadError { tried, folders: vec![] };
        assert!(!reason.is_empty() && error.to_string().contains(&reason));
    }

    #[test]
    fn search_ends_with_the_linkers_own_path() {
        let path = search_path();
        assert_eq!(path.last(), Some(&PathBuf::from("libcupti.so")));
        assert!(path.iter().all(|p| is_cupti(p) || std::env::var_os("WORKBENCH_CUPTI").is_some()));
        // Each file once.
        assert_eq!(path.iter().collect::<std::collections::HashSet<_>>().len(), path.len());
    }
}
