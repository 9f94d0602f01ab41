// Decode, step 3 (9.0): the same ring filled by bulk copies. One instruction of one lane asks for a whole piece of a row
// (1 or 2 KB), the copy engine does the addressing, and an mbarrier per stage counts the bytes in. Neither registers nor
// issue slots limit how much is in flight, only shared memory does. Each warp has its own ring and lane 0 fills it, so
// no warp ever waits for another.
#include "gemv.cuh"

template <class T, int M, int R, int U, int D, int WARPS> WB_DEVICE void gemv_bulk(const Args<T>& a) {
    WB_DYN_SHARED(Vec16, shared);
    __shared__ float part[M * 32];
    __shared__ u64 full[WARPS * D];
    const i32 warp = blockIdx.x * WARPS + warp_id(), warps = gridDim.x * WARPS;
    if (!a.vec) return gemv_unaligned<T, M>(a, warp, warps);

    const Rows<T, R> rows(a, warp, warps);
    constexpr i32 chunk = U * SEGMENT;
    const i32 chunks = (a.k + chunk - 1) / chunk, padded = chunks * chunk;
    const i32 lane_element = lane_id() * 8;
    const i32 steps = rows.groups() * chunks;
    // Stage d, row j: chunk elements at ring + (d * R + j) * chunk.
    T* ring = reinterpret_cast<T*>(shared) + warp_id() * (D * R * chunk);
    u64* bar = full + warp_id() * D;
    T* xs = reinterpret_cast<T*>(shared) + WARPS * D * R * chunk;
    T* gain = xs + M * padded;

    // Lane 0 alone: the filling cursor.
    i32 fetch_unit = rows.begin, fetch_at = 0;
    auto fetch = [&](i32 stage) {
        if (fetch_unit >= rows.end) return;
        i32 first = fetch_at * chunk;
        u32 bytes = static_cast<u32>((a.k - first < chunk ? a.k - first : chunk) * sizeof(T));
        i32 present = 0;
#pragma unroll
        for (int j = 0; j < R; j++) present += rows.valid(fetch_unit, j);
        mbar_arrive_expect_tx(bar + stage, bytes * present);
#pragma unroll
        for (int j = 0; j < R; j++)
            if (rows.valid(fetch_unit, j))
                bulk_load(ring + (stage * R + j) * chunk, rows.row(a, fetch_unit, j) + first, bytes, bar + stage);
        if (++fetch_at == chunks) {
            fetch_at = 0;
            fetch_unit += rows.per_group;
        }
    };
    if (lane_id() == 0) {
        for (i32 d = 0; d < D; d++) mbar_init(bar + d, 1);
        fence_mbar_init();
        for (i32 d = 0; d < D; d++) fetch(d);
    }
    __syncwarp();
    if (a.pre) stage_gain(a, gain, padded);
    pdl_wait();
    stage_x<T, M>(a, xs, gain, padded, part);

    // The next kernel's blocks are let in only when this one has nothing left to ask for. Let in earlier they take the
    // slots that the kernel before this one leaves, unevenly, and two blocks that share an SM then finish last.
    const i32 last_fetch = steps > D ? steps - 1 - D : -1;
    if (last_fetch < 0) pdl_launch();
    float acc[M][R] = {};
    float residual = 0.0f;
    i32 unit = rows.begin, at = 0, stage = 0;
    u32 parity = 0;
    for (i32 step = 0; step < steps; step++) {
        if (at == 0) residual = group_residual<T, M, R>(a, rows, unit);
        mbar_wait(bar + stage, parity);
        Vec16 batch[U][R];
#pragma unroll
        for (int s = 0; s < U; s++)
#pragma unroll
            for (int j = 0; j < R; j++) {
                // What lies beyond the row, or belongs to no row, is left over from an earlier stage.
                i32 e = at * chunk + s * SEGMENT + lane_element;
                batch[s][j] = Vec16{};
                if (e < a.k && rows.valid(unit, j))
                    batch[s][j] = ld16(ring + (stage * R + j) * chunk + s * SEGMENT + lane_element);
            }
        // All lanes have read: the stage can be filled again.
        __syncwarp();
        if (lane_id() == 0) fetch(stage);
        if (step == last_fetch) pdl_launch();
        if (++stage == D) {
            stage = 0;
            parity ^= 1;
        }
#pragma unroll
        for (int s = 0; s < U; s++)
            segment_dot<T, M, R>(acc, batch[s], xs + at * chunk + s * SEGMENT + lane_element, padded);
        if (++at == chunks) {
            finish_group<T, M, R>(a, rows, unit, acc, residual);
            at = 0;
            unit += rows.per_group;
        }
    }
}

// Entry names carry the configuration; choose.rs has the same table.
#define GEMV(T, M, R, U, D, W)                                                                                         \
    WB_KERNEL void __launch_bounds__(W * 32) matmul_gemv_bulk_##T##_m##M##_r##R##u##U##d##D##w##W(MATMUL_PARAMS(T)) {  \
        gemv_bulk<T, M, R, U, D, W>(MATMUL_ARGS(T));                                                                   \
    }                                                                                                                  \
    WB_ENTRY(matmul_gemv_bulk_##T##_m##M##_r##R##u##U##d##D##w##W)

#define GEMV_ALL(T)                                                                                                    \
    GEMV(T, 1, 2, 2, 6, 8)                                                                                             \
    GEMV(T, 1, 2, 2, 3, 16)                                                                                            \
    GEMV(T, 1, 2, 4, 3, 8)                                                                                             \
    GEMV(T, 1, 2, 4, 4, 8)                                                                                             \
    GEMV(T, 1, 2, 2, 4, 8)                                                                                             \
    GEMV(T, 2, 2, 2, 6, 8)                                                                                             \
    GEMV(T, 2, 2, 2, 4, 8)                                                                                             \
    GEMV(T, 2, 2, 2, 3, 8)                                                                                             \
    GEMV(T, 4, 2, 2, 4, 8)                                                                                             \
    GEMV(T, 8, 2, 2, 3, 8)
GEMV_ALL(bf16)
GEMV_ALL(f16)
