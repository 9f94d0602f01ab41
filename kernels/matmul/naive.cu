// Step 0: one thread, one output. Neighbouring threads read different rows of w, so each 2-byte load of a warp touches
// 32 cache lines; the caches save it from DRAM and the load unit becomes the bound. It takes every shape and every
// fusion, and is what the other variants are compared with when a result looks wrong.
#include "matmul.cuh"

template <class T> WB_DEVICE float naive_dot(const Args<T>& a, const T* x, const T* w, float scale) {
    float sum = 0.0f;
    for (i32 i = 0; i < a.k; i++) {
        float xi = to_float(x[i]);
        if (a.pre) xi = xi * scale * to_float(a.norm[i]);
        sum += xi * to_float(w[i]);
    }
    return sum;
}

template <class T> WB_DEVICE void naive(const Args<T>& a) {
    pdl_launch();
    pdl_wait();
    i32 col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= a.cols()) return;
    for (i32 row = blockIdx.y * blockDim.y + threadIdx.y; row < a.m; row += gridDim.y * blockDim.y) {
        const T* x = a.x + static_cast<i64>(row) * a.k;
        float scale = 1.0f;
        if (a.pre) {
            float squares = 0.0f;
            for (i32 i = 0; i < a.k; i++) squares += to_float(x[i]) * to_float(x[i]);
            scale = rsqrtf(squares / a.k + a.eps);
        }
        float sum = naive_dot(a, x, a.w + static_cast<i64>(col) * a.k, scale);
        if (a.silu()) {
            float up = naive_dot(a, x, a.w + static_cast<i64>(col + a.n / 2) * a.k, scale);
            a.store(row, col, silu_mul(sum, up));
        } else {
            a.finish(row, col, sum);
        }
    }
}

#define NAIVE(T)                                                                                                       \
    WB_KERNEL void matmul_naive_##T(MATMUL_PARAMS(T)) { naive(MATMUL_ARGS(T)); }                                       \
    WB_ENTRY(matmul_naive_##T)
NAIVE(bf16)
NAIVE(f16)
