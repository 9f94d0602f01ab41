//! Same, faster, slower, or not to be told: by an interval of the difference of two medians, never by the medians alone.

use crate::op::Rng;
use crate::stats::{median, quantile};
use serde::Serialize;

/// What the samples allow to be said of B against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The whole interval lies within the tolerance.
    Same,
    Faster,
    Slower,
    /// The interval holds both a difference and none; more steps would decide.
    Undecided,
}

/// Median difference B less A with its 95 % bootstrap interval, ns; equal ends where only one step a side is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub median_ns: f64,
    pub low_ns: f64,
    pub high_ns: f64,
    /// Steps of A and of B.
    pub n: (usize, usize),
}

/// Resamples; the seed is fixed so that a verdict can be reproduced.
const RESAMPLES: usize = 2_000;

/// Judges step times of B against A. `tolerance` is a share of A's median below which a difference does not matter;
/// `clock_ns` is what the clocks cannot tell apart.
pub fn judge(a: &[f64], b: &[f64], tolerance: f64, clock_ns: f64) -> (Verdict, Interval) {
    let point = median(b) - median(a);
    let (low, high) = match a.len() < 2 || b.len() < 2 {
        true => (point, point),
        false => interval(a, b),
    };
    let found = Interval { median_ns: point, low_ns: low, high_ns: high, n: (a.len(), b.len()) };
    let small = (tolerance * median(a)).max(clock_ns);
    let verdict = match () {
        () if low >= -small && high <= small => Verdict::Same,
        // One step a side has no spread: a difference may be noise.
        () if a.len() < 2 || b.len() < 2 => Verdict::Undecided,
        () if low > 0.0 && high > small => Verdict::Slower,
        () if high < 0.0 && low < -small => Verdict::Faster,
        () => Verdict::Undecided,
    };
    (verdict, found)
}

fn interval(a: &[f64], b: &[f64]) -> (f64, f64) {
    let mut rng = Rng(0x5eed);
    let mut draw = |s: &[f64], into: &mut Vec<f64>| {
        into.clear();
        into.extend((0..s.len()).map(|_| s[rng.range(0, s.len() as u64 - 1) as usize]));
        median(into)
    };
    let mut scratch = Vec::with_capacity(a.len().max(b.len()));
    let differences: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let before = draw(a, &mut scratch);
            draw(b, &mut scratch) - before
        })
        .collect();
    (quantile(&differences, 0.025), quantile(&differences, 0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(center: f64, spread: f64, n: usize) -> Vec<f64> {
        (0..n).map(|i| center + spread * ((i * 7919 % n) as f64 / n as f64 - 0.5)).collect()
    }

    #[test]
    fn each_verdict_has_its_case() {
        let a = around(1_000.0, 20.0, 50);
        assert_eq!(judge(&a, &around(1_001.0, 20.0, 50), 0.02, 1.0).0, Verdict::Same);
        assert_eq!(judge(&a, &around(1_100.0, 20.0, 50), 0.02, 1.0).0, Verdict::Slower);
        assert_eq!(judge(&a, &around(900.0, 20.0, 50), 0.02, 1.0).0, Verdict::Faster);
        assert_eq!(judge(&a, &around(1_030.0, 400.0, 7), 0.02, 1.0).0, Verdict::Undecided);
        assert_eq!(judge(&[1_000.0], &[1_100.0], 0.02, 1.0).0, Verdict::Undecided);
        assert_eq!(judge(&[1_000.0], &[1_000.0], 0.02, 1.0).0, Verdict::Same);
    }
}
