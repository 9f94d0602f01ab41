// What the wgmma kernels share: the ring of stages between the thread that copies and the warpgroups that multiply, the
// multiplication of one tile, and the store from registers.
//
// A block is three warpgroups. The first is the producer: one of its threads asks the copy engine (TMA) for tiles and
// its registers are given away. The other two are consumers: each multiplies 64 rows of x with all BN rows of w.
#pragma once
#include "matmul.cuh"

constexpr i32 BK = 64, WARPGROUP = 128, CONSUMERS = 2;
constexpr i32 THREADS = (1 + CONSUMERS) * WARPGROUP;

// A stage: BM rows of x and BN rows of w, 64 k-elements (128 bytes) each, written by the copy engine with the 128-byte
// swizzle that wgmma undoes. full: the copies have landed. empty: all warps that read the stage are done with it.
template <class T, int BM, int BN, int STAGES> struct Ring {
    static constexpr i32 x_elements = BM * BK, stage_elements = (BM + BN) * BK;
    static constexpr u32 stage_bytes = stage_elements * sizeof(T);
    T* tiles;
    u64 *full, *empty;

    WB_DEVICE T* x(i32 stage) const { return tiles + stage * stage_elements; }
    WB_DEVICE T* w(i32 stage) const { return tiles + stage * stage_elements + x_elements; }
    // `readers` warps arrive to empty a stage. One thread calls; a barrier of all who use the ring follows.
    WB_DEVICE void init(u32 readers) const {
        for (i32 s = 0; s < STAGES; s++) {
            mbar_init(full + s, 1);
            mbar_init(empty + s, readers);
        }
        fence_mbar_init();
    }
};

// A place in the ring, and how often the ring has been passed (its lowest bit).
template <int STAGES> struct Place {
    i32 stage = 0;
    u32 round = 0;
    WB_DEVICE void advance() {
        if (++stage == STAGES) stage = 0, round ^= 1;
    }
};

// acc[i] = 64 rows of x . N rows of w over `steps` stages, i counting blocks of 64 rows from x_row on. The multiplication
// of one stage is queued before the one of the stage before it is known to have ended; only then is that stage given back.
template <class T, int MT, int N, class R, class P, class Release>
WB_DEVICE void multiply(float (&acc)[MT][N / 2], const R& ring, P& at, i32 steps, i32 x_row, i32 w_row, Release release) {
    i32 previous = -1;
    for (i32 step = 0; step < steps; step++) {
        mbar_wait(ring.full + at.stage, at.round);
        u64 x = wgmma_desc_128b(ring.x(at.stage) + x_row * BK), w = wgmma_desc_128b(ring.w(at.stage) + w_row * BK);
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++)
#pragma unroll
            for (int i = 0; i < MT; i++)
                // 64 rows are 8 KB, 512 of the descriptor's units; 16 k-elements are 2.
                Wgmma<T, N>::run(acc[i], x + i * 512 + kk * 2, w + kk * 2, step > 0 || kk > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (previous >= 0) release(previous);
        previous = at.stage;
        at.advance();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < MT; i++) wgmma_pin(acc[i]);
    release(previous);
}

// Stores a consumer's 64 rows from registers. Accumulator 4 j + e: row 16 warp + lane / 4 (+ 8 for e >= 2), column
// 8 j + 2 (lane % 4) + e % 2; with silu_mul columns BN / 2 and on are the up rows of columns 0 and on.
template <class T, int BN> WB_DEVICE void store_registers(const Args<T>& a, const float (&acc)[BN / 2], i32 row0, i32 col0) {
    const i32 cols = a.cols(), warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const bool pairs = a.pairs();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        i32 row = row0 + warp * 16 + lane / 4 + h * 8;
        if (row >= a.m) continue;
        if (pairs) {
            T* out = static_cast<T*>(a.out) + static_cast<i64>(row) * cols;
#pragma unroll
            for (int j = 0; j < BN / 8; j++) {
                i32 col = col0 + j * 8 + lane % 4 * 2;
                if (col < cols)
                    *reinterpret_cast<u32*>(out + col) = pack2<T>(acc[j * 4 + h * 2], acc[j * 4 + h * 2 + 1]);
            }
        } else {
#pragma unroll
            for (int j = 0; j < BN / 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    i32 col = col0 + j * 8 + lane % 4 * 2 + e;
                    float v = acc[j * 4 + h * 2 + e];
                    if (a.silu()) {
                        if (j < BN / 16 && col < cols)
                            a.store(row, col, silu_mul(v, acc[(j + BN / 16) % (BN / 8) * 4 + h * 2 + e]));
                    } else if (col < cols) {
                        a.finish(row, col, v);
                    }
                }
        }
    }
}

// Numbers the tiles so that those in flight together are about square and share operands through L2.
WB_DEVICE void grouped_raster(i32 index, i32 tiles_m, i32 tiles_n, i32 group_rows, i32& tm, i32& tn) {
    i32 per_group = group_rows * tiles_n, group = index / per_group, within = index % per_group;
    i32 left = tiles_m - group * group_rows, rows = left < group_rows ? left : group_rows;
    tm = group * group_rows + within % rows;
    tn = within / rows;
}
