//! Checks variants against their f64 references on any executor: poisoned outputs, guarded arrays, untouched inputs,
//! exact reruns, and on the emulator every thread order.

mod sweep;

pub use sweep::{Case, Limits, Summary, shapes, sweep};

use super::{Executor, fill};
use crate::error::{Error, Result};
use crate::op::{Bindings, Buffer, Check, Op, OpError, OpResult, Role, Shape, Variant, View};
use std::cell::RefCell;

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

/// An op's arrays on an executor, freed when done.
struct Arrays<'a> {
    executor: RefCell<&'a mut dyn Executor>,
    buffers: Vec<Buffer>,
    addresses: Vec<u64>,
    at: Bindings,
    seed: u64,
}

impl<'a> Arrays<'a> {
    fn new(executor: &'a mut dyn Executor, buffers: Vec<Buffer>, workspace: u64, seed: u64) -> Result<Self> {
        let mut arrays =
            Self { executor: RefCell::new(executor), buffers, addresses: Vec::new(), at: Bindings::new(), seed };
        for i in 0..arrays.buffers.len() {
            let address = arrays.executor.get_mut().alloc(arrays.buffers[i].bytes())?;
            arrays.addresses.push(address);
            arrays.at.set(arrays.buffers[i].name, address);
            arrays.begin(i)?;
        }
        let address = arrays.executor.get_mut().alloc(workspace)?;
        arrays.addresses.push(address);
        arrays.at.set("workspace", address);
        let zero = crate::op::Init::Zero;
        arrays.executor.get_mut().fill(address, crate::op::DType::U8, workspace, &zero, 0)?;
        Ok(arrays)
    }
    /// Gives a buffer its first contents.
    fn begin(&mut self, i: usize) -> Result<()> {
        let (b, address) = (&self.buffers[i], self.addresses[i]);
        let key = fill::key(self.seed, b.name);
        self.executor.get_mut().fill(address, b.dtype, b.len, &b.init, key)
    }
    /// Poisons outputs and resets what is read and written.
    fn reset(&mut self) -> Result<()> {
        (0..self.buffers.len())
            .filter(|&i| self.buffers[i].role != Role::Input)
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|i| self.begin(i))
    }
    /// The bytes of an output that reruns are compared by: all, or three windows of a large one.
    fn evidence(&mut self, i: usize) -> Result<Vec<u8>> {
        let bytes = self.buffers[i].bytes();
        let windows = match bytes {
            0..=COMPARE_OUTPUTS => vec![(0, bytes)],
            _ => vec![(0, SAMPLE), (bytes / 2 / 16 * 16, SAMPLE), (bytes - SAMPLE, SAMPLE)],
        };
        let mut all = Vec::new();
        for (from, len) in windows {
            let mut part = vec![0; len as usize];
            self.executor.get_mut().read(self.addresses[i] + from, &mut part)?;
            all.append(&mut part);
        }
        Ok(all)
    }
    /// Names an input that a kernel changed.
    fn changed_input(&mut self) -> Result<Option<&'static str>> {
        for i in 0..self.buffers.len() {
            let b = &self.buffers[i];
            if b.role != Role::Input || b.bytes() > COMPARE_INPUTS {
                continue;
            }
            let want = fill::bytes(&b.init, b.dtype, fill::key(self.seed, b.name), 0, b.len)?;
            let (name, mut got) = (b.name, vec![0; want.len()]);
            self.executor.get_mut().read(self.addresses[i], &mut got)?;
            if got != want {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

impl Drop for Arrays<'_> {
    fn drop(&mut self) {
        for &address in &self.addresses {
            // A failed release cannot be helped here, and what went wrong before it is already reported.
            let _ = self.executor.get_mut().free(address);
        }
    }
}

impl View for Arrays<'_> {
    fn read(&self, name: &str, first: u64, len: u64) -> OpResult<Vec<f64>> {
        let raw = self.raw(name, first, len)?;
        let dtype = self.buffers.iter().find(|b| b.name == name).expect("raw found it").dtype;
        Ok((0..len as usize).map(|i| fill::decode(dtype, &raw, i)).collect())
    }
    fn raw(&self, name: &str, first: u64, len: u64) -> OpResult<Vec<u8>> {
        let i = self
            .buffers
            .iter()
            .position(|b| b.name == name)
            .ok_or_else(|| crate::op_error!("there is no buffer `{name}`"))?;
        let size = self.buffers[i].dtype.size();
        if first + len > self.buffers[i].len {
            return Err(crate::op_error!(
                "elements {first}..{} of `{name}`, which has {}",
                first + len,
                self.buffers[i].len
            ));
        }
        let mut bytes = vec![0; (len * size) as usize];
        let mut executor = self.executor.borrow_mut();
        executor.read(self.addresses[i] + first * size, &mut bytes).map_err(|e| OpError(e.to_string()))?;
        Ok(bytes)
    }
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
    let schedules = executor.schedules();
    // Where the hardware decides the order, a second run may meet another one.
    let runs = schedules.max(2);
    let buffers = op.buffers(shape, seed)?;
    let workspace = op.workspace(variant.name, shape, &chip)?;
    let mut arrays = Arrays::new(executor, buffers, workspace, seed)?;
    let launches = op.launches(variant.name, shape, &chip, &arrays.at)?;
    let outputs: Vec<usize> = (0..arrays.buffers.len()).filter(|&i| arrays.buffers[i].role != Role::Input).collect();
    let mut first: Vec<Vec<u8>> = Vec::new();
    let mut checks = Vec::new();
    for run in 0..runs {
        if run > 0 {
            arrays.reset()?;
        }
        let executor = arrays.executor.get_mut();
        executor.set_schedule(run % schedules);
        let ran = executor.launch(&launches).and_then(|()| executor.sync());
        match ran {
            Ok(()) => {}
            Err(e) if e.kind == crate::error::Kind::Check => return Ok(Outcome::Wrong(e.what)),
            Err(e) => return Err(e.at(format!("{}/{} {shape}", op.name(), variant.name))),
        }
        let floats = executor.take_float_atomics();
        let now = outputs.iter().map(|&i| arrays.evidence(i)).collect::<Result<Vec<_>>>()?;
        if run == 0 || floats {
            checks = op.check(shape, &arrays)?;
            if let Some(bad) = checks.iter().find(|c| !c.ok()) {
                return Ok(Outcome::Wrong(describe(bad, run, schedules)));
            }
            if run == 0 {
                first = now;
                if let Some(name) = arrays.changed_input()? {
                    return Ok(Outcome::Wrong(format!("the kernel wrote to its input `{name}`")));
                }
            }
        } else if let Some(k) = (0..outputs.len()).find(|&k| first[k] != now[k]) {
            let at = first[k].iter().zip(&now[k]).position(|(a, b)| a != b).unwrap_or(0);
            let name = arrays.buffers[outputs[k]].name;
            let how =
                if schedules > 1 { format!("thread order {}", run % schedules) } else { format!("run {}", run + 1) };
            return Ok(Outcome::Wrong(format!(
                "`{name}` differs between the first run and {how}, from byte {at} on: a race"
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
