// One block for each row.
#include "key.cuh"

template <class T> WB_DEVICE void block(const T* logits, i32* out, i32 v) {
    __shared__ u64 scratch[32];
    pdl_launch();
    pdl_wait();
    constexpr i32 N = Lanes<T>::n;
    const T* row = logits + static_cast<i64>(blockIdx.y) * v;
    u64 best = scan<T>(row, v, static_cast<i64>(threadIdx.x) * N, static_cast<i64>(blockDim.x) * N);
    best = block_largest(best, scratch);
    if (threadIdx.x == 0) out[blockIdx.y] = index_of(best);
}

#define ARGMAX(T, NAME)                                                                                           \
    WB_KERNEL void __launch_bounds__(1024) argmax_block_##NAME(const T* logits, i32* out, i32 v) {                \
        block<T>(logits, out, v);                                                                                 \
    }                                                                                                             \
    WB_ENTRY(argmax_block_##NAME)

ARGMAX(float, f32)
ARGMAX(bf16, bf16)
ARGMAX(f16, f16)
