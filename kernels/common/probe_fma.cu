// The rate of fp32 fused multiply-adds: eight independent chains a thread hide the pipe's latency, and nothing is loaded.
#include "../common/wb.cuh"

constexpr int CHAINS = 8;

// Each chain repeats x = x * a + b `rounds` times from x = chain + thread % 32; out gets each thread's sum of chains.
// 2 * CHAINS * rounds floating-point operations a thread.
WB_KERNEL void probe_fma(float* out, i32 rounds, float a, float b) {
    float x[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; c++) x[c] = static_cast<float>(c + (threadIdx.x & 31));
#pragma unroll 16
    for (i32 r = 0; r < rounds; r++)
#pragma unroll
        for (int c = 0; c < CHAINS; c++) x[c] = fmaf(x[c], a, b);
    float total = 0.0f;
#pragma unroll
    for (int c = 0; c < CHAINS; c++) total += x[c];
    out[static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x] = total;
}
WB_ENTRY(probe_fma)
