//! Reads a completed activity buffer, whatever CUPTI release filled it.
//!
//! Checked in the headers of 12.1 to 13.5: each record structure grows by appending, so the oldest one is a prefix of all.
//! We look through that prefix and read an appended field only if the loaded library is new enough to have written it. The
//! distance to the next record is the library's to know (`cuptiActivityGetNextRecord`).

use crate::bindings::*;
use crate::loader::Library;
use crate::version::Version;
use std::mem::size_of;

/// One activity record, borrowed from its buffer.
#[derive(Clone, Copy)]
pub enum Record<'a> {
    Kernel(&'a CUpti_ActivityKernel9),
    Memcpy(&'a CUpti_ActivityMemcpy5),
    MemcpyPeer(&'a CUpti_ActivityMemcpyPtoP4),
    Memset(&'a CUpti_ActivityMemset4),
    Runtime(&'a CUpti_ActivityAPI),
    Driver(&'a CUpti_ActivityAPI),
    /// With the id that joins an event wait to the event's record (12.8 and later).
    Synchronization(&'a CUpti_ActivitySynchronization, Option<u64>),
    /// With the same id, from the side of `cuEventRecord`.
    CudaEvent(&'a CUpti_ActivityCudaEvent, Option<u64>),
    /// A whole graph launch (graph mode).
    Graph(&'a CUpti_ActivityGraphTrace),
    /// With the correlation id of the call that paid (12.4 and later, else 0).
    Overhead(&'a CUpti_ActivityOverhead, u32),
    Marker(&'a CUpti_ActivityMarker2),
    ExternalCorrelation(&'a CUpti_ActivityExternalCorrelation),
    /// A kind that we did not ask for.
    Other(CUpti_ActivityKind),
}

/// Calls `visit` for each record of a completed buffer and returns how many there were.
///
/// # Safety
/// `buffer` must be 8-byte aligned, filled by `lib`'s CUPTI with `valid` bytes, and each buffer may be walked once only:
/// memory that CUPTI hung on overhead records is freed.
pub unsafe fn records(lib: &Library, buffer: *mut u8, valid: usize, mut visit: impl FnMut(Record<'_>)) -> u64 {
    let Ok(next) = &lib.raw.cuptiActivityGetNextRecord else { return 0 };
    let end = buffer as usize + valid;
    let mut record: *mut CUpti_Activity = std::ptr::null_mut();
    let mut count = 0;
    // SAFETY: the buffer is CUPTI's own work; the library moves `record` from one record to the next inside it.
    while valid > 0 && unsafe { next(buffer, valid, &mut record) } == CUptiResult::CUPTI_SUCCESS && !record.is_null() {
        count += 1;
        // SAFETY: `record` points at a whole record of the kind it names, as just returned.
        if let Some(view) = unsafe { view(record, end, lib.version) } {
            visit(view);
            if let Record::Overhead(..) = view
                && lib.version >= Version::new(12, 4)
            {
                // SAFETY: an Overhead3 as of 12.4. Its extra data is malloc'ed for us to free.
                unsafe { free_overhead_data(record, end) };
            }
        }
    }
    count
}

unsafe fn free_overhead_data(record: *mut CUpti_Activity, end: usize) {
    let whole = record.cast::<CUpti_ActivityOverhead3>();
    if whole as usize + size_of::<CUpti_ActivityOverhead3>() <= end {
        // SAFETY: in bounds, and the caller vouches for the type.
        unsafe {
            libc::free((*whole).overheadData);
            (*whole).overheadData = std::ptr::null_mut();
        }
    }
}

/// The record at a pointer, None if its prefix would pass the buffer's end.
unsafe fn view<'a>(record: *const CUpti_Activity, end: usize, version: Version) -> Option<Record<'a>> {
    /// A reference to the record as `T`.
    unsafe fn at<'a, T>(record: *const CUpti_Activity, end: usize) -> Option<&'a T> {
        // SAFETY: in bounds by the test; aligned as CUPTI aligns records.
        (record as usize + size_of::<T>() <= end).then(|| unsafe { &*record.cast::<T>() })
    }
    type Kind = CUpti_ActivityKind;
    // SAFETY: `kind` is the first field of every record, and says which structure follows.
    unsafe {
        let kind = (*record).kind;
        Some(match kind {
            Kind::CUPTI_ACTIVITY_KIND_KERNEL | Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => {
                Record::Kernel(at(record, end)?)
            }
            Kind::CUPTI_ACTIVITY_KIND_MEMCPY => Record::Memcpy(at(record, end)?),
            Kind::CUPTI_ACTIVITY_KIND_MEMCPY2 => Record::MemcpyPeer(at(record, end)?),
            Kind::CUPTI_ACTIVITY_KIND_MEMSET => Record::Memset(at(record, end)?),
            Kind::CUPTI_ACTIVITY_KIND_RUNTIME => Record::Runtime(at(record, end)?),
            Kind::CUPTI_ACTIVITY_KIND_DRIVER => Record::Driver(at(record, end)?),
            Kind::CUPTI_ACTIVITY_KIND_SYNCHRONIZATION => {
                let id = match version >= Version::new(12, 8) {
                    true => at::<CUpti_ActivitySynchronization2>(record, end).map(|r| r.cudaEventSyncId),
                    false => None,
                };
                Record::Synchronization(at(record, end)?, id)
            }
            Kind::CUPTI_ACTIVITY_KIND_CUDA_EVENT => {
                let id = match version >= Version::new(12, 8) {
                    true => at::<CUpti_ActivityCudaEvent2>(record, end).map(|r| r.cudaEventSyncId),
                    false => None,
                };
                Record::CudaEvent(at(record, end)?, id)
            }
            Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE => Record::Graph(at(record, end)?),
            Kind::CUPTI_ACTIVITY_KIND_OVERHEAD => {
                let correlation = match version >= Version::new(12, 4) {
                    true => at::<CUpti_ActivityOverhead2>(record, end).map_or(0, |r| r.correlationId),
                    false => 0,
                };
                Record::Overhead(at(record, end)?, correlation)
            }
            Kind::CUPTI_ACTIVITY_KIND_MARKER => Record::Marker(at(record, end)?),
            Kind::CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION => Record::ExternalCorrelation(at(record, end)?),
            other => Record::Other(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The prefixes that `view` relies on, and the sizes of 13.0's structures, by their numbers.
    #[test]
    fn layouts() {
        assert_eq!(size_of::<CUpti_ActivityKernel9>(), 208);
        assert_eq!(size_of::<CUpti_ActivityKernel10>(), 216);
        macro_rules! prefix {
            ($old:ty, $new:ty: $($field:ident)*) => {
                assert!(size_of::<$old>() <= size_of::<$new>());
                $(assert_eq!(offset_of!($old, $field), offset_of!($new, $field), stringify!($new, $field));)*
            };
        }
        prefix!(CUpti_ActivityKernel9, CUpti_ActivityKernel10: start end deviceId contextId streamId gridX blockX
            staticSharedMemory dynamicSharedMemory correlationId name queued submitted graphNodeId graphId clusterX);
        prefix!(CUpti_ActivityMemcpy5, CUpti_ActivityMemcpy6: copyKind bytes start end deviceId streamId correlationId
            runtimeCorrelationId graphNodeId graphId);
        prefix!(CUpti_ActivitySynchronization, CUpti_ActivitySynchronization2: type_ start end correlationId contextId
            streamId cudaEventId);
        prefix!(CUpti_ActivityCudaEvent, CUpti_ActivityCudaEvent2: correlationId contextId streamId eventId);
        prefix!(CUpti_ActivityGraphTrace, CUpti_ActivityGraphTrace2: correlationId start end deviceId graphId streamId);
        prefix!(CUpti_ActivityOverhead, CUpti_ActivityOverhead3: overheadKind objectKind objectId start end);
        prefix!(CUpti_ActivityOverhead2, CUpti_ActivityOverhead3: correlationId);
        assert_eq!(offset_of!(CUpti_ActivityKernel9, correlationId), 92);
        assert_eq!(offset_of!(CUpti_ActivityKernel9, name), 104);
        assert_eq!(offset_of!(CUpti_ActivityKernel9, graphNodeId), 144);
    }

    /// A 13.0 kernel record is read through the 12.1 prefix, and one that is cut off is not read at all.
    #[test]
    fn a_newer_record_through_the_oldest_prefix() {
        // SAFETY: all-zero is a valid value of this plain C structure.
        let mut k: CUpti_ActivityKernel10 = unsafe { std::mem::zeroed() };
        k.kind = CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        (k.start, k.end, k.correlationId, k.graphNodeId) = (10, 20, 7, 1 << 40);
        let p = (&raw const k).cast::<CUpti_Activity>();
        let whole = p as usize + size_of::<CUpti_ActivityKernel10>();
        // SAFETY: `p` points at a live record.
        match unsafe { view(p, whole, Version::new(13, 0)) } {
            Some(Record::Kernel(r)) => {
                assert_eq!((r.start, r.end, r.correlationId, r.graphNodeId), (10, 20, 7, 1 << 40));
            }
            _ => panic!("not read as a kernel"),
        }
        // SAFETY: as above; the end given is before the record's.
        assert!(unsafe { view(p, whole - 16, Version::new(13, 0)) }.is_none());
    }

    #[test]
    fn appended_fields_follow_the_library() {
        // SAFETY: all-zero is a valid value of this plain C structure.
        let mut s: CUpti_ActivitySynchronization2 = unsafe { std::mem::zeroed() };
        s.kind = CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
        s.cudaEventSyncId = 99;
        let p = (&raw const s).cast::<CUpti_Activity>();
        let end = p as usize + size_of::<CUpti_ActivitySynchronization2>();
        for (version, want) in [(Version::new(12, 6), None), (Version::new(13, 0), Some(99))] {
            // SAFETY: `p` points at a live record.
            match unsafe { view(p, end, version) } {
                Some(Record::Synchronization(_, id)) => assert_eq!(id, want),
                _ => panic!("not read as a synchronisation"),
            }
        }
    }
}
