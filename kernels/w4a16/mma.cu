// Many rows of x: the tensor-core tile. A block takes 128 rows of weights and all (up to 64) columns of x; four warps
// split its rows, two the columns of k; weights and x come through cp.async stages.
//
// Every weight fragment serves NB column blocks and every x fragment two weight tiles, which keeps shared memory under the
// tensor core's time. The work (row blocks times steps along k) is dealt to the blocks in equal runs, wherever tiles end
// (stream-K): all multiprocessors finish together at any n. Tiles that several blocks share are summed by the last to
// arrive, in the order of k: the result does not depend on who that is.
#include "../common/wb.cuh"
#include "convert.cuh"

constexpr u32 kTile = 16, kChunk = 128, kChunkBytes = 1024;
constexpr u32 kRowWarps = 4, kDepthWarps = 2, kWarpTiles = 2, kThreads = 256;
constexpr u32 kStepColumns = kDepthWarps * kChunk;
constexpr u32 kXStride = kStepColumns * 2 + 64;  // 64 mod 128: 16-byte loads of two rows touch every bank once
// A warp's share of a stage: weights, scales and zero points of its tiles.
constexpr u32 kWarpScales = kWarpTiles * 4 * 32, kWarpZeros = kWarpTiles * 32;
constexpr u32 kWarpStage = kWarpTiles * kChunkBytes + kWarpScales + kWarpZeros;
enum { POST_NONE = 0, POST_RESIDUAL = 1, POST_SILU_MUL = 2 };

template <class T> struct MmaArgs {
    const u8* qweight;
    const u8* scales;
    const u8* zeros;
    const T* x;
    const T* residual;
    void* out;
    float* partial;  // [gridDim.y][gridDim.x][2][sums of a tile]
    u32* counters;   // [gridDim.y][items], zero before and after
    u32 m, n, k, x_stride, chunks, groups, zero_groups, per_chunk;
    i32 asym, post, out_f32;
};

// A run of work: steps [first, last) of the sequence item 0 step 0, item 0 step 1, ...
WB_DEVICE u32 run_begin(u32 block, u32 blocks, u32 total) {
    return static_cast<u32>(static_cast<u64>(total) * block / blocks);
}
// The block whose run holds a step.
WB_DEVICE u32 block_of(u32 step, u32 blocks, u32 total) {
    return static_cast<u32>(((static_cast<u64>(step) + 1) * blocks - 1) / total);
}

// Waits for the oldest of `pending` groups of copies (1 to 4); the count must be known to the compiler.
WB_DEVICE void wait_for_oldest(u32 pending) {
    if (pending == 1) return cp_async_wait<0>();
    if (pending == 2) return cp_async_wait<1>();
    if (pending == 3) return cp_async_wait<2>();
    cp_async_wait<3>();
}

template <class T, int NB> WB_DEVICE void mma_tile(const MmaArgs<T>& a, u32 stages) {
    WB_DYN_SHARED(u8, shared);
    constexpr u32 kX = NB * 8 * kXStride, kStage = 8 * kWarpStage + kX;
    float* fold = reinterpret_cast<float*>(shared + stages * kStage);  // [row warp][value][lane] of four floats
    __shared__ u32 arrived;
    const u32 warp = warp_id(), lane = lane_id(), g = lane >> 2, c = lane & 3;
    const u32 row_warp = warp % kRowWarps, depth_warp = warp / kRowWarps;
    const u32 tiles = (a.n + kTile - 1) / kTile;
    const bool silu = a.post == POST_SILU_MUL;
    // A warp's two tiles: neighbours four apart, or a gate tile and its up tile.
    const u32 item_tiles = silu ? kRowWarps : kRowWarps * kWarpTiles;
    const u32 apart = silu ? tiles / 2 : kRowWarps;
    const u32 items = ((silu ? tiles / 2 : tiles) + item_tiles - 1) / item_tiles;
    const u32 steps = (a.chunks + kDepthWarps - 1) / kDepthWarps, total = items * steps;
    const u32 first = run_begin(blockIdx.x, gridDim.x, total), last = run_begin(blockIdx.x + 1, gridDim.x, total);
    const u32 m0 = blockIdx.y * NB * 8;

    auto tile_of = [&](u32 item, u32 r) { return item * item_tiles + row_warp + r * apart; };
    auto real = [&](u32 item, u32 tile) {
        return tile < tiles && (!silu || item * item_tiles + row_warp < tiles / 2);
    };
    // This warp's weights, scales and zero points of a step.
    auto load_weights = [&](u32 unit, u32 slot) {
        const u32 item = unit / steps, chunk = unit % steps * kDepthWarps + depth_warp;
        u8* to = shared + slot * kStage + warp * kWarpStage;
#pragma unroll
        for (u32 r = 0; r < kWarpTiles; r++) {
            const u32 tile = tile_of(item, r);
            const bool there = chunk < a.chunks && real(item, tile);
            const u64 at = there ? static_cast<u64>(tile) * a.chunks + chunk : 0;
            const u8* w = a.qweight + at * kChunkBytes + lane * 16;
            cp_async16(to + r * kChunkBytes + lane * 16, w, there);
            cp_async16(to + r * kChunkBytes + 512 + lane * 16, w + 512, there);
            const u32 group = a.groups == 1 || !there ? 0 : chunk * a.per_chunk;
            const u64 scales = (there ? static_cast<u64>(tile) * a.groups + group : 0) * 32;
            if (lane < 2 * a.per_chunk)
                cp_async16(to + kWarpTiles * kChunkBytes + r * 128 + lane * 16, a.scales + scales + lane * 16, there);
            // Pairs of groups: the layout pads zero points to 16 bytes.
            const u64 zeros = (there ? static_cast<u64>(tile) * a.zero_groups + (group & ~1u) : 0) * 8;
            if (a.asym && lane < (a.per_chunk + 1) / 2)
                cp_async16(to + kWarpTiles * kChunkBytes + kWarpScales + r * 32 + lane * 16, a.zeros + zeros + lane * 16,
                           there);
        }
    };
    // The block's x of a step: NB * 8 rows, zero beyond m and k.
    auto load_x = [&](u32 unit, u32 slot) {
        const u32 k0 = unit % steps * kStepColumns;
        u8* to = shared + slot * kStage + 8 * kWarpStage;
#pragma unroll
        for (u32 i = 0; i < NB; i++) {
            const u32 at = threadIdx.x + i * kThreads, row = at / 32, col = k0 + at % 32 * 8;
            const bool there = m0 + row < a.m && col < a.k;
            const T* src = there ? a.x + static_cast<u64>(m0 + row) * a.x_stride + col : a.x;
            cp_async16(to + row * kXStride + at % 32 * 16, src, there);
        }
    };

    float acc[kWarpTiles][NB][4] = {};
    auto compute = [&](u32 unit, u32 slot) {
        const u8* stage = shared + slot * kStage + warp * kWarpStage;
        const u8* xs = shared + slot * kStage + 8 * kWarpStage + g * kXStride + depth_warp * (kChunk * 2) + c * 16;
        const u32 run = 4 / a.per_chunk;
        const u32 odd = a.per_chunk == 1 && a.groups != 1 ? (unit % steps * kDepthWarps + depth_warp) & 1 : 0;
        float d[kWarpTiles][NB][4] = {};
        u32 top[kWarpTiles], bottom[kWarpTiles];
        Vec16 w[kWarpTiles];
#pragma unroll
        for (u32 j = 0; j < 4; j++) {  // 32 columns each
            const u32 group = j / run;
            if (j % run == 0) {
#pragma unroll
                for (u32 r = 0; r < kWarpTiles; r++) {
                    const u32 z = a.asym ? stage[kWarpTiles * kChunkBytes + kWarpScales + r * 32 + (group + odd) * 8 + g]
                                         : 0x88u;
                    top[r] = zero_of<T>(z & 15u);
                    bottom[r] = zero_of<T>(z >> 4);
                }
            }
            u32 f[kWarpTiles][2][4];
#pragma unroll
            for (u32 r = 0; r < kWarpTiles; r++) {
                if (j % 2 == 0) w[r] = ld16(stage + r * kChunkBytes + j / 2 * 512 + lane * 16);
#pragma unroll
                for (u32 i = 0; i < 2; i++) dequant_word_exact<T>(f[r][i], w[r].w[j % 2 * 2 + i], top[r], bottom[r]);
            }
#pragma unroll
            for (u32 b = 0; b < NB; b++) {
                const Vec16 x = ld16(xs + b * 8 * kXStride + j * 64);
#pragma unroll
                for (u32 i = 0; i < 2; i++) {
                    const u32 bf[2] = {x.w[2 * i], x.w[2 * i + 1]};
#pragma unroll
                    for (u32 r = 0; r < kWarpTiles; r++) mma_m16n8k16<T>(d[r][b], f[r][i], bf);
                }
            }
            if ((j + 1) % run == 0) {
#pragma unroll
                for (u32 r = 0; r < kWarpTiles; r++) {
                    const u8* at = stage + kWarpTiles * kChunkBytes + r * 128 + group * 32 + g * 4;
                    const Pair s = unpack2<T>(*reinterpret_cast<const u32*>(at));
#pragma unroll
                    for (u32 b = 0; b < NB; b++) {
#pragma unroll
                        for (u32 e = 0; e < 4; e++) {
                            acc[r][b][e] = fmaf(e < 2 ? s.lo : s.hi, d[r][b][e], acc[r][b][e]);
                            d[r][b][e] = 0.0f;
                        }
                    }
                }
            }
        }
    };

    auto store = [&](u32 item) {
#pragma unroll
        for (u32 r = 0; r < kWarpTiles; r++) {
            if (silu && r == 1) break;
            const u32 width = silu ? a.n / 2 : a.n, tile = tile_of(item, r);
#pragma unroll
            for (u32 b = 0; b < NB; b++) {
#pragma unroll
                for (u32 e = 0; e < 4; e++) {
                    const u32 row = tile * kTile + g + (e / 2) * 8, col = m0 + b * 8 + 2 * c + e % 2;
                    if (row >= width || col >= a.m || !real(item, tile)) continue;
                    const u64 at = static_cast<u64>(col) * width + row;
                    float v = acc[r][b][e];
                    if (silu) v = v / (1.0f + __expf(-v)) * acc[1][b][e];
                    if (a.post == POST_RESIDUAL) v += to_float(a.residual[at]);
                    if (a.out_f32)
                        static_cast<float*>(a.out)[at] = v;
                    else
                        static_cast<T*>(a.out)[at] = from_float<T>(v);
                }
            }
        }
    };

    // Tile sums as four floats a lane: value v of row warp w at [(w * VALUES + v) * 32 + lane].
    constexpr u32 VALUES = kWarpTiles * NB, kTileSums = kRowWarps * VALUES * 32 * 4;
    auto finish = [&](u32 unit) {
        const u32 item = unit / steps;
        Vec16* shelf = reinterpret_cast<Vec16*>(fold) + row_warp * VALUES * 32 + lane;
        if (depth_warp == 1) {
#pragma unroll
            for (u32 v = 0; v < VALUES; v++) shelf[v * 32] = pack16<float>(acc[v / NB][v % NB]);
        }
        __syncthreads();
        if (depth_warp == 0) {
#pragma unroll
            for (u32 v = 0; v < VALUES; v++) {
                float other[4];
                unpack16<float>(shelf[v * 32], other);
#pragma unroll
                for (u32 e = 0; e < 4; e++) acc[v / NB][v % NB][e] += other[e];
            }
        }
        const u32 begin = item * steps, end = begin + steps;
        const u32 from = block_of(begin, gridDim.x, total), to = block_of(end - 1, gridDim.x, total);
        if (from == to) {
            if (depth_warp == 0) store(item);
        } else {
            // A block has at most two shared tiles: the one its run begins in and the one it ends in.
            auto place = [&](u32 block) {
                const u32 which = run_begin(block, gridDim.x, total) <= begin ? 1 : 0;
                return a.partial + ((static_cast<u64>(blockIdx.y) * gridDim.x + block) * 2 + which) * kTileSums +
                       (row_warp * VALUES * 32 + lane) * 4;
            };
            if (depth_warp == 0) {
                float* mine = place(blockIdx.x);
#pragma unroll
                for (u32 v = 0; v < VALUES; v++) st16(mine + v * 128, pack16<float>(acc[v / NB][v % NB]));
            }
            __threadfence();
            __syncthreads();
            u32* counter = a.counters + blockIdx.y * items + item;
            if (threadIdx.x == 0) arrived = atomic_add_acq_rel(counter, 1);
            __syncthreads();
            if (arrived == to - from) {
                __threadfence();
                if (depth_warp == 0) {
#pragma unroll
                    for (u32 v = 0; v < VALUES; v++) {
#pragma unroll
                        for (u32 e = 0; e < 4; e++) acc[v / NB][v % NB][e] = 0.0f;
                    }
                    for (u32 block = from; block <= to; block++) {
                        const float* theirs = place(block);
#pragma unroll
                        for (u32 v = 0; v < VALUES; v++) {
                            float p[4];
                            unpack16<float>(ld16_stream(theirs + v * 128), p);
#pragma unroll
                            for (u32 e = 0; e < 4; e++) acc[v / NB][v % NB][e] += p[e];
                        }
                    }
                    store(item);
                }
                if (threadIdx.x == 0) st_release(counter, 0);
            }
        }
#pragma unroll
        for (u32 v = 0; v < VALUES; v++) {
#pragma unroll
            for (u32 e = 0; e < 4; e++) acc[v / NB][v % NB][e] = 0.0f;
        }
    };

    // Weights do not depend on the kernel before: ask for them first.
    for (u32 s = 0; s + 1 < stages; s++) {
        if (first + s < last) load_weights(first + s, s);
    }
    pdl_launch();
    pdl_wait();
    for (u32 s = 0; s + 1 < stages; s++) {
        if (first + s < last) load_x(first + s, s);
        cp_async_commit();
    }
    u32 slot = 0;
    for (u32 unit = first; unit < last; unit++) {
        wait_for_oldest(stages - 1);
        // Everybody's copies of this step have landed, and everybody has left the slot that is filled next.
        __syncthreads();
        const u32 ahead = unit + stages - 1, free_slot = slot == 0 ? stages - 1 : slot - 1;
        if (ahead < last) {
            load_weights(ahead, free_slot);
            load_x(ahead, free_slot);
        }
        cp_async_commit();
        compute(unit, slot);
        if (++slot == stages) slot = 0;
        if (unit + 1 == last || (unit + 1) % steps == 0) finish(unit);
    }
    cp_async_wait<0>();
}

#define ENTRY(NAME, T, NB, BLOCKS)                                                                                     \
    WB_KERNEL void __launch_bounds__(kThreads, BLOCKS)                                                                 \
        NAME(const u8* qweight, const u8* scales, const u8* zeros, const T* x, const T* residual, void* out,           \
             float* partial, u32* counters, u32 m, u32 n, u32 k, u32 x_stride, u32 chunks, u32 groups,                 \
             u32 zero_groups, u32 per_chunk, i32 asym, i32 post, i32 out_f32, u32 stages) {                            \
        mma_tile<T, NB>(MmaArgs<T>{qweight, scales, zeros, x, residual, out, partial, counters, m, n, k,       \
                                           x_stride, chunks, groups, zero_groups, per_chunk, asym, post, out_f32},             \
                        stages);                                                                                       \
    }                                                                                                                  \
    WB_ENTRY(NAME)

ENTRY(w4a16_mma_bf16_m8, bf16, 1, 2)
ENTRY(w4a16_mma_bf16_m16, bf16, 2, 2)
ENTRY(w4a16_mma_bf16_m32, bf16, 4, 1)
ENTRY(w4a16_mma_bf16_m64, bf16, 8, 1)
ENTRY(w4a16_mma_f16_m8, f16, 1, 2)
ENTRY(w4a16_mma_f16_m16, f16, 2, 2)
ENTRY(w4a16_mma_f16_m32, f16, 4, 1)
ENTRY(w4a16_mma_f16_m64, f16, 8, 1)

// x normalised and padded to whole chunks, for the products above: one block a row.
template <class T> WB_DEVICE void prepare(const T* x, const T* norm, T* to, u32 k, u32 padded, i32 pre, float eps) {
    __shared__ float scratch[32];
    pdl_launch();
    pdl_wait();
    const T* row = x + static_cast<u64>(blockIdx.x) * k;
    T* out = to + static_cast<u64>(blockIdx.x) * padded;
    float scale = 1.0f;
    if (pre != 0) {
        float sum = 0.0f;
        for (u32 i = threadIdx.x; i < k; i += blockDim.x) {
            const float v = to_float(row[i]);
            sum += v * v;
        }
        scale = 1.0f / sqrtf(block_sum(sum, scratch) / static_cast<float>(k) + eps);
    }
    for (u32 i = threadIdx.x; i < padded; i += blockDim.x) {
        float v = i < k ? to_float(row[i]) : 0.0f;
        if (pre != 0 && i < k) v *= scale * to_float(norm[i]);
        out[i] = from_float<T>(v);
    }
}
#define PREPARE(NAME, T)                                                                                         \
    WB_KERNEL void __launch_bounds__(512)                                                                        \
        NAME(const T* x, const T* norm, T* to, u32 k, u32 padded, i32 pre, float eps) {                          \
        prepare<T>(x, norm, to, k, padded, pre, eps);                                                            \
    }                                                                                                            \
    WB_ENTRY(NAME)
PREPARE(w4a16_mma_prepare_bf16, bf16)
PREPARE(w4a16_mma_prepare_f16, f16)
