//! The one place that CUPTI's callbacks can reach: the pool they take buffers from, the queue they put full ones in, the
//! labels of graph nodes. Nothing here may panic into CUPTI, block a launching thread, or outlive a fork.

use crate::pool::Pool;
use crate::{clock, label};
use cupti_sys::*;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A completed buffer.
pub struct Full {
    pub buffer: usize,
    pub valid: usize,
}

/// What the owner of the session wants written into the recording.
pub enum Note {
    Fact(String, String),
    Window(String, u64, u64),
    Label(u64, String),
}

/// What the drain should do next.
pub enum Next {
    Buffer(Full),
    Idle,
    Closed,
}

#[derive(Default)]
struct Queue {
    full: VecDeque<Full>,
    closing: bool,
    settling: bool,
}

/// Labels of graph nodes, kept for as long as the process lives: a graph may be cloned and played long after its capture.
#[derive(Default)]
pub struct Nodes {
    labels: HashMap<u64, u64>,
    fresh: Vec<(u64, u64)>,
}

pub struct Hub {
    pub lib: &'static Library,
    pub pool: Pool,
    /// The process that this is all about. In a fork's child there is no drain, and CUDA does not work either.
    pid: u32,
    /// A collector is open.
    pub active: AtomicBool,
    pub dropped: AtomicU64,
    /// When CUPTI was last asked how many records it dropped (CLOCK_REALTIME, ns), and the times between which it has
    /// dropped some: the question before the first answer that was not 0, and the last such answer.
    asked: AtomicU64,
    lost: [AtomicU64; 2],
    /// The next API exit shall detach CUPTI from this process.
    pub detach: AtomicBool,
    pub detached: AtomicBool,
    queue: Mutex<Queue>,
    ready: Condvar,
    settled: Condvar,
    notes: Mutex<Vec<Note>>,
    nodes: Mutex<Nodes>,
}

static HUB: OnceLock<Hub> = OnceLock::new();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// The process's hub; buffers are of the size that the first caller asked for.
    pub fn get(lib: &'static Library, buffer_bytes: usize) -> &'static Self {
        HUB.get_or_init(|| Self {
            lib,
            pool: Pool::new(buffer_bytes),
            pid: std::process::id(),
            active: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            lost: [AtomicU64::new(0), AtomicU64::new(0)],
            detach: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            queue: Mutex::new(Queue { full: VecDeque::with_capacity(4096), closing: false, settling: false }),
            ready: Condvar::new(),
            settled: Condvar::new(),
            notes: Mutex::default(),
            nodes: Mutex::default(),
        })
    }

    /// The hub, if a collector is open.
    pub fn active() -> Option<&'static Self> {
        HUB.get().filter(|h| h.active.load(Ordering::Acquire))
    }

    /// Whether this is the process that the session was opened in, and not a fork's child.
    pub fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Waits, within reason, until everything completed so far is written.
    pub fn settle(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut queue = lock(&self.queue);
        queue.settling = true;
        self.ready.notify_all();
        while queue.settling && Instant::now() < deadline {
            queue =
                self.settled.wait_timeout(queue, Duration::from_millis(20)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The drain has written everything that was queued.
    pub fn written(&self) {
        let mut queue = lock(&self.queue);
        if queue.full.is_empty() && std::mem::take(&mut queue.settling) {
            self.settled.notify_all();
        }
    }

    /// Opens the queue for a new collector.
    pub fn open(&self) {
        let mut queue = lock(&self.queue);
        queue.closing = false;
        for full in queue.full.drain(..) {
            // SAFETY: completed by CUPTI after the last collector closed; nobody reads it.
            unsafe { self.pool.give(full.buffer as *mut u8) };
        }
        lock(&self.notes).clear();
        self.dropped.store(0, Ordering::Relaxed);
        self.asked.store(clock::host_clocks().0, Ordering::Relaxed);
        self.lost.iter().for_each(|t| t.store(0, Ordering::Relaxed));
        self.detach.store(false, Ordering::Relaxed);
        self.detached.store(false, Ordering::Relaxed);
    }

    /// Lets the drain finish once the queue is empty.
    pub fn close(&self) {
        lock(&self.queue).closing = true;
        self.ready.notify_all();
    }

    pub fn next(&self, wait: Duration) -> Next {
        let mut queue = lock(&self.queue);
        if queue.full.is_empty() && !queue.closing && !queue.settling {
            queue = self.ready.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        match queue.full.pop_front() {
            Some(full) => Next::Buffer(full),
            None if queue.closing => Next::Closed,
            None => Next::Idle,
        }
    }

    /// CUPTI has been asked and said that it dropped so many records since the last time.
    fn lose(&self, count: u64) {
        let now = clock::host_clocks().0;
        let before = self.asked.swap(now, Ordering::Relaxed);
        if count > 0 {
            let _ = self.lost[0].compare_exchange(0, before, Ordering::Relaxed, Ordering::Relaxed);
            self.lost[1].store(now, Ordering::Relaxed);
            self.dropped.fetch_add(count, Ordering::Release);
        }
    }

    /// The times between which records were dropped, since the last call.
    pub fn take_lost(&self) -> (u64, u64) {
        (self.lost[0].swap(0, Ordering::Relaxed), self.lost[1].load(Ordering::Relaxed))
    }

    pub fn queue_is_empty(&self) -> bool {
        lock(&self.queue).full.is_empty()
    }

    pub fn note(&self, note: Note) {
        lock(&self.notes).push(note);
    }

    pub fn take_notes(&self) -> Vec<Note> {
        std::mem::take(&mut lock(&self.notes))
    }

    /// Node labels that came up since the last call.
    pub fn take_nodes(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut lock(&self.nodes).fresh)
    }

    fn label_node(&self, node: u64, label: u64) {
        let mut nodes = lock(&self.nodes);
        nodes.labels.insert(node, label);
        nodes.fresh.push((node, label));
    }
}

/// CUPTI wants an empty buffer; this runs on a thread that launches work.
pub unsafe extern "C" fn buffer_requested(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize) {
    let taken = catch_unwind(|| HUB.get().filter(|h| h.is_ours()).and_then(|h| Some((h.pool.take()?, h.pool.bytes()))))
        .ok()
        .flatten();
    // SAFETY: CUPTI passes three valid places to fill.
    unsafe {
        (*buffer, *size) = taken.unwrap_or((std::ptr::null_mut(), 0));
        *max_records = 0;
    }
}

/// CUPTI hands back a buffer with records.
pub unsafe extern "C" fn buffer_completed(_: CUcontext, _: u32, buffer: *mut u8, _size: usize, valid: usize) {
    let _ = catch_unwind(|| {
        let Some(hub) = HUB.get().filter(|h| h.is_ours()) else { return };
        let mut dropped = 0;
        // SAFETY: writes one size_t; a null context asks for the process's count.
        if unsafe { call!(hub.lib, cuptiActivityGetNumDroppedRecords(std::ptr::null_mut(), 0, &mut dropped)) }.is_ok() {
            hub.lose(dropped as u64);
        }
        if buffer.is_null() {
            return;
        }
        if valid == 0 || !hub.active.load(Ordering::Acquire) {
            // SAFETY: CUPTI has given the buffer up.
            unsafe { hub.pool.give(buffer) };
            return;
        }
        lock(&hub.queue).full.push_back(Full { buffer: buffer as usize, valid });
        hub.ready.notify_one();
    });
}

/// Everything else that CUPTI tells: graph nodes made and cloned, fatal errors, and the API exit at which we detach.
pub unsafe extern "C" fn event(_: *mut c_void, domain: CUpti_CallbackDomain, cbid: u32, data: *const c_void) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let Some(hub) = HUB.get() else { return };
        // SAFETY: the domain says what the data is (cupti_callbacks.h), and it is valid during the callback.
        unsafe {
            match domain {
                CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE => match CUpti_CallbackIdResource(cbid) {
                    CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING => context_ends(hub),
                    _ => graph_node(hub, cbid, data.cast()),
                },
                CUpti_CallbackDomain::CUPTI_CB_DOMAIN_STATE => state(hub, cbid, data.cast()),
                CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API
                | CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RUNTIME_API => {
                    let exit =
                        (*data.cast::<CUpti_CallbackData>()).callbackSite == CUpti_ApiCallbackSite::CUPTI_API_EXIT;
                    if exit && hub.detach.swap(false, Ordering::AcqRel) {
                        let _ = call!(hub.lib, cuptiFinalize());
                        hub.detached.store(true, Ordering::Release);
                    }
                }
                _ => {}
            }
        }
    }));
}

/// A program that destroys its context is about to leave, perhaps by `_exit`, which runs no handlers: save what there is.
fn context_ends(hub: &Hub) {
    if hub.active.load(Ordering::Acquire) && hub.is_ours() {
        // SAFETY: takes a flag; only the buffer callbacks forbid a flush.
        let _ = unsafe { call!(hub.lib, cuptiActivityFlushAll(0)) };
        hub.settle(Duration::from_millis(500));
    }
}

unsafe fn graph_node(hub: &Hub, cbid: u32, data: *const CUpti_ResourceData) {
    // SAFETY: for these callbacks the descriptor is a CUpti_GraphData.
    let graph = unsafe { &*(*data).resourceDescriptor.cast::<CUpti_GraphData>() };
    let id = |node| label::node_id(hub.lib, node);
    let label = match CUpti_CallbackIdResource(cbid) {
        CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED => label::current(),
        CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED => {
            let original = id(graph.originalNode).unwrap_or(0);
            lock(&hub.nodes).labels.get(&original).copied().unwrap_or(0)
        }
        _ => 0,
    };
    if label != 0
        && let Some(node) = id(graph.node)
    {
        hub.label_node(node, label);
    }
}

unsafe fn state(hub: &Hub, cbid: u32, data: *const CUpti_StateData) {
    // SAFETY: all members of the union are the notification.
    let notification = unsafe { (*data).__bindgen_anon_1.notification };
    let message = match notification.message.is_null() {
        true => String::new(),
        // SAFETY: CUPTI's message is NUL-terminated.
        false => unsafe { CStr::from_ptr(notification.message) }.to_string_lossy().into_owned(),
    };
    let what = match CUpti_CallbackIdState(cbid) {
        CUpti_CallbackIdState::CUPTI_CBID_STATE_FATAL_ERROR => "cupti_fatal_error",
        CUpti_CallbackIdState::CUPTI_CBID_STATE_ERROR => "cupti_error",
        _ => "cupti_warning",
    };
    hub.note(Note::Fact(what.into(), format!("{} {message}", result_name(notification.result))));
}
