//! Where a launch stands among others: the sizes of its shape, and of its launches what tiles, waves and a heuristic's choice
//! make of them. Launches are data, so all of it is known before anything runs.

use crate::op::{Arg, Bindings, Chip, Launch, Op, OpResult, Shape};
use serde::{Deserialize, Serialize};

/// One kernel of a variant, as recorded beside a measured time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    pub entry: String,
    pub blocks: u64,
    pub cluster: u64,
    pub threads: u64,
    /// Dynamic shared memory of a block, bytes.
    pub shared: u64,
    /// Its whole numbers in the order of its arguments: sizes, steps, cuts.
    pub numbers: Vec<i64>,
}

impl Kernel {
    pub fn of(launch: &Launch) -> Self {
        let product = |of: [u32; 3]| of.iter().map(|v| u64::from(*v)).product();
        let number = |arg: &Arg| match arg {
            Arg::I32(v) => Some(i64::from(*v)),
            Arg::U32(v) => Some(i64::from(*v)),
            Arg::I64(v) => Some(*v),
            Arg::U64(v) => i64::try_from(*v).ok(),
            Arg::Ptr(_) | Arg::F32(_) | Arg::TensorMap(_) => None,
        };
        Self {
            entry: launch.entry.clone(),
            blocks: product(launch.grid),
            cluster: product(launch.cluster),
            threads: product(launch.block),
            shared: u64::from(launch.shared),
            numbers: launch.args.iter().filter_map(number).collect(),
        }
    }
}

/// A variant's kernels for a shape, at invented, distinct addresses.
///
/// # Errors
/// A shape that the variant refuses.
pub fn kernels(op: &dyn Op, variant: &str, shape: &Shape, chip: &Chip) -> OpResult<Vec<Kernel>> {
    let mut at = Bindings::new();
    for (i, buffer) in op.buffers(shape, 1)?.iter().enumerate() {
        at.set(buffer.name, (i as u64 + 1) << 40);
    }
    at.set("workspace", 1 << 50);
    Ok(op.launches(variant, shape, chip, &at)?.iter().map(Kernel::of).collect())
}
