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
    const T* x;
    const T* norm;
    const T* residual;
    void* out;
    float* partial;  // [gridDim.y][gridDim.x]: what a block leaves of its head and its tail, and its sums of squares
    u32* flags;      // [gridDim.y][row blocks], zero before and after
    u32 m, n, k, x_stride, chunks, groups, zero_groups;
    i32 pre, post, out_f32;
    float eps;
};

// Four floats that were seen as bits once make ptxas copy accumulators around every wgmma; these never are.
struct alignas(16) Float4 {
    float v[4];
};

// Bytes of a fetched unit of two chunks: weights, scales, zero points (padded by the layout to 16 bytes).
template <int GPC, bool ASYM> struct Unit {
    static constexpr u32 scales = kUnit * kChunkBytes, zeros = scales + kUnit * GPC * 32;
    static constexpr u32 bytes = zeros + (ASYM ? (kUnit * GPC * 8 + 15) / 16 * 16 : 0);
};

// N columns (rows of x), GPC groups a chunk, DEPTH units in a warp's ring. WG: products of warpgroups, or of single warps.
template <class T, int N, int GPC, bool ASYM, int DEPTH, bool WG> WB_DEVICE void product(const Args<T>& a) {
    using Layout = Unit<GPC, ASYM>;
    constexpr u32 STEP = Step<N>::chunks, ROW_GROUPS = N / 8;
    constexpr u32 COMBOS = 4 * STEP, APART = kWarps / COMBOS, PIECES = (ROW_GROUPS + APART - 1) / APART;
    // A chunk of x: two swizzled tiles of 64 columns, or rows 64 bytes (mod 128) apart, so that loads of two rows by four
    // lanes each touch every bank once.
    constexpr u32 X_HALF = N * 128, X_ROW = kChunk * 2 + 64, X_CHUNK = WG ? 2 * X_HALF : N * X_ROW, X_SLOT = STEP * X_CHUNK;
    WB_DYN_SHARED(u8, shared);
    __shared__ u64 staged;
    __shared__ u32 second;
    float* sums = reinterpret_cast<float*>(shared + kSlots * X_SLOT);  // [N][kPitch]
    float* squares = sums + N * kPitch;                                // [COMBOS][N], and then [N] sums of them
    float* square_sums = squares + COMBOS * N;
    const u32 warp = __shfl_sync(WB_FULL_MASK, threadIdx.x / 32, 0), lane = lane_id(), g = lane >> 2, c = lane & 3;
    u8* const ring = reinterpret_cast<u8*>(square_sums + N) + warp * DEPTH * Layout::bytes;
    const u32 units = (a.chunks + kUnit - 1) / kUnit;

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

    // x: a warp has 32 columns (j) of a chunk (q) of a step, and every APARTth eight rows of them; a lane has eight columns.
    const u32 combo = warp % COMBOS, q = combo / 4, j = combo % 4, group0 = warp / COMBOS;
    const bool stager = warp < COMBOS * APART;
    Vec16 pieces[PIECES];
    float squared[PIECES];
    u32 col = 0;
    bool counts = false;
    // Its next piece: chunk of x, and how many more positions follow it in k.
    u32 x_position = q, x_chunk = 0, x_left = 0;
    const T* const x_rows = a.x + static_cast<u64>(m0 + group0 * 8 + g) * a.x_stride + j * 32 + c * 8;
    auto load_x = [&]() {
        if (!stager || x_position >= count * kUnit) return;
        if (x_left == 0) {
            const u32 i = x_position / kUnit, unit = unit_of(i);
            x_chunk = unit % units * kUnit + x_position % kUnit;
            x_left = left_of(i, unit) * kUnit - x_position % kUnit;
        }
        col = x_chunk * kChunk + j * 32 + c * 8;
        if (norm) {
            // Each chunk's squares are added once: those of the first whole row block, or of head and tail together.
            const u32 i = x_position / kUnit;
            const bool whole = before_tail > head;
            counts = split > 1 || (whole ? i >= head && i < head + units : i < head || x_chunk / kUnit >= head);
        }
        const T* at = x_rows + x_chunk * kChunk;
#pragma unroll
        for (u32 v = 0; v < PIECES; v++) {
            const u32 row = (group0 + v * APART) * 8 + g;
            pieces[v] = row < columns && col < a.k ? ld16(at + static_cast<u64>(v * APART * 8) * a.x_stride) : Vec16{};
        }
        // What is left may be another row block's: then the next call looks it up.
        x_left = x_left > STEP ? x_left - STEP : 0;
        x_chunk += STEP;
    };
    // The tensor core takes its two columns of eight k from 16 bytes each: a lane's pairs are dealt to four such pieces.
    auto store_x = [&](u32 slot) {
        if (stager && x_position < count * kUnit) {
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
                u8* to = shared + slot * X_SLOT + q * X_CHUNK;
                if (WG) {
                    to += j / 2 * X_HALF + (group * 8 + g) * 128 + c * 4;
#pragma unroll
                    for (u32 p = 0; p < 4; p++)
                        *reinterpret_cast<u32*>(to + ((j % 2 * 4 + p) ^ g) * 16) = pieces[v].w[p];
                } else {
                    st16(to + (group * 8 + g) * X_ROW + j * 64 + c * 16, pieces[v]);
                }
            }
        }
        x_position += STEP;
        if (WG) fence_proxy_async();
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
    load_x();
    store_x(0);
    load_x();

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
    u32 x_slot = 0, parity = 0, next_slot = 1, in_step = 0, now_left = 0;
    u8* at = ring;
    u8* const ring_end = ring + DEPTH * Layout::bytes;
    // The next step's x becomes this step's.
    auto turn_x = [&](u32 position) {
        mbar_wait(&staged, parity);
        parity ^= 1;
        x_slot = (next_slot == 0 ? kSlots - 1 : next_slot - 1) * X_SLOT;
        if (position + STEP < count * kUnit) {
            // Everybody has said that the slot's last use is over: who fills this step's x has done the step before it.
            store_x(next_slot);
            load_x();
        }
        next_slot = next_slot == kSlots - 1 ? 0 : next_slot + 1;
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
                const u8* x = shared + x_at + g * X_ROW + c * 16;
#pragma unroll
                for (u32 i = 0; i < GPC; i++) {
                    const u32 top = zero_of<T>(zeros[h][i] & 15u), bottom = zero_of<T>(zeros[h][i] >> 4);
                    float s4[CHAINS][N / 8][4] = {};
#pragma unroll
                    for (u32 t = i * 4 / GPC; t < (i + 1) * 4 / GPC; t++) {  // 32 columns each
                        u32 f[2][4];
#pragma unroll
                        for (u32 b = 0; b < 2; b++) dequant_word_exact<T>(f[b], w[t / 2].w[t % 2 * 2 + b], top, bottom);
#pragma unroll
                        for (u32 n = 0; n < N / 8; n++) {
                            const Vec16 v = ld16(x + n * 8 * X_ROW + t * 64);
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
                        WgmmaRs<T, N>::run(d, f[b % KEPT], x + b / 4 * (X_HALF / 16) + b % 4 * 2, b % (8 / GPC) != 0);
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
        NAME(const u8* qweight, const u8* scales, const u8* zeros, const T* x, const T* norm, const T* residual,       \
             void* out, float* partial, u32* flags, u32 m, u32 n, u32 k, u32 x_stride, u32 chunks, u32 groups,         \
             u32 zero_groups, i32 pre, i32 post, i32 out_f32, float eps) {                                             \
        product<T, N, GPC, ASYM, kDepth, WG>(Args<T>{qweight, scales, zeros, x, norm, residual, out, partial, flags,   \
                                                     m, n, k, x_stride, chunks, groups, zero_groups, pre, post,        \
                                                     out_f32, eps});                                                   \
    }                                                                                                                  \
    WB_ENTRY(NAME)
#define WIDTHS(T, GROUP, GPC, ZEROS, ASYM)                                        \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_##ZEROS##_m8, T, 8, GPC, ASYM, true)       \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_##ZEROS##_m16, T, 16, GPC, ASYM, true)     \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_##ZEROS##_m32, T, 32, GPC, ASYM, true)     \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_##ZEROS##_m64, T, 64, GPC, ASYM, true)
#define WARPS(T, GROUP, GPC, ZEROS, ASYM)                                         \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_##ZEROS##_m8w, T, 8, GPC, ASYM, false)     \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_##ZEROS##_m16w, T, 16, GPC, ASYM, false)   \
    ENTRY(w4a16_wgmma_##T##_g##GROUP##_##ZEROS##_m32w, T, 32, GPC, ASYM, false)
WARPS(bf16, 128, 1, sym, false)
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
