// Inline assembly, each instruction behind a function that has a twin on the host emulator (emu_twins.h): conversions,
// memory, asynchronous copies, the warp's tensor core, programmatic dependent launch. ptx_hopper.cuh goes on from here.
//
// Pointers to shared memory are ordinary (generic) pointers throughout; the functions convert.
#pragma once

// Sixteen bytes, the widest load and store up to 9.0.
struct alignas(16) Vec16 {
    u32 w[4];
};

#ifdef WB_EMULATE
#include "emu_twins.h"
#else

WB_DEVICE u32 smem_addr(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// --- Conversions. Rounding is to nearest even.
WB_DEVICE float f16_to_f32(u16 v) {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
    return r;
}
WB_DEVICE u16 f32_to_f16(float v) {
    u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}
WB_DEVICE u16 f32_to_bf16(float v) {
    u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}
WB_DEVICE u32 f32x2_to_f16x2(float lo, float hi) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
WB_DEVICE u32 f32x2_to_bf16x2(float lo, float hi) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

// --- Arithmetic on two packed 16-bit floats: a * b + c.
WB_DEVICE u32 fma_f16x2(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
WB_DEVICE u32 fma_bf16x2(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
WB_DEVICE u32 sub_f16x2(u32 a, u32 b) {
    u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
WB_DEVICE u32 mul_f16x2(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
// The larger; NaN if either is.
WB_DEVICE float max_or_nan(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
// Any function of three bits, by its truth table (0xF0, 0xCC, 0xAA are a, b, c): (a & b) | c is 0xEA.
template <int TABLE> WB_DEVICE u32 lop3(u32 a, u32 b, u32 c) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(TABLE));
    return r;
}
// Approximate 2^x, 1/x, log2 x (relative error about 2^-22; subnormal results flush to zero).
WB_DEVICE float ex2(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
WB_DEVICE float rcp(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
WB_DEVICE float lg2(float x) {
    float r;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// --- 16-byte loads and stores; the address is a multiple of 16.
WB_DEVICE Vec16 ld16(const void* p) { return *static_cast<const Vec16*>(p); }
WB_DEVICE void st16(void* p, const Vec16& v) { *static_cast<Vec16*>(p) = v; }
// Weights: read once, never written while the kernel runs. Leaves L1 alone and asks DRAM for 256 bytes at a time.
WB_DEVICE Vec16 ld16_nc(const void* p) {
    Vec16 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
}
// Data that an earlier kernel wrote, read once: coherent, leaves L1 alone.
WB_DEVICE Vec16 ld16_stream(const void* p) {
    Vec16 v;
    asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
}
// Output that nobody reads soon.
WB_DEVICE void st16_stream(void* p, const Vec16& v) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]),
                 "r"(v.w[3])
                 : "memory");
}
WB_DEVICE void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
// Loads and stores that order other memory, device scope: for counters and flags between blocks.
WB_DEVICE u32 ld_acquire(const u32* p) {
    u32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
WB_DEVICE void st_release(u32* p, u32 v) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
WB_DEVICE u32 atomic_add_acq_rel(u32* p, u32 v) {
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}

// --- Asynchronous copies, global to shared, 16 bytes each. With pred false the 16 bytes become zero and src is not read.
WB_DEVICE void cp_async16(void* dst, const void* src, bool pred = true) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(smem_addr(dst)), "l"(src),
                 "r"(pred ? 16 : 0)
                 : "memory");
}
// The same with only the first `bytes` (0 to 16) read, the rest zero.
WB_DEVICE void cp_async16_part(void* dst, const void* src, u32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_addr(dst)), "l"(src), "r"(bytes) : "memory");
}
WB_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most N of this thread's newest groups are unfinished. Other threads see the data after a barrier.
template <int N> WB_DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// --- Fragments. Four 8x8 matrices of 16-bit elements; lane i gives the address of row i%8 of matrix i/8.
WB_DEVICE void ldmatrix_x4(u32 (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_addr(row))
                 : "memory");
}
WB_DEVICE void ldmatrix_x4_trans(u32 (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_addr(row))
                 : "memory");
}
WB_DEVICE void ldmatrix_x2(u32 (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(smem_addr(row))
                 : "memory");
}
// d += a * b: a is 16x16 row-major, b 16x8 column-major, d 16x8 fp32 (layouts: PTX ISA, mma.m16n8k16).
template <class T> WB_DEVICE void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]);
template <> WB_DEVICE void mma_m16n8k16<struct bf16>(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <> WB_DEVICE void mma_m16n8k16<struct f16>(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a * b in integers: a is 16x32 signed bytes row-major, b 32x8 column-major, d 16x8 (layouts: PTX ISA, mma.m16n8k32).
WB_DEVICE void mma_m16n8k32_s8(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Transposes an 8x8 matrix of 16-bit elements held as a fragment (row lane/4, columns 2(lane%4) and the next).
WB_DEVICE u32 transpose_8x8(u32 v) {
    u32 r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
    return r;
}

// --- Four e4m3 in a register: the first and third, or the second and fourth, as two fp16 (exact).
WB_DEVICE u32 e4m3_even(u32 v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    u32 r;
    asm("{.reg .b16 pair;\n"
        ".reg .b32 both;\n"
        "prmt.b32 both, %1, 0, 0x4420;\n"
        "cvt.u16.u32 pair, both;\n"
        "cvt.rn.f16x2.e4m3x2 %0, pair;}"
        : "=r"(r)
        : "r"(v));
    return r;
#else
    // The bits at half precision's place have an exponent bias 8 too small; NaN reads as 480 here.
    return mul_f16x2(((v & 0x00800080u) << 8) | ((v & 0x007f007fu) << 7), 0x5c005c00u);
#endif
}
WB_DEVICE u32 e4m3_odd(u32 v) { return e4m3_even(v >> 8); }

// --- Barrier of `threads` (a multiple of 32) of the block's threads, by number (1 to 15; 0 is __syncthreads).
WB_DEVICE void named_barrier(u32 id, u32 threads) {
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// --- Programmatic dependent launch. No effect below 9.0 or in a launch that is not programmatic.
// Returns when all earlier kernels of the stream have ended and their writes are visible.
WB_DEVICE void pdl_wait() {
#if WB_SM90
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel of the stream begin; it still waits in pdl_wait for this one to end.
WB_DEVICE void pdl_launch() {
#if WB_SM90
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif  // WB_EMULATE

#if WB_SM90
#include "ptx_hopper.cuh"
#endif
