// What the matrix-vector kernels share: x staged in shared memory, the product of one packed chunk on the tensor cores,
// the sum over the block's warps, and the walk over tiles.
//
// One block takes tiles of 16 rows; its warps split K by chunks of 128 (chunk = step * warps + warp), so the block
// streams neighbouring kilobytes. A warp multiplies 16 rows by up to eight columns of x (mma.m16n8k16, weights as A):
// M = 1..8 cost the same, and a weight costs under two instructions of a lane instead of the three and more of fp32 FMA.
#pragma once
#include "../common/wb.cuh"
#include "convert.cuh"

constexpr u32 kTile = 16, kChunk = 128, kChunkBytes = 1024, kMaxM = 8;
enum { PRE_NONE = 0, PRE_RMSNORM = 1 };
enum { POST_NONE = 0, POST_RESIDUAL = 1, POST_SILU_MUL = 2 };

template <class T> struct GemvArgs {
    const u8* qweight;
    const u32* scales;  // pairs: rows g and g + 8
    const u8* zeros;
    const T* x;
    const T* norm;
    const T* residual;
    void* out;
    u32 m, n, k, chunks;
    u32 groups, zero_groups;  // of a row as packed: scales, zero points
    i32 pre, post, out_f32;
    float eps;
};

// Bytes between rows of x in shared memory: 64 mod 128, so that a phase of a 16-byte load (two rows, four lanes each)
// touches every bank once.
WB_DEVICE u32 x_stride(u32 chunks) { return chunks * kChunk * 2 + 64; }

// Where 1/rms enters. bf16 has fp32's range: x * gain is rounded to bf16 at once, and 1/rms multiplies the fp32 sums at
// the end, so nothing waits for the sum of squares. In f16 x * gain might overflow: x is normalised first.
template <class T> struct LateNorm {
    static constexpr bool value = false;
};
template <> struct LateNorm<bf16> {
    static constexpr bool value = true;
};

// The gains never change: ask for them before the kernel before has ended.
template <class T> WB_DEVICE void prefetch_norm(const GemvArgs<T>& a) {
    if (a.pre != PRE_RMSNORM) return;
    for (u32 i = threadIdx.x * 64; i < a.k; i += blockDim.x * 64) prefetch_l2(a.norm + i);
}

// 1/rms of row r, from the warps' sums of squares that stage_x left in scratch.
template <class T> WB_DEVICE float inverse_rms(const GemvArgs<T>& a, const float* scratch, u32 r) {
    const u32 warps = blockDim.x >> 5;
    float sum = 0.0f;
    for (u32 w = 0; w < warps; w++) sum += scratch[r * 32 + w];
    return 1.0f / sqrtf(sum / static_cast<float>(a.k) + a.eps);
}

// --- x -> shared memory, zero beyond k, times the gains (f16: normalised) if asked, with its sums over runs of RUN
// columns. Either way it is rounded to T: it is an operand of the 16-bit tensor core. Ends with a barrier.
// sums: [padded / RUN][kMaxM]; scratch: [kMaxM][32], the warps' sums of squares.
template <class T, int RUN>
WB_DEVICE void stage_x(u8* xs, float* sums, float* scratch, const GemvArgs<T>& a) {
    const u32 stride = x_stride(a.chunks), padded = a.chunks * kChunk, step = blockDim.x * 8;
    const bool norm = a.pre == PRE_RMSNORM;
    const bool vec = a.k % 8 == 0 && aligned16(a.x) && (!norm || aligned16(a.norm));
    auto load = [&](const T* row, u32 i, float (&e)[8]) {
        if (vec && i < a.k) {
            unpack16<T>(ld16(row + i), e);
        } else {
#pragma unroll
            for (u32 j = 0; j < 8; j++) e[j] = i + j < a.k ? to_float(row[i + j]) : 0.0f;
        }
    };
    // Keeps eight columns of row r; lanes of a run add up. All lanes of a warp call.
    auto keep = [&](u32 r, u32 i, float (&e)[8]) {
        const Vec16 v = pack16<T>(e);
        unpack16<T>(v, e);
        float sum = 0.0f;
#pragma unroll
        for (u32 j = 0; j < 8; j++) sum += e[j];
        sum = warp_sum<RUN / 8>(sum);
        if (i >= padded) return;
        st16(xs + r * stride + i * 2, v);
        if (lane_id() % (RUN / 8) == 0) sums[i / RUN * kMaxM + r] = sum;
    };
    float ss[kMaxM];
#pragma unroll
    for (u32 r = 0; r < kMaxM; r++) ss[r] = 0.0f;
    if (norm && !LateNorm<T>::value) {
        for (u32 i = threadIdx.x * 8; i < a.k; i += step) {
#pragma unroll
            for (u32 r = 0; r < kMaxM; r++) {
                if (r >= a.m) continue;
                float e[8];
                load(a.x + static_cast<u64>(r) * a.k, i, e);
#pragma unroll
                for (u32 j = 0; j < 8; j++) ss[r] += e[j] * e[j];
            }
        }
    }
    auto share = [&]() {
#pragma unroll
        for (u32 r = 0; r < kMaxM; r++) {
            if (r >= a.m) continue;
            const float v = warp_sum(ss[r]);
            if (lane_id() == 0) scratch[r * 32 + warp_id()] = v;
        }
    };
    float scale[kMaxM];
#pragma unroll
    for (u32 r = 0; r < kMaxM; r++) scale[r] = 1.0f;
    if (norm && !LateNorm<T>::value) {
        share();
        __syncthreads();
#pragma unroll
        for (u32 r = 0; r < kMaxM; r++) {
            if (r < a.m) scale[r] = inverse_rms(a, scratch, r);
        }
    }
    for (u32 base = 0; base < padded; base += step) {
        const u32 i = base + threadIdx.x * 8;
        float gain[8];
        if (norm) load(a.norm, i, gain);
        const T* row = a.x;
#pragma unroll
        for (u32 r = 0; r < kMaxM; r++, row += a.k) {
            if (r >= a.m) break;
            float e[8];
            load(row, i, e);
            if (norm) {
#pragma unroll
                for (u32 j = 0; j < 8; j++) {
                    if (LateNorm<T>::value) ss[r] += e[j] * e[j];
                    e[j] *= scale[r] * gain[j];
                }
            }
            keep(r, i, e);
        }
    }
    if (norm && LateNorm<T>::value) share();
    __syncthreads();
}

// Chains of mma that a chunk is cut into, each over a run of columns that share scales: at least two, independent and
// interleaved, or the instruction's latency shows.
template <int GPC> struct Chains {
    static constexpr int n = GPC < 2 ? 2 : GPC;
    static constexpr int run = 128 / n;
};

// --- acc += scale * (chunk of 16 x 128 weights - zero points) * x. xs points at this lane's column and eight columns of
// k, sums at its two output columns. The scale enters in fp32, once a chain.
template <class T, int GPC, bool ASYM>
WB_DEVICE void chunk_product(float (&acc)[4], const Vec16 (&w)[2], const u32 (&scale)[GPC], const u32 (&zero)[GPC],
                             const u8* xs, const float* sums) {
    constexpr int CHAINS = Chains<GPC>::n;
    constexpr float offset = Magic<T>::offset;
    float d[CHAINS][4];
#pragma unroll
    for (int s = 0; s < CHAINS; s++) {
        const u32 z = zero[s * GPC / CHAINS];
        const float top = ASYM ? -offset - static_cast<float>(z & 15u) : -offset - 8.0f;
        const float bottom = ASYM ? -offset - static_cast<float>(z >> 4) : -offset - 8.0f;
        const float x0 = sums[s * kMaxM], x1 = sums[s * kMaxM + 1];
        d[s][0] = top * x0;
        d[s][1] = top * x1;
        d[s][2] = bottom * x0;
        d[s][3] = bottom * x1;
    }
#pragma unroll
    for (int jj = 0; jj < 4 / CHAINS; jj++) {
        Vec16 b[CHAINS];
#pragma unroll
        for (int s = 0; s < CHAINS; s++) b[s] = ld16(xs + (s * 4 / CHAINS + jj) * 64);
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int s = 0; s < CHAINS; s++) {
                const int j = s * 4 / CHAINS + jj;  // 32 columns each
                const u32 bf[2] = {b[s].w[2 * i], b[s].w[2 * i + 1]};
                u32 f[4];
                dequant_word<T>(f, w[j / 2].w[(j % 2) * 2 + i]);
                mma_m16n8k16<T>(d[s], f, bf);
            }
        }
    }
#pragma unroll
    for (int s = 0; s < CHAINS; s++) {
        const Pair sc = unpack2<T>(scale[s * GPC / CHAINS]);
        acc[0] = fmaf(sc.lo, d[s][0], acc[0]);
        acc[1] = fmaf(sc.lo, d[s][1], acc[1]);
        acc[2] = fmaf(sc.hi, d[s][2], acc[2]);
        acc[3] = fmaf(sc.hi, d[s][3], acc[3]);
    }
}

// --- The walk of a block over its items; an item is a tile, or a gate tile and then its up tile. A tile takes `steps`
// steps; in each, every warp has one chunk (or none, at a ragged end).
struct Walk {
    u32 tile, item, part, step;
    u32 parts, steps, up;  // up: tiles between a gate tile and its up tile
    u32 total;             // steps of all this block's items
    template <class T> WB_DEVICE void start(const GemvArgs<T>& a, u32 warps) {
        const u32 tiles = (a.n + kTile - 1) / kTile;
        parts = a.post == POST_SILU_MUL ? 2 : 1;
        up = tiles / parts;
        steps = (a.chunks + warps - 1) / warps;
        item = tile = blockIdx.x;
        part = step = 0;
        total = up <= blockIdx.x ? 0 : ((up - blockIdx.x + gridDim.x - 1) / gridDim.x) * parts * steps;
    }
    WB_DEVICE bool last() const { return step + 1 == steps; }
    // True when a new tile begins.
    WB_DEVICE bool next() {
        if (++step < steps) return false;
        step = 0;
        if (++part < parts) {
            tile += up;
        } else {
            part = 0;
            item += gridDim.x;
            tile = item;
        }
        return true;
    }
};

WB_DEVICE float silu(float v) { return v / (1.0f + __expf(-v)); }

// --- The end of a tile: the warps' partial sums meet in shared memory, in a fixed order, and go out.
// Two buffers, so that one barrier a tile is enough: nobody writes a buffer again before all have passed the other's
// barrier, and its readers arrive there only after reading.
template <class T> struct Finish {
    float* red;  // [2][warps][kMaxM][16]
    float gate, residual, scale;
    u32 parity, warps;  // the block's first `warps` warps take part
    WB_DEVICE void start(const GemvArgs<T>& a, float* buffer, u32 count, const float* scratch) {
        red = buffer;
        warps = count;
        scale = 1.0f;
        const u32 col = threadIdx.x / kTile;
        if (LateNorm<T>::value && a.pre == PRE_RMSNORM && col < a.m) scale = inverse_rms(a, scratch, col);
        gate = residual = 0.0f;
        parity = 0;
    }
    WB_DEVICE void prefetch(const GemvArgs<T>& a, u32 tile) {
        const u32 row = tile * kTile + threadIdx.x % kTile, col = threadIdx.x / kTile;
        if (a.post == POST_RESIDUAL && col < a.m && row < a.n)
            residual = to_float(a.residual[static_cast<u64>(col) * a.n + row]);
    }
    WB_DEVICE void tile(const GemvArgs<T>& a, const float (&acc)[4], u32 tile, u32 part, u32 item) {
        const u32 lane = lane_id(), g = lane >> 2, c = lane & 3;
        float* buffer = red + parity * warps * kMaxM * kTile;
        parity ^= 1;
        float* mine = buffer + (warp_id() * kMaxM + 2 * c) * kTile + g;
        if (2 * c < a.m) {
            mine[0] = acc[0];
            mine[8] = acc[2];
        }
        if (2 * c + 1 < a.m) {
            mine[kTile] = acc[1];
            mine[kTile + 8] = acc[3];
        }
        named_barrier(1, warps * 32);
        const u32 r = threadIdx.x % kTile, col = threadIdx.x / kTile;
        if (col >= a.m) return;
        float sum = 0.0f;
#pragma unroll 4
        for (u32 w = 0; w < warps; w++) sum += buffer[(w * kMaxM + col) * kTile + r];
        sum *= scale;
        if (a.post == POST_SILU_MUL) {
            if (part == 0) {
                gate = sum;
                return;
            }
            sum *= silu(gate);
        }
        if (a.post == POST_RESIDUAL) sum += residual;
        const u32 width = a.post == POST_SILU_MUL ? a.n / 2 : a.n;
        const u32 row = (a.post == POST_SILU_MUL ? item : tile) * kTile + r;
        if (row >= width) return;
        const u64 at = static_cast<u64>(col) * width + row;
        if (a.out_f32)
            static_cast<float*>(a.out)[at] = sum;
        else
            static_cast<T*>(a.out)[at] = from_float<T>(sum);
    }
};
