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
#include "problem.cuh"

template <class T, class KV> struct Operand {
    using type = T;
};
// e4m3 is exact in fp16 and the probabilities keep three more bits there; q is rounded to fp16 (saturating).
template <class T> struct Operand<T, e4m3> {
    using type = f16;
};

// Where a unit of work (a tile for each warp, one request and head tile) lies; advanced in the order of the list.
struct Cursor {
    i32 b, h, kv, tile, tiles, len;  // h counts head tiles, kv their kv head
};

template <class T, class KV, int D, int WARPS> struct Decode {
    using M = typename Operand<T, KV>::type;
    static constexpr int KEYS = sizeof(KV) == 1 ? 32 : 16;  // keys of a warp's tile: 8 KB of K and V at d = 128
    static constexpr int SUBS = KEYS / 16;                  // products of 16 keys
    static constexpr int UNIT = KEYS * WARPS;    // tokens of a block's tile
    static constexpr int HEADS = 8;              // columns of the tile
    static constexpr int STEPS = D / 16;
    static constexpr int ROW = D * static_cast<int>(sizeof(KV));
    static constexpr int CHUNKS = ROW / 16;
    static constexpr int STAGE = 2 * KEYS * ROW;  // bytes: K tile, V tile
    static constexpr int PITCH = D + 4;           // floats; 2 PITCH = 8 (mod 32) keeps the exchange free of conflicts
    static constexpr int THREADS = 32 * WARPS;

    const Problem& p;
    unsigned char* ring;  // this warp's stages
    int stages;
    int lane, warp;
    i32 group, gtiles, units_h;

    u32 q[STEPS][2];
    float o[STEPS][4];
    float m[2], l[2];

    WB_DEVICE Decode(const Problem& p, unsigned char* rings, int stages)
        : p(p), stages(stages), lane(lane_id()), warp(warp_id()) {
        ring = rings + warp * stages * STAGE;
        group = p.group();
        gtiles = (group + HEADS - 1) / HEADS;
        units_h = p.kv_heads * gtiles;
    }

    // Rows of a tile are CHUNKS 16-byte chunks; XOR spreads the eight rows that ldmatrix reads at once over the banks.
    WB_DEVICE static int swizzle(int row, int chunk) {
        if (CHUNKS % 8 == 0) return chunk ^ (row & 7);
        if (CHUNKS % 4 == 0) return chunk ^ ((row >> 1) & 3);
        return chunk ^ ((row >> 2) & 1);
    }
    WB_DEVICE static i32 tiles_of(i32 len) { return (len + UNIT - 1) / UNIT; }

    WB_DEVICE void enter(Cursor& c) const {
        c.len = p.length(c.b);
        c.tiles = tiles_of(c.len);
    }
    WB_DEVICE void enter_head(Cursor& c) const { c.kv = gtiles == 1 ? c.h : c.h / gtiles; }
    WB_DEVICE void advance(Cursor& c) const {
        if (++c.tile < c.tiles) return;
        c.tile = 0;
        if (++c.h == units_h) {
            c.h = 0;
            do {
                if (++c.b >= p.batch) return;
                enter(c);
            } while (c.tiles == 0);
        }
        enter_head(c);
    }
    WB_DEVICE i32 first_head(const Cursor& c) const { return (c.h - c.kv * gtiles) * HEADS; }  // within the group
    WB_DEVICE i32 live_heads(const Cursor& c) const {
        i32 left = group - first_head(c);
        return left < HEADS ? left : HEADS;
    }

    // Page id of this lane's key (lane % KEYS) in the unit, loaded one unit before it is needed.
    WB_DEVICE i32 page_id(const Cursor& c) const {
        i32 t = c.tile * UNIT + warp * KEYS + (lane & (KEYS - 1));
        i32 usable = c.len - p.fused;  // the new token is not in the cache yet
        return t < usable ? p.table[static_cast<i64>(c.b) * p.max_pages + p.page_of(t)] : -1;
    }

    // Begins the copies of the unit into a stage. Tokens beyond the length arrive as zeros, never as what lies there.
    WB_DEVICE void issue(const Cursor& c, i32 id, int stage) const {
        i32 t = c.tile * UNIT + warp * KEYS + (lane & (KEYS - 1));
        u32 at = id < 0 ? NO_CHUNK : p.chunk_in(id, t - p.page_of(t) * p.page, c.kv);
        unsigned char* k = ring + stage * STAGE;
        const unsigned char* kc = static_cast<const unsigned char*>(p.k_cache);
        const unsigned char* vc = static_cast<const unsigned char*>(p.v_cache);
#pragma unroll
        for (int i = 0; i < KEYS * CHUNKS / 32; i++) {
            int row = (i * 32 + lane) / CHUNKS, chunk = (i * 32 + lane) % CHUNKS;
            u32 first = __shfl_sync(WB_FULL_MASK, at, row);
            bool ok = first != NO_CHUNK;
            u64 src = ok ? (static_cast<u64>(first) + chunk) * 16 : 0;
            int dst = row * ROW + swizzle(row, chunk) * 16;
            cp_async16(k + dst, kc + src, ok);
            cp_async16(k + KEYS * ROW + dst, vc + src, ok);
        }
    }

    // Query rows of a head tile and, with `fused`, the new token, made by the whole block in shared memory: `prepared`
    // holds 8 rows of M with Q_PITCH bytes between them, then the new key and value as the cache holds them. A thread
    // makes four elements of a row, two neighbours and the two that rotation pairs with them. A barrier must follow.
    static constexpr int Q_PITCH = 2 * D + 16;  // eight rows of a fragment fall on different banks
    static constexpr int PREPARED = HEADS * Q_PITCH + 2 * ROW;
    WB_DEVICE void prepare(const Cursor& c, unsigned char* prepared, bool has_new) const {
        constexpr int PARTS = D / 4;
        i32 live = live_heads(c), head0 = c.kv * group + first_head(c);
        i32 rows = HEADS + (has_new ? 2 : 0);
        i32 t = c.len - 1, pos = t < p.max_pos ? t : p.max_pos - 1;
        const float* cs = p.cos_sin + static_cast<i64>(pos) * D;
        const T* base = static_cast<const T*>(p.q) + c.b * p.q_row;
        for (int item = threadIdx.x; item < rows * PARTS; item += THREADS) {
            int r = item / PARTS, i = item % PARTS * 2;
            if (r >= live && r < HEADS) {
                put_q(prepared + r * Q_PITCH, i, 0.0f, 0.0f);
                put_q(prepared + r * Q_PITCH, i + D / 2, 0.0f, 0.0f);
                continue;
            }
            // Rows of the projections: heads, then the keys and the values of the kv heads.
            i32 row = r < HEADS ? head0 + r : p.heads + (r - HEADS) * p.kv_heads + c.kv;
            const T* at = base + static_cast<i64>(row) * D + i;
            Pair x = unpack2<T>(*reinterpret_cast<const u32*>(at));
            Pair y = unpack2<T>(*reinterpret_cast<const u32*>(at + D / 2));
            if (p.fused && r <= HEADS) {
                rotate(x.lo, y.lo, cs[i], cs[D / 2 + i]);
                rotate(x.hi, y.hi, cs[i + 1], cs[D / 2 + i + 1]);
            }
            if (r < HEADS) {
                put_q(prepared + r * Q_PITCH, i, x.lo, x.hi);
                put_q(prepared + r * Q_PITCH, i + D / 2, y.lo, y.hi);
            } else {
                append(c, prepared + HEADS * Q_PITCH, r - HEADS, i, x, y);
            }
        }
    }
    // Two neighbouring elements of a query row, rounded to T as a separate kernel would have stored them. For e4m3
    // caches the four bytes that a lane gets at once are its even and its odd ones, so the row is stored in that order.
    WB_DEVICE static void put_q(unsigned char* row, int i, float lo, float hi) {
        if constexpr (sizeof(KV) == 2) {
            *reinterpret_cast<u32*>(row + i * 2) = pack2<M>(lo, hi);
        } else {
            lo = fminf(fmaxf(to_float(from_float<T>(lo)), -65504.0f), 65504.0f);
            hi = fminf(fmaxf(to_float(from_float<T>(hi)), -65504.0f), 65504.0f);
            u16* at = reinterpret_cast<u16*>(row) + (i & ~15) + 2 * ((i & 15) >> 2) + ((i & 3) >> 1);
            at[0] = f32_to_f16(lo);
            at[8] = f32_to_f16(hi);
        }
    }
    // Query fragments of this warp: matrix n of ldmatrix is elements 8n to 8n + 7 of all eight heads.
    WB_DEVICE void take_q(const unsigned char* prepared) {
#pragma unroll
        for (int s = 0; s < STEPS; s += 2) {
            u32 w[4];
            ldmatrix_x4(w, prepared + (lane & 7) * Q_PITCH + (s * 2 + (lane >> 3)) * 16);
            q[s][0] = w[0], q[s][1] = w[1], q[s + 1][0] = w[2], q[s + 1][1] = w[3];
        }
    }
    // Four elements of the new key (which = 0) or value (1) in the cache's type: for the warp that meets the token, and
    // into the cache by the one head tile that owns the kv head.
    WB_DEVICE void append(const Cursor& c, unsigned char* fresh, int which, int i, Pair x, Pair y) const {
        if (sizeof(KV) == 1) {
            float f = 1.0f / (which == 0 ? p.k_scale : p.v_scale);
            x.lo *= f, x.hi *= f, y.lo *= f, y.hi *= f;
        }
        KV four[4] = {from_float<KV>(x.lo), from_float<KV>(x.hi), from_float<KV>(y.lo), from_float<KV>(y.hi)};
        store4(reinterpret_cast<KV*>(fresh) + which * D + i, four);
        if (first_head(c) != 0) return;
        u32 at = p.chunk(c.b, c.len - 1, c.kv);
        if (at == NO_CHUNK) return;
        unsigned char* cache = static_cast<unsigned char*>(which == 0 ? p.k_cache : p.v_cache);
        store4(reinterpret_cast<KV*>(cache + static_cast<u64>(at) * 16) + i, four);
    }
    WB_DEVICE static void store4(KV* at, const KV (&v)[4]) {
        at[0] = v[0], at[1] = v[1];
        at[D / 2] = v[2], at[D / 2 + 1] = v[3];
    }
    // The warp of the unit that holds the last token.
    WB_DEVICE bool holds_last(const Cursor& c) const { return ((c.len - 1) % UNIT) / KEYS == warp; }
    WB_DEVICE void patch(const Cursor& c, const unsigned char* fresh, int stage) const {
        int row = (c.len - 1) % KEYS;
        unsigned char* k = ring + stage * STAGE;
        if (lane < CHUNKS) {
            int dst = row * ROW + swizzle(row, lane) * 16;
            st16(k + dst, ld16(fresh + lane * 16));
            st16(k + KEYS * ROW + dst, ld16(fresh + ROW + lane * 16));
        }
        __syncwarp();
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
