//! Compiles one variant: source to PTX, PTX to one cubin for each chip, all joined in one fatbin, with the assembler's
//! report. Unchanged inputs are never compiled again: outputs are kept under a key of everything that went in.
//!
//! Going through PTX in our own hands rather than through `nvcc -fatbin` gives the text that `workbench show` prints,
//! treats a hand-written `.ptx` like a compiled one, and lets the paths of this machine be taken out of the line tables,
//! so that the same sources give the same bytes anywhere.

use crate::hash::Hash;
use crate::op::Arch;
use crate::ptxas::{self, Resources};
use crate::sources::{Header, Unit};
use crate::toolchain::Toolkit;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags of the front end, the same for every variant.
pub const NVCC_FLAGS: &[&str] = &["--std=c++17", "-O3", "-lineinfo", "-I."];
const PTXAS_FLAGS: &[&str] = &["-O3", "-v"];
/// Raised by any change of these steps that changes an output: it is an input of every image.
const RECIPE: &str = "2";
/// Line tables are four fifths of a cubin, so only the chips that this project is tuned on carry them.
const LINES: &[Arch] = &[Arch::Sm90, Arch::Sm90a];

/// The compilers, and where things are.
pub struct Compiler {
    pub toolkit: Toolkit,
    pub version: String,
    /// The folder `kernels/`, from which every compiler runs.
    pub kernels: PathBuf,
    /// The folder of kept outputs.
    pub cache: PathBuf,
    /// Compute capabilities to compile for (`WORKBENCH_ARCHS`), or all.
    pub only: Option<Vec<u32>>,
}

/// What one variant became.
pub struct Built {
    /// Absent where no architecture of the variant is wanted.
    pub fatbin: Option<PathBuf>,
    pub notes: Notes,
    pub key: String,
}

/// What the compilers said, kept beside the outputs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Notes {
    pub resources: Vec<Resources>,
    pub warnings: Vec<String>,
}

/// Key of a variant's inputs: how it is compiled, its text and the text of each header it reaches.
pub fn key(kernels: &Path, unit: &Unit, headers: &[Header], how: &[&str]) -> Result<String, String> {
    let mut hash = Hash::new().field(&unit.name).field(RECIPE);
    for part in how {
        hash = hash.field(part);
    }
    let mut paths: Vec<&str> = headers.iter().map(|h| h.path.as_str()).collect();
    paths.push(&unit.file);
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let text = std::fs::read(kernels.join(path)).map_err(|e| format!("cannot read kernels/{path}: {e}"))?;
        hash = hash.field(path).field(text);
    }
    Ok(hash.hex())
}

/// Virtual architectures, each with the chips that its PTX is assembled for; hand-written PTX has only its own.
fn targets(archs: &[Arch], hand_written: Option<&str>) -> Vec<(String, Vec<Arch>)> {
    let mut out: Vec<(String, Vec<Arch>)> = Vec::new();
    for &arch in archs {
        let of = hand_written.unwrap_or(match arch {
            Arch::Sm80 | Arch::Sm86 | Arch::Sm89 => "80",
            Arch::Sm90 => "90",
            Arch::Sm90a => "90a",
        });
        match out.iter_mut().find(|(v, _)| v == of) {
            Some((_, list)) => list.push(arch),
            None => out.push((of.to_string(), vec![arch])),
        }
    }
    out
}

impl Compiler {
    /// The variant's architectures that this build wants.
    fn wanted(&self, unit: &Unit) -> Vec<Arch> {
        unit.archs.iter().copied().filter(|a| self.only.as_ref().is_none_or(|o| o.contains(&a.number()))).collect()
    }

    /// Builds a variant, or takes it from the kept outputs.
    pub fn build(&self, unit: &Unit, headers: &[Header]) -> Result<Built, String> {
        let archs = self.wanted(unit);
        let names: Vec<&str> = archs.iter().map(|a| a.name()).collect();
        let (front, back, archs_text) = (NVCC_FLAGS.join(" "), PTXAS_FLAGS.join(" "), names.join(" "));
        let key = key(&self.kernels, unit, headers, &[&self.version, &front, &back, &archs_text])?;
        let keep = self.cache.join(format!("{}-{}", unit.name.replace('/', "_"), &key[..16]));
        let fresh = !keep.join("notes.json").is_file();
        if fresh {
            // Built aside and renamed, so that an interrupted build leaves nothing that looks finished.
            let work = keep.with_extension(format!("{}.part", std::process::id()));
            std::fs::create_dir_all(&work).map_err(|e| format!("cannot make {}: {e}", work.display()))?;
            let done = self.compile(unit, &archs, &work);
            if done.is_ok() {
                let _ = std::fs::remove_dir_all(&keep);
                std::fs::rename(&work, &keep).map_err(|e| format!("cannot keep {}: {e}", keep.display()))?;
            } else {
                let _ = std::fs::remove_dir_all(&work);
            }
            done?;
        }
        let text = std::fs::read_to_string(keep.join("notes.json")).map_err(|e| e.to_string())?;
        let notes: Notes = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", keep.display()))?;
        let fatbin = Some(keep.join("image.fatbin")).filter(|f| f.is_file());
        Ok(Built { fatbin, notes, key })
    }

    fn compile(&self, unit: &Unit, archs: &[Arch], work: &Path) -> Result<(), String> {
        let mut notes = Notes::default();
        let mut join = Command::new(self.toolkit.tool("fatbinary"));
        join.args(["-64", "--compress-all", "--compress-mode=size", "--create"]).arg(work.join("image.fatbin"));
        let hand_written = if unit.is_ptx() { Some(self.ptx_target(unit)?) } else { None };
        let targets = targets(archs, hand_written.as_deref());
        for (virtual_arch, chips) in &targets {
            let (ptx, plain) = (work.join("lines.ptx"), work.join(format!("compute_{virtual_arch}.ptx")));
            self.front(unit, virtual_arch, &ptx, &mut notes)?;
            let text = std::fs::read_to_string(&ptx).map_err(|e| e.to_string())?;
            std::fs::write(&plain, without_lines(&text)).map_err(|e| e.to_string())?;
            for chip in chips {
                let cubin = work.join(format!("{}.cubin", chip.name()));
                let lines = LINES.contains(chip);
                self.back(unit, *chip, if lines { &ptx } else { &plain }, &cubin, &mut notes)?;
                let sm = &chip.name()["sm_".len()..];
                join.arg(format!("--image3=kind=elf,sm={sm},file={}", cubin.display()));
            }
        }
        // The newest PTX goes along, for chips newer than any listed and for people to read.
        if let Some((newest, _)) = targets.last() {
            let plain = work.join(format!("compute_{newest}.ptx"));
            self.run(join.arg(format!("--image3=kind=ptx,sm={newest},file={}", plain.display())), unit)?;
        }
        for entry in std::fs::read_dir(work).map_err(|e| e.to_string())?.flatten() {
            if entry.path().extension().is_some_and(|e| e == "ptx" || e == "cubin") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        notes.warnings.dedup();
        let text = serde_json::to_string_pretty(&notes).map_err(|e| e.to_string())?;
        std::fs::write(work.join("notes.json"), text).map_err(|e| e.to_string())
    }

    /// Source to PTX; a hand-written file is taken as it is.
    fn front(&self, unit: &Unit, virtual_arch: &str, ptx: &Path, notes: &mut Notes) -> Result<(), String> {
        if unit.is_ptx() {
            return std::fs::copy(self.kernels.join(&unit.file), ptx).map(|_| ()).map_err(|e| e.to_string());
        }
        let mut nvcc = Command::new(self.toolkit.tool("nvcc"));
        nvcc.arg("-ptx").arg(format!("-arch=compute_{virtual_arch}")).args(NVCC_FLAGS);
        let log = self.run(nvcc.arg("-o").arg(ptx).arg(&unit.file), unit)?;
        notes.warnings.extend(ptxas::warnings(&log));
        self.take_machine_paths_out(ptx)
    }

    /// PTX to machine code of one chip, with the assembler's report.
    fn back(&self, unit: &Unit, chip: Arch, ptx: &Path, cubin: &Path, notes: &mut Notes) -> Result<(), String> {
        let mut assemble = Command::new(self.toolkit.tool("ptxas"));
        assemble.arg(format!("-arch={}", chip.name())).args(PTXAS_FLAGS);
        if LINES.contains(&chip) {
            assemble.arg("--generate-line-info");
        }
        let log = self.run(assemble.arg("-o").arg(cubin).arg(ptx), unit)?;
        if let Some(line) = ptxas::fatal(&log) {
            return Err(format!("kernels/{} for {}: {line}", unit.file, chip.name()));
        }
        notes.warnings.extend(ptxas::warnings(&log));
        let mut found = ptxas::parse(&log);
        found.sort_by(|a, b| a.entry.cmp(&b.entry));
        if found.is_empty() {
            return Err(format!("kernels/{}: ptxas reports no kernel for {}", unit.file, chip.name()));
        }
        notes.resources.extend(found);
        Ok(())
    }

    /// The number after `.target sm_` in a hand-written file.
    fn ptx_target(&self, unit: &Unit) -> Result<String, String> {
        let text = std::fs::read_to_string(self.kernels.join(&unit.file)).map_err(|e| e.to_string())?;
        let target = text.lines().find_map(|l| l.trim().strip_prefix(".target")?.trim().strip_prefix("sm_"));
        let target = target.ok_or_else(|| format!("kernels/{} has no line `.target sm_…`", unit.file))?;
        Ok(target.chars().take_while(char::is_ascii_alphanumeric).collect())
    }

    /// Replaces absolute folders in the `.file` lines of a PTX file by `kernels/` and `cuda/include/`.
    fn take_machine_paths_out(&self, ptx: &Path) -> Result<(), String> {
        let text = std::fs::read_to_string(ptx).map_err(|e| e.to_string())?;
        let own = format!("{}/", self.kernels.display());
        let toolkit = format!("{}/", self.toolkit.root.display());
        let mut out = String::with_capacity(text.len());
        for line in text.lines() {
            if line.trim_start().starts_with(".file") {
                let line = line.replace(&own, "kernels/").replace(&toolkit, "cuda/").replace("bin/..//", "");
                out.push_str(&line);
            } else {
                out.push_str(line);
            }
            out.push('\n');
        }
        std::fs::write(ptx, out).map_err(|e| e.to_string())
    }

    /// Runs a compiler in `kernels/` and returns all it said.
    fn run(&self, command: &mut Command, unit: &Unit) -> Result<String, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let output = command.current_dir(&self.kernels).output().map_err(|e| format!("cannot run {program}: {e}"))?;
        let log = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            return Ok(log);
        }
        let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        Err(format!("kernels/{} does not compile\n  {program} {}\n{log}", unit.file, args.join(" ")))
    }
}

/// PTX without its line tables.
fn without_lines(ptx: &str) -> String {
    let mut out = String::with_capacity(ptx.len());
    let mut in_section = false;
    for line in ptx.lines() {
        let start = line.trim_start();
        in_section |= start.starts_with(".section");
        if !(in_section || start.starts_with(".loc") || start.starts_with(".file")) {
            out.push_str(line);
            out.push('\n');
        }
        in_section &= !start.starts_with('}');
    }
    out
}
