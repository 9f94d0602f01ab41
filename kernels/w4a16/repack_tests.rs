//! Golden vectors: words written by hand, as the checkpoint formats define them.

use super::super::quantize::{dequantize, from_16};
use super::*;

/// k = 32, n = 8, one group: q\[input, output\] = (input + output) mod 16.
fn gptq_words() -> Vec<u32> {
    // Inputs 0..8 of output 0 are 0..7 from the lowest nibble up.
    let first =
        [0x7654_3210u32, 0x8765_4321, 0x9876_5432, 0xa987_6543, 0xba98_7654, 0xcba9_8765, 0xdcba_9876, 0xedcb_a987];
    let second =
        [0xfedc_ba98u32, 0x0fed_cba9, 0x10fe_dcba, 0x210f_edcb, 0x3210_fedc, 0x4321_0fed, 0x5432_10fe, 0x6543_210f];
    [first, second, first, second].concat()
}

fn layer<'a>(qweight: &'a [u32], qzeros: &'a [u32], scales: &'a [f32], zeros: ZeroConvention) -> Gptq<'a> {
    Gptq { n: 8, k: 32, group: 32, zeros, qweight, qzeros, scales, g_idx: None }
}

#[test]
fn gptq_v1_and_v2_differ_by_one() {
    let (qweight, scales) = (gptq_words(), vec![0.5; 8]);
    // Stored 7 is zero point 8 in v1 and 7 in v2.
    let (s, p) = gptq(&layer(&qweight, &[0x7777_7777], &scales, ZeroConvention::V1), DType::Bf16).unwrap();
    assert!(!s.asym);
    let w = dequantize(&p, &s);
    for out in 0..8usize {
        for input in 0..32usize {
            assert_eq!(w[out * 32 + input], (((input + out) % 16) as f32 - 8.0) * 0.5);
        }
    }
    let (s, p) = gptq(&layer(&qweight, &[0x7777_7777], &scales, ZeroConvention::V2), DType::Bf16).unwrap();
    assert!(s.asym);
    assert_eq!(dequantize(&p, &s)[3], (3.0 - 7.0) * 0.5);
}

#[test]
fn gptq_zero_points_go_to_their_own_output_and_wrap() {
    let (qweight, scales) = (gptq_words(), vec![1.0; 8]);
    // Outputs 0..8 have 15, 0, 1, …, 6 stored: v1 zero points 0 (the underflow), 1, 2, …, 7.
    let (s, p) = gptq(&layer(&qweight, &[0x6543_210f], &scales, ZeroConvention::V1), DType::F16).unwrap();
    assert!((0..8).all(|out| p.zero(&s, out, 0) == out as u8));
    let (s, p) = gptq(&layer(&qweight, &[0x6543_210f], &scales, ZeroConvention::V2), DType::F16).unwrap();
    assert_eq!((p.zero(&s, 0, 0), p.zero(&s, 1, 0)), (15, 0));
}

#[test]
fn gptq_act_order_sorts_inputs_by_group() {
    let words: Vec<u32> = [gptq_words(), gptq_words()].concat();
    let scales: Vec<f32> = (0..16).map(|i| if i < 8 { 1.0 } else { 2.0 }).collect();
    let g_idx: Vec<u32> = (0..64).map(|i| (i % 2) ^ 1).collect();
    let t = Gptq {
        n: 8,
        k: 64,
        group: 32,
        zeros: ZeroConvention::V1,
        qweight: &words,
        qzeros: &[0x7777_7777, 0x7777_7777],
        scales: &scales,
        g_idx: Some(&g_idx),
    };
    let (s, p) = gptq(&t, DType::Bf16).unwrap();
    let perm = p.perm.clone().unwrap();
    assert_eq!((perm[0], perm[1], perm[31], perm[32], perm[63]), (1, 3, 63, 0, 62));
    let w = dequantize(&p, &s);
    for out in 0..8usize {
        for col in 0..64 {
            let input = perm[col] as usize;
            let scale = if g_idx[input] == 0 { 1.0 } else { 2.0 };
            assert_eq!(w[out * 64 + col], (((input + out) % 16) as f32 - 8.0) * scale);
        }
    }
    // Sorted already: nothing to permute.
    let sorted: Vec<u32> = (0..64).map(|i| i / 32).collect();
    assert!(gptq(&Gptq { g_idx: Some(&sorted), ..t }, DType::Bf16).unwrap().1.perm.is_none());
    let uneven = vec![0; 64];
    assert!(gptq(&Gptq { g_idx: Some(&uneven), ..t }, DType::Bf16).unwrap_err().0.contains("group 0 64 inputs"));
    let beyond: Vec<u32> = (0..64).map(|i| i / 16).collect();
    assert!(gptq(&Gptq { g_idx: Some(&beyond), ..t }, DType::Bf16).unwrap_err().0.contains("g_idx[32]=2"));
}

#[test]
fn awq_interleaves_weights_and_zero_points() {
    // Outputs 0..8 hold 0..7: in nibbles 0, 2, 4, 6, 1, 3, 5, 7 from the lowest up.
    let word = 0x7531_6420u32;
    let qweight = vec![word; 32];
    // Zero points 8..15 for outputs 0..8.
    let (s, p) =
        awq(&Awq { n: 8, k: 32, group: 32, qweight: &qweight, qzeros: &[0xfdb9_eca8], scales: &[1.0; 8] }, DType::Bf16)
            .unwrap();
    for out in 0..8 {
        assert_eq!(p.q(&s, out, 5), out as u8);
        assert_eq!(p.zero(&s, out, 0), 8 + out as u8);
    }
    // Every weight is out − (8 + out) = −8 then: an interleave forgotten in one of the two cannot give that.
    assert!(dequantize(&p, &s).iter().all(|w| *w == -8.0));
}

#[test]
fn sizes_that_disagree_are_named() {
    let (qweight, scales) = (gptq_words(), vec![1.0; 8]);
    let t = layer(&qweight, &[0x7777_7777], &scales, ZeroConvention::V1);
    let e = |t: &Gptq| gptq(t, DType::Bf16).unwrap_err().0;
    assert!(e(&Gptq { k: 2880, group: 128, ..t }).contains("k=2880 is not a multiple of group=128"));
    // Scales that were not cut along k with the weights.
    assert!(e(&Gptq { scales: &[1.0; 16], ..t }).contains("scales has 16 elements, 1 x 8 = 8 expected"));
    assert!(e(&Gptq { n: 12, ..t }).contains("n=12 is not a multiple of 8"));
    assert!(gptq(&Gptq { scales: &[1e6; 8], ..t }, DType::F16).unwrap_err().0.contains("not finite in f16"));
    assert!(ZeroConvention::of_format("marlin").is_err());
    assert_eq!(ZeroConvention::of_format("gptq_v2").unwrap(), ZeroConvention::V2);
}

#[test]
fn scales_round_once_to_the_type() {
    let qweight = gptq_words();
    let t = layer(&qweight, &[0x7777_7777], &[0.1; 8], ZeroConvention::V1);
    let (_, p) = gptq(&t, DType::F16).unwrap();
    assert_eq!(from_16(p.scales[0], DType::F16), half::f16::from_f32(0.1).to_f32());
}
