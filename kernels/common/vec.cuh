// Element types and 16-byte vectors: how numbers are widened, rounded, loaded and stored.
//
// Own 16-bit types (bits and nothing else) keep cuda_fp16.h out of NVRTC and out of the emulator.
#pragma once

struct bf16 {
    u16 bits;
};
struct f16 {
    u16 bits;
};
// OCP E4M3: no infinities, NaN is S.1111.111.
struct e4m3 {
    u8 bits;
};

WB_DEVICE float to_float(float v) { return v; }
WB_DEVICE float to_float(bf16 v) { return __uint_as_float(static_cast<u32>(v.bits) << 16); }
WB_DEVICE float to_float(f16 v) { return f16_to_f32(v.bits); }
WB_DEVICE float to_float(e4m3 v) {
    // The bits at half precision's place have an exponent bias 8 too small: exact for subnormals too.
    u16 half = static_cast<u16>(((v.bits & 0x80u) << 8) | ((v.bits & 0x7fu) << 7));
    return (v.bits & 0x7fu) == 0x7fu ? __uint_as_float(0x7fffffffu) : f16_to_f32(half) * 256.0f;
}

// Rounds to nearest even (e4m3: saturates to 448).
template <class T> WB_DEVICE T from_float(float v);
template <> WB_DEVICE float from_float<float>(float v) { return v; }
template <> WB_DEVICE bf16 from_float<bf16>(float v) { return bf16{f32_to_bf16(v)}; }
template <> WB_DEVICE f16 from_float<f16>(float v) { return f16{f32_to_f16(v)}; }
template <> WB_DEVICE e4m3 from_float<e4m3>(float v) {
    if (v != v) return e4m3{0x7f};
    u32 sign = (__float_as_uint(v) >> 24) & 0x80u;
    float a = fminf(fabsf(v), 448.0f);
    // Below 2^-6 the step is 2^-9; adding 2^14 puts one unit of the sum at 2^-9. Above, round the top 3 mantissa bits.
    u32 bits;
    if (a < 0.015625f) {
        bits = __float_as_uint(a + 16384.0f) - __float_as_uint(16384.0f);
    } else {
        u32 b = __float_as_uint(a);
        bits = ((b + 0x7ffffu + ((b >> 20) & 1u)) >> 20) - (120u << 3);
    }
    return e4m3{static_cast<u8>(sign | bits)};
}

// Two 16-bit floats in one register, the first in the low half.
struct Pair {
    float lo, hi;
};
template <class T> WB_DEVICE u32 pack2(float lo, float hi);
template <> WB_DEVICE u32 pack2<bf16>(float lo, float hi) { return f32x2_to_bf16x2(lo, hi); }
template <> WB_DEVICE u32 pack2<f16>(float lo, float hi) { return f32x2_to_f16x2(lo, hi); }
template <class T> WB_DEVICE Pair unpack2(u32 v);
template <> WB_DEVICE Pair unpack2<bf16>(u32 v) {
    return Pair{__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)};
}
template <> WB_DEVICE Pair unpack2<f16>(u32 v) {
    return Pair{f16_to_f32(static_cast<u16>(v)), f16_to_f32(static_cast<u16>(v >> 16))};
}

// Elements of T in 16 bytes.
template <class T> struct Lanes {
    static constexpr int n = 16 / static_cast<int>(sizeof(T));
};

// Widens the 16 bytes to floats.
template <class T> WB_DEVICE void unpack16(const Vec16& v, float* out) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        Pair p = unpack2<T>(v.w[i]);
        out[2 * i] = p.lo;
        out[2 * i + 1] = p.hi;
    }
}
template <> WB_DEVICE void unpack16<float>(const Vec16& v, float* out) {
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = __uint_as_float(v.w[i]);
}
template <> WB_DEVICE void unpack16<e4m3>(const Vec16& v, float* out) {
#pragma unroll
    for (int i = 0; i < 16; i++) out[i] = to_float(e4m3{static_cast<u8>(v.w[i / 4] >> (8 * (i % 4)))});
}

// Rounds Lanes<T>::n floats into 16 bytes.
template <class T> WB_DEVICE Vec16 pack16(const float* in) {
    Vec16 v;
#pragma unroll
    for (int i = 0; i < 4; i++) v.w[i] = pack2<T>(in[2 * i], in[2 * i + 1]);
    return v;
}
template <> WB_DEVICE Vec16 pack16<float>(const float* in) {
    Vec16 v;
#pragma unroll
    for (int i = 0; i < 4; i++) v.w[i] = __float_as_uint(in[i]);
    return v;
}
template <> WB_DEVICE Vec16 pack16<e4m3>(const float* in) {
    Vec16 v;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v.w[i] = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) v.w[i] |= static_cast<u32>(from_float<e4m3>(in[4 * i + j]).bits) << (8 * j);
    }
    return v;
}

WB_DEVICE bool aligned16(const void* p) { return (reinterpret_cast<u64>(p) & 15u) == 0; }
