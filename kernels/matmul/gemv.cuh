// What the matrix-vector kernels share: x brought to shared memory (normalised on the way), the work of a warp, and the
// end of a group of rows.
//
// The work is an even split of the weight rows over all warps of the grid, contiguous per warp, so the whole chip is
// busy whatever n is: with 4096 rows and 132 x 8 warps each warp has 3 or 4. With silu_mul the unit is a pair of rows
// (gate j, up n/2 + j), so that one warp has both sums. A warp takes R rows at a time, sharing each read of x.
#pragma once
#include "matmul.cuh"

// Elements that a warp covers with one 16-byte load per lane.
constexpr i32 SEGMENT = 256;

// Which rows a warp multiplies. R rows are a group; `unit` counts output columns.
template <class T, int R> struct Rows {
    i32 begin, end, per_group;

    WB_DEVICE Rows(const Args<T>& a, i32 warp, i32 warps) {
        i32 units = a.cols();
        begin = static_cast<i32>(static_cast<i64>(units) * warp / warps);
        end = static_cast<i32>(static_cast<i64>(units) * (warp + 1) / warps);
        per_group = a.silu() ? R / 2 : R;
    }
    WB_DEVICE i32 groups() const { return (end - begin + per_group - 1) / per_group; }
    // Row j of the group that starts at unit u: its output column, and its row of w.
    WB_DEVICE i32 column(i32 u, int j) const { return j < per_group ? u + j : u + j - per_group; }
    WB_DEVICE bool valid(i32 u, int j) const { return column(u, j) < end; }
    WB_DEVICE const T* row(const Args<T>& a, i32 u, int j) const {
        i32 r = j < per_group ? u + j : a.n / 2 + u + j - per_group;
        return a.w + static_cast<i64>(r) * a.k;
    }
};

// The gain has no predecessor to wait for: called before pdl_wait. Only the thread that stores an element reads it.
template <class T> WB_DEVICE void stage_gain(const Args<T>& a, T* gain, i32 padded) {
    for (i32 e = threadIdx.x * 8; e < padded; e += blockDim.x * 8) cp_async16(gain + e, a.norm + e, e < a.k);
    cp_async_commit();
}

// x[M][padded] in shared memory, zero beyond k and beyond m. `part` is M * 32 floats; YOUNGER is how many cp.async
// groups the caller committed after the gain's. Ends with a block barrier.
template <class T, int M, int YOUNGER = 0>
WB_DEVICE void stage_x(const Args<T>& a, T* xs, const T* gain, i32 padded, float* part) {
    float squares[M] = {};
    // Several loads before the first store: their latencies overlap.
    constexpr int AHEAD = M <= 2 ? 4 / M : 1;
    const i32 stride = blockDim.x * 8;
    for (i32 first = threadIdx.x * 8; first < padded; first += AHEAD * stride) {
        Vec16 v[AHEAD][M];
#pragma unroll
        for (int t = 0; t < AHEAD; t++) {
            i32 e = first + t * stride;
#pragma unroll
            for (int i = 0; i < M; i++) {
                v[t][i] = Vec16{};
                if (i < a.m && e < a.k) v[t][i] = ld16(a.x + static_cast<i64>(i) * a.k + e);
            }
        }
#pragma unroll
        for (int t = 0; t < AHEAD; t++) {
            i32 e = first + t * stride;
            if (e >= padded) break;
#pragma unroll
            for (int i = 0; i < M; i++) {
                st16(xs + i * padded + e, v[t][i]);
                float f[8];
                unpack16<T>(v[t][i], f);
#pragma unroll
                for (int j = 0; j < 8; j++) squares[i] += f[j] * f[j];
            }
        }
    }
    if (a.pre) {
        u32 warps = blockDim.x >> 5;
#pragma unroll
        for (int i = 0; i < M; i++) {
            float s = warp_sum(squares[i]);
            if (lane_id() == 0) part[i * 32 + warp_id()] = s;
        }
        __syncthreads();
        float scale[M];
#pragma unroll
        for (int i = 0; i < M; i++) {
            float s = warp_sum(lane_id() < warps ? part[i * 32 + lane_id()] : 0.0f);
            scale[i] = rsqrtf(s / a.k + a.eps);
        }
        cp_async_wait<YOUNGER>();
        // Each thread rescales what it stored itself: no barrier between.
        for (i32 e = threadIdx.x * 8; e < padded; e += blockDim.x * 8) {
            float g[8], f[8];
            unpack16<T>(ld16(gain + e), g);
#pragma unroll
            for (int i = 0; i < M; i++) {
                if (i >= a.m) break;
                unpack16<T>(ld16(xs + i * padded + e), f);
#pragma unroll
                for (int j = 0; j < 8; j++) f[j] = f[j] * scale[i] * g[j];
                // 0 * inf would leak out of the padding.
                st16(xs + i * padded + e, e < a.k ? pack16<T>(f) : Vec16{});
            }
        }
    }
    __syncthreads();
}

// acc[i][j] += x_i . w_j over the 8 elements that this lane holds of a segment.
template <class T, int M, int R>
WB_DEVICE void segment_dot(float (&acc)[M][R], const Vec16 (&w)[R], const T* xs, i32 padded) {
    float wf[R][8];
#pragma unroll
    for (int j = 0; j < R; j++) unpack16<T>(w[j], wf[j]);
#pragma unroll
    for (int i = 0; i < M; i++) {
        float xf[8];
        unpack16<T>(ld16(xs + i * padded), xf);
#pragma unroll
        for (int e = 0; e < 8; e++)
#pragma unroll
            for (int j = 0; j < R; j++) acc[i][j] += xf[e] * wf[j][e];
    }
}

// The residual that this lane will add at the end of group u; loaded early, its latency hides under the products.
template <class T, int M, int R> WB_DEVICE float group_residual(const Args<T>& a, const Rows<T, R>& rows, i32 u) {
    i32 i = lane_id() / R, j = lane_id() % R;
    bool mine = a.post == POST_RESIDUAL && i < a.m && i < M && rows.valid(u, j);
    return mine ? a.load_residual(i, u + j) : 0.0f;
}

// Adds up the lanes' sums and stores the group's outputs: lane i * R + j has output (i, u + j).
template <class T, int M, int R>
WB_DEVICE void finish_group(const Args<T>& a, const Rows<T, R>& rows, i32 u, float (&acc)[M][R], float residual) {
    static_assert(M * R <= 32, "one lane stores one output");
    const i32 lane = lane_id();
    float mine = 0.0f;
#pragma unroll
    for (int i = 0; i < M; i++) {
#pragma unroll
        for (int j = 0; j < R; j++) {
            acc[i][j] = warp_sum(acc[i][j]);
        }
        if constexpr (R >= 2) {
            if (a.silu()) {
#pragma unroll
                for (int j = 0; j < R / 2; j++) acc[i][j] = silu_mul(acc[i][j], acc[i][j + R / 2]);
            }
        }
#pragma unroll
        for (int j = 0; j < R; j++) {
            if (lane == i * R + j) mine = acc[i][j];
            acc[i][j] = 0.0f;
        }
    }
    i32 i = lane_id() / R, j = lane_id() % R;
    if (i < a.m && i < M && j < rows.per_group && rows.valid(u, j)) a.store(i, u + j, mine + residual);
}

// Rows that do not begin on 16 bytes: a warp per unit, element by element, x from global memory. Correct, not fast.
template <class T, int M> WB_DEVICE void gemv_unaligned(const Args<T>& a, i32 warp, i32 warps) {
    pdl_wait();
    float scale[M];
#pragma unroll
    for (int i = 0; i < M; i++) {
        float s = 0.0f;
        if (a.pre && i < a.m)
            for (i32 e = lane_id(); e < a.k; e += 32) {
                float v = to_float(a.x[static_cast<i64>(i) * a.k + e]);
                s += v * v;
            }
        scale[i] = a.pre ? rsqrtf(warp_sum(s) / a.k + a.eps) : 1.0f;
    }
    Rows<T, 2> rows(a, warp, warps);
    for (i32 u = rows.begin; u < rows.end; u += rows.per_group) {
        float residual = group_residual<T, M, 2>(a, rows, u);
        float acc[M][2] = {};
        const T* w0 = rows.row(a, u, 0);
        const T* w1 = rows.valid(u, 1) ? rows.row(a, u, 1) : w0;
        for (i32 e = lane_id(); e < a.k; e += 32) {
            float gain = a.pre ? to_float(a.norm[e]) : 1.0f, f0 = to_float(w0[e]), f1 = to_float(w1[e]);
#pragma unroll
            for (int i = 0; i < M; i++) {
                if (i >= a.m) break;
                float v = to_float(a.x[static_cast<i64>(i) * a.k + e]) * scale[i] * gain;
                acc[i][0] += v * f0;
                acc[i][1] += v * f1;
            }
        }
        finish_group<T, M, 2>(a, rows, u, acc, residual);
    }
}
