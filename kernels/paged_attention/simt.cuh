// Decode attention on the CUDA cores: what `one_pass` and `split` share. A row of the cache is spread over neighbouring
// lanes, eight elements each, so that a warp reads whole rows with vector loads; a dot product is eight multiply-adds
// and a few shuffles. Each warp folds its rows into its own online softmax; the block joins the warps at the end.
#pragma once
#include "problem.cuh"

template <class T, class KV, int D> struct Simt {
    static constexpr int WARPS = 4, THREADS = 128, HEADS = 4;
    static constexpr int PARTS = D / 8;                                  // lanes that hold a row
    static constexpr int LANES = PARTS <= 8 ? 8 : PARTS <= 16 ? 16 : 32;  // rounded up to a power of two
    static constexpr int ROWS = 32 / LANES;                              // rows a warp reads at once

    const Problem& p;
    int lane, warp, part, row;
    i32 group, gtiles, b, kv, g0, len;
    float q[HEADS][8], o[HEADS][8], m[HEADS], l[HEADS];
    float new_k[8], new_v[8];  // with `fused`: the new token's row as the cache holds it

    WB_DEVICE Simt(const Problem& p, i32 b, i32 h) : p(p), lane(lane_id()), warp(warp_id()), b(b) {
        part = lane % LANES;
        row = lane / LANES;
        group = p.group();
        gtiles = (group + HEADS - 1) / HEADS;
        kv = h / gtiles;
        g0 = (h % gtiles) * HEADS;
        len = p.length(b);
    }
    WB_DEVICE bool holds() const { return part < PARTS; }
    WB_DEVICE i32 live() const { return group - g0 < HEADS ? group - g0 : HEADS; }

    template <class E> WB_DEVICE static void widen8(const E* at, float (&x)[8]) {
        if constexpr (sizeof(E) == 2) {
            unpack16<E>(ld16(at), x);
        } else {
            const u32* w = reinterpret_cast<const u32*>(at);
            u32 half[2] = {w[0], w[1]};
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] = to_float(e4m3{static_cast<u8>(half[i / 4] >> (8 * (i % 4)))});
        }
    }
    template <class E> WB_DEVICE static void round8(float (&x)[8]) {
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = to_float(from_float<E>(x[i]));
    }
    // Eight elements of a projection row, rotated (each needs its partner half a row away).
    WB_DEVICE void rotated8(const T* at, float (&x)[8]) const {
        constexpr int HALF = D / 2;
        i32 pos = len - 1 < p.max_pos ? len - 1 : p.max_pos - 1;
        const float* cs = p.cos_sin + static_cast<i64>(pos) * D;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int d = part * 8 + i;
            bool low = d < HALF;
            float mine = to_float(at[d]), other = to_float(at[low ? d + HALF : d - HALF]);
            float c = cs[low ? d : d - HALF], s = cs[low ? d + HALF : d];
            x[i] = low ? mine * c - other * s : mine * c + other * s;
        }
    }
    WB_DEVICE void load_q() {
#pragma unroll
        for (int j = 0; j < HEADS; j++) {
#pragma unroll
            for (int i = 0; i < 8; i++) q[j][i] = o[j][i] = 0.0f;
            m[j] = WB_NEG_INF;
            l[j] = 0.0f;
            if (j >= live() || !holds() || len == 0) continue;
            const T* at = static_cast<const T*>(p.q) + b * p.q_row + static_cast<i64>(kv * group + g0 + j) * D;
            if (p.fused) {
                rotated8(at, q[j]);
                round8<T>(q[j]);
            } else {
                widen8<T>(at + part * 8, q[j]);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) q[j][i] *= p.scale_log2;
        }
    }
    // With `fused`: the new key and value, kept by every lane for its part, and written to the cache if `write`.
    WB_DEVICE void append(bool write) {
        if (!p.fused || !holds() || len == 0) return;
        const T* k = static_cast<const T*>(p.q) + b * p.q_row + static_cast<i64>(p.heads + kv) * D;
        rotated8(k, new_k);
        widen8<T>(k + static_cast<i64>(p.kv_heads) * D + part * 8, new_v);
#pragma unroll
        for (int i = 0; i < 8 && sizeof(KV) == 1; i++) {
            new_k[i] /= p.k_scale;
            new_v[i] /= p.v_scale;
        }
        round8<KV>(new_k);
        round8<KV>(new_v);
        u32 at = p.chunk(b, len - 1, kv);
        if (!write || at == NO_CHUNK) return;
        KV* kc = reinterpret_cast<KV*>(static_cast<unsigned char*>(p.k_cache) + static_cast<u64>(at) * 16) + part * 8;
        KV* vc = reinterpret_cast<KV*>(static_cast<unsigned char*>(p.v_cache) + static_cast<u64>(at) * 16) + part * 8;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            kc[i] = from_float<KV>(new_k[i]);
            vc[i] = from_float<KV>(new_v[i]);
        }
    }

    // Folds tokens begin .. end (in the block's stride) into m, l and o.
    WB_DEVICE void fold(i32 begin, i32 end) {
        for (i32 t0 = begin + warp * ROWS; t0 < end; t0 += WARPS * ROWS) {
            i32 t = t0 + row;
            bool valid = t < end;
            float k[8], v[8];
#pragma unroll
            for (int i = 0; i < 8; i++) k[i] = v[i] = 0.0f;
            if (valid && holds()) {
                if (p.fused && t == len - 1) {
#pragma unroll
                    for (int i = 0; i < 8; i++) k[i] = new_k[i], v[i] = new_v[i];
                } else {
                    u32 at = p.chunk(b, t, kv);
                    if (at != NO_CHUNK) {
                        u64 off = static_cast<u64>(at) * 16 + part * 8 * sizeof(KV);
                        widen8<KV>(reinterpret_cast<const KV*>(static_cast<const unsigned char*>(p.k_cache) + off), k);
                        widen8<KV>(reinterpret_cast<const KV*>(static_cast<const unsigned char*>(p.v_cache) + off), v);
                    }
                }
            }
#pragma unroll
            for (int j = 0; j < HEADS; j++) {
                float s = 0.0f;
#pragma unroll
                for (int i = 0; i < 8; i++) s += q[j][i] * k[i];
                s = warp_sum<LANES>(s);
                if (!valid) s = WB_NEG_INF;
                float top = fmaxf(m[j], s), from = finite_max(top);
                float keep = ex2(m[j] - from), w = ex2(s - from);
                m[j] = top;
                l[j] = l[j] * keep + w;
#pragma unroll
                for (int i = 0; i < 8; i++) o[j][i] = o[j][i] * keep + w * v[i];
            }
        }
    }

    // State of each (warp, row) for the block: o [row][D], then top and sum.
    static constexpr int GROUPS = WARPS * ROWS, PITCH = D + 4;
    static constexpr int EXCHANGE = GROUPS * (PITCH + 2) * 4;  // bytes, one head at a time

    // Joins the block's rows of one head for eight dimensions a thread (the first D / 8 threads get a result).
    WB_DEVICE bool join(int j, float* exchange, float (&acc)[8], float& top, float& sum) const {
        float* ml = exchange + GROUPS * PITCH;
        int mine = warp * ROWS + row;
        __syncthreads();
        if (holds()) {
#pragma unroll
            for (int i = 0; i < 8; i++) exchange[mine * PITCH + part * 8 + i] = o[j][i];
        }
        if (part == 0) {
            ml[mine * 2] = m[j];
            ml[mine * 2 + 1] = l[j];
        }
        __syncthreads();
        if (threadIdx.x >= PARTS) return false;
        top = WB_NEG_INF;
        for (int w = 0; w < GROUPS; w++) top = fmaxf(top, ml[w * 2]);
        float from = finite_max(top);
        sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) acc[i] = 0.0f;
        for (int w = 0; w < GROUPS; w++) {
            float f = ex2(ml[w * 2] - from);
            sum += f * ml[w * 2 + 1];
#pragma unroll
            for (int i = 0; i < 8; i++) acc[i] += f * exchange[w * PITCH + threadIdx.x * 8 + i];
        }
        return true;
    }
};
