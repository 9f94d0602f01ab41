//! A list of launches as one CUDA graph: captured from a stream, so programmatic edges come out as the stream has them.

use super::{Device, Prepared, Stream, Timer, driver::check};
use crate::error::Result;
use cudarc::driver::sys;

/// An instantiated graph.
#[derive(Debug)]
pub struct Graph {
    exec: sys::CUgraphExec,
    nodes: usize,
    device: Device,
}

impl Graph {
    /// Captures what `enqueue` puts into a stream and instantiates it.
    ///
    /// Whatever the enqueued work refers to (arguments are copied, buffers are not) must outlive the graph.
    pub fn capture(device: &Device, enqueue: impl FnOnce(&Stream) -> Result<()>) -> Result<Self> {
        let stream = Stream::new(device)?;
        // Thread-local: another thread's calls (a profiler's, for one) may go on.
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream.
        check(unsafe { sys::cuStreamBeginCapture_v2(stream.raw(), mode) }, || "beginning a capture".into())?;
        let enqueued = enqueue(&stream);
        let mut template = Template(std::ptr::null_mut());
        // SAFETY: the capture that began above; ended even where enqueueing failed, so that the stream is usable.
        let ended = unsafe { sys::cuStreamEndCapture(stream.raw(), &mut template.0) };
        enqueued?;
        check(ended, || "ending a capture".into())?;

        let mut graph = Self { exec: std::ptr::null_mut(), nodes: 0, device: device.clone() };
        // SAFETY: a live template; valid out pointers.
        unsafe {
            check(sys::cuGraphGetNodes(template.0, std::ptr::null_mut(), &mut graph.nodes), || {
                "counting nodes".into()
            })?;
            check(sys::cuGraphInstantiateWithFlags(&mut graph.exec, template.0, 0), || {
                format!("instantiating a graph of {} nodes", graph.nodes)
            })?;
            check(sys::cuGraphUpload(graph.exec, stream.raw()), || "uploading a graph".into())?;
        }
        stream.synchronize(|| "uploading a graph".into())?;
        Ok(graph)
    }
    /// A graph of launches in order.
    pub fn of(device: &Device, launches: &[Prepared]) -> Result<Self> {
        Self::capture(device, |stream| launches.iter().try_for_each(|launch| launch.launch(stream)))
    }
    /// Nodes of the graph.
    pub fn nodes(&self) -> usize {
        self.nodes
    }
    /// Enqueues one replay.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: live graph and stream.
        check(unsafe { sys::cuGraphLaunch(self.exec, stream.raw()) }, || {
            format!("launching a graph of {} nodes", self.nodes)
        })
    }
    /// Times `replays` back-to-back replays on the device, in nanoseconds each.
    pub fn replay(&self, stream: &Stream, replays: usize) -> Result<Vec<f64>> {
        Timer::new(&self.device).batch(stream, replays, |_| Ok(()), |_| self.launch(stream), || ())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.exec.is_null() {
            // SAFETY: instantiated above; the driver waits for a running replay.
            unsafe {
                let _ = sys::cuGraphExecDestroy(self.exec);
            }
        }
    }
}

struct Template(sys::CUgraph);

impl Drop for Template {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: returned by the capture and not yet destroyed.
            unsafe {
                let _ = sys::cuGraphDestroy(self.0);
            }
        }
    }
}
