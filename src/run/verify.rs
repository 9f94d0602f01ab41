//! Checks variants against their f64 references on any executor: poisoned outputs, guarded arrays, untouched inputs,
//! exact reruns, and on the emulator every thread order.

mod sweep;

pub use sweep::{Case, Limits, Summary, shapes, sweep};

use super::arrays::{Arrays, workspace};
use super::{Executor, fill};
use crate::error::{Error, Kind, Result};
use crate::op::{Buffer, Check, Op, OpError, Role, Shape, Variant};

/// Inputs up to this size are read back to see that no kernel wrote to them, bytes.
const COMPARE_INPUTS: u64 = 64 << 20;
/// Outputs up to this size are kept to compare reruns bit for bit, bytes; of larger ones samples are compared.
const COMPARE_OUTPUTS: u64 = 256 << 20;
/// Bytes of one sample of a larger output.
const SAMPLE: u64 = 4 << 20;

/// What a check of one variant at one shape found.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Every output is right; the checks say by how much.
    Right(Vec<Check>),
    /// A result is wrong or a rule was broken.
    Wrong(String),
    /// The variant does not take this shape here, and why.
    Skipped(String),
}

impl Outcome {
    pub fn is_wrong(&self) -> bool {
        matches!(self, Self::Wrong(_))
    }
    /// The check nearest to its tolerance.
    pub fn worst(&self) -> Option<&Check> {
        let Self::Right(checks) = self else { return None };
        checks.iter().max_by(|a, b| (a.error / a.tolerance).total_cmp(&(b.error / b.tolerance)))
    }
}

/// The bytes of an output that reruns are compared by: all, or three windows of a large one.
fn evidence(exec: &mut dyn Executor, arrays: &Arrays, buffer: &Buffer) -> Result<Vec<u8>> {
    let bytes = buffer.bytes();
    let windows = match bytes {
        0..=COMPARE_OUTPUTS => vec![(0, bytes)],
        _ => vec![(0, SAMPLE), (bytes / 2 / 16 * 16, SAMPLE), (bytes - SAMPLE, SAMPLE)],
    };
    let mut all = Vec::new();
    for (from, len) in windows {
        let mut part = vec![0; len as usize];
        exec.read(arrays.bindings().get(buffer.name)? + from, &mut part)?;
        all.append(&mut part);
    }
    Ok(all)
}

/// Names an input that a kernel changed.
fn changed_input(exec: &mut dyn Executor, arrays: &Arrays, seed: u64) -> Result<Option<&'static str>> {
    for b in arrays.buffers().iter().filter(|b| b.role == Role::Input && b.bytes() <= COMPARE_INPUTS) {
        let want = fill::bytes(&b.init, b.dtype, fill::key(seed, b.name), 0, b.len)?;
        let mut got = vec![0; want.len()];
        exec.read(arrays.bindings().get(b.name)?, &mut got)?;
        if got != want {
            return Ok(Some(b.name));
        }
    }
    Ok(None)
}

/// Runs one variant at one shape and checks everything that can be checked.
///
/// # Errors
/// Only what makes going on pointless: no memory, a lost device, a bad shape description. Findings are an [`Outcome`].
pub fn check(executor: &mut dyn Executor, op: &dyn Op, variant: &Variant, shape: &Shape, seed: u64) -> Result<Outcome> {
    if let Err(e) = executor.can_run(op.name(), variant) {
        return Ok(Outcome::Skipped(e.what));
    }
    let chip = executor.chip();
    if let Err(OpError(why)) = op.supports(variant.name, shape, &chip) {
        return Ok(Outcome::Skipped(why));
    }
    let arrays = Arrays::new(executor, op, shape, seed)?;
    let scratch = workspace(executor, op, variant.name, shape)?;
    let found = runs(executor, op, variant, shape, &arrays, scratch, seed);
    let freed = scratch.map_or(Ok(()), |address| executor.free(address)).and_then(|()| arrays.free(executor));
    // The finding matters more than what went wrong while cleaning up after it.
    found.and_then(|outcome| freed.map(|()| outcome))
}

fn runs(
    executor: &mut dyn Executor,
    op: &dyn Op,
    variant: &Variant,
    shape: &Shape,
    arrays: &Arrays,
    scratch: Option<u64>,
    seed: u64,
) -> Result<Outcome> {
    let mut at = arrays.bindings().clone();
    if let Some(address) = scratch {
        at.set("workspace", address);
    }
    let launches = op.launches(variant.name, shape, &executor.chip(), &at)?;
    let schedules = executor.schedules();
    let outputs: Vec<&Buffer> = arrays.buffers().iter().filter(|b| b.role != Role::Input).collect();
    let mut first: Vec<Vec<u8>> = Vec::new();
    let mut checks = Vec::new();
    // Where the hardware decides the order, a second run may meet another one.
    for run in 0..schedules.max(2) {
        if run > 0 {
            arrays.reset(executor)?;
        }
        executor.set_schedule(run % schedules);
        let ran = executor.launch(&launches).and_then(|()| executor.sync());
        match ran {
            Ok(()) => {}
            Err(e) if e.kind == Kind::Check => return Ok(Outcome::Wrong(e.what)),
            Err(e) => return Err(e.at(format!("{}/{} {shape}", op.name(), variant.name))),
        }
        let floats = executor.take_float_atomics();
        let now = outputs.iter().map(|b| evidence(executor, arrays, b)).collect::<Result<Vec<_>>>()?;
        if run == 0 || floats {
            checks = arrays.check(executor, op, shape)?;
            if let Some(bad) = checks.iter().find(|c| !c.ok()) {
                return Ok(Outcome::Wrong(describe(bad, run, schedules)));
            }
        }
        if run == 0 {
            first = now;
            if let Some(name) = changed_input(executor, arrays, seed)? {
                return Ok(Outcome::Wrong(format!("the kernel wrote to its input `{name}`")));
            }
        } else if !floats && let Some(k) = (0..outputs.len()).find(|&k| first[k] != now[k]) {
            let at = first[k].iter().zip(&now[k]).position(|(a, b)| a != b).unwrap_or(0);
            let which = if schedules > 1 { "thread order" } else { "run" };
            return Ok(Outcome::Wrong(format!(
                "`{}` differs between {which} 0 and {which} {run}, from byte {at} on: a race",
                outputs[k].name
            )));
        }
    }
    Ok(Outcome::Right(checks))
}

fn describe(check: &Check, run: u32, schedules: u32) -> String {
    let order = if schedules > 1 { format!(", thread order {}", run % schedules) } else { String::new() };
    let worst = check.worst.map_or(String::new(), |(i, got, want)| format!("; worst at {i}: {got}, expected {want}"));
    match &check.broken {
        Some(rule) => format!("`{}`: {rule}{order}", check.output),
        None => {
            let (error, tolerance) = (check.error, check.tolerance);
            format!("`{}`: error {error:.3e} exceeds {tolerance:.1e}{worst}{order}", check.output)
        }
    }
}

/// The ops and variants that names select; an unknown name is an error that lists the known ones.
pub fn select(op: Option<&str>, variant: Option<&str>) -> Result<Vec<(&'static dyn Op, &'static Variant)>> {
    let ops: Vec<&'static dyn Op> = match op {
        Some(name) => vec![crate::kernels::op(name)?],
        None => crate::kernels::OPS.to_vec(),
    };
    let mut all = Vec::new();
    for o in &ops {
        all.extend(o.variants().iter().filter(|v| variant.is_none_or(|name| v.name == name)).map(|v| (*o, v)));
    }
    if all.is_empty()
        && let Some(name) = variant
    {
        let known: Vec<String> =
            ops.iter().flat_map(|o| o.variants().iter().map(|v| format!("{}/{}", o.name(), v.name))).collect();
        return Err(Error::usage(format!("there is no variant `{name}`; there are {}", known.join(", "))));
    }
    Ok(all)
}
