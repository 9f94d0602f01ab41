//! CUPTI's small numbers in words: what a copy moves, what an overhead is, whose thread it was.

use cupti_sys as cu;
use wbtrace::Work;

/// CUPTI says "not applicable" in 32 or in 64 bits.
pub fn event_id(id: Option<u64>) -> u64 {
    id.filter(|&i| i != 0 && i != u64::from(u32::MAX)).unwrap_or(u64::MAX)
}

pub fn thread_of(kind: cu::CUpti_ActivityObjectKind, id: &cu::CUpti_ActivityObjectKindId) -> u32 {
    match kind {
        // SAFETY: the kind says which member of the union is set.
        cu::CUpti_ActivityObjectKind::CUPTI_ACTIVITY_OBJECT_THREAD => unsafe { id.pt.threadId },
        _ => 0,
    }
}

/// `CUpti_ActivityMemcpyKind`.
pub fn copy(kind: u8) -> Work {
    match kind {
        1 | 3 => Work::CopyHtoD,
        2 | 4 => Work::CopyDtoH,
        5..=8 => Work::CopyDtoD,
        9 => Work::CopyHtoH,
        10 => Work::CopyPtoP,
        _ => Work::CopyOther,
    }
}

/// A copy's name says what kind of host memory is at its end, since pageable memory makes it slow and synchronous.
pub fn copy_name(work: Work, from: u8, to: u8) -> String {
    let host = match work {
        Work::CopyHtoD => from,
        Work::CopyDtoH => to,
        _ => 0,
    };
    let memory = match host {
        1 => " pageable",
        2 => " pinned",
        5 | 6 => " managed",
        _ => "",
    };
    format!("memcpy {}{memory}", work.label())
}

pub fn overhead_name(kind: cu::CUpti_ActivityOverheadKind) -> &'static str {
    type K = cu::CUpti_ActivityOverheadKind;
    match kind {
        K::CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER => "driver compiler",
        K::CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH => "buffer flush",
        K::CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION => "instrumentation",
        K::CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE => "profiler resource",
        K::CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING => "module loading",
        K::CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING => "lazy function loading",
        K::CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL => "command buffer full",
        K::CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST => "buffer request",
        K::CUPTI_ACTIVITY_OVERHEAD_UVM_ACTIVITY_INIT => "managed memory init",
        _ => "unknown overhead",
    }
}
