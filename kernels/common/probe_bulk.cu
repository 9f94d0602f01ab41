// Reading through the bulk copy engine: the best reader where plain loads cannot keep enough bytes in flight.
#include "../common/wb.cuh"

constexpr int STAGES = 6;
constexpr int STAGE_BYTES = 16384;

// Wrapping sum of the 32-bit words of `chunks` chunks of STAGE_BYTES, added to *out. Dynamic shared memory:
// STAGES * STAGE_BYTES. Below 9.0 it does nothing (and its launch is refused).
WB_KERNEL void probe_read_bulk(const u8* p, i64 chunks, u32* out) {
#if WB_SM90
    WB_DYN_SHARED(u8, stage);
    __shared__ alignas(8) u64 full[STAGES];
    const i64 mine = chunks > blockIdx.x ? (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
    auto issue = [&](i64 k) {
        const int s = static_cast<int>(k % STAGES);
        mbar_arrive_expect_tx(full + s, STAGE_BYTES);
        bulk_load(stage + s * STAGE_BYTES, p + (blockIdx.x + k * gridDim.x) * STAGE_BYTES, STAGE_BYTES, full + s);
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) mbar_init(full + s, 1);
        fence_mbar_init();
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (i64 k = 0; k < STAGES && k < mine; k++) issue(k);
    u32 sum = 0;
    for (i64 k = 0; k < mine; k++) {
        const int s = static_cast<int>(k % STAGES);
        mbar_wait(full + s, static_cast<u32>(k / STAGES) & 1u);
        for (int i = threadIdx.x * 16; i < STAGE_BYTES; i += blockDim.x * 16) {
            Vec16 v = ld16(stage + s * STAGE_BYTES + i);
            sum += v.w[0] + v.w[1] + v.w[2] + v.w[3];
        }
        __syncthreads();
        if (threadIdx.x == 0 && k + STAGES < mine) issue(k + STAGES);
    }
    for (int lane = 16; lane; lane >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (lane_id() == 0) atomicAdd(out, sum);
#endif
}
WB_ENTRY(probe_read_bulk)
