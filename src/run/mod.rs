//! Runs plans on a device: the only place where kernels, launches and the profiler meet.

pub mod arrays;
pub mod ceilings;
pub mod draw;
pub mod emulate;
mod executor;
pub mod fill;
pub mod gpu;
pub mod grid;
mod guarded;
mod lineup;
pub mod measure;
pub mod peer;
pub mod peers;
pub mod probes;
mod replay;
pub mod rows;
pub mod step;
pub mod sweep;
mod timing;
pub mod unfused;
pub mod verify;
pub mod versus;
pub mod warning;

pub use emulate::Emulator;
pub use executor::Executor;
pub use gpu::Gpu;
