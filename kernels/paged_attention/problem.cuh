// What every kernel of paged decode attention is told, and the geometry that follows: where a token's keys lie, where
// queries and outputs lie. The argument list is written once (ATTN_PARAMS) and launch.rs follows its order.
//
//   q         [batch, heads, d], or with `fused` the raw projections [batch, (heads + 2 kv_heads) d]
//   k_cache   pool of pages; row (page, slot, kv head) is d elements; strides are in 16-byte chunks, so that a 32-bit
//             chunk number reaches 64 GiB and no product of element indices is ever formed
//   table     i32 [batch, max_pages]; lens i32 [batch], with the new token counted when `fused`
//   cos_sin   f32 [max_pos, d]: d/2 cosines, then d/2 sines (fused only)
//   out       [batch, heads, d]; lse f32 [batch, heads], natural logarithm of the sum of exp(score)
#pragma once
#include "../common/wb.cuh"

#define ATTN_PARAMS                                                                                                    \
    const void *q, void *k_cache, void *v_cache, const i32 *table, const i32 *lens, const float *cos_sin, void *out,   \
        float *lse, float *partial, u32 *counters, i64 q_row, i32 batch, i32 heads, i32 kv_heads, i32 page, \
        u32 page_magic, i32 max_pages, i32 pool_pages, u32 page_chunks, u32 slot_chunks, u32 head_chunks, float scale_log2,            \
        float k_scale, float v_scale, i32 fused, i32 max_pos, i32 plan_a, i32 plan_b
#define ATTN_ARGS                                                                                                      \
    q, k_cache, v_cache, table, lens, cos_sin, out, lse, partial, counters, q_row, batch, heads, kv_heads, page, \
        page_magic, max_pages, pool_pages, page_chunks, slot_chunks, head_chunks, scale_log2, k_scale, v_scale, fused, max_pos,    \
        plan_a, plan_b

#define ATTN_LN2 0.6931471805599453f

struct Problem {
    const void* q;
    void* k_cache;
    void* v_cache;
    const i32* table;
    const i32* lens;
    const float* cos_sin;
    void* out;
    float* lse;
    float* partial;   // workspace: unnormalised outputs, maxima and sums of the pieces
    u32* counters;    // workspace: arrivals for each (request, head tile), zero between launches
    i64 q_row;        // elements between requests in q
    i32 batch, heads, kv_heads;
    i32 page;
    u32 page_magic;  // ceil(2^32 / page), 0 for pages of one token: exact for tokens below 2^24
    i32 max_pages, pool_pages;
    u32 page_chunks, slot_chunks, head_chunks;
    float scale_log2;  // softmax scale * k_scale * log2(e)
    float k_scale, v_scale;
    i32 fused, max_pos;
    i32 plan_a, plan_b;  // each variant's own numbers

    WB_DEVICE i32 group() const { return heads / kv_heads; }
    // Cached tokens of a request: never more than its row of the page table can name, never negative.
    WB_DEVICE i32 length(i32 b) const {
        i64 most = static_cast<i64>(max_pages) * page;
        i32 n = lens[b];
        return n < 0 ? 0 : (n > most ? static_cast<i32>(most) : n);
    }
    WB_DEVICE i32 page_of(i32 t) const { return page_magic ? static_cast<i32>(__umulhi(static_cast<u32>(t), page_magic)) : t; }
    // First 16-byte chunk of token t of request b, kv head h; NO_CHUNK where the table names no page of the pool.
    WB_DEVICE u32 chunk(i32 b, i32 t, i32 h) const {
        i32 index = page_of(t);
        return chunk_in(table[static_cast<i64>(b) * max_pages + index], t - index * page, h);
    }
    WB_DEVICE u32 chunk_in(i32 id, i32 slot, i32 h) const {
        if (static_cast<u32>(id) >= static_cast<u32>(pool_pages)) return 0xffffffffu;
        return static_cast<u32>(id) * page_chunks + static_cast<u32>(slot) * slot_chunks +
               static_cast<u32>(h) * head_chunks;
    }
};
static constexpr u32 NO_CHUNK = 0xffffffffu;

// The rotation of rotary embedding on one pair (x[i], x[i + d/2]).
WB_DEVICE void rotate(float& a, float& b, float cos, float sin) {
    float x = a;
    a = x * cos - b * sin;
    b = b * cos + x * sin;
}

// exp2(x - m) for a running maximum m that may still be -inf (then every x is, and the result is 0).
WB_DEVICE float finite_max(float m) { return m == WB_NEG_INF ? 0.0f : m; }

// Writes 8 neighbouring dimensions of one output head, and its lse by the thread that has the first of them.
template <class T, int D>
WB_DEVICE void write_out(const Problem& p, i32 b, i32 head, int d0, float (&acc)[8], float top, float sum) {
    float f = sum > 0.0f ? p.v_scale / sum : (sum == 0.0f ? 0.0f : WB_NAN);
#pragma unroll
    for (int i = 0; i < 8; i++) acc[i] *= f;
    i64 row = static_cast<i64>(b) * p.heads + head;
    st16(static_cast<T*>(p.out) + row * D + d0, pack16<T>(acc));
    if (d0 == 0) p.lse[row] = sum == 0.0f ? WB_NEG_INF : (top + lg2(sum)) * ATTN_LN2;
}
