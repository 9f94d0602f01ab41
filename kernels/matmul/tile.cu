// Step 1: a 32 x 32 tile of the output per block, operands through shared memory. Each element now comes from memory once
// per tile instead of once per output: 32 times less traffic. What remains is shared memory: two reads for every
// multiplication.
#include "matmul.cuh"

constexpr i32 TILE = 32;

template <class T> WB_DEVICE void tile_matmul(const Args<T>& a) {
    // One column of padding: the rows that a warp reads at once lie in different banks.
    __shared__ float xs[TILE][TILE + 1], ws[TILE][TILE + 1];
    pdl_launch();
    pdl_wait();
    const i32 tx = threadIdx.x, ty = threadIdx.y, col0 = blockIdx.x * TILE;
    for (i32 row0 = blockIdx.y * TILE; row0 < a.m; row0 += gridDim.y * TILE) {
        float sum = 0.0f;
        for (i32 k0 = 0; k0 < a.k; k0 += TILE) {
            bool k_in = k0 + tx < a.k, row_in = row0 + ty < a.m, col_in = col0 + ty < a.n;
            xs[ty][tx] = k_in && row_in ? to_float(a.x[static_cast<i64>(row0 + ty) * a.k + k0 + tx]) : 0.0f;
            ws[ty][tx] = k_in && col_in ? to_float(a.w[static_cast<i64>(col0 + ty) * a.k + k0 + tx]) : 0.0f;
            __syncthreads();
#pragma unroll
            for (int i = 0; i < TILE; i++) sum += xs[ty][i] * ws[tx][i];
            __syncthreads();
        }
        if (row0 + ty < a.m && col0 + tx < a.n) a.finish(row0 + ty, col0 + tx, sum);
    }
}

#define TILE_MATMUL(T)                                                                                                 \
    WB_KERNEL void __launch_bounds__(TILE* TILE) matmul_tile_##T(MATMUL_PARAMS(T)) { tile_matmul(MATMUL_ARGS(T)); }    \
    WB_ENTRY(matmul_tile_##T)
TILE_MATMUL(bf16)
TILE_MATMUL(f16)
