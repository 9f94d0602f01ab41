// Host twins of ptx_hopper.cuh: clusters, mbarriers, bulk copies. Tensor copies and wgmma: emu_tensor.h.
#pragma once

// --- Clusters.
inline u32 cluster_rank() { return wb_emu::tls.fiber->block->rank; }
inline u32 cluster_size() { return static_cast<u32>(wb_emu::tls.machine->blocks.size()); }
inline void cluster_arrive() {
    wb_emu::Machine& m = *wb_emu::tls.machine;
    wb_emu::Fiber* f = wb_emu::tls.fiber;
    if (f->cluster_arrived) wb_emu::fail("a thread arrives twice at the cluster barrier");
    f->cluster_phase = m.cluster_phase;
    f->cluster_arrived = true;
    m.cluster_arrived++;
    wb_emu::cluster_release_if_complete(m);
}
inline void cluster_arrive_relaxed() { cluster_arrive(); }
inline void cluster_wait() {
    wb_emu::Machine* m = wb_emu::tls.machine;
    wb_emu::poll([](void* at, u64 phase) { return static_cast<wb_emu::Machine*>(at)->cluster_phase != phase; }, m,
                 wb_emu::tls.fiber->cluster_phase, "cluster_sync");
}
inline void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}
template <class T> T* cluster_map(T* p, u32 rank) {
    wb_emu::Machine& m = *wb_emu::tls.machine;
    wb_emu::Block* own = wb_emu::tls.fiber->block;
    if (rank >= m.blocks.size()) wb_emu::fail("cluster_map: rank %u of a cluster of %zu", rank, m.blocks.size());
    wb_emu::Block& other = m.blocks[rank];
    if (&other == own) return p;
    char* at = reinterpret_cast<char*>(p);
    if (at >= own->dynamic && at < own->dynamic + m.shared) return reinterpret_cast<T*>(other.dynamic + (at - own->dynamic));
    wb_emu::Segment s = m.segment;
    if (at < s.begin || at >= s.begin + s.size) wb_emu::fail("cluster_map: %p is no shared memory", static_cast<void*>(at));
    return reinterpret_cast<T*>(other.image.data() + (at - s.begin));
}

// --- Mbarriers. The eight bytes hold phase (1 bit), arrivals per phase (20), arrivals left (20), bytes left (23, signed).
struct WbMbar {
    u64 phase : 1, count : 20, left : 20;
    i64 bytes : 23;
};
static_assert(sizeof(WbMbar) == 8, "an mbarrier has 8 bytes");
inline void wb_mbar_update(u64* bar, i64 arrivals, i64 bytes) {
    wb_check_aligned(bar, 8, "an mbarrier");
    WbMbar b;
    memcpy(&b, bar, 8);
    if (b.count == 0 || b.count == 0xfffff) wb_emu::fail("an mbarrier is used that was not initialised");
    if (arrivals > static_cast<i64>(b.left)) wb_emu::fail("more arrivals at an mbarrier than it expects (%u)", static_cast<u32>(b.count));
    b.left -= static_cast<u64>(arrivals);
    b.bytes += bytes;
    if (b.left == 0 && b.bytes == 0) {
        b.phase ^= 1;
        b.left = b.count;
    }
    memcpy(bar, &b, 8);
}
inline void mbar_init(u64* bar, u32 arrivals) {
    WbMbar b{0, arrivals, arrivals, 0};
    memcpy(bar, &b, 8);
}
inline void fence_mbar_init() {}
inline void fence_proxy_async() {}
inline void mbar_arrive(u64* bar) { wb_mbar_update(bar, 1, 0); }
inline void mbar_arrive_remote(u64* bar, u32 rank) { wb_mbar_update(cluster_map(bar, rank), 1, 0); }
inline void st_async16(void* dst, float a, float b, float c, float d, u64* bar, u32 rank) {
    wb_check_aligned(dst, 16, "st.async");
    float v[4] = {a, b, c, d};
    memcpy(cluster_map(static_cast<char*>(dst), rank), v, 16);
    wb_mbar_update(cluster_map(bar, rank), 0, -16);
}
inline void mbar_expect_tx(u64* bar, u32 bytes) { wb_mbar_update(bar, 0, bytes); }
inline void mbar_arrive_expect_tx(u64* bar, u32 bytes) {
    // One step on the hardware: the bytes are expected before the arrival counts.
    WbMbar b;
    memcpy(&b, bar, 8);
    b.bytes += bytes;
    memcpy(bar, &b, 8);
    wb_mbar_update(bar, 1, 0);
}
inline bool wb_mbar_done(void* bar, u64 parity) {
    WbMbar b;
    memcpy(&b, bar, 8);
    return b.phase != parity;
}
inline std::string wb_emu::mbar_text(const void* bar) {
    WbMbar b;
    memcpy(&b, bar, 8);
    return std::to_string(b.left) + " of " + std::to_string(b.count) + " arrivals and " + std::to_string(b.bytes) + " bytes";
}
inline bool wb_emu::polls_mbar(const Fiber& f) { return f.ready == wb_mbar_done; }
inline bool mbar_try_wait(u64* bar, u32 parity) {
    if (!wb_mbar_done(bar, parity)) wb_emu::yield();
    return wb_mbar_done(bar, parity);
}
inline void mbar_wait(u64* bar, u32 parity) { wb_emu::poll(wb_mbar_done, bar, parity, "an mbarrier"); }
inline void mbar_wait_cluster(u64* bar, u32 parity) { mbar_wait(bar, parity); }

// --- Bulk copies.
inline void wb_check_bulk(const void* a, const void* b, u32 bytes) {
    wb_check_aligned(a, 16, "a bulk copy");
    wb_check_aligned(b, 16, "a bulk copy");
    if (bytes % 16 != 0) wb_emu::fail("a bulk copy of %u bytes, not a multiple of 16", bytes);
}
inline void bulk_load(void* dst_shared, const void* src, u32 bytes, u64* bar) {
    wb_check_bulk(dst_shared, src, bytes);
    wb_emu::tls.fiber->block->loads.push_back({dst_shared, src, bytes, bar});
}
inline void wb_emu::land_bulk(BulkLoad& load) {
    memcpy(load.dst, load.src, load.bytes);
    wb_mbar_update(load.bar, 0, -static_cast<i64>(load.bytes));
}
inline void bulk_store(void* dst, const void* src_shared, u32 bytes) {
    wb_check_bulk(dst, src_shared, bytes);
    wb_emu::Fiber* f = wb_emu::tls.fiber;
    f->bulk_stores.push_back({dst, src_shared, bytes, 0, f->bulk_group});
}
inline void bulk_commit() { wb_emu::tls.fiber->bulk_group++; }
template <int N> void bulk_wait() {
    wb_emu::Fiber* f = wb_emu::tls.fiber;
    wb_emu::land(f->bulk_stores, f->bulk_group - N);
}
template <int N> void bulk_wait_read() { bulk_wait<N>(); }
inline void bulk_prefetch_l2(const void*, u32) {}

// --- Fragments.
struct WbStore {
    void* row;
    const u32* registers;
};
inline void wb_stmatrix(void** data, u32 mask) {
    if (mask != 0xffffffffu) wb_emu::fail("stmatrix needs all 32 lanes");
    for (u32 lane = 0; lane < 32; lane++) {
        for (u32 m = 0; m < 4; m++) {
            u32 value = static_cast<WbStore*>(data[lane])->registers[m];
            auto* to = static_cast<u16*>(static_cast<WbStore*>(data[m * 8 + lane / 4])->row);
            to[lane % 4 * 2] = static_cast<u16>(value);
            to[lane % 4 * 2 + 1] = static_cast<u16>(value >> 16);
        }
    }
}
inline void stmatrix_x4(void* row, const u32 (&r)[4]) {
    wb_check_aligned(row, 16, "stmatrix");
    WbStore s{row, r};
    wb_emu::collective(0xffffffffu, wb_stmatrix, &s, "stmatrix");
}

#include "emu_tensor.h"
