// The plain form: any width, one element a thread and step, the row read twice (the second time from L1 or L2).
#include "../common/wb.cuh"

template <class T> WB_DEVICE void rmsnorm(const T* x, const T* gain, T* residual, T* out, i32 k, float eps) {
    __shared__ float scratch[32];
    pdl_launch();
    pdl_wait();
    i64 row = static_cast<i64>(blockIdx.x) * k;
    float sum = 0.0f;
    for (i32 i = threadIdx.x; i < k; i += blockDim.x) {
        float v = to_float(x[row + i]);
        if (residual != nullptr) {
            // The norm is of the sum as stored, so a later reader of the residual sees what was normalised.
            T rounded = from_float<T>(v + to_float(residual[row + i]));
            residual[row + i] = rounded;
            v = to_float(rounded);
        }
        sum += v * v;
    }
    float scale = rsqrtf(block_sum(sum, scratch) / static_cast<float>(k) + eps);
    const T* from = residual != nullptr ? residual : x;
    // Each thread rereads what it wrote itself: no barrier needed.
    for (i32 i = threadIdx.x; i < k; i += blockDim.x) {
        out[row + i] = from_float<T>(to_float(from[row + i]) * scale * to_float(gain[i]));
    }
}

#define RMSNORM(T, NAME)                                                                                          \
    WB_KERNEL void __launch_bounds__(256)                                                                         \
        rmsnorm_reread_##NAME(const T* x, const T* gain, T* residual, T* out, i32 k, float eps) {                 \
        rmsnorm<T>(x, gain, residual, out, k, eps);                                                               \
    }                                                                                                             \
    WB_ENTRY(rmsnorm_reread_##NAME)

RMSNORM(bf16, bf16)
RMSNORM(f16, f16)
RMSNORM(float, f32)
