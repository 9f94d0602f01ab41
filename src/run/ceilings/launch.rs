//! What launching costs by itself.

use super::{Session, Trial};
use crate::error::Result;
use crate::launch::{Device, Graph, Prepared, Stream, Timer};
use crate::profile::probe::Spin;
use crate::run::{Executor, probes};
use std::time::Instant;

impl Session<'_> {
    /// Launch in a stream, launch and wait, edge of a graph, programmatic edge of a graph, edge of a stream; ns, for a grid
    /// of all SMs.
    pub(super) fn launches(&mut self) -> Result<[f64; 5]> {
        let device = self.gpu.device().clone();
        let stream = Stream::new(&device)?;
        let mut costs = [0.0; 5];
        let spin = Spin::load()?;
        for (grid, block) in [(1, 32), (self.gpu.chip().sms, 256)] {
            let config = format!("grid {grid} block {block}");
            let null = &self.gpu.prepare(&[probes::null(grid, block, false)])?[0];
            let pdl = &self.gpu.prepare(&[probes::null(grid, block, true)])?[0];
            let chain = |launch: &Prepared| -> Result<f64> {
                let nodes = 2_000;
                let graph = Graph::capture(&device, |s| (0..nodes).try_for_each(|_| launch.launch(s)))?;
                graph.replay(&stream, 3)?;
                Ok(crate::stats::median(&graph.replay(&stream, 32)?) / f64::from(nodes))
            };
            let (back, sync) = (stream_cost(null, &stream, 20_000, 0)?, stream_cost(null, &stream, 2_000, 1)?);
            costs = [back, sync, chain(null)?, chain(pdl)?, stream_edge(null, &spin, &stream, &device)?];
            let probes =
                ["stream launch", "stream launch and wait", "graph edge", "programmatic graph edge", "stream edge"];
            for (probe, ns) in probes.into_iter().zip(costs) {
                self.keep(Trial { probe: probe.into(), config: config.clone(), ns, rate: None, tried: 1 });
            }
        }
        Ok(costs)
    }
}

/// Host time of a launch, back to back or (`wait` 1) with a wait after each.
fn stream_cost(launch: &Prepared, stream: &Stream, count: u32, wait: u32) -> Result<f64> {
    let waiting = || stream.synchronize(|| "waiting for an empty kernel".into());
    for _ in 0..200 {
        launch.launch(stream)?;
    }
    waiting()?;
    let begun = Instant::now();
    for _ in 0..count {
        launch.launch(stream)?;
        if wait > 0 {
            waiting()?;
        }
    }
    waiting()?;
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(count))
}

/// From one empty kernel of a stream to the next on the device. The host launches more slowly than the device takes them,
/// so they wait behind a kernel that spins until all are queued.
fn stream_edge(launch: &Prepared, spin: &Spin, stream: &Stream, device: &Device) -> Result<f64> {
    // Fewer than the driver's queue holds, and spun for longer than launching them takes.
    let (count, cycles) = (500, 10_000_000);
    let mut timer = Timer::new(device);
    let mut edges = Vec::new();
    for _ in 0..9 {
        let spent = timer.batch(
            stream,
            1,
            |_| spin.launch(stream, cycles),
            |_| (0..count).try_for_each(|_| launch.launch(stream)),
            || (),
        )?;
        edges.push(spent[0] / f64::from(count));
    }
    Ok(crate::stats::median(&edges))
}
