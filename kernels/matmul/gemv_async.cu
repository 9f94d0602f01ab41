// Decode, step 2: weights through shared memory by cp.async. What limits the register version is that a warp waits for
// its whole batch. Here each lane has its own ring of D stages in shared memory, filled by cp.async and drained by
// wait_group: the oldest stage is used while D - 1 younger ones are in flight. A lane reads only what it copied itself,
// so the ring needs no barrier at all. 8 warps x 6 stages x 2 KB keep 96 KB requested per SM, and the next kernel's
// block still fits beside this one, so that its ring fills while this one drains (pdl_launch).
#include "gemv.cuh"

template <class T, int M, int R, int U, int D, int WARPS> WB_DEVICE void gemv_async(const Args<T>& a) {
    WB_DYN_SHARED(Vec16, shared);
    __shared__ float part[M * 32];
    const i32 warp = blockIdx.x * WARPS + warp_id(), warps = gridDim.x * WARPS;
    if (!a.vec) return gemv_unaligned<T, M>(a, warp, warps);

    const Rows<T, R> rows(a, warp, warps);
    const i32 chunk = U * SEGMENT, chunks = (a.k + chunk - 1) / chunk, padded = chunks * chunk;
    const i32 lane_element = lane_id() * 8;
    const i32 steps = rows.groups() * chunks;
    // Stage d, segment s, row j of this lane: ring[((d * U + s) * R + j) * 32].
    Vec16* ring = shared + warp_id() * (D * U * R * 32) + lane_id();
    T* xs = reinterpret_cast<T*>(shared + WARPS * D * U * R * 32);
    T* gain = xs + M * padded;

    // The copying cursor runs D - 1 stages ahead. Every step commits a group, an empty one too: wait_group counts them.
    i32 fetch_unit = rows.begin, fetch_at = 0;
    auto fetch = [&](i32 stage) {
        if (fetch_unit < rows.end) {
#pragma unroll
            for (int j = 0; j < R; j++) {
                bool row = rows.valid(fetch_unit, j);
                const T* w = rows.row(a, row ? fetch_unit : rows.begin, row ? j : 0);
#pragma unroll
                for (int s = 0; s < U; s++) {
                    i32 e = fetch_at * chunk + s * SEGMENT + lane_element;
                    bool some = row && e < a.k;
                    cp_async16(ring + ((stage * U + s) * R + j) * 32, some ? w + e : a.w, some);
                }
            }
            if (++fetch_at == chunks) {
                fetch_at = 0;
                fetch_unit += rows.per_group;
            }
        }
        cp_async_commit();
    };
    // The gain is the oldest group; stage_x waits for everything only where it has to normalise.
    if (a.pre) stage_gain(a, gain, padded);
    for (i32 d = 0; d < D - 1; d++) fetch(d);
    pdl_wait();
    stage_x<T, M, D - 1>(a, xs, gain, padded, part);

    // As late as there is nothing left to ask for; gemv_bulk.cu says why.
    const i32 last_fetch = steps >= D ? steps - D : -1;
    if (last_fetch < 0) pdl_launch();
    float acc[M][R] = {};
    float residual = 0.0f;
    i32 unit = rows.begin, at = 0, stage = 0;
    for (i32 step = 0; step < steps; step++) {
        if (at == 0) residual = group_residual<T, M, R>(a, rows, unit);
        cp_async_wait<D - 2>();
        Vec16 batch[U][R];
#pragma unroll
        for (int s = 0; s < U; s++)
#pragma unroll
            for (int j = 0; j < R; j++) batch[s][j] = ring[((stage * U + s) * R + j) * 32];
        fetch(stage == 0 ? D - 1 : stage - 1);
        if (step == last_fetch) pdl_launch();
        if (++stage == D) stage = 0;
#pragma unroll
        for (int s = 0; s < U; s++)
            segment_dot<T, M, R>(acc, batch[s], xs + at * chunk + s * SEGMENT + lane_element, padded);
        if (++at == chunks) {
            finish_group<T, M, R>(a, rows, unit, acc, residual);
            at = 0;
            unit += rows.per_group;
        }
    }
    cp_async_wait<0>();
}

// Entry names carry the configuration; choose.rs has the same table.
#define GEMV_BOUNDED(T, M, R, U, D, W, ...)                                                                            \
    WB_KERNEL void __launch_bounds__(__VA_ARGS__)                                                                      \
        matmul_gemv_async_##T##_m##M##_r##R##u##U##d##D##w##W(MATMUL_PARAMS(T)) {                                      \
        gemv_async<T, M, R, U, D, W>(MATMUL_ARGS(T));                                                                  \
    }                                                                                                                  \
    WB_ENTRY(matmul_gemv_async_##T##_m##M##_r##R##u##U##d##D##w##W)
#define GEMV(T, M, R, U, D, W) GEMV_BOUNDED(T, M, R, U, D, W, W * 32)

// Left to itself ptxas spills in the widest to fit a third block.
#define GEMV_ALL(T)                                                                                                    \
    GEMV(T, 1, 2, 2, 6, 8)                                                                                             \
    GEMV(T, 1, 2, 2, 3, 16)                                                                                            \
    GEMV(T, 1, 2, 1, 6, 16)                                                                                            \
    GEMV(T, 1, 4, 1, 6, 8)                                                                                             \
    GEMV(T, 1, 2, 2, 3, 8)                                                                                             \
    GEMV(T, 1, 2, 1, 6, 8)                                                                                             \
    GEMV(T, 1, 2, 1, 4, 8)                                                                                             \
    GEMV(T, 1, 4, 1, 4, 8)                                                                                             \
    GEMV(T, 1, 2, 4, 2, 8)                                                                                             \
    GEMV(T, 1, 2, 4, 3, 8)                                                                                             \
    GEMV(T, 1, 2, 2, 5, 8)                                                                                             \
    GEMV(T, 1, 2, 2, 4, 8)                                                                                             \
    GEMV(T, 2, 2, 2, 6, 8)                                                                                             \
    GEMV(T, 2, 2, 2, 4, 8)                                                                                             \
    GEMV(T, 2, 2, 2, 3, 8)                                                                                             \
    GEMV(T, 4, 2, 2, 4, 8)                                                                                             \
    GEMV_BOUNDED(T, 8, 2, 2, 3, 8, 256, 2)
GEMV_ALL(bf16)
GEMV_ALL(f16)
