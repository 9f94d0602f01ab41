// Nibbles to 16-bit floats, exactly: q lands in the low mantissa bits of a power of two, whose value (and the zero point)
// one fused multiply-add takes away again. q - z lies in -15..15, so no step rounds.
#pragma once

// What has to be taken away for a row's zero point, in both halves of a register.
template <class T> struct Zero {
    u32 low;   // for nibbles at bits 0..3 of a half: 2^e + q
    u32 high;  // f16 only, nibbles at bits 4..7: (1024 + 16 q) / 16
};
template <class T> WB_DEVICE Zero<T> zero_of(u32 z);
template <> WB_DEVICE Zero<bf16> zero_of<bf16>(u32 z) { return {0xc300c300u + z * 0x00010001u, 0}; }  // -(128 + z)
template <> WB_DEVICE Zero<f16> zero_of<f16>(u32 z) {
    return {0xe400e400u + z * 0x00010001u, 0xd400d400u + z * 0x00100010u};  // -(1024 + z), -(64 + z)
}

// A word of the packed layout to the A fragment of one m16n8k16: nibbles j and j + 4 become register j; registers 0 and
// 2 belong to the lane's row g, 1 and 3 to row g + 8.
WB_DEVICE void dequant_word(u32 (&a)[4], u32 w, Zero<bf16> top, Zero<bf16> bottom) {
    constexpr u32 mask = 0x000f000fu, magic = 0x43004300u, one = 0x3f803f80u;
    a[0] = fma_bf16x2(lop3<0xEA>(w, mask, magic), one, top.low);
    a[1] = fma_bf16x2(lop3<0xEA>(w >> 4, mask, magic), one, bottom.low);
    a[2] = fma_bf16x2(lop3<0xEA>(w >> 8, mask, magic), one, top.low);
    a[3] = fma_bf16x2(lop3<0xEA>(w >> 12, mask, magic), one, bottom.low);
}
// f16 has mantissa bits enough for two nibbles in place: half the shifts.
WB_DEVICE void dequant_word(u32 (&a)[4], u32 w, Zero<f16> top, Zero<f16> bottom) {
    constexpr u32 mask = 0x000f000fu, magic = 0x64006400u, one = 0x3c003c00u, sixteenth = 0x2c002c00u;
    u32 v = w >> 8;
    a[0] = fma_f16x2(lop3<0xEA>(w, mask, magic), one, top.low);
    a[1] = fma_f16x2(lop3<0xEA>(w, mask << 4, magic), sixteenth, bottom.high);
    a[2] = fma_f16x2(lop3<0xEA>(v, mask, magic), one, top.low);
    a[3] = fma_f16x2(lop3<0xEA>(v, mask << 4, magic), sixteenth, bottom.high);
}
