// Decode attention, second step: the context of a request is cut into pieces that blocks read at the same time, and a
// second kernel joins them. A piece carries its maximum and its sum, so the join is exact: o = Σ 2^(mᵢ - m) oᵢ / Σ …
//
// Partial kernel: grid (pieces, kv heads * head tiles of 4, requests), 128 threads. Join: grid (heads, requests), 64.
// plan_a: pieces of a request, or 0 for pieces of fixed length. plan_b: tokens of a fixed piece, or the grid's pieces.
#include "simt.cuh"

// Piece `i` of a request of `len` tokens: an even share, in multiples of 16 tokens so that pages are read whole.
WB_DEVICE void piece_of(const Problem& p, i32 len, i32 i, i32& begin, i32& end) {
    i32 size = p.plan_a > 0 ? ((len + p.plan_a - 1) / p.plan_a + 15) / 16 * 16 : p.plan_b;
    i64 from = static_cast<i64>(size) * i;
    begin = from < len ? static_cast<i32>(from) : len;
    end = len - begin < size ? len : begin + size;
}

// The workspace holds, for each (request, head, piece), d floats and then top and sum.
template <class T, class KV, int D> WB_DEVICE void split_partial(const Problem& p, float* exchange) {
    pdl_launch();
    pdl_wait();
    Simt<T, KV, D> s(p, blockIdx.z, blockIdx.y);
    i32 begin, end;
    piece_of(p, s.len, blockIdx.x, begin, end);
    if (begin >= end) return;
    s.load_q();
    bool has_new = end == s.len;
    if (has_new) s.append(s.g0 == 0 && s.warp == 0 && s.row == 0);
    s.fold(begin, end);
    for (int j = 0; j < s.live(); j++) {
        float acc[8], top, sum;
        if (!s.join(j, exchange, acc, top, sum)) continue;
        i64 at = (static_cast<i64>(s.b) * p.heads + s.kv * s.group + s.g0 + j) * gridDim.x + blockIdx.x;
        float* piece = p.partial + at * (D + 4);
        st16(piece + threadIdx.x * 8, pack16<float>(acc));
        st16(piece + threadIdx.x * 8 + 4, pack16<float>(acc + 4));
        if (threadIdx.x == 0) {
            piece[D] = top;
            piece[D + 1] = sum;
        }
    }
}

template <class T, int D> WB_DEVICE void split_join(const Problem& p, i32 pieces) {
    pdl_launch();
    pdl_wait();
    i32 head = blockIdx.x, b = blockIdx.y, len = p.length(b);
    if (threadIdx.x >= D / 8) return;
    const float* first = p.partial + (static_cast<i64>(b) * p.heads + head) * pieces * (D + 4);
    float top = WB_NEG_INF, sum = 0.0f, acc[8];
#pragma unroll
    for (int i = 0; i < 8; i++) acc[i] = 0.0f;
    for (i32 i = 0; i < pieces; i++) {
        i32 begin, end;
        piece_of(p, len, i, begin, end);
        if (begin >= end) break;
        const float* piece = first + static_cast<i64>(i) * (D + 4);
        float next = fmaxf(top, piece[D]), from = finite_max(next);
        float keep = ex2(top - from), w = ex2(piece[D] - from);
        top = next;
        sum = sum * keep + w * piece[D + 1];
#pragma unroll
        for (int j = 0; j < 8; j++) acc[j] = acc[j] * keep + w * piece[threadIdx.x * 8 + j];
    }
    write_out<T, D>(p, b, head, threadIdx.x * 8, acc, top, sum);
}

#define SPLIT(name, T, KV, D)                                          \
    WB_KERNEL void __launch_bounds__(128) name(ATTN_PARAMS) {          \
        __shared__ float exchange[Simt<T, KV, D>::EXCHANGE / 4];       \
        Problem p{ATTN_ARGS};                                          \
        split_partial<T, KV, D>(p, exchange);                          \
    }                                                                  \
    WB_ENTRY(name)
#define JOIN(name, T, D)                                               \
    WB_KERNEL void __launch_bounds__(64) name(ATTN_PARAMS, i32 pieces) { \
        Problem p{ATTN_ARGS};                                          \
        split_join<T, D>(p, pieces);                                   \
    }                                                                  \
    WB_ENTRY(name)
#define SPLIT_DIMS(T, KV, types)                                       \
    SPLIT(paged_attention_split_##types##_d64, T, KV, 64)              \
    SPLIT(paged_attention_split_##types##_d96, T, KV, 96)              \
    SPLIT(paged_attention_split_##types##_d128, T, KV, 128)            \
    SPLIT(paged_attention_split_##types##_d192, T, KV, 192)            \
    SPLIT(paged_attention_split_##types##_d256, T, KV, 256)
#define JOIN_DIMS(T, type)                                             \
    JOIN(paged_attention_join_##type##_d64, T, 64)                     \
    JOIN(paged_attention_join_##type##_d96, T, 96)                     \
    JOIN(paged_attention_join_##type##_d128, T, 128)                   \
    JOIN(paged_attention_join_##type##_d192, T, 192)                   \
    JOIN(paged_attention_join_##type##_d256, T, 256)

SPLIT_DIMS(bf16, bf16, bf16)
SPLIT_DIMS(f16, f16, f16)
SPLIT_DIMS(bf16, e4m3, bf16_e4m3)
SPLIT_DIMS(f16, e4m3, f16_e4m3)
JOIN_DIMS(bf16, bf16)
JOIN_DIMS(f16, f16)
