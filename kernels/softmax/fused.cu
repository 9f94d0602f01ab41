// Scale, mask and softmax with each element read once and written once: the row waits in registers.
//
// Every thread holds four 16-byte vectors (64 bytes in flight each, 64 KB for 1024 threads of a multiprocessor).
#include "row.cuh"

// Rows beside a mask array leave by streaming stores (1.1 %); without one plain stores are faster.
//
// LANES lanes share a row; a warp does 32 / LANES * R rows.
template <class T, int MASK, int FIT, int LANES, int V, int R> WB_DEVICE void by_warp(const Problem<T>& p) {
    constexpr i32 GROUPS = 32 / LANES;
    pdl_wait();
    i64 warp = static_cast<i64>(blockIdx.x) * (blockDim.x >> 5) + warp_id();
    i32 lane = static_cast<i32>(lane_id()) % LANES;
    i64 first = warp * (GROUPS * R) + lane_id() / LANES;
    Part<T, MASK, FIT, V> part[R];
    // Rows past the end are computed as the last one and not stored: all lanes take part in every shuffle.
#pragma unroll
    for (i32 r = 0; r < R; r++) {
        part[r].issue(Row<T, MASK, FIT>(p, min(first + r * GROUPS, p.rows - 1)), lane, LANES);
    }
#pragma unroll
    for (i32 r = 0; r < R; r++) {
        i64 row = first + r * GROUPS;
        Row<T, MASK, FIT> here(p, min(row, p.rows - 1));
        Stat all = warp_combine<LANES>(part[r].digest(here, lane, LANES));
        if (r == R - 1) pdl_launch();
        if (row < p.rows) part[r].store(here, lane, LANES, all, HAS_MASK(MASK));
    }
}

// EARLY: the next launch is let in before the row is summed, worth 0.3 % where rows leave a multiprocessor no room for it anyway.
template <class T, int MASK, int FIT, int V, bool EARLY = false> WB_DEVICE void by_block(const Problem<T>& p) {
    __shared__ Stat scratch[32];
    pdl_wait();
    Row<T, MASK, FIT> row(p, blockIdx.x);
    i32 first = static_cast<i32>(threadIdx.x), step = static_cast<i32>(blockDim.x);
    Part<T, MASK, FIT, V> part;
    part.issue(row, first, step);
    if (EARLY) pdl_launch();
    Stat all = block_combine(part.digest(row, first, step), scratch);
    if (!EARLY) pdl_launch();
    part.store(row, first, step, all, HAS_MASK(MASK));
}

// Names: lanes of a row, vectors of a lane, rows of a lane.
#define BY_WARP(T, NAME, MASK, FIT, LANES, V, R)                                                                  \
    WB_KERNEL void __launch_bounds__(V == 2 ? 96 : 64, V == 2 ? 10 : 16)                                          \
    softmax_fused_##NAME##_##LANES##x##V##x##R(SOFTMAX_ARGS(T)) {                                                 \
        by_warp<T, MASK, FIT, LANES, V, R>(SOFTMAX_PROBLEM(T));                                                   \
    }                                                                                                             \
    WB_ENTRY(softmax_fused_##NAME##_##LANES##x##V##x##R)
#define BY_BLOCK(T, NAME, MASK, FIT, V)                                                                           \
    WB_KERNEL void __launch_bounds__(512, HAS_MASK(MASK) ? 3 : 2) softmax_fused_##NAME##_block##V(SOFTMAX_ARGS(T)) { \
        by_block<T, MASK, FIT, V>(SOFTMAX_PROBLEM(T));                                                            \
    }                                                                                                             \
    WB_ENTRY(softmax_fused_##NAME##_block##V)
// Rows of exactly 512 threads of two vectors: 32 registers, so that four are on a multiprocessor (8192 x 8192: 65.4 µs for 67.2 with
// three; in shared memory 65.6).
#define BY_FOUR(T, NAME)                                                                            \
    WB_KERNEL void __launch_bounds__(512, 4) softmax_fused_##NAME##_none_full_four(SOFTMAX_ARGS(T)) { \
        by_block<T, MASK_NONE, FIT_FULL, 2, true>(SOFTMAX_PROBLEM(T));                              \
    }                                                                                               \
    WB_ENTRY(softmax_fused_##NAME##_none_full_four)
#define BY_WARPS(T, NAME, MASK, FIT, ROWS)     \
    BY_WARP(T, NAME, MASK, FIT, 8, 1, ROWS)    \
    BY_WARP(T, NAME, MASK, FIT, 8, 4, 1)       \
    BY_WARP(T, NAME, MASK, FIT, 16, 2, 1)      \
    BY_WARP(T, NAME, MASK, FIT, 16, 4, 1)      \
    BY_WARP(T, NAME, MASK, FIT, 32, 4, 1)
// Rows that are whole vectors have their own kernels, a third of the instructions; so have those that leave no thread idle, which
// is worth another 1.5 %.
#define WARPS(T, NAME, MASK)                          \
    BY_WARPS(T, NAME##_full, MASK, FIT_FULL, 4)       \
    BY_WARPS(T, NAME##_aligned, MASK, FIT_ALIGNED, 4) \
    BY_WARPS(T, NAME##_any, MASK, FIT_ANY, 2)
#define BLOCKS(T, NAME, MASK, V)                     \
    BY_BLOCK(T, NAME##_full, MASK, FIT_FULL, V)      \
    BY_BLOCK(T, NAME##_aligned, MASK, FIT_ALIGNED, V)\
    BY_BLOCK(T, NAME##_any, MASK, FIT_ANY, V)
// With a mask array each vector needs twice the registers: two vectors a thread then. Without one two are better up to 512
// vectors (32768 x 4096: 127.9 µs for 131.7), four beyond and under a causal mask.
#define ALL_BLOCKS(T, NAME)                     \
    BY_FOUR(T, NAME)                            \
    BLOCKS(T, NAME##_none, MASK_NONE, 2)        \
    BLOCKS(T, NAME##_none, MASK_NONE, 4)        \
    BLOCKS(T, NAME##_causal, MASK_CAUSAL, 4)    \
    BLOCKS(T, NAME##_bool, MASK_BOOL, 2)        \
    BLOCKS(T, NAME##_additive, MASK_ADD, 2)

SOFTMAX_ALL(WARPS)
ALL_BLOCKS(bf16, bf16)
ALL_BLOCKS(f16, f16)
ALL_BLOCKS(float, f32)
