//! Runs plans on a device: the only place where kernels, launches and the profiler meet.

pub mod arrays;
pub mod ceilings;
mod executor;
pub mod fill;
pub mod gpu;
pub mod measure;
pub mod peer;
pub mod peers;
pub mod probes;
pub mod rows;
pub mod step;
pub mod sweep;
pub mod warning;

pub use executor::Executor;
pub use gpu::Gpu;
