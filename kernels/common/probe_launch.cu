// What a launch costs by itself, and a kernel that keeps the device busy while the host fills the queue.
#include "../common/wb.cuh"

WB_KERNEL void probe_null() {}
WB_ENTRY(probe_null)

// For programmatic edges: releases its successor at once and waits for its predecessor.
WB_KERNEL void probe_null_pdl() {
    pdl_launch();
    pdl_wait();
}
WB_ENTRY(probe_null_pdl)

// An empty kernel with arguments, for the cost of passing them.
WB_KERNEL void probe_null_args(const void*, const void*, const void*, void*, i64, i32, i32, float) {}
WB_ENTRY(probe_null_args)

// Holds the stream for `cycles` of the multiprocessor's clock, so that everything queued behind it is in the queue
// before the first of it begins; *out gets the cycles that passed. (A host that is late would be timed otherwise.)
WB_KERNEL void probe_spin(u64* out, i64 cycles) {
    const i64 begin = clock64();
    i64 passed = 0;
    while (passed < cycles) passed = clock64() - begin;
    if (threadIdx.x == 0) *out = static_cast<u64>(passed);
}
WB_ENTRY(probe_spin)
