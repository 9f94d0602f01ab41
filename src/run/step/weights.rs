//! A plan's weight array from a checkpoint: stacked rows as they are, or quantised to the 4-bit layout.

use super::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::plan::PlanBuffer;

/// The bytes of one weight array. A tied head has no tensor of its own and never reaches here under its own name.
pub fn read(checkpoint: &Checkpoint, buffer: &PlanBuffer) -> Result<Vec<u8>> {
    if buffer.name.contains('#') {
        return Err(Error::usage(format!("{}: 4-bit weights from a 16-bit checkpoint", buffer.name)));
    }
    checkpoint.read(&buffer.name, buffer.dtype, buffer.len)
}
