// Hopper, three rows of x up to 64: the weights as wgmma's register operand. A word of the packed layout is a fragment's
// four registers, so nibbles go from memory through a lane's registers into the tensor core and are never stored again; x
// is the operand in shared memory, read once for 64 rows of weights, which spares the loads that bound mma.sync.
//
// A block has 256 rows: sixteen warps with 16 rows each, four warpgroups. A warp streams its own contiguous kilobytes by
// cp.async into a ring of its own, each lane what it will read, with no barrier but __syncwarp (gemv_fixed.cu). x goes by
// steps of a few chunks through three slots that all warps fill together, a step ahead of its use: a barrier that is
// arrived at one step and waited for at the next, so warps may drift by a step.
//
// Where there are more row blocks than multiprocessors, a block gets an even run of (row block, chunk) pairs, wherever row
// blocks end: the beginning of a shared one is computed first and left in memory, the end of one last, when the block before
// has long left its part. Where there are fewer, a cluster splits k and adds up through distributed shared memory. Reruns
// give the same bits: two parts, in either order, and clusters in the order of k.
#include "../common/wb.cuh"
#include "../common/ptx_wgmma_rs.cuh"
#include "convert.cuh"

constexpr u32 kTile = 16, kChunk = 128, kChunkBytes = 1024;
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
    const T* x;
    const T* norm;
    const T* residual;
    void* out;
    float* partial;  // [gridDim.y][gridDim.x]: what a block leaves of its head and its tail, and its sums of squares
    u32* flags;      // [gridDim.y][row blocks], zero before and after
    u32 m, n, k, x_stride, chunks, groups, zero_groups;
    i32 asym, pre, post, out_f32;
    float eps;
};

// Four floats that were seen as bits once make ptxas copy accumulators around every wgmma; these never are.
struct alignas(16) Float4 {
    float v[4];
};

// N columns (rows of x), GPC groups a chunk, DEPTH chunks in a warp's ring.
template <class T, int N, int GPC, int DEPTH> WB_DEVICE void product(const Args<T>& a) {
    constexpr u32 STEP = Step<N>::chunks, ROW_GROUPS = N / 8;
    constexpr u32 COMBOS = 4 * STEP, APART = kWarps / COMBOS, PIECES = (ROW_GROUPS + APART - 1) / APART;
    constexpr u32 X_HALF = N * 128, X_CHUNK = 2 * X_HALF, X_SLOT = STEP * X_CHUNK;
    WB_DYN_SHARED(u8, shared);
    __shared__ u64 staged;
    __shared__ u32 second;
    float* sums = reinterpret_cast<float*>(shared + kSlots * X_SLOT);  // [N][kPitch]
    float* squares = sums + N * kPitch;                                // [COMBOS][N], and then [N] sums of them
    float* square_sums = squares + COMBOS * N;
    const u32 slot_bytes = kChunkBytes + GPC * 32 + (a.asym ? 32 : 0);
    const u32 warp = __shfl_sync(WB_FULL_MASK, threadIdx.x / 32, 0), lane = lane_id(), g = lane >> 2, c = lane & 3;
    u8* ring = reinterpret_cast<u8*>(square_sums + N) + warp * DEPTH * slot_bytes;

    const u32 split = cluster_size(), rank = cluster_rank();
    const u32 tiles = (a.n + kTile - 1) / kTile;
    const bool silu = a.post == POST_SILU_MUL, norm = a.pre != 0;
    const u32 item_tiles = silu ? kWarps / 2 : kWarps, row_tiles = silu ? tiles / 2 : tiles;
    const u32 items = (row_tiles + item_tiles - 1) / item_tiles;
    const u32 m0 = blockIdx.y * N, columns = a.m - m0 < N ? a.m - m0 : N;
    // With silu_mul two warps of a warpgroup have gate tiles and two their up tiles.
    const u32 tile_in_item = silu ? warp / 4 * 2 + warp % 2 : warp;
    const bool up = silu && warp / 2 % 2 == 1;
    const u32 local_row = (up ? kRows / 2 : 0) + tile_in_item * kTile + g;

    // This block's run of chunks: `head` of them begin a row block that the next block ends, `tail` end one that the block
    // before began. They are done in the order head, whole row blocks, tail.
    u32 first, last;
    if (split > 1) {
        const u32 item = blockIdx.x / split * a.chunks;
        first = item + a.chunks * rank / split;
        last = item + a.chunks * (rank + 1) / split;
    } else {
        const u64 total = static_cast<u64>(items) * a.chunks;
        first = static_cast<u32>(total * blockIdx.x / gridDim.x);
        last = static_cast<u32>(total * (blockIdx.x + 1) / gridDim.x);
    }
    const u32 count = last - first;
    const u32 head = split > 1 ? 0 : last % a.chunks, tail = split > 1 ? 0 : (a.chunks - first % a.chunks) % a.chunks;
    const u32 before_tail = count - tail;
    auto unit_of = [&](u32 i) { return i < head ? last - head + i : i < before_tail ? first + tail + i - head : first + i - before_tail; };

    // Where this warp's next chunk lies.
    u32 left = 0, fetch_chunk = 0, zeros_of = 0;
    bool there = false;
    const u8 *w_at = a.qweight, *scale_at = a.scales;
    const u32 chunk_groups = a.groups == 1 ? 0 : GPC;
    auto seek = [&](u32 i) {
        const u32 unit = unit_of(i), item = unit / a.chunks, in_rows = item * item_tiles + tile_in_item;
        fetch_chunk = unit % a.chunks;
        left = i < head ? head - i : a.chunks - fetch_chunk;
        there = in_rows < row_tiles;
        const u64 tile = there ? in_rows + (up ? row_tiles : 0) : 0;
        w_at = a.qweight + (tile * a.chunks + fetch_chunk) * kChunkBytes + lane * 16;
        scale_at = a.scales + (tile * a.groups + fetch_chunk * chunk_groups) * 32 + lane * 16;
        zeros_of = static_cast<u32>(tile) * a.zero_groups * 8;
    };
    auto fetch = [&](u32 i, u8* slot) {
        if (left == 0) seek(i);
        slot += lane * 16;
        cp_async16(slot, w_at, there);
        cp_async16(slot + 512, w_at + 512, there);
        if (lane < 2 * GPC) cp_async16(slot + kChunkBytes, scale_at, there);
        // Pairs of groups: the layout pads zero points to 16 bytes.
        if (a.asym && lane < (GPC + 1) / 2)
            cp_async16(slot + kChunkBytes + GPC * 32, a.zeros + zeros_of + (fetch_chunk * chunk_groups & ~1u) * 8 + lane * 16, there);
        w_at += kChunkBytes;
        scale_at += chunk_groups * 32;
        fetch_chunk++, left--;
    };
    // Weights do not depend on the kernel before: ask for them first.
    for (u32 d = 0; d < DEPTH; d++) {
        if (d < count) fetch(d, ring + d * slot_bytes);
        cp_async_commit();
    }

    // x: a warp has 32 columns (j) of a chunk (q) of a step, and every APARTth eight rows of them; a lane has eight columns.
    const u32 combo = warp % COMBOS, q = combo / 4, j = combo % 4, group0 = warp / COMBOS;
    const bool stager = warp < COMBOS * APART;
    Vec16 pieces[PIECES];
    float squared[PIECES];
    u32 col = 0;
    bool counts = false;
    auto load_x = [&](u32 step) {
        if (!stager || step + q >= count) return;
        const u32 i = step + q, chunk = unit_of(i) % a.chunks;
        col = chunk * kChunk + j * 32 + c * 8;
        if (norm) {
            // Each chunk's squares are added once: those of the first whole row block, or of head and tail together.
            const bool whole = before_tail > head;
            counts = split > 1 || (whole ? i >= head && i < head + a.chunks : i < head || chunk >= head);
        }
#pragma unroll
        for (u32 v = 0; v < PIECES; v++) {
            const u32 row = (group0 + v * APART) * 8 + g;
            pieces[v] = row < columns && col < a.k ? ld16(a.x + static_cast<u64>(m0 + row) * a.x_stride + col) : Vec16{};
        }
    };
    // The tensor core takes its two columns of eight k from 16 bytes each: a lane's pairs are dealt to four such pieces.
    auto store_x = [&](u32 step, u32 slot) {
        if (stager && step + q < count) {
            const Vec16 gains = norm && col < a.k ? ld16(a.norm + col) : Vec16{};
#pragma unroll
            for (u32 v = 0; v < PIECES; v++) {
                const u32 group = group0 + v * APART;
                if (PIECES * APART != ROW_GROUPS && group >= ROW_GROUPS) break;
                if (norm) {
                    float e[8], gain[8];
                    unpack16<T>(pieces[v], e);
                    unpack16<T>(gains, gain);
#pragma unroll
                    for (u32 i = 0; i < 8; i++) {
                        if (counts) squared[v] += e[i] * e[i];
                        e[i] *= gain[i];
                    }
                    pieces[v] = pack16<T>(e);
                }
                u8* row = shared + slot * X_SLOT + q * X_CHUNK + j / 2 * X_HALF + (group * 8 + g) * 128 + c * 4;
#pragma unroll
                for (u32 p = 0; p < 4; p++)
                    *reinterpret_cast<u32*>(row + ((j % 2 * 4 + p) ^ g) * 16) = pieces[v].w[p];
            }
        }
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) mbar_arrive(&staged);
    };
#pragma unroll
    for (u32 v = 0; v < PIECES; v++) squared[v] = 0.0f;
    if (threadIdx.x == 0) {
        mbar_init(&staged, kWarps);
        fence_mbar_init();
    }
    if (norm) {
        for (u32 i = threadIdx.x * 64; i < a.k; i += kThreads * 64) prefetch_l2(a.norm + i);
    }
    __syncthreads();
    pdl_wait();
    load_x(0);
    store_x(0, 0);
    load_x(STEP);

    float acc[N / 2], d[N / 2];
#pragma unroll
    for (int v = 0; v < N / 2; v++) acc[v] = d[v] = 0.0f;

    // A row block is done, or this block's part of it.
    constexpr u32 PART = kThreads * N / 2, LEFT = 2 * PART + N;
    float* const leave = a.partial + (static_cast<u64>(blockIdx.y) * gridDim.x + blockIdx.x) * LEFT;
    auto finish = [&](u32 item, bool is_head, bool is_tail) {
        if (norm && !is_head) {
            if (stager) {
#pragma unroll
                for (u32 v = 0; v < PIECES; v++) {
                    const u32 group = group0 + v * APART;
                    const float sum = warp_sum<4>(squared[v]);
                    if (c == 0 && group < ROW_GROUPS) squares[combo * N + group * 8 + g] = sum;
                }
            }
            __syncthreads();
            if (threadIdx.x < N) {
                float sum = 0.0f;
#pragma unroll
                for (u32 i = 0; i < COMBOS; i++) sum += squares[i * N + threadIdx.x];
                square_sums[threadIdx.x] = sum;
            }
        }
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
                // All of x has been here by a run's end, but not by the end of its head.
                if (norm && is_tail && threadIdx.x < N) leave[2 * PART + threadIdx.x] = square_sums[threadIdx.x];
                __threadfence();
                __syncthreads();
                if (threadIdx.x == 0) second = atomic_add_acq_rel(flag, 1);
                __syncthreads();
                if (second == 0) return;
            }
            if (threadIdx.x == 0) st_release(flag, 0);
            const float* theirs = is_head ? leave + LEFT + PART : leave - LEFT;
            if (norm && is_head && threadIdx.x < N) square_sums[threadIdx.x] = leave[LEFT + 2 * PART + threadIdx.x];
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
            float v[4] = {}, w[4] = {}, square = 0.0f;
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
                if (norm) square += split > 1 ? *cluster_map(square_sums + column, r) : square_sums[column];
            }
            const float scale = norm ? 1.0f / sqrtf(square / static_cast<float>(a.k) + a.eps) : 1.0f;
            if (a.post == POST_RESIDUAL && vectors && e != begin) residual = *reinterpret_cast<const u64*>(a.residual + place(e));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[i] *= scale;
                if (silu) v[i] = v[i] / (1.0f + __expf(-v[i])) * (w[i] * scale);
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
    const u32 odd_mask = a.asym && GPC == 1 && a.groups != 1 ? 1 : 0;
    u32 ring_slot = 0, x_slot = 0, parity = 0;
    u32 now_left = 0, now_chunk = 0;
    for (u32 step = 0; step < count; step += STEP) {
        mbar_wait(&staged, parity);
        parity ^= 1;
        const u32 next_slot = x_slot + 1 == kSlots ? 0 : x_slot + 1;
        if (step + STEP < count) {
            // Everybody has said that the slot's last use is over: who fills this step's x has done the step before it.
            store_x(step + STEP, next_slot);
            load_x(step + 2 * STEP);
        }
#pragma unroll 1
        for (u32 in_step = 0; in_step < STEP && step + in_step < count; in_step++) {
            const u32 now = step + in_step;
            if (now_left == 0) {
                now_chunk = unit_of(now) % a.chunks;
                now_left = now < head ? head - now : a.chunks - now_chunk;
                if (split > 1) now_left = count;
            }
            cp_async_wait<DEPTH - 1>();
            __syncwarp();
            u8* at = ring + ring_slot * slot_bytes;
            if (++ring_slot == DEPTH) ring_slot = 0;
            u32 scales[GPC], zeros[GPC];
#pragma unroll
            for (u32 i = 0; i < GPC; i++) {
                scales[i] = *reinterpret_cast<const u32*>(at + kChunkBytes + i * 32 + g * 4);
                zeros[i] = a.asym ? at[kChunkBytes + GPC * 32 + (i + (now_chunk & odd_mask)) * 8 + g] : 0x88u;
            }
            const u64 x = x_base + (x_slot * X_SLOT + in_step * X_CHUNK) / 16;
            constexpr u32 BATCH = GPC == 4 ? 2 : 4;  // words whose products are queued together
            // Fragments stay until their products are done: 64 columns leave registers for half of a chunk's.
            constexpr u32 KEPT = N == 64 ? BATCH : 8;
            u32 f[KEPT][4];
            Vec16 w = ld16(at + lane * 16);
#pragma unroll
            for (u32 i = 0; i < GPC; i++) {
                const u32 top = zero_of<T>(zeros[i] & 15u), bottom = zero_of<T>(zeros[i] >> 4);
#pragma unroll
                for (u32 t = i * 8 / GPC; t < (i + 1) * 8 / GPC; t += BATCH) {
#pragma unroll
                    for (u32 b = t; b < t + BATCH; b++) dequant_word_exact<T>(f[b % KEPT], w.w[b % 4], top, bottom);
                    wgmma_fence();
#pragma unroll
                    for (u32 b = t; b < t + BATCH; b++)
                        WgmmaRs<T, N>::run(d, f[b % KEPT], x + b / 4 * (X_HALF / 16) + b % 4 * 2, b % (8 / GPC) != 0);
                    wgmma_commit();
                    if (t + BATCH == 4) {
                        w = ld16(at + 512 + lane * 16);
                        // All lanes have read the slot before it is asked for again.
                        __syncwarp();
                        if (now + DEPTH < count) fetch(now + DEPTH, at);
                        else pdl_launch();
                        cp_async_commit();
                    }
                    if (KEPT < 8) wgmma_wait<0>();
                }
                if (KEPT == 8) wgmma_wait<0>();
                wgmma_pin(d);
                const Pair s = unpack2<T>(scales[i]);
#pragma unroll
                for (int v = 0; v < N / 2; v++) acc[v] = fmaf(v % 4 < 2 ? s.lo : s.hi, d[v], acc[v]);
            }
            now_chunk++;
            if (--now_left == 0 && split == 1) {
                finish(unit_of(now) / a.chunks, now + 1 == head, now + 1 == count && tail != 0);
#pragma unroll
                for (int v = 0; v < N / 2; v++) acc[v] = 0.0f;
            }
        }
        x_slot = next_slot;
    }
    if (split > 1) finish(blockIdx.x / split, false, false);
    cp_async_wait<0>();
}

// The ring: eight chunks of a warp are 132 KB on their way on a multiprocessor; four where shared memory has no more room.
#define ENTRY(NAME, T, N, GPC, DEPTH)                                                                                  \
    WB_KERNEL void __launch_bounds__(kThreads, 1)                                                                      \
        NAME(const u8* qweight, const u8* scales, const u8* zeros, const T* x, const T* norm, const T* residual,       \
             void* out, float* partial, u32* flags, u32 m, u32 n, u32 k, u32 x_stride, u32 chunks, u32 groups,         \
             u32 zero_groups, i32 asym, i32 pre, i32 post, i32 out_f32, float eps) {                                   \
        product<T, N, GPC, DEPTH>(Args<T>{qweight, scales, zeros, x, norm, residual, out, partial, flags, m, n, k,     \
                                          x_stride, chunks, groups, zero_groups, asym, pre, post, out_f32, eps});      \
    }                                                                                                                  \
    WB_ENTRY(NAME)
#define ENTRIES(T, GROUP, GPC, DEPTH)                                                      \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_m8_d##DEPTH, T, 8, GPC, DEPTH)                      \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_m16_d##DEPTH, T, 16, GPC, DEPTH)                    \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_m32_d##DEPTH, T, 32, GPC, DEPTH)
ENTRIES(bf16, 128, 1, 8)
ENTRIES(bf16, 128, 1, 4)
ENTRY(w4a16_wgmma_bf16_g128_m64_d6, bf16, 64, 1, 6)
ENTRY(w4a16_wgmma_bf16_g128_m64_d4, bf16, 64, 1, 4)
#ifndef WB_ONE
ENTRIES(f16, 128, 1, 8)
ENTRY(w4a16_wgmma_f16_g128_m64_d6, f16, 64, 1, 6)
ENTRIES(bf16, 64, 2, 4)
ENTRY(w4a16_wgmma_bf16_g64_m64_d4, bf16, 64, 2, 4)
ENTRIES(f16, 64, 2, 4)
ENTRY(w4a16_wgmma_f16_g64_m64_d4, f16, 64, 2, 4)
ENTRIES(bf16, 32, 4, 4)
ENTRY(w4a16_wgmma_bf16_g32_m64_d4, bf16, 64, 4, 4)
ENTRIES(f16, 32, 4, 4)
ENTRY(w4a16_wgmma_f16_g32_m64_d4, f16, 64, 4, 4)
#endif
