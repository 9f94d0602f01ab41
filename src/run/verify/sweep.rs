//! Which shapes a verification runs: each op's edges, then random ones from a seed that is printed.

use super::{Outcome, check};
use crate::error::Result;
use crate::op::{Op, Rng, Shape, Variant};
use crate::run::Executor;

/// How much work one shape may be; the emulator takes small ones only.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Least traffic, bytes.
    pub bytes: u64,
    /// Least arithmetic, operations.
    pub flops: u64,
}

impl Limits {
    /// For the emulator: about a tenth of a second in each of three thread orders.
    pub const EMULATOR: Self = Self { bytes: 3 << 20, flops: 4_000_000 };
    /// For a GPU.
    pub const GPU: Self = Self { bytes: 1 << 30, flops: 4_000_000_000_000 };

    fn admit(&self, op: &dyn Op, shape: &Shape) -> bool {
        op.cost(shape).is_ok_and(|c| c.bytes() <= self.bytes && c.flops <= self.flops)
    }
}

/// One shape's outcome.
#[derive(Clone, Debug)]
pub struct Case {
    pub shape: Shape,
    pub seed: u64,
    pub outcome: Outcome,
    /// Time that the whole check took on the host, ns.
    pub host_ns: u64,
}

/// A variant's cases together.
#[derive(Clone, Debug)]
pub struct Summary {
    pub op: &'static str,
    pub variant: &'static str,
    pub cases: Vec<Case>,
    /// Edge shapes left out as too large for this executor.
    pub too_large: usize,
}

impl Summary {
    pub fn right(&self) -> usize {
        self.cases.iter().filter(|c| matches!(c.outcome, Outcome::Right(_))).count()
    }
    pub fn wrong(&self) -> usize {
        self.cases.iter().filter(|c| c.outcome.is_wrong()).count()
    }
    pub fn skipped(&self) -> usize {
        self.cases.len() - self.right() - self.wrong()
    }
    /// The case nearest to its tolerance, with error and tolerance.
    pub fn worst(&self) -> Option<(&Case, f64, f64)> {
        let ratio = |c: &&Case| c.outcome.worst().map_or(-1.0, |w| w.error / w.tolerance);
        let case = self.cases.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
        case.outcome.worst().map(|w| (case, w.error, w.tolerance))
    }
}

/// The edge shapes, if wanted, and `random` random ones within the limits, from a seed; and how many edges are too large.
pub fn shapes(op: &dyn Op, edges: bool, random: u64, seed: u64, limits: Limits) -> (Vec<Shape>, usize) {
    let edges = if edges { op.edge_shapes() } else { Vec::new() };
    let all = edges.len();
    let mut shapes: Vec<Shape> = edges.into_iter().filter(|s| limits.admit(op, s)).collect();
    let too_large = all - shapes.len();
    let mut rng = Rng(seed);
    for _ in 0..random {
        // A generator aimed at a GPU may need several draws to give one that the emulator can afford.
        shapes.extend((0..64).map(|_| op.random_shape(&mut rng)).find(|s| limits.admit(op, s)));
    }
    (shapes, too_large)
}

/// Checks one variant at all its shapes, telling `each` of every case as it ends.
pub fn sweep(
    executor: &mut dyn Executor,
    op: &'static dyn Op,
    variant: &'static Variant,
    (shapes, too_large): (&[Shape], usize),
    seed: u64,
    mut each: impl FnMut(&Case),
) -> Result<Summary> {
    let mut cases = Vec::new();
    for (i, shape) in shapes.iter().enumerate() {
        let seed = crate::op::mix(seed ^ i as u64);
        let start = std::time::Instant::now();
        let outcome = check(executor, op, variant, shape, seed)?;
        let case = Case { shape: shape.clone(), seed, outcome, host_ns: start.elapsed().as_nanos() as u64 };
        each(&case);
        cases.push(case);
    }
    Ok(Summary { op: op.name(), variant: variant.name, cases, too_large })
}
