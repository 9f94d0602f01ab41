// Softmax as its definition reads: maximum, sum, quotient, each a pass over the row in global memory, one element a
// thread and step. The baseline of the ladder.
#include "row.cuh"

template <class T, int MASK> WB_DEVICE float score(const Problem<T>& p, const Row<T, MASK, FIT_ANY>& row, i32 c) {
    if (c >= row.limit) return WB_NEG_INF;
    // Written as one rounding, so that no compiler fuses the product with `- max`: at the end of fp32's range the unrounded
    // product and the rounded maximum differ by more than the exponent can hold.
    float t = fmaf(to_float(row.x[c]), p.scale2, 0.0f);
    if (MASK == MASK_BOOL && static_cast<const u8*>(p.mask)[row.mask + c] == 0) return WB_NEG_INF;
    if (MASK == MASK_ADD) t += to_float(static_cast<const T*>(p.mask)[row.mask + c]) * LOG2E;
    return t;
}

template <class T, int MASK> WB_DEVICE void three_pass(const Problem<T>& p) {
    __shared__ float scratch[2][32];
    Row<T, MASK, FIT_ANY> row(p, blockIdx.x);
    float max = WB_NEG_INF;
    for (i32 c = static_cast<i32>(threadIdx.x); c < p.cols; c += blockDim.x) max = fmaxf(max, score(p, row, c));
    max = finite(block_max(max, scratch[0]));
    float sum = 0.0f;
    for (i32 c = static_cast<i32>(threadIdx.x); c < p.cols; c += blockDim.x) sum += ex2(score(p, row, c) - max);
    sum = block_sum(sum, scratch[1]);
    float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (i32 c = static_cast<i32>(threadIdx.x); c < p.cols; c += blockDim.x) {
        bool masked = c >= row.limit;
        row.out[c] = from_float<T>(masked ? 0.0f : ex2(score(p, row, c) - max) * scale);
    }
}

#define KERNELS(T, NAME, MASK)                                                                                    \
    WB_KERNEL void __launch_bounds__(256) softmax_three_pass_##NAME(SOFTMAX_ARGS(T)) {                       \
        three_pass<T, MASK>(SOFTMAX_PROBLEM(T));                                                                  \
    }                                                                                                             \
    WB_ENTRY(softmax_three_pass_##NAME)

SOFTMAX_ALL(KERNELS)
