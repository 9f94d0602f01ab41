// A value and its index as one integer: the largest key is the largest value at the lowest index, whatever the order
// in which keys meet.
#pragma once

#include "../common/wb.cuh"

// Floats in integer order; both zeros are equal and every NaN is above infinity.
WB_DEVICE u32 ordered(float v) {
    if (v != v) return 0xffffffffu;
    u32 bits = __float_as_uint(v + 0.0f);  // -0 + 0 is +0
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
WB_DEVICE u64 key(float v, i32 index) {
    return static_cast<u64>(ordered(v)) << 32 | (0xffffffffu - static_cast<u32>(index));
}
WB_DEVICE i32 index_of(u64 key) { return static_cast<i32>(0xffffffffu - static_cast<u32>(key)); }

WB_DEVICE u64 largest(u64 a, u64 b) { return a > b ? a : b; }

// The largest key of columns first + threadIdx.x * N, then on by stride, of one row. 0 where there are none: below
// every key.
template <class T> WB_DEVICE u64 scan(const T* row, i32 v, i64 first, i64 stride) {
    constexpr i32 N = Lanes<T>::n;
    u64 best = 0;
    bool vector = aligned16(row);
    for (i64 at = first; at < v; at += stride) {
        if (vector && at + N <= v) {
            float f[N];
            unpack16<T>(ld16(row + at), f);
#pragma unroll
            for (i32 i = 0; i < N; i++) best = largest(best, key(f[i], static_cast<i32>(at) + i));
        } else {
            for (i32 i = 0; i < N && at + i < v; i++) {
                best = largest(best, key(to_float(row[at + i]), static_cast<i32>(at) + i));
            }
        }
    }
    return best;
}

// The block's largest key, in thread 0. `scratch` is 32 keys of shared memory.
WB_DEVICE u64 block_largest(u64 best, u64* scratch) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) best = largest(best, __shfl_xor_sync(WB_FULL_MASK, best, d));
    if (lane_id() == 0) scratch[warp_id()] = best;
    __syncthreads();
    if (warp_id() == 0) {
        best = lane_id() < blockDim.x / 32 ? scratch[lane_id()] : 0;
#pragma unroll
        for (int d = 16; d > 0; d /= 2) best = largest(best, __shfl_xor_sync(WB_FULL_MASK, best, d));
    }
    return best;
}
