//! An op's variants over shapes, each shape's variants (and a vendor library's product) timed in alternation on the
//! same buffers, each with its floor beside it.

use super::Gpu;
pub use super::lineup::Lineup;
use super::measure::{Bench, Options, Timing};
use crate::error::Result;
use crate::op::{Check, Chip, Cost, Op, Shape};
use crate::roofline::coordinates::{self, Kernel};
use crate::roofline::{Calibration, Ceilings, Floor};

/// Bytes that a rotation of input sets must pass before it returns to the first: enough that L2 holds none of it.
pub fn footprint(chip: &Chip) -> u64 {
    (5 * chip.l2_bytes).max(300 << 20)
}

/// Most input sets: beyond it, small inputs do stay in L2, and the row says so.
const MOST_SETS: u64 = 2_048;

/// Input sets for a cold rotation of work that touches `bytes` each time.
pub fn sets_for(chip: &Chip, bytes: u64) -> usize {
    footprint(chip).div_ceil(bytes.max(1)).clamp(1, MOST_SETS) as usize
}

/// Which variants of an op to time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// What the op's heuristic picks.
    Chosen,
    /// Every variant that can compute the shape here.
    All,
    /// By name; `NAME:N` is the variant with row N of its configuration table (`cfg=N` in its shape).
    Named(Vec<String>),
}

/// A variant and the shape that it is timed at, which names the configuration where one was asked for.
pub type Contestant = (&'static str, Shape);

impl Which {
    /// The variants that can compute a shape, and the refusals of the others.
    ///
    /// # Errors
    /// A name that the op does not have.
    pub fn variants(&self, op: &dyn Op, shape: &Shape, chip: &Chip) -> Result<(Vec<Contestant>, Vec<Refusal>)> {
        let plain = |name: &'static str| (name, shape.clone());
        let all: Vec<Contestant> = match self {
            Self::Chosen => vec![plain(op.choose(shape, chip))],
            Self::All => op.variants().iter().map(|v| plain(v.name)).collect(),
            Self::Named(names) => names.iter().map(|n| named(op, n, shape)).collect::<Result<_>>()?,
        };
        let (mut kept, mut refused) = (Vec::new(), Vec::new());
        for (name, shape) in all {
            match op.supports(name, &shape, chip).and_then(|()| op.cost(&shape)) {
                Ok(_) => kept.push((name, shape)),
                Err(e) => refused.push(Refusal::new(op, name, &shape, e)),
            }
        }
        Ok((kept, refused))
    }
}

fn named(op: &dyn Op, name: &str, shape: &Shape) -> Result<Contestant> {
    let (name, cfg) = name.split_once(':').map_or((name, None), |(name, cfg)| (name, Some(cfg)));
    let shape = cfg.map_or_else(|| shape.clone(), |cfg| shape.clone().with("cfg", cfg));
    Ok((op.variant(name)?.name, shape))
}

/// A variant that was asked for and cannot compute a shape here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub op: &'static str,
    pub variant: String,
    pub shape: Shape,
    /// The rule that it breaks, with the numbers.
    pub why: String,
}

impl Refusal {
    pub fn new(op: &dyn Op, variant: &str, shape: &Shape, why: impl std::fmt::Display) -> Self {
        Self { op: op.name(), variant: variant.into(), shape: shape.clone(), why: why.to_string() }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {} refused: {}", self.op, self.variant, self.shape, self.why)
    }
}

/// What a variant should cost before anything runs.
#[derive(Clone, Debug)]
pub struct Predicted {
    pub cost: Cost,
    pub floor: Floor,
    /// Calibrated estimate, with its 80 % interval.
    pub ns: f64,
    pub low: f64,
    pub high: f64,
    /// Its kernels, as the neighbours of a prediction are told by.
    pub launches: Vec<Kernel>,
}

/// Predicts a variant on a machine. Needs no device: the launches are made for invented addresses and only counted.
pub fn predict(op: &dyn Op, variant: &str, shape: &Shape, chip: &Chip, ceilings: &Ceilings) -> Result<Predicted> {
    let cost = op.cost(shape)?;
    let p = Calibration::recorded().estimate(op.name(), variant, shape, &cost, (chip, ceilings)).prediction;
    let launches = coordinates::kernels(op, variant, shape, chip)?;
    Ok(Predicted { cost, floor: p.floor, ns: p.ns, low: p.low, high: p.high, launches })
}

/// One measured row.
#[derive(Debug)]
pub struct Row {
    pub op: &'static str,
    pub variant: String,
    /// Whether it is a library's row and not ours.
    pub peer: bool,
    pub shape: Shape,
    pub predicted: Predicted,
    pub timing: Timing,
    pub sets: usize,
    /// Comparison with the f64 reference, where it was asked for.
    pub checks: Vec<Check>,
    /// Time over the first row's of the same shape, with its 95 % interval.
    pub ratio: Option<(f64, f64, f64)>,
}

impl Row {
    /// Floor over measured time.
    pub fn share(&self) -> f64 {
        self.predicted.floor.ns / self.timing.ns
    }
    pub fn ok(&self) -> bool {
        self.checks.iter().all(Check::ok)
    }
}

/// How to sweep.
#[derive(Clone, Debug)]
pub struct Plan {
    pub which: Which,
    pub options: Options,
    /// Check every row against the reference before it is timed.
    pub check: bool,
    /// Time the vendor library beside a plain matrix product.
    pub library: bool,
    pub seed: u64,
}

/// One shape's rows in the variants' order, the library's last, and the variants that did not run.
#[derive(Debug, Default)]
pub struct Measured {
    pub rows: Vec<Row>,
    pub refused: Vec<Refusal>,
}

/// Times one shape; `note` hears what is left out besides refused variants.
///
/// # Errors
/// Out of memory for a single input set; a launch that fails.
pub fn shape(
    gpu: &mut Gpu,
    bench: &mut Bench,
    op: &'static dyn Op,
    shape: &Shape,
    ceilings: &Ceilings,
    plan: &Plan,
    note: &mut dyn FnMut(String),
) -> Result<Measured> {
    let lineup = Lineup::new(gpu, op, shape, ceilings, plan, note)?;
    let refused = lineup.refused().to_vec();
    let rows = lineup.measure(bench, &plan.options);
    lineup.free(gpu)?;
    Ok(Measured { rows: rows?, refused })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_passes_five_times_l2() {
        let chip = Chip::H200;
        assert_eq!(sets_for(&chip, 1 << 30), 1);
        assert!(sets_for(&chip, 33_554_432) as u64 * 33_554_432 >= 5 * chip.l2_bytes);
        assert_eq!(sets_for(&chip, 1) as u64, MOST_SETS);
    }
}
