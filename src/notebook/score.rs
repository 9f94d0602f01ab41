//! How good the predictions have been: bias, spread, hit rate, interval coverage, by regime and over time.
//!
//! r = ln(measured / predicted) for times and sizes and its negative for rates, so that above 0 is always worse than
//! predicted. The rule for a surprise is the linear one (a miss over 30 %); statistics are of r.

use super::amend::{self, Derivation};
use super::seal::Better;
use super::{Note, seal};
use crate::stats;
use serde::Serialize;

/// Measurements in a rolling median.
const WINDOW: usize = 10;

/// How far a pair can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// The seal is whole and older than the measurement.
    Sealed,
    /// No seal, a changed one, or a measurement that does not say it came later.
    Unsealed,
}

/// One prediction with its measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    pub file: String,
    pub date: String,
    pub name: String,
    pub unit: String,
    pub regime: String,
    pub predicted: f64,
    pub measured: f64,
    /// Above 0: worse than predicted.
    pub r: f64,
    /// Measured over predicted, less one.
    pub miss: f64,
    pub standing: Standing,
    /// Where the derivation of the sealed number is; `None` without a seal.
    pub derivation: Option<Derivation>,
    /// The sealed 80 % interval, in the unit.
    pub interval: Option<(f64, f64)>,
    pub inside: Option<bool>,
}

/// A pair that has no score, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excluded {
    pub file: String,
    pub name: String,
    pub why: String,
}

/// Scores of all notes by date, and what was left out.
pub fn scores(notes: &[Note]) -> (Vec<Score>, Vec<Excluded>) {
    let (mut scores, mut out) = (Vec::new(), Vec::new());
    for note in notes {
        let (seals, _) = seal::of(note);
        for p in note.pairs() {
            let mut leave = |why: &str| {
                out.push(Excluded { file: note.file.clone(), name: p.name.clone(), why: why.into() });
            };
            let Some(measured) = p.measured else {
                leave("not measured");
                continue;
            };
            let first = seals.iter().find(|s| s.seal.name == p.name);
            let better = first.map(|s| s.seal.better).or_else(|| Better::of_unit(&p.unit));
            let Some(better) = better else {
                leave("its unit does not say which way is better, and no seal does");
                continue;
            };
            if !(p.predicted > 0.0 && measured > 0.0) {
                leave("no ratio of numbers at or below 0");
                continue;
            }
            if first.and_then(|s| s.seal.floor).is_some_and(|f| better.beats(measured, f)) {
                leave("better than its floor: an invalid measurement");
                continue;
            }
            let after = |s: &seal::Sealed| {
                let time = |t: &str| t.parse::<jiff::Timestamp>().ok();
                let at = note.measured_at(&p.name);
                s.whole && at.as_deref().and_then(time).zip(time(&s.seal.at)).is_some_and(|(m, s)| m >= s)
            };
            let standing = if first.is_some_and(after) { Standing::Sealed } else { Standing::Unsealed };
            let interval = first.and_then(|s| s.seal.interval);
            let ratio = (measured / p.predicted).ln();
            scores.push(Score {
                file: note.file.clone(),
                date: note.field("Date").unwrap_or_default().into(),
                name: p.name.clone(),
                unit: p.unit.clone(),
                regime: first.map_or_else(|| note.regime(), |s| s.seal.regime.clone()),
                predicted: p.predicted,
                measured,
                r: if better == Better::Less { ratio } else { -ratio },
                miss: measured / p.predicted - 1.0,
                standing,
                derivation: first.map(|s| amend::derivation(note, s)),
                interval,
                inside: interval.map(|(low, high)| low <= measured && measured <= high),
            });
        }
    }
    scores.sort_by(|a, b| (&a.date, &a.file).cmp(&(&b.date, &b.file)));
    (scores, out)
}

/// Statistics of some scores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub n: usize,
    /// exp(median r): 1.2 says that things come out 20 % worse than predicted.
    pub bias: f64,
    /// 1.4826 × the median absolute deviation of r.
    pub spread: f64,
    /// exp(median |r|) − 1.
    pub typical: f64,
    pub hits: usize,
    /// Share of misses within 30 %, with its 95 % Wilson interval.
    pub hit_rate: f64,
    pub hit_low: f64,
    pub hit_high: f64,
    pub surprises: usize,
    /// Scores with an interval, and how many measurements lie inside theirs; 80 % should.
    pub with_interval: usize,
    pub inside: usize,
}

/// Wilson's interval of a share at 95 %; (0, 1) for an empty sample.
pub fn wilson(hits: usize, n: usize) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let (z, n, p) = (1.959_964, n as f64, hits as f64 / n as f64);
    let middle = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let by = 1.0 + z * z / n;
    (((middle - half) / by).max(0.0), ((middle + half) / by).min(1.0))
}

/// The statistics; `None` of nothing.
pub fn summary<'a>(scores: impl IntoIterator<Item = &'a Score>) -> Option<Summary> {
    let all: Vec<&Score> = scores.into_iter().collect();
    if all.is_empty() {
        return None;
    }
    let r: Vec<f64> = all.iter().map(|s| s.r).collect();
    let size: Vec<f64> = r.iter().map(|v| v.abs()).collect();
    let hits = all.iter().filter(|s| !super::is_surprise(s.miss)).count();
    let (hit_low, hit_high) = wilson(hits, all.len());
    Some(Summary {
        n: all.len(),
        bias: stats::median(&r).exp(),
        spread: stats::mad(&r),
        typical: stats::median(&size).exp() - 1.0,
        hits,
        hit_rate: hits as f64 / all.len() as f64,
        hit_low,
        hit_high,
        surprises: all.len() - hits,
        with_interval: all.iter().filter(|s| s.inside.is_some()).count(),
        inside: all.iter().filter(|s| s.inside == Some(true)).count(),
    })
}

/// Whether predictions get better.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// Median |r| of the last ten at each score, from the tenth on.
    pub rolling: Vec<f64>,
    /// Theil–Sen slope of |r| for each further score.
    pub slope: f64,
    /// Two-sided sign test of later against earlier halves (Cox and Stuart); 1 says nothing.
    pub p: f64,
}

/// The trend of scores in order.
pub fn trend(scores: &[Score]) -> Trend {
    let size: Vec<f64> = scores.iter().map(|s| s.r.abs()).collect();
    let mut slopes = Vec::new();
    for (i, a) in size.iter().enumerate() {
        slopes.extend(size[i + 1..].iter().enumerate().map(|(d, b)| (b - a) / (d + 1) as f64));
    }
    let half = size.len().div_ceil(2);
    let pairs: Vec<f64> =
        size[half..].iter().zip(&size).map(|(late, early)| late - early).filter(|d| *d != 0.0).collect();
    let fewer = pairs.iter().filter(|d| **d < 0.0).count().min(pairs.iter().filter(|d| **d > 0.0).count());
    Trend {
        rolling: size.windows(WINDOW).map(stats::median).collect(),
        slope: stats::median(&slopes),
        p: (2.0 * binomial_tail(fewer, pairs.len())).min(1.0),
    }
}

/// Probability of at most `k` of `n` fair coins.
fn binomial_tail(k: usize, n: usize) -> f64 {
    let mut term = 0.5f64.powi(n as i32);
    let mut sum = term;
    for i in 0..k {
        term *= (n - i) as f64 / (i + 1) as f64;
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::EXAMPLE;
    use super::*;

    #[test]
    fn rates_and_times_score_in_one_direction() {
        let (scores, out) = scores(&[Note::parse("a.md", EXAMPLE)]);
        assert!(out.is_empty());
        assert!((scores[0].r - (1.5f64 / 1.3).ln()).abs() < 1e-12, "a lower speed-up is worse");
        assert!((scores[1].r - (14.7f64 / 12.3).ln()).abs() < 1e-12, "a longer time is worse");
        let s = summary(&scores).unwrap();
        assert_eq!((s.n, s.hits, s.surprises, s.with_interval), (2, 2, 0, 0));
        assert!(s.bias > 1.15 && s.bias < 1.2);
        assert_eq!(scores[0].standing, Standing::Unsealed);
    }

    #[test]
    fn wilson_of_known_counts() {
        let (low, high) = wilson(8, 10);
        assert!((low - 0.4902).abs() < 1e-3 && (high - 0.9433).abs() < 1e-3, "{low} {high}");
        assert_eq!(wilson(0, 0), (0.0, 1.0));
        assert!(wilson(5, 5).1 == 1.0 && wilson(5, 5).0 > 0.5);
    }

    #[test]
    fn getting_better_has_a_negative_slope() {
        let (base, _) = scores(&[Note::parse("a.md", EXAMPLE)]);
        let run: Vec<Score> = (0..20).map(|i| Score { r: 1.0 - 0.05 * f64::from(i), ..base[0].clone() }).collect();
        let t = trend(&run);
        assert!((t.slope + 0.05).abs() < 1e-9 && t.rolling.len() == 11 && t.p < 0.01, "{t:?}");
        assert_eq!(trend(&run[..1]).p, 1.0);
        assert!((binomial_tail(2, 4) - 0.6875).abs() < 1e-12);
    }
}
