//! What can hold arrays and run launches: a GPU and the host emulator look the same to `verify` and to a decode step.

use crate::error::Result;
use crate::op::{Chip, DType, Init, Launch, Variant};

/// A place with memory and kernels. Addresses are what kernels take as pointers; every allocation is 256-byte aligned.
pub trait Executor {
    /// The chip that launches are planned for.
    fn chip(&self) -> Chip;
    /// One line for tables: `NVIDIA H200 (GPU-…a1b2)` or `host emulator, sm_90`.
    fn describe(&self) -> String;
    /// Allocates `bytes` (0 gives a valid address that must not be dereferenced). Contents are undefined.
    fn alloc(&mut self, bytes: u64) -> Result<u64>;
    /// Releases an allocation made by [`Executor::alloc`], after the work that uses it.
    fn free(&mut self, address: u64) -> Result<()>;
    /// Copies host bytes to `address`, in order with the launches.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()>;
    /// Copies device bytes back; waits for all earlier launches.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<()>;
    /// Fills `len` elements. Random contents depend only on the key and the element index, and are the same on every
    /// executor: see [`crate::run::fill`], whose `key` gives one per buffer.
    fn fill(&mut self, address: u64, dtype: DType, len: u64, init: &Init, key: u64) -> Result<()>;
    /// Runs launches in order. Errors may surface at the next [`Executor::sync`].
    fn launch(&mut self, launches: &[Launch]) -> Result<()>;
    /// Waits for everything and reports what went wrong since the last call.
    fn sync(&mut self) -> Result<()>;
    /// Whether this executor can run a variant of an op; the error says why not.
    fn can_run(&self, op: &str, variant: &Variant) -> Result<()>;

    /// Thread orders to choose from: 1 where the hardware decides, 3 on the emulator.
    fn schedules(&self) -> u32 {
        1
    }
    /// Chooses one of them for the launches to come.
    fn set_schedule(&mut self, _schedule: u32) {}
    /// Whether launches since the last call of this added floats atomically, so that reruns may differ in their last
    /// bits. Known on the emulator only; elsewhere exact reruns are demanded.
    fn take_float_atomics(&mut self) -> bool {
        false
    }
}
