//! The `cust` crate, whose CUDA 11.4 bindings know neither clusters nor programmatic edges: `cuLaunchKernel` only.
//!
//! It links the driver instead of loading it; `build/trampolines.rs` makes the program start without one all the same.

use super::{Backend, Kernel, fatbin};
use crate::error::{Error, Result};
use crate::launch::Device;
use cust::CudaFlags;
use cust::context::Context;
use cust::error::CudaError;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use std::ffi::c_void;

pub struct Cust {
    kernel: Kernel,
    // Dropped in this order: the context last.
    stream: Stream,
    module: Module,
    _context: Context,
    device: Device,
}

/// By variant name: the text of a status comes from the driver, which may be what is missing.
fn failed(e: CudaError) -> Error {
    Error::check(format!("cust: {e:?}"))
}

impl Cust {
    pub fn new(device: &Device, kernel: Kernel) -> Result<Self> {
        cust::init(CudaFlags::empty()).map_err(failed)?;
        let gpu = cust::device::Device::get_device(device.info().index).map_err(failed)?;
        let context = Context::new(gpu).map_err(failed)?;
        let module = Module::from_fatbin(fatbin()?, &[]).map_err(failed)?;
        let stream = Stream::new(StreamFlags::NON_BLOCKING, None).map_err(failed)?;
        Ok(Self { kernel, stream, module, _context: context, device: device.clone() })
    }
}

impl Backend for Cust {
    fn name(&self) -> &'static str {
        "cust"
    }
    fn submit(&mut self, count: u32) -> Result<()> {
        let function = self.module.get_function(self.kernel.entry()).map_err(failed)?;
        let (pointer, wide, narrow, real) = (0u64, 0i64, 0i32, 0f32);
        let at = |p: *const c_void| p.cast_mut();
        let (p, w) = (at((&raw const pointer).cast()), at((&raw const wide).cast()));
        let (n, r) = (at((&raw const narrow).cast()), at((&raw const real).cast()));
        let arguments = [p, p, p, p, w, n, n, r];
        let arguments = if self.kernel == Kernel::Empty { &arguments[..0] } else { &arguments[..] };
        for _ in 0..count {
            // SAFETY: the arguments are the kernel's, and it reads none of them.
            unsafe { self.stream.launch(&function, 1, 32, 0, arguments) }.map_err(failed)?;
        }
        Ok(())
    }
    fn wait(&mut self) -> Result<()> {
        self.stream.synchronize().map_err(failed)?;
        self.device.bind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_every_call_says_so() {
        match cust::init(CudaFlags::empty()) {
            Ok(()) => assert!(crate::launch::driver::load().is_ok()),
            Err(e) => assert_eq!(e, CudaError::NoDevice),
        }
    }
}
