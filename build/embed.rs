//! Writes the Rust table of images that `src/launch/image.rs` includes.

use crate::compile::Built;
use crate::sources::{Header, Unit};
use std::fmt::Write;
use std::path::Path;

/// One variant with whatever was built of it.
pub struct Row {
    pub unit: Unit,
    pub headers: Vec<Header>,
    /// Absent when there is no nvcc.
    pub built: Option<Built>,
    pub key: String,
}

/// What compiled the images, for `doctor` and every report.
pub struct Facts {
    pub nvcc: Option<String>,
    pub origin: Option<&'static str>,
    pub flags: String,
    pub commit: Option<String>,
    pub dirty: bool,
}

/// The generated file's text; outputs are copied to `out` so that emptying the kept outputs breaks no build.
pub fn table(rows: &[Row], facts: &Facts, kernels: &Path, out: &Path) -> Result<String, String> {
    let mut text = String::new();
    let mut archs: Vec<&str> = Vec::new();
    for row in rows {
        for r in row.built.iter().flat_map(|b| &b.notes.resources) {
            if !archs.contains(&r.arch.as_str()) {
                archs.push(&r.arch);
            }
        }
    }
    archs.sort_unstable();
    let _ = writeln!(
        text,
        "pub static TOOLCHAIN: Toolchain = Toolchain {{ nvcc: {:?}, origin: {:?}, archs: &{archs:?}, flags: {:?}, commit: {:?}, dirty: {} }};",
        facts.nvcc, facts.origin, facts.flags, facts.commit, facts.dirty
    );
    let _ = writeln!(text, "pub static IMAGES: &[Image] = &[");
    for row in rows {
        let name = &row.unit.name;
        let _ = writeln!(text, "Image {{ name: {name:?}, file: {:?}, hash: {:?},", row.unit.file, row.key);
        let _ = writeln!(text, "is_ptx: {}, emulated: {},", row.unit.is_ptx(), row.unit.emulated);
        let _ = writeln!(text, "source: include_str!({:?}),", kernels.join(&row.unit.file));
        let _ = writeln!(text, "headers: &[");
        for h in &row.headers {
            let file = kernels.join(&h.path);
            let _ = writeln!(
                text,
                "Header {{ include: {:?}, path: {:?}, text: include_str!({file:?}) }},",
                h.include, h.path
            );
        }
        let _ = writeln!(text, "],");
        let stem = name.replace('/', "_");
        match row.built.as_ref().and_then(|b| b.fatbin.as_ref()) {
            Some(f) => {
                let copy = keep(f, &out.join(format!("{stem}.fatbin")))?;
                let _ = writeln!(text, "fatbin: Some(include_bytes!({copy:?})),");
            }
            None => text.push_str("fatbin: None,\n"),
        }
        let _ = writeln!(text, "resources: &[");
        for r in row.built.iter().flat_map(|b| &b.notes.resources) {
            let _ = writeln!(
                text,
                "Resources {{ entry: {:?}, arch: {:?}, registers: {}, spill_stores: {}, spill_loads: {}, stack: {}, shared: {} }},",
                r.entry, r.arch, r.registers, r.spill_stores, r.spill_loads, r.stack, r.shared
            );
        }
        let _ = writeln!(text, "] }},");
    }
    text.push_str("];\n");
    Ok(text)
}

/// Copies a file and returns the copy's path.
fn keep(from: &Path, to: &Path) -> Result<std::path::PathBuf, String> {
    std::fs::copy(from, to).map_err(|e| format!("cannot copy {}: {e}", from.display()))?;
    Ok(to.to_path_buf())
}
