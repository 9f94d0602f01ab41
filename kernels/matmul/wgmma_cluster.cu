// Hopper, the last steps. Two blocks of a cluster multiply neighbouring row-tiles of x with the same rows of w: each
// copies its x and half of w, and the copy engine delivers that half to both (multicast), so that L2 serves 32 KB for
// every 48 KB that arrive. Or, where x is one tile of rows, the same x with neighbouring rows of w.
// And the output leaves through shared memory: stmatrix lays it down swizzled, the copy engine stores it while the
// consumers go on to the next tile.
#include "wgmma.cuh"
#include "../common/ptx_stream.cuh"
#include "../common/ptx_wgmma_96.cuh"

constexpr i32 CHUNK = 64;  // Columns of a stored piece: 128 bytes, one swizzled row.

// Stores a consumer's 64 rows x BN columns in pieces of 64 x 64 through two buffers of 8 KB.
template <class T, int BN>
WB_DEVICE void store_copied(const float (&acc)[BN / 2], T* buffers, const TensorMapArg* out_map, i32 row0, i32 col0,
                            i32 consumer) {
    const i32 warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const bool elected = threadIdx.x % WARPGROUP == 0;
#pragma unroll
    for (int piece = 0; piece < BN / CHUNK; piece++) {
        T* buffer = buffers + piece % 2 * 64 * CHUNK;
        // The copy engine has read what this buffer held two pieces ago.
        if (elected) bulk_wait_read<1>();
        named_barrier(1 + consumer, WARPGROUP);
#pragma unroll
        for (int pair = 0; pair < 4; pair++) {
            u32 r[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                // Registers in the order rows 0-7, rows 8-15 of column group 2 pair, then of 2 pair + 1.
                int at = (piece * 8 + pair * 2 + i / 2) * 4 + i % 2 * 2;
                r[i] = pack2<T>(acc[at], acc[at + 1]);
            }
            i32 row = warp * 16 + lane % 16, group = pair * 2 + lane / 16;
            stmatrix_x4(buffer + row * CHUNK + ((group ^ (row & 7)) * 8), r);
        }
        fence_proxy_async();
        named_barrier(1 + consumer, WARPGROUP);
        if (elected) {
            tma_store_2d(out_map, buffer, col0 + piece * CHUNK, row0);
            bulk_commit();
        }
    }
}

// Tiles that are no whole pieces: each warp turns its 16 rows in a place of its own and stores them 16 bytes at a time.
template <class T, int BN>
WB_DEVICE void store_turned(const Args<T>& a, const float (&acc)[BN / 2], T* buffers, i32 row0, i32 col0) {
    // Eight elements more than a row has, so that rows lie in different banks.
    constexpr i32 PITCH = BN + 8, VECTORS = BN / 8;
    const i32 warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    T* const own = buffers + (threadIdx.x / 32 - 4) * 16 * PITCH;
#pragma unroll
    for (int pair = 0; pair < BN / 16; pair++) {
        u32 r[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = (pair * 2 + i / 2) * 4 + i % 2 * 2;
            r[i] = pack2<T>(acc[at], acc[at + 1]);
        }
        stmatrix_x4(own + lane % 16 * PITCH + (pair * 2 + lane / 16) * 8, r);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * VECTORS / 32; i++) {
        i32 v = i * 32 + lane, row = row0 + warp * 16 + v / VECTORS, col = col0 + v % VECTORS * 8;
        if (row < a.m && col < a.n)
            st16(static_cast<T*>(a.out) + static_cast<i64>(row) * a.n + col,
                 ld16(own + v / VECTORS * PITCH + v % VECTORS * 8));
    }
    __syncwarp();
}

// BM rows of x in a tile, 64 for each consumer. XS: the blocks of a cluster share x, else w.
template <class T, int BM, int BN, int STAGES, bool XS>
WB_DEVICE void wgmma_cluster(const Args<T>& a, const TensorMapArg* x_map, const TensorMapArg* w_map,
                             const TensorMapArg* out_map, i32 copied) {
    WB_DYN_SHARED(T, shared);
    __shared__ u64 full[STAGES], empty[STAGES];
    const Ring<T, BM, BN, STAGES> ring{shared, full, empty};
    T* out_buffers = shared + STAGES * ring.stage_elements;
    const u32 rank = cluster_rank();
    pdl_launch();
    if (threadIdx.x == 0) {
        prefetch_tensormap(x_map);
        prefetch_tensormap(w_map);
        if (copied) prefetch_tensormap(out_map);
        // The consumers of both blocks read what this block's copies fill.
        ring.init(2 * (BM / 64) * 4);
    }
    // The barriers' initial state was published by its own fence.
    __syncthreads();
    cluster_arrive_relaxed();
    cluster_wait();

    const i32 tile_cols = a.silu() ? BN / 2 : BN;
    // The tiles of a cluster lie one below the other, or side by side.
    const i32 rows = XS ? BM : 2 * BM, cols = XS ? 2 * tile_cols : tile_cols;
    const i32 own_row = XS ? 0 : rank * BM, own_col = XS ? rank * tile_cols : 0;
    const i32 tiles_m = (a.m + rows - 1) / rows, tiles_n = (a.cols() + cols - 1) / cols;
    const i32 tiles = tiles_m * tiles_n, steps = (a.k + BK - 1) / BK;
    const i32 first = blockIdx.x / 2, stride = gridDim.x / 2;
    const i32 warpgroup = __shfl_sync(WB_FULL_MASK, threadIdx.x / WARPGROUP, 0);
    Place<STAGES> at;

    if (warpgroup == 0) {
        if (BM == 128) setmaxnreg_dec<40>();
        if (threadIdx.x < 32 && elect_one()) {
            struct Cursor {
                i32 tile, step, row0, col0;
            };
            auto enter = [&](Cursor& c) {
                i32 tm, tn;
                grouped_raster(c.tile, tiles_m, tiles_n, 8, tm, tn);
                c.row0 = tm * rows + own_row, c.col0 = tn * cols + own_col;
            };
            auto advance = [&](Cursor& c) {
                at.advance();
                if (++c.step < steps) return;
                c.step = 0, c.tile += stride;
                if (c.tile < tiles) enter(c);
            };
            // Half of a tile's rows of w: with silu_mul gate rows, and the up rows beside them.
            auto w_row = [&](const Cursor& c, i32 half) { return c.col0 + half * (a.silu() ? a.n / 2 : BN / 2); };
            auto load_w = [&](const Cursor& c) {
                // What the other block delivers counts here too.
                mbar_arrive_expect_tx(full + at.stage, ring.stage_bytes);
                T* to = ring.w(at.stage);
                if (XS) {
                    tma_load_2d(to, w_map, full + at.stage, c.step * BK, w_row(c, 0));
                    tma_load_2d(to + BN / 2 * BK, w_map, full + at.stage, c.step * BK, w_row(c, 1));
                } else {
                    tma_load_2d_multicast(to + rank * (BN / 2) * BK, w_map, full + at.stage, 3, c.step * BK,
                                          w_row(c, rank));
                }
            };
            auto load_x = [&](const Cursor& c) {
                T* to = ring.x(at.stage);
                if (XS)
                    tma_load_2d_multicast(to + rank * (BM / 2) * BK, x_map, full + at.stage, 3, c.step * BK,
                                          c.row0 + rank * (BM / 2));
                else
                    tma_load_2d(to, x_map, full + at.stage, c.step * BK, c.row0);
            };
            const i32 total = (tiles - first + stride - 1) / stride * steps, ahead = total < STAGES ? total : STAGES;
            Cursor c{first, 0, 0, 0};
            enter(c);
            // A round of weights before the wait: they are nobody's output. x belongs to the kernel before.
            const Cursor begin = c;
            for (i32 s = 0; s < ahead; s++, advance(c)) load_w(c);
            pdl_wait();
            c = begin, at = Place<STAGES>();
            for (i32 s = 0; s < ahead; s++, advance(c)) load_x(c);
            for (i32 s = ahead; s < total; s++, advance(c)) {
                mbar_wait(empty + at.stage, at.round ^ 1);
                load_w(c);
                load_x(c);
            }
        }
    } else {
        // A single consumer has enough as it is.
        if (BM == 128) setmaxnreg_inc<232>();
        // What the kernel before wrote, or still reads, is this one's to overwrite only now.
        pdl_wait();
        const i32 consumer = warpgroup - 1;
        for (i32 t = first; t < tiles; t += stride) {
            i32 tm, tn;
            grouped_raster(t, tiles_m, tiles_n, 8, tm, tn);
            float acc[1][BN / 2];
            multiply<T, 1, BN>(acc, ring, at, steps, consumer * 64, 0, [&](i32 stage) {
                // One lane for each block.
                if (lane_id() < 2) mbar_arrive_remote(empty + stage, lane_id());
            });
            i32 row0 = tm * rows + own_row + consumer * 64, col0 = tn * cols + own_col;
            if (copied) {
                if constexpr (BN % CHUNK == 0)
                    store_copied<T, BN>(acc[0], out_buffers + consumer * 2 * 64 * CHUNK, out_map, row0, col0, consumer);
                else
                    store_turned<T, BN>(a, acc[0], out_buffers, row0, col0);
            } else {
                store_registers<T, BN>(a, acc[0], row0, col0);
            }
        }
        if (copied && threadIdx.x % WARPGROUP == 0) bulk_wait<0>();
    }
    // No block may end while the other still delivers to it or arrives at its barriers.
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
}

// Entry names carry the configuration; tables.rs has the same table.
#define WGMMA(T, BM, BN, S, SHARES_X, SUFFIX)                                                                          \
    WB_KERNEL void __launch_bounds__((1 + BM / 64) * WARPGROUP, 1)                                                     \
        matmul_wgmma_cluster_##T##_##BM##x##BN##_s##S##SUFFIX(                                                         \
            MATMUL_PARAMS(T), const __grid_constant__ TensorMapArg x_map, const __grid_constant__ TensorMapArg w_map,  \
            const __grid_constant__ TensorMapArg out_map, i32 copied) {                                                \
        wgmma_cluster<T, BM, BN, S, SHARES_X>(MATMUL_ARGS(T), &x_map, &w_map, &out_map, copied);                       \
    }                                                                                                                  \
    WB_ENTRY(matmul_wgmma_cluster_##T##_##BM##x##BN##_s##S##SUFFIX)
#define SHARES_W(BM, BN, S) WGMMA(bf16, BM, BN, S, false, ) WGMMA(f16, BM, BN, S, false, )
#define SHARES_X(BM, BN, S) WGMMA(bf16, BM, BN, S, true, _x) WGMMA(f16, BM, BN, S, true, _x)

SHARES_W(128, 256, 4)
SHARES_W(128, 128, 6)
SHARES_W(128, 96, 7)
SHARES_W(128, 64, 8)
SHARES_W(64, 96, 10)
SHARES_W(64, 128, 8)
SHARES_X(128, 256, 4)
