//! The contestants of one shape: our variants and the library's product, on the same buffers, checked, then timed in
//! alternation.

use super::arrays::{self, Arrays};
use super::measure::{self, Bench, Launches, Mode, Options, Work};
use super::peer::CublasLt;
use super::sweep::{Contestant, Plan, Predicted, Refusal, Row, predict, sets_for};
use super::warning::{FLOOR_SLACK, Warning};
use super::{Executor, Gpu};
use crate::error::Result;
use crate::op::{Check, Chip, Op, Shape};
use crate::roofline::{Calibration, Ceilings};

/// One shape's contestants, prepared on shared input sets and checked.
pub struct Lineup {
    op: &'static dyn Op,
    shape: Shape,
    chip: Chip,
    sets: Vec<Arrays>,
    /// Input sets that a cold rotation asks for; `sets` are fewer where memory is short.
    wanted: usize,
    workspaces: Vec<u64>,
    entries: Vec<Entry>,
    refused: Vec<Refusal>,
}

struct Entry {
    variant: String,
    /// The lineup's, or the same with a configuration named.
    shape: Shape,
    peer: bool,
    predicted: Predicted,
    checks: Vec<Check>,
    work: Box<dyn Work>,
}

impl Lineup {
    /// Allocates the input sets, prepares every contestant on them and checks each once. Free it with
    /// [`Lineup::free`]; what an error leaves allocated goes with the [`Gpu`].
    pub fn new(
        gpu: &mut Gpu,
        op: &'static dyn Op,
        shape: &Shape,
        ceilings: &Ceilings,
        plan: &Plan,
        note: &mut dyn FnMut(String),
    ) -> Result<Self> {
        let chip = gpu.chip();
        let (mut variants, mut refused) = plan.which.variants(op, shape, &chip)?;
        variants.retain(|(name, shape)| {
            match op.variant(name).map_err(Into::into).and_then(|v| gpu.can_run(op.name(), v)) {
                Ok(()) => true,
                Err(e) => {
                    refused.push(Refusal::new(op, name, shape, e.what));
                    false
                }
            }
        });
        let mut lineup = Self {
            op,
            shape: shape.clone(),
            chip,
            sets: Vec::new(),
            wanted: 0,
            workspaces: Vec::new(),
            entries: Vec::new(),
            refused,
        };
        // Nothing of ours runs: the library alone is no comparison.
        if variants.is_empty() {
            return Ok(lineup);
        }
        lineup.wanted = match plan.options.mode {
            Mode::Graph => sets_for(&chip, op.cost(shape)?.bytes()),
            Mode::Cold | Mode::Hot => 1,
        };
        lineup.sets = input_sets(gpu, op, shape, lineup.wanted, plan.seed)?;
        match lineup.fill(gpu, &variants, ceilings, plan, note) {
            Ok(()) => Ok(lineup),
            Err(e) => {
                lineup.free(gpu)?;
                Err(e)
            }
        }
    }

    fn fill(
        &mut self,
        gpu: &mut Gpu,
        variants: &[Contestant],
        ceilings: &Ceilings,
        plan: &Plan,
        note: &mut dyn FnMut(String),
    ) -> Result<()> {
        let op = self.op;
        for (variant, shape) in variants {
            let predicted = predict(op, variant, shape, &self.chip, ceilings)?;
            let workspace = arrays::workspace(gpu, op, variant, shape)?;
            self.workspaces.extend(workspace);
            let mut prepared = Vec::new();
            for set in &self.sets {
                let mut at = set.bindings().clone();
                if let Some(address) = workspace {
                    at.set("workspace", address);
                }
                prepared.push(gpu.prepare(&op.launches(variant, shape, &self.chip, &at)?)?);
            }
            let work = Launches { name: format!("{}/{variant}", op.name()), sets: prepared };
            self.enter(gpu, (variant, shape), false, predicted, Box::new(work), plan)?;
        }
        let shape = self.shape.clone();
        if plan.library && op.name() == "matmul" {
            match CublasLt::product(gpu.device(), &shape, &self.sets) {
                Ok(Some(work)) => {
                    let cost = op.cost(&shape)?;
                    let known = Calibration::recorded();
                    let name = work.name().to_string();
                    let p = known.estimate(op.name(), &name, &shape, &cost, (&self.chip, ceilings)).prediction;
                    let predicted =
                        Predicted { cost, floor: p.floor, ns: p.ns, low: p.low, high: p.high, launches: Vec::new() };
                    self.enter(gpu, (&name, &shape), true, predicted, Box::new(work), plan)?;
                }
                Ok(None) => {}
                Err(e) => note(format!("no library row: {e}")),
            }
        }
        // Whatever was filled in the GPU's stream must have arrived before another stream times it.
        gpu.sync()
    }

    fn enter(
        &mut self,
        gpu: &mut Gpu,
        (variant, shape): (&str, &Shape),
        peer: bool,
        predicted: Predicted,
        work: Box<dyn Work>,
        plan: &Plan,
    ) -> Result<()> {
        let checks = if plan.check { check(gpu, self.op, &self.shape, &*work, &self.sets[0])? } else { Vec::new() };
        self.entries.push(Entry { variant: variant.into(), shape: shape.clone(), peer, predicted, checks, work });
        Ok(())
    }

    /// The contestants, for whoever times them in another way.
    pub fn works(&self) -> impl Iterator<Item = (&dyn Work, &Predicted)> {
        self.entries.iter().map(|e| (&*e.work, &e.predicted))
    }

    /// The variants that were asked for and cannot run this shape here.
    pub fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    /// Times all of them in alternation.
    pub fn measure(&self, bench: &mut Bench, options: &Options) -> Result<Vec<Row>> {
        if self.entries.is_empty() {
            return Ok(Vec::new());
        }
        let works: Vec<&dyn Work> = self.works().map(|(work, _)| work).collect();
        let place = || format!("{} {}", self.op.name(), self.shape);
        let timings = bench.measure(&works, options).map_err(|e| e.at(place()))?;
        let first = timings[0].clone();
        Ok(self
            .entries
            .iter()
            .zip(timings)
            .enumerate()
            .map(|(i, (entry, timing))| {
                let mut row = Row {
                    op: self.op.name(),
                    variant: entry.variant.clone(),
                    peer: entry.peer,
                    shape: entry.shape.clone(),
                    predicted: entry.predicted.clone(),
                    ratio: (i > 0).then(|| measure::ratio(&timing, &first)),
                    timing,
                    sets: self.sets.len(),
                    checks: entry.checks.clone(),
                };
                hazards(&mut row, self.wanted, self.sets.len(), &self.chip);
                row
            })
            .collect())
    }

    /// Releases everything that it holds on the device.
    pub fn free(self, gpu: &mut Gpu) -> Result<()> {
        drop(self.entries);
        self.workspaces.into_iter().try_for_each(|address| gpu.free(address))?;
        self.sets.into_iter().try_for_each(|set| set.free(gpu))
    }
}

/// Allocates input sets, as many as wanted and memory allows, at least one.
fn input_sets(gpu: &mut Gpu, op: &dyn Op, shape: &Shape, wanted: usize, seed: u64) -> Result<Vec<Arrays>> {
    // Page tables, rotations and poisoned caches take the host longer to make than all else: once will do.
    let buffers = op.buffers(shape, crate::op::mix(seed))?;
    let one: u64 = buffers.iter().map(|b| b.bytes().next_multiple_of(2 << 20)).sum();
    let (free, _) = gpu.device().memory()?;
    // A tenth stays for workspaces, graphs and the flush.
    let fits = (free / 10 * 9 / one.max(1)) as usize;
    let mut sets = Vec::new();
    for i in 0..wanted.min(fits.max(1)) as u64 {
        sets.push(Arrays::of(gpu, op, shape, buffers.clone(), crate::op::mix(seed.wrapping_add(i)))?);
    }
    gpu.sync()?;
    Ok(sets)
}

/// Runs a piece of work once on poisoned outputs and compares; a wrong kernel's time means nothing.
fn check(gpu: &mut Gpu, op: &dyn Op, shape: &Shape, work: &dyn Work, set: &Arrays) -> Result<Vec<Check>> {
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
        Mode::Graph => {
            if sets < wanted {
                warnings.push(Warning::FewSets { sets, wanted });
            }
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
