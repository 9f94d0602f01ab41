// The tensor-core core of decode attention: one warp streams 16 keys (32 of one byte) at a time through its own ring of shared-memory
// stages and folds them into an online softmax for up to eight query heads of one kv head.
//
// Roles. mma.m16n8k16 computes S = K Qᵀ with 16 keys as rows and the query heads as the 8 columns, so a GQA group of
// 4 or 8 wastes half a tile or nothing, where heads as rows would waste 12 or 8 of 16. S comes out with heads on the
// lane pairs (column 2c, 2c + 1 of lane 4r + c); the transposed probabilities are the B operand of O = Vᵀ P, whose
// columns are heads again: maximum, sum and rescaling factor of a head live in the lanes that hold its outputs.
//
// No warp waits for another while streaming: each has its own stages and its own cp.async groups.
#pragma once
#include "tile.cuh"

template <class T, class KV, int D, int WARPS> struct Decode : Tile<T, KV, D, WARPS> {
    using Base = Tile<T, KV, D, WARPS>;
    using M = typename Base::M;
    using Base::lane, Base::p, Base::ring, Base::swizzle, Base::warp;
    static constexpr int KEYS = Base::KEYS, SUBS = Base::SUBS, UNIT = Base::UNIT, HEADS = Base::HEADS;
    static constexpr int STEPS = Base::STEPS, ROW = Base::ROW, STAGE = Base::STAGE, Q_PITCH = Base::Q_PITCH;
    static constexpr int PITCH = D + 4;  // floats; 2 PITCH = 8 (mod 32) keeps the exchange free of conflicts

    u32 q[STEPS][2];
    float o[STEPS][4];
    float m[2], l[2];

    WB_DEVICE Decode(const Problem& p, unsigned char* rings, int stages) : Base(p, rings, stages) {}

    // Query fragments of this warp: matrix n of ldmatrix is elements 8n to 8n + 7 of all eight heads.
    WB_DEVICE void take_q(const unsigned char* prepared) {
#pragma unroll
        for (int s = 0; s < STEPS; s += 2) {
            u32 w[4];
            ldmatrix_x4(w, prepared + (lane & 7) * Q_PITCH + (s * 2 + (lane >> 3)) * 16);
            q[s][0] = w[0], q[s][1] = w[1], q[s + 1][0] = w[2], q[s + 1][1] = w[3];
        }
    }
    WB_DEVICE void reset() {
        m[0] = m[1] = WB_NEG_INF;
        l[0] = l[1] = 0.0f;
#pragma unroll
        for (int s = 0; s < STEPS; s++) o[s][0] = o[s][1] = o[s][2] = o[s][3] = 0.0f;
    }

    // Folds the keys of a stage into m, l and o.
    WB_DEVICE void fold(const Cursor& c, int stage) {
        i32 first = c.tile * UNIT + warp * KEYS;
        if (first >= c.len) return;
        const unsigned char* k = ring + stage * STAGE;
        const unsigned char* v = k + KEYS * ROW;
        int mat = lane >> 3, r = lane & 7;
        float s[SUBS][4];
#pragma unroll
        for (int u = 0; u < SUBS; u++) {
            float s0[4] = {0, 0, 0, 0}, s1[4] = {0, 0, 0, 0};
            scores(k + u * 16 * ROW, mat, r, s0, s1);
#pragma unroll
            for (int i = 0; i < 4; i++) s[u][i] = (s0[i] + s1[i]) * p.scale_log2;
        }
        if (first + KEYS > c.len) {
#pragma unroll
            for (int u = 0; u < SUBS; u++) {
                i32 t = first + u * 16 + (lane >> 2);
                if (t >= c.len) s[u][0] = s[u][1] = WB_NEG_INF;
                if (t + 8 >= c.len) s[u][2] = s[u][3] = WB_NEG_INF;
            }
        }
        float scale[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float top = fmaxf(s[0][j], s[0][j + 2]);
#pragma unroll
            for (int u = 1; u < SUBS; u++) top = fmaxf(top, fmaxf(s[u][j], s[u][j + 2]));
#pragma unroll
            for (int d = 4; d < 32; d *= 2) top = fmaxf(top, __shfl_xor_sync(WB_FULL_MASK, top, d));
            top = fmaxf(m[j], top);
            float base = finite_max(top);
            scale[j] = ex2(m[j] - base);
            m[j] = top;
            l[j] *= scale[j];
#pragma unroll
            for (int u = 0; u < SUBS; u++) {
                s[u][j] = ex2(s[u][j] - base);
                s[u][j + 2] = ex2(s[u][j + 2] - base);
                l[j] += s[u][j] + s[u][j + 2];
            }
        }
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            o[i][0] *= scale[0];
            o[i][1] *= scale[1];
            o[i][2] *= scale[0];
            o[i][3] *= scale[1];
        }
#pragma unroll
        for (int u = 0; u < SUBS; u++) {
            u32 pr[2] = {transpose_8x8(pack2<M>(s[u][0], s[u][1])), transpose_8x8(pack2<M>(s[u][2], s[u][3]))};
            values(v + u * 16 * ROW, mat, r, pr);
        }
    }
    WB_DEVICE void scores(const unsigned char* k, int mat, int r, float (&s0)[4], float (&s1)[4]) const {
        int key = (mat & 1) * 8 + r;
        const unsigned char* row = k + key * ROW;
        if constexpr (sizeof(KV) == 2) {
#pragma unroll
            for (int i = 0; i < STEPS; i++) {
                u32 a[4];
                ldmatrix_x4(a, row + swizzle(key, 2 * i + (mat >> 1)) * 16);
                mma_m16n8k16<M>(i % 2 ? s1 : s0, a, q[i]);
            }
        } else {
#pragma unroll
            for (int i = 0; i < STEPS; i += 2) {
                // A row of 16 bytes is one step of 16: matrices 0, 1 are step i, matrices 2, 3 step i + 1.
                u32 w[4];
                ldmatrix_x4(w, row + swizzle(key, i + (mat >> 1)) * 16);
                u32 a[4] = {e4m3_even(w[0]), e4m3_even(w[1]), e4m3_odd(w[0]), e4m3_odd(w[1])};
                u32 b[4] = {e4m3_even(w[2]), e4m3_even(w[3]), e4m3_odd(w[2]), e4m3_odd(w[3])};
                mma_m16n8k16<M>(s0, a, q[i]);
                mma_m16n8k16<M>(s1, b, q[i + 1]);
            }
        }
    }
    WB_DEVICE void values(const unsigned char* v, int mat, int r, const u32 (&pr)[2]) {
        if constexpr (sizeof(KV) == 2) {
            int key = (mat >> 1) * 8 + r;
            const unsigned char* row = v + key * ROW;
#pragma unroll
            for (int i = 0; i < STEPS; i++) {
                u32 a[4];
                ldmatrix_x4_trans(a, row + swizzle(key, 2 * i + (mat & 1)) * 16);
                mma_m16n8k16<M>(o[i], a, pr);
            }
        } else {
            // Transposing 16-bit units leaves pairs of dimensions in a register: the even ones become the tile's rows
            // 0 to 7, the odd ones rows 8 to 15 (see dim()).
            int key = (mat & 1) * 8 + r;
            const unsigned char* row = v + key * ROW;
#pragma unroll
            for (int i = 0; i < STEPS; i += 2) {
                u32 w[4];
                ldmatrix_x4_trans(w, row + swizzle(key, i + (mat >> 1)) * 16);
                u32 a[4] = {e4m3_even(w[0]), e4m3_odd(w[0]), e4m3_even(w[1]), e4m3_odd(w[1])};
                u32 b[4] = {e4m3_even(w[2]), e4m3_odd(w[2]), e4m3_even(w[3]), e4m3_odd(w[3])};
                mma_m16n8k16<M>(o[i], a, pr);
                mma_m16n8k16<M>(o[i + 1], b, pr);
            }
        }
    }
    // Dimension of o[s][i] in this lane.
    WB_DEVICE int dim(int s, int i) const {
        int r = lane >> 2, high = i >> 1;
        return sizeof(KV) == 2 ? s * 16 + r + high * 8 : s * 16 + 2 * r + high;
    }

    // Puts this warp's state where the block can join it: o at [warp][head][PITCH], m and l after all of them.
    WB_DEVICE void publish(float* exchange) {
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int d = 4; d < 32; d *= 2) l[j] += __shfl_xor_sync(WB_FULL_MASK, l[j], d);
        int head = (lane & 3) * 2;
        float* mine = exchange + (warp * HEADS + head) * PITCH;
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int i = 0; i < 4; i++) mine[(i & 1) * PITCH + dim(s, i)] = o[s][i];
        float* ml = exchange + WARPS * HEADS * PITCH;
        if (lane < 4) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                ml[(warp * HEADS + head + j) * 2] = m[j];
                ml[(warp * HEADS + head + j) * 2 + 1] = l[j];
            }
        }
    }
    static constexpr int EXCHANGE = (WARPS * HEADS * PITCH + WARPS * HEADS * 2) * 4;  // bytes

    // Joins the warps for N neighbouring dimensions of a head: unnormalised sums, common maximum, denominator.
    template <int N> WB_DEVICE static void join(const float* exchange, int head, int d0, float (&acc)[N], float& top, float& sum) {
        const float* ml = exchange + WARPS * HEADS * PITCH;
        top = WB_NEG_INF;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, ml[(w * HEADS + head) * 2]);
        float base = finite_max(top);
        sum = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++) acc[i] = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float f = ex2(ml[(w * HEADS + head) * 2] - base);
            sum += f * ml[(w * HEADS + head) * 2 + 1];
            const float* row = exchange + (w * HEADS + head) * PITCH + d0;
#pragma unroll
            for (int i = 0; i < N; i++) acc[i] += f * row[i];
        }
    }
};

// Waits until at most `newest` of this thread's copy groups are unfinished; the ring's depth is known at launch only.
WB_DEVICE void cp_async_wait_upto(int newest) {
    switch (newest) {
        case 0: cp_async_wait<0>(); break;
        case 1: cp_async_wait<1>(); break;
        case 2: cp_async_wait<2>(); break;
        case 3: cp_async_wait<3>(); break;
        case 4: cp_async_wait<4>(); break;
        case 5: cp_async_wait<5>(); break;
        case 6: cp_async_wait<6>(); break;
        default: cp_async_wait<7>(); break;
    }
}
