// Copies table rows by token id. The ids come from the step before (argmax), so nothing can be read ahead of pdl_wait.
#include "../common/wb.cuh"

template <class T> WB_DEVICE void gather(const i32* ids, const T* table, T* out, i32 v, i32 k) {
    pdl_launch();
    pdl_wait();
    constexpr i32 N = Lanes<T>::n;
    i64 row = blockIdx.x;
    i32 id = ids[row];
    bool inside = id >= 0 && id < v;
    const T* from = table + static_cast<i64>(inside ? id : 0) * k;
    T* to = out + row * k;
    i32 at = static_cast<i32>(blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (at >= k) return;
    if (k % N == 0) {
        Vec16 value = ld16_nc(from + at);
        if (!inside) value = Vec16{{~0u, ~0u, ~0u, ~0u}};
        st16(to + at, value);
    } else {
        i32 end = min(at + N, k);
        for (i32 i = at; i < end; i++) to[i] = inside ? from[i] : from_float<T>(WB_NAN);
    }
}

#define GATHER(T, NAME)                                                                                           \
    WB_KERNEL void __launch_bounds__(128)                                                                         \
        embed_gather_##NAME(const i32* ids, const T* table, T* out, i32 v, i32 k) {                               \
        gather<T>(ids, table, out, v, k);                                                                         \
    }                                                                                                             \
    WB_ENTRY(embed_gather_##NAME)

GATHER(bf16, bf16)
GATHER(f16, f16)
GATHER(float, f32)
