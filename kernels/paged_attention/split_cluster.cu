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

    float* exchange;       // over the rings, once every copy has landed
    float* block_sum;      // this block's piece for its peers: o [8][D], then top and sum [8][2]
    unsigned char* fresh;

    WB_DEVICE Cluster(const Problem& p, unsigned char* smem, int stages) : Base(p, smem, stages) {
        int rings = WARPS * stages * Base::STAGE;
        exchange = reinterpret_cast<float*>(smem);
        block_sum = reinterpret_cast<float*>(smem + (rings > Base::EXCHANGE ? rings : Base::EXCHANGE));
        fresh = reinterpret_cast<unsigned char*>(block_sum);
    }

    WB_DEVICE void run() {
        pdl_launch();
        Cursor c;
        c.b = blockIdx.z;
        c.h = blockIdx.y;
        this->enter(c);
        i32 rank = cluster_rank(), size = cluster_size();
        i32 share = c.tiles / size, extra = c.tiles - share * size;
        c.tile = rank * share + (rank < extra ? rank : extra);
        i32 n = share + (rank < extra ? 1 : 0);
        bool has_new = p.fused && n > 0 && c.tile + n == c.tiles && this->holds_last(c);
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
        if (p.fused) pdl_wait();
        if (n > 0) this->load_q(c);
        if (has_new) this->append(c, fresh);
        this->reset();
        int slot = 0;
        for (; c.tile < end; c.tile++) {
            cp_async_wait_upto(this->stages - 1);
            __syncwarp();
            if (has_new && c.tile == end - 1) this->patch(c, fresh, slot);
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

    WB_DEVICE void join_cluster(const Cursor& c, i32 rank, i32 size) {
        i32 kv = c.h / this->gtiles, g0 = (c.h % this->gtiles) * HEADS;
        i32 live = this->group - g0 < HEADS ? this->group - g0 : HEADS;
        float* ml = block_sum + HEADS * D;
        for (int item = threadIdx.x; item < live * (D / 4); item += Base::THREADS) {
            int head = item / (D / 4), d0 = item % (D / 4) * 4;
            float acc[4], top, sum;
            Base::template join<4>(exchange, head, d0, acc, top, sum);
            st16(block_sum + head * D + d0, pack16<float>(acc));
            if (d0 == 0) {
                ml[head * 2] = top;
                ml[head * 2 + 1] = sum;
            }
        }
        cluster_sync();
        // Each block finishes its share of the outputs, four dimensions a thread, pieces in rank order.
        for (int item = threadIdx.x * size + rank; item < live * (D / 4); item += Base::THREADS * size) {
            int head = item / (D / 4), d0 = item % (D / 4) * 4;
            float top = WB_NEG_INF, sum = 0.0f, acc[4] = {0, 0, 0, 0};
#pragma unroll 8
            for (i32 i = 0; i < size; i++) top = fmaxf(top, cluster_map(ml, i)[head * 2]);
            float from = finite_max(top);
#pragma unroll 8
            for (i32 i = 0; i < size; i++) {
                float f = ex2(cluster_map(ml, i)[head * 2] - from);
                sum += f * cluster_map(ml, i)[head * 2 + 1];
                Vec16 v = ld16(cluster_map(block_sum, i) + head * D + d0);
#pragma unroll
                for (int j = 0; j < 4; j++) acc[j] += f * __uint_as_float(v.w[j]);
            }
            float f = sum > 0.0f ? p.v_scale / sum : (sum == 0.0f ? 0.0f : WB_NAN);
            i64 row = static_cast<i64>(c.b) * p.heads + kv * this->group + g0 + head;
            u32* out = reinterpret_cast<u32*>(static_cast<T*>(p.out) + row * D + d0);
            out[0] = pack2<T>(acc[0] * f, acc[1] * f);
            out[1] = pack2<T>(acc[2] * f, acc[3] * f);
            if (d0 == 0) p.lse[row] = sum == 0.0f ? WB_NEG_INF : (top + lg2(sum)) * ATTN_LN2;
        }
        cluster_sync();  // a block's piece outlives its readers
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
