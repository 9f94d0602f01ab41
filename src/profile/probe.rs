//! Traces a tiny kernel of our own, on a stream and in a graph, and looks at what came back. That CUPTI loads and subscribes
//! says little; that a kernel's record arrives with its label, its node and a believable duration says that a capture works.

use super::session::{Options, Session};
use super::trace::{Operation, Work};
use crate::error::{Error, Result};
use crate::launch::driver::check;
use crate::launch::{Device, Graph, Stream};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::time::Instant;

/// Spins for a number of clock cycles. PTX, so that neither nvcc nor NVRTC is needed.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry workbench_probe(.param .u64 cycles)
{
    .reg .pred %p;
    .reg .b64 %r<5>;
    ld.param.u64 %r1, [cycles];
    mov.u64 %r2, %clock64;
LOOP:
    mov.u64 %r3, %clock64;
    sub.u64 %r4, %r3, %r2;
    setp.lt.u64 %p, %r4, %r1;
    @%p bra LOOP;
    ret;
}
\0";

/// Cycles that each traced kernel spins: 7 to 20 µs on any GPU.
const CYCLES: u64 = 20_000;
/// No GPU's SM clock is above 4 GHz, so nothing that spins `CYCLES` is shorter than this.
const SHORTEST_NS: i64 = CYCLES as i64 / 4;
const STREAM_LAUNCHES: usize = 3;
const REPLAYS: usize = 2;
const TIMED: usize = 400;

/// What the probe saw.
#[derive(Clone, Debug)]
pub struct Probe {
    pub stream_kernels: usize,
    /// Of those, with the label under which they were launched.
    pub stream_labelled: usize,
    pub graph_kernels: usize,
    /// Of those, with a node id, and with the label that their node was captured under.
    pub graph_with_node: usize,
    pub graph_labelled: usize,
    pub shortest_ns: i64,
    pub longest_ns: i64,
    /// Operations that lie inside the session's own time stamps.
    pub inside: usize,
    pub calls: usize,
    pub dropped: u64,
    pub late_buffers: usize,
    /// Host time of one launch of an empty kernel: before, during and after the session.
    pub launch_ns: [f64; 3],
    pub defects: Vec<String>,
}

impl Probe {
    pub const STREAM_KERNELS: usize = STREAM_LAUNCHES;
    pub const GRAPH_KERNELS: usize = 2 * REPLAYS;

    /// What is wrong, in words; empty if nothing is.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut expect = |what: &str, got: usize, want: usize| {
            if got != want {
                faults.push(format!("{got} of {want} {what}"));
            }
        };
        let all = self.stream_kernels + self.graph_kernels;
        expect("kernels launched on a stream were recorded", self.stream_kernels, Self::STREAM_KERNELS);
        expect("kernels of a graph were recorded", self.graph_kernels, Self::GRAPH_KERNELS);
        expect("stream kernels kept their label", self.stream_labelled, self.stream_kernels);
        expect("graph kernels have a node id", self.graph_with_node, self.graph_kernels);
        expect("graph kernels kept their node's label", self.graph_labelled, self.graph_kernels);
        expect("operations lie between the time stamps taken around them", self.inside, all);
        if all > 0 && self.shortest_ns < SHORTEST_NS {
            faults.push(format!(
                "a kernel that spins {CYCLES} cycles was recorded with {} ns, which no GPU can do",
                self.shortest_ns
            ));
        }
        if self.dropped > 0 {
            faults.push(format!("{} records were dropped", self.dropped));
        }
        faults
    }
}

/// Runs the probe on an open device.
pub fn run(device: &Device) -> Result<Probe> {
    let kernel = Spin::load()?;
    let stream = Stream::new(device)?;
    // The first launch pays for loading; it is nobody's measurement.
    kernel.launch(&stream, 0)?;
    stream.synchronize(|| "warming up the probe".into())?;
    let before = launch_ns(&kernel, &stream)?;
    let session = Session::start(&Options { buffers: 4, buffer_bytes: 2 << 20, ..Options::default() })?;
    // Dropped before the session ends: CUPTI knows graphs that were made while it was there.
    let graph = Graph::capture(device, |s| {
        for label in [11, 12] {
            let _label = session.label(label);
            kernel.launch(s, CYCLES)?;
        }
        Ok(())
    })?;
    let t0 = session.timestamp()?;
    {
        let _label = session.label(1);
        (0..STREAM_LAUNCHES).try_for_each(|_| kernel.launch(&stream, CYCLES))?;
    }
    (0..REPLAYS).try_for_each(|_| graph.launch(&stream))?;
    stream.synchronize(|| "running the probe".into())?;
    let t1 = session.timestamp()?;
    session.window("probe", t0, t1);
    let during = launch_ns(&kernel, &stream)?;
    drop(graph);
    let captured = session.finish()?;
    let after = launch_ns(&kernel, &stream)?;

    let trace = &captured.recording.trace;
    let ours = |o: &&Operation| {
        // The empty kernels of `launch_ns` come after the window; a kernel without times is counted, and found wanting.
        o.work == Work::Kernel && trace.names.text(o.name) == Spin::NAME && (o.start == 0 || o.start < t1)
    };
    let kernels: Vec<&Operation> = trace.operations.iter().filter(ours).collect();
    let count = |test: &dyn Fn(&Operation) -> bool| kernels.iter().filter(|o| test(o)).count();
    let in_graph = |o: &Operation| o.graph != 0 || o.graph_node != 0 || o.external > 10;
    // By time, the nodes of each replay must come as 11, 12.
    let mut replayed: Vec<&&Operation> = kernels.iter().filter(|o| in_graph(o)).collect();
    replayed.sort_by_key(|o| o.start);
    let durations = kernels.iter().map(|o| o.end - o.start);
    Ok(Probe {
        stream_kernels: count(&|o| !in_graph(o)),
        stream_labelled: count(&|o| !in_graph(o) && o.external == 1),
        graph_kernels: replayed.len(),
        graph_with_node: count(&|o| in_graph(o) && o.graph_node != 0),
        graph_labelled: replayed.iter().zip([11, 12].iter().cycle()).filter(|(o, l)| o.external == **l).count(),
        shortest_ns: durations.clone().min().unwrap_or(0),
        longest_ns: durations.max().unwrap_or(0),
        inside: count(&|o| o.start >= t0 && o.end <= t1 && o.end > o.start),
        calls: trace.calls.len(),
        dropped: captured.dropped,
        late_buffers: captured.late_buffers,
        launch_ns: [before, during, after],
        defects: trace.defects.iter().map(|d| format!("{} ×{}", d.defect, d.count)).collect(),
    })
}

/// Median of five rounds of back-to-back launches of the kernel that does nothing.
fn launch_ns(kernel: &Spin, stream: &Stream) -> Result<f64> {
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        (0..TIMED).try_for_each(|_| kernel.launch(stream, 0))?;
        rounds.push(began.elapsed().as_nanos() as f64 / TIMED as f64);
        stream.synchronize(|| "timing launches".into())?;
    }
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[2])
}

/// A kernel of one thread that spins for as many cycles as it is told; loaded by the driver's own assembler.
pub struct Spin {
    module: sys::CUmodule,
    function: sys::CUfunction,
}

impl Spin {
    /// Its PTX, NUL-terminated.
    pub const PTX: &'static str = PTX;
    pub const NAME: &'static str = "workbench_probe";

    /// Loads it into the current context.
    pub fn load() -> Result<Self> {
        let mut kernel = Self { module: std::ptr::null_mut(), function: std::ptr::null_mut() };
        // SAFETY: NUL-terminated PTX and name; valid out pointers.
        unsafe {
            check(sys::cuModuleLoadData(&mut kernel.module, PTX.as_ptr().cast()), || {
                "loading the probe kernel".into()
            })?;
            check(sys::cuModuleGetFunction(&mut kernel.function, kernel.module, c"workbench_probe".as_ptr()), || {
                "finding the probe kernel".into()
            })?;
        }
        Ok(kernel)
    }

    pub fn launch(&self, stream: &Stream, mut cycles: u64) -> Result<()> {
        let mut args = [(&raw mut cycles).cast::<c_void>()];
        // SAFETY: a live function of one 64-bit argument, which the driver copies before it returns.
        let status = unsafe {
            sys::cuLaunchKernel(
                self.function,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream.raw(),
                args.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check(status, || "launching the probe kernel".into())
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        if !self.module.is_null() {
            // SAFETY: loaded in `load`; every launch has been synchronised.
            unsafe {
                let _ = sys::cuModuleUnload(self.module);
            }
        }
    }
}

/// The probe as one result: its faults as an error.
pub fn verify(device: &Device) -> Result<Probe> {
    let probe = run(device)?;
    match probe.faults() {
        faults if faults.is_empty() => Ok(probe),
        faults => Err(Error::untrusted(format!("CUPTI does not trace as it should: {}", faults.join("; ")))
            .try_next("`workbench doctor --json -` shows all that the probe saw")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found() {
        let good = Probe {
            stream_kernels: 3,
            stream_labelled: 3,
            graph_kernels: 4,
            graph_with_node: 4,
            graph_labelled: 4,
            shortest_ns: 10_000,
            longest_ns: 11_000,
            inside: 7,
            calls: 9,
            dropped: 0,
            late_buffers: 0,
            launch_ns: [2e3, 4e3, 2e3],
            defects: vec![],
        };
        assert!(good.faults().is_empty());
        let bad = Probe { graph_labelled: 0, shortest_ns: 12, dropped: 3, ..good };
        assert_eq!(bad.faults().len(), 3, "{:?}", bad.faults());
    }
}
