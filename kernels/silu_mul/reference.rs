//! `silu_mul` in f64.

use super::Size;
use crate::op::{Check, OpResult, View};

/// x / (1 + e^-x); NaN for -inf, as in PyTorch.
pub fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

pub fn check(s: &Size, view: &dyn View) -> OpResult<Vec<Check>> {
    let x = view.read("x", 0, s.m * 2 * s.n)?;
    let n = s.n as usize;
    let want: Vec<f64> = (0..s.m as usize)
        .flat_map(|row| {
            let (gate, up) = x[row * 2 * n..(row + 1) * 2 * n].split_at(n);
            gate.iter().zip(up).map(|(g, u)| silu(*g) * u).collect::<Vec<_>>()
        })
        .collect();
    // Half a unit in the last place of the output, and the approximate exponential of the fp32 path.
    let tolerance = s.dtype.epsilon().max(1e-6);
    Ok(vec![Check::compare("out", &view.read("out", 0, s.m * s.n)?, &want, tolerance)])
}

#[cfg(test)]
mod tests {
    use super::silu;

    #[test]
    fn silu_at_its_ends() {
        assert_eq!(silu(0.0), 0.0);
        assert!(silu(f64::NEG_INFINITY).is_nan());
        assert!((silu(1.0) - 0.731_058_578_630_004_9).abs() < 1e-15);
        assert_eq!(silu(800.0), 800.0);
    }
}
