// Hopper, a few rows of x up to 128: a stream of weights past wgmma with the operands swapped. The weights' rows take the
// 64-row side, so that 8 tokens are 8 columns and no padding.
//
// Memory is the bound, so everything here serves the copies. One warp asks for them and does nothing else: a ring of
// stages in shared memory, each `depth` slices of 64 k-elements, weights and x side by side. The first round of weights
// is asked for before the kernel ahead has ended.
//
// How n is cut is up to the host: a tile is any number of weight rows, chosen so that all SMs get the same share, and
// only as wide as the copy box; the 64 rows that a wgmma reads may hold stale rows beyond it, whose sums nobody stores.
// So no tile is spread over blocks that have to wait for each other, but where x would be the larger part of what an SM
// reads: there a cluster shares a tile, each block a part of k, and each adds up the columns that it owns, which the
// others wrote into its shared memory. Always in the same order: the same bits every time.
#include "matmul.cuh"

constexpr i32 BK = 64, WARPGROUP = 128, MAX_STAGES = 16;

// Sums that come from another block. As floats throughout: seen as bits once, ptxas copies the accumulators around every
// wgmma and waits for each.
struct alignas(16) Float4 {
    float v[4];
};

// A wgmma reads 64 rows where `pitch` are its own: past the end of the ring up to this many floats.
template <int N> WB_DEVICE i32 spare_floats(i32 pitch) { return 64 - pitch > N ? (64 - pitch - N) * (BK / 2) : 0; }

// How the host cut the problem.
struct Cut {
    i32 rows;    // Weight rows of a tile; with silu_mul half of them gate rows, half their up rows.
    i32 pitch;   // Rows from one 64-row operand to the next: a multiple of 8, at most 64.
    i32 depth;   // Slices of 64 k-elements in a stage.
    i32 stages;
    i32 turn;    // Whether tiles begin at different places of k, so that SMs do not ask L2 for the same x at the same time.
};

// N columns (rows of x); C consumer warpgroups with MT operands of 64 rows each: operand i of consumer c begins at row
// (i * C + c) * pitch of the tile. With silu_mul MT is 2, and the up rows are operand 1 of who has their gate rows.
template <class T, int N, int MT, int C>
WB_DEVICE void swap_ab(const Args<T>& a, const TensorMapArg* w_map, const TensorMapArg* x_map, const Cut& cut) {
    constexpr i32 GROUPS = N / 8, CONSUMERS = C * WARPGROUP;
    WB_DYN_SHARED(T, shared);
    __shared__ u64 full[MAX_STAGES], empty[MAX_STAGES], received;
    const i32 split = static_cast<i32>(cluster_size()), rank = static_cast<i32>(cluster_rank());
    const i32 warp = __shfl_sync(WB_FULL_MASK, threadIdx.x / 32, 0), consumer = warp / 4;

    const i32 slice = (C * MT * cut.pitch + N) * BK, stage_elements = cut.depth * slice;
    // Column groups of 8 are dealt to the blocks of the cluster, who add them up.
    const i32 share = GROUPS >= split ? GROUPS / split : 1, owners = GROUPS >= split ? split : GROUPS;
    if (threadIdx.x == 0) {
        prefetch_tensormap(w_map);
        prefetch_tensormap(x_map);
        for (i32 s = 0; s < cut.stages; s++) {
            mbar_init(full + s, 1);
            mbar_init(empty + s, C * 4);
        }
        mbar_init(&received, 1);
        fence_mbar_init();
        if (split > 1 && rank < owners) mbar_arrive_expect_tx(&received, (split - 1) * MT * share * CONSUMERS * 16);
    }
    __syncthreads();
    // Until it is known that all blocks of the cluster run, none writes to another.
    if (split > 1) cluster_arrive_relaxed();

    const i32 tile_cols = a.silu() ? cut.rows / 2 : cut.rows;
    const i32 tiles_m = (a.m + N - 1) / N, tiles = tiles_m * ((a.cols() + tile_cols - 1) / tile_cols);
    const i32 cluster = blockIdx.x / split, clusters = gridDim.x / split;
    const i32 chunk = cut.depth * BK, chunks = (a.k + chunk - 1) / chunk;
    const i32 first = static_cast<i64>(chunks) * rank / split;
    const i32 steps = static_cast<i32>(static_cast<i64>(chunks) * (rank + 1) / split) - first;

    if (consumer == C) {
        if (threadIdx.x % 32 == 0) {
            const u32 stage_bytes = cut.depth * (cut.rows + N) * BK * sizeof(T);
            // The one thread that asks is soon the bound: it divides once a tile, and a stage costs it additions.
            const i32 turn = cut.turn && steps > 0 ? cluster * 5 % steps : 0;
            struct Cursor {
                i32 tile, step, stage, row0, col0, k0;
                u32 round;
            };
            auto enter = [&](Cursor& at) {
                at.step = 0;
                at.row0 = at.tile % tiles_m * N, at.col0 = at.tile / tiles_m * tile_cols;
                at.k0 = (first + turn) * chunk;
            };
            auto advance = [&](Cursor& at) {
                at.k0 += chunk;
                if (at.k0 == (first + steps) * chunk) at.k0 = first * chunk;
                if (++at.stage == cut.stages) at.stage = 0, at.round ^= 1;
                if (++at.step == steps) at.tile += clusters, enter(at);
            };
            auto load_w = [&](const Cursor& at) {
                T* to = shared + at.stage * stage_elements;
                mbar_arrive_expect_tx(full + at.stage, stage_bytes);
                for (i32 d = 0, k0 = at.k0; d < cut.depth; d++, k0 += BK, to += slice) {
                    tma_load_2d(to, w_map, full + at.stage, k0, at.col0);
                    if (a.silu()) tma_load_2d(to + C * cut.pitch * BK, w_map, full + at.stage, k0, a.n / 2 + at.col0);
                }
            };
            auto load_x = [&](const Cursor& at) {
                T* to = shared + at.stage * stage_elements + C * MT * cut.pitch * BK;
                for (i32 d = 0, k0 = at.k0; d < cut.depth; d++, k0 += BK, to += slice)
                    tma_load_2d(to, x_map, full + at.stage, k0, at.row0);
            };
            Cursor at{cluster, 0, 0, 0, 0, 0, 0};
            enter(at);
            Cursor ahead = at;
            i32 early = 0;
            if (steps > 0)
                for (; early < cut.stages && ahead.tile < tiles; early++, advance(ahead)) load_w(ahead);
            const bool all = steps == 0 || ahead.tile >= tiles;
            if (all) pdl_launch();
            pdl_wait();
            // x belongs to the kernel before.
            for (i32 s = 0; s < early; s++, advance(at)) load_x(at);
            if (!all) {
                for (; at.tile < tiles; advance(at)) {
                    mbar_wait(empty + at.stage, at.round ^ 1);
                    load_w(at);
                    load_x(at);
                }
                // The next kernel is let in when this one has nothing left to ask for.
                pdl_launch();
            }
        }
        __syncwarp();
        if (split > 1) cluster_wait();
        return;
    }

    const i32 lane = lane_id(), thread = threadIdx.x, fragment_row = warp % 4 * 16 + lane / 4;
    // Where another block's sums for this one lie: 16 bytes for each thread, by sender, operand and column group.
    float* const sums = reinterpret_cast<float*>(shared + cut.stages * stage_elements) + spare_floats<N>(cut.pitch);
    auto slot = [&](i32 sender, i32 i, i32 j) {
        return sums + (((sender * MT + i) * share + j % share) * CONSUMERS + thread) * 4;
    };
    i32 stage = 0;
    u32 round = 0;
    pdl_wait();
    const u64 base = wgmma_desc_128b(shared);
    for (i32 tile = cluster; tile < tiles; tile += clusters) {
        const i32 row0 = tile % tiles_m * N, col0 = tile / tiles_m * tile_cols;
        // Column of accumulators 4 j + 2 h and on of operand i, or -1 where they are stale rows.
        auto column = [&](int i, int h) {
            i32 r = fragment_row + h * 8, at = (i * C + consumer) * cut.pitch + r;
            return r < cut.pitch && at < tile_cols && col0 + at < a.cols() ? col0 + at : -1;
        };
        float acc[MT][N / 2];
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int v = 0; v < N / 2; v++) acc[i][v] = 0.0f;
        for (i32 step = 0; step < steps; step++) {
            mbar_wait(full + stage, round);
            // Sixteen bytes are one of the descriptor's units.
            u64 w = base + (stage * stage_elements + consumer * cut.pitch * BK) / 8;
            u64 x = base + (stage * stage_elements + C * MT * cut.pitch * BK) / 8;
            for (i32 d = 0; d < cut.depth; d++, w += slice / 8, x += slice / 8) {
                wgmma_fence();
#pragma unroll
                for (int kk = 0; kk < BK / 16; kk++)
#pragma unroll
                    for (int i = 0; i < MT; i++)
                        Wgmma<T, N>::run(acc[i], w + i * C * cut.pitch * BK / 8 + kk * 2, x + kk * 2);
                wgmma_commit();
            }
            // Given back at once: to queue the next stage's products first would hold this one until the next has
            // arrived, and what is held is not in flight.
            wgmma_wait<0>();
            if (lane == 0) mbar_arrive(empty + stage);
            if (++stage == cut.stages) stage = 0, round ^= 1;
        }
#pragma unroll
        for (int i = 0; i < MT; i++) wgmma_pin(acc[i]);

        if (split > 1) {
            cluster_wait();
#pragma unroll
            for (int j = 0; j < GROUPS; j++) {
                i32 owner = j / share;
                if (owner == rank) continue;
#pragma unroll
                for (int i = 0; i < MT; i++)
                    st_async16(slot(rank < owner ? rank : rank - 1, i, j), acc[i][j * 4], acc[i][j * 4 + 1],
                               acc[i][j * 4 + 2], acc[i][j * 4 + 3], &received, owner);
            }
            if (rank >= owners) return;
        }
        // This thread's rows of x are first_row + 8 j + e, of which `left` - 8 j exist.
        const i32 first_row = row0 + lane % 4 * 2, left = a.m - first_row;
        auto owned = [&](int j, int e) { return j * 8 + e < left && (split == 1 || j / share == rank); };
        if (a.post == POST_RESIDUAL) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    i32 col = column(i, h);
                    if (col < 0) continue;
                    const T* from = a.residual + static_cast<i64>(first_row) * a.cols() + col;
#pragma unroll
                    for (int j = 0; j < GROUPS; j++, from += 8 * static_cast<i64>(a.cols()))
#pragma unroll
                        for (int e = 0; e < 2; e++)
                            if (owned(j, e)) acc[i][j * 4 + h * 2 + e] += to_float(from[e * static_cast<i64>(a.cols())]);
                }
        }
        if (split > 1) {
            mbar_wait_cluster(&received, 0);
            for (i32 sender = 0; sender < split - 1; sender++)
#pragma unroll
                for (int j = 0; j < GROUPS; j++) {
                    if (j / share != rank) continue;
#pragma unroll
                    for (int i = 0; i < MT; i++) {
                        Float4 part = *reinterpret_cast<const Float4*>(slot(sender, i, j));
#pragma unroll
                        for (int e = 0; e < 4; e++) acc[i][j * 4 + e] += part.v[e];
                    }
                }
        }
#pragma unroll
        for (int i = 0; i < MT; i++) {
            if (i > 0 && a.silu()) break;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                i32 col = column(i, h);
                if (col < 0) continue;
                i64 at = static_cast<i64>(first_row) * a.cols() + col;
#pragma unroll
                for (int j = 0; j < GROUPS; j++, at += 8 * static_cast<i64>(a.cols()))
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float v = acc[i][j * 4 + h * 2 + e];
                        if (a.silu()) v = silu_mul(v, acc[MT - 1][j * 4 + h * 2 + e]);
                        if (owned(j, e)) a.store_at(at + e * static_cast<i64>(a.cols()), v);
                    }
            }
        }
    }
}

// Entry names carry the configuration; tables.rs has the same. B blocks fit an SM by registers, so that the next kernel's
// stand beside this one's.
#define SWAP_AB(T, N, MT, C, B)                                                                                        \
    WB_KERNEL void __launch_bounds__(C * WARPGROUP + 32, B) matmul_swap_ab_##T##_n##N##_r##MT##c##C(                   \
        MATMUL_PARAMS(T), const __grid_constant__ TensorMapArg w_map, const __grid_constant__ TensorMapArg x_map,      \
        i32 rows, i32 pitch, i32 depth, i32 stages, i32 turn) {                                                                  \
        swap_ab<T, N, MT, C>(MATMUL_ARGS(T), &w_map, &x_map, Cut{rows, pitch, depth, stages, turn});                         \
    }                                                                                                                  \
    WB_ENTRY(matmul_swap_ab_##T##_n##N##_r##MT##c##C)

#define SWAP_AB_CUTS(T, N, B)                                                                                          \
    SWAP_AB(T, N, 1, 1, 2)                                                                                             \
    SWAP_AB(T, N, 1, 2, B)                                                                                             \
    SWAP_AB(T, N, 2, 2, B)
#define SWAP_AB_ALL(T)                                                                                                 \
    SWAP_AB_CUTS(T, 8, 2)                                                                                              \
    SWAP_AB_CUTS(T, 16, 2)                                                                                             \
    SWAP_AB_CUTS(T, 32, 2)                                                                                             \
    SWAP_AB_CUTS(T, 64, 2)                                                                                             \
    SWAP_AB_CUTS(T, 128, 1)
SWAP_AB_ALL(bf16)
SWAP_AB_ALL(f16)
