// Tensor cores by mma.sync, the flagship below 9.0: BM x BN tiles of the output, operands by cp.async through a ring of
// swizzled stages, fragments by ldmatrix one k-step ahead of the mma that uses them, tiles rastered in groups so that
// L2 serves the operands. A warp's 64 x 64 tile reads 2 * 64 * 16 elements of shared memory for 64 * 64 * 16 products:
// the larger the warp's tile, the less shared memory has to deliver per product.
#include "mma.cuh"

// WM x WN warps; each computes (BM / WM) x (BN / WN).
template <class T, int BM, int BN, int WM, int WN, int STAGES> WB_DEVICE void mma_matmul(const Args<T>& a) {
    constexpr int THREADS = WM * WN * 32, TM = BM / WM, TN = BN / WN, MT = TM / 16, NT = TN / 8;
    static_assert(NT % 2 == 0, "b fragments come in twos, gate and up tiles too");
    WB_DYN_SHARED(T, shared);
    pdl_launch();

    const i32 cols = a.cols();
    const i32 tile_cols = a.silu() ? BN / 2 : BN;
    i32 tm, tn;
    grouped_raster(blockIdx.x, (a.m + BM - 1) / BM, (cols + tile_cols - 1) / tile_cols, tm, tn);
    const i32 row0 = tm * BM, col0 = tn * tile_cols;

    const Share<T> x_share = share_of_x<T, THREADS>(a, row0), w_share = share_of_w<T, THREADS>(a, col0);
    constexpr i32 stage_elements = (BM + BN) * BK;
    const i32 steps = (a.k + BK - 1) / BK;
    auto fill_x = [&](i32 step) {
        if (step < steps)
            fill_tile<T, BM, THREADS>(shared + step % STAGES * stage_elements, step * BK, a.k, a.vec, x_share);
    };
    auto fill_w = [&](i32 step) {
        if (step < steps)
            fill_tile<T, BN, THREADS>(shared + step % STAGES * stage_elements + BM * BK, step * BK, a.k, a.vec, w_share);
    };
    // Weights before the wait; x belongs to the kernel before.
    for (i32 s = 0; s < STAGES - 1; s++) fill_w(s);
    pdl_wait();
    for (i32 s = 0; s < STAGES - 1; s++) {
        fill_x(s);
        cp_async_commit();
    }

    const i32 wm = warp_id() / WN * TM, wn = warp_id() % WN * TN;
    float acc[MT][NT][4] = {};
    u32 af[2][MT][4], bf[2][NT][2];
    auto load_fragments = [&](const T* stage, i32 kk) {
#pragma unroll
        for (int i = 0; i < MT; i++) load_a(af[kk % 2][i], stage, wm + i * 16, kk);
#pragma unroll
        for (int j = 0; j < NT; j += 2) load_b(bf[kk % 2][j], bf[kk % 2][j + 1], stage + BM * BK, wn + j * 8, kk);
    };
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    load_fragments(shared, 0);
    for (i32 step = 0; step < steps; step++) {
        const T* stage = shared + step % STAGES * stage_elements;
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) {
            // Fragments are one k-step ahead, across stages too: the barrier stands before the last products of a stage,
            // and behind it the stage before that one is free.
            if (kk + 1 < BK / 16) {
                load_fragments(stage, kk + 1);
            } else {
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                load_fragments(shared + (step + 1) % STAGES * stage_elements, 0);
            }
            // Copies between products: the instructions are issued in the order that is written here.
            if (kk == 0) fill_x(step + STAGES - 1);
            if (kk == 1) fill_w(step + STAGES - 1);
            if (kk == 1) cp_async_commit();
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) mma_m16n8k16<T>(acc[i][j], af[kk % 2][i], bf[kk % 2][j]);
        }
    }
    cp_async_wait<0>();

    // Accumulator e of a 16 x 8 fragment: row lane / 4 (+ 8 for e >= 2), column 2 (lane % 4) + e % 2.
    const bool pairs = a.pairs();
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            i32 row = row0 + wm + i * 16 + lane_id() / 4 + h * 8;
            if (row >= a.m) continue;
#pragma unroll
            for (int j = 0; j < NT; j++) {
                i32 c = wn + j * 8 + lane_id() % 4 * 2;
                if (pairs) {
                    i64 at = static_cast<i64>(row) * cols + col0 + c;
                    if (col0 + c < cols)
                        *reinterpret_cast<u32*>(static_cast<T*>(a.out) + at) =
                            pack2<T>(acc[i][j][h * 2], acc[i][j][h * 2 + 1]);
                    continue;
                }
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float v = acc[i][j][h * 2 + e];
                    if (a.silu()) {
                        if (j % 2) continue;
                        i32 col = col0 + c / 16 * 8 + c % 8 + e;
                        if (col < cols) a.store(row, col, silu_mul(v, acc[i][j + 1 < NT ? j + 1 : j][h * 2 + e]));
                    } else if (col0 + c + e < cols) {
                        a.finish(row, col0 + c + e, v);
                    }
                }
            }
        }
}

// Entry names carry the configuration; choose.rs has the same table.
#define MMA(T, BM, BN, WM, WN, S)                                                                                      \
    WB_KERNEL void __launch_bounds__(WM* WN * 32) matmul_mma_##T##_##BM##x##BN##_s##S(MATMUL_PARAMS(T)) {              \
        mma_matmul<T, BM, BN, WM, WN, S>(MATMUL_ARGS(T));                                                              \
    }                                                                                                                  \
    WB_ENTRY(matmul_mma_##T##_##BM##x##BN##_s##S)

#define MMA_ALL(T)                                                                                                     \
    MMA(T, 128, 256, 2, 4, 4)                                                                                          \
    MMA(T, 128, 256, 2, 4, 3)                                                                                          \
    MMA(T, 128, 128, 2, 4, 3)                                                                                          \
    MMA(T, 64, 128, 2, 2, 4)                                                                                           \
    MMA(T, 64, 64, 2, 2, 4)
MMA_ALL(bf16)
MMA_ALL(f16)
