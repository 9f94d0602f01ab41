//! A stream of our own: non-blocking, so that the legacy default stream never serialises with it.

use super::{Device, driver::check};
use crate::error::Result;
use cudarc::driver::sys;

/// An ordered queue of device work.
#[derive(Debug)]
pub struct Stream {
    raw: sys::CUstream,
    _device: Device,
}

impl Stream {
    pub fn new(device: &Device) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: valid out pointer; the context is current.
        check(unsafe { sys::cuStreamCreate(&mut raw, flags) }, || "creating a stream".into())?;
        Ok(Self { raw, _device: device.clone() })
    }
    /// The driver's handle.
    pub fn raw(&self) -> sys::CUstream {
        self.raw
    }
    /// Waits for the stream; an error of an earlier launch appears here, so `doing` should name what was launched.
    pub fn synchronize(&self, doing: impl FnOnce() -> String) -> Result<()> {
        // SAFETY: a live stream.
        check(unsafe { sys::cuStreamSynchronize(self.raw) }, doing)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created in `new`; the driver finishes pending work first.
        unsafe {
            let _ = sys::cuStreamDestroy_v2(self.raw);
        }
    }
}
