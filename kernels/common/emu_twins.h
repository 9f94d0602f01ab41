// Host twins of ptx.cuh: the same names and meanings in plain C++. Alignment is checked where the hardware would trap.
#pragma once

inline void wb_check_aligned(const void* p, u32 bytes, const char* what) {
    if (reinterpret_cast<u64>(p) % bytes != 0) wb_emu::fail("%s: address %p is not a multiple of %u", what, p, bytes);
}

// --- Conversions, to nearest even.
inline float f16_to_f32(u16 v) {
    u32 sign = static_cast<u32>(v & 0x8000u) << 16, magnitude = v & 0x7fffu;
    if (magnitude >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    // Scaling by 2^112 moves the exponent's bias from 15 to 127, exactly and for subnormals too.
    float scaled = __uint_as_float(magnitude << 13) * 0x1p112f;
    return __uint_as_float(__float_as_uint(scaled) | sign);
}
inline u16 f32_to_f16(float v) {
    u32 bits = __float_as_uint(v), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fff;
    if (magnitude >= 0x477ff000u) return static_cast<u16>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        // Below 2^-14 the step is 2^-24: adding 1/2 puts it at the last bit of the sum.
        u32 rounded = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
        return static_cast<u16>(sign | rounded);
    }
    u32 rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return static_cast<u16>(sign | ((rounded - 0x38000000u) >> 13));
}
inline u16 f32_to_bf16(float v) {
    u32 bits = __float_as_uint(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<u16>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline u32 f32x2_to_f16x2(float lo, float hi) { return f32_to_f16(lo) | static_cast<u32>(f32_to_f16(hi)) << 16; }
inline u32 f32x2_to_bf16x2(float lo, float hi) { return f32_to_bf16(lo) | static_cast<u32>(f32_to_bf16(hi)) << 16; }

// Through double: a product of two 11-bit mantissas is exact there, so only the last rounding counts.
inline u16 wb_f64_to_f16(double v) {
    // float(v) may round up to a tie that v is not: nudge it back by keeping a sticky bit.
    float f = static_cast<float>(v);
    if (static_cast<double>(f) != v && !(__float_as_uint(f) & 1u) && v == v && fabs(v) < 65536.0) {
        bool away = fabs(static_cast<double>(f)) < fabs(v);
        f = __uint_as_float(__float_as_uint(f) + (away ? 1u : ~0u));
    }
    return f32_to_f16(f);
}
inline u16 wb_f64_to_bf16(double v) {
    float f = static_cast<float>(v);
    if (static_cast<double>(f) != v && !(__float_as_uint(f) & 1u) && v == v && fabs(v) < 3.4e38) {
        bool away = fabs(static_cast<double>(f)) < fabs(v);
        f = __uint_as_float(__float_as_uint(f) + (away ? 1u : ~0u));
    }
    return f32_to_bf16(f);
}
inline float wb_bf16(u32 v) { return __uint_as_float(v << 16); }
inline double wb_half(u32 v, bool high) { return f16_to_f32(static_cast<u16>(high ? v >> 16 : v)); }
inline u32 fma_f16x2(u32 a, u32 b, u32 c) {
    u16 lo = wb_f64_to_f16(wb_half(a, false) * wb_half(b, false) + wb_half(c, false));
    u16 hi = wb_f64_to_f16(wb_half(a, true) * wb_half(b, true) + wb_half(c, true));
    return lo | static_cast<u32>(hi) << 16;
}
inline u32 sub_f16x2(u32 a, u32 b) {
    u16 lo = wb_f64_to_f16(wb_half(a, false) - wb_half(b, false));
    u16 hi = wb_f64_to_f16(wb_half(a, true) - wb_half(b, true));
    return lo | static_cast<u32>(hi) << 16;
}
inline u32 mul_f16x2(u32 a, u32 b) {
    u16 lo = wb_f64_to_f16(wb_half(a, false) * wb_half(b, false));
    u16 hi = wb_f64_to_f16(wb_half(a, true) * wb_half(b, true));
    return lo | static_cast<u32>(hi) << 16;
}
inline u32 fma_bf16x2(u32 a, u32 b, u32 c) {
    double lo = static_cast<double>(wb_bf16(a)) * wb_bf16(b) + wb_bf16(c);
    double hi = static_cast<double>(wb_bf16(a >> 16)) * wb_bf16(b >> 16) + wb_bf16(c >> 16);
    return wb_f64_to_bf16(lo) | static_cast<u32>(wb_f64_to_bf16(hi)) << 16;
}
inline float max_or_nan(float a, float b) { return a != a || b != b ? __uint_as_float(0x7fffffffu) : (a > b ? a : b); }
template <int TABLE> u32 lop3(u32 a, u32 b, u32 c) {
    u32 r = 0;
    for (u32 i = 0; i < 8; i++) {
        if (TABLE >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return r;
}
inline float wb_flush(float v) { return fabsf(v) < 0x1p-126f ? copysignf(0.0f, v) : v; }
inline float ex2(float x) { return wb_flush(exp2f(wb_flush(x))); }
inline float rcp(float x) { return wb_flush(1.0f / wb_flush(x)); }
inline float lg2(float x) { return log2f(wb_flush(x)); }

// --- Memory.
inline Vec16 ld16(const void* p) {
    wb_check_aligned(p, 16, "a 16-byte load");
    return *static_cast<const Vec16*>(p);
}
inline void st16(void* p, const Vec16& v) {
    wb_check_aligned(p, 16, "a 16-byte store");
    *static_cast<Vec16*>(p) = v;
}
inline Vec16 ld16_nc(const void* p) { return ld16(p); }
inline Vec16 ld16_stream(const void* p) { return ld16(p); }
inline void st16_stream(void* p, const Vec16& v) { st16(p, v); }
inline void prefetch_l2(const void*) {}
inline u32 ld_acquire(const u32* p) {
    wb_emu::yield();  // polled in loops
    return *p;
}
inline void st_release(u32* p, u32 v) { *p = v; }
inline u32 atomic_add_acq_rel(u32* p, u32 v) { return atomicAdd(p, v); }

inline void cp_async16_part(void* dst, const void* src, u32 bytes) {
    wb_check_aligned(dst, 16, "cp_async16's destination");
    wb_check_aligned(src, 16, "cp_async16's source");
    wb_emu::Fiber* f = wb_emu::tls.fiber;
    f->copies.push_back({dst, src, bytes, 16 - bytes, f->group});
}
inline void cp_async16(void* dst, const void* src, bool pred = true) {
    if (pred) return cp_async16_part(dst, src, 16);
    cp_async16_part(dst, dst, 0);
}
inline void cp_async_commit() { wb_emu::tls.fiber->group++; }
template <int N> void cp_async_wait() {
    wb_emu::Fiber* f = wb_emu::tls.fiber;
    wb_emu::land(f->copies, f->group - N);
}

// --- Fragments.
struct WbMatrix {
    const void* row;
    u32* registers;
};
template <int COUNT, bool TRANSPOSED> void wb_ldmatrix(void** data, u32 mask) {
    if (mask != 0xffffffffu) wb_emu::fail("ldmatrix needs all 32 lanes");
    for (u32 lane = 0; lane < 32; lane++) {
        for (u32 m = 0; m < COUNT; m++) {
            u32 value = 0;
            for (u32 half = 0; half < 2; half++) {
                u32 row = TRANSPOSED ? lane % 4 * 2 + half : lane / 4;
                u32 column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + half;
                auto* from = static_cast<const u16*>(static_cast<WbMatrix*>(data[m * 8 + row])->row);
                value |= static_cast<u32>(from[column]) << (16 * half);
            }
            static_cast<WbMatrix*>(data[lane])->registers[m] = value;
        }
    }
}
inline void ldmatrix_x4(u32 (&r)[4], const void* row) {
    wb_check_aligned(row, 16, "ldmatrix");
    WbMatrix m{row, r};
    wb_emu::collective(0xffffffffu, wb_ldmatrix<4, false>, &m, "ldmatrix");
}
inline void ldmatrix_x4_trans(u32 (&r)[4], const void* row) {
    wb_check_aligned(row, 16, "ldmatrix");
    WbMatrix m{row, r};
    wb_emu::collective(0xffffffffu, wb_ldmatrix<4, true>, &m, "ldmatrix.trans");
}
inline void ldmatrix_x2(u32 (&r)[2], const void* row) {
    if (wb_emu::tls.fiber->lane < 16) wb_check_aligned(row, 16, "ldmatrix");
    WbMatrix m{row, r};
    wb_emu::collective(0xffffffffu, wb_ldmatrix<2, false>, &m, "ldmatrix.x2");
}

struct WbMma {
    float* d;
    const u32 *a, *b;
};
template <float (*WIDEN)(u16)> void wb_mma(void** data, u32 mask) {
    if (mask != 0xffffffffu) wb_emu::fail("mma needs all 32 lanes");
    float a[16][16], b[16][8];
    for (u32 lane = 0; lane < 32; lane++) {
        auto* l = static_cast<WbMma*>(data[lane]);
        u32 g = lane / 4, t = lane % 4 * 2;
        for (u32 h = 0; h < 2; h++) {
            for (u32 r = 0; r < 4; r++) a[g + r % 2 * 8][t + r / 2 * 8 + h] = WIDEN(static_cast<u16>(l->a[r] >> (16 * h)));
            for (u32 r = 0; r < 2; r++) b[t + r * 8 + h][g] = WIDEN(static_cast<u16>(l->b[r] >> (16 * h)));
        }
    }
    for (u32 lane = 0; lane < 32; lane++) {
        auto* l = static_cast<WbMma*>(data[lane]);
        for (u32 r = 0; r < 4; r++) {
            u32 row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2;
            float sum = l->d[r];
            for (u32 k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
            l->d[r] = sum;
        }
    }
}
inline float wb_widen_bf16(u16 v) { return wb_bf16(v); }
template <class T> void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]);
template <> inline void mma_m16n8k16<struct bf16>(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    WbMma m{d, a, b};
    wb_emu::collective(0xffffffffu, wb_mma<wb_widen_bf16>, &m, "mma.bf16");
}
template <> inline void mma_m16n8k16<struct f16>(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    WbMma m{d, a, b};
    wb_emu::collective(0xffffffffu, wb_mma<f16_to_f32>, &m, "mma.f16");
}

struct WbMmaS8 {
    i32* d;
    const u32 *a, *b;
};
inline void wb_mma_s8(void** data, u32 mask) {
    if (mask != 0xffffffffu) wb_emu::fail("mma needs all 32 lanes");
    i32 a[16][32], b[32][8];
    auto byte = [](u32 v, u32 i) { return static_cast<i32>(static_cast<signed char>(v >> (8 * i))); };
    for (u32 lane = 0; lane < 32; lane++) {
        auto* l = static_cast<WbMmaS8*>(data[lane]);
        u32 g = lane / 4, t = lane % 4 * 4;
        for (u32 i = 0; i < 4; i++) {
            for (u32 r = 0; r < 4; r++) a[g + r % 2 * 8][t + r / 2 * 16 + i] = byte(l->a[r], i);
            for (u32 r = 0; r < 2; r++) b[t + r * 16 + i][g] = byte(l->b[r], i);
        }
    }
    for (u32 lane = 0; lane < 32; lane++) {
        auto* l = static_cast<WbMmaS8*>(data[lane]);
        for (u32 r = 0; r < 4; r++) {
            u32 row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2;
            for (u32 k = 0; k < 32; k++) l->d[r] += a[row][k] * b[k][column];
        }
    }
}
inline void mma_m16n8k32_s8(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    WbMmaS8 m{d, a, b};
    wb_emu::collective(0xffffffffu, wb_mma_s8, &m, "mma.s8");
}

struct WbTranspose {
    u32 value, result;
};
inline void wb_transpose(void** data, u32 mask) {
    if (mask != 0xffffffffu) wb_emu::fail("movmatrix needs all 32 lanes");
    for (u32 lane = 0; lane < 32; lane++) {
        u32 r = 0;
        for (u32 half = 0; half < 2; half++) {
            u32 row = lane % 4 * 2 + half, column = lane / 4;
            u32 from = static_cast<WbTranspose*>(data[row * 4 + column / 2])->value;
            r |= (column % 2 ? from >> 16 : from & 0xffffu) << (16 * half);
        }
        static_cast<WbTranspose*>(data[lane])->result = r;
    }
}
inline u32 transpose_8x8(u32 v) {
    WbTranspose t{v, 0};
    wb_emu::collective(0xffffffffu, wb_transpose, &t, "movmatrix");
    return t.result;
}
// As the hardware of 9.0 converts; before 8.9 the kernels' arithmetic makes 480 of a NaN.
inline u32 e4m3_even(u32 v) {
    u32 r = 0;
    for (u32 half = 0; half < 2; half++) {
        u32 b = v >> (16 * half) & 0xffu;
        u16 small = static_cast<u16>((b & 0x80u) << 8 | (b & 0x7fu) << 7);
        u16 f = (b & 0x7fu) == 0x7fu ? 0x7fff : f32_to_f16(f16_to_f32(small) * 256.0f);
        r |= static_cast<u32>(f) << (16 * half);
    }
    return r;
}
inline u32 e4m3_odd(u32 v) { return e4m3_even(v >> 8); }

inline void named_barrier(u32 id, u32 threads, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    wb_emu::barrier(id, threads, file, line);
}
inline void pdl_wait() {}
inline void pdl_launch() {}

#include "emu_hopper.h"
