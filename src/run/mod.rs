//! Runs plans on a device: the only place where kernels, launches and the profiler meet.

pub mod arrays;
mod executor;
pub mod fill;
pub mod gpu;
pub mod measure;
pub mod peer;
pub mod peers;
pub mod rows;
pub mod step;
pub mod sweep;
pub mod warning;

pub use executor::Executor;
pub use gpu::Gpu;
