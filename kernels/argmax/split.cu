// A row over gridDim.x blocks. Each adds its best key to the row's by an atomic integer maximum, whose result does not
// depend on the order; the last block to arrive writes the answer and leaves the workspace zeroed for the next run.
#include "key.cuh"

// One for each row, zero between runs.
struct Slot {
    u64 best;
    u32 arrived, unused;
};

template <class T> WB_DEVICE void split(const T* logits, i32* out, i32 v, Slot* slots) {
    __shared__ u64 scratch[32];
    pdl_launch();
    pdl_wait();
    constexpr i32 N = Lanes<T>::n;
    const T* row = logits + static_cast<i64>(blockIdx.y) * v;
    i64 first = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    u64 best = scan<T>(row, v, first, static_cast<i64>(gridDim.x) * blockDim.x * N);
    best = block_largest(best, scratch);
    if (threadIdx.x != 0) return;
    Slot* slot = slots + blockIdx.y;
    atomicMax(&slot->best, best);
    // Release our maximum, acquire the others'.
    if (atomic_add_acq_rel(&slot->arrived, 1) != gridDim.x - 1) return;
    out[blockIdx.y] = index_of(atomicExch(&slot->best, 0ull));
    slot->arrived = 0;
}

#define ARGMAX(T, NAME)                                                                                           \
    WB_KERNEL void __launch_bounds__(256) argmax_split_##NAME(const T* logits, i32* out, i32 v, Slot* slots) {    \
        split<T>(logits, out, v, slots);                                                                          \
    }                                                                                                             \
    WB_ENTRY(argmax_split_##NAME)

ARGMAX(float, f32)
ARGMAX(bf16, bf16)
ARGMAX(f16, f16)
