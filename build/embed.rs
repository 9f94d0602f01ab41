//! Writes the Rust table of images that `src/launch/image.rs` includes.

use crate::compile::Built;
use crate::hash::Hash;
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

/// Where machine code goes.
pub enum Home {
    /// Into every program.
    Embedded,
    /// Into one file that lies beside the programs of a bundle, which would each carry the same copy.
    Beside(Pack),
}

/// The file that lies beside: a key, then each image on a 16-byte boundary.
#[derive(Default)]
pub struct Pack {
    bytes: Vec<u8>,
    key: Hash,
}

impl Pack {
    /// Bytes of the key at the head of the file.
    const HEAD: usize = 32;

    fn add(&mut self, image: &[u8]) -> (usize, usize) {
        self.key = std::mem::take(&mut self.key).field(image);
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        self.bytes.extend_from_slice(image);
        (Self::HEAD + self.bytes.len() - image.len(), image.len())
    }
    fn file(&self) -> Vec<u8> {
        [self.key.hex().as_bytes(), &self.bytes].concat()
    }
}

/// The generated file's text; what it includes lies in `out`.
pub fn table(rows: &[Row], facts: &Facts, home: &mut Home, kernels: &Path, out: &Path) -> Result<String, String> {
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
        let code = match row.built.as_ref().and_then(|b| b.fatbin.as_ref()) {
            Some(file) => Some(place(file, &out.join(format!("{}.fatbin", name.replace('/', "_"))), home)?),
            None => None,
        };
        let _ = writeln!(text, "code: {},", code.map_or("None".into(), |c| format!("Some({c})")));
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
    let key = match home {
        Home::Embedded => None,
        Home::Beside(pack) => {
            std::fs::write(out.join("workbench.images"), pack.file()).map_err(|e| e.to_string())?;
            Some(pack.key.hex())
        }
    };
    let _ = writeln!(text, "/// Key of the file that lies beside the program, where the images are not in it.");
    let _ = writeln!(text, "const BESIDE: Option<&str> = {key:?};");
    Ok(text)
}

/// The expression for an image's machine code, which is copied so that emptying the kept outputs breaks no build.
fn place(from: &Path, copy: &Path, home: &mut Home) -> Result<String, String> {
    let bytes = std::fs::read(from).map_err(|e| format!("cannot read {}: {e}", from.display()))?;
    Ok(match home {
        Home::Embedded => {
            std::fs::write(copy, bytes).map_err(|e| format!("cannot write {}: {e}", copy.display()))?;
            // The driver reads 8-byte fields in it; `include_bytes!` alone promises no alignment.
            format!("Code::Embedded({{ static A: &Aligned<[u8]> = &Aligned(*include_bytes!({copy:?})); &A.0 }})")
        }
        Home::Beside(pack) => {
            let (offset, len) = pack.add(&bytes);
            format!("Code::Beside {{ offset: {offset}, len: {len} }}")
        }
    })
}
