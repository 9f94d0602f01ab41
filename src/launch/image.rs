//! The images that `build.rs` made, one for each kernel variant. Pure: nothing here touches a driver.

use super::fatbin;
use crate::error::{Error, Result};
use std::sync::OnceLock;

include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// One variant as built into this program.
#[derive(Debug)]
pub struct Image {
    /// `op/variant`.
    pub name: &'static str,
    /// Source file, relative to `kernels/`.
    pub file: &'static str,
    /// Key of everything that went into the image: source, headers, flags, compiler. The same inputs give the same
    /// key on every machine.
    pub hash: &'static str,
    /// Whether the source is hand-written PTX.
    pub is_ptx: bool,
    /// Whether the host emulator can run it.
    pub emulated: bool,
    pub source: &'static str,
    /// Every header that the source reaches, under each spelling of its `#include`.
    pub headers: &'static [Header],
    code: Option<Code>,
    /// What the assembler reported, one row for each kernel and architecture.
    pub resources: &'static [Resources],
}

/// A header of the project.
#[derive(Debug)]
pub struct Header {
    /// As written between the quotes of an `#include`: what NVRTC matches.
    pub include: &'static str,
    /// Relative to `kernels/`.
    pub path: &'static str,
    pub text: &'static str,
}

/// One kernel on one architecture, as `ptxas -v` reports it. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Resources {
    pub entry: &'static str,
    /// `sm_90`, `sm_90a`, …
    pub arch: &'static str,
    pub registers: u32,
    pub spill_stores: u32,
    pub spill_loads: u32,
    pub stack: u32,
    /// Static shared memory.
    pub shared: u32,
}

/// What compiled the images.
#[derive(Debug, serde::Serialize)]
pub struct Toolchain {
    /// Version of nvcc, absent when there was none.
    pub nvcc: Option<&'static str>,
    /// Which step of the search found it.
    pub origin: Option<&'static str>,
    /// Architectures compiled for.
    pub archs: &'static [&'static str],
    pub flags: &'static str,
    /// Git commit of the sources, absent outside a repository.
    pub commit: Option<&'static str>,
    /// Whether the work tree differed from that commit.
    pub dirty: bool,
}

/// The image of `op/variant`.
pub fn find(name: &str) -> Option<&'static Image> {
    IMAGES.iter().find(|i| i.name == name)
}

/// Where an image's machine code is; a build makes all of one kind.
#[allow(dead_code)]
#[derive(Debug)]
enum Code {
    Embedded(&'static [u8]),
    /// In the file beside the program.
    Beside {
        offset: usize,
        len: usize,
    },
}

#[allow(dead_code)]
#[repr(align(16))]
struct Aligned<T: ?Sized>(T);

/// Name of the file beside the program in a bundle.
const BESIDE_NAME: &str = "workbench.images";

impl Image {
    /// Machine code for each architecture, and PTX for newer ones, as the driver loads it; none when the program was
    /// built without nvcc (or for other architectures only), in which case the source compiles at run time.
    ///
    /// # Errors
    /// The program is from a bundle and has been parted from its images.
    pub fn fatbin(&self) -> Result<Option<&'static [u8]>> {
        match self.code {
            None => Ok(None),
            Some(Code::Embedded(bytes)) => Ok(Some(bytes)),
            Some(Code::Beside { offset, len }) => Ok(Some(&beside()?[offset..offset + len])),
        }
    }
    /// Whether the image has machine code.
    pub fn compiled(&self) -> bool {
        self.code.is_some()
    }
    /// The PTX that the image carries for newer chips, as text.
    pub fn ptx(&self) -> Result<Option<String>> {
        Ok(self.fatbin()?.and_then(fatbin::ptx))
    }
    /// What the assembler reported for a kernel on an architecture.
    pub fn resources(&self, entry: &str, arch: &str) -> Option<&'static Resources> {
        self.resources.iter().find(|r| r.entry == entry && r.arch == arch)
    }
}

/// The images file of a bundle, beside the program or one folder up, read once.
fn beside() -> Result<&'static [u8]> {
    static FILE: OnceLock<std::result::Result<Vec<u8>, String>> = OnceLock::new();
    let read = || {
        let program = std::env::current_exe().map_err(|e| format!("this program cannot find itself: {e}"))?;
        let file = program.ancestors().skip(1).take(2).map(|dir| dir.join(BESIDE_NAME)).find(|f| f.is_file());
        let file = file.ok_or_else(|| format!("{BESIDE_NAME} is not beside {}", program.display()))?;
        let bytes = std::fs::read(&file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
        if bytes.get(..32) != BESIDE.map(str::as_bytes) {
            return Err(format!("{} belongs to another build of this program", file.display()));
        }
        Ok(bytes)
    };
    let file = FILE.get_or_init(read).as_deref();
    file.map_err(|e| Error::usage(e.clone()).try_next("copy the whole bundle, or make it anew: cargo xtask bundle"))
}
