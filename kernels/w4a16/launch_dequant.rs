//! The launches of `dequant`: unpack, normalise where asked, multiply.

use super::layout;
use super::shape::{Post, Pre, Spec};
use crate::op::{Arg, Bindings, DType, Launch, OpResult};
use crate::op_error;

const THREADS: u64 = 256;

/// Parts of the workspace, bytes: the fp32 weights, normalised x.
fn parts(spec: &Spec) -> [u64; 2] {
    let x = if spec.pre == Pre::RmsNorm { spec.m * spec.k * 2 } else { 0 };
    [(spec.n * spec.k * 4).next_multiple_of(256), x]
}

/// Bytes of workspace.
pub fn workspace(spec: &Spec) -> u64 {
    parts(spec).iter().sum()
}

/// Whether the grids fit.
///
/// # Errors
/// More blocks than a launch may have.
pub fn supports(spec: &Spec) -> OpResult<()> {
    let blocks = (spec.m * spec.out_n()).div_ceil(THREADS / 32).max(layout::qweight_bytes(spec) / 4 / THREADS + 1);
    if blocks > 0x7fff_ffff {
        return Err(op_error!("w4a16/dequant: m={}, n={}, k={} need {blocks} blocks", spec.m, spec.n, spec.k));
    }
    Ok(())
}

/// Two launches, or three.
pub fn launches(spec: &Spec, at: &Bindings) -> OpResult<Vec<Launch>> {
    supports(spec)?;
    let w = at.get("workspace")?;
    let words = layout::qweight_bytes(spec) / 4;
    let launch = |kernel: &str, blocks: u64| {
        let entry = format!("w4a16_dequant_{kernel}_{}", spec.dtype.name());
        Launch::new("w4a16/dequant", entry, [blocks as u32, 1, 1], [THREADS as u32, 1, 1]).programmatic()
    };
    let u32_arg = |v: u64| Arg::U32(v as u32);
    let mut all = vec![
        launch("unpack", words.div_ceil(THREADS))
            .ptr(at.get("qweight")?)
            .ptr(at.get("scales")?)
            .ptr(if spec.asym { at.get("zeros")? } else { 0 })
            .ptr(w)
            .arg(u32_arg(spec.n))
            .arg(u32_arg(spec.k))
            .arg(u32_arg(spec.chunks()))
            .arg(u32_arg(spec.packed_groups()))
            .arg(u32_arg(spec.zero_groups()))
            .arg(u32_arg(spec.group))
            .arg(Arg::I32(i32::from(spec.asym)))
            .arg(Arg::U64(words)),
    ];
    let mut x = at.get("x")?;
    if spec.pre == Pre::RmsNorm {
        let to = w + parts(spec)[0];
        all.push(launch("normalise", spec.m).ptr(x).ptr(at.get("norm")?).ptr(to).arg(u32_arg(spec.k)).f32(spec.eps));
        x = to;
    }
    all.push(
        launch("product", (spec.m * spec.out_n()).div_ceil(THREADS / 32))
            .ptr(w)
            .ptr(x)
            .ptr(if spec.post == Post::Residual { at.get("residual")? } else { 0 })
            .ptr(at.get("out")?)
            .arg(u32_arg(spec.m))
            .arg(u32_arg(spec.n))
            .arg(u32_arg(spec.k))
            .arg(Arg::I32(match spec.post {
                Post::None => 0,
                Post::Residual => 1,
                Post::SiluMul => 2,
            }))
            .arg(Arg::I32(i32::from(spec.out == DType::F32))),
    );
    Ok(all)
}
