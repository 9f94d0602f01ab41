//! `softmax` in f64, and which rows of a large result are looked at.

use super::{Mask, Size};
use crate::op::{Check, DType, OpResult, Rng, View};

/// Up to this many elements every row is compared.
const WHOLE: u64 = 1 << 24;

/// Softmax of scores; a row of -inf gives zeros, NaN or +inf makes everything NaN.
pub fn softmax(scores: &mut [f64]) {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let reference = if max == f64::NEG_INFINITY { 0.0 } else { max };
    let mut sum = 0.0;
    for s in scores.iter_mut() {
        *s = (*s - reference).exp();
        sum += *s;
    }
    let scale = if sum == 0.0 { 0.0 } else { 1.0 / sum };
    scores.iter_mut().for_each(|s| *s *= scale);
}

/// Rows to compare: all of a small result; of a large one the ends, those around 2^31 and 2^32 elements, and others.
fn rows(s: &Size) -> Vec<u64> {
    if s.rows * s.cols <= WHOLE {
        return (0..s.rows).collect();
    }
    let mut rows: Vec<u64> = vec![0, 1, s.rows / 2, s.rows.saturating_sub(2), s.rows - 1];
    for edge in [1u64 << 31, 1 << 32] {
        let row = edge / s.cols;
        rows.extend([row.saturating_sub(1), row, row + 1]);
    }
    let mut rng = Rng(s.rows ^ s.cols);
    rows.extend((0..64.min(WHOLE / s.cols + 1)).map(|_| rng.range(0, s.rows - 1)));
    rows.retain(|r| *r < s.rows);
    rows.sort_unstable();
    rows.dedup();
    rows
}

pub fn check(s: &Size, view: &dyn View) -> OpResult<Vec<Check>> {
    let (mut got, mut want) = (Vec::new(), Vec::new());
    if s.cols > 0 {
        for row in rows(s) {
            let x = view.read("x", row * s.cols, s.cols)?;
            let mut scores: Vec<f64> = x.iter().map(|v| v * s.scale).collect();
            let at = row % s.mask_rows.max(1) * s.cols;
            match s.mask {
                Mask::None => {}
                Mask::Bool => {
                    for (v, keep) in scores.iter_mut().zip(view.raw("mask", at, s.cols)?) {
                        *v = if keep == 0 { f64::NEG_INFINITY } else { *v };
                    }
                }
                Mask::Additive => {
                    scores.iter_mut().zip(view.read("mask", at, s.cols)?).for_each(|(v, m)| *v += m);
                }
                Mask::Causal => scores.truncate(s.limit(row) as usize),
            }
            softmax(&mut scores);
            // What is masked by structure is not read, so a NaN there has no effect and the result is 0.
            scores.resize(s.cols as usize, 0.0);
            want.append(&mut scores);
            got.append(&mut view.read("out", row * s.cols, s.cols)?);
        }
    }
    Ok(vec![Check::compare("out", &got, &want, tolerance(s, &want))])
}

/// Half a unit in the last place of the output, and two of the approximate exponential in fp32. Terms of a long row are
/// subnormal in f16, where the unit is 2^-24 whatever the value.
fn tolerance(s: &Size, want: &[f64]) -> f64 {
    let relative = s.dtype.epsilon().max(2e-6);
    let norm = want.iter().filter(|v| v.is_finite()).map(|v| v * v).sum::<f64>().sqrt();
    if s.dtype == DType::F16 && norm > 0.0 {
        return relative + 2f64.powi(-25) * (want.len() as f64).sqrt() / norm;
    }
    relative
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Shape;

    #[test]
    fn documented_rows() {
        let of = |v: &[f64]| {
            let mut v = v.to_vec();
            softmax(&mut v);
            v
        };
        assert_eq!(of(&[f64::NEG_INFINITY; 3]), [0.0; 3]);
        assert!(of(&[1.0, f64::NAN, f64::NEG_INFINITY]).iter().all(|v| v.is_nan()));
        assert!(of(&[1.0, f64::INFINITY]).iter().all(|v| v.is_nan()));
        assert_eq!(of(&[5.0, 5.0]), [0.5, 0.5]);
        assert_eq!(of(&[f64::NEG_INFINITY, -3e38]), [0.0, 1.0]);
    }

    #[test]
    fn samples_reach_the_offsets_that_break() {
        let s = Size::of(&Shape::parse("rows=4194305,cols=1025").unwrap()).unwrap();
        let rows = rows(&s);
        for element in [0, (1u64 << 31) - 1, 1 << 31, 1 << 32, s.rows * s.cols - 1] {
            assert!(rows.contains(&(element / s.cols)), "{element}");
        }
        assert!(rows.len() < 100);
    }
}
