// Step 2: 8 x 8 outputs per thread. A tile in shared memory is limited by shared memory itself; a second tile, in
// registers, reuses each value eight times: 16 values read for 64 multiplications, and the fp32 units become the bound.
// 128 x 128 outputs per block of 256 threads, 16 of k at a time, the next 16 on their way while these are multiplied.
#include "matmul.cuh"

constexpr i32 TILE = 128, STEP = 16, ROW = TILE + 4;

template <class T> WB_DEVICE void register_matmul(const Args<T>& a) {
    // k-major, so that a thread's four neighbouring rows are one 16-byte read.
    __shared__ __align__(16) float xs[STEP][ROW], ws[STEP][ROW];
    pdl_launch();
    pdl_wait();
    const i32 tid = threadIdx.x, row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
    // Each thread brings eight elements of one row of each operand.
    const i32 r = tid / 2, c = tid % 2 * 8;
    auto load = [&](const T* base, i32 row, i32 rows, i32 k0) {
        i32 left = row < rows ? a.k - k0 - c : 0;
        const T* p = base + static_cast<i64>(row) * a.k + k0 + c;
        if (a.vec) return left > 0 ? ld16(p) : Vec16{};
        return load8_any(p, left);
    };
    // Rows and columns of the 8 x 8: four at 4 t, four at 64 + 4 t, so that a warp reads without bank conflicts.
    const i32 ty = tid / 16 * 4, tx = tid % 16 * 4;
    float acc[8][8] = {};
    Vec16 next_x = load(a.x, row0 + r, a.m, 0), next_w = load(a.w, col0 + r, a.n, 0);
    for (i32 k0 = 0; k0 < a.k; k0 += STEP) {
        float xf[8], wf[8];
        unpack16<T>(next_x, xf);
        unpack16<T>(next_w, wf);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) xs[c + i][r] = xf[i], ws[c + i][r] = wf[i];
        __syncthreads();
        if (k0 + STEP < a.k) {
            next_x = load(a.x, row0 + r, a.m, k0 + STEP);
            next_w = load(a.w, col0 + r, a.n, k0 + STEP);
        }
#pragma unroll
        for (int k = 0; k < STEP; k++) {
            float xr[8], wr[8];
            unpack16<float>(ld16(&xs[k][ty]), xr);
            unpack16<float>(ld16(&xs[k][ty + 64]), xr + 4);
            unpack16<float>(ld16(&ws[k][tx]), wr);
            unpack16<float>(ld16(&ws[k][tx + 64]), wr + 4);
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) acc[i][j] += xr[i] * wr[j];
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            i32 row = row0 + ty + i % 4 + i / 4 * 64, col = col0 + tx + j % 4 + j / 4 * 64;
            if (row < a.m && col < a.n) a.finish(row, col, acc[i][j]);
        }
}

#define REGISTER_MATMUL(T)                                                                                             \
    WB_KERNEL void __launch_bounds__(256) matmul_register_##T(MATMUL_PARAMS(T)) { register_matmul(MATMUL_ARGS(T)); }   \
    WB_ENTRY(matmul_register_##T)
REGISTER_MATMUL(bf16)
REGISTER_MATMUL(f16)
