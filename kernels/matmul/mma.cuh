// What the tensor-core kernels below 9.0's wgmma share: tiles of 64 k-elements in swizzled shared memory, how they are
// filled, and how fragments are taken out.
#pragma once
#include "matmul.cuh"

constexpr i32 BK = 64;  // 128 bytes: eight 16-byte pieces, one trip around the 32 banks.

// Where piece c of row r lies in a tile of 64 columns. The XOR spreads the eight rows that ldmatrix reads at once (same
// piece, neighbouring rows) over all banks; without it they would all meet in one.
WB_DEVICE i32 swizzled(i32 r, i32 c) { return r * BK + ((c ^ (r & 7)) * 8); }

// What a thread copies of a tile: piece threadIdx.x % 8 of every (THREADS / 8)th row from row threadIdx.x / 8 on.
template <class T> struct Share {
    const T* row;  // Its first row.
    i64 step;      // Elements from one of its rows to the next.
    i32 count;     // How many of its rows exist; the others are zeros.
};
template <class T, int THREADS> WB_DEVICE Share<T> share_of_x(const Args<T>& a, i32 row0) {
    constexpr i32 EVERY = THREADS / 8;
    i32 row = row0 + threadIdx.x / 8;
    return {a.x + static_cast<i64>(row) * a.k, static_cast<i64>(EVERY) * a.k, (a.m - row + EVERY - 1) / EVERY};
}
// With silu_mul eight gate rows alternate with their eight up rows, which puts both into one thread's accumulators.
template <class T, int THREADS> WB_DEVICE Share<T> share_of_w(const Args<T>& a, i32 col0) {
    static_assert(THREADS / 8 % 16 == 0, "a thread's rows are all gate rows or all up rows");
    const i32 r = threadIdx.x / 8, every = a.silu() ? THREADS / 16 : THREADS / 8;
    const i32 unit = a.silu() ? col0 + r / 16 * 8 + r % 8 : col0 + r;
    const i64 row = a.silu() && r % 16 >= 8 ? a.n / 2 + unit : unit;
    return {a.w + row * a.k, static_cast<i64>(every) * a.k, (a.cols() - unit + every - 1) / every};
}

// Copies ROWS x 64 elements of a row-major matrix into a tile. Columns at and beyond k become zeros. A step costs a thread
// one address: with a row's address computed for every piece, mma.sync waited for it half the time.
template <class T, int ROWS, int THREADS> WB_DEVICE void fill_tile(T* tile, i32 k0, i32 k, bool vec, const Share<T>& share) {
    const i32 r = threadIdx.x / 8, c = threadIdx.x % 8, left = k - k0 - c * 8;
    if (ROWS * 8 < THREADS && r >= ROWS) return;
    T* to = tile + swizzled(r, c);
    const T* from = share.row + k0 + c * 8;
    constexpr int N = (ROWS * 8 + THREADS - 1) / THREADS;
    const i32 count = left > 0 ? share.count : 0;
    if (vec) {
#pragma unroll
        for (int i = 0; i < N; i++, from += share.step) cp_async16(to + i * (THREADS / 8) * BK, from, i < count);
    } else {
        for (int i = 0; i < N; i++, from += share.step)
            st16(to + i * (THREADS / 8) * BK, i < count ? load8_any(from, left) : Vec16{});
    }
}

// The a fragment of rows r..r+15 and columns 16 kk..16 kk + 15.
template <class T> WB_DEVICE void load_a(u32 (&a)[4], const T* tile, i32 r, i32 kk) {
    ldmatrix_x4(a, tile + swizzled(r + lane_id() % 16, kk * 2 + lane_id() / 16));
}
// Two b fragments: tile rows r..r+7 and r+8..r+15 are the columns of b.
template <class T> WB_DEVICE void load_b(u32 (&b0)[2], u32 (&b1)[2], const T* tile, i32 r, i32 kk) {
    u32 v[4];
    ldmatrix_x4(v, tile + swizzled(r + lane_id() % 8 + lane_id() / 16 * 8, kk * 2 + lane_id() / 8 % 2));
    b0[0] = v[0], b0[1] = v[1], b1[0] = v[2], b1[1] = v[3];
}

// Numbers the output's tiles so that those in flight together share operands: down a group of 8 row-tiles, then on to
// the next column-tile.
WB_DEVICE void grouped_raster(i32 index, i32 tiles_m, i32 tiles_n, i32& tm, i32& tn) {
    constexpr i32 GROUP = 8;
    i32 per_group = GROUP * tiles_n, group = index / per_group, within = index % per_group;
    i32 rows = tiles_m - group * GROUP < GROUP ? tiles_m - group * GROUP : GROUP;
    tm = group * GROUP + within % rows;
    tn = within / rows;
}
