//! Launches captured once and replayed: the host pays for one call, the device for an edge a node.

use super::{Backend, Kernel, raw};
use crate::error::{Error, Result};
use crate::launch::{Device, Graph, Modules, Stream};

/// Nodes of the graph; submissions are multiples of it.
pub const NODES: u32 = 100;

pub struct GraphOf {
    graph: Graph,
    stream: Stream,
}

impl GraphOf {
    pub fn new(device: &Device, modules: &Modules, kernel: Kernel) -> Result<Self> {
        let prepared = modules.prepare(&raw::launch(kernel))?;
        let graph = Graph::capture(device, |s| (0..NODES).try_for_each(|_| prepared.launch(s)))?;
        Ok(Self { graph, stream: Stream::new(device)? })
    }
}

impl Backend for GraphOf {
    fn name(&self) -> &'static str {
        "graph of 100"
    }
    fn submit(&mut self, count: u32) -> Result<()> {
        if !count.is_multiple_of(NODES) {
            return Err(Error::usage(format!("{count} launches are no multiple of the graph's {NODES}")));
        }
        (0..count / NODES).try_for_each(|_| self.graph.launch(&self.stream))
    }
    fn wait(&mut self) -> Result<()> {
        self.stream.synchronize(|| "waiting for empty kernels".into())
    }
}
