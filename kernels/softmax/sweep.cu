// Forms of the fused kernel for bf16 rows on 16-byte boundaries, to be compared: loads without the hint to L2, streaming
// stores, fewer vectors a thread, rows that share a mask row.
#include "../common/once.cuh"
#define ld16_stream ld16_once
#include "row.cuh"

// Streaming stores are a second copy of Part's.
template <int STORE, class T, int MASK, int V>
WB_DEVICE void put(Part<T, MASK, true, V>& part, const Row<T, MASK, true>& row, i32 first, i32 step, Stat all) {
    constexpr i32 N = Lanes<T>::n;
    if (STORE == 0) {
        part.store(row, first, step, all);
        return;
    }
    float f = factor(part.max, all);
    i32 end = row.vectors();
#pragma unroll
    for (i32 j = 0; j < V; j++) {
        i32 k = first + j * step, c = row.column(k);
        if (!row.live(k, end)) continue;
#pragma unroll
        for (i32 i = 0; i < N; i++) {
            part.t[j * N + i] *= f;
            if (MASK == MASK_CAUSAL && c + i >= row.limit) part.t[j * N + i] = 0.0f;
        }
        st16_stream(row.out + c, pack16<T>(part.t + j * N));
    }
}

template <class T, int MASK, int V, int STORE> WB_DEVICE void by_block(const Problem<T>& p) {
    __shared__ Stat scratch[32];
    pdl_wait();
    Row<T, MASK, true> row(p, blockIdx.x);
    i32 first = static_cast<i32>(threadIdx.x), step = static_cast<i32>(blockDim.x);
    Part<T, MASK, true, V> part;
    Stat all = block_combine(part.take(row, first, step), scratch);
    pdl_launch();
    put<STORE>(part, row, first, step, all);
}

// Rows that take the same mask row, R at a time: each of its vectors is loaded once for all of them. Grid: mask rows
// times groups of R.
template <class T, int MASK, int V, int R, int STORE> WB_DEVICE void by_shared(const Problem<T>& p) {
    __shared__ Stat scratch[R][32];
    pdl_wait();
    i64 query = blockIdx.x % static_cast<u32>(p.mask_rows), group = blockIdx.x / static_cast<u32>(p.mask_rows);
    i64 last = (p.rows - 1 - query) / p.mask_rows;  // the last row of this query
    i32 first = static_cast<i32>(threadIdx.x), step = static_cast<i32>(blockDim.x);
    Part<T, MASK, true, V> part[R];
#pragma unroll
    for (i32 r = 0; r < R; r++) {
        Row<T, MASK, true> row(p, query + min(group * R + r, last) * p.mask_rows);
        i32 end = row.vectors();
#pragma unroll
        for (i32 j = 0; j < V; j++) {
            i32 k = first + j * step, c = row.column(k);
            part[r].v[j] = part[r].m[j] = Vec16{{0, 0, 0, 0}};
            if (k < end) {
                part[r].v[j] = row.load(c);
                if (r == 0) part[r].m[j] = row.load_mask(c);
            }
        }
    }
#pragma unroll
    for (i32 r = 0; r < R; r++) {
#pragma unroll
        for (i32 j = 0; j < V; j++) part[r].m[j] = part[0].m[j];
        Row<T, MASK, true> row(p, query + min(group * R + r, last) * p.mask_rows);
        Stat own = warp_combine<32>(part[r].digest(row, first, step));
        if (lane_id() == 0) scratch[r][warp_id()] = own;
    }
    pdl_launch();
    __syncthreads();
#pragma unroll
    for (i32 r = 0; r < R; r++) {
        if (group * R + r > last) break;
        Row<T, MASK, true> row(p, query + (group * R + r) * p.mask_rows);
        Stat all = warp_combine<32>(lane_id() < blockDim.x >> 5 ? scratch[r][lane_id()] : Stat{WB_NEG_INF, 0.0f});
        put<STORE>(part[r], row, first, step, all);
    }
}

#define BLOCK(NAME, MASK, V, STORE, MOST, BLOCKS)                                                               \
    WB_KERNEL void __launch_bounds__(MOST, BLOCKS) softmax_sweep_##NAME##_v##V##_s##STORE(SOFTMAX_ARGS(bf16)) { \
        by_block<bf16, MASK, V, STORE>(SOFTMAX_PROBLEM(bf16));                                                  \
    }                                                                                                           \
    WB_ENTRY(softmax_sweep_##NAME##_v##V##_s##STORE)
#define SHARED(NAME, MASK, V, R, STORE, BLOCKS)                                                                      \
    WB_KERNEL void __launch_bounds__(512, BLOCKS) softmax_sweep_##NAME##_v##V##r##R##_s##STORE(SOFTMAX_ARGS(bf16)) { \
        by_shared<bf16, MASK, V, R, STORE>(SOFTMAX_PROBLEM(bf16));                                                   \
    }                                                                                                                \
    WB_ENTRY(softmax_sweep_##NAME##_v##V##r##R##_s##STORE)

BLOCK(none, MASK_NONE, 4, 0, 512, 2)
BLOCK(none, MASK_NONE, 4, 1, 512, 2)
BLOCK(none, MASK_NONE, 2, 0, 1024, 1)
BLOCK(none, MASK_NONE, 1, 0, 1024, 2)
BLOCK(causal, MASK_CAUSAL, 4, 0, 512, 2)
BLOCK(causal, MASK_CAUSAL, 2, 0, 1024, 1)
BLOCK(causal, MASK_CAUSAL, 1, 0, 1024, 2)
BLOCK(causal, MASK_CAUSAL, 2, 1, 1024, 1)
BLOCK(additive, MASK_ADD, 2, 0, 512, 3)
BLOCK(additive, MASK_ADD, 1, 0, 512, 4)
SHARED(additive, MASK_ADD, 1, 4, 0, 2)
SHARED(additive, MASK_ADD, 2, 2, 0, 2)
SHARED(additive, MASK_ADD, 1, 2, 0, 3)
SHARED(additive, MASK_ADD, 1, 4, 1, 2)
