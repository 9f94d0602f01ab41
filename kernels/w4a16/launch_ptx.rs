//! The launch of `gemv_ptx`, the hand-written kernel for one row of bf16 x and symmetric groups of 128.

use super::shape::{Post, Pre, Spec};
use crate::op::{Arg, Bindings, Chip, DType, Launch, OpResult};
use crate::op_error;

/// Dynamic shared memory of a block, bytes; the map is in gemv_ptx.ptx.
fn shared(spec: &Spec) -> u64 {
    (34_880 + spec.chunks() * 8).next_multiple_of(16) + 2 * spec.k
}

/// Whether the kernel is made for the shape.
///
/// # Errors
/// Anything but m=1, bf16 in and out, group=128, symmetric, no fusion; an older chip; an x that does not fit.
pub fn supports(spec: &Spec, chip: &Chip) -> OpResult<()> {
    let plain = spec.m <= 1 && spec.group == 128 && !spec.asym && spec.pre == Pre::None && spec.post == Post::None;
    if !plain || spec.dtype != DType::Bf16 || spec.out != DType::Bf16 {
        return Err(op_error!(
            "w4a16/gemv_ptx is written for m=1, dtype=bf16, group=128, zeros=sym without fusions, not for m={}, dtype={}, \
             group={}, zeros={}",
            spec.m,
            spec.dtype.name(),
            spec.group,
            if spec.asym { "asym" } else { "sym" }
        ));
    }
    if chip.sm < 90 {
        return Err(op_error!("w4a16/gemv_ptx needs bulk copies, sm_90; this chip is sm_{}", chip.sm));
    }
    if shared(spec) > u64::from(chip.shared_optin) {
        return Err(op_error!(
            "w4a16/gemv_ptx keeps x in shared memory: k={} needs {} bytes, a block may have {}",
            spec.k,
            shared(spec),
            chip.shared_optin
        ));
    }
    Ok(())
}

/// One launch.
///
/// # Errors
/// As [`supports`], and an `x` that does not begin at a multiple of 16 bytes.
pub fn launches(spec: &Spec, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
    supports(spec, chip)?;
    let x = at.get("x")?;
    if x % 16 != 0 {
        return Err(op_error!("w4a16/gemv_ptx reads x by 16 bytes; it begins at {x:#x}"));
    }
    let grid = spec.tiles().min(2 * u64::from(chip.sms)) as u32;
    Ok(vec![
        Launch::new("w4a16/gemv_ptx", "w4a16_gemv_ptx_bf16", [grid, 1, 1], [288, 1, 1])
            .shared(shared(spec) as u32)
            .programmatic()
            .ptr(at.get("qweight")?)
            .ptr(at.get("scales")?)
            .ptr(x)
            .ptr(at.get("out")?)
            .arg(Arg::U32(spec.n as u32))
            .arg(Arg::U32(spec.chunks() as u32)),
    ])
}
