// How the blocks of a cluster tell each other a row's statistic: each sends its own to all of them as a copy of 16 bytes
// that the receiver's barrier counts. A barrier of the cluster would release all that a thread has stored, and wait for
// it (MEMBAR in SASS, 4.4 of a warp's 13 cycles an instruction in the counters).
#pragma once
#include "row.cuh"

// In shared memory.
struct Exchange {
    float slots[16][4];
    u64 told;

    // All threads, before anything is sent: no block may be written to before it runs.
    WB_DEVICE void begin() {
        if (cluster_size() == 1) return;
        if (threadIdx.x == 0) {
            mbar_init(&told, 1);
            fence_mbar_init();
        }
        // For compute-sanitizer, which takes one thread's arrival for a race with its own initialisation.
        __syncwarp();
        if (threadIdx.x == 0) mbar_arrive_expect_tx(&told, 16 * cluster_size());
        cluster_arrive_relaxed();
    }
    // All threads, a barrier of the block later. Keeps the block here until the last message to it has landed.
    WB_DEVICE Stat combine(Stat own) {
        u32 blocks = cluster_size(), lane = lane_id();
        if (blocks == 1) return own;
        cluster_wait();
        if (threadIdx.x < blocks) st_async16(slots[cluster_rank()], own.max, own.sum, 0.0f, 0.0f, &told, threadIdx.x);
        __syncwarp();
        mbar_wait_cluster(&told, 0);
        return warp_combine<32>(lane < blocks ? Stat{slots[lane][0], slots[lane][1]} : Stat{WB_NEG_INF, 0.0f});
    }
};
