// Hopper, three rows of x up to 64: the weights as the register operand of tensor-core products, of warpgroups where x is
// wide. A word of the packed layout is a fragment's four registers, so nibbles go from memory through a lane's registers
// into the tensor core and are never stored again; from 32 rows on x stays in shared memory, read once for 64 rows of weights.
//
// A block has 256 rows: eight warps with two tiles of 16 rows each, or sixteen with one. A warp streams its own contiguous
// kilobytes by cp.async into a ring of its own, each lane what it will read, with no barrier but __syncwarp (gemv_fixed.cu).
// Instructions are the bound, so what x costs, and the loop, is paid once for both tiles, and x comes ready: a small kernel ahead
// writes it as tiles, normalised if asked, and one thread copies whole steps of a few chunks into three slots, two steps ahead.
// Warps may drift apart by two steps.
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
constexpr u32 kRows = 256, kSlots = 3;
constexpr u32 kPitch = kRows + 4;  // floats between columns of sums: four columns of eight rows touch every bank once
constexpr u32 kPass = 16;  // columns of sums that are in shared memory at once while x and weights are there too
enum { POST_NONE = 0, POST_RESIDUAL = 1, POST_SILU_MUL = 2 };

// Chunks of x in a step, at least a unit: few enough for shared memory, enough to keep warps apart.
template <int N> struct Step {
    static constexpr u32 chunks = N <= 32 ? 4 : 2;
};

// Tiles of rows a warp, and warps. Measured, two are better but for 32 columns.
template <int N> struct Block {
    static constexpr u32 tiles = N == 32 ? 1 : 2, warps = kRows / kTile / tiles, threads = 32 * warps;
};

// Units in a warp's ring: three of all warps are 101 KB on their way on a multiprocessor.
template <int N, int GPC> struct Depth {
    static constexpr u32 units = N >= 32 && GPC == 4 ? 2 : 3;
};

template <class T> struct Args {
    const u8* qweight;
    const u8* scales;
    const u8* zeros;
    const u8* x;  // prepared: [gridDim.y][chunks, rounded up to units][Tile<N, WG, GPC>::bytes]
    const T* residual;
    void* out;
    float* partial;  // [gridDim.y][gridDim.x]: what a block leaves of its head and its tail
    u32* flags;      // [gridDim.y][row blocks], zero before and after
    u32 m, n, chunks, groups, zero_groups, split;
    i32 post, out_f32;
};

// Four floats that were seen as bits once make ptxas copy accumulators around every wgmma; these never are.
struct alignas(16) Float4 {
    float v[4];
};

// A chunk of N rows of x as the products take it: two swizzled tiles of 64 columns for a warpgroup, or rows 64 bytes (mod 128)
// apart for a warp, so that its loads of two rows by four lanes each touch every bank once; and behind those the sums of each
// group of columns, by which products begin with what zero points owe: [GPC][N / 8][pair of rows 4][4] floats, a pair twice, as
// an accumulator's registers are.
template <int N, bool WG, int GPC> struct Tile {
    static constexpr u32 half = N * 128, row = WG ? 128 : kChunk * 2 + 64, sums = N * row;
    static constexpr u32 bytes = WG ? 2 * half : sums + GPC * N * 8;
};

// A warp's fetched unit of two chunks: weights of its tiles, their scales, their zero points (padded by the layout to 16 bytes).
template <u32 TILES, int GPC, bool ASYM> struct Unit {
    static constexpr u32 tile_scales = kUnit * GPC * 32, tile_zeros = (kUnit * GPC * 8 + 15) / 16 * 16;
    static constexpr u32 scales = TILES * kUnit * kChunkBytes, zeros = scales + TILES * tile_scales;
    static constexpr u32 bytes = zeros + (ASYM ? TILES * tile_zeros : 0);
};

// N columns (rows of x), GPC groups a chunk. WG: products of warpgroups, or of single warps.
template <class T, int N, int GPC, bool ASYM, bool WG> WB_DEVICE void product(const Args<T>& a) {
    constexpr u32 TILES = Block<N>::tiles, kWarps = Block<N>::warps, kThreads = Block<N>::threads;
    using Layout = Unit<TILES, GPC, ASYM>;
    constexpr u32 STEP = Step<N>::chunks, X_CHUNK = Tile<N, WG, GPC>::bytes, X_SLOT = STEP * X_CHUNK;
    constexpr u32 DEPTH = Depth<N, GPC>::units;
    WB_DYN_SHARED(u8, shared);
    __shared__ u64 full[kSlots], empty[kSlots];
    __shared__ u32 second;
    const u32 warp = __shfl_sync(WB_FULL_MASK, threadIdx.x / 32, 0), lane = lane_id(), g = lane >> 2, c = lane & 3;
    u8* const ring = shared + kSlots * X_SLOT + warp * DEPTH * Layout::bytes;
    const u32 units = (a.chunks + kUnit - 1) / kUnit;

    const u32 split = a.split, rank = blockIdx.x % split;
    const u32 tiles = (a.n + kTile - 1) / kTile;
    const bool silu = a.post == POST_SILU_MUL;
    const u32 item_tiles = silu ? kRows / kTile / 2 : kRows / kTile, row_tiles = silu ? tiles / 2 : tiles;
    const u32 items = (row_tiles + item_tiles - 1) / item_tiles;
    const u32 m0 = blockIdx.y * N, columns = a.m - m0 < N ? a.m - m0 : N;

    // With silu_mul half of a block's tiles are gates and half their ups: a warp has one of each, or two warps of a warpgroup have
    // gates and two their ups.
    auto up = [&](u32 t) { return silu && (TILES == 2 ? t == 1 : warp / 2 % 2 == 1); };
    auto tile_of = [&](u32 t) { return TILES == 2 ? (silu ? warp : warp * 2 + t) : silu ? warp / 4 * 2 + warp % 2 : warp; };

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
    u32 run_end = 0;
    bool there[TILES] = {}, scale_there = false, pairs = false;
    const u8 *w_at[TILES], *scale_at = a.scales, *zero_at = a.zeros;
    const u32 unit_groups = a.groups == 1 ? 0 : kUnit * GPC;
    // Lanes share the scales of both tiles, 16 bytes each, and so the zero points.
    constexpr u32 SCALE_LANES = 2 * kUnit * GPC;
    const u32 scale_tile = lane / SCALE_LANES, scale_piece = lane % SCALE_LANES, zero_tile = lane / GPC, zero_piece = lane % GPC;
    const bool scale_lane = scale_tile < TILES && (a.groups != 1 || scale_piece < 2);
    const bool zero_lane = ASYM && zero_tile < TILES && (a.groups != 1 || zero_piece < 1);
    auto seek = [&](u32 i) {
        const u32 unit = unit_of(i), in_row = unit % units;
        run_end = i + left_of(i, unit);
        // The last unit of a row may have one chunk: zeros stand for the other.
        pairs = in_row + run_end - i < units || a.chunks % kUnit == 0;
        u64 tile[TILES];
#pragma unroll
        for (u32 t = 0; t < TILES; t++) {
            const u32 in_rows = unit / units * item_tiles + tile_of(t);
            there[t] = in_rows < row_tiles;
            tile[t] = there[t] ? in_rows + (up(t) ? row_tiles : 0) : 0;
            w_at[t] = a.qweight + (tile[t] * a.chunks + in_row * kUnit) * kChunkBytes + lane * 16;
        }
        scale_there = scale_tile == 0 ? there[0] : there[TILES - 1];
        scale_at = a.scales + ((scale_tile == 0 ? tile[0] : tile[TILES - 1]) * a.groups + in_row * unit_groups) * 32 + scale_piece * 16;
        if (ASYM) zero_at = a.zeros + ((zero_tile == 0 ? tile[0] : tile[TILES - 1]) * a.zero_groups + in_row * unit_groups) * 8 + zero_piece * 16;
    };
    auto fetch = [&](u32 i, u8* slot) {
        if (i >= run_end) seek(i);
        const bool whole = pairs || i + 1 < run_end;
        u8* const mine = slot + lane * 16;
#pragma unroll
        for (u32 t = 0; t < TILES; t++) {
            const bool both = there[t] && whole;
            cp_async16(mine + t * kUnit * kChunkBytes, w_at[t], there[t]);
            cp_async16(mine + t * kUnit * kChunkBytes + 512, w_at[t] + 512, there[t]);
            cp_async16(mine + t * kUnit * kChunkBytes + 1024, w_at[t] + 1024, both);
            cp_async16(mine + t * kUnit * kChunkBytes + 1536, w_at[t] + 1536, both);
            w_at[t] += kUnit * kChunkBytes;
        }
        if (scale_lane) {
            const bool is = scale_there && (whole || scale_piece < 2 * GPC);
            cp_async16(slot + Layout::scales + scale_tile * Layout::tile_scales + scale_piece * 16, scale_at, is);
        }
        if (ASYM && zero_lane) {
            const bool is = (zero_tile == 0 ? there[0] : there[TILES - 1]) && (whole || zero_piece < (GPC + 1) / 2);
            cp_async16(slot + Layout::zeros + zero_tile * Layout::tile_zeros + zero_piece * 16, zero_at, is);
        }
        scale_at += unit_groups * 32;
        if (ASYM) zero_at += unit_groups * 8;
    };
    // Weights do not depend on the kernel before: ask for them first.
    for (u32 d = 0; d < DEPTH; d++) {
        if (d < count) fetch(d, ring + d * Layout::bytes);
        cp_async_commit();
    }

    // x: one thread asks for whole steps, two ahead of their use.
    const u8* const x_rows = a.x + static_cast<u64>(blockIdx.y) * units * kUnit * X_CHUNK;
    u32 x_unit = split > 1 ? first % units : 0;
    auto load_x = [&](u32 i, u32 slot) {
        const u32 rest = count - i, here = rest < STEP / kUnit ? rest : STEP / kUnit;
        mbar_arrive_expect_tx(full + slot, here * kUnit * X_CHUNK);
#pragma unroll 1
        for (u32 e = 0; e < here; e++) {
            if (i + e == before_tail) x_unit = units - tail;
            else if (x_unit == units || (i + e == head && split == 1)) x_unit = 0;
            bulk_load(shared + slot * X_SLOT + e * kUnit * X_CHUNK, x_rows + static_cast<u64>(x_unit) * kUnit * X_CHUNK,
                      kUnit * X_CHUNK, full + slot);
            x_unit++;
        }
    };
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < kSlots; i++) mbar_init(full + i, 1), mbar_init(empty + i, kWarps);
        fence_mbar_init();
    }
    __syncthreads();
    pdl_wait();
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < kSlots && i * (STEP / kUnit) < count; i++) load_x(i * (STEP / kUnit), i);
    }

    float acc[TILES][N / 2];

    // A row block is done, or this block's part of it.
    constexpr u32 PART = kRows * N, LEFT = 2 * PART;
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
                for (u32 t = 0; t < TILES; t++) {
#pragma unroll
                    for (int v = 0; v < N / 8; v++)
                        *reinterpret_cast<Float4*>(mine + (t * (N / 8) + v) * kThreads * 4) =
                            Float4{acc[t][v * 4], acc[t][v * 4 + 1], acc[t][v * 4 + 2], acc[t][v * 4 + 3]};
                }
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
            for (u32 t = 0; t < TILES; t++) {
#pragma unroll
                for (int v = 0; v < N / 8; v++) {
                    const Float4 p = *reinterpret_cast<const Float4*>(theirs + (t * (N / 8) + v) * kThreads * 4);
#pragma unroll
                    for (int e = 0; e < 4; e++) acc[t][v * 4 + e] += p.v[e];
                }
            }
        }
        // Sums go through shared memory. A cluster is done with x and weights and takes their place for all columns; a block
        // alone, that goes on, has room for some columns at a time. A thread's outputs are runs of four rows of one column.
        float* const sums = reinterpret_cast<float*>(split > 1 ? shared : shared + kSlots * X_SLOT + kWarps * DEPTH * Layout::bytes);
        const u32 pass = split > 1 || N < kPass ? N : kPass;
        const u32 quads = (silu ? kRows / 2 : kRows) / 4, width = silu ? a.n / 2 : a.n;
        const bool vectors = width % 4 == 0 && (reinterpret_cast<u64>(a.out) & 15) == 0 &&
                             (reinterpret_cast<u64>(a.residual) & 7) == 0;
#pragma unroll 1
        for (u32 from = 0; from < columns; from += pass) {
            const u32 to = columns < from + pass ? columns : from + pass;
            __syncthreads();  // everybody has left what lies there now
#pragma unroll
            for (int v = 0; v < N / 2; v++) {
                const u32 column = v / 4 * 8 + 2 * c + v % 2;
                if (column >= from && column < to) {
#pragma unroll
                    for (u32 t = 0; t < TILES; t++) {
                        const u32 row = (up(t) ? kRows / 2 : 0) + tile_of(t) * kTile + g + v % 4 / 2 * 8;
                        sums[(column - from) * kPitch + row] = acc[t][v];
                    }
                }
            }
            if (split > 1) cluster_sync();
            else __syncthreads();
            const u32 all = (to - from) * quads, begin = all * rank / split + threadIdx.x, end = all * (rank + 1) / split;
#pragma unroll 1
            for (u32 e = begin; e < end; e += kThreads) {
                const u32 row = item * (item_tiles * kTile) + e % quads * 4, column = e / quads;
                if (row >= width) continue;
                const u64 place = static_cast<u64>(m0 + from + column) * width + row;
                u64 residual = 0;
                if (a.post == POST_RESIDUAL && vectors) residual = *reinterpret_cast<const u64*>(a.residual + place);
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
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (silu) v[i] = v[i] / (1.0f + __expf(-v[i])) * w[i];
                    if (a.post == POST_RESIDUAL && vectors) v[i] += to_float(T{static_cast<u16>(residual >> 16 * i)});
                }
                if (vectors) {
                    if (a.out_f32) *reinterpret_cast<Float4*>(static_cast<float*>(a.out) + place) = Float4{v[0], v[1], v[2], v[3]};
                    else
                        *reinterpret_cast<u64*>(static_cast<T*>(a.out) + place) =
                            static_cast<u64>(pack2<T>(v[2], v[3])) << 32 | pack2<T>(v[0], v[1]);
                    continue;
                }
                for (u32 i = 0; i < 4 && row + i < width; i++) {
                    if (a.post == POST_RESIDUAL) v[i] += to_float(a.residual[place + i]);
                    if (a.out_f32) static_cast<float*>(a.out)[place + i] = v[i];
                    else static_cast<T*>(a.out)[place + i] = from_float<T>(v[i]);
                }
            }
            if (split > 1) cluster_sync();  // others read from here until now
        }
    };

    const u64 x_base = wgmma_desc_128b(shared);
    const u32 x_high = static_cast<u32>(x_base >> 32), x_low = static_cast<u32>(x_base);
    u32 parity = 0, slot = 0, in_step = 0;
    u8* at = ring;
    u8* const ring_end = ring + DEPTH * Layout::bytes;
    // On to the next step's x. A slot is filled again when every warp has left it: a barrier a slot, for warps drift apart, and
    // at one barrier for all a fast warp would be counted twice where a slow one is missing.
    auto turn_x = [&](u32 now) {
        if (now > 0) {
            constexpr u32 AHEAD = (kSlots - 1) * (STEP / kUnit);
            __syncwarp();
            if (lane == 0) mbar_arrive(empty + slot);
            if (threadIdx.x == 0 && now + AHEAD < count) {
                mbar_wait(empty + slot, parity);
                load_x(now + AHEAD, slot);
            }
            slot++;
            if (slot == kSlots) slot = 0, parity ^= 1;
        }
        mbar_wait(full + slot, parity);
    };
    // Warpgroups: what the products of a group of columns are, per tile, and the scales that they wait for. Products of one
    // tile are queued while the other's operands are made, so sums are taken up one group late.
    constexpr u32 BATCH = GPC == 4 ? 2 : 4, BATCHES = 8 / GPC / BATCH;  // words whose products are queued together
    float d[TILES][WG ? N / 2 : 1];
#pragma unroll
    for (u32 t = 0; t < TILES; t++) {
#pragma unroll
        for (int v = 0; v < (WG ? N / 2 : 1); v++) d[t][v] = 0.0f;
    }
    auto take_up = [&](u32 t, u32 scale) {
        const Pair s = unpack2<T>(scale);
#pragma unroll
        for (int v = 0; v < (WG ? N / 2 : 1); v++) acc[t][v] = fmaf(v % 4 < 2 ? s.lo : s.hi, d[t][v], acc[t][v]);
    };

    u32 now = 0;
    // A block of a cluster may have no unit at all, and joins in the sums.
#pragma unroll 1
    do {
        const u32 until = count == 0 ? 0 : now + left_of(now, unit_of(now));
#pragma unroll
        for (u32 t = 0; t < TILES; t++) {
#pragma unroll
            for (int v = 0; v < N / 2; v++) acc[t][v] = 0.0f;
        }
#pragma unroll 1
        for (; now < until; now++) {
            if (in_step == 0) turn_x(now);
            cp_async_wait<DEPTH - 1>();
            __syncwarp();
            const u32 x_at = slot * X_SLOT + in_step * kUnit * X_CHUNK;
            in_step = in_step + 1 == STEP / kUnit ? 0 : in_step + 1;
            u32 scales[TILES][kUnit][GPC], zeros[TILES][kUnit][GPC];
#pragma unroll
            for (u32 t = 0; t < TILES; t++) {
#pragma unroll
                for (u32 h = 0; h < kUnit; h++) {
#pragma unroll
                    for (u32 i = 0; i < GPC; i++) {
                        const u32 group = i + (a.groups == 1 ? 0 : h * GPC);
                        scales[t][h][i] = *reinterpret_cast<const u32*>(at + Layout::scales + t * Layout::tile_scales + group * 32 + g * 4);
                        zeros[t][h][i] = ASYM ? at[Layout::zeros + t * Layout::tile_zeros + group * 8 + g] : 0x88u;
                    }
                }
            }
#pragma unroll
            for (u32 h = 0; h < kUnit; h++) {
                Vec16 w[TILES][2];
#pragma unroll
                for (u32 t = 0; t < TILES; t++) {
                    w[t][0] = ld16(at + (t * kUnit + h) * kChunkBytes + lane * 16);
                    w[t][1] = ld16(at + (t * kUnit + h) * kChunkBytes + 512 + lane * 16);
                }
                if (h + 1 == kUnit) {
                    __syncwarp();  // all lanes have read the slot before it is asked for again
                    if (now + DEPTH < count) fetch(now + DEPTH, at);
                    else pdl_launch();
                    cp_async_commit();
                }
                if constexpr (!WG) {
                    const u8* x = shared + x_at + h * X_CHUNK + g * Tile<N, WG, GPC>::row + c * 16;
                    const u8* x_sums = shared + x_at + h * X_CHUNK + Tile<N, WG, GPC>::sums + c * 16;
#pragma unroll
                    for (u32 i = 0; i < GPC; i++) {
                        // Sums begin at what the products with OFFSET + q will have too much (convert.cuh).
                        float sum[TILES][N / 8][4];
#pragma unroll
                        for (u32 n = 0; n < N / 8; n++) {
                            const Float4 s = *reinterpret_cast<const Float4*>(x_sums + (i * (N / 8) + n) * 64);
#pragma unroll
                            for (u32 t = 0; t < TILES; t++) {
                                const float top = ASYM ? -Magic<T>::offset - static_cast<float>(zeros[t][h][i] & 15u) : 1.0f;
                                const float bottom = ASYM ? -Magic<T>::offset - static_cast<float>(zeros[t][h][i] >> 4) : 1.0f;
#pragma unroll
                                for (u32 e = 0; e < 4; e++) sum[t][n][e] = ASYM ? (e < 2 ? top : bottom) * s.v[e] : s.v[e];
                            }
                        }
#pragma unroll
                        for (u32 j = i * 4 / GPC; j < (i + 1) * 4 / GPC; j++) {  // 32 columns each
                            Vec16 v[N / 8];
#pragma unroll
                            for (u32 n = 0; n < N / 8; n++) v[n] = ld16(x + n * 8 * Tile<N, WG, GPC>::row + j * 64);
#pragma unroll
                            for (u32 b = 0; b < 2; b++) {
#pragma unroll
                                for (u32 t = 0; t < TILES; t++) {
                                    u32 f[4];
                                    dequant_word<T>(f, w[t][j / 2].w[j % 2 * 2 + b]);
#pragma unroll
                                    for (u32 n = 0; n < N / 8; n++) {
                                        const u32 bf[2] = {v[n].w[2 * b], v[n].w[2 * b + 1]};
                                        mma_m16n8k16<T>(sum[t][n], f, bf);
                                    }
                                }
                            }
                        }
#pragma unroll
                        for (u32 t = 0; t < TILES; t++) {
                            const Pair s = unpack2<T>(scales[t][h][i]);
#pragma unroll
                            for (int v = 0; v < N / 2; v++) acc[t][v] = fmaf(v % 4 < 2 ? s.lo : s.hi, sum[t][v / 4][v % 4], acc[t][v]);
                        }
                    }
                } else {
                    const u32 x = __shfl_sync(WB_FULL_MASK, x_low + (x_at + h * X_CHUNK) / 16, 0);
#pragma unroll
                    for (u32 i = 0; i < GPC; i++) {
#pragma unroll
                        for (u32 b = 0; b < BATCHES; b++) {
#pragma unroll
                            for (u32 t = 0; t < TILES; t++) {
                                const u32 first_word = (i * BATCHES + b) * BATCH;
                                const u32 top = zero_of<T>(zeros[t][h][i] & 15u), bottom = zero_of<T>(zeros[t][h][i] >> 4);
                                u32 f[BATCH][4];
#pragma unroll
                                for (u32 e = 0; e < BATCH; e++)
                                    dequant_word_exact<T>(f[e], w[t][(first_word + e) / 4].w[(first_word + e) % 4], top, bottom);
                                // All products but the other tile's last are done.
                                if (h + i + b + t > 0) wgmma_wait<TILES - 1>();
                                if (b == 0 && h + i > 0) {
                                    wgmma_pin(d[t]);
                                    take_up(t, scales[t][i == 0 ? h - 1 : h][i == 0 ? GPC - 1 : i - 1]);
                                }
                                wgmma_fence();
#pragma unroll
                                for (u32 e = 0; e < BATCH; e++) {
                                    const u32 word = first_word + e, low = x + word / 4 * (Tile<N, WG, GPC>::half / 16) + word % 4 * 2;
                                    WgmmaRs<T, N>::run(d[t], f[e], static_cast<u64>(x_high) << 32 | low, b != 0 || e != 0);
                                }
                                wgmma_commit();
                            }
                        }
                    }
                }
            }
            if constexpr (WG) {
                wgmma_wait<0>();
#pragma unroll
                for (u32 t = 0; t < TILES; t++) {
                    wgmma_pin(d[t]);
                    take_up(t, scales[t][kUnit - 1][GPC - 1]);
                }
            }
            at += Layout::bytes;
            if (at == ring_end) at = ring;
        }
        if (until == count) cp_async_wait<0>();
        finish(split > 1 ? blockIdx.x / split : unit_of(until - 1) / units, split == 1 && until == head,
               until == count && tail != 0);
    } while (now < count);
}

#define ENTRY(NAME, T, N, GPC, ASYM, WG)                                                                               \
    WB_KERNEL void __launch_bounds__(Block<N>::threads, 1)                                                                      \
        NAME(const u8* qweight, const u8* scales, const u8* zeros, const u8* x, const T* residual, void* out,          \
             float* partial, u32* flags, u32 m, u32 n, u32 chunks, u32 groups, u32 zero_groups, u32 split, i32 post,   \
             i32 out_f32) {                                                                                            \
        product<T, N, GPC, ASYM, WG>(Args<T>{qweight, scales, zeros, x, residual, out, partial, flags, m, n, chunks,   \
                                             groups, zero_groups, split, post, out_f32});                              \
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

// x, normalised if asked, as tiles for the products above: blockIdx.x is the row, blocks along y share it, each with one load a
// thread where nothing is normalised. Zeros stand beyond k.
template <class T> WB_DEVICE void prepare(const T* x, const T* norm, u8* to, u32 k, u32 padded, u32 columns, u32 per_chunk, float eps,
                                           float owed) {
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
#pragma unroll 4
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
    const u32 r = blockIdx.x % columns, bytes = columns * (groups ? 256 : ROW + per_chunk * 8);
    to += static_cast<u64>(blockIdx.x / columns) * (padded / kChunk) * bytes;
    for (u32 i = (blockIdx.y * blockDim.x + threadIdx.x) * 8; i < padded; i += gridDim.y * blockDim.x * 8) {
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
            if (lane_id() % lanes == 0) {
                float* at = reinterpret_cast<float*>(tile + columns * ROW) + i % kChunk * per_chunk / kChunk * columns * 2;
                at += r / 8 * 16 + r % 8 / 2 * 4 + r % 2;
                at[0] = at[2] = sum * owed;
            }
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
        NAME(const T* x, const T* norm, u8* to, u32 k, u32 padded, u32 columns, u32 per_chunk, float eps, \
             float owed) {                                                                         \
        prepare<T>(x, norm, to, k, padded, columns, per_chunk, eps, owed);                         \
    }                                                                                              \
    WB_ENTRY(NAME)
PREPARE(w4a16_wgmma_prepare_bf16, bf16)
PREPARE(w4a16_wgmma_prepare_f16, f16)
