// Decode attention, first step of the ladder: one block for each (request, kv head) reads the whole context once with
// an online softmax, no scores in memory. Right, short, and as parallel as there are requests times kv heads: at batch
// 1 with 8 kv heads it keeps 8 of 132 multiprocessors busy.
//
// Grid (kv heads * head tiles of 4, requests), 128 threads. plan_a, plan_b: unused.
#include "simt.cuh"

template <class T, class KV, int D> WB_DEVICE void one_pass(const Problem& p, float* exchange) {
    pdl_launch();
    pdl_wait();
    Simt<T, KV, D> s(p, blockIdx.y, blockIdx.x);
    s.load_q();
    s.append(s.g0 == 0 && s.warp == 0 && s.row == 0);
    s.fold(0, s.len);
    for (int j = 0; j < s.live(); j++) {
        float acc[8], top, sum;
        if (s.join(j, exchange, acc, top, sum))
            write_out<T, D>(p, s.b, s.kv * s.group + s.g0 + j, threadIdx.x * 8, acc, top, sum);
    }
}

#define ONE_PASS(name, T, KV, D)                                       \
    WB_KERNEL void __launch_bounds__(128) name(ATTN_PARAMS) {          \
        __shared__ float exchange[Simt<T, KV, D>::EXCHANGE / 4];       \
        Problem p{ATTN_ARGS};                                          \
        one_pass<T, KV, D>(p, exchange);                               \
    }                                                                  \
    WB_ENTRY(name)
#define ONE_PASS_DIMS(T, KV, types)                                    \
    ONE_PASS(paged_attention_one_pass_##types##_d64, T, KV, 64)        \
    ONE_PASS(paged_attention_one_pass_##types##_d96, T, KV, 96)        \
    ONE_PASS(paged_attention_one_pass_##types##_d128, T, KV, 128)      \
    ONE_PASS(paged_attention_one_pass_##types##_d192, T, KV, 192)      \
    ONE_PASS(paged_attention_one_pass_##types##_d256, T, KV, 256)

ONE_PASS_DIMS(bf16, bf16, bf16)
ONE_PASS_DIMS(f16, f16, f16)
ONE_PASS_DIMS(bf16, e4m3, bf16_e4m3)
ONE_PASS_DIMS(f16, e4m3, f16_e4m3)
