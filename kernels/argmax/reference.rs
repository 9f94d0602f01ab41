//! `argmax` by looking: the first NaN, or the first of the largest.

use super::Size;
use crate::op::{Check, OpResult, View};

pub fn argmax(row: &[f64]) -> usize {
    let mut best = 0;
    for (i, v) in row.iter().enumerate() {
        if v.is_nan() {
            return i;
        }
        if *v > row[best] {
            best = i;
        }
    }
    best
}

pub fn check(s: &Size, view: &dyn View) -> OpResult<Vec<Check>> {
    let got = view.read("out", 0, s.m)?;
    let mut check = Check::compare("out", &[], &[], 0.0);
    check.compared = s.m;
    for (row, got) in got.iter().enumerate() {
        let want = argmax(&view.read("logits", row as u64 * s.v, s.v)?) as f64;
        if *got != want && check.broken.is_none() {
            check.broken = Some(format!("row {row}: index {got}, expected {want}"));
            check.worst = Some((row as u64, *got, want));
        }
    }
    Ok(vec![check])
}

#[cfg(test)]
mod tests {
    use super::argmax;

    #[test]
    fn ties_and_nan() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(argmax(&[-0.0, 0.0]), 0);
        assert_eq!(argmax(&[1.0, f64::NAN, f64::INFINITY, f64::NAN]), 1);
        assert_eq!(argmax(&[f64::NEG_INFINITY; 3]), 0);
    }
}
