// Scale, mask and softmax with each element read once and written once: the row waits in registers.
//
// Every thread holds four 16-byte vectors (64 bytes in flight each, 64 KB for 1024 threads of a multiprocessor), of one
// row or of several short ones.
#include "row.cuh"

// LANES lanes share a row; a warp does 32 / LANES * R rows.
template <class T, int MASK, int LANES, int V, int R> WB_DEVICE void by_warp(const Problem<T>& p) {
    constexpr i32 GROUPS = 32 / LANES;
    i64 warp = static_cast<i64>(blockIdx.x) * (blockDim.x >> 5) + warp_id();
    i32 lane = static_cast<i32>(lane_id()) % LANES;
    i64 first = warp * (GROUPS * R) + lane_id() / LANES;
    Part<T, MASK, V> part[R];
#pragma unroll
    for (i32 r = 0; r < R; r++) {
        // Rows past the end are computed as the last one and not stored: all lanes take part in every shuffle.
        i64 row = min(first + r * GROUPS, p.rows - 1);
        part[r].load(Row<T, MASK>(p, row), lane, LANES);
    }
#pragma unroll
    for (i32 r = 0; r < R; r++) {
        Stat all = warp_combine<LANES>(part[r].exponentials());
        i64 row = first + r * GROUPS;
        if (row < p.rows) part[r].store(Row<T, MASK>(p, row), lane, LANES, all);
    }
}

template <class T, int MASK> WB_DEVICE void by_block(const Problem<T>& p) {
    __shared__ Stat scratch[32];
    Row<T, MASK> row(p, blockIdx.x);
    Part<T, MASK, 4> part;
    part.load(row, static_cast<i32>(threadIdx.x), static_cast<i32>(blockDim.x));
    Stat all = block_combine(part.exponentials(), scratch);
    part.store(row, static_cast<i32>(threadIdx.x), static_cast<i32>(blockDim.x), all);
}

// Names: lanes of a row, vectors of a lane, rows of a lane.
#define BY_WARP(T, TN, MASK, MN, LANES, V, R)                                                                     \
    WB_KERNEL void __launch_bounds__(128, 8) softmax_fused_##TN##_##MN##_##LANES##x##V##x##R(SOFTMAX_ARGS(T)) {   \
        by_warp<T, MASK, LANES, V, R>(SOFTMAX_PROBLEM(T));                                                        \
    }                                                                                                             \
    WB_ENTRY(softmax_fused_##TN##_##MN##_##LANES##x##V##x##R)
#define KERNELS(T, TN, MASK, MN)                                                                                  \
    BY_WARP(T, TN, MASK, MN, 8, 1, 4)                                                                             \
    BY_WARP(T, TN, MASK, MN, 32, 1, 4)                                                                            \
    BY_WARP(T, TN, MASK, MN, 32, 2, 2)                                                                            \
    BY_WARP(T, TN, MASK, MN, 32, 4, 1)                                                                            \
    WB_KERNEL void __launch_bounds__(1024) softmax_fused_##TN##_##MN##_block(SOFTMAX_ARGS(T)) {                   \
        by_block<T, MASK>(SOFTMAX_PROBLEM(T));                                                                    \
    }                                                                                                             \
    WB_ENTRY(softmax_fused_##TN##_##MN##_block)

SOFTMAX_ALL(KERNELS)
