// Hopper, a few rows of x up to 256: a stream of weights past wgmma with the operands swapped. The weights' rows take the
// 64-row side, so that 8 tokens are 8 columns and no padding.
//
// Memory is the bound, so everything here serves the copies. Two warps ask for them and do nothing else, one for weights,
// one for x: a ring of stages in shared memory, each `depth` slices of 64 k-elements, weights and x side by side. The
// first round of weights is asked for before the kernel ahead has ended.
//
// How n is cut is up to the host: a tile is any number of weight rows, chosen so that all SMs get the same share, and
// only as wide as the copy box; the 64 rows that a wgmma reads may hold stale rows beyond it, whose sums nobody stores.
// So no tile is spread over blocks that have to wait for each other, but where x would be the larger part of what an SM
// reads. There a cluster has two ways out. Its blocks may share a tile, each a part of k: each then adds up the columns
// that it owns, which the others wrote into its shared memory, always in the same order, so the same bits every time. Or
// they have neighbouring tiles and share x: each asks for a part of its rows, which the copy engine delivers to all of
// them (multicast).
//
// The norm of x is folded in so that nothing waits for it: x times the gain, rounded as a normalised x would be, takes x's
// place in the stage, its squares are added up on the way, and the finished sums are scaled by 1 / rms.
#include "matmul.cuh"
#include "../common/ptx_stream.cuh"

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
    i32 rows;     // Weight rows of a tile; with silu_mul half of them gate rows, half their up rows.
    i32 pitch;    // Rows from one 64-row operand to the next: a multiple of 8, at most 64.
    i32 depth;    // Slices of 64 k-elements in a stage.
    i32 stages;
    i32 share;    // Blocks of a cluster that share x; the others share k.
    i32 drained;  // Whether sums go where the ring was, once the whole cluster is done with its rings.
    i32 lead;     // Stages that are still to be asked for when the next kernel is let in.
    i32 turn;     // Whether tiles begin at different places of k, so that SMs do not ask L2 for the same x at the same time.
    i32 once;     // Whether L2 is told that weights are read once.
    i32 gains;    // Where in shared memory the gain of the norm lies, in bytes.
};

// Half precision has no room for x times the gain before it is scaled.
template <class T> constexpr bool WIDE_RANGE = false;
template <> constexpr bool WIDE_RANGE<bf16> = true;

// N columns (rows of x); C consumer warpgroups with MT operands of 64 rows each: operand i of consumer c begins at row
// (i * C + c) * pitch of the tile. With silu_mul MT is 2, and the up rows are operand 1 of who has their gate rows.
template <class T, int N, int MT, int C>
WB_DEVICE void swap_ab(const Args<T>& a, const TensorMapArg* w_map, const TensorMapArg* x_map, const Cut& cut) {
    constexpr i32 GROUPS = N / 8, CONSUMERS = C * WARPGROUP;
    // Pieces of 16 bytes of a slice of x; how many of them a thread normalises, and how often a row has a thread of its
    // own to do it.
    constexpr i32 PIECES = N * 8, EACH = PIECES > CONSUMERS ? PIECES / CONSUMERS : 1;
    constexpr i32 SETS = PIECES < CONSUMERS ? CONSUMERS / PIECES : 1;
    constexpr bool FOLDS = N <= 64 && WIDE_RANGE<T>;
    WB_DYN_SHARED(T, shared);
    __shared__ u64 full[MAX_STAGES], empty[MAX_STAGES], received;
    // A warp's 16 rows of x by 16 columns on their way between registers and memory.
    __shared__ Vec16 turned[C * 4][32];
    __shared__ float squares[FOLDS ? SETS * N : 1];
    const bool folds = FOLDS && a.pre;
    const i32 blocks = static_cast<i32>(cluster_size()), rank = static_cast<i32>(cluster_rank());
    const i32 share = cut.share, split = blocks / share, member = rank % share, part = rank / share;
    const i32 warp = __shfl_sync(WB_FULL_MASK, threadIdx.x / 32, 0), consumer = warp / 4;

    const i32 slice = (C * MT * cut.pitch + N) * BK, stage_elements = cut.depth * slice;
    // Column groups of 8 are dealt to the blocks that share a tile, 2^deal to each, who add them up.
    const i32 owners = GROUPS < split ? GROUPS : split, dealt = GROUPS / owners, deal = 31 - __clz(dealt);
    if (threadIdx.x == 0) {
        prefetch_tensormap(w_map);
        prefetch_tensormap(x_map);
        for (i32 s = 0; s < cut.stages; s++) {
            mbar_init(full + s, 2);
            mbar_init(empty + s, C * 4 * share);
        }
        mbar_init(&received, 1);
        fence_mbar_init();
        if (split > 1 && part < owners) 
            mbar_arrive_expect_tx(&received, (split - 1) * (MT * dealt * CONSUMERS + (folds ? N : 0)) * 16);
    }
    __syncthreads();
    // Until it is known that all blocks of the cluster run, none writes to another.
    if (blocks > 1) cluster_arrive_relaxed();
    // And a second time: no block may end, or take sums into its ring, while others still deliver to it.
    const bool meets = share > 1 || cut.drained;

    const i32 tile_cols = a.silu() ? cut.rows / 2 : cut.rows;
    // A unit is the tiles that a cluster has at a time.
    const i32 tiles_m = (a.m + N - 1) / N, unit_cols = tile_cols * share;
    const i32 units = tiles_m * ((a.cols() + unit_cols - 1) / unit_cols);
    const i32 cluster = blockIdx.x / blocks, clusters = gridDim.x / blocks;
    const i32 chunk = cut.depth * BK, chunks = (a.k + chunk - 1) / chunk;
    const i32 first = static_cast<i64>(chunks) * part / split;
    const i32 steps = static_cast<i32>(static_cast<i64>(chunks) * (part + 1) / split) - first;
    const i32 turn = cut.turn && steps > 0 ? cluster * 5 % steps : 0;

    if (consumer == C) {
        if (N == 256) setmaxnreg_dec<40>();
        const bool asks = elect_one();
        const u32 w_bytes = cut.depth * cut.rows * BK * sizeof(T), x_bytes = cut.depth * N * BK * sizeof(T);
        // A thread that asks is soon the bound: it divides once a tile, and a stage costs it additions.
        const i32 x_rows = N / share;
        const u16 everyone = static_cast<u16>(((1u << share) - 1) << (part * share));
        const u64 policy = l2_evict_first();
        const SharedAt ring_at = shared_address(shared), full_at = shared_address(full), empty_at = shared_address(empty);
        const u32 slice_bytes = slice * sizeof(T), stage_bytes = stage_elements * sizeof(T);
        const u32 up_bytes = C * cut.pitch * BK * sizeof(T);
        const u32 x_offset = (C * MT * cut.pitch + member * x_rows) * BK * sizeof(T);
        struct Cursor {
            i32 unit, step, stage, row0, col0, k0;
            u32 round;
        };
        auto enter = [&](Cursor& at) {
            at.step = 0;
            at.row0 = at.unit % tiles_m * N, at.col0 = at.unit / tiles_m * unit_cols + member * tile_cols;
            at.k0 = (first + turn) * chunk;
        };
        auto advance = [&](Cursor& at) {
            at.k0 += chunk;
            if (at.k0 == (first + steps) * chunk) at.k0 = first * chunk;
            if (++at.stage == cut.stages) at.stage = 0, at.round ^= 1;
            if (++at.step == steps) at.unit += clusters, enter(at);
        };
        auto load_rows = [&](SharedAt to, SharedAt bar, i32 k0, i32 row) {
            if (cut.once)
                tma_load_2d_hint_at(to, w_map, bar, k0, row, policy);
            else
                tma_load_2d_at(to, w_map, bar, k0, row);
        };
        auto load_w = [&](const Cursor& at) {
            SharedAt to = ring_at + at.stage * stage_bytes, bar = full_at + at.stage * 8;
            mbar_arrive_expect_tx_at(bar, w_bytes);
            for (i32 d = 0, k0 = at.k0; d < cut.depth; d++, k0 += BK, to += slice_bytes) {
                load_rows(to, bar, k0, at.col0);
                if (a.silu()) load_rows(to + up_bytes, bar, k0, a.n / 2 + at.col0);
            }
        };
        auto load_x = [&](const Cursor& at) {
            SharedAt to = ring_at + at.stage * stage_bytes + x_offset, bar = full_at + at.stage * 8;
            // With x shared, what the others deliver counts too.
            mbar_arrive_expect_tx_at(bar, x_bytes);
            for (i32 d = 0, k0 = at.k0; d < cut.depth; d++, k0 += BK, to += slice_bytes) {
                if (share == 1)
                    tma_load_2d_at(to, x_map, bar, k0, at.row0);
                else
                    tma_load_2d_multicast_at(to, x_map, bar, everyone, k0, at.row0 + member * x_rows);
            }
        };
        Cursor at{cluster, 0, 0, 0, 0, 0, 0};
        enter(at);
        i32 left = (units - cluster + clusters - 1) / clusters * steps;
        if (asks && warp == C * 4) {
            if (left <= cut.lead) pdl_launch();
            for (; left > 0; advance(at)) {
                mbar_wait_at(empty_at + at.stage * 8, at.round ^ 1);
                load_w(at);
                // The next kernel is let in when this one has little or nothing left to ask for.
                if (--left == cut.lead) pdl_launch();
            }
        }
        __syncwarp();
        if (blocks > 1) cluster_wait();
        if (asks && warp == C * 4 + 1) {
            // x belongs to the kernel before.
            pdl_wait();
            for (; left > 0; left--, advance(at)) {
                mbar_wait_at(empty_at + at.stage * 8, at.round ^ 1);
                load_x(at);
            }
        }
        __syncwarp();
        if (meets) {
            cluster_arrive();
            cluster_wait();
        }
        return;
    }

    // The widest take the registers of a whole warpgroup of which two threads ask for copies.
    if (N == 256) setmaxnreg_inc<232>();
    const i32 lane = lane_id(), thread = threadIdx.x;
    T* const gains = reinterpret_cast<T*>(reinterpret_cast<char*>(shared) + cut.gains);
    if (folds) {
        // A weight: it does not wait for the kernel ahead.
        for (i32 at = thread * 8; at < steps * chunk; at += CONSUMERS * 8) {
            i32 k = first * chunk + at;
            Vec16 v{{0, 0, 0, 0}};
            if (k < a.k) v = a.vec ? ld16_nc(a.norm + k) : load8_any(a.norm + k, a.k - k);
            st16(gains + at, v);
        }
        named_barrier(1, CONSUMERS);
    }
    i32 stage = 0;
    u32 round = 0;
    pdl_wait();
    if (blocks > 1) cluster_wait();
    const u64 base = wgmma_desc_128b(shared);
    const SharedAt full_at = shared_address(full), empty_at = shared_address(empty);
    // Sixteen bytes are one of the descriptor's units.
    const u32 stage_units = stage_elements / 8, slice_units = slice / 8, operand_units = C * cut.pitch * BK / 8;
    const u64 w_base = base + consumer * cut.pitch * BK / 8, x_base = base + C * MT * cut.pitch * BK / 8;
    for (i32 unit = cluster; unit < units; unit += clusters) {
        const i32 row0 = unit % tiles_m * N, col0 = unit / tiles_m * unit_cols + member * tile_cols;
        // The output column of fragment row r of operand i, or -1 where it is a stale row.
        auto column = [&](int i, i32 r) {
            i32 at = (i * C + consumer) * cut.pitch + r;
            return r < cut.pitch && at < tile_cols && col0 + at < a.cols() ? col0 + at : -1;
        };
        float acc[MT][N / 2];
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int v = 0; v < N / 2; v++) acc[i][v] = 0.0f;
        float square[EACH] = {};
        i32 k0 = turn * chunk, held = -1;
        auto give_back = [&] {
            if (share == 1) {
                if (lane == 0) mbar_arrive_at(empty_at + held * 8);
            } else if (lane < share) {
                mbar_arrive_remote_at(empty_at + held * 8, part * share + lane);
            }
        };
        for (i32 step = 0; step < steps; step++) {
            // Products have a latency of several hundred clocks, so the next stage's are queued behind them where it has
            // arrived. Where it has not, the stage is given back first: what is held is not in flight.
            if (held >= 0 && !__shfl_sync(WB_FULL_MASK, static_cast<i32>(mbar_test_at(full_at + stage * 8, round)), 0)) {
                wgmma_wait<0>();
                give_back();
                held = -1;
            }
            mbar_wait_at(full_at + stage * 8, round);
            if (folds) {
                T* const tile = shared + stage * stage_elements + C * MT * cut.pitch * BK;
                for (i32 from = thread; from < cut.depth * PIECES; from += EACH * CONSUMERS) {
#pragma unroll
                    for (int e = 0; e < EACH; e++) {
                        i32 d = (from + e * CONSUMERS) / PIECES, row = (from + e * CONSUMERS) % PIECES / 8, at = thread % 8;
                        T* to = tile + d * slice + row * BK + at * 8;
                        float x[8], gain[8];
                        unpack16<T>(ld16(to), x);
                        // The copy engine's swizzle.
                        unpack16<T>(ld16(gains + k0 + d * BK + (at ^ (row & 7)) * 8), gain);
#pragma unroll
                        for (int v = 0; v < 8; v++) square[e] += x[v] * x[v], x[v] *= gain[v];
                        st16(to, pack16<T>(x));
                    }
                }
                fence_proxy_async();
                named_barrier(1, CONSUMERS);
                k0 += chunk;
                if (k0 == steps * chunk) k0 = 0;
            }
            u64 w = w_base + stage * stage_units, x = x_base + stage * stage_units;
            for (i32 d = 0; d < cut.depth; d++, w += slice_units, x += slice_units) {
                wgmma_fence();
#pragma unroll
                for (int kk = 0; kk < BK / 16; kk++)
#pragma unroll
                    for (int i = 0; i < MT; i++)
                        Wgmma<T, N>::run(acc[i], w + i * operand_units + kk * 2, x + kk * 2);
                wgmma_commit();
                wgmma_wait<1>();
                // With the first slice behind it, the stage before is done.
                if (d == 0 && held >= 0) give_back();
            }
            held = stage;
            if (++stage == cut.stages) stage = 0, round ^= 1;
        }
        wgmma_wait<0>();
        if (held >= 0) give_back();
#pragma unroll
        for (int i = 0; i < MT; i++) wgmma_pin(acc[i]);
        if (folds) {
#pragma unroll
            for (int e = 0; e < EACH; e++) {
#pragma unroll
                for (int step = 1; step < 8; step *= 2) square[e] += __shfl_xor_sync(WB_FULL_MASK, square[e], step);
                // A set of threads has all rows, or all threads have several rows each.
                if (lane % 8 == 0) squares[(thread + e * CONSUMERS) / 8] = square[e];
            }
            named_barrier(1, CONSUMERS);
            if (thread < N)
                for (i32 set = 1; set < SETS; set++) squares[thread] += squares[set * N + thread];
        }

        // Lane and part once more, so that no address is computed before the products and kept through them.
        const i32 late = __shfl_sync(WB_FULL_MASK, lane, lane), self = __shfl_sync(WB_FULL_MASK, part, 0);
        const i32 late_thread = warp * 32 + late, fragment_row = warp % 4 * 16 + late / 4;
        // Where another block's sums for this one lie: 16 bytes for each thread, by sender, operand and column group.
        float* const sums =
            reinterpret_cast<float*>(shared + (cut.drained ? 0 : cut.stages * stage_elements)) +
            (cut.drained ? 0 : spare_floats<N>(cut.pitch));
        auto slot = [&](i32 sender, i32 i, i32 j) {
            return sums + ((((sender * MT + i) << deal) + (j & (dealt - 1))) * CONSUMERS + late_thread) * 4;
        };
        // Outputs whose rows and tiles begin on 16 bytes are turned in shared memory and stored 16 bytes at a time.
        const bool wide = GROUPS > 1 && !a.out_f32 && (a.cols() | tile_cols) % 8 == 0 &&
                          (reinterpret_cast<u64>(a.out) | reinterpret_cast<u64>(a.residual)) % 16 == 0;
        // In the turned piece lane i has 8 columns of row i / 2, and for the matrix instructions a row of 8 columns.
        T* const piece = reinterpret_cast<T*>(turned[warp]);
        T* const piece_own = piece + late / 2 * 16 + late % 2 * 8;
        T* const piece_row = piece + (late / 16 * 8 + late % 8) * 16 + late / 8 % 2 * 8;
        // Sums of squares from another block, by sender.
        auto squares_from = [&](i32 sender) { return sums + (((split - 1) * MT << deal) * CONSUMERS + sender * N + late_thread) * 4; };
        if (split > 1) {
            if (meets) {
                cluster_arrive();
                cluster_wait();
            }
#pragma unroll
            for (int j = 0; j < GROUPS; j++) {
                i32 owner = j >> deal;
                if (owner == self) continue;
#pragma unroll
                for (int i = 0; i < MT; i++)
                    st_async16(slot(self < owner ? self : self - 1, i, j), acc[i][j * 4], acc[i][j * 4 + 1],
                               acc[i][j * 4 + 2], acc[i][j * 4 + 3], &received, owner * share + member);
            }
            if (folds && late_thread < N)
                for (i32 owner = 0; owner < owners; owner++)
                    if (owner != self)
                        st_async16(squares_from(self < owner ? self : self - 1), squares[late_thread], 0.0f, 0.0f, 0.0f, &received,
                                   owner * share + member);
            if (self >= owners) return;
        }
        // This thread's rows of x are first_row + 8 j + e, of which `left` - 8 j exist. The sums of group j are its block's
        // own where j >> deal is its part.
        const i32 first_row = row0 + late % 4 * 2, left = a.m - first_row;
        const i64 stride = a.cols();
        auto owned = [&](int j, int e) { return j * 8 + e < left && j >> deal == self; };
        // Turned, a lane's 8 columns of row j * 8 + lane / 2, which is there where j * 8 is below `rows`.
        auto turned_at = [&](int i, i32& rows) {
            i32 col = column(i, warp % 4 * 16 + late % 2 * 8);
            rows = col < 0 ? 0 : a.m - row0 - late / 2;
            return (row0 + late / 2) * stride + (col < 0 ? 0 : col);
        };
        auto present = [&](int j, i32 rows) { return j * 8 < rows && (j + late / 16) >> deal == self; };
        if (a.post == POST_RESIDUAL && wide) {
            // Loads that are in flight together: each pair of groups holds four registers.
            constexpr int BATCH = MT == 2 ? 2 : GROUPS < 8 ? GROUPS : 8;
#pragma unroll
            for (int i = 0; i < MT; i++) {
                i32 rows;
                const T* from = a.residual + turned_at(i, rows);
#pragma unroll
                for (int batch = 0; batch < GROUPS; batch += BATCH) {
                    Vec16 v[BATCH / 2 + 1];
#pragma unroll
                    for (int j = 0; j + 1 < BATCH; j += 2, from += 16 * stride)
                        v[j / 2] = present(batch + j, rows) ? ld16(from) : Vec16{{0, 0, 0, 0}};
#pragma unroll
                    for (int j = 0; j + 1 < BATCH; j += 2) {
                        u32 r[4];
                        st16(piece_own, v[j / 2]);
                        __syncwarp();
                        ldmatrix_x4_trans(r, piece_row);
                        __syncwarp();
#pragma unroll
                        for (int q = 0; q < 4; q++) {
                            Pair p = unpack2<T>(r[q]);
                            acc[i][(batch + j + q / 2) * 4 + q % 2 * 2] += p.lo;
                            acc[i][(batch + j + q / 2) * 4 + q % 2 * 2 + 1] += p.hi;
                        }
                    }
                }
            }
        } else if (a.post == POST_RESIDUAL) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    i32 col = column(i, fragment_row + h * 8);
                    if (col < 0) continue;
                    const T* from = a.residual + first_row * stride + col;
#pragma unroll
                    for (int j = 0; j < GROUPS; j++, from += 8 * stride)
#pragma unroll
                        for (int e = 0; e < 2; e++)
                            if (owned(j, e)) acc[i][j * 4 + h * 2 + e] += to_float(from[e * stride]);
                }
        }
        if (split > 1) {
            mbar_wait_cluster(&received, 0);
            for (i32 sender = 0; sender < split - 1; sender++)
#pragma unroll
                for (int j = 0; j < GROUPS; j++) {
                    if (j >> deal != self) continue;
#pragma unroll
                    for (int i = 0; i < MT; i++) {
                        Float4 from = *reinterpret_cast<const Float4*>(slot(sender, i, j));
#pragma unroll
                        for (int e = 0; e < 4; e++) acc[i][j * 4 + e] += from.v[e];
                    }
                }
        }
        if (folds) {
            if (late_thread < N) {
                float sum = squares[late_thread];
                for (i32 sender = 0; sender < split - 1; sender++) sum += *squares_from(sender);
                squares[late_thread] = rsqrtf(sum / static_cast<float>(a.k) + a.eps);
            }
            named_barrier(1, CONSUMERS);
#pragma unroll
            for (int v = 0; v < N / 2; v++) {
                float scale = squares[v / 4 * 8 + late % 4 * 2 + v % 2];
#pragma unroll
                for (int i = 0; i < MT; i++) acc[i][v] *= scale;
            }
        }
        if (MT == 2 && a.silu()) {
#pragma unroll
            for (int v = 0; v < N / 2; v++) acc[0][v] = silu_mul(acc[0][v], acc[MT - 1][v]);
        }
#pragma unroll
        for (int i = 0; i < MT; i++) {
            if (i > 0 && a.silu()) break;
            if (wide) {
                i32 rows;
                T* to = static_cast<T*>(a.out) + turned_at(i, rows);
#pragma unroll
                for (int j = 0; j + 1 < GROUPS; j += 2, to += 16 * stride) {
                    u32 r[4];
#pragma unroll
                    for (int q = 0; q < 4; q++) {
                        int v = (j + q / 2) * 4 + q % 2 * 2;
                        r[q] = pack2<T>(acc[i][v], acc[i][v + 1]);
                    }
                    stmatrix_x4_trans(piece_row, r);
                    __syncwarp();
                    Vec16 v = ld16(piece_own);
                    __syncwarp();
                    if (present(j, rows)) st16(to, v);
                }
                continue;
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                i32 col = column(i, fragment_row + h * 8);
                if (col < 0) continue;
                i64 at = first_row * stride + col;
#pragma unroll
                for (int j = 0; j < GROUPS; j++, at += 8 * stride)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        if (owned(j, e)) a.store_at(at + e * stride, acc[i][j * 4 + h * 2 + e]);
            }
        }
    }
    if (share > 1 && split == 1) {
        cluster_arrive();
        cluster_wait();
    }
}

// Entry names carry the configuration; tables.rs has the same. B blocks fit an SM by registers, so that the next kernel's
// stand beside this one's.
#define SWAP_AB(T, N, MT, C, B)                                                                                        \
    WB_KERNEL void __launch_bounds__(C * WARPGROUP + (N == 256 ? WARPGROUP : 64), B) matmul_swap_ab_##T##_n##N##_r##MT##c##C(                   \
        MATMUL_PARAMS(T), const __grid_constant__ TensorMapArg w_map, const __grid_constant__ TensorMapArg x_map,      \
        i32 rows, i32 pitch, i32 depth, i32 stages, i32 share, i32 drained, i32 lead, i32 turn, i32 once, i32 gains) { \
        swap_ab<T, N, MT, C>(MATMUL_ARGS(T), &w_map, &x_map,                                                           \
                             Cut{rows, pitch, depth, stages, share, drained, lead, turn, once, gains});                \
    }                                                                                                                  \
    WB_ENTRY(matmul_swap_ab_##T##_n##N##_r##MT##c##C)

#define SWAP_AB_CUTS(T, N)                                                                                             \
    SWAP_AB(T, N, 1, 1, 2)                                                                                             \
    SWAP_AB(T, N, 1, 2, 2)                                                                                             \
    SWAP_AB(T, N, 2, 2, 2)
#define SWAP_AB_ALL(T)                                                                                                 \
    SWAP_AB_CUTS(T, 8)                                                                                                 \
    SWAP_AB_CUTS(T, 16)                                                                                                \
    SWAP_AB_CUTS(T, 32)                                                                                                \
    SWAP_AB_CUTS(T, 64)                                                                                                \
    SWAP_AB(T, 128, 1, 1, 2)                                                                                           \
    SWAP_AB(T, 128, 1, 2, 1)                                                                                           \
    SWAP_AB(T, 128, 1, 3, 1)                                                                                           \
    SWAP_AB(T, 128, 2, 2, 1)                                                                                           \
    SWAP_AB(T, 256, 1, 2, 1)
SWAP_AB_ALL(bf16)
SWAP_AB_ALL(f16)
