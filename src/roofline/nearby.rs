//! What the measured shapes around a shape say: a fit's line knows size only, so tiles, waves and a heuristic's steps show
//! up as the ratio of measured to fitted time, and that ratio is carried over from the neighbours, the more the nearer
//! they are. It is simple kriging of ln(ratio) with a Matérn 3/2 covariance (Rasmussen and Williams, Gaussian Processes for
//! Machine Learning, 2006, chapters 2 and 4); far from every neighbour the line stands and the interval is wide.

use crate::op::Shape;
use crate::plan::meaning::meaning;
use serde::{Deserialize, Serialize};

/// A measured shape beside its fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbour {
    pub shape: String,
    /// Measured over fitted time.
    pub ratio: f64,
}

/// Lengths that a fit chooses from, octaves: how far a neighbour still tells something.
pub const LENGTHS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];
/// Standard deviation of a measured time from one allocation to another, relative.
const NOISE: f64 = 0.02;
/// Least standard deviation of ln(ratio) that is believed.
const LEAST: f64 = 0.03;
/// Octaves between shapes that differ in a word (a type, a mask).
const WORD: f64 = 2.0;
#[derive(Clone, Debug, PartialEq)]
enum At {
    Octaves(f64),
    Word(String),
}

/// A shape as a point: sizes in octaves, words as they are, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Place(Vec<(String, At)>);

impl Place {
    pub fn of(op: &str, shape: &Shape) -> Self {
        let mut full = meaning(op, shape);
        // Which rows of a mask meet which rows changes no time.
        full.remove("mask_rows");
        // A list of different lengths is about as long as its mean says, and another case than equal ones.
        let lens = full.insert("lens".into(), "even".into());
        if let Some(lens) = lens {
            let lens: Vec<f64> = lens.split(':').filter_map(|l| l.parse().ok()).collect();
            let mean = lens.iter().sum::<f64>() / lens.len().max(1) as f64;
            let even = lens.iter().all(|l| (l - mean).abs() <= mean / 8.0);
            full.insert("lens".into(), if even { "even" } else { "ragged" }.into());
            full.insert("batch".into(), lens.len().to_string());
            full.insert("ctx".into(), format!("{mean:.0}"));
        }
        let at = |value: String| match value.parse::<u64>() {
            Ok(size) => At::Octaves((size.max(1) as f64).log2()),
            Err(_) => At::Word(value),
        };
        Self(full.into_iter().map(|(key, value)| (key, at(value))).collect())
    }

    /// Octaves between two shapes, all dimensions together.
    pub fn distance(&self, other: &Self) -> f64 {
        let of = |place: &Self, key: &str| place.0.iter().find(|(k, _)| k == key).map(|(_, at)| at.clone());
        let mut keys: Vec<&str> = self.0.iter().chain(&other.0).map(|(k, _)| k.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        let square = |key: &&str| match (of(self, key), of(other, key)) {
            (Some(At::Octaves(a)), Some(At::Octaves(b))) => (a - b).powi(2),
            (a, b) if a == b => 0.0,
            _ => WORD * WORD,
        };
        keys.iter().map(square).sum::<f64>().sqrt()
    }
}

fn covariance(octaves: f64, length: f64) -> f64 {
    let d = 3f64.sqrt() * octaves / length;
    (1.0 + d) * (-d).exp()
}

/// Neighbours ready to be asked.
#[derive(Debug)]
pub struct Field {
    places: Vec<Place>,
    length: f64,
    variance: f64,
    /// Lower Cholesky factor of the neighbours' covariance, row by row, and the solved logarithms.
    factor: Vec<Vec<f64>>,
    solved: Vec<f64>,
}

impl Field {
    pub fn new(op: &str, neighbours: &[Neighbour], length: f64) -> Self {
        let place = |n: &Neighbour| Place::of(op, &Shape::parse(&n.shape).unwrap_or_default());
        let logs = neighbours.iter().map(|n| n.ratio.max(1e-9).ln()).collect();
        Self::of(neighbours.iter().map(place).collect(), logs, length)
    }

    fn of(places: Vec<Place>, logs: Vec<f64>, length: f64) -> Self {
        let n = places.len();
        let mean_square = logs.iter().map(|y| y * y).sum::<f64>() / n.max(1) as f64;
        let variance = mean_square.max(LEAST * LEAST);
        let mut factor = vec![vec![0.0; n]; n];
        for i in 0..n {
            for j in 0..=i {
                let own = if i == j { NOISE * NOISE } else { 0.0 };
                let c = variance * covariance(places[i].distance(&places[j]), length) + own;
                let sum: f64 = (0..j).map(|k| factor[i][k] * factor[j][k]).sum();
                // Positive: the noise on the diagonal keeps equal places apart.
                factor[i][j] = if i == j { (c - sum).max(1e-12).sqrt() } else { (c - sum) / factor[j][j] };
            }
        }
        let mut field = Self { places, length, variance, factor, solved: Vec::new() };
        let half = field.forward(&logs);
        field.solved = field.backward(&half);
        field
    }

    fn forward(&self, b: &[f64]) -> Vec<f64> {
        let mut x = vec![0.0; b.len()];
        for i in 0..b.len() {
            let sum: f64 = (0..i).map(|k| self.factor[i][k] * x[k]).sum();
            x[i] = (b[i] - sum) / self.factor[i][i];
        }
        x
    }
    fn backward(&self, b: &[f64]) -> Vec<f64> {
        let n = b.len();
        let mut x = vec![0.0; n];
        for i in (0..n).rev() {
            let sum: f64 = (i + 1..n).map(|k| self.factor[k][i] * x[k]).sum();
            x[i] = (b[i] - sum) / self.factor[i][i];
        }
        x
    }

    /// ln(measured / fitted) expected at a place, and its standard deviation.
    pub fn at(&self, place: &Place) -> (f64, f64) {
        let near: Vec<f64> =
            self.places.iter().map(|p| self.variance * covariance(p.distance(place), self.length)).collect();
        let mean = near.iter().zip(&self.solved).map(|(a, b)| a * b).sum();
        let told: f64 = self.forward(&near).iter().map(|v| v * v).sum();
        (mean, ((self.variance - told).max(0.0) + NOISE * NOISE).sqrt())
    }
}

/// The length with the least error where each neighbour is asked of the others.
pub fn best_length(op: &str, neighbours: &[Neighbour]) -> f64 {
    let places: Vec<Place> =
        neighbours.iter().map(|n| Place::of(op, &Shape::parse(&n.shape).unwrap_or_default())).collect();
    let logs: Vec<f64> = neighbours.iter().map(|n| n.ratio.max(1e-9).ln()).collect();
    let error = |length: f64| -> f64 {
        let without = |i: usize| {
            let rest = |j: &usize| *j != i;
            let others = (0..places.len()).filter(rest).map(|j| places[j].clone()).collect();
            let field = Field::of(others, (0..logs.len()).filter(rest).map(|j| logs[j]).collect(), length);
            (field.at(&places[i]).0 - logs[i]).powi(2)
        };
        (0..places.len()).map(without).sum()
    };
    LENGTHS.into_iter().min_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap_or(LENGTHS[2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(op: &str, text: &str) -> Place {
        Place::of(op, &Shape::parse(text).unwrap())
    }

    #[test]
    fn distance_counts_octaves_and_words_and_knows_defaults() {
        let d = |op: &str, a: &str, b: &str| place(op, a).distance(&place(op, b));
        assert_eq!(d("matmul", "m=1,n=4k,k=4k", "m=1,n=4096,k=4096,dtype=bf16,cfg=3"), 0.0);
        assert_eq!(d("matmul", "m=1,n=4k,k=4k", "m=8,n=4k,k=4k"), 3.0);
        assert_eq!(d("matmul", "m=1,n=4k,k=4k", "m=1,n=4k,k=4k,post=residual"), WORD);
        assert!(d("softmax", "rows=64,cols=2k", "rows=64,cols=2k,mask=causal") >= WORD);
        assert_eq!(d("paged_attention", "batch=2,ctx=1k", "lens=1000:1048"), 0.0);
        assert!(d("paged_attention", "batch=2,ctx=1k", "lens=24:2024") >= WORD);
    }

    #[test]
    fn neighbours_are_met_and_far_away_the_line_stands() {
        let neighbour = |n: u64, ratio: f64| Neighbour { shape: format!("m=1,n={n},k=4096"), ratio };
        let all = [neighbour(4096, 1.5), neighbour(16384, 1.2), neighbour(65536, 0.9)];
        let field = Field::new("matmul", &all, 4.0);
        let at = |text: &str| field.at(&place("matmul", text));
        for n in &all {
            let (mean, deviation) = at(&n.shape);
            assert!((mean.exp() / n.ratio - 1.0).abs() < 0.02 && deviation < 0.04, "{n:?}: {mean} {deviation}");
        }
        let (between, _) = at("m=1,n=8192,k=4096");
        assert!((1.22..1.5).contains(&between.exp()), "{}", between.exp());
        let (far, wide) = at("m=1,n=8192,k=4");
        assert!(far.abs() < 0.1 && wide > 0.15, "{far} {wide}");
    }

    proptest! {
        #[test]
        fn never_surer_than_the_clock_nor_less_sure_than_no_neighbour(ratios in prop::collection::vec(0.3f64..3.0, 1..12), n in 1u64..100_000) {
            let all: Vec<Neighbour> = ratios.iter().enumerate()
                .map(|(i, r)| Neighbour { shape: format!("m=1,n={},k=4096", 64 << i), ratio: *r }).collect();
            let field = Field::new("matmul", &all, best_length("matmul", &all));
            let (mean, deviation) = field.at(&place("matmul", &format!("m=1,n={n},k=4096")));
            prop_assert!(mean.is_finite() && deviation >= NOISE - 1e-12);
            prop_assert!(deviation <= (field.variance + NOISE * NOISE).sqrt() + 1e-9);
        }
    }
}
