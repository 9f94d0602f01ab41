// Fewer instructions a weight: integers all the way through a group, and no barrier before the last tile.
//
// x is written as block fixed point: in each group of columns that shares a scale, x = 2^e * X with |X| <= 2^22, and X is cut
// into three signed bytes, three columns of an int8 product (mma.m16n8k32; seven of eight columns are empty at one row
// anyway). A nibble in the high half of a byte, its top bit flipped, *is* the signed byte 16 (q - 8): two shifts and two
// logic operations make a fragment of eight weights a lane, where 16-bit numbers take seven. The sum over a group is an
// exact integer; 2^e and the scale enter in fp32, once a group. What is lost is what X leaves out of x: at most 2^-22 of the
// group's largest element, the weight of a rounding in fp32.
//
// A warp has its own rows' run: a block's chunks (all of its tiles, one after the other) are cut evenly over its warps, each
// streams its contiguous kilobytes through a ring of its own, and the partial sums meet once, at the kernel's end. A lane
// copies what it will read, so no barrier but __syncwarp guards the ring.
#include "gemv.cuh"

constexpr u32 kUnit = 2;                           // chunks that are fetched together
constexpr u32 kDigits = 3, kXDigit = 64;           // signed bytes of an X; bytes of one digit of half a chunk
constexpr u32 kXHalf = kDigits * kXDigit;          // half a chunk of one row of x
constexpr float kMagic = 12582912.0f;              // 1.5 * 2^23: adding it puts an integer in the low bits
constexpr u32 kFlip = 0x80808080u;

// Bytes of a fetched unit: weights, scales, zero points.
template <int GPC, bool ASYM> struct Unit {
    static constexpr u32 scales = kUnit * kChunkBytes, zeros = scales + kUnit * GPC * 32;
    static constexpr u32 bytes = zeros + (ASYM ? kUnit * GPC * 8 : 0);
};

// Bytes between rows of digits: 64 mod 128, so that the eight lanes of a phase of a 16-byte load touch every bank once.
WB_DEVICE u32 row_bytes(u32 padded) { return padded * kDigits + 64; }

// Rows between factors of neighbouring groups.
template <int NB> struct FactorStride {
    static constexpr u32 n = NB == 1 ? 2 : kMaxM;
};

// Four bytes of a word of the packed layout as 16 (q - 8): rows g and g + 8.
WB_DEVICE u32 top_bytes(u32 w) { return lop3<0x6A>(w << 1, 0xf0f0f0f0u, kFlip); }
WB_DEVICE u32 bottom_bytes(u32 w) { return lop3<0x6A>((w >> 3) | (w << 29), 0xf0f0f0f0u, kFlip); }

// --- x, times the gains if asked, to shared memory as digits, with the groups' powers of two and the rows' sums of squares.
//
// digits: [row][chunk][half][digit][c 4][16 bytes], the 16 bytes of a lane's two products: eight columns each, in the order
// that the words of the packed layout have them. factors: [group][FactorStride], 2^e / 16 (NaN where x is not finite).
// scratch: [row][32], a sum of squares a warp. k is a multiple of 8, x and the gains lie on 16 bytes. Ends with a barrier.
template <class T, int GPC, int NB>
WB_DEVICE void stage_fixed(u8* digits, float* factors, float* scratch, const GemvArgs<T>& a, u32 padded) {
    constexpr u32 AHEAD = 4, RUN = 128 / GPC;
    const u32 lane = lane_id(), warp = warp_id(), row_items = padded / 8, items = row_items * a.m;
    const bool norm = a.pre == PRE_RMSNORM;
    auto row_of = [&](u32 item) { return a.m == 1 ? 0 : item / row_items; };
    if (norm && lane == 0) {
        for (u32 r = 0; r < a.m; r++) scratch[r * 32 + warp] = 0.0f;
    }
    for (u32 base = threadIdx.x; base < items; base += AHEAD * blockDim.x) {
        // All loads before the first use: their latencies overlap.
        Vec16 v[AHEAD], gains[AHEAD];
#pragma unroll
        for (u32 t = 0; t < AHEAD; t++) {
            const u32 item = base + t * blockDim.x, r = row_of(item), i = (item - r * row_items) * 8;
            v[t] = gains[t] = Vec16{};
            if (item < items && i < a.k) {
                v[t] = ld16(a.x + static_cast<u64>(r) * a.k + i);
                if (norm) gains[t] = ld16(a.norm + i);
            }
        }
#pragma unroll
        for (u32 t = 0; t < AHEAD; t++) {
            const u32 item = base + t * blockDim.x;
            // A warp's items are 256 neighbouring columns of one row: it leaves together.
            if (item >= items) break;
            const u32 r = row_of(item), i = (item - r * row_items) * 8;
            float e[8];
            unpack16<T>(v[t], e);
            if (norm) {
                float gain[8], squares = 0.0f;
                unpack16<T>(gains[t], gain);
#pragma unroll
                for (u32 j = 0; j < 8; j++) {
                    squares += e[j] * e[j];
                    e[j] *= gain[j];
                }
                squares = warp_sum(squares);
                if (lane == 0) scratch[r * 32 + warp] += squares;
            }
            float most = 0.0f;
#pragma unroll
            for (u32 j = 0; j < 8; j++) most = max_or_nan(most, fabsf(e[j]));
#pragma unroll
            for (u32 d = RUN / 16; d > 0; d /= 2) most = max_or_nan(most, __shfl_xor_sync(WB_FULL_MASK, most, d));
            // The largest element lies in [2^(p - 127), 2^(p - 126)): times 2^(148 - p) it is below 2^22.
            const u32 exponent = __float_as_uint(most) & 0x7f800000u;
            const u32 p = exponent > (32u << 23) ? exponent : 32u << 23;
            const float up = __uint_as_float((275u << 23) - p);
            if (lane % (RUN / 8) == 0) {
                const float down = exponent == 0x7f800000u ? WB_NAN : __uint_as_float(p - (25u << 23));
                factors[i / RUN * FactorStride<NB>::n + r] = down;
            }
            u8* to = digits + r * row_bytes(padded) + i / 64 * kXHalf + (i >> 3 & 3) * 16 + (i >> 5 & 1) * 8;
            u32 word[kDigits][2];
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                // Balanced digits: 128 added to each makes carries of borrows; the flipped top bit takes it off again.
                u32 y[4];
#pragma unroll
                for (u32 j = 0; j < 4; j++)
                    y[j] = __float_as_uint(fmaf(e[half * 4 + j], up, kMagic)) + (0x808080u - 0x4b400000u);
                // Columns 0, 2, 1, 3: the order of the even nibbles of a word.
                const u32 low02 = __byte_perm(y[0], y[2], 0x5140), low13 = __byte_perm(y[1], y[3], 0x5140);
                const u32 high02 = __byte_perm(y[0], y[2], 0x0062), high13 = __byte_perm(y[1], y[3], 0x0062);
                word[0][half] = __byte_perm(low02, low13, 0x5410) ^ kFlip;
                word[1][half] = __byte_perm(low02, low13, 0x7632) ^ kFlip;
                word[2][half] = __byte_perm(high02, high13, 0x5410) ^ kFlip;
            }
#pragma unroll
            for (u32 d = 0; d < kDigits; d++)
                *reinterpret_cast<u64*>(to + d * kXDigit) = static_cast<u64>(word[d][1]) << 32 | word[d][0];
        }
    }
    __syncthreads();
}

// Waits for the oldest of `pending` groups of copies (2 to 5); the count must be known to the compiler.
WB_DEVICE void wait_for_unit(u32 pending) {
    if (pending == 3) return cp_async_wait<2>();
    if (pending == 4) return cp_async_wait<3>();
    if (pending == 2) return cp_async_wait<1>();
    cp_async_wait<4>();
}

// NB blocks of eight columns: 1 takes two rows of x (four columns each: three digits and one empty), 3 takes eight (a digit a
// block).
template <class T, int GPC, bool ASYM, int NB> WB_DEVICE void gemv_fixed(const GemvArgs<T>& a, u32 depth) {
    using Layout = Unit<GPC, ASYM>;
    constexpr u32 STRIDE = FactorStride<NB>::n, SUMS = NB == 1 ? 2 : 4;
    WB_DYN_SHARED(u8, shared);
    const u32 warps = blockDim.x >> 5, warp = warp_id(), lane = lane_id(), g = lane >> 2, c = lane & 3;
    const u32 steps = (a.chunks + kUnit - 1) / kUnit;
    u8* ring = shared + warp * depth * Layout::bytes;
    u8* digits = shared + warps * depth * Layout::bytes;
    float* factors = reinterpret_cast<float*>(digits + row_bytes(steps * kUnit * kChunk) * a.m);
    float* scratch = factors + steps * kUnit * GPC * STRIDE;
    float* partial = scratch + a.m * 32;  // [tile + warp][row of x][16]

    // This block's items, in a row: tiles, or gate tiles and then their up tiles.
    const u32 tiles = (a.n + kTile - 1) / kTile, parts = a.post == POST_SILU_MUL ? 2 : 1, up = tiles / parts;
    const u32 share = up / gridDim.x, more = up % gridDim.x;
    const u32 first = blockIdx.x * share + (blockIdx.x < more ? blockIdx.x : more);
    const u32 items = share + (blockIdx.x < more ? 1 : 0);
    const u32 total = items * parts * steps;
    const u32 runs = total < warps ? total : warps;  // warps with work; a tile's sums lie with neighbours among them
    const u32 begin = warp < runs ? total * warp / runs : total;
    const u32 end = warp < runs ? total * (warp + 1) / runs : total;

    // Where this warp's next unit lies.
    u32 fetched = begin, tile = begin / steps, step = begin % steps;
    const u32 group_step = a.groups == 1 ? 0 : kUnit * GPC;
    const u8 *w_at, *scale_at, *zero_at;
    auto seek = [&]() {
        const u64 row = first + (tile < items ? tile : tile - items + up);
        w_at = a.qweight + (row * a.chunks + step * kUnit) * kChunkBytes + lane * 16;
        scale_at = reinterpret_cast<const u8*>(a.scales) + (row * a.groups + step * group_step) * 32 + lane * 16;
        zero_at = a.zeros + (row * a.zero_groups + step * group_step) * 8 + lane * 16;
    };
    const bool scale_lane = lane < (a.groups == 1 ? 2 : 2 * kUnit * GPC);
    const bool zero_lane = ASYM && lane < (a.groups == 1 ? 1 : GPC);
    auto fetch = [&](u8* slot) {
        // A tile's last unit may have one chunk: zeros stand for the other.
        const bool second = step * kUnit + 1 < a.chunks;
        slot += lane * 16;
        cp_async16(slot, w_at);
        cp_async16(slot + 512, w_at + 512);
        cp_async16(slot + 1024, second ? w_at + 1024 : w_at, second);
        cp_async16(slot + 1536, second ? w_at + 1536 : w_at, second);
        if (scale_lane) {
            const bool there = second || lane < 2 * GPC;
            cp_async16(slot + Layout::scales, there ? scale_at : w_at, there);
        }
        if (zero_lane) {
            const bool there = second || lane < (GPC + 1) / 2;
            cp_async16(slot + Layout::zeros, there ? zero_at : w_at, there);
        }
        fetched++;
        if (++step == steps) {
            step = 0;
            tile++;
            seek();
        } else {
            w_at += kUnit * kChunkBytes;
            scale_at += group_step * 32;
            zero_at += group_step * 8;
        }
    };
    // Weights do not depend on the kernel before: ask for them first.
    seek();
    for (u32 d = 0; d < depth; d++) {
        if (fetched < end) fetch(ring + d * Layout::bytes);
        cp_async_commit();
    }
    prefetch_norm(a);
    pdl_wait();
    stage_fixed<T, GPC, NB>(digits, factors, scratch, a, steps * kUnit * kChunk);

    // Off the way to the end: 1/rms of each row, to be read behind the last barrier; the residual of a thread's first output.
    const u32 outputs = items * a.m * kTile, width = a.post == POST_SILU_MUL ? a.n / 2 : a.n;
    if (a.pre == PRE_RMSNORM && threadIdx.x < a.m) scratch[threadIdx.x * 32] = inverse_rms(a, scratch, threadIdx.x);
    float residual = 0.0f;
    auto place = [&](u32 o) {  // outputs: [item][row of x][16]
        return static_cast<u64>(o / kTile % a.m) * width + (first + o / kTile / a.m) * kTile + o % kTile;
    };
    auto in_width = [&](u32 o) { return (first + o / kTile / a.m) * kTile + o % kTile < width; };
    if (a.post == POST_RESIDUAL && threadIdx.x < outputs && in_width(threadIdx.x))
        residual = to_float(a.residual[place(threadIdx.x)]);

    // This lane's column of each block; columns beyond m's read others, of the other half of the banks.
    const u32 row_of_x = NB == 1 ? (g / 4 < a.m ? g / 4 : 0) : (g < a.m ? g : g & 1);
    const u32 digit = NB == 1 ? (g % 4 < 3 ? g % 4 : 1) : 0;
    const u8* xs = digits + row_of_x * row_bytes(steps * kUnit * kChunk) + digit * kXDigit + c * 16;
    // NB 1: weights of this lane's two columns, 1 and 256 or 65536 and nothing.
    const float low = c % 2 ? 65536.0f : 1.0f, high = c % 2 ? 0.0f : 256.0f;
    const u32 factor_row = NB == 1 ? (c / 2 < a.m ? c / 2 : 0) : 2 * c;
    const u32 second_scale = a.groups == 1 ? 0 : GPC;

    float acc[SUMS] = {};
    u32 slot = 0;
    u32 now_tile = begin / steps, now_step = begin % steps;
    for (u32 unit = begin; unit < end; unit++) {
        wait_for_unit(depth);
        __syncwarp();
        u8* at = ring + slot * Layout::bytes;
        if (++slot == depth) slot = 0;
        Vec16 w[kUnit][2];
        u32 scales[kUnit][GPC], zeros[kUnit][GPC];
#pragma unroll
        for (u32 h = 0; h < kUnit; h++) {
#pragma unroll
            for (u32 i = 0; i < 2; i++) w[h][i] = ld16(at + (h * 2 + i) * 512 + lane * 16);
#pragma unroll
            for (u32 q = 0; q < GPC; q++) {
                const u32 group = q + h * second_scale;
                scales[h][q] = *reinterpret_cast<const u32*>(at + Layout::scales + group * 32 + g * 4);
                zeros[h][q] = ASYM ? at[Layout::zeros + group * 8 + g] : 0x88u;
            }
        }
        // All lanes have read the slot before it is asked for again.
        __syncwarp();
        if (fetched < end) fetch(at);
        else pdl_launch();  // as late as there is nothing left to ask for; gemv_bulk.cu says why
        cp_async_commit();

        const u8* x = xs + now_step * (kUnit * 2 * kXHalf);
        const float* factor = factors + now_step * (kUnit * GPC * STRIDE) + factor_row;
#pragma unroll
        for (u32 q = 0; q < GPC; q++) {
            i32 d[kUnit][NB][4], ones[kUnit][NB][4];
            Vec16 b[kUnit][NB];
#pragma unroll
            for (u32 h = 0; h < kUnit; h++) {
#pragma unroll
                for (u32 n = 0; n < NB; n++) {
#pragma unroll
                    for (u32 e = 0; e < 4; e++) d[h][n][e] = ones[h][n][e] = 0;
                }
            }
#pragma unroll
            for (u32 s = 0; s < 4 / GPC; s++) {
                const u32 t = q * (4 / GPC) + s;  // 32 columns each
#pragma unroll
                for (u32 h = 0; h < kUnit; h++) {
                    if (s == 0 || t % 2 == 0) {
#pragma unroll
                        for (u32 n = 0; n < NB; n++) b[h][n] = ld16(x + (h * 2 + t / 2) * kXHalf + n * kXDigit);
                    }
                    const u32 w0 = w[h][t / 2].w[t % 2 * 2], w1 = w[h][t / 2].w[t % 2 * 2 + 1];
                    const u32 f[4] = {top_bytes(w0), bottom_bytes(w0), top_bytes(w1), bottom_bytes(w1)};
#pragma unroll
                    for (u32 n = 0; n < NB; n++) {
                        const u32 bf[2] = {b[h][n].w[t % 2 * 2], b[h][n].w[t % 2 * 2 + 1]};
                        mma_m16n8k32_s8(d[h][n], f, bf);
                        // The sums of x's digits, for zero points other than 8.
                        const u32 one[4] = {0x10101010u, 0x10101010u, 0x10101010u, 0x10101010u};
                        if (ASYM) mma_m16n8k32_s8(ones[h][n], one, bf);
                    }
                }
            }
#pragma unroll
            for (u32 h = 0; h < kUnit; h++) {
                if (ASYM) {
                    const i32 top = 8 - static_cast<i32>(zeros[h][q] & 15u), bottom = 8 - static_cast<i32>(zeros[h][q] >> 4);
#pragma unroll
                    for (u32 n = 0; n < NB; n++) {
#pragma unroll
                        for (u32 e = 0; e < 4; e++) d[h][n][e] += (e < 2 ? top : bottom) * ones[h][n][e];
                    }
                }
                const Pair s = unpack2<T>(scales[h][q]);
                const float* power = factor + (h * GPC + q) * STRIDE;
                if constexpr (NB == 1) {
                    const float f0 = power[0] * low, f1 = power[0] * high;
#pragma unroll
                    for (u32 e = 0; e < 2; e++) {
                        const float v = static_cast<float>(d[h][0][2 * e + 1]) * f1;
                        acc[e] = fmaf(e ? s.hi : s.lo, fmaf(static_cast<float>(d[h][0][2 * e]), f0, v), acc[e]);
                    }
                } else {
#pragma unroll
                    for (u32 e = 0; e < 4; e++) {
                        float v = fmaf(static_cast<float>(d[h][1][e]), 256.0f, static_cast<float>(d[h][0][e]));
                        v = fmaf(static_cast<float>(d[h][2][e]), 65536.0f, v);
                        acc[e] = fmaf((e < 2 ? s.lo : s.hi) * power[e % 2], v, acc[e]);
                    }
                }
            }
        }

        const bool ended = ++now_step == steps;
        if (ended || unit + 1 == end) {
            float* to = partial + (now_tile + warp) * a.m * kTile + g;
            if constexpr (NB == 1) {
#pragma unroll
                for (u32 e = 0; e < 2; e++) {
                    const float v = acc[e] + __shfl_xor_sync(WB_FULL_MASK, acc[e], 1);
                    if (c % 2 == 0 && c / 2 < a.m) to[c / 2 * kTile + e * 8] = v;
                }
            } else {
#pragma unroll
                for (u32 e = 0; e < 4; e++) {
                    if (2 * c + e % 2 < a.m) to[(2 * c + e % 2) * kTile + e / 2 * 8] = acc[e];
                }
            }
#pragma unroll
            for (u32 e = 0; e < SUMS; e++) acc[e] = 0.0f;
            if (ended) now_step = 0, now_tile++;
        }
    }
    cp_async_wait<0>();
    __syncthreads();

    // A tile's sums lie with the warps that had a part of it, neighbours; adding them in order makes reruns agree.
    auto sum = [&](u32 local, u32 at) {
        const u32 from = ((local * steps + 1) * runs - 1) / total, to = ((local + 1) * steps * runs - 1) / total;
        float v = 0.0f;
#pragma unroll 4
        for (u32 w = from; w <= to; w++) v += partial[(local + w) * a.m * kTile + at];
        return v;
    };
#pragma unroll 1
    for (u32 o = threadIdx.x; o < outputs; o += blockDim.x) {
        if (!in_width(o)) continue;
        const u32 item = o / kTile / a.m, at = o % (kTile * a.m);
        const float scale = a.pre == PRE_RMSNORM ? scratch[o / kTile % a.m * 32] : 1.0f;
        float v = sum(item, at) * scale;
        if (a.post == POST_SILU_MUL) v = silu(v) * (sum(items + item, at) * scale);
        if (a.post == POST_RESIDUAL) v += o == threadIdx.x ? residual : to_float(a.residual[place(o)]);
        if (a.out_f32)
            static_cast<float*>(a.out)[place(o)] = v;
        else
            static_cast<T*>(a.out)[place(o)] = from_float<T>(v);
    }
}

// 64 registers where the rows are few: the next kernel's block fits beside this one.
#define ENTRY(NAME, T, GPC, ASYM, NB)                                                                                  \
    WB_KERNEL void __launch_bounds__(512, NB == 1 && !ASYM ? 2 : 1)                                                    \
        NAME(const u8* qweight, const u32* scales, const u8* zeros, const T* x, const T* norm, const T* residual,      \
             void* out, u32 m, u32 n, u32 k, u32 chunks, u32 groups, u32 zero_groups, i32 pre, i32 post, i32 out_f32,  \
             float eps, u32 depth) {                                                                                   \
        gemv_fixed<T, GPC, ASYM, NB>(GemvArgs<T>{qweight, scales, zeros, x, norm, residual, out, m, n, k, chunks,      \
                                                 groups, zero_groups, pre, post, out_f32, eps},                        \
                                     depth);                                                                           \
    }                                                                                                                  \
    WB_ENTRY(NAME)

#define ENTRIES(GROUP, GPC)                                                     \
    ENTRY(w4a16_gemv_fixed_bf16_g##GROUP##_sym_m2, bf16, GPC, false, 1)         \
    ENTRY(w4a16_gemv_fixed_bf16_g##GROUP##_asym_m2, bf16, GPC, true, 1)         \
    ENTRY(w4a16_gemv_fixed_f16_g##GROUP##_sym_m2, f16, GPC, false, 1)           \
    ENTRY(w4a16_gemv_fixed_f16_g##GROUP##_asym_m2, f16, GPC, true, 1)           \
    ENTRY(w4a16_gemv_fixed_bf16_g##GROUP##_sym_m8, bf16, GPC, false, 3)         \
    ENTRY(w4a16_gemv_fixed_bf16_g##GROUP##_asym_m8, bf16, GPC, true, 3)         \
    ENTRY(w4a16_gemv_fixed_f16_g##GROUP##_sym_m8, f16, GPC, false, 3)           \
    ENTRY(w4a16_gemv_fixed_f16_g##GROUP##_asym_m8, f16, GPC, true, 3)
ENTRIES(128, 1)
ENTRIES(64, 2)
ENTRIES(32, 4)
