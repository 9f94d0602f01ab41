// The same product fed by bulk copies: one extra warp asks for a stage of the block's stream (`warps` chunks of a tile in
// one instruction, their scales and zero points in two more) and an mbarrier a stage tells when it has landed.
//
// What it buys over direct loads: no registers hold data in flight, so the depth is free to choose and the next kernel's
// blocks fit beside this one's under programmatic dependent launch; no address arithmetic in the computing warps. What it
// costs: every byte passes through shared memory once more, and a stage is spent when its slowest warp is done.
#include "gemv.cuh"

// A chunk's share of a stage: weights, up to four groups' scales, zero points.
constexpr u32 kScaleBytes = 32, kZeroBytes = 8;

template <class T, int GPC, bool ASYM> WB_DEVICE void gemv_bulk(const GemvArgs<T>& a, u32 depth) {
#if WB_SM90
    WB_DYN_SHARED(u8, shared);
    const u32 warps = (blockDim.x >> 5) - 1, warp = warp_id(), lane = lane_id();
    const u32 stage_bytes = warps * (kChunkBytes + 4 * (kScaleBytes + kZeroBytes));
    u64* full = reinterpret_cast<u64*>(shared + depth * stage_bytes);
    u64* empty = full + depth;
    u8* x_at = shared + depth * stage_bytes + ((depth * 16 + 127) & ~127u);
    float* red = reinterpret_cast<float*>(x_at + a.m * x_stride(a.chunks));
    float* sums = red + 2 * warps * kMaxM * kTile;
    float* scratch = sums + a.chunks * Chains<GPC>::n * kMaxM;
    const u32 scales_at = warps * kChunkBytes, zeros_at = scales_at + warps * 4 * kScaleBytes;

    Walk now = {};
    now.start(a, warps);
    const u32 total = now.total;
    auto fetch = [&](u8* stage, u64* bar) {
        const u32 first = now.step * warps;
        const u32 count = a.chunks - first < warps ? a.chunks - first : warps;
        const u32 groups = a.groups == 1 ? 1 : count * GPC;
        const u32 zero_bytes = ASYM ? (groups * kZeroBytes + 15) & ~15u : 0;
        mbar_arrive_expect_tx(bar, count * kChunkBytes + groups * kScaleBytes + zero_bytes);
        bulk_load(stage, a.qweight + (static_cast<u64>(now.tile) * a.chunks + first) * kChunkBytes, count * kChunkBytes,
                  bar);
        const u32 group = a.groups == 1 ? 0 : first * GPC;
        bulk_load(stage + scales_at, a.scales + (static_cast<u64>(now.tile) * a.groups + group) * 8,
                  groups * kScaleBytes, bar);
        if (ASYM)
            bulk_load(stage + zeros_at, a.zeros + (static_cast<u64>(now.tile) * a.zero_groups + group) * 8, zero_bytes,
                      bar);
        now.next();
    };
    const bool producer = warp == warps;
    if (producer && lane == 0) {
        for (u32 d = 0; d < depth; d++) {
            mbar_init(full + d, 1);
            mbar_init(empty + d, warps);
        }
        fence_mbar_init();
        fence_proxy_async();
        // Weights do not depend on the kernel before: ask for them first.
        for (u32 d = 0; d < depth && d < total; d++) fetch(shared + d * stage_bytes, full + d);
    }
    __syncwarp();
    prefetch_norm(a);
    pdl_wait();
    // Its barriers also show the mbarriers to everybody.
    stage_x<T, Chains<GPC>::run>(x_at, sums, scratch, a);

    u32 slot = 0, phase = 0;
    if (producer) {
        if (lane != 0) return;
        // The next kernel's blocks are let in only when this one has nothing left to ask for: earlier they take the slots
        // that the kernel before this one leaves, unevenly, and two blocks that share an SM then finish last.
        for (u32 i = depth; i < total; i++) {
            mbar_wait(empty + slot, phase);
            fetch(shared + slot * stage_bytes, full + slot);
            if (++slot == depth) slot = 0, phase ^= 1;
        }
        pdl_launch();
        return;
    }
    const u32 g = lane >> 2, c = lane & 3;
    // Columns beyond m read a real one: their products are never stored.
    const u8* xs = x_at + (g < a.m ? g : a.m - 1) * x_stride(a.chunks) + c * 16 + warp * (kChunk * 2);
    const float* own_sums = sums + warp * (Chains<GPC>::n * kMaxM) + 2 * c;
    const u32 meta = (a.groups == 1 ? 0 : warp * GPC) * 8 + g;
    // Places in stage 0; a stage on, they are stage_bytes on.
    const u8* weights_at = shared + warp * kChunkBytes + lane * 16;
    const u8* scale_at = shared + scales_at + meta * 4;
    const u8* zero_at = shared + zeros_at + meta;
    u32 offset = 0;
    Finish<T> finish;
    finish.start(a, red, warps, scratch);
    for (u32 item = blockIdx.x; item < now.up; item += gridDim.x) {
        for (u32 part = 0; part < now.parts; part++) {
            const u32 tile = item + part * now.up;
            finish.prefetch(a, tile);
            float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            const u8* x = xs;
            const float* x_sums = own_sums;
            for (u32 chunk = warp; chunk < now.steps * warps; chunk += warps) {
                mbar_wait(full + slot, phase);
                if (chunk < a.chunks) {
                    const Vec16 w[2] = {ld16(weights_at + offset), ld16(weights_at + offset + 512)};
                    u32 scale[GPC], zero[GPC];
#pragma unroll
                    for (int j = 0; j < GPC; j++) {
                        scale[j] = *reinterpret_cast<const u32*>(scale_at + offset + j * 32);
                        zero[j] = ASYM ? (zero_at + offset)[j * 8] : 0;
                    }
                    chunk_product<T, GPC, ASYM>(acc, w, scale, zero, x, x_sums);
                }
                x += warps * (kChunk * 2);
                x_sums += warps * (Chains<GPC>::n * kMaxM);
                // All lanes have read the slot before it is asked for again.
                __syncwarp();
                if (lane == 0) mbar_arrive(empty + slot);
                offset += stage_bytes;
                if (++slot == depth) slot = 0, phase ^= 1, offset = 0;
            }
            finish.tile(a, acc, tile, part, item);
        }
    }
#endif
}

// Three blocks a multiprocessor where registers allow: two of this kernel and the first of the next.
#define ENTRY(NAME, T, GPC, ASYM)                                                                                      \
    WB_KERNEL void __launch_bounds__(288, GPC == 1 && LateNorm<T>::value ? 3 : 2) \
        NAME(const u8* qweight, const u32* scales, const u8* zeros, const T* x, const T* norm, const T* residual,      \
             void* out, u32 m, u32 n, u32 k, u32 chunks, u32 groups, u32 zero_groups, i32 pre, i32 post, i32 out_f32,  \
             float eps, u32 depth) {                                                                                   \
        gemv_bulk<T, GPC, ASYM>(GemvArgs<T>{qweight, scales, zeros, x, norm, residual, out, m, n, k, chunks, groups,   \
                                            zero_groups, pre, post, out_f32, eps},                                     \
                                depth);                                                                                \
    }                                                                                                                  \
    WB_ENTRY(NAME)

ENTRY(w4a16_gemv_bulk_bf16_g128_sym, bf16, 1, false)
ENTRY(w4a16_gemv_bulk_bf16_g128_asym, bf16, 1, true)
ENTRY(w4a16_gemv_bulk_bf16_g64_sym, bf16, 2, false)
ENTRY(w4a16_gemv_bulk_bf16_g64_asym, bf16, 2, true)
ENTRY(w4a16_gemv_bulk_bf16_g32_sym, bf16, 4, false)
ENTRY(w4a16_gemv_bulk_bf16_g32_asym, bf16, 4, true)
ENTRY(w4a16_gemv_bulk_f16_g128_sym, f16, 1, false)
ENTRY(w4a16_gemv_bulk_f16_g128_asym, f16, 1, true)
ENTRY(w4a16_gemv_bulk_f16_g64_sym, f16, 2, false)
ENTRY(w4a16_gemv_bulk_f16_g64_asym, f16, 2, true)
ENTRY(w4a16_gemv_bulk_f16_g32_sym, f16, 4, false)
ENTRY(w4a16_gemv_bulk_f16_g32_asym, f16, 4, true)
