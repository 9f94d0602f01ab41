// The online form: one pass finds maximum and sum together, rescaling the sum whenever the maximum grows; a second
// read writes the result. Two reads and a write instead of three and one, rows of any length, any 8.0 chip.
#include "row.cuh"

template <class T, int MASK> WB_DEVICE void online(const Problem<T>& p) {
    __shared__ Stat scratch[32];
    Row<T, MASK, FIT_ANY> row(p, blockIdx.x);
    i32 threads = static_cast<i32>(blockDim.x), end = row.vectors();
    Stat own{WB_NEG_INF, 0.0f};
    for (i32 k = static_cast<i32>(threadIdx.x); k < end; k += 2 * threads) {
        Part<T, MASK, FIT_ANY, 2> part;
        Stat s = part.take(row, k, threads);
        float max = fmaxf(own.max, s.max), reference = finite(max);
        own = Stat{max, own.sum * ex2(own.max - reference) + s.sum * ex2(s.max - reference)};
    }
    Stat all = block_combine(own, scratch);
    // Backwards: what was read last is the likeliest to be in cache still.
    i32 steps = (end - static_cast<i32>(threadIdx.x) + 2 * threads - 1) / (2 * threads);
    for (i32 s = steps - 1; s >= 0; s--) {
        i32 k = static_cast<i32>(threadIdx.x) + s * 2 * threads;
        Part<T, MASK, FIT_ANY, 2> part;
        part.take(row, k, threads);
        part.store(row, k, threads, all);
    }
}

#define KERNELS(T, NAME, MASK)                                                                                    \
    WB_KERNEL void __launch_bounds__(512) softmax_online_##NAME(SOFTMAX_ARGS(T)) {                           \
        online<T, MASK>(SOFTMAX_PROBLEM(T));                                                                      \
    }                                                                                                             \
    WB_ENTRY(softmax_online_##NAME)

SOFTMAX_ALL(KERNELS)
