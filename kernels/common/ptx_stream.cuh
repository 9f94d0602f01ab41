// Instructions of 9.0 that only streams of weights use so far, apart from ptx_hopper.cuh so that a change here compiles no
// other kernel again: tensor copies with a hint to L2, a test of a barrier, stmatrix transposed. Each has its
// twin here.
#pragma once

#ifdef WB_EMULATE
inline u64 l2_evict_first() { return 0; }
inline bool elect_one() { return lane_id() == 0; }
inline bool mbar_test(u64* bar, u32 parity) { return wb_mbar_done(bar, parity); }
inline void tma_load_2d_hint(void* dst, const TensorMapArg* map, u64* bar, i32 c0, i32 c1, u64) {
    tma_load_2d(dst, map, bar, c0, c1);
}
inline void wb_stmatrix_trans(void** data, u32 mask) {
    if (mask != 0xffffffffu) wb_emu::fail("stmatrix needs all 32 lanes");
    for (u32 lane = 0; lane < 32; lane++) {
        for (u32 m = 0; m < 4; m++) {
            u32 value = static_cast<WbStore*>(data[lane])->registers[m];
            for (u32 half = 0; half < 2; half++) {
                auto* to = static_cast<u16*>(static_cast<WbStore*>(data[m * 8 + lane % 4 * 2 + half])->row);
                to[lane / 4] = static_cast<u16>(value >> (16 * half));
            }
        }
    }
}
inline void stmatrix_x4_trans(void* row, const u32 (&r)[4]) {
    wb_check_aligned(row, 16, "stmatrix");
    WbStore s{row, r};
    wb_emu::collective(0xffffffffu, wb_stmatrix_trans, &s, "stmatrix.trans");
}
#else
// True for one lane of a whole warp. What only that lane does, ptxas then knows to be done by one thread: where `lane_id() == 0`
// says so, it puts a loop around each copy that makes its operands uniform.
WB_DEVICE bool elect_one() {
    u32 one;
    asm volatile(
        "{.reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(one));
    return one != 0;
}
// Whether the phase of that parity is complete, without waiting for it.
WB_DEVICE bool mbar_test(u64* bar, u32 parity) {
    u32 ok;
    asm volatile(
        "{.reg .pred p;\n"
        "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(ok)
        : "r"(smem_addr(bar)), "r"(parity)
        : "memory");
    return ok != 0;
}
// A policy for what is read once: L2 gives it up before anything else.
WB_DEVICE u64 l2_evict_first() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
WB_DEVICE void tma_load_2d_hint(void* dst, const TensorMapArg* map, u64* bar, i32 c0, i32 c1, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%3, %4}], [%2], %5;" ::"r"(smem_addr(dst)),
        "l"(map), "r"(smem_addr(bar)), "r"(c0), "r"(c1), "l"(policy)
        : "memory");
}
// The inverse of ldmatrix.trans: lane i gives the address of row i % 8 of matrix i / 8; a lane's register holds rows
// 2 (lane % 4) and the next of column lane / 4.
WB_DEVICE void stmatrix_x4_trans(void* row, const u32 (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_addr(row)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
#endif
