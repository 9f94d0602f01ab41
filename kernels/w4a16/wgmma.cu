// Hopper, three rows of x up to 64: the weights as the register operand of tensor-core products, of warpgroups where x is
// wide. A word of the packed layout is a fragment's four registers, so nibbles go from memory through a lane's registers
// into the tensor core and are never stored again; from 32 rows on x stays in shared memory, read once for 64 rows of weights.
//
// A block has 256 rows: sixteen warps with 16 rows each, four warpgroups. A warp streams its own contiguous kilobytes by
// cp.async into a ring of its own, each lane what it will read, with no barrier but __syncwarp (gemv_fixed.cu). Instructions
// are the bound, so x comes ready: a small kernel ahead writes it as tiles, normalised if asked, and one thread copies whole
// steps of a few chunks into three slots, two steps ahead. Warps may drift apart by a step.
//
// Where there are more row blocks than multiprocessors, a block gets an even run of (row block, unit) pairs, wherever row
// blocks end: the beginning of a shared one is computed first and left in memory, the end of one last, when the block before
// has long left its part. Where there are fewer, a cluster splits k and adds up through distributed shared memory. Reruns
// give the same bits: two parts, in either order, and clusters in the order of k.
#include "../common/wb.cuh"
#include "../common/ptx_wgmma_rs.cuh"
#include "convert.cuh"

constexpr u32 kTile = 16, kChunk = 128, kChunkBytes = 1024;
constexpr u32 kUnit = 2;  // chunks that are fetched together
constexpr u32 kWarps = 16, kThreads = 512, kRows = 256, kSlots = 3;
constexpr u32 kPitch = kRows + 4;  // floats between columns of sums: four columns of eight rows touch every bank once
enum { POST_NONE = 0, POST_RESIDUAL = 1, POST_SILU_MUL = 2 };

// Chunks of x in a step: few enough for shared memory, enough to keep warps apart.
template <int N> struct Step {
    static constexpr u32 chunks = N <= 16 ? 4 : N == 32 ? 2 : 1;
};

template <class T> struct Args {
    const u8* qweight;
    const u8* scales;
    const u8* zeros;
    const u8* x;  // prepared: [gridDim.y][chunks, rounded up to units][Tile<N, WG, GPC>::bytes]
    const T* residual;
    void* out;
    float* partial;  // [gridDim.y][gridDim.x]: what a block leaves of its head and its tail, and its sums of squares
    u32* flags;      // [gridDim.y][row blocks], zero before and after
    u32 m, n, chunks, groups, zero_groups;
    i32 post, out_f32;
};

// Four floats that were seen as bits once make ptxas copy accumulators around every wgmma; these never are.
struct alignas(16) Float4 {
    float v[4];
};

// A chunk of N rows of x as the products take it: two swizzled tiles of 64 columns for a warpgroup, or rows 64 bytes (mod 128)
// apart for a warp, so that its loads of two rows by four lanes each touch every bank once; and behind those the sums of each
// group of columns, [GPC][N] floats, by which a warp takes off zero points after its products.
template <int N, bool WG, int GPC> struct Tile {
    static constexpr u32 half = N * 128, row = WG ? 128 : kChunk * 2 + 64, sums = N * row;
    static constexpr u32 bytes = WG ? 2 * half : sums + GPC * N * 4;
};

// Bytes of a fetched unit of two chunks: weights, scales, zero points (padded by the layout to 16 bytes).
template <int GPC, bool ASYM> struct Unit {
    static constexpr u32 scales = kUnit * kChunkBytes, zeros = scales + kUnit * GPC * 32;
    static constexpr u32 bytes = zeros + (ASYM ? (kUnit * GPC * 8 + 15) / 16 * 16 : 0);
};

// N columns (rows of x), GPC groups a chunk, DEPTH units in a warp's ring. WG: products of warpgroups, or of single warps.
template <class T, int N, int GPC, bool ASYM, int DEPTH, bool WG> WB_DEVICE void product(const Args<T>& a) {
    using Layout = Unit<GPC, ASYM>;
    constexpr u32 STEP = Step<N>::chunks, X_CHUNK = Tile<N, WG, GPC>::bytes, X_SLOT = STEP * X_CHUNK;
    WB_DYN_SHARED(u8, shared);
    __shared__ u64 full[kSlots], empty[kSlots];
    __shared__ u32 second;
    float* sums = reinterpret_cast<float*>(shared + kSlots * X_SLOT);  // [N][kPitch]
    const u32 warp = __shfl_sync(WB_FULL_MASK, threadIdx.x / 32, 0), lane = lane_id(), g = lane >> 2, c = lane & 3;
    u8* const ring = reinterpret_cast<u8*>(sums + N * kPitch) + warp * DEPTH * Layout::bytes;
    const u32 units = (a.chunks + kUnit - 1) / kUnit;

    const u32 split = cluster_size(), rank = cluster_rank();
    const u32 tiles = (a.n + kTile - 1) / kTile;
    const bool silu = a.post == POST_SILU_MUL;
    const u32 item_tiles = silu ? kWarps / 2 : kWarps, row_tiles = silu ? tiles / 2 : tiles;
    const u32 items = (row_tiles + item_tiles - 1) / item_tiles;
    const u32 m0 = blockIdx.y * N, columns = a.m - m0 < N ? a.m - m0 : N;
    // With silu_mul two warps of a warpgroup have gate tiles and two their up tiles.
    const u32 tile_in_item = silu ? warp / 4 * 2 + warp % 2 : warp;
    const bool up = silu && warp / 2 % 2 == 1;
    const u32 local_row = (up ? kRows / 2 : 0) + tile_in_item * kTile + g;

    // This block's run of units: `head` of them begin a row block that the next block ends, `tail` end one that the block
    // before began. They are done in the order head, whole row blocks, tail.
    u32 first, last;
    if (split > 1) {
        const u32 item = blockIdx.x / split * units;
        first = item + units * rank / split;
        last = item + units * (rank + 1) / split;
    } else {
        const u64 total = static_cast<u64>(items) * units;
        first = static_cast<u32>(total * blockIdx.x / gridDim.x);
        last = static_cast<u32>(total * (blockIdx.x + 1) / gridDim.x);
    }
    const u32 count = last - first;
    const u32 head = split > 1 ? 0 : last % units, tail = split > 1 ? 0 : (units - first % units) % units;
    const u32 before_tail = count - tail;
    auto unit_of = [&](u32 i) { return i < head ? last - head + i : i < before_tail ? first + tail + i - head : first + i - before_tail; };
    // Units from i to the end of its row block, or of this block's part of it.
    auto left_of = [&](u32 i, u32 unit) {
        const u32 rest = i < head ? head - i : units - unit % units;
        return rest < count - i ? rest : count - i;
    };

    // Where this warp's next unit lies.
    u32 left = 0;
    bool there = false, pairs = false;
    const u8 *w_at = a.qweight, *scale_at = a.scales, *zero_at = a.zeros;
    const u32 unit_groups = a.groups == 1 ? 0 : kUnit * GPC;
    const bool scale_lane = lane < (a.groups == 1 ? 2 : 2 * kUnit * GPC);
    const bool zero_lane = ASYM && lane < (a.groups == 1 ? 1 : GPC);
    auto seek = [&](u32 i) {
        const u32 unit = unit_of(i), in_rows = unit / units * item_tiles + tile_in_item, in_row = unit % units;
        left = left_of(i, unit);
        // The last unit of a row may have one chunk: zeros stand for the other.
        pairs = in_row + left < units || a.chunks % kUnit == 0;
        there = in_rows < row_tiles;
        const u64 tile = there ? in_rows + (up ? row_tiles : 0) : 0;
        w_at = a.qweight + (tile * a.chunks + in_row * kUnit) * kChunkBytes + lane * 16;
        scale_at = a.scales + (tile * a.groups + in_row * unit_groups) * 32 + lane * 16;
        if (ASYM) zero_at = a.zeros + (tile * a.zero_groups + in_row * unit_groups) * 8 + lane * 16;
    };
    auto fetch = [&](u32 i, u8* slot) {
        if (left == 0) seek(i);
        const bool both = there && (pairs || left > 1), scale_there = there && (both || lane < 2 * GPC);
        slot += lane * 16;
        cp_async16(slot, w_at, there);
        cp_async16(slot + 512, w_at + 512, there);
        cp_async16(slot + 1024, both ? w_at + 1024 : w_at, both);
        cp_async16(slot + 1536, both ? w_at + 1536 : w_at, both);
        if (scale_lane) cp_async16(slot + Layout::scales, scale_there ? scale_at : a.scales, scale_there);
        if (ASYM && zero_lane) {
            const bool zero_there = there && (both || lane < (GPC + 1) / 2);
            cp_async16(slot + Layout::zeros, zero_there ? zero_at : a.zeros, zero_there);
        }
        w_at += kUnit * kChunkBytes;
        scale_at += unit_groups * 32;
        if (ASYM) zero_at += unit_groups * 8;
        left--;
    };
    // Weights do not depend on the kernel before: ask for them first.
    for (u32 d = 0; d < DEPTH; d++) {
        if (d < count) fetch(d, ring + d * Layout::bytes);
        cp_async_commit();
    }

    // x: one thread asks for whole steps, two ahead of their use and more.
    const u8* const x_rows = a.x + static_cast<u64>(blockIdx.y) * units * kUnit * X_CHUNK;
    auto load_x = [&](u32 position, u32 slot) {
        const u32 rest = count * kUnit - position, chunks = rest < STEP ? rest : STEP;
        mbar_arrive_expect_tx(full + slot, chunks * X_CHUNK);
        for (u32 i = 0; i < chunks; i += kUnit) {
            const u32 unit = unit_of((position + i) / kUnit) % units;
            const u32 chunk = unit * kUnit + (STEP == 1 ? position % kUnit : 0);
            bulk_load(shared + slot * X_SLOT + i * X_CHUNK, x_rows + static_cast<u64>(chunk) * X_CHUNK,
                      (STEP == 1 ? 1 : kUnit) * X_CHUNK, full + slot);
        }
    };
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < kSlots; i++) mbar_init(full + i, 1), mbar_init(empty + i, kWarps);
        fence_mbar_init();
    }
    __syncthreads();
    pdl_wait();
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < kSlots && i * STEP < count * kUnit; i++) load_x(i * STEP, i);
    }

    float acc[N / 2], d[N / 2];
#pragma unroll
    for (int v = 0; v < N / 2; v++) acc[v] = d[v] = 0.0f;

    // A row block is done, or this block's part of it.
    constexpr u32 PART = kThreads * N / 2, LEFT = 2 * PART;
    float* const leave = a.partial + (static_cast<u64>(blockIdx.y) * gridDim.x + blockIdx.x) * LEFT;
    auto finish = [&](u32 item, bool is_head, bool is_tail) {
        if (is_head || is_tail) {
            // Two blocks have a part each. Who comes first leaves it in memory, who comes second adds it up.
            u32* flag = a.flags + blockIdx.y * items + item;
            if (threadIdx.x == 0) second = ld_acquire(flag);
            __syncthreads();
            if (second == 0) {
                float* mine = leave + (is_tail ? PART : 0) + threadIdx.x * 4;
#pragma unroll
                for (int v = 0; v < N / 8; v++)
                    *reinterpret_cast<Float4*>(mine + v * kThreads * 4) =
                        Float4{acc[v * 4], acc[v * 4 + 1], acc[v * 4 + 2], acc[v * 4 + 3]};
                __threadfence();
                __syncthreads();
                if (threadIdx.x == 0) second = atomic_add_acq_rel(flag, 1);
                __syncthreads();
                if (second == 0) return;
            }
            if (threadIdx.x == 0) st_release(flag, 0);
            const float* theirs = is_head ? leave + LEFT + PART : leave - LEFT;
            theirs += threadIdx.x * 4;
#pragma unroll
            for (int v = 0; v < N / 8; v++) {
                const Float4 p = *reinterpret_cast<const Float4*>(theirs + v * kThreads * 4);
#pragma unroll
                for (int e = 0; e < 4; e++) acc[v * 4 + e] += p.v[e];
            }
        }
        // A thread's outputs: runs of four rows of one column.
        const u32 quads = (silu ? kRows / 2 : kRows) / 4, all = columns * quads;
        const u32 begin = all * rank / split + threadIdx.x, end = all * (rank + 1) / split;
        auto first_row = [&](u32 e) { return item * (item_tiles * kTile) + e % quads * 4; };
        const u32 width = silu ? a.n / 2 : a.n;
        auto place = [&](u32 e) { return static_cast<u64>(m0 + e / quads) * width + first_row(e); };
        const bool vectors = width % 4 == 0 && (reinterpret_cast<u64>(a.out) & 15) == 0 &&
                             (reinterpret_cast<u64>(a.residual) & 7) == 0;
        u64 residual = 0;
        if (a.post == POST_RESIDUAL && vectors && begin < end && first_row(begin) < width)
            residual = *reinterpret_cast<const u64*>(a.residual + place(begin));
        __syncthreads();  // everybody has left the sums of the row block before
#pragma unroll
        for (int v = 0; v < N / 2; v++) {
            const u32 column = v / 4 * 8 + 2 * c + v % 2;
            if (column < columns) sums[column * kPitch + local_row + v % 4 / 2 * 8] = acc[v];
        }
        if (split > 1) cluster_sync();
        else __syncthreads();
#pragma unroll 1
        for (u32 e = begin; e < end; e += kThreads) {
            const u32 row = first_row(e), column = e / quads;
            if (row >= width) continue;
            const float* at = sums + column * kPitch + e % quads * 4;
            float v[4] = {}, w[4] = {};
            for (u32 r = 0; r < split; r++) {
                const float* theirs = split > 1 ? cluster_map(const_cast<float*>(at), r) : at;
                const Float4 p = *reinterpret_cast<const Float4*>(theirs);
#pragma unroll
                for (int i = 0; i < 4; i++) v[i] += p.v[i];
                if (silu) {
                    const Float4 u = *reinterpret_cast<const Float4*>(theirs + kRows / 2);
#pragma unroll
                    for (int i = 0; i < 4; i++) w[i] += u.v[i];
                }
            }
            if (a.post == POST_RESIDUAL && vectors && e != begin) residual = *reinterpret_cast<const u64*>(a.residual + place(e));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (silu) v[i] = v[i] / (1.0f + __expf(-v[i])) * w[i];
                if (a.post == POST_RESIDUAL && vectors) v[i] += to_float(T{static_cast<u16>(residual >> 16 * i)});
            }
            if (vectors) {
                if (a.out_f32) *reinterpret_cast<Float4*>(static_cast<float*>(a.out) + place(e)) = Float4{v[0], v[1], v[2], v[3]};
                else
                    *reinterpret_cast<u64*>(static_cast<T*>(a.out) + place(e)) =
                        static_cast<u64>(pack2<T>(v[2], v[3])) << 32 | pack2<T>(v[0], v[1]);
                continue;
            }
            for (u32 i = 0; i < 4 && row + i < width; i++) {
                if (a.post == POST_RESIDUAL) v[i] += to_float(a.residual[place(e) + i]);
                if (a.out_f32) static_cast<float*>(a.out)[place(e) + i] = v[i];
                else static_cast<T*>(a.out)[place(e) + i] = from_float<T>(v[i]);
            }
        }
        if (split > 1) cluster_sync();  // others read from here until now
    };

    const u64 x_base = wgmma_desc_128b(shared);
    u32 x_slot = 0, parity = 0, slot = 0, in_step = 0, now_left = 0;
    u8* at = ring;
    u8* const ring_end = ring + DEPTH * Layout::bytes;
    // On to the next step's x. A slot is filled again when every warp has left it: a barrier a slot, for warps drift apart, and
    // at one barrier for all a fast warp would be counted twice where a slow one is missing.
    auto turn_x = [&](u32 position) {
        if (position > 0) {
            __syncwarp();
            if (lane == 0) mbar_arrive(empty + slot);
            if (threadIdx.x == 0 && position + (kSlots - 1) * STEP < count * kUnit) {
                mbar_wait(empty + slot, parity);
                load_x(position + (kSlots - 1) * STEP, slot);
            }
            slot++;
            if (slot == kSlots) slot = 0, parity ^= 1;
        }
        x_slot = slot * X_SLOT;
        mbar_wait(full + slot, parity);
        in_step = 0;
    };
    for (u32 now = 0; now < count; now++) {
        if (now_left == 0) now_left = left_of(now, unit_of(now));
        if (STEP > 1 && in_step == 0) turn_x(now * kUnit);
        cp_async_wait<DEPTH - 1>();
        __syncwarp();
        constexpr u32 BATCH = GPC == 4 ? 2 : 4;  // words whose products are queued together
        // Fragments stay until their products are done: 64 columns leave registers for half of a chunk's.
        constexpr u32 KEPT = N == 64 ? BATCH : 8;
        u32 scales[kUnit][GPC], zeros[kUnit][GPC];
#pragma unroll
        for (u32 h = 0; h < kUnit; h++) {
#pragma unroll
            for (u32 i = 0; i < GPC; i++) {
                const u32 group = i + (a.groups == 1 ? 0 : h * GPC);
                scales[h][i] = *reinterpret_cast<const u32*>(at + Layout::scales + group * 32 + g * 4);
                zeros[h][i] = ASYM ? at[Layout::zeros + group * 8 + g] : 0x88u;
            }
        }
#pragma unroll
        for (u32 h = 0; h < kUnit; h++) {
            if (STEP == 1) turn_x(now * kUnit + h);
            const u32 x_at = x_slot + (STEP == 1 ? 0 : (in_step + h) * X_CHUNK);
            // All lanes have read the slot before it is asked for again.
            auto refill = [&]() {
                __syncwarp();
                if (now + DEPTH < count) fetch(now + DEPTH, at);
                else pdl_launch();
                cp_async_commit();
            };
            if constexpr (!WG) {
                constexpr u32 CHAINS = N == 8 ? 2 : 1;  // a chain of eight products is longer than what else there is to do
                const Vec16 w[2] = {ld16(at + h * kChunkBytes + lane * 16), ld16(at + h * kChunkBytes + 512 + lane * 16)};
                if (h + 1 == kUnit) refill();
                const u8* x = shared + x_at + g * Tile<N, WG, GPC>::row + c * 16;
#pragma unroll
                for (u32 i = 0; i < GPC; i++) {
                    // Sums begin at what the products with OFFSET + q will have too much (convert.cuh).
                    const float top = -Magic<T>::offset - static_cast<float>(zeros[h][i] & 15u);
                    const float bottom = -Magic<T>::offset - static_cast<float>(zeros[h][i] >> 4);
                    float s4[CHAINS][N / 8][4] = {};
#pragma unroll
                    for (u32 n = 0; n < N / 8; n++) {
                        const float* sum = reinterpret_cast<const float*>(shared + x_at + Tile<N, WG, GPC>::sums) + i * N + n * 8 + 2 * c;
#pragma unroll
                        for (u32 e = 0; e < 4; e++) s4[0][n][e] = (e < 2 ? top : bottom) * sum[e % 2];
                    }
#pragma unroll
                    for (u32 t = i * 4 / GPC; t < (i + 1) * 4 / GPC; t++) {  // 32 columns each
                        u32 f[2][4];
#pragma unroll
                        for (u32 b = 0; b < 2; b++) dequant_word<T>(f[b], w[t / 2].w[t % 2 * 2 + b]);
#pragma unroll
                        for (u32 n = 0; n < N / 8; n++) {
                            const Vec16 v = ld16(x + n * 8 * Tile<N, WG, GPC>::row + t * 64);
#pragma unroll
                            for (u32 b = 0; b < 2; b++) {
                                const u32 bf[2] = {v.w[2 * b], v.w[2 * b + 1]};
                                mma_m16n8k16<T>(s4[b % CHAINS][n], f[b], bf);
                            }
                        }
                    }
                    const Pair s = unpack2<T>(scales[h][i]);
#pragma unroll
                    for (int v = 0; v < N / 2; v++) {
                        const float sum = CHAINS == 2 ? s4[0][v / 4][v % 4] + s4[1][v / 4][v % 4] : s4[0][v / 4][v % 4];
                        acc[v] = fmaf(v % 4 < 2 ? s.lo : s.hi, sum, acc[v]);
                    }
                }
                continue;
            }
            const u64 x = x_base + x_at / 16;
            u32 f[KEPT][4];
            Vec16 w = ld16(at + h * kChunkBytes + lane * 16);
#pragma unroll
            for (u32 i = 0; i < GPC; i++) {
                const u32 top = zero_of<T>(zeros[h][i] & 15u), bottom = zero_of<T>(zeros[h][i] >> 4);
#pragma unroll
                for (u32 t = i * 8 / GPC; t < (i + 1) * 8 / GPC; t += BATCH) {
#pragma unroll
                    for (u32 b = t; b < t + BATCH; b++) dequant_word_exact<T>(f[b % KEPT], w.w[b % 4], top, bottom);
                    wgmma_fence();
#pragma unroll
                    for (u32 b = t; b < t + BATCH; b++)
                        WgmmaRs<T, N>::run(d, f[b % KEPT], x + b / 4 * (Tile<N, WG, GPC>::half / 16) + b % 4 * 2, b % (8 / GPC) != 0);
                    wgmma_commit();
                    if (t + BATCH == 4) {
                        w = ld16(at + h * kChunkBytes + 512 + lane * 16);
                        if (h + 1 == kUnit) refill();
                    }
                    if (KEPT < 8) wgmma_wait<0>();
                }
                if (KEPT == 8) wgmma_wait<0>();
                wgmma_pin(d);
                const Pair s = unpack2<T>(scales[h][i]);
#pragma unroll
                for (int v = 0; v < N / 2; v++) acc[v] = fmaf(v % 4 < 2 ? s.lo : s.hi, d[v], acc[v]);
            }
        }
        if (STEP > 1) {
            in_step += kUnit;
            if (in_step == STEP) in_step = 0;
        }
        at += Layout::bytes;
        if (at == ring_end) at = ring;
        if (--now_left == 0 && split == 1) {
            finish(unit_of(now) / units, now + 1 == head, now + 1 == count && tail != 0);
#pragma unroll
            for (int v = 0; v < N / 2; v++) acc[v] = 0.0f;
        }
    }
    if (split > 1) finish(blockIdx.x / split, false, false);
    cp_async_wait<0>();
}

// Three units of a warp are 101 KB on their way on a multiprocessor.
constexpr int kDepth = 3;

#define ENTRY(NAME, T, N, GPC, ASYM, WG)                                                                               \
    WB_KERNEL void __launch_bounds__(kThreads, 1)                                                                      \
        NAME(const u8* qweight, const u8* scales, const u8* zeros, const u8* x, const T* residual, void* out,          \
             float* partial, u32* flags, u32 m, u32 n, u32 chunks, u32 groups, u32 zero_groups, i32 post,              \
             i32 out_f32) {                                                                                            \
        product<T, N, GPC, ASYM, kDepth, WG>(Args<T>{qweight, scales, zeros, x, residual, out, partial, flags, m, n,   \
                                                     chunks, groups, zero_groups, post, out_f32});                     \
    }                                                                                                                  \
    WB_ENTRY(NAME)
// Few columns leave warpgroup products waiting for their fixed cost.
#define WIDTHS(T, GROUP, GPC, ZEROS, ASYM)                                         \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_##ZEROS##_m8, T, 8, GPC, ASYM, false)       \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_##ZEROS##_m16, T, 16, GPC, ASYM, false)     \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_##ZEROS##_m32, T, 32, GPC, ASYM, true)      \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_##ZEROS##_m64, T, 64, GPC, ASYM, true)
#ifdef WB_ONE
WIDTHS(bf16, 128, 1, sym, false)
#else
#define ENTRIES(GROUP, GPC)                    \
    WIDTHS(bf16, GROUP, GPC, sym, false)       \
    WIDTHS(bf16, GROUP, GPC, asym, true)       \
    WIDTHS(f16, GROUP, GPC, sym, false)        \
    WIDTHS(f16, GROUP, GPC, asym, true)
ENTRIES(128, 1)
ENTRIES(64, 2)
ENTRIES(32, 4)
#endif

// x, normalised if asked, as tiles for the products above: one block a row. Zeros stand beyond k.
template <class T> WB_DEVICE void prepare(const T* x, const T* norm, u8* to, u32 k, u32 padded, u32 columns, u32 per_chunk, float eps) {
    __shared__ float scratch[32];
    pdl_launch();
    const bool vectors = k % 8 == 0 && aligned16(x) && (norm == nullptr || aligned16(norm));
    const T* row = x + static_cast<u64>(blockIdx.x) * k;
    auto load = [&](const T* from, u32 i, float (&e)[8]) {
        if (vectors && i < k) {
            unpack16<T>(ld16(from + i), e);
        } else {
#pragma unroll
            for (u32 j = 0; j < 8; j++) e[j] = i + j < k ? to_float(from[i + j]) : 0.0f;
        }
    };
    pdl_wait();
    float scale = 1.0f;
    if (norm != nullptr) {
        float sum = 0.0f;
        for (u32 i = threadIdx.x * 8; i < k; i += blockDim.x * 8) {
            float e[8];
            load(row, i, e);
#pragma unroll
            for (u32 j = 0; j < 8; j++) sum += e[j] * e[j];
        }
        scale = 1.0f / sqrtf(block_sum(sum, scratch) / static_cast<float>(k) + eps);
    }
    const bool groups = columns >= 32;
    constexpr u32 ROW = Tile<8, false, 1>::row;
    const u32 r = blockIdx.x % columns, bytes = columns * (groups ? 256 : ROW + per_chunk * 4);
    to += static_cast<u64>(blockIdx.x / columns) * (padded / kChunk) * bytes;
    for (u32 i = threadIdx.x * 8; i < padded; i += blockDim.x * 8) {
        float e[8];
        load(row, i, e);
        if (norm != nullptr) {
            float gain[8];
            load(norm, i, gain);
#pragma unroll
            for (u32 j = 0; j < 8; j++) e[j] *= scale * gain[j];
        }
        const Vec16 v = pack16<T>(e);
        u8* tile = to + static_cast<u64>(i / kChunk) * bytes;
        const u32 j = i % kChunk / 32, c = i % 32 / 8;
        if (!groups) {
            st16(tile + r * ROW + i % kChunk * 2, v);
            // Of the numbers as they are rounded; a group's columns are with neighbouring lanes.
            unpack16<T>(v, e);
            float sum = 0.0f;
#pragma unroll
            for (u32 l = 0; l < 8; l++) sum += e[l];
            const u32 lanes = 16 / per_chunk;
            for (u32 d = lanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(WB_FULL_MASK, sum, d);
            if (lane_id() % lanes == 0)
                reinterpret_cast<float*>(tile + columns * ROW)[i % kChunk * per_chunk / kChunk * columns + r] = sum;
        } else {
            // A warpgroup takes its two columns of eight k from 16 bytes each: a lane's pairs go to four such pieces.
            tile += j / 2 * columns * 128 + r * 128 + c * 4;
#pragma unroll
            for (u32 p = 0; p < 4; p++) *reinterpret_cast<u32*>(tile + ((j % 2 * 4 + p) ^ r % 8) * 16) = v.w[p];
        }
    }
}
#define PREPARE(NAME, T)                                                                           \
    WB_KERNEL void __launch_bounds__(512)                                                          \
        NAME(const T* x, const T* norm, u8* to, u32 k, u32 padded, u32 columns, u32 per_chunk, float eps) { \
        prepare<T>(x, norm, to, k, padded, columns, per_chunk, eps);                               \
    }                                                                                              \
    WB_ENTRY(NAME)
PREPARE(w4a16_wgmma_prepare_bf16, bf16)
PREPARE(w4a16_wgmma_prepare_f16, f16)
