// What all matmul kernels share: the argument list, how a finished sum becomes an output, and how a row number of a
// tile becomes a row of the weights (gate and up rows are paired so that one thread ends up with both).
//
//   out[m, j] = epilogue( sum_k x[m, k] * w[j, k] )         x[m,k], w[n,k] row-major; sums in fp32
//
// post: 0 none | 1 residual: out = residual + sum | 2 silu_mul: out[m, j] = silu(sum over row j) * (sum over row n/2 + j)
// pre:  1 x is first normalised, x * rsqrt(mean(x^2) + eps) * norm
// vec:  every row of x, w and norm begins on 16 bytes (k a multiple of 8, aligned bases)
#pragma once
#include "../common/wb.cuh"

enum { POST_NONE = 0, POST_RESIDUAL = 1, POST_SILU_MUL = 2 };

template <class T> struct Args {
    const T *x, *w, *norm, *residual;
    void* out;
    i32 m, n, k;
    float eps;
    i32 pre, post, out_f32, vec;

    WB_DEVICE bool silu() const { return post == POST_SILU_MUL; }
    // Columns of the output.
    WB_DEVICE i32 cols() const { return silu() ? n / 2 : n; }

    // Whether two neighbouring outputs, the first at an even column, are one plain 4-byte store.
    WB_DEVICE bool pairs() const {
        return post == POST_NONE && !out_f32 && n % 2 == 0 && (reinterpret_cast<u64>(out) & 3) == 0;
    }
    WB_DEVICE void store(i32 row, i32 col, float v) const {
        store_at(static_cast<i64>(row) * cols() + col, v);
    }
    WB_DEVICE void store_at(i64 at, float v) const {
        if (out_f32)
            static_cast<float*>(out)[at] = v;
        else
            static_cast<T*>(out)[at] = from_float<T>(v);
    }
    WB_DEVICE float load_residual(i32 row, i32 col) const {
        return to_float(residual[static_cast<i64>(row) * cols() + col]);
    }
    // Stores the sum of one weight row where no pairing is needed.
    WB_DEVICE void finish(i32 row, i32 col, float v) const {
        if (post == POST_RESIDUAL) v += load_residual(row, col);
        store(row, col, v);
    }
};

#define MATMUL_PARAMS(T)                                                                                               \
    const T *x, const T *w, const T *norm, const T *residual, void *out, i32 m, i32 n, i32 k, float eps, i32 pre,      \
        i32 post, i32 out_f32, i32 vec
#define MATMUL_ARGS(T) (Args<T>{x, w, norm, residual, out, m, n, k, eps, pre, post, out_f32, vec})

// silu(g) * u. The division keeps g = -inf a NaN and large -g a zero, as the formula has it.
WB_DEVICE float silu_mul(float g, float u) { return g / (1.0f + __expf(-g)) * u; }

// Eight elements from p, of which only the first `left` exist; the rest are zeros. For rows that are not 16-byte aligned.
template <class T> WB_DEVICE Vec16 load8_any(const T* p, i32 left) {
    Vec16 v;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 lo = 2 * i < left ? p[2 * i].bits : 0;
        u32 hi = 2 * i + 1 < left ? p[2 * i + 1].bits : 0;
        v.w[i] = lo | hi << 16;
    }
    return v;
}
