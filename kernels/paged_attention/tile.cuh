// What a warp's tile of keys is and how it gets to shared memory: geometry, the walk over the work, copies through the
// page table, and the queries (and, with `fused`, the new token) that the block prepares for itself.
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

template <class T, class KV, int D, int WARPS> struct Tile {
    using M = typename Operand<T, KV>::type;
    static constexpr int KEYS = sizeof(KV) == 1 ? 32 : 16;  // keys of a warp's tile: 8 KB of K and V at d = 128
    static constexpr int SUBS = KEYS / 16;                  // products of 16 keys
    static constexpr int UNIT = KEYS * WARPS;    // tokens of a block's tile
    static constexpr int HEADS = 8;              // columns of the tile
    static constexpr int STEPS = D / 16;
    static constexpr int ROW = D * static_cast<int>(sizeof(KV));
    static constexpr int CHUNKS = ROW / 16;
    static constexpr int STAGE = 2 * KEYS * ROW;  // bytes: K tile, V tile
    static constexpr int THREADS = 32 * WARPS;

    const Problem& p;
    unsigned char* ring;  // this warp's stages
    int stages;
    int lane, warp;
    i32 group, gtiles, units_h;

    WB_DEVICE Tile(const Problem& p, unsigned char* rings, int stages)
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
    // Four elements of the new key (which = 0) or value (1) in the cache's type: for the warp that meets the token, and
    // into the cache by the one head tile that owns the kv head.
    WB_DEVICE void append(const Cursor& c, unsigned char* fresh, int which, int i, Pair x, Pair y) const {
        if (sizeof(KV) == 1) {
            float f = which == 0 ? p.k_scale : p.v_scale;  // divided by, not multiplied by its inverse: correctly rounded
            x.lo /= f, x.hi /= f, y.lo /= f, y.hi /= f;
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
};
