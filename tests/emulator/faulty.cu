// Kernels with one fault each (and one without): what tests/emulated.rs proves the emulator to catch.
#include "../../kernels/common/wb.cuh"

// out[i] = x[i ^ 127], through shared memory.
WB_KERNEL void right(const float* x, float* out, i32 n) {
    __shared__ float tile[128];
    i32 i = static_cast<i32>(blockIdx.x * blockDim.x + threadIdx.x);
    tile[threadIdx.x] = x[i];
    __syncthreads();
    if (i < n) out[i] = tile[threadIdx.x ^ 127];
}
WB_ENTRY(right)

// The same without its barrier.
WB_KERNEL void racy(const float* x, float* out, i32 n) {
    __shared__ float tile[128];
    i32 i = static_cast<i32>(blockIdx.x * blockDim.x + threadIdx.x);
    tile[threadIdx.x] = x[i];
    if (i < n) out[i] = tile[threadIdx.x ^ 127];
}
WB_ENTRY(racy)

// Reads an asynchronous copy's destination without waiting for the copy.
WB_KERNEL void unwaited(const float* x, float* out, i32 n) {
    WB_DYN_SHARED(float, tile);
    if (threadIdx.x < 32) cp_async16(tile + threadIdx.x * 4, x + blockIdx.x * 128 + threadIdx.x * 4);
    cp_async_commit();
    __syncthreads();
    out[blockIdx.x * 128 + threadIdx.x] = tile[threadIdx.x];
    cp_async_wait<0>();
}
WB_ENTRY(unwaited)

WB_KERNEL void writes_behind(const float* x, float* out, i32 n) {
    i32 i = static_cast<i32>(blockIdx.x * blockDim.x + threadIdx.x);
    reinterpret_cast<u8*>(out)[n * 4 - 1 + (i == 255)] = 1;  // one byte too far, once
    out[n - 1] = x[i];
    if (i == 255) out[n] = 1.0f;
}
WB_ENTRY(writes_behind)

WB_KERNEL void writes_before(const float* x, float* out, i32 n) {
    i32 i = static_cast<i32>(blockIdx.x * blockDim.x + threadIdx.x);
    out[i - 1] = x[i];
}
WB_ENTRY(writes_before)

WB_KERNEL void writes_past_shared(const float* x, float* out, i32 n) {
    WB_DYN_SHARED(float, tile);
    tile[threadIdx.x + 1] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}
WB_ENTRY(writes_past_shared)

WB_KERNEL void reads_far(const float* x, float* out, i32 n) {
    out[threadIdx.x] = x[static_cast<i64>(threadIdx.x) + (1ll << 40)];
}
WB_ENTRY(reads_far)

// Half of the block meets one barrier, half another.
WB_KERNEL void divergent_barrier(const float* x, float* out, i32 n) {
    if (threadIdx.x < 64) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = x[threadIdx.x];
}
WB_ENTRY(divergent_barrier)

// Expects more arrivals than there are.
WB_KERNEL void lost_barrier(const float* x, float* out, i32 n) {
    if (threadIdx.x < 64) named_barrier(1, 96);
    out[threadIdx.x] = x[threadIdx.x];
}
WB_ENTRY(lost_barrier)

// A full mask that half of the warp does not honour, while it waits elsewhere.
WB_KERNEL void half_warp_shuffle(const float* x, float* out, i32 n) {
    float v = x[threadIdx.x];
    if (lane_id() < 16) v = __shfl_xor_sync(WB_FULL_MASK, v, 1);
    __syncthreads();
    out[threadIdx.x] = v;
}
WB_ENTRY(half_warp_shuffle)

// Half of a warp at an instruction of the whole (.sync.aligned), the other half at the block's barrier.
WB_KERNEL void half_warp_fence(const float* x, float* out, i32 n) {
    if (lane_id() < 16) wgmma_fence();
    __syncthreads();
    out[threadIdx.x] = x[threadIdx.x];
}
WB_ENTRY(half_warp_fence)

// An mbarrier that expects one warp more than arrives.
WB_KERNEL void lost_arrival(const float* x, float* out, i32 n) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) mbar_init(&bar, blockDim.x / 32 + 1);
    __syncthreads();
    if (lane_id() == 0) mbar_arrive(&bar);
    mbar_wait(&bar, 0);
    out[threadIdx.x] = x[threadIdx.x];
}
WB_ENTRY(lost_arrival)

WB_KERNEL void mixed_collectives(const float* x, float* out, i32 n) {
    float v = x[threadIdx.x];
    if (lane_id() < 16) {
        v = __shfl_xor_sync(WB_FULL_MASK, v, 1);
    } else {
        __syncwarp();
    }
    out[threadIdx.x] = v;
}
WB_ENTRY(mixed_collectives)

WB_KERNEL void misaligned(const float* x, float* out, i32 n) {
    if (threadIdx.x > 60) return;
    st16(out + threadIdx.x * 4, ld16(x + threadIdx.x * 4 + 1));
}
WB_ENTRY(misaligned)
