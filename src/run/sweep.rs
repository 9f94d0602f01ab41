//! An op's variants over shapes, each shape's variants (and a vendor library's product) timed in alternation on the
//! same buffers, each with its floor beside it.

use super::arrays::{self, Arrays};
use super::measure::{self, Bench, Launches, Mode, Options, Timing, Work};
use super::peer::CublasLt;
use super::warning::{FLOOR_SLACK, Warning};
use super::{Executor, Gpu};
use crate::error::{Error, Result};
use crate::op::{Bindings, Check, Chip, Cost, Op, Shape};
use crate::roofline::{Calibration, Ceilings, Floor};

/// Bytes that a rotation of input sets must pass before it returns to the first: enough that L2 holds none of it.
pub fn footprint(chip: &Chip) -> u64 {
    (5 * chip.l2_bytes).max(300 << 20)
}

/// Input sets for a cold rotation of work that touches `bytes` each time.
pub fn sets_for(chip: &Chip, bytes: u64) -> usize {
    footprint(chip).div_ceil(bytes.max(1)).clamp(1, 512) as usize
}

/// Which variants of an op to time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// What the op's heuristic picks.
    Chosen,
    /// Every variant that can compute the shape here.
    All,
    Named(Vec<String>),
}

impl Which {
    /// The variants for a shape, and the reasons why others were left out.
    pub fn variants(&self, op: &dyn Op, shape: &Shape, chip: &Chip) -> Result<(Vec<&'static str>, Vec<String>)> {
        let mut left_out = Vec::new();
        let names: Vec<&'static str> = match self {
            Self::Chosen => vec![op.choose(shape, chip)],
            Self::All => op.variants().iter().map(|v| v.name).collect(),
            Self::Named(names) => names.iter().map(|n| op.variant(n).map(|v| v.name)).collect::<Result<_, _>>()?,
        };
        let all = *self == Self::All;
        let mut kept = Vec::new();
        for name in names {
            match op.supports(name, shape, chip) {
                Ok(()) => kept.push(name),
                Err(e) if all => left_out.push(format!("{}/{name}: {e}", op.name())),
                Err(e) => return Err(Error::from(e).at(format!("{}/{name}", op.name()))),
            }
        }
        Ok((kept, left_out))
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
    pub kernels: usize,
}

/// Predicts a variant on a machine. Needs no device: the launches are made for invented addresses and only counted.
pub fn predict(op: &dyn Op, variant: &str, shape: &Shape, chip: &Chip, ceilings: &Ceilings) -> Result<Predicted> {
    let cost = op.cost(shape)?;
    let p = Calibration::default().predict(op.name(), &cost, ceilings);
    let mut at = Bindings::new();
    for (i, buffer) in op.buffers(shape, 1)?.iter().enumerate() {
        at.set(buffer.name, (i as u64 + 1) << 40);
    }
    at.set("workspace", 1 << 50);
    let kernels = op.launches(variant, shape, chip, &at)?.len();
    Ok(Predicted { cost, floor: p.floor, ns: p.ns, low: p.low, high: p.high, kernels })
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

/// Times one shape. Rows come back in the variants' order, the library's last.
///
/// # Errors
/// Out of memory for a single input set; a launch that fails. Variants that cannot compute the shape are told through
/// `note` and left out.
pub fn shape(
    gpu: &mut Gpu,
    bench: &mut Bench,
    op: &'static dyn Op,
    shape: &Shape,
    ceilings: &Ceilings,
    plan: &Plan,
    note: &mut dyn FnMut(String),
) -> Result<Vec<Row>> {
    let chip = gpu.chip();
    let (variants, left_out) = plan.which.variants(op, shape, &chip)?;
    left_out.into_iter().for_each(&mut *note);
    let mut runnable = Vec::new();
    for name in variants {
        match gpu.can_run(op.name(), op.variant(name)?) {
            Ok(()) => runnable.push(name),
            Err(e) => note(e.what),
        }
    }
    let cost = op.cost(shape)?;
    let wanted = match plan.options.mode {
        Mode::Graph => sets_for(&chip, cost.bytes()),
        Mode::Cold | Mode::Hot => 1,
    };
    let sets = input_sets(gpu, op, shape, wanted, plan.seed)?;
    let scratch = sets.len();
    let result = rows(gpu, bench, op, shape, ceilings, plan, &runnable, &sets, note);
    for set in sets {
        set.free(gpu)?;
    }
    let mut rows = result?;
    for row in &mut rows {
        hazards(row, wanted, scratch, &chip);
    }
    Ok(rows)
}

/// Allocates input sets, as many as wanted and memory allows, at least one.
fn input_sets(gpu: &mut Gpu, op: &dyn Op, shape: &Shape, wanted: usize, seed: u64) -> Result<Vec<Arrays>> {
    let one: u64 = op.buffers(shape, seed)?.iter().map(|b| b.bytes().next_multiple_of(2 << 20)).sum();
    let (free, _) = gpu.device().memory()?;
    // A tenth stays for workspaces, graphs and the flush.
    let fits = (free / 10 * 9 / one.max(1)) as usize;
    let count = wanted.min(fits.max(1));
    let mut sets = Vec::with_capacity(count);
    for i in 0..count {
        sets.push(Arrays::new(gpu, op, shape, plan_seed(seed, i))?);
    }
    gpu.sync()?;
    Ok(sets)
}

fn plan_seed(seed: u64, set: usize) -> u64 {
    crate::op::mix(seed.wrapping_add(set as u64))
}

#[allow(clippy::too_many_arguments)]
fn rows(
    gpu: &mut Gpu,
    bench: &mut Bench,
    op: &'static dyn Op,
    shape: &Shape,
    ceilings: &Ceilings,
    plan: &Plan,
    variants: &[&'static str],
    sets: &[Arrays],
    note: &mut dyn FnMut(String),
) -> Result<Vec<Row>> {
    let chip = gpu.chip();
    let mut works: Vec<Box<dyn Work>> = Vec::new();
    let mut heads: Vec<(String, bool, Predicted, Vec<Check>)> = Vec::new();
    let mut workspaces = Vec::new();
    for variant in variants {
        let predicted = predict(op, variant, shape, &chip, ceilings)?;
        let workspace = arrays::workspace(gpu, op, variant, shape)?;
        workspaces.extend(workspace);
        let mut prepared = Vec::new();
        for set in sets {
            let mut at = set.bindings().clone();
            if let Some(address) = workspace {
                at.set("workspace", address);
            }
            prepared.push(gpu.prepare(&op.launches(variant, shape, &chip, &at)?)?);
        }
        let work = Launches { name: format!("{}/{variant}", op.name()), sets: prepared };
        let checks = check(gpu, op, shape, &work, &sets[0], plan)?;
        heads.push((variant.to_string(), false, predicted, checks));
        works.push(Box::new(work));
    }
    if plan.library && op.name() == "matmul" {
        match CublasLt::product(gpu.device(), shape, sets) {
            Ok(Some(work)) => {
                let checks = check(gpu, op, shape, &work, &sets[0], plan)?;
                let cost = op.cost(shape)?;
                let p = Calibration::default().predict(op.name(), &cost, ceilings);
                let predicted = Predicted { cost, floor: p.floor, ns: p.ns, low: p.low, high: p.high, kernels: 1 };
                heads.push((work.name().to_string(), true, predicted, checks));
                works.push(Box::new(work));
            }
            Ok(None) => {}
            Err(e) => note(format!("no library row: {e}")),
        }
    }
    let outcome = if works.is_empty() {
        Ok(Vec::new())
    } else {
        let borrowed: Vec<&dyn Work> = works.iter().map(|w| &**w).collect();
        bench.measure(&borrowed, &plan.options)
    };
    drop(works);
    for address in workspaces {
        gpu.free(address)?;
    }
    let timings = outcome.map_err(|e| e.at(format!("{} {shape}", op.name())))?;
    let first = timings.first().cloned();
    Ok(heads
        .into_iter()
        .zip(timings)
        .enumerate()
        .map(|(i, ((variant, peer, predicted, checks), timing))| Row {
            op: op.name(),
            variant,
            peer,
            shape: shape.clone(),
            predicted,
            ratio: first.as_ref().filter(|_| i > 0).map(|first| measure::ratio(&timing, first)),
            timing,
            sets: sets.len(),
            checks,
        })
        .collect())
}

/// Runs a piece of work once on poisoned outputs and compares; a wrong kernel's time means nothing.
fn check(gpu: &mut Gpu, op: &dyn Op, shape: &Shape, work: &dyn Work, set: &Arrays, plan: &Plan) -> Result<Vec<Check>> {
    if !plan.check {
        return Ok(Vec::new());
    }
    set.reset(gpu)?;
    gpu.sync()?;
    work.enqueue(0, gpu.stream())?;
    gpu.stream().synchronize(|| format!("running {} on {shape}", work.name()))?;
    let checks = set.check(gpu, op, shape)?;
    set.reset(gpu)?;
    gpu.sync()?;
    Ok(checks)
}

fn hazards(row: &mut Row, wanted: usize, sets: usize, chip: &Chip) {
    let touched = row.predicted.cost.bytes() * sets as u64;
    let warnings = &mut row.timing.warnings;
    match row.timing.mode {
        Mode::Hot if row.predicted.cost.bytes() < 2 * chip.l2_bytes => {
            warnings.push(Warning::L2Resident { bytes: row.predicted.cost.bytes(), l2_bytes: chip.l2_bytes })
        }
        Mode::Graph if sets < wanted => {
            warnings.push(Warning::FewSets { sets, wanted });
            if touched < 2 * chip.l2_bytes {
                warnings.push(Warning::L2Resident { bytes: touched, l2_bytes: chip.l2_bytes });
            }
        }
        _ => {}
    }
    // One cold launch may leave its writes in L2, and hot inputs never leave it: there the floor binds arithmetic only.
    let floor = match row.timing.mode {
        Mode::Graph if touched >= 2 * chip.l2_bytes => row.predicted.floor.ns,
        _ => row.predicted.floor.compute_ns,
    };
    if row.timing.ns < FLOOR_SLACK * floor {
        warnings.push(Warning::FasterThanFloor { ns: row.timing.ns, floor_ns: floor });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_passes_five_times_l2() {
        let chip = Chip::H200;
        assert_eq!(sets_for(&chip, 1 << 30), 1);
        assert!(sets_for(&chip, 33_554_432) as u64 * 33_554_432 >= 5 * chip.l2_bytes);
        assert_eq!(sets_for(&chip, 1), 512);
    }
}
