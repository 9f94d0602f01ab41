// Loads of data that is read once. The 16-byte one goes without the hint of its kin in ptx.cuh that L2 should ask DRAM for 256
// bytes: the rest of them is asked for anyway. The bulk copy's lines are the first that L2 gives up.
#pragma once
#include "wb.cuh"

#ifdef WB_EMULATE
inline Vec16 ld16_once(const void* p) { return ld16(p); }
inline void bulk_load_once(void* dst_shared, const void* src, u32 bytes, u64* bar) { bulk_load(dst_shared, src, bytes, bar); }
#else
WB_DEVICE Vec16 ld16_once(const void* p) {
    Vec16 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
}
#if WB_SM90
WB_DEVICE void bulk_load_once(void* dst_shared, const void* src, u32 bytes, u64* bar) {
    asm volatile(
        "{.reg .b64 policy;\n"
        "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], policy;}" ::"r"(
            smem_addr(dst_shared)),
        "l"(src), "r"(bytes), "r"(smem_addr(bar))
        : "memory");
}
#endif
#endif
