// What a framework runs before a softmax: scale, then add a mask, each a pass over the whole array with its result rounded
// to the element type; or both in one pass, as a compiler of elementwise operations fuses them. benches/softmax_fusion.rs
// times them against the one-pass kernel.
#include "../common/wb.cuh"

constexpr int PER = 8;  // elements of a 16-byte vector

// y[i] = x[i] * scale. Arrays are 16-byte aligned; n is any number.
template <class T> WB_DEVICE void scale_all(const T* x, T* y, i64 n, float scale) {
    const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 v = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; v * PER < n; v += step) {
        if (v * PER + PER <= n) {
            float e[PER];
            unpack16<T>(ld16_stream(x + v * PER), e);
#pragma unroll
            for (int j = 0; j < PER; j++) e[j] *= scale;
            st16(y + v * PER, pack16<T>(e));
        } else {
#pragma unroll 1
            for (i64 i = v * PER; i < n; i++) y[i] = from_float<T>(to_float(x[i]) * scale);
        }
    }
}

// y[i] = x[i] * scale + mask[i % period]; a period that is a multiple of PER goes by vectors. x and y may be one array.
template <class T> WB_DEVICE void add_mask_all(const T* x, const T* mask, T* y, i64 n, i64 period, float scale) {
    const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 v = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; v * PER < n; v += step) {
        if (v * PER + PER <= n && period % PER == 0) {
            float e[PER], m[PER];
            unpack16<T>(ld16_stream(x + v * PER), e);
            unpack16<T>(ld16(mask + v * PER % period), m);
#pragma unroll
            for (int j = 0; j < PER; j++) e[j] = e[j] * scale + m[j];
            st16(y + v * PER, pack16<T>(e));
        } else {
#pragma unroll 1
            for (i64 i = v * PER; i < n && i < v * PER + PER; i++)
                y[i] = from_float<T>(to_float(x[i]) * scale + to_float(mask[i % period]));
        }
    }
}

#define WB_UNFUSED(T)                                                                                                \
    WB_KERNEL void unfused_scale_##T(const T* x, T* y, i64 n, float scale) { scale_all<T>(x, y, n, scale); }          \
    WB_ENTRY(unfused_scale_##T)                                                                                       \
    WB_KERNEL void unfused_add_mask_##T(const T* x, const T* mask, T* y, i64 n, i64 period) {                         \
        add_mask_all<T>(x, mask, y, n, period, 1.0f);                                                                 \
    }                                                                                                                 \
    WB_ENTRY(unfused_add_mask_##T)                                                                                    \
    WB_KERNEL void unfused_scale_add_mask_##T(const T* x, const T* mask, T* y, i64 n, i64 period, float scale) {      \
        add_mask_all<T>(x, mask, y, n, period, scale);                                                                \
    }                                                                                                                 \
    WB_ENTRY(unfused_scale_add_mask_##T)

WB_UNFUSED(bf16)
WB_UNFUSED(f16)
