//! Runs plans on a device: the only place where kernels, launches and the profiler meet.

mod executor;
pub mod fill;

pub use executor::Executor;
