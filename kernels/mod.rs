//! The one registry of ops. `build.rs` compiles what it lists; a source file with no entry, or an entry with no file,
//! fails the build.

pub mod argmax;
pub mod embed;
pub mod matmul;
pub mod paged_attention;
pub mod rmsnorm;
pub mod rope_append;
pub mod silu_mul;
pub mod softmax;
pub mod w4a16;

use crate::op::{Arch, Op, OpResult, Variant};

/// Every op, in the order that `workbench list` prints.
#[rustfmt::skip]
pub static OPS: &[&dyn Op] = &[
    &matmul::Matmul,
    &w4a16::W4a16,
    &paged_attention::PagedAttention,
    &embed::Embed,
    &rmsnorm::RmsNorm,
    &silu_mul::SiluMul,
    &argmax::Argmax,
    &rope_append::RopeAppend,
    &softmax::Softmax,
];

/// Kernels that belong to no op (fills, probes of a card's ceilings): sources in `kernels/common/`, images named
/// `common/NAME`.
pub static COMMON: &[Variant] = &[
    common("fill", "fill.cu", true, Arch::ALL, "contents of buffers, made on the device"),
    common("probe_memory", "probe_memory.cu", true, Arch::ALL, "read, write, copy and L2 ceilings"),
    common("probe_bulk", "probe_bulk.cu", false, &[Arch::Sm90], "read ceiling through the bulk copy engine"),
    common("probe_fma", "probe_fma.cu", true, Arch::ALL, "fp32 multiply-add ceiling"),
    common("unfused", "unfused.cu", true, Arch::ALL, "scale and mask as passes of their own, what fusion saves"),
    common("probe_launch", "probe_launch.cu", false, Arch::ALL, "empty kernels, and one that holds the stream"),
];

const fn common(
    name: &'static str,
    file: &'static str,
    emulated: bool,
    archs: &'static [Arch],
    about: &'static str,
) -> Variant {
    Variant { name, file, archs, emulated, about }
}

/// An op by its registry name.
pub fn op(name: &str) -> OpResult<&'static dyn Op> {
    OPS.iter().find(|o| o.name() == name).copied().ok_or_else(|| {
        let names: Vec<_> = OPS.iter().map(|o| o.name()).collect();
        crate::op_error!("there is no op `{name}`; there are {}", names.join(", "))
    })
}
