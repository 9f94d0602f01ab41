//! What a launch costs its host thread, and a graph's node the device: measured in a process of its own, once without and
//! once with the injection library, because CUPTI leaves traces in a process that it has been in.

use super::probe::Spin;
use crate::error::Result;
use crate::launch::{Device, Graph, Stream};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Launches of one round: fewer than the driver's queue holds, or the host would wait for the device.
const LAUNCHES: usize = 400;
const NODES: usize = 256;
const REPLAYS: usize = 16;
const ROUNDS: usize = 25;

/// Medians over a few rounds of an empty kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchCost {
    /// Host time of one launch on a stream, back to back, ns.
    pub stream_ns: f64,
    /// Host time of one launch of a graph of `nodes` kernels, ns.
    pub graph_ns: f64,
    /// Host time of launching it and waiting for its end, ns: what a step costs a loop that reads each result.
    pub waited_ns: f64,
    /// Device time of one node of such a graph, ns: its replay divided by its nodes.
    pub node_ns: f64,
    pub nodes: usize,
}

/// Measures on an open device; about a quarter of a second.
pub fn measure(device: &Device) -> Result<LaunchCost> {
    let kernel = Spin::load()?;
    let stream = Stream::new(device)?;
    let wait = || stream.synchronize(|| "timing launches".into());
    kernel.launch(&stream, 0)?;
    wait()?;
    let stream_ns = median(|| {
        let began = Instant::now();
        (0..LAUNCHES).try_for_each(|_| kernel.launch(&stream, 0))?;
        let ns = began.elapsed().as_nanos() as f64 / LAUNCHES as f64;
        wait().map(|()| ns)
    })?;
    let graph = Graph::capture(device, |s| (0..NODES).try_for_each(|_| kernel.launch(s, 0)))?;
    // Each on an idle device, so that none waits in the call for an earlier replay.
    let mut waited = Vec::new();
    let graph_ns = median(|| {
        let began = Instant::now();
        graph.launch(&stream)?;
        let ns = began.elapsed().as_nanos() as f64;
        wait()?;
        waited.push(began.elapsed().as_nanos() as f64);
        Ok(ns)
    })?;
    let waited_ns = crate::stats::median(&waited[1..]);
    let node_ns = median(|| Ok(crate::stats::median(&graph.replay(&stream, REPLAYS)?) / NODES as f64))?;
    Ok(LaunchCost { stream_ns, graph_ns, waited_ns, node_ns, nodes: NODES })
}

fn median(mut round: impl FnMut() -> Result<f64>) -> Result<f64> {
    // The first pays for whatever comes first.
    round()?;
    let rounds = (0..ROUNDS).map(|_| round()).collect::<Result<Vec<f64>>>()?;
    Ok(crate::stats::median(&rounds))
}
