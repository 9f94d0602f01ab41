// Hopper for 33 to 256 rows of x: the tensor cores of wgmma with the even split of `skinny`. Up to 256 rows the weights
// are still the larger part of the traffic, and mma.sync can no longer keep up: each of its warps reads fragments from
// shared memory that wgmma reads once for all four. All rows of x stand in one tile, so every weight is read once.
//
// The (tile, 64 of k) units are laid end to end and each block takes an equal run. Tiles that are spread over several
// blocks are added in the order of k by whichever comes last, each consumer warpgroup for its own part.
#include "wgmma.cuh"

constexpr i32 BN = 128;  // Rows of w in a tile.

// Accumulators on their way to another block. As floats throughout: seen as bits once, ptxas copies the registers around
// every wgmma and waits for each.
struct alignas(16) Float4 {
    float v[4];
};

// Consumers split the rows of x, or with 64 rows of x the rows of w.
template <class T, int BM, int STAGES>
WB_DEVICE void wgmma_streamk(const Args<T>& a, const TensorMapArg* x_map, const TensorMapArg* w_map, u32* counters,
                             float* pieces) {
    constexpr int MT = BM == 256 ? 2 : 1, N = BM == 64 ? 64 : 128, PIECE = BM * BN / CONSUMERS;
    // With silu_mul a consumer's rows of w are N / 2 gate rows, then their up rows: both in one thread's accumulators.
    constexpr i32 BOX = N / 2, X_BOX = BM < 128 ? BM : 128;
    WB_DYN_SHARED(T, shared);
    __shared__ u64 full[STAGES], empty[STAGES];
    __shared__ u32 arrived[CONSUMERS];
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
    const i32 steps = (a.k + BK - 1) / BK;
    // Fewer than 2^31 units (choose.rs sees to it); their products with block numbers are 64 bits wide.
    const i64 units = static_cast<i64>(tiles_m) * tiles_n * steps, blocks = gridDim.x;
    const i32 me = blockIdx.x, begin = static_cast<i32>(units * me / blocks), end = static_cast<i32>(units * (me + 1) / blocks);
    const i32 warpgroup = __shfl_sync(WB_FULL_MASK, threadIdx.x / WARPGROUP, 0);
    Place<STAGES> at;

    if (warpgroup == 0) {
        setmaxnreg_dec<40>();
        if (threadIdx.x == 0) {
            auto load_w = [&](i32 unit, i32 stage) {
                i32 tile = unit / steps, k0 = unit % steps * BK;
                i32 col0 = tile / tiles_m * tile_cols;
                mbar_arrive_expect_tx(full + stage, ring.stage_bytes);
#pragma unroll
                for (int b = 0; b < BN / BOX; b++) {
                    i32 row = a.silu() ? b % 2 * (a.n / 2) + col0 + b / 2 * BOX : col0 + b * BOX;
                    tma_load_2d(ring.w(stage) + b * BOX * BK, w_map, full + stage, k0, row);
                }
            };
            auto load_x = [&](i32 unit, i32 stage) {
                i32 tile = unit / steps, k0 = unit % steps * BK;
#pragma unroll
                for (int b = 0; b < BM / X_BOX; b++)
                    tma_load_2d(ring.x(stage) + b * X_BOX * BK, x_map, full + stage, k0, tile % tiles_m * BM + b * X_BOX);
            };
            // The first round of weights before the wait; x belongs to the kernel before.
            for (i32 s = 0; s < STAGES && begin + s < end; s++) load_w(begin + s, s);
            pdl_wait();
            for (i32 unit = begin; unit < end; unit++) {
                if (unit - begin >= STAGES) {
                    mbar_wait(empty + at.stage, at.round ^ 1);
                    load_w(unit, at.stage);
                }
                load_x(unit, at.stage);
                at.advance();
            }
        }
        return;
    }

    setmaxnreg_inc<232>();
    pdl_wait();
    const i32 consumer = warpgroup - 1, thread = threadIdx.x % WARPGROUP;
    const i32 x_row = BM == 64 ? 0 : consumer * (BM / 2), w_row = BM == 64 ? consumer * N : 0;
    // Which block computes a unit, and where it keeps its part of a tile: it has at most two, of the tile that it begins
    // in and of the tile that it ends in.
    auto block_of = [&](i64 unit) { return ((unit + 1) * blocks - 1) / units; };
    auto piece = [&](i64 block, i32 tile) {
        i64 slot = block * 2 + (units * block / blocks / steps == tile ? 0 : 1);
        return pieces + (slot * CONSUMERS + consumer) * PIECE + thread * 4;
    };
    for (i32 unit = begin; unit < end;) {
        const i32 tile = unit / steps, step = unit % steps, here = end - unit < steps - step ? end - unit : steps - step;
        float acc[MT][N / 2];
        multiply<T, MT, N>(acc, ring, at, here, x_row, w_row, [&](i32 stage) {
            if (lane_id() == 0) mbar_arrive(empty + stage);
        });
        unit += here;

        const i64 first = block_of(static_cast<i64>(tile) * steps), last = block_of(static_cast<i64>(tile + 1) * steps - 1);
        if (first != last) {
            float* own = piece(me, tile);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int v = 0; v < N / 8; v++)
                    *reinterpret_cast<Float4*>(own + (i * (N / 8) + v) * WARPGROUP * 4) =
                        Float4{acc[i][v * 4], acc[i][v * 4 + 1], acc[i][v * 4 + 2], acc[i][v * 4 + 3]};
            __threadfence();
            named_barrier(1 + consumer, WARPGROUP);
            if (thread == 0) {
                u32* counter = counters + tile * CONSUMERS + consumer;
                arrived[consumer] = atomic_add_acq_rel(counter, 1);
                // Left as found for the next launch.
                if (arrived[consumer] == last - first) *counter = 0;
            }
            named_barrier(1 + consumer, WARPGROUP);
            if (arrived[consumer] != last - first) continue;
            __threadfence();
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int v = 0; v < N / 8; v++)
#pragma unroll
                    for (int e = 0; e < 4; e++) acc[i][v * 4 + e] = 0.0f;
            for (i64 b = first; b <= last; b++) {
                const float* part = piece(b, tile);
#pragma unroll
                for (int i = 0; i < MT; i++)
#pragma unroll
                    for (int v = 0; v < N / 8; v++) {
                        Float4 f = *reinterpret_cast<const Float4*>(part + (i * (N / 8) + v) * WARPGROUP * 4);
#pragma unroll
                        for (int e = 0; e < 4; e++) acc[i][v * 4 + e] += f.v[e];
                    }
            }
        }
        const i32 row0 = tile % tiles_m * BM + x_row, col0 = tile / tiles_m * tile_cols + (a.silu() ? w_row / 2 : w_row);
#pragma unroll
        for (int i = 0; i < MT; i++) store_registers<T, N>(a, acc[i], row0 + i * 64, col0);
    }
}

// Entry names carry the configuration; choose.rs has the same table.
#define WGMMA(T, BM, S)                                                                                                \
    WB_KERNEL void __launch_bounds__(THREADS, 1)                                                                       \
        matmul_wgmma_streamk_##T##_m##BM##_s##S(MATMUL_PARAMS(T), const __grid_constant__ TensorMapArg x_map,          \
                                                const __grid_constant__ TensorMapArg w_map, u32* counters,             \
                                                float* pieces) {                                                       \
        wgmma_streamk<T, BM, S>(MATMUL_ARGS(T), &x_map, &w_map, counters, pieces);                                     \
    }                                                                                                                  \
    WB_ENTRY(matmul_wgmma_streamk_##T##_m##BM##_s##S)

#define WGMMA_ALL(T)                                                                                                   \
    WGMMA(T, 64, 6)                                                                                                    \
    WGMMA(T, 64, 8)                                                                                                    \
    WGMMA(T, 128, 6)                                                                                                   \
    WGMMA(T, 256, 4)
WGMMA_ALL(bf16)
WGMMA_ALL(f16)
