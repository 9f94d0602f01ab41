//! The images that `build.rs` embedded, one for each kernel variant. Pure: nothing here touches a driver.

use super::fatbin;

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
    /// Machine code for each architecture, and PTX for newer ones; absent when the program was built without nvcc (or
    /// for other architectures only), in which case the source compiles at run time.
    pub fatbin: Option<&'static [u8]>,
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

impl Image {
    /// The PTX that the image carries for newer chips, as text.
    pub fn ptx(&self) -> Option<String> {
        fatbin::ptx(self.fatbin?)
    }
    /// What the assembler reported for a kernel on an architecture.
    pub fn resources(&self, entry: &str, arch: &str) -> Option<&'static Resources> {
        self.resources.iter().find(|r| r.entry == entry && r.arch == arch)
    }
}
