//! `cuLaunchKernelEx` with arguments packed beforehand: one driver call a launch and nothing else.

use super::{Backend, IMAGE, Kernel};
use crate::error::Result;
use crate::launch::{Device, Modules, Prepared, Stream};
use crate::op::Launch;

pub struct Raw {
    prepared: Prepared,
    stream: Stream,
}

/// The launch of a kernel as data.
pub(super) fn launch(kernel: Kernel) -> Launch {
    let launch = Launch::new(IMAGE, kernel.entry(), [1; 3], [32, 1, 1]);
    match kernel {
        Kernel::Empty => launch,
        Kernel::EightArguments => launch.ptr(0).ptr(0).ptr(0).ptr(0).i64(0).i32(0).i32(0).f32(0.0),
    }
}

impl Raw {
    pub fn new(device: &Device, modules: &Modules, kernel: Kernel) -> Result<Self> {
        Ok(Self { prepared: modules.prepare(&launch(kernel))?, stream: Stream::new(device)? })
    }
}

impl Backend for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }
    fn submit(&mut self, count: u32) -> Result<()> {
        (0..count).try_for_each(|_| self.prepared.launch(&self.stream))
    }
    fn wait(&mut self) -> Result<()> {
        self.stream.synchronize(|| "waiting for empty kernels".into())
    }
}
