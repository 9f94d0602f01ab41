//! An op's arrays on an executor: allocated, filled, bound by name, and read back for the check.

use super::{Executor, fill};
use crate::error::Result;
use crate::op::{Bindings, Buffer, Check, Init, Op, OpError, OpResult, Role, Shape, View};
use std::cell::RefCell;

/// The arrays of one op and shape. The executor that made them must free them ([`Arrays::free`]) or end.
#[derive(Debug)]
pub struct Arrays {
    buffers: Vec<Buffer>,
    at: Bindings,
    seed: u64,
}

impl Arrays {
    /// Allocates and fills every buffer of a shape; outputs begin poisoned. Two seeds give two different sets.
    pub fn new(exec: &mut dyn Executor, op: &dyn Op, shape: &Shape, seed: u64) -> Result<Self> {
        Self::of(exec, op, shape, op.buffers(shape, seed)?, seed)
    }
    /// The same from buffers that were described before: contents given as bytes come again, random ones are `seed`'s.
    pub fn of(exec: &mut dyn Executor, op: &dyn Op, shape: &Shape, buffers: Vec<Buffer>, seed: u64) -> Result<Self> {
        let mut arrays = Self { buffers, at: Bindings::new(), seed };
        for i in 0..arrays.buffers.len() {
            let made = exec.alloc(arrays.buffers[i].bytes());
            match made {
                Ok(address) => arrays.at.set(arrays.buffers[i].name, address),
                Err(e) => {
                    let name = arrays.buffers[i].name;
                    arrays.free(exec)?;
                    return Err(e.at(format!("{name} of {} {shape}", op.name())));
                }
            }
        }
        arrays.fill(exec, |_| true)?;
        Ok(arrays)
    }
    /// Gives the buffers that `which` picks their first contents again.
    pub fn fill(&self, exec: &mut dyn Executor, which: impl Fn(&Buffer) -> bool) -> Result<()> {
        for buffer in self.buffers.iter().filter(|b| which(b)) {
            let key = fill::key(self.seed, buffer.name);
            exec.fill(self.at.get(buffer.name)?, buffer.dtype, buffer.len, &buffer.init, key)?;
        }
        Ok(())
    }
    /// Poisons outputs and restores what the op changes in place, so that the next launch starts as the first did.
    pub fn reset(&self, exec: &mut dyn Executor) -> Result<()> {
        self.fill(exec, |b| b.role != Role::Input)
    }
    pub fn bindings(&self) -> &Bindings {
        &self.at
    }
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().map(Buffer::bytes).sum()
    }
    /// Compares the outputs, as they lie, with the op's f64 reference.
    pub fn check(&self, exec: &mut dyn Executor, op: &dyn Op, shape: &Shape) -> Result<Vec<Check>> {
        exec.sync()?;
        Ok(op.check(shape, &ArraysView { arrays: self, exec: RefCell::new(exec) })?)
    }
    /// Releases every array.
    pub fn free(self, exec: &mut dyn Executor) -> Result<()> {
        self.buffers.iter().filter_map(|b| self.at.maybe(b.name)).try_for_each(|address| exec.free(address))
    }
}

struct ArraysView<'a> {
    arrays: &'a Arrays,
    exec: RefCell<&'a mut dyn Executor>,
}

impl ArraysView<'_> {
    fn fetch(&self, name: &str, first: u64, len: u64) -> OpResult<(&Buffer, Vec<u8>)> {
        let buffer = self
            .arrays
            .buffers
            .iter()
            .find(|b| b.name == name)
            .ok_or_else(|| OpError(format!("there is no buffer `{name}`")))?;
        if first.checked_add(len).is_none_or(|end| end > buffer.len) {
            return Err(OpError(format!("elements {first}..{first}+{len} of `{name}`, which has {}", buffer.len)));
        }
        let size = buffer.dtype.size();
        let mut raw = vec![0; (len * size) as usize];
        let address = self.arrays.at.get(name)? + first * size;
        self.exec.borrow_mut().read(address, &mut raw).map_err(|e| OpError(e.to_string()))?;
        Ok((buffer, raw))
    }
}

impl View for ArraysView<'_> {
    fn read(&self, name: &str, first: u64, len: u64) -> OpResult<Vec<f64>> {
        let (buffer, raw) = self.fetch(name, first, len)?;
        Ok((0..len as usize).map(|i| fill::decode(buffer.dtype, &raw, i)).collect())
    }
    fn raw(&self, name: &str, first: u64, len: u64) -> OpResult<Vec<u8>> {
        Ok(self.fetch(name, first, len)?.1)
    }
    fn first(&self, name: &str, first: u64, len: u64) -> OpResult<Vec<f64>> {
        let buffer = self.arrays.buffers.iter().find(|b| b.name == name);
        let buffer = buffer.ok_or_else(|| OpError(format!("there is no buffer `{name}`")))?;
        let key = fill::key(self.arrays.seed, name);
        let raw = fill::bytes(&buffer.init, buffer.dtype, key, first, len).map_err(|e| OpError(e.to_string()))?;
        Ok((0..len as usize).map(|i| fill::decode(buffer.dtype, &raw, i)).collect())
    }
}

/// Zeroed scratch of a variant, bound as `workspace`; absent where it needs none.
pub fn workspace(exec: &mut dyn Executor, op: &dyn Op, variant: &str, shape: &Shape) -> Result<Option<u64>> {
    let bytes = op.workspace(variant, shape, &exec.chip())?;
    if bytes == 0 {
        return Ok(None);
    }
    let address = exec.alloc(bytes)?;
    exec.fill(address, crate::op::DType::U8, bytes, &Init::Zero, 0)?;
    Ok(Some(address))
}
