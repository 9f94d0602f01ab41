// Instructions of 9.0: clusters and distributed shared memory, mbarriers, bulk and tensor (TMA) copies, stmatrix; and
// under sm_90a wgmma (ptx_wgmma.cuh). Everything here but tensor copies and wgmma has a twin on the host emulator.
#pragma once

#ifndef WB_EMULATE

// --- Clusters.
WB_DEVICE u32 cluster_rank() {
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
WB_DEVICE u32 cluster_size() {
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
    return r;
}
// All threads of all blocks of the cluster; orders their shared memory.
WB_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
// Only says that this thread is here: what it wrote before is not published, which spares a fence.
WB_DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
WB_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
WB_DEVICE void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}
// The same shared variable in the block of that rank, as an ordinary pointer (distributed shared memory).
template <class T> WB_DEVICE T* cluster_map(T* p, u32 rank) {
    u64 r;
    asm("mapa.u64 %0, %1, %2;" : "=l"(r) : "l"(p), "r"(rank));
    return reinterpret_cast<T*>(r);
}

// --- Mbarriers: 8 bytes of shared memory, initialised by one thread, then fence_mbar_init() and a barrier.
WB_DEVICE void mbar_init(u64* bar, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_addr(bar)), "r"(arrivals) : "memory");
}
WB_DEVICE void fence_mbar_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Makes this thread's shared-memory writes visible to bulk copies and wgmma.
WB_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
WB_DEVICE void mbar_arrive(u64* bar) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(smem_addr(bar)) : "memory");
}
// Arrives at the same barrier in another block of the cluster, to say that this thread has read: it publishes nothing that
// was written. Released to the whole cluster it would wait for all of the thread's stores first (MEMBAR.GPU in SASS).
WB_DEVICE void mbar_arrive_remote(u64* bar, u32 rank) {
    asm volatile(
        "{.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cta.shared::cluster.b64 _, [remote];}" ::"r"(smem_addr(bar)),
        "r"(rank)
        : "memory");
}
// Stores 16 bytes at the same place of another block's shared memory and counts them in at its barrier, as a copy would.
WB_DEVICE void st_async16(void* dst, float a, float b, float c, float d, u64* bar, u32 rank) {
    asm volatile(
        "{.reg .b32 to, counter;\n"
        "mapa.shared::cluster.u32 to, %0, %6;\n"
        "mapa.shared::cluster.u32 counter, %1, %6;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%2, %3, %4, %5}, [counter];}" ::"r"(
            smem_addr(dst)),
        "r"(smem_addr(bar)), "f"(a), "f"(b), "f"(c), "f"(d), "r"(rank)
        : "memory");
}
WB_DEVICE void mbar_expect_tx(u64* bar, u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(smem_addr(bar)), "r"(bytes) : "memory");
}
WB_DEVICE void mbar_arrive_expect_tx(u64* bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr(bar)), "r"(bytes)
                 : "memory");
}
// Whether the phase of that parity is complete; waits a while for it.
WB_DEVICE bool mbar_try_wait(u64* bar, u32 parity) {
    u32 ok;
    asm volatile(
        "{.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(ok)
        : "r"(smem_addr(bar)), "r"(parity)
        : "memory");
    return ok != 0;
}
WB_DEVICE void mbar_wait(u64* bar, u32 parity) {
    while (!mbar_try_wait(bar, parity)) {
    }
}
// The same, ordering also what other blocks of the cluster wrote before they arrived.
WB_DEVICE void mbar_wait_cluster(u64* bar, u32 parity) {
    u32 ok;
    do {
        asm volatile(
            "{.reg .pred p;\n"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;}"
            : "=r"(ok)
            : "r"(smem_addr(bar)), "r"(parity)
            : "memory");
    } while (!ok);
}

// --- Bulk copies: addresses and sizes are multiples of 16; one thread issues.
WB_DEVICE void bulk_load(void* dst_shared, const void* src, u32 bytes, u64* bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            smem_addr(dst_shared)),
        "l"(src), "r"(bytes), "r"(smem_addr(bar))
        : "memory");
}
WB_DEVICE void bulk_store(void* dst, const void* src_shared, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(smem_addr(src_shared)),
                 "r"(bytes)
                 : "memory");
}
WB_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most N of this thread's groups of bulk stores are unfinished; _read: until their shared memory may be reused.
template <int N> WB_DEVICE void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
template <int N> WB_DEVICE void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
// Asks L2 for a run of global memory; a multiple of 16 bytes.
WB_DEVICE void bulk_prefetch_l2(const void* src, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(src), "r"(bytes) : "memory");
}

// --- Tensor copies (TMA). A kernel takes `const __grid_constant__ TensorMapArg map`.
struct alignas(64) TensorMapArg {
    u64 opaque[16];
};
WB_DEVICE void prefetch_tensormap(const TensorMapArg* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
WB_DEVICE void tma_load_2d(void* dst, const TensorMapArg* map, u64* bar, i32 c0, i32 c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            smem_addr(dst)),
        "l"(map), "r"(smem_addr(bar)), "r"(c0), "r"(c1)
        : "memory");
}
// To the same place in every block of the cluster that `mask` names; each block's barrier counts its own bytes.
WB_DEVICE void tma_load_2d_multicast(void* dst, const TensorMapArg* map, u64* bar, u16 mask, i32 c0, i32 c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%4, %5}], [%2], %3;" ::"r"(smem_addr(dst)),
        "l"(map), "r"(smem_addr(bar)), "h"(mask), "r"(c0), "r"(c1)
        : "memory");
}
WB_DEVICE void tma_store_2d(const TensorMapArg* map, const void* src, i32 c0, i32 c1) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(smem_addr(src)), "r"(c0), "r"(c1)
                 : "memory");
}
WB_DEVICE void tma_load_3d(void* dst, const TensorMapArg* map, u64* bar, i32 c0, i32 c1, i32 c2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
            smem_addr(dst)),
        "l"(map), "r"(smem_addr(bar)), "r"(c0), "r"(c1), "r"(c2)
        : "memory");
}
// To the same place in every block of the cluster that `mask` names; each block's barrier counts its own bytes.
WB_DEVICE void tma_load_3d_multicast(void* dst, const TensorMapArg* map, u64* bar, u16 mask, i32 c0, i32 c1, i32 c2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%4, %5, %6}], [%2], %3;" ::"r"(smem_addr(dst)),
        "l"(map), "r"(smem_addr(bar)), "h"(mask), "r"(c0), "r"(c1), "r"(c2)
        : "memory");
}
WB_DEVICE void tma_store_3d(const TensorMapArg* map, const void* src, i32 c0, i32 c1, i32 c2) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(smem_addr(src)), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}
WB_DEVICE void tma_load_4d(void* dst, const TensorMapArg* map, u64* bar, i32 c0, i32 c1, i32 c2, i32 c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
            smem_addr(dst)),
        "l"(map), "r"(smem_addr(bar)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}
// To the same place in every block of the cluster that `mask` names; each block's barrier counts its own bytes.
WB_DEVICE void tma_load_4d_multicast(void* dst, const TensorMapArg* map, u64* bar, u16 mask, i32 c0, i32 c1, i32 c2, i32 c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(smem_addr(dst)),
        "l"(map), "r"(smem_addr(bar)), "h"(mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}
WB_DEVICE void tma_store_4d(const TensorMapArg* map, const void* src, i32 c0, i32 c1, i32 c2, i32 c3) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(smem_addr(src)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}

// --- Stores of fragments, the inverse of ldmatrix.
WB_DEVICE void stmatrix_x4(void* row, const u32 (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_addr(row)), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
#endif  // WB_EMULATE

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "ptx_wgmma.cuh"
#endif
