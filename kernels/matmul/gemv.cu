// Decode, step 1: weights straight into registers. A matrix-vector product is a stream of weights past a small x, so
// the only question is how many bytes each SM keeps in flight: Little's law asks for about 35 B/ns * 0.8 us = 28 KB to
// reach the H200's read ceiling, and twice that to hold it through the ends of rows.
//
// Each warp requests a batch of R rows x U segments (8 loads of 16 bytes per lane: 4 KB), multiplies it, requests the
// next; other warps' batches cover its latency. 32 warps per SM have 128 KB requested at best. (Two batches per warp
// in registers do not help: ptxas puts both on one scoreboard, so waiting for the first waits for the second.)
// The first batch is requested before pdl_wait: weights do not depend on the kernel before.
#include "gemv.cuh"

template <class T, int M, int R, int U, int WARPS> WB_DEVICE void gemv(const Args<T>& a) {
    WB_DYN_SHARED(T, xs);
    __shared__ float part[M * 32];
    const i32 warp = blockIdx.x * WARPS + warp_id(), warps = gridDim.x * WARPS;
    if (!a.vec) return gemv_unaligned<T, M>(a, warp, warps);

    const Rows<T, R> rows(a, warp, warps);
    const i32 chunk = U * SEGMENT, chunks = (a.k + chunk - 1) / chunk, padded = chunks * chunk;
    const i32 lane_element = lane_id() * 8;

    Vec16 batch[U][R];
    auto fetch = [&](i32 unit, i32 at) {
#pragma unroll
        for (int j = 0; j < R; j++) {
            bool row = rows.valid(unit, j);
            const T* w = rows.row(a, unit, j);
#pragma unroll
            for (int s = 0; s < U; s++) {
                i32 e = at * chunk + s * SEGMENT + lane_element;
                batch[s][j] = Vec16{};
                if (row && e < a.k) batch[s][j] = ld16_nc(w + e);
            }
        }
    };
    fetch(rows.begin, 0);

    T* gain = xs + M * padded;
    if (a.pre) stage_gain(a, gain, padded);
    pdl_wait();
    stage_x<T, M>(a, xs, gain, padded, part);

    for (i32 unit = rows.begin; unit < rows.end; unit += rows.per_group) {
        // As late as the last rows; gemv_bulk.cu says why.
        if (unit + rows.per_group >= rows.end) pdl_launch();
        float residual = group_residual<T, M, R>(a, rows, unit);
        float acc[M][R] = {};
        for (i32 at = 0; at < chunks; at++) {
#pragma unroll
            for (int s = 0; s < U; s++)
                segment_dot<T, M, R>(acc, batch[s], xs + at * chunk + s * SEGMENT + lane_element, padded);
            bool last = at + 1 == chunks;
            fetch(last ? unit + rows.per_group : unit, last ? 0 : at + 1);
        }
        finish_group<T, M, R>(a, rows, unit, acc, residual);
    }
}

// Entry names carry the configuration; choose.rs has the same table.
#define GEMV_BOUNDED(T, M, R, U, W, ...)                                                                               \
    WB_KERNEL void __launch_bounds__(__VA_ARGS__) matmul_gemv_##T##_m##M##_r##R##u##U##w##W(MATMUL_PARAMS(T)) {        \
        gemv<T, M, R, U, W>(MATMUL_ARGS(T));                                                                           \
    }                                                                                                                  \
    WB_ENTRY(matmul_gemv_##T##_m##M##_r##R##u##U##w##W)
#define GEMV(T, M, R, U, W) GEMV_BOUNDED(T, M, R, U, W, W * 32)

// Left to itself ptxas spills eight bytes of the widest to fit a third block.
#define GEMV_ALL(T)                                                                                                    \
    GEMV(T, 1, 2, 4, 8)                                                                                                \
    GEMV(T, 1, 2, 4, 16)                                                                                               \
    GEMV(T, 1, 4, 2, 8)                                                                                                \
    GEMV(T, 2, 2, 4, 8)                                                                                                \
    GEMV(T, 4, 2, 2, 8)                                                                                                \
    GEMV_BOUNDED(T, 8, 2, 2, 8, 256, 2)
GEMV_ALL(bf16)
GEMV_ALL(f16)
