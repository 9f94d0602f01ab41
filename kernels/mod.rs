//! The one registry of ops. `build.rs` compiles what it lists; a source file with no entry, or an entry with no file,
//! fails the build.

use crate::op::{Op, OpResult, Variant};

/// Every op, in the order that `workbench list` prints.
pub static OPS: &[&dyn Op] = &[];

/// Kernels that belong to no op (fills, probes of a card's ceilings): sources in `kernels/common/`, images named
/// `common/NAME`.
pub static COMMON: &[Variant] = &[];

/// An op by its registry name.
pub fn op(name: &str) -> OpResult<&'static dyn Op> {
    OPS.iter().find(|o| o.name() == name).copied().ok_or_else(|| {
        let names: Vec<_> = OPS.iter().map(|o| o.name()).collect();
        crate::op_error!("there is no op `{name}`; there are {}", names.join(", "))
    })
}
