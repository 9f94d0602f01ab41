// Warp collectives of CUDA C++, for the emulator: each lane brings its value; the last to arrive works out all results.
#pragma once

namespace wb_emu {

struct Shuffle {
    u64 value;
    u32 kind, param, width;
    u64 result;
};

inline void shuffle(void** data, u32 mask) {
    for (u32 i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        auto* s = static_cast<Shuffle*>(data[i]);
        u32 base = i & ~(s->width - 1), source = i;
        switch (s->kind) {
            case 0: source = base + (s->param & (s->width - 1)); break;
            case 1: source = (i ^ s->param) < base + s->width ? i ^ s->param : i; break;
            case 2: source = i >= base + s->param ? i - s->param : i; break;
            default: source = i + s->param < base + s->width ? i + s->param : i; break;
        }
        // A lane that is not there gives no defined value: poison shows where one is used.
        s->result = mask >> source & 1 ? static_cast<Shuffle*>(data[source])->value : ~0ull;
    }
}

template <class T> T shuffle_of(u32 mask, T v, u32 kind, u32 param, u32 width, const char* name) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    Shuffle s{0, kind, param, width, 0};
    memcpy(&s.value, &v, sizeof v);
    collective(mask, shuffle, &s, name);
    memcpy(&v, &s.result, sizeof v);
    return v;
}

struct Vote {
    u64 value, result;
};

template <u64 (*OP)(u64, u64)> void reduce(void** data, u32 mask) {
    u64 all = 0;
    bool any = false;
    for (u32 i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        u64 v = static_cast<Vote*>(data[i])->value;
        all = any ? OP(all, v) : v;
        any = true;
    }
    for (u32 i = 0; i < 32; i++) {
        if (mask >> i & 1) static_cast<Vote*>(data[i])->result = all;
    }
}
template <u64 (*OP)(u64, u64)> u64 reduce_of(u32 mask, u64 v, const char* name) {
    Vote vote{v, 0};
    collective(mask, reduce<OP>, &vote, name);
    return vote.result;
}
inline u64 op_or(u64 a, u64 b) { return a | b; }
inline u64 op_and(u64 a, u64 b) { return a & b; }
inline u64 op_xor(u64 a, u64 b) { return a ^ b; }
inline u64 op_add(u64 a, u64 b) { return a + b; }
inline u64 op_min(u64 a, u64 b) { return a < b ? a : b; }
inline u64 op_max(u64 a, u64 b) { return a < b ? b : a; }
inline u64 op_imin(u64 a, u64 b) { return static_cast<i64>(a) < static_cast<i64>(b) ? a : b; }
inline u64 op_imax(u64 a, u64 b) { return static_cast<i64>(a) < static_cast<i64>(b) ? b : a; }
inline void nothing(void**, u32) {}

}  // namespace wb_emu

template <class T> T __shfl_sync(u32 mask, T v, i32 lane, i32 width = 32) {
    return wb_emu::shuffle_of(mask, v, 0, static_cast<u32>(lane), static_cast<u32>(width), "__shfl_sync");
}
template <class T> T __shfl_xor_sync(u32 mask, T v, i32 lanes, i32 width = 32) {
    return wb_emu::shuffle_of(mask, v, 1, static_cast<u32>(lanes), static_cast<u32>(width), "__shfl_xor_sync");
}
template <class T> T __shfl_up_sync(u32 mask, T v, u32 delta, i32 width = 32) {
    return wb_emu::shuffle_of(mask, v, 2, delta, static_cast<u32>(width), "__shfl_up_sync");
}
template <class T> T __shfl_down_sync(u32 mask, T v, u32 delta, i32 width = 32) {
    return wb_emu::shuffle_of(mask, v, 3, delta, static_cast<u32>(width), "__shfl_down_sync");
}
inline u32 __ballot_sync(u32 mask, i32 predicate) {
    u64 bit = predicate ? 1ull << wb_emu::tls.fiber->lane : 0;
    return static_cast<u32>(wb_emu::reduce_of<wb_emu::op_or>(mask, bit, "__ballot_sync"));
}
inline i32 __any_sync(u32 mask, i32 predicate) { return __ballot_sync(mask, predicate) != 0; }
inline i32 __all_sync(u32 mask, i32 predicate) {
    return static_cast<i32>(wb_emu::reduce_of<wb_emu::op_and>(mask, predicate != 0, "__all_sync"));
}
inline u32 __reduce_add_sync(u32 mask, u32 v) { return static_cast<u32>(wb_emu::reduce_of<wb_emu::op_add>(mask, v, "__reduce_add_sync")); }
inline u32 __reduce_min_sync(u32 mask, u32 v) { return static_cast<u32>(wb_emu::reduce_of<wb_emu::op_min>(mask, v, "__reduce_min_sync")); }
inline u32 __reduce_max_sync(u32 mask, u32 v) { return static_cast<u32>(wb_emu::reduce_of<wb_emu::op_max>(mask, v, "__reduce_max_sync")); }
inline i32 __reduce_min_sync(u32 mask, i32 v) { return static_cast<i32>(wb_emu::reduce_of<wb_emu::op_imin>(mask, static_cast<u64>(static_cast<i64>(v)), "__reduce_min_sync")); }
inline i32 __reduce_max_sync(u32 mask, i32 v) { return static_cast<i32>(wb_emu::reduce_of<wb_emu::op_imax>(mask, static_cast<u64>(static_cast<i64>(v)), "__reduce_max_sync")); }
inline u32 __reduce_or_sync(u32 mask, u32 v) { return static_cast<u32>(wb_emu::reduce_of<wb_emu::op_or>(mask, v, "__reduce_or_sync")); }
inline void __syncwarp(u32 mask = 0xffffffffu) { wb_emu::collective(mask, wb_emu::nothing, nullptr, "__syncwarp"); }
