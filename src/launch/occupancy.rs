//! The driver's own answer to how much of a kernel fits on a multiprocessor.

use super::{Modules, driver::check};
use crate::error::Result;
use cudarc::driver::sys;

/// What the driver knows of a loaded kernel. Shared memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub registers: u32,
    pub static_shared: u32,
    /// Most threads of a block.
    pub max_threads: u32,
}

/// Loads a kernel and says what the driver knows of it.
pub fn loaded(modules: &Modules, image: &str, entry: &str) -> Result<Loaded> {
    let (_, f) = modules.function(image, entry)?;
    Ok(Loaded { registers: f.registers, static_shared: f.static_shared, max_threads: f.max_threads })
}

/// Resident blocks of a kernel on one multiprocessor for a block of `threads` with `dynamic` bytes of shared memory.
///
/// # Errors
/// More shared memory than a block can have; an unknown kernel.
pub fn blocks_per_sm(modules: &Modules, image: &str, entry: &str, threads: u32, dynamic: u32) -> Result<u32> {
    let (_module, function) = modules.function(image, entry)?;
    function.allow_shared(dynamic, modules.device().chip().shared_optin, entry)?;
    let mut blocks = 0;
    // SAFETY: a live function, valid out pointer.
    let status = unsafe {
        sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function.raw, threads as i32, dynamic as usize)
    };
    check(status, || format!("asking for the occupancy of {entry}"))?;
    Ok(blocks as u32)
}
