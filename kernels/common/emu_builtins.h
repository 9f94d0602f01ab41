// CUDA's own functions and vector types, for the emulator: what kernels may use without ptx.cuh.
#pragma once

typedef wb_emu::Dim3 dim3;
typedef wb_emu::Dim3 uint3;
struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(8) int2 { i32 x, y; };
struct __align__(16) int4 { i32 x, y, z, w; };
struct __align__(8) uint2 { u32 x, y; };
struct __align__(16) uint4 { u32 x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(i32 x, i32 y) { return {x, y}; }
inline int4 make_int4(i32 x, i32 y, i32 z, i32 w) { return {x, y, z, w}; }
inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

// --- Arithmetic.
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
inline i64 min(i64 a, i32 b) { return min(a, static_cast<i64>(b)); }
inline i64 min(i32 a, i64 b) { return min(static_cast<i64>(a), b); }
inline i64 max(i64 a, i32 b) { return max(a, static_cast<i64>(b)); }
inline i64 max(i32 a, i64 b) { return max(static_cast<i64>(a), b); }
inline u32 min(u32 a, i32 b) { return min(a, static_cast<u32>(b)); }
inline u32 min(i32 a, u32 b) { return min(static_cast<u32>(a), b); }
inline u32 max(u32 a, i32 b) { return max(a, static_cast<u32>(b)); }
inline u32 max(i32 a, u32 b) { return max(static_cast<u32>(a), b); }
template <class To, class From> To wb_bits(From v) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To r;
    memcpy(&r, &v, sizeof r);
    return r;
}
inline u32 __float_as_uint(float v) { return wb_bits<u32>(v); }
inline i32 __float_as_int(float v) { return wb_bits<i32>(v); }
inline float __uint_as_float(u32 v) { return wb_bits<float>(v); }
inline float __int_as_float(i32 v) { return wb_bits<float>(v); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
inline float __expf(float a) { return expf(a); }
inline float __logf(float a) { return logf(a); }
inline float __log2f(float a) { return log2f(a); }
inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
inline i32 __float2int_rn(float a) { return static_cast<i32>(rintf(a)); }
inline i32 __float2int_rd(float a) { return static_cast<i32>(floorf(a)); }
inline float __int2float_rn(i32 a) { return static_cast<float>(a); }
inline float __uint2float_rn(u32 a) { return static_cast<float>(a); }
inline i32 __popc(u32 v) { return __builtin_popcount(v); }
inline i32 __popcll(u64 v) { return __builtin_popcountll(v); }
inline i32 __ffs(i32 v) { return __builtin_ffs(v); }
inline i32 __clz(i32 v) { return v ? __builtin_clz(static_cast<u32>(v)) : 32; }
inline i32 __clzll(i64 v) { return v ? __builtin_clzll(static_cast<u64>(v)) : 64; }
inline u32 __umulhi(u32 a, u32 b) { return static_cast<u32>(static_cast<u64>(a) * b >> 32); }
inline u32 __brev(u32 v) {
    u32 r = 0;
    for (int i = 0; i < 32; i++) r |= (v >> i & 1u) << (31 - i);
    return r;
}
// Four bytes out of eight, chosen by the low three bits of each nibble (bit 3 copies the sign).
inline u32 __byte_perm(u32 a, u32 b, u32 selector) {
    u64 bytes = static_cast<u64>(b) << 32 | a;
    u32 r = 0;
    for (int i = 0; i < 4; i++) {
        u32 s = selector >> (4 * i) & 15u;
        u32 v = static_cast<u32>(bytes >> (8 * (s & 7))) & 0xffu;
        if (s & 8) v = v & 0x80 ? 0xff : 0;
        r |= v << (8 * i);
    }
    return r;
}
inline u32 __funnelshift_l(u32 lo, u32 hi, u32 shift) { return static_cast<u32>((static_cast<u64>(hi) << 32 | lo) << (shift & 31) >> 32); }
inline u32 __funnelshift_r(u32 lo, u32 hi, u32 shift) { return static_cast<u32>((static_cast<u64>(hi) << 32 | lo) >> (shift & 31)); }

// --- Memory.
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> void __stcs(T* p, T v) { *p = v; }
template <class T> void __stcg(T* p, T v) { *p = v; }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __nanosleep(u32) { wb_emu::yield(); }
inline void __trap() { wb_emu::fail("__trap"); }

// Fibers share one host thread, so plain read-modify-write is atomic. Sums of floats are noted: their order is free.
template <class T> T atomicAdd(T* p, T v) {
    if (static_cast<T>(0.5f) != static_cast<T>(0)) wb_emu::tls.machine->float_atomics = true;
    T old = *p;
    *p = old + v;
    return old;
}
template <class T> T atomicSub(T* p, T v) {
    T old = *p;
    *p = old - v;
    return old;
}
template <class T> T atomicMax(T* p, T v) {
    T old = *p;
    *p = max(old, v);
    return old;
}
template <class T> T atomicMin(T* p, T v) {
    T old = *p;
    *p = min(old, v);
    return old;
}
template <class T> T atomicExch(T* p, T v) {
    T old = *p;
    *p = v;
    return old;
}
template <class T> T atomicCAS(T* p, T expected, T v) {
    T old = *p;
    if (old == expected) *p = v;
    return old;
}
template <class T> T atomicOr(T* p, T v) {
    T old = *p;
    *p = old | v;
    return old;
}
template <class T> T atomicAnd(T* p, T v) {
    T old = *p;
    *p = old & v;
    return old;
}
// Counts up to v, then wraps to 0.
inline u32 atomicInc(u32* p, u32 v) {
    u32 old = *p;
    *p = old >= v ? 0 : old + 1;
    return old;
}

// --- Barriers.
inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    wb_emu::barrier(0, 0, file, line);
}

#include "emu_warp.h"
