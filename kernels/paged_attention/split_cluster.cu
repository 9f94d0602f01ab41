// Split-KV decode in one launch without a workspace: the blocks of one (request, head tile) are a cluster, and their
// pieces meet in distributed shared memory. For few requests, where a second kernel or a trip of the pieces through
// L2 and a counter would cost as much as the reading itself.
//
// Grid (blocks of a cluster, head tiles, requests), 256 threads. The request's tokens are dealt evenly in tiles of 128;
// with a ring as deep as the share all loads of a block are in flight at once.
//
// plan_a, plan_b: unused.
#include "mma.cuh"

template <class T, class KV, int D> struct Cluster : Decode<T, KV, D, 8> {
    using Base = Decode<T, KV, D, 8>;
    using Base::p;
    static constexpr int WARPS = 8, HEADS = Base::HEADS;

    float* exchange;          // over the rings, once every copy has landed
    unsigned char* prepared;  // queries and the new token
    // What the peers send: for each rank and each of this block's outputs, four sums, then maximum and denominator.
    float* received;

    WB_DEVICE Cluster(const Problem& p, unsigned char* smem, int stages) : Base(p, smem, stages) {
        int rings = WARPS * stages * Base::STAGE;
        exchange = reinterpret_cast<float*>(smem);
        prepared = smem + (rings > Base::EXCHANGE ? rings : Base::EXCHANGE);
        received = reinterpret_cast<float*>(prepared + Base::PREPARED);
    }

    WB_DEVICE void run() {
        // One request's blocks leave half the chip to the next kernel, which would ask for its weights before these ask
        // for their keys: it is let in after them. 0.8 µs a layer in a decode step (lab notes).
        const bool keys_first = p.fused && p.batch == 1;
        if (!keys_first) pdl_launch();
        cluster_arrive_relaxed();  // waited for before the first store to a peer: it must have begun
        Cursor c;
        c.b = blockIdx.z;
        c.h = blockIdx.y;
        // The row of the page table sets out for L2 while the length, which says what of it is needed, is on its way.
        const i32* row = p.table + static_cast<i64>(c.b) * p.max_pages;
        for (i32 i = threadIdx.x * 32; i < p.max_pages; i += Base::THREADS * 32) prefetch_l2(row + i);
        this->enter(c);
        this->enter_head(c);
        i32 rank = cluster_rank(), size = cluster_size();
        i32 share = c.tiles / size, extra = c.tiles - share * size;
        c.tile = rank * share + (rank < extra ? rank : extra);
        i32 n = share + (rank < extra ? 1 : 0);
        bool has_new = p.fused && n > 0 && c.tile + n == c.tiles;
        // Keys and values of earlier tokens were written by earlier steps, so with `fused` they may be fetched while
        // the projections are still being computed; without it the kernel before this one appended a token.
        if (!p.fused) pdl_wait();
        Cursor ahead = c;
        i32 end = c.tile + n;
        i32 id = n > 0 ? this->page_id(ahead) : -1;
        for (int s = 0; s < this->stages; s++) {
            next(ahead, id, end, s);
            cp_async_commit();
        }
        if (keys_first) pdl_launch();
        if (p.fused) pdl_wait();
        if (n > 0) this->prepare(c, prepared, has_new);
        __syncthreads();
        if (n > 0) this->take_q(prepared);
        has_new = has_new && this->holds_last(c);
        this->reset();
        int slot = 0;
        for (; c.tile < end; c.tile++) {
            cp_async_wait_upto(this->stages - 1);
            __syncwarp();
            if (has_new && c.tile == end - 1) this->patch(c, prepared + HEADS * Base::Q_PITCH, slot);
            this->fold(c, slot);
            __syncwarp();  // every lane has read the stage before it is filled again
            next(ahead, id, end, slot);
            cp_async_commit();
            slot = slot + 1 == this->stages ? 0 : slot + 1;
        }
        cp_async_wait<0>();
        __syncthreads();
        this->publish(exchange);
        __syncthreads();
        join_cluster(c, rank, size);
    }

    WB_DEVICE void next(Cursor& ahead, i32& id, i32 end, int stage) const {
        if (ahead.tile >= end) return;
        this->issue(ahead, id, stage);
        if (++ahead.tile < end) id = this->page_id(ahead);
    }

    // Output item i (four dimensions of a head) is finished by rank i % size; every block sends it its piece there. One
    // barrier: after it nobody touches a peer's memory again.
    WB_DEVICE void join_cluster(const Cursor& c, i32 rank, i32 size) {
        i32 items = this->live_heads(c) * (D / 4), mine = (items + size - 1) / size;
        cluster_wait();
        for (int item = threadIdx.x; item < items; item += Base::THREADS) {
            int head = item / (D / 4), d0 = item % (D / 4) * 4;
            float acc[4], top, sum;
            Base::template join<4>(exchange, head, d0, acc, top, sum);
            float* to = cluster_map(received, item % size) + (rank * mine + item / size) * 8;
            st16(to, pack16<float>(acc));
            to[4] = top;
            to[5] = sum;
        }
        cluster_sync();
        for (int at = threadIdx.x; at < mine; at += Base::THREADS) {
            int item = at * size + rank, head = item / (D / 4), d0 = item % (D / 4) * 4;
            if (item >= items) break;
            float top = WB_NEG_INF, sum = 0.0f, acc[4] = {0, 0, 0, 0};
#pragma unroll 8
            for (i32 i = 0; i < size; i++) top = fmaxf(top, received[(i * mine + at) * 8 + 4]);
            float from = finite_max(top);
#pragma unroll 8
            for (i32 i = 0; i < size; i++) {
                const float* piece = received + (i * mine + at) * 8;
                float f = ex2(piece[4] - from);
                sum += f * piece[5];
#pragma unroll
                for (int j = 0; j < 4; j++) acc[j] += f * piece[j];
            }
            float f = sum > 0.0f ? p.v_scale / sum : (sum == 0.0f ? 0.0f : WB_NAN);
            i64 row = static_cast<i64>(c.b) * p.heads + c.kv * this->group + this->first_head(c) + head;
            u32* out = reinterpret_cast<u32*>(static_cast<T*>(p.out) + row * D + d0);
            out[0] = pack2<T>(acc[0] * f, acc[1] * f);
            out[1] = pack2<T>(acc[2] * f, acc[3] * f);
            if (d0 == 0) p.lse[row] = sum == 0.0f ? WB_NEG_INF : (top + lg2(sum)) * ATTN_LN2;
        }
    }
};

#define SPLIT_CLUSTER(name, T, KV, D)                                         \
    WB_KERNEL void __launch_bounds__(256, 1) name(ATTN_PARAMS, i32 stages) { \
        WB_DYN_SHARED(unsigned char, smem);                                   \
        Problem p{ATTN_ARGS};                                                 \
        Cluster<T, KV, D>(p, smem, stages).run();                             \
    }                                                                         \
    WB_ENTRY(name)
#define SPLIT_CLUSTER_DIMS(T, KV, types)                                      \
    SPLIT_CLUSTER(paged_attention_split_cluster_##types##_d64, T, KV, 64)     \
    SPLIT_CLUSTER(paged_attention_split_cluster_##types##_d96, T, KV, 96)     \
    SPLIT_CLUSTER(paged_attention_split_cluster_##types##_d128, T, KV, 128)   \
    SPLIT_CLUSTER(paged_attention_split_cluster_##types##_d192, T, KV, 192)   \
    SPLIT_CLUSTER(paged_attention_split_cluster_##types##_d256, T, KV, 256)

SPLIT_CLUSTER_DIMS(bf16, bf16, bf16)
SPLIT_CLUSTER_DIMS(f16, f16, f16)
SPLIT_CLUSTER_DIMS(bf16, e4m3, bf16_e4m3)
SPLIT_CLUSTER_DIMS(f16, e4m3, f16_e4m3)
