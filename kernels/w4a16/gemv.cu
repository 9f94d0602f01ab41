// Direct loads: every lane keeps DEPTH chunks (two 16-byte loads each) of weights in registers, all in flight before the
// first is used, and refills a slot as soon as it is spent, across tile ends and their barriers.
#include "gemv.cuh"

template <class T, int GPC, bool ASYM, int DEPTH> WB_DEVICE void gemv(const GemvArgs<T>& a) {
    WB_DYN_SHARED(u8, shared);
    const u32 warps = blockDim.x >> 5, warp = warp_id(), lane = lane_id();
    float* red = reinterpret_cast<float*>(shared + a.m * x_stride(a.chunks));
    float* sums = red + 2 * warps * kMaxM * kTile;
    float* scratch = sums + a.chunks * Chains<GPC>::n * kMaxM;
    const u32 g = lane >> 2, c = lane & 3;
    // Columns beyond m read a real one: their products are never stored.
    const u8* xs = shared + (g < a.m ? g : a.m - 1) * x_stride(a.chunks) + c * 16;

    struct Slot {
        Vec16 w[2];
        u32 scale[GPC], zero[GPC];
    };
    Slot ring[DEPTH];
    Walk ahead, now = {};
    now.start(a, warps);
    ahead = now;
    const u32 total = now.total;
    // Where this lane's next chunk lies; one scale for the whole row stays in place.
    const u32 meta = a.groups == 1 ? 0 : GPC;
    const u8* w_at;
    const u32* scale_at;
    const u8* zero_at;
    auto seek = [&]() {
        w_at = a.qweight + (static_cast<u64>(ahead.tile) * a.chunks + warp) * kChunkBytes + lane * 16;
        scale_at = a.scales + (static_cast<u64>(ahead.tile) * a.groups + warp * meta) * 8 + g;
        zero_at = a.zeros + (static_cast<u64>(ahead.tile) * a.zero_groups + warp * meta) * 8 + g;
    };
    auto fetch = [&](Slot& slot) {
        if (ahead.step * warps + warp < a.chunks) {
            slot.w[0] = ld16_nc(w_at);
            slot.w[1] = ld16_nc(w_at + 512);
#pragma unroll
            for (int i = 0; i < GPC; i++) {
                slot.scale[i] = __ldg(scale_at + i * 8);
                slot.zero[i] = ASYM ? __ldg(zero_at + i * 8) : 0;
            }
        }
        if (ahead.next()) {
            seek();
        } else {
            w_at += warps * kChunkBytes;
            scale_at += warps * meta * 8;
            zero_at += warps * meta * 8;
        }
    };
    // Weights do not depend on the kernel before: ask for them first.
    seek();
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        if (static_cast<u32>(d) < total) fetch(ring[d]);
    }
    prefetch_norm(a);
    pdl_wait();
    stage_x<T, Chains<GPC>::run>(shared, sums, scratch, a);
    Finish<T> finish;
    finish.start(a, red, warps, scratch);
    finish.prefetch(a, now.tile);
    float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (u32 base = 0; base < total; base += DEPTH) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (base + d >= total) break;
            const u32 chunk = now.step * warps + warp;
            if (chunk < a.chunks) {
                chunk_product<T, GPC, ASYM>(acc, ring[d].w, ring[d].scale, ring[d].zero, xs + chunk * (kChunk * 2),
                                            sums + chunk * (Chains<GPC>::n * kMaxM) + 2 * c);
            }
            if (base + d + DEPTH < total) fetch(ring[d]);
            else pdl_launch();  // as late as there is nothing left to ask for; gemv_bulk.cu says why
            if (now.last()) {
                finish.tile(a, acc, now.tile, now.part, now.item);
                acc[0] = acc[1] = acc[2] = acc[3] = 0.0f;
                now.next();
                if (base + d + 1 < total) finish.prefetch(a, now.tile);
            } else {
                now.step++;
            }
        }
    }
}

#define ENTRY(NAME, T, GPC, ASYM)                                                                                      \
    WB_KERNEL void __launch_bounds__(512, 1)                                                                             \
        NAME(const u8* qweight, const u32* scales, const u8* zeros, const T* x, const T* norm, const T* residual,      \
             void* out, u32 m, u32 n, u32 k, u32 chunks, u32 groups,        \
             u32 zero_groups, i32 pre, i32 post, i32 out_f32, float eps) {      \
        gemv<T, GPC, ASYM, 4>(GemvArgs<T>{qweight, scales, zeros, x, norm, residual, out, m, n, k, chunks, groups,     \
                                          zero_groups, pre, post, out_f32, eps});                                                   \
    }                                                                                                                  \
    WB_ENTRY(NAME)

ENTRY(w4a16_gemv_bf16_g128_sym, bf16, 1, false)
ENTRY(w4a16_gemv_bf16_g128_asym, bf16, 1, true)
ENTRY(w4a16_gemv_bf16_g64_sym, bf16, 2, false)
ENTRY(w4a16_gemv_bf16_g64_asym, bf16, 2, true)
ENTRY(w4a16_gemv_bf16_g32_sym, bf16, 4, false)
ENTRY(w4a16_gemv_bf16_g32_asym, bf16, 4, true)
ENTRY(w4a16_gemv_f16_g128_sym, f16, 1, false)
ENTRY(w4a16_gemv_f16_g128_asym, f16, 1, true)
ENTRY(w4a16_gemv_f16_g64_sym, f16, 2, false)
ENTRY(w4a16_gemv_f16_g64_asym, f16, 2, true)
ENTRY(w4a16_gemv_f16_g32_sym, f16, 4, false)
ENTRY(w4a16_gemv_f16_g32_asym, f16, 4, true)
