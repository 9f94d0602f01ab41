// A few dozen rows of x: tensor cores, but still a stream of weights. Two ideas make it one:
//
// Operands swapped. The weights' rows take the tensor core's 16-row side and x its 8-column side, so 8 tokens cost 8
// columns, where x on the 16-row side would multiply padding.
//
// Stream-K (Osama et al., 2023). Tiles of 128 weight rows are too few to fill the chip evenly (32 of them for n = 4096),
// so all (tile, 64 of k) units are laid end to end and every block takes an equal run of them. A tile that ends up
// spread over several blocks is added up by whichever of them comes last, always in the order of k: no float atomics,
// the same bits every time. The ring of copies runs across tile borders and never drains.
#include "mma.cuh"

constexpr i32 BR = 128;  // Weight rows of a tile.
constexpr i32 THREADS = 256;

// BM rows of x, in WM columns of warps; 8 / WM rows of warps share the weights.
template <class T, int BM, int WM, int STAGES> WB_DEVICE void skinny(const Args<T>& a, u32* counters, float* pieces) {
    constexpr int WR = 8 / WM, TR = BR / WR, TM = BM / WM, IT = TR / 16, JT = TM / 8;
    static_assert(JT == 1 || JT % 2 == 0, "b fragments come in twos");
    WB_DYN_SHARED(T, shared);
    __shared__ u32 arrived;
    pdl_launch();

    const i32 cols = a.cols(), tile_cols = a.silu() ? BR / 2 : BR;
    const i32 tiles_m = (a.m + BM - 1) / BM, tiles_n = (cols + tile_cols - 1) / tile_cols;
    const i32 steps = (a.k + BK - 1) / BK;
    const i64 units = static_cast<i64>(tiles_m) * tiles_n * steps;
    const i64 blocks = gridDim.x, me = blockIdx.x;
    const i64 begin = units * me / blocks, end = units * (me + 1) / blocks;

    constexpr i32 stage_elements = (BR + BM) * BK;
    // Where a unit lies: its tile, its step along k, its stage in the ring.
    struct Cursor {
        i32 tile, step, stage, left;
        WB_DEVICE void advance(i32 steps) {
            if (++step == steps) step = 0, tile++;
            if (++stage == STAGES) stage = 0;
            left--;
        }
    };
    const Cursor start{static_cast<i32>(begin / steps), static_cast<i32>(begin % steps), 0, static_cast<i32>(end - begin)};
    auto fill_w = [&](const Cursor& at) {
        if (at.left <= 0) return;
        i32 col0 = at.tile / tiles_m * tile_cols;
        fill_tile<T, BR, THREADS>(shared + at.stage * stage_elements, at.step * BK, a.k, a.vec,
                                  share_of_w<T, THREADS>(a, col0));
    };
    auto fill_x = [&](const Cursor& at) {
        if (at.left <= 0) return;
        i32 row0 = at.tile % tiles_m * BM;
        fill_tile<T, BM, THREADS>(shared + at.stage * stage_elements + BR * BK, at.step * BK, a.k, a.vec,
                                  share_of_x<T, THREADS>(a, row0));
    };
    // Weights before the wait; x belongs to the kernel before.
    Cursor ahead = start;
    for (i32 s = 0; s < STAGES - 1; s++, ahead.advance(steps)) fill_w(ahead);
    pdl_wait();
    ahead = start;
    for (i32 s = 0; s < STAGES - 1; s++, ahead.advance(steps)) {
        fill_x(ahead);
        cp_async_commit();
    }

    const i32 wr = warp_id() / WM * TR, wm = warp_id() % WM * TM;
    float acc[IT][JT][4] = {};

    // Stores the finished sums of a tile.
    auto store = [&](i32 tile) {
        i32 row0 = tile % tiles_m * BM, col0 = tile / tiles_m * tile_cols;
#pragma unroll
        for (int i = 0; i < IT; i++)
#pragma unroll
            for (int j = 0; j < JT; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    // Accumulator e: weight row lane / 4 (+ 8 for e >= 2), x row 2 (lane % 4) + e % 2.
                    i32 row = row0 + wm + j * 8 + lane_id() % 4 * 2 + e % 2;
                    i32 r = wr + i * 16 + lane_id() / 4 + e / 2 * 8;
                    if (row >= a.m) continue;
                    if (a.silu()) {
                        i32 col = col0 + r / 16 * 8 + r % 8;
                        if (e < 2 && col < cols) a.store(row, col, silu_mul(acc[i][j][e], acc[i][j][e % 2 + 2]));
                    } else if (col0 + r < cols) {
                        a.finish(row, col0 + r, acc[i][j][e]);
                    }
                }
    };
    // Which block computes a unit, and where it keeps its piece of a tile: a block has at most two pieces, of the tile
    // that it begins in and of the tile that it ends in. A thread's four accumulators of a fragment are 16 bytes.
    auto block_of = [&](i64 unit) { return ((unit + 1) * blocks - 1) / units; };
    auto piece = [&](i64 block, i32 tile) {
        bool first = units * block / blocks / steps == tile;
        return pieces + (block * 2 + (first ? 0 : 1)) * (BR * BM) + threadIdx.x * 4;
    };
    // The end of this block's part of a tile.
    auto finish = [&](i32 tile) {
        i64 first = block_of(static_cast<i64>(tile) * steps), last = block_of(static_cast<i64>(tile + 1) * steps - 1);
        if (first != last) {
            float* own = piece(me, tile);
#pragma unroll
            for (int i = 0; i < IT; i++)
#pragma unroll
                for (int j = 0; j < JT; j++) st16(own + (i * JT + j) * THREADS * 4, pack16<float>(acc[i][j]));
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) {
                arrived = atomic_add_acq_rel(counters + tile, 1);
                // Left as found for the next launch.
                if (arrived == last - first) counters[tile] = 0;
            }
            __syncthreads();
            if (arrived != last - first) return;
            __threadfence();
#pragma unroll
            for (int i = 0; i < IT; i++)
#pragma unroll
                for (int j = 0; j < JT; j++) {
                    float sum[4] = {};
                    for (i64 b = first; b <= last; b++) {
                        float part[4];
                        unpack16<float>(ld16_stream(piece(b, tile) + (i * JT + j) * THREADS * 4), part);
#pragma unroll
                        for (int e = 0; e < 4; e++) sum[e] += part[e];
                    }
#pragma unroll
                    for (int e = 0; e < 4; e++) acc[i][j][e] = sum[e];
                }
        }
        store(tile);
    };

    for (Cursor now = start; now.left > 0; now.advance(steps)) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        fill_w(ahead);
        fill_x(ahead);
        ahead.advance(steps);
        cp_async_commit();
        const T* w_tile = shared + now.stage * stage_elements;
        const T* x_tile = w_tile + BR * BK;
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) {
            u32 w_frag[IT][4], x_frag[JT][2];
#pragma unroll
            for (int i = 0; i < IT; i++) load_a(w_frag[i], w_tile, wr + i * 16, kk);
            if constexpr (JT == 1) {
                ldmatrix_x2(x_frag[0], x_tile + swizzled(wm + lane_id() % 8, kk * 2 + lane_id() / 8 % 2));
            } else {
#pragma unroll
                for (int j = 0; j < JT; j += 2) load_b(x_frag[j], x_frag[j + 1], x_tile, wm + j * 8, kk);
            }
#pragma unroll
            for (int i = 0; i < IT; i++)
#pragma unroll
                for (int j = 0; j < JT; j++) mma_m16n8k16<T>(acc[i][j], w_frag[i], x_frag[j]);
        }
        if (now.step + 1 == steps || now.left == 1) {
            finish(now.tile);
#pragma unroll
            for (int i = 0; i < IT; i++)
#pragma unroll
                for (int j = 0; j < JT; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++) acc[i][j][e] = 0.0f;
        }
    }
    cp_async_wait<0>();
}

// Entry names carry the configuration; choose.rs has the same table. B blocks have to fit an SM (by registers): this
// kernel's and the next one's.
#define SKINNY(T, BM, WM, S, B)                                                                                        \
    WB_KERNEL void __launch_bounds__(THREADS, B) matmul_skinny_##T##_m##BM##_s##S(MATMUL_PARAMS(T), u32* counters,     \
                                                                                  float* pieces) {                     \
        skinny<T, BM, WM, S>(MATMUL_ARGS(T), counters, pieces);                                                        \
    }                                                                                                                  \
    WB_ENTRY(matmul_skinny_##T##_m##BM##_s##S)

#define SKINNY_ALL(T)                                                                                                  \
    SKINNY(T, 8, 1, 6, 2)                                                                                              \
    SKINNY(T, 8, 1, 4, 2)                                                                                              \
    SKINNY(T, 16, 1, 6, 2)                                                                                             \
    SKINNY(T, 16, 1, 4, 2)                                                                                             \
    SKINNY(T, 32, 1, 5, 2)                                                                                             \
    SKINNY(T, 32, 1, 4, 2)                                                                                             \
    SKINNY(T, 64, 2, 4, 2)                                                                                             \
    SKINNY(T, 128, 2, 3, 1)
SKINNY_ALL(bf16)
SKINNY_ALL(f16)
