// Contents of buffers, made where they are used. src/run/fill.rs states the same functions for the host; the two agree
// bit for bit, so every product is rounded on its own (no contraction to a multiply-add).
#include "../common/wb.cuh"

// op::mix: one splitmix64 output for a counter.
WB_DEVICE u64 mix(u64 counter) {
    u64 z = counter + 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

#ifdef WB_EMULATE
WB_DEVICE float product(float a, float b) { return a * b; }
WB_DEVICE float sum(float a, float b) { return a + b; }
#else
WB_DEVICE float product(float a, float b) { return __fmul_rn(a, b); }
WB_DEVICE float sum(float a, float b) { return __fadd_rn(a, b); }
#endif

// kind 0: four 16-bit uniforms, centred, times a. kind 1: uniform in [a, b).
WB_DEVICE float value(u64 key, i64 index, i32 kind, float a, float b) {
    u64 r = mix(key + static_cast<u64>(index));
    if (kind == 0) {
        i32 total = static_cast<i32>((r & 0xffff) + ((r >> 16) & 0xffff) + ((r >> 32) & 0xffff) + (r >> 48)) - 131070;
        return product(static_cast<float>(total), a);
    }
    float u = product(static_cast<float>(static_cast<u32>(r >> 40)), 1.0f / 16777216.0f);
    return sum(a, product(sum(b, -a), u));
}

// Integers: the floor, kept below b.
WB_DEVICE float whole(float v, float a, float b) { return fmaxf(fminf(floorf(v), sum(b, -1.0f)), a); }

#define WB_FILL(name, T, CONVERT)                                                       \
    WB_KERNEL void name(T* out, i64 n, u64 key, i32 kind, float a, float b) {            \
        i64 step = static_cast<i64>(gridDim.x) * blockDim.x;                             \
        for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) { \
            float v = value(key, i, kind, a, b);                                         \
            out[i] = CONVERT;                                                            \
        }                                                                                \
    }                                                                                    \
    WB_ENTRY(name)

WB_FILL(fill_f32, float, v)
WB_FILL(fill_bf16, bf16, from_float<bf16>(v))
WB_FILL(fill_f16, f16, from_float<f16>(v))
WB_FILL(fill_e4m3, e4m3, from_float<e4m3>(v))
WB_FILL(fill_u8, u8, static_cast<u8>(whole(v, a, b)))
WB_FILL(fill_i32, i32, static_cast<i32>(whole(v, a, b)))
WB_FILL(fill_u32, u32, static_cast<u32>(whole(v, a, b)))
WB_FILL(fill_i64, i64, static_cast<i64>(whole(v, a, b)))

// n bytes that are a run of 64-bit words mix(key), mix(key + 1), …, cut at the end. The array is 8-byte aligned.
WB_KERNEL void fill_bits(u8* out, i64 n, u64 key, i32, float, float) {
    i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i * 8 < n; i += step) {
        u64 r = mix(key + static_cast<u64>(i));
        if (i * 8 + 8 <= n) {
            reinterpret_cast<u64*>(out)[i] = r;
        } else {
            for (i64 j = i * 8; j < n; j++, r >>= 8) out[j] = static_cast<u8>(r);
        }
    }
}
WB_ENTRY(fill_bits)
