//! The packed layout, bit by bit. Kernels, packers and the reference all take it from here.
//!
//! Rows (outputs, n) come in tiles of 16, padded; weights along k in chunks of 128, padded. With T tiles, C chunks and
//! G packed groups a row (C·128/group, or 1 for a whole-row scale):
//!
//! * `qweight`, bytes \[T\]\[C\]\[half 2\]\[lane 32\]\[word 4\], words little-endian u32: 1024 bytes a chunk, which a warp reads
//!   as two coalesced 512-byte loads of 16 bytes a lane. With g = lane / 4 and c = lane % 4, nibble p of word i (bits
//!   4p + 3 to 4p + 6, modulo 32) holds q at
//!   row 16·tile + g + 8·(p & 1), column 128·chunk + 64·half + 32·(i >> 1) + 8·c + 4·(i & 1) + 2·((p >> 1) & 1) + (p >> 2).
//!   So `(rotate_right(word, 4j) & 0x00780078) | 0x41804180` is register j of the A fragment of one mma.m16n8k16 as bf16
//!   numbers 16 + q (with 0x58005800: f16 numbers 128 + q), and the columns a lane needs of x are eight neighbours: 16 bytes.
//! * `scales`, 16-bit floats of the op's dtype \[T\]\[G\]\[8\]\[2\]: entry (g, h) scales row 16·tile + g + 8·h.
//! * `zeros` (asymmetric only), bytes \[T\]\[G rounded up to even\]\[8\]: byte g has the zero point of row 16·tile + g in its
//!   low nibble and of row 16·tile + g + 8 in its high one. (Even, so that bulk copies find multiples of 16 bytes.)
//!
//! The weight is w = (q − z) · s with q and z in 0..=15, and z = 8 where the layout is symmetric. The tensor core multiplies
//! exact integers; zero point and scale enter in fp32, once a group.
//!
//! Cost beside the 4 bits of a weight, group 128: 16/128 = 0.125 bit of scale and 4/128 = 0.031 bit of zero point.

use super::shape::{CHUNK, CHUNK_BYTES, Spec, TILE};

/// Where a quantised value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First byte of its little-endian u32 in `qweight`.
    pub byte: u64,
    /// The word rotated right by this has the value in its low four bits.
    pub rotation: u32,
}

/// The place of q\[row, col\].
pub fn place(spec: &Spec, row: u64, col: u64) -> Place {
    let (tile, r) = (row / TILE, row % TILE);
    let (chunk, k) = (col / CHUNK, col % CHUNK);
    let (half, k) = (k / 64, k % 64);
    let (j, k) = (k / 32, k % 32);
    let (c, k) = (k / 8, k % 8);
    let (ii, k) = (k / 4, k % 4);
    let (pair, h) = (k / 2, k % 2);
    let lane = (r % 8) * 4 + c;
    let nibble = (r / 8) + 2 * pair + 4 * h;
    let word = 2 * j + ii;
    let byte = (tile * spec.chunks() + chunk) * CHUNK_BYTES + half * 512 + lane * 16 + word * 4;
    Place { byte, rotation: 4 * nibble as u32 + 3 }
}

/// The group of a column.
pub fn group_of(spec: &Spec, col: u64) -> u64 {
    col.checked_div(spec.group).unwrap_or(0)
}

/// Element of `scales` for a row and a group.
pub fn scale_index(spec: &Spec, row: u64, group: u64) -> u64 {
    ((row / TILE * spec.packed_groups() + group) * 8 + row % 8) * 2 + row % TILE / 8
}

/// Byte of `zeros` and shift in it for a row and a group.
pub fn zero_place(spec: &Spec, row: u64, group: u64) -> (usize, u32) {
    (((row / TILE * spec.zero_groups() + group) * 8 + row % 8) as usize, 4 * (row % TILE / 8) as u32)
}

/// Bytes of `qweight`.
pub fn qweight_bytes(spec: &Spec) -> u64 {
    spec.tiles() * spec.chunks() * CHUNK_BYTES
}
/// Elements of `scales`.
pub fn scales_len(spec: &Spec) -> u64 {
    spec.tiles() * spec.packed_groups() * TILE
}
/// Bytes of `zeros`; 0 for the symmetric layout.
pub fn zeros_bytes(spec: &Spec) -> u64 {
    if spec.asym { spec.tiles() * spec.zero_groups() * 8 } else { 0 }
}

/// A matrix in the packed layout, ready to upload.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    pub qweight: Vec<u8>,
    /// Bits of the scales in the op's dtype.
    pub scales: Vec<u16>,
    /// Empty for the symmetric layout.
    pub zeros: Vec<u8>,
    /// Act-order: column j of the packed matrix is column `perm[j]` of the original, so feed x\[:, perm\].
    pub perm: Option<Vec<u32>>,
}

impl Packed {
    /// All padding: scale 0.
    pub fn new(spec: &Spec) -> Self {
        Self {
            qweight: vec![0; qweight_bytes(spec) as usize],
            scales: vec![0; scales_len(spec) as usize],
            zeros: vec![0; zeros_bytes(spec) as usize],
            perm: None,
        }
    }
    pub fn set_q(&mut self, spec: &Spec, row: u64, col: u64, q: u8) {
        let at = place(spec, row, col);
        let word = word(&self.qweight, at).rotate_right(at.rotation) & !15 | u32::from(q & 15);
        let bytes = word.rotate_left(at.rotation).to_le_bytes();
        self.qweight[at.byte as usize..at.byte as usize + 4].copy_from_slice(&bytes);
    }
    pub fn set_zero(&mut self, spec: &Spec, row: u64, group: u64, z: u8) {
        let (byte, shift) = zero_place(spec, row, group);
        self.zeros[byte] = self.zeros[byte] & !(15 << shift) | (z & 15) << shift;
    }
    pub fn set_scale(&mut self, spec: &Spec, row: u64, group: u64, bits: u16) {
        self.scales[scale_index(spec, row, group) as usize] = bits;
    }
    pub fn q(&self, spec: &Spec, row: u64, col: u64) -> u8 {
        q_at(&self.qweight, place(spec, row, col))
    }
    /// 8 where the layout is symmetric.
    pub fn zero(&self, spec: &Spec, row: u64, group: u64) -> u8 {
        if spec.asym { zero_at(&self.zeros, zero_place(spec, row, group)) } else { 8 }
    }
}

fn word(qweight: &[u8], at: Place) -> u32 {
    let b = at.byte as usize;
    u32::from_le_bytes([qweight[b], qweight[b + 1], qweight[b + 2], qweight[b + 3]])
}

/// The value at a place of `qweight`.
pub fn q_at(qweight: &[u8], at: Place) -> u8 {
    (word(qweight, at).rotate_right(at.rotation) & 15) as u8
}

/// The zero point at a place of `zeros`.
pub fn zero_at(zeros: &[u8], (byte, shift): (usize, u32)) -> u8 {
    zeros[byte] >> shift & 15
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Shape;

    fn spec(text: &str) -> Spec {
        Spec::read(&Shape::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn every_nibble_has_one_place() {
        let s = spec("n=32,k=256,group=64,zeros=asym");
        let mut p = Packed::new(&s);
        for row in 0..32 {
            for col in 0..256 {
                assert_eq!(p.q(&s, row, col), 0, "row {row} col {col}");
                p.set_q(&s, row, col, 15);
            }
        }
        assert!(p.qweight.iter().all(|b| *b == 0xff));
        let mut scales = vec![0; scales_len(&s) as usize];
        for row in 0..32 {
            for group in 0..4 {
                scales[scale_index(&s, row, group) as usize] += 1;
            }
        }
        assert!(scales.iter().all(|n| *n == 1));
    }

    /// The formula of the documentation, read the other way: from the bit to the weight.
    #[test]
    fn the_documented_formula_is_the_code() {
        let s = spec("n=48,k=384");
        for word_index in 0..qweight_bytes(&s) / 4 {
            let (i, lane, half) = (word_index % 4, word_index / 4 % 32, word_index / 128 % 2);
            let (chunk, tile) = (word_index / 256 % 3, word_index / 768);
            let (g, c) = (lane / 4, lane % 4);
            for p in 0..8 {
                let row = 16 * tile + g + 8 * (p & 1);
                let col = 128 * chunk + 64 * half + 32 * (i >> 1) + 8 * c + 4 * (i & 1) + 2 * ((p >> 1) & 1) + (p >> 2);
                let want = Place { byte: word_index * 4, rotation: 4 * p as u32 + 3 };
                assert_eq!(place(&s, row, col), want);
            }
        }
    }

    /// What a lane computes from a word: bf16 numbers 16 + q, pairs in fragment order.
    #[test]
    fn or_ing_the_magic_gives_the_number() {
        let s = spec("n=16,k=128");
        let mut p = Packed::new(&s);
        for col in 0..4 {
            p.set_q(&s, 0, col, 3 + col as u8);
            p.set_q(&s, 8, col, 11 + col as u8);
        }
        let w = word(&p.qweight, Place { byte: 0, rotation: 0 });
        let register = |j: u32| w.rotate_right(4 * j) & 0x0078_0078 | 0x4180_4180;
        let number = |bits: u32| half::bf16::from_bits(bits as u16).to_f32();
        let pairs: Vec<_> = (0..4).map(|j| (number(register(j)), number(register(j) >> 16))).collect();
        assert_eq!(pairs, [(19.0, 20.0), (27.0, 28.0), (21.0, 22.0), (29.0, 30.0)]);
    }

    #[test]
    fn bits_a_weight() {
        let s = spec("n=4096,k=4096,zeros=asym");
        let weights = (s.n * s.k) as f64;
        assert_eq!(scales_len(&s) as f64 * 16.0 / weights, 0.125);
        assert_eq!(zeros_bytes(&s) as f64 * 8.0 / weights, 0.03125);
    }
}
