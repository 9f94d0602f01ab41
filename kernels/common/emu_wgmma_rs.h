// Host twin of ptx_wgmma_rs.cuh. It acts at once, as emu_tensor.h says: a use of registers before the wait is not seen.
#pragma once

template <class T, int N> struct WbWgmmaRs {
    float* d;
    const u32* a;
    u64 b;
    i32 scale_d;
    static void whole(void** data, u32 mask) {
        if (mask != 0xffffffffu) wb_emu::fail("wgmma needs all 32 lanes");
        float a[16][16];
        for (u32 lane = 0; lane < 32; lane++) {
            auto* l = static_cast<WbWgmmaRs*>(data[lane]);
            u32 g = lane / 4, t = lane % 4 * 2;
            for (u32 r = 0; r < 4; r++)
                for (u32 h = 0; h < 2; h++)
                    a[g + r % 2 * 8][t + r / 2 * 8 + h] = to_float(T{static_cast<u16>(l->a[r] >> (16 * h))});
        }
        for (u32 lane = 0; lane < 32; lane++) {
            auto* l = static_cast<WbWgmmaRs*>(data[lane]);
            for (u32 i = 0; i < N / 2; i++) {
                u32 row = lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
                float sum = l->scale_d ? l->d[i] : 0.0f;
                for (u32 k = 0; k < 16; k++) sum += a[row][k] * to_float(T{*wb_swizzled((l->b << 4) + column * 128 + k * 2)});
                l->d[i] = sum;
            }
        }
    }
};

template <class T, int N> struct WgmmaRs {
    static void run(float (&d)[N / 2], const u32 (&a)[4], u64 b, i32 scale_d) {
        WbWgmmaRs<T, N> m{d, a, b, scale_d};
        wb_emu::collective(0xffffffffu, WbWgmmaRs<T, N>::whole, &m, "wgmma");
    }
};
