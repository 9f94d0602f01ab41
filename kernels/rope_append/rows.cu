// Rotary embedding of q and the new k, and the append of k and v to the paged cache: one warp for each head of each
// request. The work is a few kilobytes, so what counts is latency: lengths, page table and cosines are read before the
// projections are ready (griddepcontrol.wait), and every load of a row is in flight at once.
//
// Grid ((heads + 2 kv_heads) / 4 rounded up, batch), 128 threads. Half-split rotation (Llama's rotate_half); with q_norm
// and k_norm each head is first divided by its root mean square and multiplied by the gain (Qwen3).
#include "../common/wb.cuh"

struct Append {
    const void* qkv;
    const float* cos_sin;
    const void *q_norm, *k_norm;
    void *k_cache, *v_cache;
    const i32 *table, *lens;
    void* q;
    i32 heads, kv_heads, d, page, max_pages, pool_pages, max_pos;
    i64 page_stride, slot_stride, head_stride;  // elements
    float k_scale, v_scale, eps;
};

// Four elements a lane: two neighbours and their partners half a head away. A head of 256 takes two rounds.
template <class T, class KV> WB_DEVICE void append_row(const Append& a) {
    constexpr int ROUNDS = 2;
    pdl_launch();
    i32 row = blockIdx.x * 4 + warp_id(), b = blockIdx.y, lane = lane_id();
    i32 rows = a.heads + 2 * a.kv_heads, half = a.d / 2;
    if (row >= rows) return;
    i64 most = static_cast<i64>(a.max_pages) * a.page;
    i32 len = a.lens[b];
    len = len > most ? static_cast<i32>(most) : len;
    i32 t = len > 0 ? len - 1 : 0, pos = t < a.max_pos ? t : a.max_pos - 1;
    const float* cs = a.cos_sin + static_cast<i64>(pos) * a.d;
    bool is_q = row < a.heads, is_v = row >= a.heads + a.kv_heads;
    i32 id = is_q || len <= 0 ? -1 : a.table[static_cast<i64>(b) * a.max_pages + t / a.page];
    float c[ROUNDS][2], s[ROUNDS][2];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        i32 i = (r * 32 + lane) * 2;
        if (i >= half || is_v) continue;
        c[r][0] = cs[i], c[r][1] = cs[i + 1];
        s[r][0] = cs[half + i], s[r][1] = cs[half + i + 1];
    }
    pdl_wait();
    const T* from = static_cast<const T*>(a.qkv) + (static_cast<i64>(b) * rows + row) * a.d;
    float x[ROUNDS][4], squares = 0.0f;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        i32 i = (r * 32 + lane) * 2;
        if (i >= half) continue;
        Pair lo = unpack2<T>(*reinterpret_cast<const u32*>(from + i));
        Pair hi = unpack2<T>(*reinterpret_cast<const u32*>(from + half + i));
        x[r][0] = lo.lo, x[r][1] = lo.hi, x[r][2] = hi.lo, x[r][3] = hi.hi;
#pragma unroll
        for (int j = 0; j < 4; j++) squares += x[r][j] * x[r][j];
    }
    const T* gain = static_cast<const T*>(is_q ? a.q_norm : a.k_norm);
    float f = 1.0f;
    if (gain != nullptr && !is_v) f = 1.0f / sqrtf(warp_sum(squares) / a.d + a.eps);
    KV* to = nullptr;
    if (!is_q) {
        if (static_cast<u32>(id) >= static_cast<u32>(a.pool_pages)) return;
        i64 at = id * a.page_stride + (t % a.page) * a.slot_stride + (row - a.heads - (is_v ? a.kv_heads : 0)) * a.head_stride;
        to = static_cast<KV*>(is_v ? a.v_cache : a.k_cache) + at;
    }
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        i32 i = (r * 32 + lane) * 2;
        if (i >= half) continue;
        float y[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float g = gain != nullptr && !is_v ? f * to_float(gain[(j < 2 ? 0 : half) + i + j % 2]) : 1.0f;
            y[j] = x[r][j] * g;
        }
        if (!is_v) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float u = y[j], v = y[j + 2];
                y[j] = u * c[r][j] - v * s[r][j];
                y[j + 2] = v * c[r][j] + u * s[r][j];
            }
        }
        if (is_q) {
            u32* out = reinterpret_cast<u32*>(static_cast<T*>(a.q) + (static_cast<i64>(b) * a.heads + row) * a.d + i);
            out[0] = pack2<T>(y[0], y[1]);
            out[half / 2] = pack2<T>(y[2], y[3]);
            continue;
        }
        float scale = is_v ? a.v_scale : a.k_scale;
#pragma unroll
        for (int j = 0; j < 4; j++) to[(j < 2 ? 0 : half) + i + j % 2] = from_float<KV>(sizeof(KV) == 1 ? y[j] / scale : y[j]);
    }
}

#define ROPE_APPEND(name, T, KV)                                                                                     \
    WB_KERNEL void __launch_bounds__(128)                                                                            \
        name(const void* qkv, const float* cos_sin, const void* q_norm, const void* k_norm, void* k_cache,           \
             void* v_cache, const i32* table, const i32* lens, void* q, i32 heads, i32 kv_heads, i32 d, i32 page,    \
             i32 max_pages, i32 pool_pages, i32 max_pos, i64 page_stride, i64 slot_stride, i64 head_stride,          \
             float k_scale, float v_scale, float eps) {                                                                  \
        Append a{qkv,       cos_sin,    q_norm,  k_norm,      k_cache,     v_cache,     table, lens,  q,  heads,     \
                 kv_heads,  d,          page,    max_pages,   pool_pages,  max_pos,     page_stride, slot_stride,    \
                 head_stride, k_scale,  v_scale, eps};                                                               \
        append_row<T, KV>(a);                                                                                        \
    }                                                                                                                \
    WB_ENTRY(name)

ROPE_APPEND(rope_append_rows_bf16, bf16, bf16)
ROPE_APPEND(rope_append_rows_f16, f16, f16)
ROPE_APPEND(rope_append_rows_bf16_e4m3, bf16, e4m3)
ROPE_APPEND(rope_append_rows_f16_e4m3, f16, e4m3)
