//! The one registry of ops. `build.rs` compiles what it lists; a source file with no entry, or an entry with no file,
//! fails the build.

use crate::op::{Op, OpResult};

/// Every op, in the order that `workbench list` prints.
pub static OPS: &[&dyn Op] = &[];

/// An op by its registry name.
pub fn op(name: &str) -> OpResult<&'static dyn Op> {
    OPS.iter().find(|o| o.name() == name).copied().ok_or_else(|| {
        let names: Vec<_> = OPS.iter().map(|o| o.name()).collect();
        crate::op_error!("there is no op `{name}`; there are {}", names.join(", "))
    })
}
