//! Runs plans on a device: the only place where kernels, launches and the profiler meet.

pub mod fill;
