// Reductions over a warp and a block. Fixed order, so that a rerun gives the same bits.
#pragma once

#define WB_FULL_MASK 0xffffffffu
// IEEE infinities without <math.h>.
#define WB_INF __uint_as_float(0x7f800000u)
#define WB_NEG_INF __uint_as_float(0xff800000u)
#define WB_NAN __uint_as_float(0x7fffffffu)

WB_DEVICE u32 lane_id() { return threadIdx.x & 31u; }
WB_DEVICE u32 warp_id() { return threadIdx.x >> 5; }

// fmaxf drops a NaN; this one keeps it.
WB_DEVICE float max_nan(float a, float b) { return (a > b || a != a) ? a : b; }

// Sum over groups of WIDTH neighbouring lanes; every lane gets it. All 32 lanes must call.
template <int WIDTH = 32> WB_DEVICE float warp_sum(float v) {
#pragma unroll
    for (int d = WIDTH / 2; d > 0; d /= 2) v += __shfl_xor_sync(WB_FULL_MASK, v, d);
    return v;
}
template <int WIDTH = 32> WB_DEVICE float warp_max(float v) {
#pragma unroll
    for (int d = WIDTH / 2; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(WB_FULL_MASK, v, d));
    return v;
}

// Reductions over a one-dimensional block whose size is a multiple of 32; every thread gets the result. All threads
// must call. `scratch` is 32 floats of shared memory, free again after the caller's next barrier.
WB_DEVICE float block_sum(float v, float* scratch) {
    v = warp_sum(v);
    u32 warps = blockDim.x >> 5;
    if (warps == 1) return v;
    if (lane_id() == 0) scratch[warp_id()] = v;
    __syncthreads();
    // Every warp adds the partial sums itself: one barrier less than one warp adding and telling.
    return warp_sum(lane_id() < warps ? scratch[lane_id()] : 0.0f);
}
WB_DEVICE float block_max(float v, float* scratch) {
    v = warp_max(v);
    u32 warps = blockDim.x >> 5;
    if (warps == 1) return v;
    if (lane_id() == 0) scratch[warp_id()] = v;
    __syncthreads();
    return warp_max(lane_id() < warps ? scratch[lane_id()] : WB_NEG_INF);
}
