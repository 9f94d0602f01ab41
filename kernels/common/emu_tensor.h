// Host twins of tensor copies (TMA) and of wgmma (ptx_hopper.cuh, ptx_wgmma.cuh), for 16-bit elements and the 128-byte
// swizzle. They check layouts, descriptors and the protocol of barriers. Both act at once, the earliest that the hardware
// may: a copy that overtakes its readers is seen, a wgmma whose operands are overwritten before its wait is not.
#pragma once

// Words: address; rank; five sizes, innermost first; four strides in bytes from the second dimension on; five box sizes.
// src/run/emulate.rs packs them.
struct alignas(64) TensorMapArg {
    u64 word[16];
    u64 size(u32 d) const { return word[2 + d]; }
    u64 stride(u32 d) const { return d == 0 ? 2 : word[6 + d]; }
    u64 box(u32 d) const { return word[11 + d]; }
};
inline void prefetch_tensormap(const TensorMapArg*) {}

// The 128-byte swizzle acts on addresses: bits 4 to 6 (the 16-byte piece) are XORed with bits 7 to 9 (the row).
inline u16* wb_swizzled(u64 address) { return reinterpret_cast<u16*>(address ^ ((address >> 7 & 7) << 4)); }

// Calls `each(shared, global)` for every element of a box; global is null outside the tensor.
template <class F> void wb_box(const TensorMapArg& map, const void* shared, const i32 (&at)[5], F each) {
    wb_check_aligned(shared, 1024, "a tensor copy's shared memory");
    u64 rows = 1;
    for (u32 d = 1; d < map.word[1]; d++) rows *= map.box(d);
    for (u64 row = 0; row < rows; row++) {
        for (u64 e = 0; e < map.box(0); e++) {
            u64 rest = row, address = map.word[0];
            bool inside = true;
            for (u32 d = 0; d < map.word[1]; d++) {
                i64 c = at[d] + static_cast<i64>(d == 0 ? e : rest % map.box(d));
                if (d > 0) rest /= map.box(d);
                inside = inside && c >= 0 && c < static_cast<i64>(map.size(d));
                address += static_cast<u64>(c) * map.stride(d);
            }
            u64 place = reinterpret_cast<u64>(shared) + row * 128 + e * 2;
            each(wb_swizzled(place), inside ? reinterpret_cast<u16*>(address) : nullptr);
        }
    }
}
inline void wb_tensor_load(void* dst, const TensorMapArg& map, u64* bar, const i32 (&at)[5]) {
    u64 bytes = 2;
    for (u32 d = 0; d < map.word[1]; d++) bytes *= map.box(d);
    wb_box(map, dst, at, [](u16* shared, const u16* global) { *shared = global ? *global : 0; });
    wb_mbar_update(bar, 0, -static_cast<i64>(bytes));
}
inline void tma_load_2d(void* dst, const TensorMapArg* map, u64* bar, i32 c0, i32 c1) {
    wb_tensor_load(dst, *map, bar, {c0, c1, 0, 0, 0});
}
inline void tma_load_2d_multicast(void* dst, const TensorMapArg* map, u64* bar, u16 mask, i32 c0, i32 c1) {
    for (u32 rank = 0; rank < 16; rank++) {
        if (mask >> rank & 1) wb_tensor_load(cluster_map(static_cast<char*>(dst), rank), *map, cluster_map(bar, rank), {c0, c1, 0, 0, 0});
    }
}
inline void tma_store_2d(const TensorMapArg* map, const void* src, i32 c0, i32 c1) {
    wb_box(*map, src, {c0, c1, 0, 0, 0}, [](const u16* shared, u16* global) {
        if (global) *global = *shared;
    });
}

template <int N> void setmaxnreg_dec() {}
template <int N> void setmaxnreg_inc() {}
// `.sync.aligned`: the lanes of a warp are together here, so one that gives a stage back does it for all.
inline void wb_together(const char* name) {
    wb_emu::collective(0xffffffffu, [](void**, u32) {}, nullptr, name);
}
inline void wgmma_fence() { wb_together("wgmma.fence"); }
inline void wgmma_commit() {}
template <int N> void wgmma_wait() { wb_together("wgmma.wait_group"); }
template <int N> void wgmma_pin(float (&)[N]) {}
// The whole address in units of 16 bytes, so that kernels add to it what they add to the hardware's.
inline u64 wgmma_desc_128b(const void* tile) { return reinterpret_cast<u64>(tile) >> 4; }

// Each thread computes its own accumulators: 4 j + e is row 16 warp + lane / 4 (+ 8 for e >= 2), column 8 j + 2 (lane % 4)
// + e % 2.
template <class T, int N> struct Wgmma {
    static void run(float (&d)[N / 2], u64 a, u64 b, i32 scale_d = 1) {
        u32 thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
        auto element = [](u64 base, u32 row, u32 k) {
            return to_float(T{*wb_swizzled((base << 4) + row * 128 + k * 2)});
        };
        for (u32 i = 0; i < N / 2; i++) {
            u32 row = warp * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            float sum = scale_d ? d[i] : 0.0f;
            for (u32 k = 0; k < 16; k++) sum += element(a, row, k) * element(b, column, k);
            d[i] = sum;
        }
    }
};
