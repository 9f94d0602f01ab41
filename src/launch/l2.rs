//! Emptying the L2 cache between timed launches by writing more than it holds.

use super::{Device, Memory, Stream};
use crate::error::Result;

/// A scratch array whose overwriting evicts everything else from L2.
#[derive(Debug)]
pub struct Flush {
    scratch: Memory,
}

impl Flush {
    /// Twice L2: a write of exactly its size leaves some of the old lines, as the sets are hashed.
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Self { scratch: Memory::new(device, 2 * device.chip().l2_bytes.max(1 << 20))? })
    }
    /// Enqueues the flush; put it outside the timed events.
    pub fn enqueue(&self, stream: &Stream) -> Result<()> {
        self.scratch.set(0, self.scratch.bytes(), 0x5a, stream)
    }
}
