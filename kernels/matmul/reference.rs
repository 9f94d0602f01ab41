//! The result in f64, and how far a kernel may be from it.

use super::problem::{Post, Problem};
use crate::op::{Check, DType, OpResult, View, mix};

/// Multiplications that a check may spend; larger outputs are sampled.
const BUDGET: u64 = 16 << 20;
/// Rows of x in a sample, at most.
const SAMPLE_ROWS: u64 = 48;

/// One sum with what bounds its rounding error: Σ|xw| and Σ(xw)².
#[derive(Clone, Copy, Default)]
struct Sum {
    value: f64,
    magnitude: f64,
    squares: f64,
}

fn dot(x: &[f64], w: &[f64]) -> Sum {
    x.iter().zip(w).fold(Sum::default(), |s, (a, b)| {
        let p = a * b;
        Sum { value: s.value + p, magnitude: s.magnitude + p.abs(), squares: s.squares + p * p }
    })
}

/// x · rsqrt(mean(x²) + eps) · gain, the RMS norm of Zhang & Sennrich, 2019.
fn normalise(x: &mut [f64], gain: &[f64], eps: f64) {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + eps).sqrt();
    x.iter_mut().zip(gain).for_each(|(v, g)| *v *= scale * g);
}

/// What a value becomes in the output type, as far as range goes.
fn ranged(v: f64, out: DType) -> f64 {
    if out == DType::F16 && v.abs() >= 65_520.0 { v.signum() * f64::INFINITY } else { v }
}

/// All indices if there are at most `count`, else the first, the last and a fixed random choice, ascending.
fn sample(size: u64, count: u64) -> Vec<u64> {
    if size <= count {
        return (0..size).collect();
    }
    let mut all: Vec<u64> = (0..count - 2).map(|i| mix(i ^ size) % size).chain([0, size - 1]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Compares `out` with the f64 product of the inputs as they lie in memory.
///
/// The tolerance on ‖out − ref‖ / ‖ref‖ has one term for each source of rounding: the output's own type; the normalised
/// x, rounded to the input type before it is multiplied (independent errors: u · √Σ(xw)²); and fp32 accumulation, whose
/// error grows like u · √k · Σ|xw| at most for sums taken in any order (Higham, Accuracy and Stability, 4.2, the
/// probabilistic form). silu can magnify what comes before it by 1 + |g|, hence its factor 4.
pub fn check(p: &Problem, view: &dyn View) -> OpResult<Vec<Check>> {
    if p.empty() {
        return Ok(Vec::new());
    }
    let products = if p.post == Post::SiluMul { 2 * p.k } else { p.k };
    let rows = sample(p.m, (BUDGET / products / p.cols()).max(SAMPLE_ROWS));
    let cols = sample(p.cols(), (BUDGET / products / rows.len() as u64).max(4));
    let gain = if p.pre { view.read("norm", 0, p.k)? } else { Vec::new() };

    let mut x = Vec::new();
    let mut out_rows = Vec::new();
    for &row in &rows {
        let mut values = view.read("x", row * p.k, p.k)?;
        if p.pre {
            normalise(&mut values, &gain, f64::from(p.eps));
        }
        x.push(values);
        out_rows.push(view.read("out", row * p.cols(), p.cols())?);
    }
    let (mut got, mut want) = (Vec::new(), Vec::new());
    let (mut size, mut magnitude, mut squares) = (0.0, 0.0, 0.0);
    for &col in &cols {
        let w = view.read("w", col * p.k, p.k)?;
        let up = if p.post == Post::SiluMul { view.read("w", (p.n / 2 + col) * p.k, p.k)? } else { Vec::new() };
        for (i, &row) in rows.iter().enumerate() {
            let mut sum = dot(&x[i], &w);
            match p.post {
                Post::None => {}
                Post::Residual => {
                    let r = view.read("residual", row * p.n + col, 1)?[0];
                    sum.value += r;
                    sum.magnitude += r.abs();
                }
                Post::SiluMul => {
                    let (g, u) = (sum, dot(&x[i], &up));
                    let silu = g.value / (1.0 + (-g.value).exp());
                    sum.value = silu * u.value;
                    sum.magnitude = g.magnitude * u.value.abs() + silu.abs() * u.magnitude;
                    sum.squares = g.squares * u.value.powi(2) + silu.powi(2) * u.squares;
                }
            }
            let value = ranged(sum.value, p.out);
            if value.is_finite() {
                size += value * value;
                magnitude += sum.magnitude.powi(2);
                squares += sum.squares;
            }
            want.push(value);
            got.push(out_rows[i][col as usize]);
        }
    }
    let relative = |v: f64| if size > 0.0 { (v / size).sqrt() } else { v.sqrt() };
    let before = 2f64.powi(-24) * (2.0 + (p.k as f64).sqrt()) * relative(magnitude)
        + if p.pre { p.dtype.epsilon() * relative(squares) } else { 0.0 };
    let tolerance = p.out.epsilon() + before * if p.post == Post::SiluMul { 4.0 } else { 1.0 };
    let mut check = Check::compare("out", &got, &want, tolerance);
    // The sampled rows were read whole: nothing in them may be left unwritten.
    if !p.special && check.broken.is_none() {
        for (row, values) in rows.iter().zip(&out_rows) {
            if let Some(col) = values.iter().position(|v| !v.is_finite()) {
                check.broken = Some(format!("out[{row}, {col}] is {}", values[col]));
            }
        }
    }
    Ok(vec![check])
}
