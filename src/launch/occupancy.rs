//! The driver's own answer to how much of a kernel fits on the chip.

use super::{Prepared, driver::check};
use crate::error::Result;
use cudarc::driver::sys;

/// Resident blocks of a launch on one multiprocessor.
pub fn blocks_per_sm(prepared: &Prepared) -> Result<u32> {
    let launch = prepared.launch_data();
    let threads = launch.block.iter().product::<u32>() as i32;
    let mut blocks = 0;
    // SAFETY: a live function, valid out pointer.
    let status = unsafe {
        sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &mut blocks,
            prepared.function().raw,
            threads,
            launch.shared as usize,
        )
    };
    check(status, || format!("asking for the occupancy of {}", launch.entry))?;
    Ok(blocks as u32)
}
