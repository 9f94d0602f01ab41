//! The distribution of a time, how two of them compare, and when there are samples enough.

use super::measure::Mode;
use super::warning::Warning;
use crate::op::Rng;
use crate::stats;

/// The distribution of a piece of work's time, in nanoseconds a launch.
#[derive(Clone, Debug)]
pub struct Timing {
    pub name: String,
    pub mode: Mode,
    /// Median.
    pub ns: f64,
    pub p10: f64,
    pub p90: f64,
    pub mad: f64,
    /// Launches timed in all.
    pub n: u64,
    /// Launches in one sample.
    pub per_sample: u64,
    pub samples: Vec<f64>,
    pub warnings: Vec<Warning>,
}

impl Timing {
    pub(super) fn new(name: &str, mode: Mode, per_sample: u64, samples: Vec<f64>) -> Self {
        Self {
            name: name.into(),
            mode,
            ns: stats::median(&samples),
            p10: stats::quantile(&samples, 0.1),
            p90: stats::quantile(&samples, 0.9),
            mad: stats::mad(&samples),
            n: per_sample * samples.len() as u64,
            per_sample,
            samples,
            warnings: Vec::new(),
        }
    }
    /// Whether no hazard forbids using the number.
    pub fn trusted(&self) -> bool {
        !self.warnings.iter().any(Warning::is_hard)
    }
}

/// Ratio of two timings that were sampled in alternation, `a / b`: medians, with a 95 % interval over sample pairs.
pub fn ratio(a: &Timing, b: &Timing) -> (f64, f64, f64) {
    let pairs: Vec<(f64, f64)> = a.samples.iter().copied().zip(b.samples.iter().copied()).collect();
    let centre = a.ns / b.ns;
    if pairs.len() < 2 {
        return (centre, centre, centre);
    }
    let mut rng = Rng(0x5eed);
    let ratios: Vec<f64> = (0..1_000)
        .map(|_| {
            let drawn: Vec<_> = (0..pairs.len()).map(|_| *rng.pick(&pairs)).collect();
            let side = |f: fn(&(f64, f64)) -> f64| stats::median(&drawn.iter().map(f).collect::<Vec<_>>());
            side(|p| p.0) / side(|p| p.1)
        })
        .collect();
    (centre, stats::quantile(&ratios, 0.025), stats::quantile(&ratios, 0.975))
}

/// Standard deviation over mean.
pub(super) fn relative_deviation(sample: &[f64]) -> f64 {
    let n = sample.len() as f64;
    if n < 2.0 {
        return f64::INFINITY;
    }
    let mean = sample.iter().sum::<f64>() / n;
    (sample.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt() / mean
}

/// nvbench's second way out: past 64 samples, a noise that no longer moves (5 % over the last readings) will not shrink.
pub(super) fn settled(noises: &[f64], samples: usize) -> bool {
    samples >= 64 && noises.len() >= 4 && relative_deviation(&noises[noises.len().saturating_sub(8)..]) < 0.05
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paired_ratio_ignores_a_drift_that_both_share() {
        let drift = |i: usize| 1.0 + i as f64 / 50.0;
        let a = Timing::new("a", Mode::Graph, 1, (0..50).map(|i| 100.0 * drift(i)).collect());
        let b = Timing::new("b", Mode::Graph, 1, (0..50).map(|i| 80.0 * drift(i)).collect());
        let (centre, low, high) = ratio(&a, &b);
        assert!((centre - 1.25).abs() < 1e-9 && low > 1.249 && high < 1.251, "{low} {high}");
    }

    #[test]
    fn noise_settles_only_after_enough_samples() {
        assert!(!settled(&[0.1; 8], 32));
        assert!(settled(&[0.1; 8], 64));
        assert!(!settled(&[0.1, 0.2, 0.1, 0.3], 64));
        assert!(relative_deviation(&[1.0]).is_infinite());
    }
}
