// What the tensor-core kernels below 9.0's wgmma share: tiles of 64 k-elements in swizzled shared memory, how they are
// filled, and how fragments are taken out.
#pragma once
#include "matmul.cuh"

constexpr i32 BK = 64;  // 128 bytes: eight 16-byte pieces, one trip around the 32 banks.

// Where piece c of row r lies in a tile of 64 columns. The XOR spreads the eight rows that ldmatrix reads at once (same
// piece, neighbouring rows) over all banks; without it they would all meet in one.
WB_DEVICE i32 swizzled(i32 r, i32 c) { return r * BK + ((c ^ (r & 7)) * 8); }

// Copies ROWS x 64 elements of a row-major matrix into a tile; row_of(i) gives the address of the tile's row i, or null
// for a row of zeros. Columns at and beyond k become zeros.
template <class T, int ROWS, int THREADS, class RowOf>
WB_DEVICE void fill_tile(T* tile, i32 k0, i32 k, bool vec, RowOf row_of) {
#pragma unroll
    for (int i = 0; i < (ROWS * 8 + THREADS - 1) / THREADS; i++) {
        i32 piece = threadIdx.x + i * THREADS, r = piece / 8, c = piece % 8;
        if (ROWS * 8 % THREADS != 0 && piece >= ROWS * 8) break;
        const T* row = row_of(r);
        T* to = tile + swizzled(r, c);
        i32 left = row ? k - k0 - c * 8 : 0;
        if (vec)
            cp_async16(to, left > 0 ? row + k0 + c * 8 : row_of(0), left > 0);
        else
            st16(to, load8_any(row + k0 + c * 8, left));
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
