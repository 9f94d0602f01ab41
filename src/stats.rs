//! Small-sample statistics for timings: medians, robust spread and bootstrap intervals.

use crate::op::Rng;

/// Median of a sample; 0 for an empty one. The sample need not be sorted.
pub fn median(sample: &[f64]) -> f64 {
    quantile(sample, 0.5)
}

/// Quantile by linear interpolation between order statistics (type 7); 0 for an empty sample.
pub fn quantile(sample: &[f64], q: f64) -> f64 {
    let mut s: Vec<f64> = sample.to_vec();
    s.sort_by(f64::total_cmp);
    match s.len() {
        0 => 0.0,
        n => {
            let x = q.clamp(0.0, 1.0) * (n - 1) as f64;
            let (lo, hi) = (x.floor() as usize, x.ceil() as usize);
            s[lo] + (s[hi] - s[lo]) * (x - lo as f64)
        }
    }
}

/// Median absolute deviation, scaled by 1.4826 to match a normal's standard deviation.
pub fn mad(sample: &[f64]) -> f64 {
    let m = median(sample);
    1.4826 * median(&sample.iter().map(|v| (v - m).abs()).collect::<Vec<_>>())
}

/// A 95 % percentile-bootstrap interval of the median, 1,000 resamples from a fixed seed.
pub fn median_interval(sample: &[f64]) -> (f64, f64) {
    if sample.len() < 2 {
        let m = median(sample);
        return (m, m);
    }
    let mut rng = Rng(0x5eed);
    let last = sample.len() as u64 - 1;
    let mut resample = vec![0.0; sample.len()];
    let medians: Vec<f64> = (0..1_000)
        .map(|_| {
            resample.iter_mut().for_each(|v| *v = sample[rng.range(0, last) as usize]);
            median(&resample)
        })
        .collect();
    (quantile(&medians, 0.025), quantile(&medians, 0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quantile(&[0.0, 10.0], 0.9), 9.0);
        assert_eq!(median(&[]), 0.0);
        assert!((mad(&[1.0, 2.0, 3.0, 4.0, 100.0]) - 1.4826).abs() < 1e-12);
    }

    #[test]
    fn interval_holds_the_median() {
        let s: Vec<f64> = (0..101).map(f64::from).collect();
        let (lo, hi) = median_interval(&s);
        assert!(lo < 50.0 && hi > 50.0 && hi - lo < 40.0);
    }
}
