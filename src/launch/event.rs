//! GPU time by events: the only clock that sees when the device began and ended, at about half a microsecond.

use super::{Device, Stream, driver::check};
use crate::error::Result;
use cudarc::driver::sys;

/// Durations below this many nanoseconds are mostly event granularity and gap; time many launches in a graph instead.
pub const RESOLUTION_NS: f64 = 10_000.0;

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    raw: sys::CUevent,
    _device: Device,
}

impl Event {
    pub fn new(device: &Device) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: valid out pointer; the context is current.
        check(unsafe { sys::cuEventCreate(&mut raw, sys::CUevent_flags_enum::CU_EVENT_DEFAULT as u32) }, || {
            "creating an event".into()
        })?;
        Ok(Self { raw, _device: device.clone() })
    }
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: live event and stream.
        check(unsafe { sys::cuEventRecord(self.raw, stream.raw()) }, || "recording an event".into())
    }
    /// Nanoseconds from `earlier` to this event; both must have happened.
    pub fn since(&self, earlier: &Event) -> Result<f64> {
        let mut ms = 0f32;
        // SAFETY: live events, valid out pointer.
        check(unsafe { sys::cuEventElapsedTime_v2(&mut ms, earlier.raw, self.raw) }, || "reading an event".into())?;
        Ok(f64::from(ms) * 1e6)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created in `new`.
        unsafe {
            let _ = sys::cuEventDestroy_v2(self.raw);
        }
    }
}

/// Event pairs reused from batch to batch, so that no driver object is made between timed pieces of work.
#[derive(Debug)]
pub struct Timer {
    device: Device,
    pairs: Vec<(Event, Event)>,
}

impl Timer {
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), pairs: Vec::new() }
    }
    /// Enqueues `count` pieces of work, each between two events, waits, and returns their durations in nanoseconds.
    ///
    /// `before(i)` enqueues what must precede piece `i` outside its time (a cache flush); `work(i)` the piece itself;
    /// `queued` runs on the host once everything is enqueued and most of it still runs (clock readings belong there).
    pub fn batch(
        &mut self,
        stream: &Stream,
        count: usize,
        mut before: impl FnMut(usize) -> Result<()>,
        mut work: impl FnMut(usize) -> Result<()>,
        queued: impl FnOnce(),
    ) -> Result<Vec<f64>> {
        while self.pairs.len() < count {
            self.pairs.push((Event::new(&self.device)?, Event::new(&self.device)?));
        }
        for (i, (begin, end)) in self.pairs[..count].iter().enumerate() {
            before(i)?;
            begin.record(stream)?;
            work(i)?;
            end.record(stream)?;
        }
        queued();
        stream.synchronize(|| "waiting for timed work".into())?;
        self.pairs[..count].iter().map(|(begin, end)| end.since(begin)).collect()
    }
}
