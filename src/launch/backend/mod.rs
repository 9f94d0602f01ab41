//! The ways to launch a kernel, behind one trait, so that `benches/launch_overhead.rs` can show what each costs and why
//! [`raw`] is what everything else here uses.

pub mod cudarc_safe;
#[cfg(feature = "cust")]
pub mod cust;
pub mod graph;
pub mod raw;

use super::{Device, Modules, image};
use crate::error::{Error, Result};

/// The image that every backend launches from.
const IMAGE: &str = "common/probe_launch";

/// Which empty kernel to launch, as one block of 32 threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// No arguments.
    Empty,
    /// Four pointers, a 64-bit and two 32-bit integers and a float.
    EightArguments,
}

impl Kernel {
    pub fn entry(self) -> &'static str {
        match self {
            Self::Empty => "probe_null",
            Self::EightArguments => "probe_null_args",
        }
    }
}

/// A way to put launches into a stream.
pub trait Backend {
    fn name(&self) -> &'static str;
    /// Enqueues `count` launches without waiting.
    fn submit(&mut self, count: u32) -> Result<()>;
    /// Waits for all of them.
    fn wait(&mut self) -> Result<()>;
}

/// Every backend of this build, ready to launch; those that cannot start are told through `note`.
pub fn all(device: &Device, modules: &Modules, kernel: Kernel, note: &mut dyn FnMut(String)) -> Vec<Box<dyn Backend>> {
    let mut made: Vec<Box<dyn Backend>> = Vec::new();
    let mut keep = |name: &str, backend: Result<Box<dyn Backend>>| match backend {
        Ok(backend) => made.push(backend),
        Err(e) => note(format!("backend {name} left out: {e}")),
    };
    keep("raw", raw::Raw::new(device, modules, kernel).map(|b| Box::new(b) as _));
    keep("cudarc safe", cudarc_safe::CudarcSafe::new(device, kernel).map(|b| Box::new(b) as _));
    #[cfg(feature = "cust")]
    keep("cust", cust::Cust::new(device, kernel).map(|b| Box::new(b) as _));
    keep("graph", graph::GraphOf::new(device, modules, kernel).map(|b| Box::new(b) as _));
    made
}

/// The image's machine code, for the backends that load it themselves.
fn fatbin() -> Result<&'static [u8]> {
    image::find(IMAGE).map_or(Ok(None), |i| i.fatbin())?.ok_or_else(|| {
        Error::usage(format!("{IMAGE} was not compiled into this program"))
            .try_next("`cargo xtask toolchain`, then build")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_in_the_image() {
        let image = image::find(IMAGE).expect("registered");
        for kernel in [Kernel::Empty, Kernel::EightArguments] {
            assert!(image.source.contains(&format!("void {}(", kernel.entry())));
        }
    }
}
