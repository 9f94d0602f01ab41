// Instructions of 9.0 that only streams of weights use so far, apart from ptx_hopper.cuh so that a change here compiles no
// other kernel again: an elected lane, barriers and tensor copies by an address in shared memory that a loop keeps in a
// register (from a pointer it is computed again each time), stmatrix transposed. Each has its twin here.
#pragma once

#ifdef WB_EMULATE
inline u64 l2_evict_first() { return 0; }
inline bool elect_one() { return lane_id() == 0; }
using SharedAt = u64;
inline SharedAt shared_address(const void* p) { return reinterpret_cast<u64>(p); }
inline u64* wb_bar(SharedAt at) { return reinterpret_cast<u64*>(at); }
inline bool mbar_test_at(SharedAt bar, u32 parity) { return wb_mbar_done(wb_bar(bar), parity); }
inline void mbar_wait_at(SharedAt bar, u32 parity) { mbar_wait(wb_bar(bar), parity); }
inline void mbar_arrive_at(SharedAt bar) { mbar_arrive(wb_bar(bar)); }
inline void mbar_arrive_remote_at(SharedAt bar, u32 rank) { mbar_arrive_remote(wb_bar(bar), rank); }
inline void mbar_arrive_expect_tx_at(SharedAt bar, u32 bytes) { mbar_arrive_expect_tx(wb_bar(bar), bytes); }
inline void tma_load_2d_at(SharedAt dst, const TensorMapArg* map, SharedAt bar, i32 c0, i32 c1) {
    tma_load_2d(wb_bar(dst), map, wb_bar(bar), c0, c1);
}
inline void tma_load_2d_hint_at(SharedAt dst, const TensorMapArg* map, SharedAt bar, i32 c0, i32 c1, u64) {
    tma_load_2d(wb_bar(dst), map, wb_bar(bar), c0, c1);
}
inline void tma_load_2d_multicast_at(SharedAt dst, const TensorMapArg* map, SharedAt bar, u16 mask, i32 c0, i32 c1) {
    tma_load_2d_multicast(wb_bar(dst), map, wb_bar(bar), mask, c0, c1);
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
// A policy for what is read once: L2 gives it up before anything else.
WB_DEVICE u64 l2_evict_first() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
// The inverse of ldmatrix.trans: lane i gives the address of row i % 8 of matrix i / 8; a lane's register holds rows
// 2 (lane % 4) and the next of column lane / 4.
WB_DEVICE void stmatrix_x4_trans(void* row, const u32 (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_addr(row)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

using SharedAt = u32;
WB_DEVICE SharedAt shared_address(const void* p) {
    u32 at = smem_addr(p);
    asm volatile("" : "+r"(at));
    return at;
}
// Whether the phase of that parity is complete, without waiting for it.
WB_DEVICE bool mbar_test_at(SharedAt bar, u32 parity) {
    u32 ok;
    asm volatile(
        "{.reg .pred p;\n"
        "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(ok)
        : "r"(bar), "r"(parity)
        : "memory");
    return ok != 0;
}
WB_DEVICE void mbar_wait_at(SharedAt bar, u32 parity) {
    u32 ok;
    do {
        asm volatile(
            "{.reg .pred p;\n"
            "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;}"
            : "=r"(ok)
            : "r"(bar), "r"(parity)
            : "memory");
    } while (!ok);
}
WB_DEVICE void mbar_arrive_at(SharedAt bar) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
WB_DEVICE void mbar_arrive_remote_at(SharedAt bar, u32 rank) {
    asm volatile(
        "{.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cta.shared::cluster.b64 _, [remote];}" ::"r"(bar),
        "r"(rank)
        : "memory");
}
WB_DEVICE void mbar_arrive_expect_tx_at(SharedAt bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
WB_DEVICE void tma_load_2d_at(SharedAt dst, const TensorMapArg* map, SharedAt bar, i32 c0, i32 c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            dst),
        "l"(map), "r"(bar), "r"(c0), "r"(c1)
        : "memory");
}
WB_DEVICE void tma_load_2d_hint_at(SharedAt dst, const TensorMapArg* map, SharedAt bar, i32 c0, i32 c1, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%3, %4}], [%2], %5;" ::"r"(dst),
        "l"(map), "r"(bar), "r"(c0), "r"(c1), "l"(policy)
        : "memory");
}
WB_DEVICE void tma_load_2d_multicast_at(SharedAt dst, const TensorMapArg* map, SharedAt bar, u16 mask, i32 c0, i32 c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%4, %5}], [%2], %3;" ::"r"(dst),
        "l"(map), "r"(bar), "h"(mask), "r"(c0), "r"(c1)
        : "memory");
}
#endif
