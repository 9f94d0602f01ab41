// Nibbles to 16-bit floats in two instructions a pair, and what is owed for it.
//
// A nibble lies three bits up in its half word, where the mantissa of bf16 ends: or-ing the bits of 16.0 makes 16 + q, with
// nothing rounded. (f16 has three more mantissa bits: there the same place and the bits of 128.0 make 128 + q.) So the
// tensor core multiplies exact integers OFFSET + q, and OFFSET + z has to be taken off once a group:
//     sum (q - z) x = sum (OFFSET + q) x - (OFFSET + z) sum x.
// The accumulator starts at -(OFFSET + z) sum x, fp32 like all that follows; the sums of x are made once and serve all rows.
// Beside q - z itself the terms are at most 31/8 (f16: 143/8) times larger, so 2 (f16: 5) of fp32's 24 bits are spent.
#pragma once

template <class T> struct Magic;
template <> struct Magic<bf16> {
    static constexpr u32 bits = 0x41804180u;
    static constexpr float offset = 16.0f;
};
template <> struct Magic<f16> {
    static constexpr u32 bits = 0x58005800u;
    static constexpr float offset = 128.0f;
};

// A word of the packed layout to the A fragment of one m16n8k16, as OFFSET + q: nibbles j and j + 4 become register j;
// registers 0 and 2 belong to the lane's row g, 1 and 3 to row g + 8.
template <class T> WB_DEVICE void dequant_word(u32 (&a)[4], u32 w) {
    constexpr u32 mask = 0x00780078u, magic = Magic<T>::bits;
    a[0] = lop3<0xEA>(w, mask, magic);
    a[1] = lop3<0xEA>(w >> 4, mask, magic);
    a[2] = lop3<0xEA>(w >> 8, mask, magic);
    a[3] = lop3<0xEA>((w >> 12) | (w << 20), mask, magic);  // a rotation: nibble 7 wraps around the word
}

// The same with the zero point taken off at once, q - z exactly: four more instructions a word. Where a fragment serves
// many columns they cost less than the sums of x. `top` and `bottom` are zero_of the rows' zero points.
template <class T> WB_DEVICE u32 zero_of(u32 z);
template <> WB_DEVICE u32 zero_of<bf16>(u32 z) { return 0xc180c180u + z * 0x00080008u; }  // -(16 + z)
template <> WB_DEVICE u32 zero_of<f16>(u32 z) { return 0xd800d800u + z * 0x00080008u; }   // -(128 + z)
WB_DEVICE u32 add_pair(bf16*, u32 a, u32 b) { return fma_bf16x2(a, 0x3f803f80u, b); }
WB_DEVICE u32 add_pair(f16*, u32 a, u32 b) { return fma_f16x2(a, 0x3c003c00u, b); }
template <class T> WB_DEVICE void dequant_word_exact(u32 (&a)[4], u32 w, u32 top, u32 bottom) {
    dequant_word<T>(a, w);
    T* type = nullptr;
    a[0] = add_pair(type, a[0], top);
    a[1] = add_pair(type, a[1], bottom);
    a[2] = add_pair(type, a[2], top);
    a[3] = add_pair(type, a[3], bottom);
}
