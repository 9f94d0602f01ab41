//! cudarc's safe layer as its users call it: a launch builder, arguments by reference, context checks on every call.

use super::{Backend, Kernel, fatbin};
use crate::error::{Error, Result};
use crate::launch::Device;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;

pub struct CudarcSafe {
    kernel: Kernel,
    function: CudaFunction,
    stream: Arc<CudaStream>,
    device: Device,
}

fn failed(e: DriverError) -> Error {
    Error::check(format!("cudarc: {e}"))
}

impl CudarcSafe {
    pub fn new(device: &Device, kernel: Kernel) -> Result<Self> {
        let context = CudaContext::new(device.info().index as usize).map_err(failed)?;
        let module = context.load_module(Ptx::from_binary(fatbin()?.to_vec())).map_err(failed)?;
        let function = module.load_function(kernel.entry()).map_err(failed)?;
        let stream = context.new_stream().map_err(failed)?;
        Ok(Self { kernel, function, stream, device: device.clone() })
    }
}

impl Backend for CudarcSafe {
    fn name(&self) -> &'static str {
        "cudarc safe"
    }
    fn submit(&mut self, count: u32) -> Result<()> {
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
        let (pointer, wide, narrow, real) = (0u64, 0i64, 0i32, 0f32);
        for _ in 0..count {
            let mut builder = self.stream.launch_builder(&self.function);
            if self.kernel == Kernel::EightArguments {
                builder.arg(&pointer).arg(&pointer).arg(&pointer).arg(&pointer);
                builder.arg(&wide).arg(&narrow).arg(&narrow).arg(&real);
            }
            // SAFETY: the arguments are the kernel's, and it reads none of them.
            unsafe { builder.launch(config) }.map_err(failed)?;
        }
        Ok(())
    }
    fn wait(&mut self) -> Result<()> {
        self.stream.synchronize().map_err(failed)?;
        self.device.bind()
    }
}
