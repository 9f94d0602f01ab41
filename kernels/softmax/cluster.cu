// A row over the blocks of a cluster: what does not fit one block's registers fits eight. Each block tells the others
// its maximum and sum through distributed shared memory; the row is still read once.
//
// Rows longer than eight blocks' registers are read twice (`long`).
#include "exchange.cuh"

template <class T, int MASK, int FIT> WB_DEVICE void by_cluster(const Problem<T>& p) {
    __shared__ __align__(16) Exchange exchange;
    __shared__ Stat scratch[32];
    exchange.begin();
    i32 blocks = static_cast<i32>(cluster_size()), rank = static_cast<i32>(cluster_rank());
    Row<T, MASK, FIT> row(p, blockIdx.x / blocks);
    i32 threads = static_cast<i32>(blockDim.x);
    i32 first = rank * 4 * threads + static_cast<i32>(threadIdx.x);
    Part<T, MASK, FIT, 4> part;
    Stat all = exchange.combine(block_combine(part.take(row, first, threads), scratch));
    part.store(row, first, threads, all);
}

template <class T, int MASK, int FIT> WB_DEVICE void by_cluster_long(const Problem<T>& p) {
    __shared__ __align__(16) Exchange exchange;
    __shared__ Stat scratch[32];
    exchange.begin();
    i32 blocks = static_cast<i32>(cluster_size()), rank = static_cast<i32>(cluster_rank());
    Row<T, MASK, FIT> row(p, blockIdx.x / blocks);
    i32 threads = static_cast<i32>(blockDim.x), stride = 4 * threads * blocks, end = row.vectors();
    i32 first = rank * 4 * threads + static_cast<i32>(threadIdx.x);
    Stat own{WB_NEG_INF, 0.0f};
    for (i32 k = first; k < end; k += stride) {
        Part<T, MASK, FIT, 4> part;
        Stat s = part.take(row, k, threads);
        float max = fmaxf(own.max, s.max), reference = finite(max);
        own = Stat{max, own.sum * ex2(own.max - reference) + s.sum * ex2(s.max - reference)};
    }
    Stat all = exchange.combine(block_combine(own, scratch));
    for (i32 k = first; k < end; k += stride) {
        Part<T, MASK, FIT, 4> part;
        part.take(row, k, threads);
        part.store(row, k, threads, all);
    }
}

#define BY_CLUSTER(T, NAME, MASK, FIT, FUNCTION, THREADS)                                                                  \
    WB_KERNEL void __launch_bounds__(THREADS) softmax_cluster_##NAME(SOFTMAX_ARGS(T)) {                           \
        FUNCTION<T, MASK, FIT>(SOFTMAX_PROBLEM(T));                                                           \
    }                                                                                                             \
    WB_ENTRY(softmax_cluster_##NAME)
#define KERNELS(T, NAME, MASK)                                  \
    BY_CLUSTER(T, NAME##_aligned, MASK, FIT_ALIGNED, by_cluster, 1024) \
    BY_CLUSTER(T, NAME##_any, MASK, FIT_ANY, by_cluster, 1024)    \
    BY_CLUSTER(T, NAME##_any_long, MASK, FIT_ANY, by_cluster_long, 512)

SOFTMAX_ALL(KERNELS)
