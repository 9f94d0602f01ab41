// Hopper: warpgroup multiplication (wgmma) reads both operands from shared memory, the copy engine (TMA) brings them
// there, and no thread moves data any more. Blocks are persistent, one per SM: while the consumers store one tile the
// producer is already filling the ring for the next.
#include "wgmma.cuh"

constexpr i32 BM = 128;  // Rows of x in a tile: 64 for each consumer.

template <class T, int BN, int STAGES>
WB_DEVICE void wgmma_matmul(const Args<T>& a, const TensorMapArg* x_map, const TensorMapArg* w_map) {
    WB_DYN_SHARED(T, shared);
    __shared__ u64 full[STAGES], empty[STAGES];
    const Ring<T, BM, BN, STAGES> ring{shared, full, empty};
    pdl_launch();
    if (threadIdx.x == 0) {
        prefetch_tensormap(x_map);
        prefetch_tensormap(w_map);
        ring.init(CONSUMERS * 4);
    }
    __syncthreads();

    const i32 tile_cols = a.silu() ? BN / 2 : BN;
    const i32 tiles_m = (a.m + BM - 1) / BM, tiles_n = (a.cols() + tile_cols - 1) / tile_cols;
    const i32 tiles = tiles_m * tiles_n, steps = (a.k + BK - 1) / BK;
    const i32 warpgroup = __shfl_sync(WB_FULL_MASK, threadIdx.x / WARPGROUP, 0);
    Place<STAGES> at;
    pdl_wait();

    if (warpgroup == 0) {
        setmaxnreg_dec<40>();
        if (threadIdx.x == 0) {
            for (i32 t = blockIdx.x; t < tiles; t += gridDim.x) {
                i32 tm, tn;
                grouped_raster(t, tiles_m, tiles_n, 16, tm, tn);
                for (i32 step = 0; step < steps; step++) {
                    // A fresh barrier counts as having completed the round before.
                    mbar_wait(empty + at.stage, at.round ^ 1);
                    mbar_arrive_expect_tx(full + at.stage, ring.stage_bytes);
                    tma_load_2d(ring.x(at.stage), x_map, full + at.stage, step * BK, tm * BM);
                    if (a.silu()) {
                        tma_load_2d(ring.w(at.stage), w_map, full + at.stage, step * BK, tn * tile_cols);
                        tma_load_2d(ring.w(at.stage) + BN / 2 * BK, w_map, full + at.stage, step * BK,
                                    a.n / 2 + tn * tile_cols);
                    } else {
#pragma unroll
                        for (int half = 0; half < 2; half++)
                            tma_load_2d(ring.w(at.stage) + half * (BN / 2) * BK, w_map, full + at.stage, step * BK,
                                        tn * BN + half * (BN / 2));
                    }
                    at.advance();
                }
            }
        }
    } else {
        setmaxnreg_inc<232>();
        const i32 consumer = warpgroup - 1;
        for (i32 t = blockIdx.x; t < tiles; t += gridDim.x) {
            i32 tm, tn;
            grouped_raster(t, tiles_m, tiles_n, 16, tm, tn);
            float acc[1][BN / 2];
            multiply<T, 1, BN>(acc, ring, at, steps, consumer * 64, 0, [&](i32 stage) {
                if (lane_id() == 0) mbar_arrive(empty + stage);
            });
            store_registers<T, BN>(a, acc[0], tm * BM + consumer * 64, tn * tile_cols);
        }
    }
}

// Entry names carry the configuration; choose.rs has the same table.
#define WGMMA(T, BN, S)                                                                                                \
    WB_KERNEL void __launch_bounds__(THREADS, 1)                                                                       \
        matmul_wgmma_##T##_128x##BN##_s##S(MATMUL_PARAMS(T), const __grid_constant__ TensorMapArg x_map,               \
                                           const __grid_constant__ TensorMapArg w_map) {                               \
        wgmma_matmul<T, BN, S>(MATMUL_ARGS(T), &x_map, &w_map);                                                        \
    }                                                                                                                  \
    WB_ENTRY(matmul_wgmma_##T##_128x##BN##_s##S)

WGMMA(bf16, 256, 4)
WGMMA(bf16, 128, 6)
WGMMA(f16, 256, 4)
WGMMA(f16, 128, 6)
