//! Device memory as plain allocations: what one `cuMemAlloc` gave, freed when dropped.

use super::{Device, Stream, driver::check};
use crate::error::Result;
use crate::units::Bytes;
use cudarc::driver::sys;
use std::ffi::c_void;

/// One allocation, 256-byte aligned by the driver.
#[derive(Debug)]
pub struct Memory {
    address: u64,
    bytes: u64,
    _device: Device,
}

impl Memory {
    /// Allocates `bytes` (at least one, so that an empty array has an address).
    ///
    /// # Errors
    /// Out of memory, naming what was asked and what was free.
    pub fn new(device: &Device, bytes: u64) -> Result<Self> {
        let mut address = 0;
        // SAFETY: valid out pointer; the context is current.
        let status = unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1) as usize) };
        check(status, || {
            let free = device.memory().map(|(free, _)| free).unwrap_or(0);
            format!("allocating {} with {} free", Bytes(bytes), Bytes(free))
        })?;
        Ok(Self { address, bytes, _device: device.clone() })
    }
    pub fn address(&self) -> u64 {
        self.address
    }
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Copies from the host and waits.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.bounds(offset, data.len() as u64);
        if data.is_empty() {
            return Ok(());
        }
        let doing = || format!("copying {} to the device", Bytes(data.len() as u64));
        // SAFETY: in bounds. The call returns once pageable memory is staged, perhaps before it has arrived, and our
        // streams do not wait for the default stream: so wait for that here.
        unsafe {
            check(sys::cuMemcpyHtoD_v2(self.address + offset, data.as_ptr().cast::<c_void>(), data.len()), doing)?;
            check(sys::cuStreamSynchronize(std::ptr::null_mut()), doing)
        }
    }
    /// Copies to the host and waits; run after the stream that writes has been synchronised.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.bounds(offset, data.len() as u64);
        if data.is_empty() {
            return Ok(());
        }
        // SAFETY: in bounds; synchronous.
        check(
            unsafe { sys::cuMemcpyDtoH_v2(data.as_mut_ptr().cast::<c_void>(), self.address + offset, data.len()) },
            || format!("copying {} from the device", Bytes(data.len() as u64)),
        )
    }
    /// Sets every byte of a range, in stream order.
    pub fn set(&self, offset: u64, bytes: u64, value: u8, stream: &Stream) -> Result<()> {
        self.bounds(offset, bytes);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: in bounds.
        check(unsafe { sys::cuMemsetD8Async(self.address + offset, value, bytes as usize, stream.raw()) }, || {
            format!("setting {}", Bytes(bytes))
        })
    }
    /// Enqueues the driver's own device-to-device copy of everything.
    pub fn copy_to(&self, other: &Memory, stream: &Stream) -> Result<()> {
        other.bounds(0, self.bytes);
        // SAFETY: both allocations hold that many bytes.
        check(
            unsafe { sys::cuMemcpyDtoDAsync_v2(other.address, self.address, self.bytes as usize, stream.raw()) },
            || format!("copying {} on the device", Bytes(self.bytes)),
        )
    }
    fn bounds(&self, offset: u64, bytes: u64) {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes.max(1)), "{offset}+{bytes} of {} bytes", self.bytes);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; freeing waits for work that uses it.
        unsafe {
            let _ = sys::cuMemFree_v2(self.address);
        }
    }
}
