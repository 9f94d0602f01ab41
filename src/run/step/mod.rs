//! One decode step: loaded, run as a stream and as a graph, traced, accounted; or replayed from a recording.

pub mod checkpoint;
pub mod expect;
pub mod measure;
pub mod quantized;
pub mod recording;
pub mod resident;
mod weights;
