// One row of the problem, seen as 16-byte vectors on the memory's own 16-byte grid. A row of odd width may begin and
// end inside a vector; only those two need care, so a misaligned row is as fast as an aligned one in its middle.
//
// Scores are kept in base 2: t = (x * scale + mask) * log2(e), so the exponential is one instruction.
#pragma once

#include "../common/ptx_once.cuh"

// Which scores take part. NONE: all. CAUSAL: columns below the row's limit. BOOL: mask byte is not zero. ADD: mask is
// added.
#define MASK_NONE 0
#define MASK_CAUSAL 1
#define MASK_BOOL 2
#define MASK_ADD 3
#define LOG2E 1.4426950408889634f
#define HAS_MASK(MASK) ((MASK) == MASK_BOOL || (MASK) == MASK_ADD)

// What is known of the rows. ANY: nothing. ALIGNED: all rows of x, out and mask begin on a 16-byte boundary and are whole vectors,
// so no vector is partial. FULL: and the threads that share a row have as many vectors as there are, so none is idle.
#define FIT_ANY 0
#define FIT_ALIGNED 1
#define FIT_FULL 2

// What every kernel takes. `scale2` is scale * log2(e). `mask_rows`: row r has mask row r % mask_rows, or under CAUSAL is
// that query, the last of which sees all columns.
template <class T> struct Problem {
    const T* x;
    T* out;
    const void* mask;
    i64 rows;
    i32 cols, mask_rows;
    float scale2;
};

// The maximum of scores and the sum of 2^(score - maximum): what two parts of a row know of each other.
struct Stat {
    float max, sum;
};

// A row of nothing but -inf has no reference point; 0 will do, its terms are 2^-inf = 0 all the same.
WB_DEVICE float finite(float max) { return max == WB_NEG_INF ? 0.0f : max; }

template <int LANES> WB_DEVICE Stat warp_combine(Stat s) {
    float all = warp_max<LANES>(s.max);
    return Stat{all, warp_sum<LANES>(s.sum * ex2(s.max - finite(all)))};
}
// One barrier: every warp combines all warps' statistics itself. `scratch` is 32 of shared memory.
WB_DEVICE Stat block_combine(Stat s, Stat* scratch) {
    s = warp_combine<32>(s);
    u32 warps = blockDim.x >> 5;
    if (warps == 1) return s;
    if (lane_id() == 0) scratch[warp_id()] = s;
    __syncthreads();
    return warp_combine<32>(lane_id() < warps ? scratch[lane_id()] : Stat{WB_NEG_INF, 0.0f});
}
// What to multiply a thread's 2^(t - own maximum) by. A fully masked row has sum 0 and gives zeros; NaN stays NaN.
WB_DEVICE float factor(float own, Stat all) {
    return ex2(own - finite(all.max)) * (all.sum == 0.0f ? 0.0f : rcp(all.sum));
}

template <class T, int MASK, int FIT> struct Row {
    static constexpr i32 N = Lanes<T>::n;
    static constexpr bool ALIGNED = FIT >= FIT_ALIGNED;
    const Problem<T>& p;
    const T* x;
    T* out;
    i64 mask;    // first element of the mask's row
    i32 shift;   // elements of the first vector that lie before the row
    i32 limit;   // columns from here on are masked
    bool mask_vectors;

    WB_DEVICE Row(const Problem<T>& p, i64 row) : p(p), mask(0), limit(p.cols), mask_vectors(false) {
        i64 first = row * p.cols;
        x = p.x + first;
        out = p.out + first;
        shift = ALIGNED ? 0 : static_cast<i32>((reinterpret_cast<u64>(x) & 15u) / sizeof(T));
        if (MASK == MASK_NONE) return;
        // Rows are fewer than 2^31 (the grid's limit), and a 32-bit remainder is several times cheaper than a 64-bit one.
        u32 query = static_cast<u32>(row) % static_cast<u32>(p.mask_rows);
        if (MASK == MASK_CAUSAL) {
            i64 seen = static_cast<i64>(query) + 1 + p.cols - p.mask_rows;
            limit = static_cast<i32>(seen < 0 ? 0 : seen);
        } else {
            mask = static_cast<i64>(query) * p.cols;
            mask_vectors = ALIGNED || static_cast<i32>(mask % N) == shift;
        }
    }
    // Vectors that hold a part of the row.
    WB_DEVICE i32 vectors() const { return (shift + p.cols + N - 1) / N; }
    // Column of a vector's first element; negative in the first vector of a misaligned row.
    WB_DEVICE i32 column(i32 vector) const { return vector * N - shift; }
    WB_DEVICE bool whole(i32 c) const { return ALIGNED || (c >= 0 && c + N <= p.cols); }
    WB_DEVICE bool inside(i32 vector, i32 end) const { return FIT == FIT_FULL || vector < end; }
    // Whether a vector has something to read: not where all of its columns are hidden.
    WB_DEVICE bool live(i32 vector, i32 end) const {
        return inside(vector, end) && (MASK != MASK_CAUSAL || column(vector) < limit);
    }

    // The vector's bytes, those of neighbouring rows included where they exist. L1 is left to the mask where there is one.
    WB_DEVICE Vec16 load(i32 c) const {
        const T* at = x + c;
        if (whole(c) || (at >= p.x && at + N <= p.x + p.rows * p.cols)) return HAS_MASK(MASK) ? ld16_once(at) : ld16(at);
        Vec16 v{{0, 0, 0, 0}};
        T* parts = reinterpret_cast<T*>(&v);
#pragma unroll
        for (i32 i = 0; i < N; i++) {
            if (c + i >= 0 && c + i < p.cols) parts[i] = at[i];
        }
        return v;
    }
    // The mask's N elements for a vector: bytes for BOOL (in two words), T for ADD.
    WB_DEVICE Vec16 load_mask(i32 c) const {
        Vec16 v{{0, 0, 0, 0}};
        if (MASK == MASK_BOOL) {
            const u8* at = static_cast<const u8*>(p.mask) + mask + c;
            if (whole(c) && mask_vectors) {
                const u32* words = reinterpret_cast<const u32*>(at);
#pragma unroll
                for (i32 i = 0; i < N / 4; i++) v.w[i] = words[i];
            } else {
#pragma unroll
                for (i32 i = 0; i < N; i++) {
                    if (c + i >= 0 && c + i < p.cols) v.w[i / 4] |= static_cast<u32>(at[i]) << (8 * (i % 4));
                }
            }
        } else if (MASK == MASK_ADD) {
            const T* at = static_cast<const T*>(p.mask) + mask + c;
            if (whole(c) && mask_vectors) return ld16(at);
            T* parts = reinterpret_cast<T*>(&v);
#pragma unroll
            for (i32 i = 0; i < N; i++) {
                if (c + i >= 0 && c + i < p.cols) parts[i] = at[i];
            }
        }
        return v;
    }
    // Scores of a loaded vector; -inf for what is masked or outside the row. A vector that is not live was loaded as zeros
    // and gets -inf through the multiply-add itself: no branch, so the compiler has no cause to delay another load.
    WB_DEVICE void scores(i32 c, bool live, const Vec16& v, const Vec16& m, float* t) const {
        float scale = live ? p.scale2 : 0.0f, offset = live ? 0.0f : WB_NEG_INF;
        unpack16<T>(v, t);
        float a[N];
        if (MASK == MASK_ADD) unpack16<T>(m, a);
#pragma unroll
        for (i32 i = 0; i < N; i++) {
            t[i] = t[i] * scale + (MASK == MASK_ADD ? a[i] * LOG2E + offset : offset);
            if (MASK == MASK_BOOL && ((m.w[i / 4] >> (8 * (i % 4))) & 0xffu) == 0) t[i] = WB_NEG_INF;
        }
        if (partial(c)) {
#pragma unroll
            for (i32 i = 0; i < N; i++) {
                if ((!ALIGNED && c + i < 0) || c + i >= limit) t[i] = WB_NEG_INF;
            }
        }
    }
    // Whether only some of a vector's columns are seen.
    WB_DEVICE bool partial(i32 c) const {
        if (ALIGNED && MASK != MASK_CAUSAL) return false;
        return (!ALIGNED && c < 0) || c + N > limit;
    }
    // `stream`: the lines are the first that L2 gives up.
    WB_DEVICE void store(i32 c, const float* y, bool stream = false) const {
        if (whole(c)) {
            stream ? st16_stream(out + c, pack16<T>(y)) : st16(out + c, pack16<T>(y));
            return;
        }
#pragma unroll
        for (i32 i = 0; i < N; i++) {
            if (c + i >= 0 && c + i < p.cols) out[c + i] = from_float<T>(y[i]);
        }
    }
    WB_DEVICE void store_zero(i32 c) const {
        float zero[N];
#pragma unroll
        for (i32 i = 0; i < N; i++) zero[i] = 0.0f;
        store(c, zero);
    }
};

// The part of a row that one thread keeps in registers: V vectors, `step` apart.
template <class T, int MASK, int FIT, int V> struct Part {
    static constexpr i32 N = Lanes<T>::n;
    Vec16 v[V], m[V];
    float t[V * N];
    float max;

    // Issues all loads.
    WB_DEVICE void issue(const Row<T, MASK, FIT>& row, i32 first, i32 step) {
        i32 end = row.vectors();
#pragma unroll
        for (i32 j = 0; j < V; j++) {
            i32 k = first + j * step, c = row.column(k);
            v[j] = m[j] = Vec16{{0, 0, 0, 0}};
            if (row.live(k, end)) {
                v[j] = row.load(c);
                if (HAS_MASK(MASK)) m[j] = row.load_mask(c);
            }
        }
    }
    // Turns what was loaded into scores relative to the own maximum, and those into 2^score.
    WB_DEVICE Stat digest(const Row<T, MASK, FIT>& row, i32 first, i32 step) {
        i32 end = row.vectors();
        max = WB_NEG_INF;
#pragma unroll
        for (i32 j = 0; j < V; j++) {
            i32 k = first + j * step;
            row.scores(row.column(k), row.live(k, end), v[j], m[j], t + j * N);
#pragma unroll
            for (i32 i = 0; i < N; i++) max = fmaxf(max, t[j * N + i]);
        }
        float reference = finite(max), sum = 0.0f;
#pragma unroll
        for (i32 i = 0; i < V * N; i++) {
            t[i] = ex2(t[i] - reference);
            sum += t[i];
        }
        return Stat{max, sum};
    }
    WB_DEVICE Stat take(const Row<T, MASK, FIT>& row, i32 first, i32 step) {
        issue(row, first, step);
        return digest(row, first, step);
    }
    WB_DEVICE void store(const Row<T, MASK, FIT>& row, i32 first, i32 step, Stat all, bool stream = false) {
        float f = factor(max, all);
        i32 end = row.vectors();
#pragma unroll
        for (i32 j = 0; j < V; j++) {
            i32 k = first + j * step, c = row.column(k);
            if (!row.live(k, end)) {
                // Zeros of hidden vectors: written with the rest, not while the others load (1.619 ms instead of 1.629).
                if (MASK == MASK_CAUSAL && row.inside(k, end)) row.store_zero(c);
                continue;
            }
#pragma unroll
            for (i32 i = 0; i < N; i++) t[j * N + i] *= f;
            if (MASK == MASK_CAUSAL && c + N > row.limit) {
                // Hidden columns are 0 even where the row is NaN.
#pragma unroll
                for (i32 i = 0; i < N; i++) {
                    if (c + i >= row.limit) t[j * N + i] = 0.0f;
                }
            }
            row.store(c, t + j * N, stream);
        }
    }
};

// Emits KERNEL(type, suffix of the name, mask) for every combination.
#define SOFTMAX_ALL(KERNEL)               \
    KERNEL(bf16, bf16_none, MASK_NONE)    \
    KERNEL(bf16, bf16_causal, MASK_CAUSAL)\
    KERNEL(bf16, bf16_bool, MASK_BOOL)    \
    KERNEL(bf16, bf16_additive, MASK_ADD) \
    KERNEL(f16, f16_none, MASK_NONE)      \
    KERNEL(f16, f16_causal, MASK_CAUSAL)  \
    KERNEL(f16, f16_bool, MASK_BOOL)      \
    KERNEL(f16, f16_additive, MASK_ADD)   \
    KERNEL(float, f32_none, MASK_NONE)    \
    KERNEL(float, f32_causal, MASK_CAUSAL)\
    KERNEL(float, f32_bool, MASK_BOOL)    \
    KERNEL(float, f32_additive, MASK_ADD)
#define SOFTMAX_ARGS(T) const T *x, T *out, const void *mask, i64 rows, i32 cols, i32 mask_rows, float scale2
#define SOFTMAX_PROBLEM(T) \
    Problem<T> { x, out, mask, rows, cols, mask_rows, scale2 }
