//! Labels: our own name for what a launch is for. A stream launch carries its label as an external correlation; a node
//! captured into a graph cannot, so the label is noted when the node is made and follows it when the graph is cloned.

use crate::hub::Hub;
use cupti_sys::{CUgraphNode, CUpti_ExternalCorrelationKind, Library, call};
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Which kind of external correlation ours is.
pub const KIND: CUpti_ExternalCorrelationKind = CUpti_ExternalCorrelationKind::CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

pub fn current() -> u64 {
    CURRENT.try_with(Cell::get).unwrap_or(0)
}

/// CUPTI's id of a graph node, as kernel records give it; None where CUPTI does not know the node.
pub fn node_id(lib: &Library, node: CUgraphNode) -> Option<u64> {
    if node.is_null() {
        return None;
    }
    let mut id = 0;
    // SAFETY: writes one u64; the caller's node is alive.
    unsafe { call!(lib, cuptiGetGraphNodeId(node, &mut id)) }.ok().map(|()| id)
}

/// CUPTI's id of a graph node given by its `CUgraphNode` handle.
///
/// # Safety
/// The handle must be of a live node.
pub unsafe fn graph_node_id(node: *mut std::ffi::c_void) -> Option<u64> {
    node_id(Hub::active()?.lib, node.cast())
}

/// Labels this thread's launches until it is dropped. Does nothing, at next to no cost, where no session is open.
#[must_use = "the label ends when this value is dropped"]
pub struct Label {
    before: u64,
    pushed: bool,
}

impl Label {
    /// `label` is any number but 0.
    pub fn new(label: u64) -> Self {
        let before = current();
        let Some(hub) = Hub::active() else { return Self { before, pushed: false } };
        CURRENT.set(label);
        // SAFETY: takes two numbers.
        let pushed = unsafe { call!(hub.lib, cuptiActivityPushExternalCorrelationId(KIND, label)) }.is_ok();
        Self { before, pushed }
    }
}

impl Drop for Label {
    fn drop(&mut self) {
        let _ = CURRENT.try_with(|c| c.set(self.before));
        if self.pushed
            && let Some(hub) = Hub::active()
        {
            let mut last = 0;
            // SAFETY: writes one u64.
            let _ = unsafe { call!(hub.lib, cuptiActivityPopExternalCorrelationId(KIND, &mut last)) };
        }
    }
}
