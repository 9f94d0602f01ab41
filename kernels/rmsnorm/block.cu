// One block a row, EACH 16-byte vectors in every thread's registers: x is read once. The gain is a weight, so its load
// starts before pdl_wait and is there when the row arrives.
#include "../common/wb.cuh"

template <class T, int EACH>
WB_DEVICE void rmsnorm(const T* x, const T* gain, T* residual, T* out, i32 k, float eps) {
    constexpr i32 N = Lanes<T>::n;
    __shared__ float scratch[32];
    i64 row = static_cast<i64>(blockIdx.x) * k;
    Vec16 g[EACH], v[EACH];
#pragma unroll
    for (i32 j = 0; j < EACH; j++) {
        i32 at = static_cast<i32>(threadIdx.x + j * blockDim.x) * N;
        if (at < k) g[j] = ld16_nc(gain + at);
    }
    pdl_launch();
    pdl_wait();
#pragma unroll
    for (i32 j = 0; j < EACH; j++) {
        i32 at = static_cast<i32>(threadIdx.x + j * blockDim.x) * N;
        v[j] = Vec16{{0, 0, 0, 0}};
        if (at < k) v[j] = ld16(x + row + at);
    }
    float sum = 0.0f;
#pragma unroll
    for (i32 j = 0; j < EACH; j++) {
        i32 at = static_cast<i32>(threadIdx.x + j * blockDim.x) * N;
        float f[N];
        unpack16<T>(v[j], f);
        if (residual != nullptr && at < k) {
            float r[N];
            unpack16<T>(ld16(residual + row + at), r);
#pragma unroll
            for (i32 i = 0; i < N; i++) f[i] += r[i];
            // The norm is of the sum as stored, so a later reader of the residual sees what was normalised.
            v[j] = pack16<T>(f);
            st16(residual + row + at, v[j]);
            unpack16<T>(v[j], f);
        }
#pragma unroll
        for (i32 i = 0; i < N; i++) sum += f[i] * f[i];
    }
    float scale = rsqrtf(block_sum(sum, scratch) / static_cast<float>(k) + eps);
#pragma unroll
    for (i32 j = 0; j < EACH; j++) {
        i32 at = static_cast<i32>(threadIdx.x + j * blockDim.x) * N;
        if (at >= k) continue;
        float f[N], h[N];
        unpack16<T>(v[j], f);
        unpack16<T>(g[j], h);
#pragma unroll
        for (i32 i = 0; i < N; i++) f[i] *= scale * h[i];
        st16(out + row + at, pack16<T>(f));
    }
}

#define RMSNORM(T, NAME, EACH)                                                                                    \
    WB_KERNEL void __launch_bounds__(1024)                                                                        \
        rmsnorm_block_##NAME##_##EACH(const T* x, const T* gain, T* residual, T* out, i32 k, float eps) {         \
        rmsnorm<T, EACH>(x, gain, residual, out, k, eps);                                                         \
    }                                                                                                             \
    WB_ENTRY(rmsnorm_block_##NAME##_##EACH)

RMSNORM(bf16, bf16, 1)
RMSNORM(bf16, bf16, 2)
RMSNORM(bf16, bf16, 4)
RMSNORM(f16, f16, 1)
RMSNORM(f16, f16, 2)
RMSNORM(f16, f16, 4)
RMSNORM(float, f32, 1)
RMSNORM(float, f32, 2)
RMSNORM(float, f32, 4)
