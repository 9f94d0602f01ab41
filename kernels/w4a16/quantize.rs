//! Round-to-nearest quantisation to the packed layout, for weights that come as floats.

use super::layout::Packed;
use super::shape::{Spec, check_group};
use crate::op::{DType, OpResult};
use crate::op_error;
use half::{bf16, f16};

/// Quantises `w` \[n, k\] row-major. Symmetric: s = max |w| / 7.5 over the group (clamped q, so that ±max lose at most
/// half a step), z = 8. Asymmetric: s = (max − min) / 15 over the group widened to contain 0, z = round(−min / s).
/// Scales are rounded to the spec's 16-bit type first, and q is chosen for the rounded scale.
///
/// # Errors
/// A `w` of another length, a group that does not divide k, a weight that is not finite.
pub fn round_to_nearest(w: &[f32], spec: &Spec) -> OpResult<Packed> {
    check_group(spec.k, spec.group)?;
    let (n, k) = (spec.n, spec.k);
    if w.len() as u64 != n * k {
        return Err(op_error!("w4a16: {} weights given for n={n}, k={k} ({} needed)", w.len(), n * k));
    }
    let mut packed = Packed::new(spec);
    let width = if spec.group == 0 { k } else { spec.group };
    for row in 0..n {
        for group in 0..spec.groups() {
            let first = row * k + group * width;
            let values = &w[first as usize..(first + width) as usize];
            if let Some(i) = values.iter().position(|v| !v.is_finite()) {
                return Err(op_error!("w4a16: weight [{row}, {}] is {}", group * width + i as u64, values[i]));
            }
            let (scale, bits, zero) = parameters(values, spec);
            packed.set_scale(spec, row, group, bits);
            if spec.asym {
                packed.set_zero(spec, row, group, zero);
            }
            for (i, v) in values.iter().enumerate() {
                let q = if scale > 0.0 { (v / scale).round() + f32::from(zero) } else { f32::from(zero) };
                packed.set_q(spec, row, group * width + i as u64, q.clamp(0.0, 15.0) as u8);
            }
        }
    }
    Ok(packed)
}

/// Scale as a number and as bits, zero point.
fn parameters(values: &[f32], spec: &Spec) -> (f32, u16, u8) {
    let (lo, hi) = values.iter().fold((0.0f32, 0.0f32), |(lo, hi), v| (lo.min(*v), hi.max(*v)));
    let exact = if spec.asym { (hi - lo) / 15.0 } else { hi.max(-lo) / 7.5 };
    let (scale, bits) = to_16(exact, spec.dtype);
    let zero = if !spec.asym {
        8
    } else if scale > 0.0 {
        (-lo / scale).round().clamp(0.0, 15.0) as u8
    } else {
        0
    };
    (scale, bits, zero)
}

/// A float rounded to the 16-bit type, and its bits.
pub fn to_16(v: f32, dtype: DType) -> (f32, u16) {
    if dtype == DType::F16 {
        let h = f16::from_f32(v);
        (h.to_f32(), h.to_bits())
    } else {
        let h = bf16::from_f32(v);
        (h.to_f32(), h.to_bits())
    }
}

/// A 16-bit float widened.
pub fn from_16(bits: u16, dtype: DType) -> f32 {
    if dtype == DType::F16 { f16::from_bits(bits).to_f32() } else { bf16::from_bits(bits).to_f32() }
}

/// The packed matrix as floats \[n, k\], for tests and for those who want to see what was kept.
pub fn dequantize(packed: &Packed, spec: &Spec) -> Vec<f32> {
    let mut w = Vec::with_capacity((spec.n * spec.k) as usize);
    for row in 0..spec.n {
        for col in 0..spec.k {
            let group = super::layout::group_of(spec, col);
            let q = f32::from(packed.q(spec, row, col)) - f32::from(packed.zero(spec, row, group));
            w.push(q * from_16(packed.scales[super::layout::scale_index(spec, row, group) as usize], spec.dtype));
        }
    }
    w
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Rng, Shape};

    fn spec(text: &str) -> Spec {
        Spec::read(&Shape::parse(text).unwrap()).unwrap()
    }
    fn weights(n: usize, seed: u64) -> Vec<f32> {
        let mut rng = Rng(seed);
        (0..n).map(|_| rng.range(0, 2000) as f32 / 1000.0 - 1.0).collect()
    }

    #[test]
    fn error_is_at_most_half_a_step() {
        for text in ["n=21,k=256", "n=21,k=256,zeros=asym,group=32", "n=5,k=192,group=64,dtype=f16", "n=3,k=77,group=0"]
        {
            let s = spec(text);
            let w = weights((s.n * s.k) as usize, 7);
            let back = dequantize(&round_to_nearest(&w, &s).unwrap(), &s);
            // Steps of 2/15 at most; 2 % for the rounding of scales.
            for (a, b) in w.iter().zip(&back) {
                assert!((a - b).abs() <= 0.5 * 2.0 / 15.0 * 1.06, "{text}: {a} became {b}");
            }
        }
    }

    #[test]
    fn representable_weights_come_back_exactly() {
        let s = spec("n=16,k=128");
        let w: Vec<f32> = (0..16 * 128).map(|i| ((i % 16) as f32 - 8.0) * 0.5).collect();
        let mut p = Packed::new(&s);
        for row in 0..16 {
            p.set_scale(&s, row, 0, to_16(0.5, s.dtype).1);
            for col in 0..128 {
                p.set_q(&s, row, col, ((row * 128 + col) % 16) as u8);
            }
        }
        assert_eq!(dequantize(&p, &s), w);
    }

    #[test]
    fn zeros_and_refusals() {
        let s = spec("n=2,k=64,group=32,zeros=asym");
        assert!(dequantize(&round_to_nearest(&vec![0.0; 128], &s).unwrap(), &s).iter().all(|v| *v == 0.0));
        assert!(round_to_nearest(&[0.0; 3], &s).unwrap_err().0.contains("3 weights given for n=2, k=64 (128 needed)"));
        let mut w = vec![0.0; 128];
        w[70] = f32::NAN;
        assert!(round_to_nearest(&w, &s).unwrap_err().0.contains("weight [1, 6] is NaN"));
    }
}
