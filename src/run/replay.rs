//! Work queued behind a spinning kernel, so that the device never waits for the host inside what is timed.

use crate::error::Result;
use crate::launch::{Clocks, Device, Graph, Memory, Modules, Prepared, Stream, Timer};
use crate::op::Launch;

/// A kernel that holds the stream while the host fills the queue behind it.
#[derive(Debug)]
pub(super) struct Spin {
    prepared: Prepared,
    _out: Memory,
}

impl Spin {
    /// Holds for at least `us` microseconds.
    pub(super) fn new(device: &Device, modules: &Modules, clocks: &Clocks, us: u64) -> Result<Self> {
        let out = Memory::new(device, 8)?;
        // Cycles of the highest clock: at any other it only lasts longer.
        let cycles = us * u64::from(clocks.max_sm_mhz().unwrap_or(2_000));
        let launch = Launch::new("common/probe_launch", "probe_spin", [1; 3], [32, 1, 1]);
        let prepared = modules.prepare(&launch.ptr(out.address()).i64(cycles as i64))?;
        Ok(Self { prepared, _out: out })
    }
    pub(super) fn launch(&self, stream: &Stream) -> Result<()> {
        self.prepared.launch(stream)
    }
}

/// A graph of many launches of one piece of work.
#[derive(Debug)]
pub struct Replayer {
    pub(super) graph: Graph,
    pub(super) launches: u64,
    pub(super) stream: Stream,
    pub(super) timer: Timer,
    pub(super) spin: Spin,
}

impl Replayer {
    /// Device nanoseconds of `n` launches, from as many whole replays as cover them.
    pub fn run(&mut self, n: u64) -> Result<f64> {
        let replays = n.div_ceil(self.launches).max(1);
        self.spin.launch(&self.stream)?;
        // One pair of events around all, so that a sample holds no gap of its own making.
        let stream = &self.stream;
        let times = self.timer.batch(
            stream,
            1,
            |_| Ok(()),
            |_| (0..replays).try_for_each(|_| self.graph.launch(stream)),
            || (),
        )?;
        Ok(times[0] * n as f64 / (replays * self.launches) as f64)
    }
}
