//! The driver at work: devices, modules, launches, graphs, events, clocks. Knows nothing of any op: a launch is data.
//!
//! Everything hot goes through the raw driver call: the safe wrappers check the context and track events on every use,
//! which is time on the very path that is measured (`benches/launch_overhead.rs` shows how much).
//!
//! To run a list of launches as a step:
//! ```no_run
//! # use workbench::launch::*;
//! # fn main() -> workbench::error::Result<()> {
//! # let launches: Vec<workbench::op::Launch> = vec![];
//! let device = Device::open(0)?;
//! let modules = Modules::new(&device);
//! let prepared = modules.prepare_all(&launches)?; // keep: buffers and maps must outlive the graph
//! let graph = Graph::of(&device, &prepared)?;
//! let ns = graph.replay(&Stream::new(&device)?, 20)?;
//! # Ok(()) }
//! ```

pub mod backend;
pub mod clocks;
pub mod device;
pub mod driver;
pub mod env;
pub mod event;
pub mod fatbin;
pub mod graph;
pub mod image;
pub mod kernel;
pub mod l2;
pub mod libs;
pub mod memory;
pub mod module;
pub mod nvrtc;
pub mod occupancy;
pub mod stream;
pub mod tensor_map;

pub use clocks::Clocks;
pub use device::Device;
pub use env::Environment;
pub use event::{Event, Timer};
pub use graph::Graph;
pub use kernel::Prepared;
pub use memory::Memory;
pub use module::Modules;
pub use stream::Stream;
