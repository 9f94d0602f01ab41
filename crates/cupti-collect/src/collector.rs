//! A session: subscribe, enable, collect, and leave CUPTI as it was found.

use crate::api;
use crate::drain::Drain;
use crate::hub::{self, Hub, Note};
use crate::options::{Options, Part, Parts};
use crate::problem::Problem;
use cupti_sys::{CUpti_ActivityKind as Kind, *};
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use crate::drain::Outcome;

/// Where a recording goes.
pub type Sink = Box<dyn Write + Send>;

/// cuptiFinalize with live CUDA graphs crashes before 12.6 (public reports against PyTorch); there we only unsubscribe.
const FINALIZE_SINCE: Version = Version::new(12, 6);

/// The kinds that record API calls.
const CALLS: [Kind; 2] = [Kind::CUPTI_ACTIVITY_KIND_RUNTIME, Kind::CUPTI_ACTIVITY_KIND_DRIVER];

/// An open session. Dropping it stops it.
pub struct Collector {
    hub: &'static Hub,
    subscriber: CUpti_SubscriberHandle,
    parts: Parts,
    drain: Option<Drain>,
}

// SAFETY: the subscriber handle is a token that CUPTI's thread-safe functions take; it is never dereferenced.
unsafe impl Send for Collector {}

/// Sets what must be set before CUDA is initialised. Optional: without it the defaults hold.
pub fn prepare(options: &Options) -> Result<&'static Library, Problem> {
    let lib = load()?;
    if options.latency {
        // SAFETY: takes a flag.
        unsafe { call!(lib, cuptiActivityEnableLatencyTimestamps(1)) }?;
    }
    Ok(lib)
}

impl Collector {
    /// Opens the process's session and streams it to `sink`.
    pub fn start(options: &Options, sink: Sink) -> Result<Self, Problem> {
        let lib = load()?;
        let hub = Hub::get(lib, options.buffer_bytes);
        // A null buffer, by which a full pool declines, crashes CUPTI before 12.9.
        let limit = if lib.api_version >= 27 { options.max_buffers } else { usize::MAX };
        hub.pool.prepare(options.buffers, limit);
        if hub.active.swap(true, Ordering::AcqRel) {
            return Err(Problem::AlreadyActive);
        }
        hub.open();
        let subscriber = subscribe(lib).inspect_err(|_| hub.active.store(false, Ordering::Release))?;
        let parts = options.parts.unwrap_or_else(|| options.mode.parts());
        let mut this = Self { hub, subscriber, parts, drain: None };
        // From here on, dropping `this` undoes everything.
        this.set_up(options)?;
        let mut options = options.clone();
        options.facts.extend(this.facts(&options));
        this.drain = Some(Drain::start(hub, &options, sink).map_err(|e| Problem::Other(e.to_string()))?);
        if options.enabled {
            this.resume()?;
        }
        Ok(this)
    }

    fn set_up(&self, options: &Options) -> Result<(), Problem> {
        let lib = self.hub.lib;
        let (mut one, mut size) = (1u8, 1usize);
        // SAFETY: plain values, and places of the sizes given; the callbacks match their types and never unwind.
        unsafe {
            if options.latency {
                let _ = call!(lib, cuptiActivityEnableLatencyTimestamps(1));
            }
            let _ = call!(lib, cuptiSetThreadIdType(CUpti_ActivityThreadIdType::CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM));
            let zeroed = CUpti_ActivityAttribute::CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER;
            let _ = call!(lib, cuptiActivitySetAttribute(zeroed, &mut size, (&raw mut one).cast()));
            if self.parts.has(Part::Pinned) {
                let pinned = CUpti_ActivityAttribute::CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED;
                let _ = call!(lib, cuptiActivitySetAttribute(pinned, &mut size, (&raw mut one).cast()));
            }
            call!(lib, cuptiActivityRegisterCallbacks(Some(hub::buffer_requested), Some(hub::buffer_completed)))?;
            // CUPTI counts on over sessions and forgets when asked: what an earlier one lost at its end is not ours.
            let mut earlier = 0;
            let _ = call!(lib, cuptiActivityGetNumDroppedRecords(std::ptr::null_mut(), 0, &mut earlier));
            let resource = CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE;
            let ids = [
                CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
                CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
            ];
            for id in &ids[..if self.parts.has(Part::Nodes) { 3 } else { 1 }] {
                let _ = call!(lib, cuptiEnableCallback(1, self.subscriber, resource, id.0));
            }
            let _ = call!(lib, cuptiEnableDomain(1, self.subscriber, CUpti_CallbackDomain::CUPTI_CB_DOMAIN_STATE));
        }
        Ok(())
    }

    fn facts(&self, options: &Options) -> Vec<(String, String)> {
        let lib = self.hub.lib;
        let mut facts = vec![
            ("tool".to_string(), format!("workbench {}", env!("CARGO_PKG_VERSION"))),
            ("mode".into(), options.parts.map_or_else(|| options.mode.label().into(), Parts::label)),
            ("cupti".into(), format!("{} ({})", lib.version, lib.api_version)),
        ];
        if let Some(v) = crate::driver_version() {
            facts.push(("cuda_driver".into(), format!("{}.{}", v / 1000, v / 10 % 100)));
        }
        facts
    }

    pub fn library(&self) -> &'static Library {
        self.hub.lib
    }

    /// Begins to collect. Kinds that this CUPTI or device does not give are noted in the recording; only kernels are
    /// indispensable.
    pub fn resume(&self) -> Result<(), Problem> {
        let lib = self.hub.lib;
        for kind in self.parts.kinds() {
            // SAFETY: takes a number.
            if let Err(e) = unsafe { call!(lib, cuptiActivityEnable(kind)) } {
                if kind == Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL {
                    return Err(e.into());
                }
                self.fact("kind_not_collected", &format!("{} ({e})", kind.0));
            }
        }
        if !self.parts.has(Part::Small) && self.parts.kinds().any(|k| CALLS.contains(&k)) {
            api::enable(lib, api::small, false);
        }
        if self.parts.has(Part::Calls) && api::enable(lib, api::essential, true) == 0 {
            // Before 12.6 there is no choice of calls: all or none.
            for kind in CALLS {
                // SAFETY: takes a number.
                unsafe { call!(lib, cuptiActivityEnable(kind)) }?;
            }
        }
        Ok(())
    }

    /// Stops collecting; what was collected stays.
    pub fn pause(&self) {
        let lib = self.hub.lib;
        if self.parts.has(Part::Calls) {
            api::enable(lib, api::essential, false);
        }
        for kind in self.parts.kinds().chain(CALLS) {
            // SAFETY: takes a number.
            let _ = unsafe { call!(lib, cuptiActivityDisable(kind)) };
        }
    }

    /// Asks CUPTI for what it has; `forced` includes records that are not complete.
    pub fn flush(&self, forced: bool) {
        let flag = if forced { CUpti_ActivityFlag::CUPTI_ACTIVITY_FLAG_FLUSH_FORCED.0 } else { 0 };
        // SAFETY: takes a flag.
        let _ = unsafe { call!(self.hub.lib, cuptiActivityFlushAll(flag)) };
    }

    pub fn fact(&self, key: &str, value: &str) {
        self.hub.note(Note::Fact(key.into(), value.into()));
    }

    /// Marks a window (a step) on the capture's clock.
    pub fn window(&self, name: &str, start: u64, end: u64) {
        self.hub.note(Note::Window(name.into(), start, end));
    }

    /// Says what a label of [`crate::Label`] stands for.
    pub fn label(&self, label: u64, name: &str) {
        self.hub.note(Note::Label(label, name.into()));
    }

    /// Records lost so far.
    pub fn dropped(&self) -> u64 {
        self.hub.dropped.load(Ordering::Relaxed)
    }

    /// Buffers (made in all, made on a launching thread, refused).
    pub fn buffers(&self) -> (usize, usize, usize) {
        self.hub.pool.counts()
    }

    /// Ends the session: collects what is left, writes the recording to its end, unsubscribes. `detach` also removes CUPTI
    /// from the process, after which launches run at full speed; the caller must have synchronised the device and must not
    /// be inside a CUPTI callback. None if the writing thread did not finish within `patience`.
    pub fn stop(mut self, detach: bool, patience: Duration) -> Option<Outcome> {
        self.close(detach, patience)
    }

    /// Like [`Collector::stop`], but leaves the removal of CUPTI to the exit of the program's next CUDA call, which is the
    /// only place where it is safe while the program runs on.
    pub fn stop_at_next_call(mut self, patience: Duration) -> Option<Outcome> {
        let outcome = self.finish(patience);
        if self.hub.lib.version >= FINALIZE_SINCE {
            self.hub.detach.store(true, Ordering::Release);
            for domain in
                [CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RUNTIME_API, CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API]
            {
                // SAFETY: plain values and a live subscriber.
                let _ = unsafe { call!(self.hub.lib, cuptiEnableDomain(1, self.subscriber, domain)) };
            }
            self.subscriber = std::ptr::null_mut();
        }
        self.close(false, patience);
        outcome
    }

    fn finish(&mut self, patience: Duration) -> Option<Outcome> {
        let drain = self.drain.take()?;
        self.flush(true);
        self.pause();
        self.flush(true);
        drain.finish(self.hub, patience)
    }

    fn close(&mut self, detach: bool, patience: Duration) -> Option<Outcome> {
        let outcome = self.finish(patience);
        let lib = self.hub.lib;
        if !self.subscriber.is_null() {
            // SAFETY: the handle came from cuptiSubscribe and is used for the last time.
            unsafe {
                let _ = call!(lib, cuptiUnsubscribe(self.subscriber));
                // The variable is for the case that a CUPTI to come crashes here, too.
                if detach && lib.version >= FINALIZE_SINCE && std::env::var_os("WORKBENCH_NO_FINALIZE").is_none() {
                    let _ = call!(lib, cuptiFinalize());
                }
            }
            self.subscriber = std::ptr::null_mut();
        }
        self.hub.active.store(false, Ordering::Release);
        outcome
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if self.hub.active.load(Ordering::Acquire) && (self.drain.is_some() || !self.subscriber.is_null()) {
            self.close(false, Duration::from_secs(5));
        }
    }
}

/// Subscribing first is how CUPTI tells who else is there.
fn subscribe(lib: &Library) -> Result<CUpti_SubscriberHandle, Problem> {
    let mut subscriber = std::ptr::null_mut();
    // SAFETY: writes one handle; the callback matches its type and never unwinds.
    let tried = unsafe { call!(lib, cuptiSubscribe(&mut subscriber, Some(hub::event), std::ptr::null_mut())) };
    match tried.map_err(Problem::from) {
        Ok(()) => Ok(subscriber),
        Err(Problem::AnotherSubscriber(_)) => Err(Problem::AnotherSubscriber(other_subscriber(lib))),
        Err(e) => Err(e),
    }
}

/// The name of whoever holds CUPTI, which the second version of the call can tell (13.0 and later).
fn other_subscriber(lib: &Library) -> Option<String> {
    let mut name = [0u8; 128];
    let mut subscriber = std::ptr::null_mut();
    let mut params = CUpti_SubscriberParams {
        structSize: std::mem::size_of::<CUpti_SubscriberParams>(),
        subscriberName: std::ptr::null(),
        oldSubscriberName: name.as_mut_ptr().cast(),
        oldSubscriberSize: name.len() - 1,
    };
    // SAFETY: the structure and the name's space outlive the call.
    unsafe {
        if call!(lib, cuptiSubscribe_v2(&mut subscriber, Some(hub::event), std::ptr::null_mut(), &mut params)).is_ok() {
            let _ = call!(lib, cuptiUnsubscribe(subscriber));
        }
    }
    let end = name.iter().position(|&b| b == 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&name[..end]).trim().to_string();
    (!text.is_empty()).then_some(text)
}
