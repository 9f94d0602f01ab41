//! Finds a CUDA toolkit, the same way for `build.rs`, `cargo xtask` and the program at run time (`doctor`, `show --sass`,
//! the include folders of NVRTC). Standard library only, since all three compile it.
//!
//! The search, first hit wins: `WORKBENCH_NVCC`, `CUDA_HOME`, `CUDA_PATH`, the project's own `toolchain/` folder (what
//! `cargo xtask toolchain` installs), the active Python environment, `PATH`, `/usr/local/cuda`.

use std::path::{Path, PathBuf};

/// Where the wheels of `cargo xtask toolchain` put the toolkit, below the project's folder.
pub const WHEELS: &str = "toolchain/nvidia/cu13";

/// A toolkit's root folder (it has `bin/`, `include/`) and which step of the search found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolkit {
    pub root: PathBuf,
    pub origin: &'static str,
}

impl Toolkit {
    /// A program of the toolkit, such as `ptxas`.
    pub fn tool(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }
    /// Folders that a compiler has to search for the toolkit's headers (`cuda_fp16.h`, `nv/target`).
    pub fn includes(&self) -> Vec<PathBuf> {
        ["include", "include/cccl"].iter().map(|d| self.root.join(d)).filter(|d| d.is_dir()).collect()
    }
}

/// Every place to look, in order; `project` is the folder that may hold `toolchain/`.
pub fn candidates(project: &Path) -> Vec<Toolkit> {
    let mut found = Vec::new();
    let mut add = |origin, root: PathBuf| {
        // nvcc reached through a symbolic link looks for its profile beside the link and fails.
        if let Ok(root) = root.canonicalize()
            && !found.iter().any(|t: &Toolkit| t.root == root)
        {
            found.push(Toolkit { root, origin });
        }
    };
    let above_bin = |program: &Path| program.canonicalize().ok()?.parent()?.parent().map(Path::to_path_buf);
    if let Some(root) = variable("WORKBENCH_NVCC").and_then(|p| above_bin(&p)) {
        add("WORKBENCH_NVCC", root);
    }
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(root) = variable(name) {
            add(name, root);
        }
    }
    add("cargo xtask toolchain", project.join(WHEELS));
    if let Some(env) = variable("VIRTUAL_ENV") {
        for python in std::fs::read_dir(env.join("lib")).into_iter().flatten().flatten() {
            add("Python environment", python.path().join("site-packages/nvidia/cu13"));
        }
    }
    for folder in std::env::var_os("PATH").iter().flat_map(std::env::split_paths) {
        for program in ["nvcc", "cuobjdump", "nvdisasm"] {
            if let Some(root) = above_bin(&folder.join(program)) {
                add("PATH", root);
            }
        }
    }
    add("/usr/local/cuda", PathBuf::from("/usr/local/cuda"));
    found
}

/// The first toolkit that has `tool`; a `WORKBENCH_NVCC` that names no file is an error, not a reason to look on.
pub fn find(tool: &str, project: &Path) -> Result<Option<Toolkit>, String> {
    if let Some(path) = variable("WORKBENCH_NVCC").filter(|p| !p.is_file()) {
        return Err(format!("WORKBENCH_NVCC is {}, which is no file", path.display()));
    }
    Ok(candidates(project).into_iter().find(|t| t.tool(tool).is_file()))
}

/// The release that `nvcc --version` names, such as `13.0.88`.
pub fn version(nvcc: &Path) -> Result<String, String> {
    let output = std::process::Command::new(nvcc)
        .arg("--version")
        .output()
        .map_err(|e| format!("cannot run {}: {e}", nvcc.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_version(&text).ok_or_else(|| format!("{} --version says no version: {text}", nvcc.display()))
}

fn parse_version(text: &str) -> Option<String> {
    let version = text.split_once("release ")?.1.split_once(", V")?.1;
    Some(version.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect())
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read() {
        let text = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\nBuild x\n";
        assert_eq!(parse_version(text).as_deref(), Some("13.0.88"));
        assert_eq!(parse_version("nvcc"), None);
    }

    #[test]
    fn the_project_folder_is_searched() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join(WHEELS);
        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::fs::write(root.join("bin/a-tool-of-this-test"), "").unwrap();
        let found = candidates(dir.path()).into_iter().find(|t| t.tool("a-tool-of-this-test").is_file()).unwrap();
        assert_eq!(found.origin, "cargo xtask toolchain");
        assert_eq!(found.root, root.canonicalize().unwrap());
        assert!(found.includes().is_empty());
    }
}
