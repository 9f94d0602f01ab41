// The first step of the ladder: make ordinary weights, then multiply as if there had never been four bits.
//
// Right and simple, and it shows what the format is for: the fp32 copy is eight times the packed bytes, written once and
// read once, so the product moves 17 times what it needs. Takes every shape; the other variants are checked against it.
#include "../common/wb.cuh"

enum { POST_NONE = 0, POST_RESIDUAL = 1, POST_SILU_MUL = 2 };

// One thread a word: eight weights (q - z) * s, exact in fp32 (4 or 5 bits times 8 or 11).
template <class T>
WB_DEVICE void unpack(const u32* qweight, const T* scales, const u8* zeros, float* w, u32 n, u32 k, u32 chunks,
                      u32 groups, u32 zero_groups, u32 group, i32 asym, u64 words) {
    pdl_launch();
    // The copy is read by the product before: not to be touched until that has ended.
    pdl_wait();
    const u64 index = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= words) return;
    const u32 i = index & 3, lane = index >> 2 & 31, half = index >> 7 & 1, g = lane >> 2, c = lane & 3;
    const u32 chunk = static_cast<u32>((index >> 8) % chunks), tile = static_cast<u32>((index >> 8) / chunks);
    const u32 word = qweight[index];
#pragma unroll
    for (u32 p = 0; p < 8; p++) {
        const u32 r = g + 8 * (p & 1), row = tile * 16 + r;
        const u32 col = chunk * 128 + half * 64 + (i >> 1) * 32 + c * 8 + (i & 1) * 4 + (p >> 1 & 1) * 2 + (p >> 2);
        if (row >= n || col >= k) continue;
        const u32 at = 4 * p + 3;  // the nibble's place; the last wraps around the word
        const u32 q = (p < 7 ? word >> at : word >> 31 | word << 1) & 15u;
        const u32 in_group = groups == 1 ? 0 : col / group;
        const u32 both = asym ? zeros[(static_cast<u64>(tile) * zero_groups + in_group) * 8 + g] : 0x88u;
        const u32 z = p & 1 ? both >> 4 : both & 15u;
        const float s = to_float(scales[((static_cast<u64>(tile) * groups + in_group) * 8 + g) * 2 + (p & 1)]);
        w[static_cast<u64>(row) * k + col] = (static_cast<float>(q) - static_cast<float>(z)) * s;
    }
}

// x normalised: one block a row, rounded to T as every variant does.
template <class T> WB_DEVICE void normalise(const T* x, const T* norm, T* to, u32 k, float eps) {
    __shared__ float scratch[32];
    pdl_launch();
    pdl_wait();
    const u64 row = static_cast<u64>(blockIdx.x) * k;
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < k; i += blockDim.x) {
        const float v = to_float(x[row + i]);
        sum += v * v;
    }
    const float scale = 1.0f / sqrtf(block_sum(sum, scratch) / static_cast<float>(k) + eps);
    for (u32 i = threadIdx.x; i < k; i += blockDim.x)
        to[row + i] = from_float<T>(to_float(x[row + i]) * scale * to_float(norm[i]));
}

// One warp an output: its lanes stride along k.
template <class T>
WB_DEVICE void product(const float* w, const T* x, const T* residual, void* out, u32 m, u32 n, u32 k, i32 post,
                       i32 out_f32) {
    pdl_launch();
    pdl_wait();
    const u32 width = post == POST_SILU_MUL ? n / 2 : n;
    const u64 index = static_cast<u64>(blockIdx.x) * (blockDim.x / 32) + warp_id();
    if (index >= static_cast<u64>(m) * width) return;
    const u64 row = index % width;
    const T* xs = x + index / width * k;
    float sum = 0.0f, up = 0.0f;
    for (u32 i = lane_id(); i < k; i += 32) {
        const float v = to_float(xs[i]);
        sum = fmaf(v, w[row * k + i], sum);
        if (post == POST_SILU_MUL) up = fmaf(v, w[(row + width) * k + i], up);
    }
    sum = warp_sum(sum);
    up = warp_sum(up);
    if (lane_id() != 0) return;
    if (post == POST_SILU_MUL) sum = sum / (1.0f + __expf(-sum)) * up;
    if (post == POST_RESIDUAL) sum += to_float(residual[index]);
    if (out_f32)
        static_cast<float*>(out)[index] = sum;
    else
        static_cast<T*>(out)[index] = from_float<T>(sum);
}

#define ENTRIES(SUFFIX, T)                                                                                            \
    WB_KERNEL void w4a16_dequant_unpack_##SUFFIX(const u32* qweight, const T* scales, const u8* zeros, float* w,      \
                                                 u32 n, u32 k, u32 chunks, u32 groups, u32 zero_groups, u32 group,    \
                                                 i32 asym, u64 words) {                                               \
        unpack<T>(qweight, scales, zeros, w, n, k, chunks, groups, zero_groups, group, asym, words);                  \
    }                                                                                                                 \
    WB_ENTRY(w4a16_dequant_unpack_##SUFFIX)                                                                           \
    WB_KERNEL void w4a16_dequant_normalise_##SUFFIX(const T* x, const T* norm, T* to, u32 k, float eps) {             \
        normalise<T>(x, norm, to, k, eps);                                                                            \
    }                                                                                                                 \
    WB_ENTRY(w4a16_dequant_normalise_##SUFFIX)                                                                        \
    WB_KERNEL void w4a16_dequant_product_##SUFFIX(const float* w, const T* x, const T* residual, void* out, u32 m,    \
                                                  u32 n, u32 k, i32 post, i32 out_f32) {                              \
        product<T>(w, x, residual, out, m, n, k, post, out_f32);                                                      \
    }                                                                                                                 \
    WB_ENTRY(w4a16_dequant_product_##SUFFIX)

ENTRIES(bf16, bf16)
ENTRIES(f16, f16)
