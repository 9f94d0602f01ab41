// silu(gate) * up, gate and up side by side in one row of 2n.
#include "../common/wb.cuh"

// x / (1 + e^-x) by the fast exponential; e^-x overflows to infinity for x < -88, where the quotient is a zero.
WB_DEVICE float silu(float x) { return __fdividef(x, 1.0f + ex2(x * -1.4426950408889634f)); }

template <class T> WB_DEVICE void silu_mul(const T* x, T* out, i32 n) {
    pdl_launch();
    pdl_wait();
    constexpr i32 N = Lanes<T>::n;
    i64 row = blockIdx.x;
    const T* gate = x + row * 2 * n;
    const T* up = gate + n;
    T* to = out + row * n;
    i32 at = static_cast<i32>(blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (at >= n) return;
    if (n % N == 0) {
        float g[N], u[N];
        unpack16<T>(ld16(gate + at), g);
        unpack16<T>(ld16(up + at), u);
#pragma unroll
        for (i32 i = 0; i < N; i++) g[i] = silu(g[i]) * u[i];
        st16(to + at, pack16<T>(g));
    } else {
        i32 end = min(at + N, n);
        for (i32 i = at; i < end; i++) to[i] = from_float<T>(silu(to_float(gate[i])) * to_float(up[i]));
    }
}

#define SILU_MUL(T, NAME)                                                                                         \
    WB_KERNEL void __launch_bounds__(128) silu_mul_vector_##NAME(const T* x, T* out, i32 n) {                     \
        silu_mul<T>(x, out, n);                                                                                   \
    }                                                                                                             \
    WB_ENTRY(silu_mul_vector_##NAME)

SILU_MUL(bf16, bf16)
SILU_MUL(f16, f16)
SILU_MUL(float, f32)
