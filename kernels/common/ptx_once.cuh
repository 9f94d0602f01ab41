// A load of data that is read once, without the hint of its kin in ptx.cuh that L2 should ask DRAM for 256 bytes: the
// rest of them is asked for anyway.
#pragma once
#include "wb.cuh"

#ifdef WB_EMULATE
inline Vec16 ld16_once(const void* p) { return ld16(p); }
#else
WB_DEVICE Vec16 ld16_once(const void* p) {
    Vec16 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
}
#endif
