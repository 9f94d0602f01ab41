//! What the measured shapes around a shape say: a fit's line knows a few sizes only, so what tiles, waves and a heuristic's steps
//! do shows up as the ratio of measured to fitted time, and that ratio is carried over from the neighbours, the more the
//! nearer they are. It is simple kriging of ln(ratio) with a Matérn 3/2 covariance (Rasmussen and Williams, Gaussian Processes
//! for Machine Learning, 2006, chapters 2, 4 and 5). Neighbours are near in the coordinates of their launches: the same kernel
//! in as many blocks is near, the next size with another kernel is not. Far from every neighbour the line stands and the
//! interval is wide.

use super::coordinates::{Kernel, Place};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A measured shape beside its fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbour {
    pub variant: String,
    pub shape: String,
    /// Measured over fitted time.
    pub ratio: f64,
    /// How it was launched.
    pub kernels: Vec<Kernel>,
}

/// Standard deviation of a measured time from one allocation to another, relative.
const NOISE: f64 = 0.02;
/// Bounds of the standard deviation of ln(ratio), of the octaves that count as one length, and of the lengths between places that
/// differ in a word (a type, a mask, the kernel).
const DEVIATION: (f64, f64) = (0.03, 1.5);
const LENGTH: (f64, f64) = (0.25, 128.0);
const WORD: (f64, f64) = (0.02, 6.0);
/// What a length and a word begin from, and how much ln(likelihood) an e-fold away from it costs, halved and squared.
const FIRST_LENGTH: f64 = 6.0;
const FIRST_WORD: f64 = 0.5;
const PULL: f64 = 0.5;
/// Steps of the search.
const STEPS: usize = 70;
/// A coordinate whose differences count for less is left out.
const LONG: f64 = 100.0;
const SHORT: f64 = 0.03;

/// How far apart places are, and how much neighbours vary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Standard deviation of ln(ratio) far from every neighbour.
    pub deviation: f64,
    /// Octaves of each coordinate that count as one length.
    pub lengths: BTreeMap<String, f64>,
    /// Lengths between places that differ in each word.
    pub words: BTreeMap<String, f64>,
}

/// A place on a scale: its numbers in lengths, and its words, in the scale's order.
#[derive(Clone, Debug)]
struct Spot {
    numbers: Vec<f64>,
    words: Vec<Option<String>>,
}

impl Scale {
    fn spot(&self, place: &Place) -> Spot {
        let number = |(key, l): (&String, &f64)| place.numbers.get(key).copied().unwrap_or(0.0) / l;
        Spot {
            numbers: self.lengths.iter().map(number).collect(),
            words: self.words.keys().map(|key| place.words.get(key).cloned()).collect(),
        }
    }

    fn square(&self, a: &Spot, b: &Spot) -> f64 {
        let numbers: f64 = a.numbers.iter().zip(&b.numbers).map(|(a, b)| (a - b).powi(2)).sum();
        let words = self.words.values().zip(a.words.iter().zip(&b.words)).filter(|(_, (a, b))| a != b);
        numbers + words.map(|(w, _)| w * w).sum::<f64>()
    }

    /// Lengths between two places.
    pub fn distance(&self, a: &Place, b: &Place) -> f64 {
        self.square(&self.spot(a), &self.spot(b)).sqrt()
    }
}

fn matern(square: f64) -> f64 {
    let d = (3.0 * square.max(0.0)).sqrt();
    (1.0 + d) * (-d).exp()
}

/// Lower Cholesky factor of a positive matrix, row by row.
fn factor(n: usize, at: impl Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
    let mut rows: Vec<Vec<f64>> = Vec::with_capacity(n);
    for i in 0..n {
        let mut row = vec![0.0; i + 1];
        for j in 0..=i {
            let other: &[f64] = if j == i { &row } else { &rows[j] };
            let sum: f64 = row[..j].iter().zip(&other[..j]).map(|(a, b)| a * b).sum();
            let c = at(i, j) - sum;
            // Positive: the noise on the diagonal keeps equal places apart.
            row[j] = if i == j { c.max(1e-12).sqrt() } else { c / rows[j][j] };
        }
        rows.push(row);
    }
    rows
}

fn forward(factor: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x: Vec<f64> = Vec::with_capacity(b.len());
    for (row, b) in factor.iter().zip(b) {
        let sum: f64 = row.iter().zip(&x).map(|(a, x)| a * x).sum();
        x.push((b - sum) / row[x.len()]);
    }
    x
}

fn backward(factor: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let n = b.len();
    let mut x = vec![0.0; n];
    for i in (0..n).rev() {
        let sum: f64 = (i + 1..n).map(|k| factor[k][i] * x[k]).sum();
        x[i] = (b[i] - sum) / factor[i][i];
    }
    x
}

/// Neighbours ready to be asked.
#[derive(Clone, Debug)]
pub struct Field {
    spots: Vec<Spot>,
    scale: Scale,
    factor: Vec<Vec<f64>>,
    /// Inverse covariance times the logarithms.
    solved: Vec<f64>,
}

impl Field {
    pub fn new(places: &[Place], logs: &[f64], scale: Scale) -> Self {
        let variance = scale.deviation.powi(2);
        let spots: Vec<Spot> = places.iter().map(|p| scale.spot(p)).collect();
        let factor = factor(spots.len(), |i, j| {
            variance * matern(scale.square(&spots[i], &spots[j])) + if i == j { NOISE * NOISE } else { 0.0 }
        });
        let half = forward(&factor, logs);
        let solved = backward(&factor, &half);
        Self { spots, scale, factor, solved }
    }

    /// ln(measured / fitted) expected at a place, and its standard deviation.
    pub fn at(&self, place: &Place) -> (f64, f64) {
        let variance = self.scale.deviation.powi(2);
        let spot = self.scale.spot(place);
        let near: Vec<f64> = self.spots.iter().map(|s| variance * matern(self.scale.square(s, &spot))).collect();
        let mean = near.iter().zip(&self.solved).map(|(a, b)| a * b).sum();
        let told: f64 = forward(&self.factor, &near).iter().map(|v| v * v).sum();
        (mean, ((variance - told).max(0.0) + NOISE * NOISE).sqrt())
    }

    /// The nearest neighbours: which, and how many lengths away.
    pub fn nearest(&self, place: &Place, most: usize) -> Vec<(usize, f64)> {
        let spot = self.scale.spot(place);
        let mut all: Vec<(usize, f64)> =
            self.spots.iter().enumerate().map(|(i, s)| (i, self.scale.square(s, &spot).sqrt())).collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        all.truncate(most);
        all
    }

    /// Each neighbour asked of the others: what it lies off by, in ln, and the standard deviation that was given for it.
    pub fn left_out(&self) -> Vec<(f64, f64)> {
        let n = self.spots.len();
        let one = |i: usize| {
            let mut unit = vec![0.0; n];
            unit[i] = 1.0;
            let inverse = forward(&self.factor, &unit).iter().map(|v| v * v).sum::<f64>();
            (self.solved[i] / inverse, inverse.sqrt().recip())
        };
        (0..n).map(one).collect()
    }
}

/// Squared differences of every pair of places in one coordinate, the lower triangle.
struct Differences {
    key: String,
    word: bool,
    of: Vec<f64>,
}

fn differences(places: &[Place]) -> Vec<Differences> {
    let pairs = |of: &dyn Fn(&Place, &Place) -> f64| -> Vec<f64> {
        (0..places.len()).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|(i, j)| of(&places[i], &places[j])).collect()
    };
    let mut keys: Vec<(bool, &String)> = places
        .iter()
        .flat_map(|p| p.numbers.keys().map(|k| (false, k)).chain(p.words.keys().map(|k| (true, k))))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let all = keys.into_iter().map(|(word, key)| {
        let of = if word {
            pairs(&|a, b| f64::from(u8::from(a.words.get(key) != b.words.get(key))))
        } else {
            let number = |p: &Place| p.numbers.get(key).copied().unwrap_or(0.0);
            pairs(&|a, b| (number(a) - number(b)).powi(2))
        };
        Differences { key: key.clone(), word, of }
    });
    // A coordinate in which nothing differs tells nothing; of several that are the same only the first is asked.
    let mut kept: Vec<Differences> = Vec::new();
    for d in all {
        if d.of.iter().any(|v| *v > 0.0) && kept.iter().all(|k| k.word != d.word || k.of != d.of) {
            kept.push(d);
        }
    }
    kept
}

/// −ln(likelihood) of the logarithms, up to a constant, and its slope along each logarithm of a parameter: the deviation first,
/// then what each coordinate's differences are divided by (numbers) or multiplied with (words).
fn unlikely(all: &[Differences], logs: &[f64], at: &[f64]) -> (f64, Vec<f64>) {
    let (n, variance) = (logs.len(), (2.0 * at[0]).exp());
    let weight = |d: &Differences, p: f64| if d.word { (2.0 * p).exp() } else { (-2.0 * p).exp() };
    let mut squares = vec![0.0; n * (n + 1) / 2];
    for (d, p) in all.iter().zip(&at[1..]) {
        let w = weight(d, *p);
        squares.iter_mut().zip(&d.of).for_each(|(s, v)| *s += w * v);
    }
    let pair = |i: usize, j: usize| if i >= j { i * (i + 1) / 2 + j } else { j * (j + 1) / 2 + i };
    let factor = factor(n, |i, j| variance * matern(squares[pair(i, j)]) + if i == j { NOISE * NOISE } else { 0.0 });
    let half = forward(&factor, logs);
    let solved = backward(&factor, &half);
    let fit: f64 = half.iter().map(|v| v * v).sum();
    let size: f64 = factor.iter().enumerate().map(|(i, row)| row[i].ln()).sum();
    // The inverse of the factor, row by row, and from it the inverse covariance.
    let mut inverse: Vec<Vec<f64>> = Vec::with_capacity(n);
    for i in 0..n {
        let mut row = vec![0.0; i + 1];
        row[i] = 1.0;
        for k in 0..i {
            let f = factor[i][k];
            let (upper, lower) = (&inverse[k], &mut row);
            lower[..=k].iter_mut().zip(upper).for_each(|(x, u)| *x -= f * u);
        }
        let own = factor[i][i];
        row.iter_mut().for_each(|x| *x /= own);
        inverse.push(row);
    }
    let mut covariance = vec![0.0; n * (n + 1) / 2];
    for row in &inverse {
        for (i, a) in row.iter().enumerate() {
            let begin = i * (i + 1) / 2;
            covariance[begin..=begin + i].iter_mut().zip(row).for_each(|(c, b)| *c += a * b);
        }
    }
    // Half the slope along each pair's covariance; a pair off the diagonal stands for two.
    let (mut slopes, mut pulls) = (vec![0.0; at.len()], vec![0.0; squares.len()]);
    for i in 0..n {
        for j in 0..=i {
            let k = i * (i + 1) / 2 + j;
            let m = (solved[i] * solved[j] - covariance[k]) * if i == j { 0.5 } else { 1.0 };
            let root = (3.0 * squares[k].max(0.0)).sqrt();
            slopes[0] -= m * 2.0 * variance * (1.0 + root) * (-root).exp();
            pulls[k] = m * 1.5 * variance * (-root).exp();
        }
    }
    for ((d, p), slope) in all.iter().zip(&at[1..]).zip(&mut slopes[1..]) {
        let sum: f64 = d.of.iter().zip(&pulls).map(|(v, m)| v * m).sum();
        *slope = sum * weight(d, *p) * if d.word { 2.0 } else { -2.0 };
    }
    (fit / 2.0 + size, slopes)
}

/// The scale under which the neighbours' logarithms are the likeliest, each coordinate pulled a little towards where it began: by
/// steps along the signs of the slopes (iRprop−, Igel and Hüsken, 2000).
pub fn best_scale(places: &[Place], logs: &[f64]) -> Scale {
    let all = differences(places);
    let mean_square = logs.iter().map(|y| y * y).sum::<f64>() / logs.len().max(1) as f64;
    let first = |d: &Differences| if d.word { FIRST_WORD } else { FIRST_LENGTH };
    let begin: Vec<f64> = std::iter::once(mean_square.sqrt().clamp(2.0 * DEVIATION.0, DEVIATION.1))
        .chain(all.iter().map(first))
        .map(f64::ln)
        .collect();
    let bounds: Vec<(f64, f64)> = std::iter::once(DEVIATION)
        .chain(all.iter().map(|d| if d.word { WORD } else { LENGTH }))
        .map(|(low, high)| (low.ln(), high.ln()))
        .collect();
    let ask = |at: &[f64]| {
        let (mut value, mut slopes) = unlikely(&all, logs, at);
        for ((slope, p), first) in slopes.iter_mut().zip(at).zip(&begin) {
            value += PULL / 2.0 * (p - first).powi(2);
            *slope += PULL * (p - first);
        }
        (value, slopes)
    };
    let mut at = begin.clone();
    let (mut steps, mut before) = (vec![0.2f64; at.len()], vec![0.0f64; at.len()]);
    let mut best = (f64::INFINITY, at.clone());
    for _ in 0..STEPS {
        let (value, slopes) = ask(&at);
        if value < best.0 {
            best = (value, at.clone());
        }
        for i in 0..at.len() {
            let turn = slopes[i] * before[i];
            let factor = if turn > 0.0 {
                1.2
            } else if turn < 0.0 {
                0.5
            } else {
                1.0
            };
            steps[i] = (steps[i] * factor).clamp(1e-3, 0.7);
            before[i] = if turn < 0.0 { 0.0 } else { slopes[i] };
            if before[i] != 0.0 {
                at[i] = (at[i] - steps[i] * before[i].signum()).clamp(bounds[i].0, bounds[i].1);
            }
        }
    }
    let at: Vec<f64> = best.1.iter().map(|p| cut(p.exp())).collect();
    let of =
        |word: bool| all.iter().zip(&at[1..]).filter(move |(d, _)| d.word == word).map(|(d, v)| (d.key.clone(), *v));
    Scale {
        deviation: at[0],
        lengths: of(false).filter(|(_, l)| *l < LONG).collect(),
        words: of(true).filter(|(_, w)| *w > SHORT).collect(),
    }
}

/// Three digits: what is written is what is used.
fn cut(v: f64) -> f64 {
    let unit = 10f64.powi(2 - v.abs().max(1e-9).log10().floor() as i32);
    (v * unit).round() / unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Shape;
    use proptest::prelude::*;

    fn place(text: &str) -> Place {
        Place::of("matmul", &Shape::parse(text).unwrap())
    }
    fn scale(deviation: f64, length: f64) -> Scale {
        let lengths = ["m", "n", "k"].map(|k| (k.to_string(), length)).into_iter().collect();
        Scale { deviation, lengths, words: [("post".to_string(), 2.0)].into_iter().collect() }
    }

    #[test]
    fn distance_counts_octaves_and_words() {
        let d = |a: &str, b: &str| scale(1.0, 1.0).distance(&place(a), &place(b));
        assert_eq!(d("m=1,n=4k,k=4k", "m=1,n=4096,k=4096,dtype=bf16"), 0.0);
        assert_eq!(d("m=1,n=4k,k=4k", "m=8,n=4k,k=4k"), 3.0);
        assert_eq!(d("m=1,n=4k,k=4k", "m=1,n=4k,k=4k,post=residual"), 2.0);
    }

    #[test]
    fn neighbours_are_met_and_far_away_the_line_stands() {
        let all = [(4096, 1.5f64), (16384, 1.2), (65536, 0.9)];
        let places: Vec<Place> = all.iter().map(|(n, _)| place(&format!("m=1,n={n},k=4096"))).collect();
        let logs: Vec<f64> = all.iter().map(|(_, r)| r.ln()).collect();
        let field = Field::new(&places, &logs, scale(0.3, 4.0));
        for (p, (_, ratio)) in places.iter().zip(all) {
            let (mean, deviation) = field.at(p);
            assert!((mean.exp() / ratio - 1.0).abs() < 0.02 && deviation < 0.04, "{ratio}: {mean} {deviation}");
            assert_eq!(field.nearest(p, 1)[0].1, 0.0);
        }
        let (between, _) = field.at(&place("m=1,n=8192,k=4096"));
        assert!((1.22..1.5).contains(&between.exp()), "{}", between.exp());
        let (far, wide) = field.at(&place("m=1,n=8192,k=1"));
        assert!(far.abs() < 0.1 && wide > 0.15, "{far} {wide}");
    }

    #[test]
    fn what_is_left_out_is_what_the_others_say() {
        let places: Vec<Place> = (0..6).map(|i| place(&format!("m={},n=4096,k=4096", 1 << i))).collect();
        let logs = [0.1, 0.3, 0.2, -0.1, 0.0, 0.4];
        let field = Field::new(&places, &logs, scale(0.3, 2.0));
        for (i, (off, deviation)) in field.left_out().into_iter().enumerate() {
            let without = |j: &usize| *j != i;
            let others: Vec<Place> = (0..6).filter(without).map(|j| places[j].clone()).collect();
            let rest: Vec<f64> = (0..6).filter(without).map(|j| logs[j]).collect();
            let (mean, expected) = Field::new(&others, &rest, scale(0.3, 2.0)).at(&places[i]);
            assert!((logs[i] - mean - off).abs() < 1e-9 && (deviation - expected).abs() < 1e-9, "{i}");
        }
    }

    #[test]
    fn slopes_are_those_of_the_value() {
        let places: Vec<Place> = (0..9)
            .map(|i| {
                place(&format!(
                    "m={},n={},k=4096{}",
                    1 << (i % 4),
                    4096 + 500 * i,
                    if i % 2 == 0 { ",post=residual" } else { "" }
                ))
            })
            .collect();
        let logs: Vec<f64> = (0..9).map(|i| 0.3 * f64::from(i % 4) - 0.2 * f64::from(i % 2)).collect();
        let all = differences(&places);
        let at: Vec<f64> = (0..=all.len()).map(|i| 0.1 * i as f64 - 0.5).collect();
        let (_, slopes) = unlikely(&all, &logs, &at);
        for i in 0..at.len() {
            let moved = |by: f64| {
                let mut p = at.clone();
                p[i] += by;
                unlikely(&all, &logs, &p).0
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((slope - slopes[i]).abs() < 1e-4 * slope.abs().max(1.0), "{i}: {slope} {}", slopes[i]);
        }
    }

    #[test]
    fn the_coordinate_that_matters_is_found() {
        // The time steps with m and knows nothing of n.
        let shapes: Vec<(u64, u64)> = (0..48).map(|i| (1 << (i % 6), 1024 + 97 * i)).collect();
        let places: Vec<Place> = shapes.iter().map(|(m, n)| place(&format!("m={m},n={n},k=4096"))).collect();
        let logs: Vec<f64> = shapes.iter().map(|(m, _)| if *m > 4 { 0.5 } else { -0.2 }).collect();
        let found = best_scale(&places, &logs);
        assert!(found.lengths["m"] < 3.0 && found.lengths.get("n").is_none_or(|n| *n > 4.0), "{found:?}");
        let off: Vec<f64> = Field::new(&places, &logs, found).left_out().iter().map(|(off, _)| off.abs()).collect();
        assert!(off.iter().all(|o| *o < 0.05), "{off:?}");
    }

    proptest! {
        #[test]
        fn never_surer_than_the_clock_nor_less_sure_than_no_neighbour(ratios in prop::collection::vec(0.3f64..3.0, 1..12), n in 1u64..100_000) {
            let places: Vec<Place> = (0..ratios.len()).map(|i| place(&format!("m=1,n={},k=4096", 64 << i))).collect();
            let logs: Vec<f64> = ratios.iter().map(|r| r.ln()).collect();
            let field = Field::new(&places, &logs, scale(0.4, 2.0));
            let (mean, deviation) = field.at(&place(&format!("m=1,n={n},k=4096")));
            prop_assert!(mean.is_finite() && deviation >= NOISE - 1e-12);
            prop_assert!(deviation <= (0.16 + NOISE * NOISE).sqrt() + 1e-9);
        }
    }
}
