//! `rmsnorm` in f64, from the residual's first contents where it is added.

use super::Size;
use crate::op::{Check, OpResult, View};

pub fn check(s: &Size, view: &dyn View) -> OpResult<Vec<Check>> {
    let len = s.m * s.k;
    let gain = view.read("gain", 0, s.k)?;
    // With a residual, the written-back sum is what the norm must be of: its rounding is the contract's.
    let x = view.read(if s.residual { "residual" } else { "x" }, 0, len)?;
    let mut want = Vec::with_capacity(len as usize);
    for row in x.chunks_exact(s.k.max(1) as usize) {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / s.k as f64;
        let scale = 1.0 / (mean + s.eps).sqrt();
        want.extend(row.iter().zip(&gain).map(|(v, g)| v * scale * g));
    }
    let tolerance = s.dtype.epsilon().max(1e-6);
    let mut checks = vec![Check::compare("out", &view.read("out", 0, len)?, &want, tolerance)];
    if s.residual {
        let first = view.first("residual", 0, len)?;
        let sum: Vec<f64> = view.read("x", 0, len)?.iter().zip(&first).map(|(a, b)| a + b).collect();
        checks.push(Check::compare("residual", &x, &sum, s.dtype.epsilon().max(1e-6)));
    }
    Ok(checks)
}
