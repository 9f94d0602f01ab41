// Loads and copies of data that is read once, without the hint to L2 of their kin in ptx.cuh: a prefetch of 128 or 256
// bytes asks DRAM for what the next instruction asks for anyway.
#pragma once
#include "wb.cuh"

#ifdef WB_EMULATE
inline Vec16 ld16_once(const void* p) { return ld16(p); }
inline void cp_async16_once(void* dst, const void* src, bool pred = true) { cp_async16(dst, src, pred); }
#else
WB_DEVICE Vec16 ld16_once(const void* p) {
    Vec16 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
}
WB_DEVICE void cp_async16_once(void* dst, const void* src, bool pred = true) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_addr(dst)), "l"(src), "r"(pred ? 16 : 0)
                 : "memory");
}
#endif
