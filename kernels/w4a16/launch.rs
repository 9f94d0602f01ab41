//! From a checked shape to launches: which configuration, how many blocks, how much shared memory.

use super::choose;
use super::layout;
use super::shape::{Post, Pre, Spec, TILE};
use crate::op::{Arg, Bindings, Chip, DType, Launch, OpResult};
use crate::op_error;

/// Most rows of x that the matrix-vector kernels take: the eight columns of an mma.m16n8k16.
pub const GEMV_MAX_M: u64 = 8;

/// A configuration of a matrix-vector kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemvConfig {
    /// Warps that split K.
    pub warps: u64,
    /// Blocks launched for each multiprocessor, at most.
    pub blocks: u64,
    /// Stages of the bulk ring; the direct kernel's depth is compiled in.
    pub depth: u64,
}

/// A configuration.
pub const fn config(warps: u64, blocks: u64, depth: u64) -> GemvConfig {
    GemvConfig { warps, blocks, depth }
}

/// Configurations of `gemv`, by `cfg`; the heuristic looks at the first [`PREFERRED`] in their order.
pub const GEMV: &[GemvConfig] =
    &[config(16, 1, 4), config(8, 2, 4), config(8, 1, 4), config(4, 1, 4), config(4, 4, 4), config(4, 3, 4)];

/// Configurations of `gemv_bulk`, by `cfg`. Bytes in flight on a multiprocessor are about warps · blocks · depth KiB.
pub const BULK: &[GemvConfig] = &[
    config(8, 2, 4),
    config(8, 1, 8),
    config(8, 1, 4),
    config(8, 2, 6),
    config(8, 2, 8),
    config(8, 3, 4),
    config(4, 4, 4),
    config(4, 4, 6),
    config(4, 6, 4),
    config(8, 2, 3),
    config(8, 1, 12),
];

/// How many configurations of a table the heuristic looks at; the rest are there to be swept.
pub const PREFERRED: usize = 4;

/// Bytes between rows of x in shared memory (gemv.cuh: x_stride).
fn x_stride(spec: &Spec) -> u64 {
    spec.chunks() * 256 + 64
}

/// Dynamic shared memory of a matrix-vector block, bytes.
pub fn gemv_shared(spec: &Spec, c: GemvConfig, bulk: bool) -> u64 {
    let ring = if bulk { c.depth * c.warps * (1024 + 160) + (c.depth * 16).next_multiple_of(128) } else { 0 };
    let sums = spec.chunks() * spec.groups_per_chunk().max(2) * 8 * 4;
    ring + spec.m * x_stride(spec) + 2 * c.warps * 8 * 16 * 4 + sums + 8 * 32 * 4
}

/// The configuration that `cfg` names, or the heuristic's.
pub fn gemv_config(spec: &Spec, chip: &Chip, bulk: bool) -> OpResult<GemvConfig> {
    let table = if bulk { BULK } else { GEMV };
    match spec.cfg {
        None => Ok(choose::gemv_config(spec, chip, bulk)),
        Some(i) => table
            .get(i as usize)
            .copied()
            .ok_or_else(|| op_error!("w4a16: cfg={i} is not below {}, the configurations there are", table.len())),
    }
}

/// Whether a matrix-vector kernel can take the shape.
///
/// # Errors
/// More than 8 rows, halves that do not fall on tiles, an x that does not fit in shared memory, an older chip.
pub fn gemv_supports(spec: &Spec, chip: &Chip, bulk: bool) -> OpResult<()> {
    let name = if bulk { "gemv_bulk" } else { "gemv" };
    if bulk && chip.sm < 90 {
        return Err(op_error!("w4a16/{name} needs bulk copies, sm_90; this chip is sm_{}", chip.sm));
    }
    if spec.m > GEMV_MAX_M {
        return Err(op_error!("w4a16/{name} takes m up to {GEMV_MAX_M}, not m={}", spec.m));
    }
    halves_on_tiles(spec, name)?;
    let need = gemv_shared(spec, gemv_config(spec, chip, bulk)?, bulk);
    if need > u64::from(chip.shared_optin) {
        return Err(op_error!(
            "w4a16/{name} keeps x in shared memory: m={} rows of k={} need {need} bytes, a block may have {}",
            spec.m,
            spec.k,
            chip.shared_optin
        ));
    }
    Ok(())
}

/// With post=silu_mul a gate row and its up row must sit at the same place of two tiles.
pub fn halves_on_tiles(spec: &Spec, name: &str) -> OpResult<()> {
    if spec.post == Post::SiluMul && !spec.n.is_multiple_of(2 * TILE) {
        return Err(op_error!("w4a16/{name}: post=silu_mul needs n/2 to be a multiple of {TILE}; n={}", spec.n));
    }
    Ok(())
}

/// The arguments that all kernels share, in order.
pub fn common(launch: Launch, spec: &Spec, at: &Bindings) -> OpResult<Launch> {
    let optional = |name: &str, used: bool| if used { at.get(name) } else { Ok(0) };
    let u32_arg = |v: u64| u32::try_from(v).map(Arg::U32).map_err(|_| op_error!("w4a16: {v} exceeds 32 bits"));
    Ok(launch
        .ptr(at.get("qweight")?)
        .ptr(at.get("scales")?)
        .ptr(optional("zeros", spec.asym)?)
        .ptr(at.get("x")?)
        .ptr(optional("norm", spec.pre == Pre::RmsNorm)?)
        .ptr(optional("residual", spec.post == Post::Residual)?)
        .ptr(at.get("out")?)
        .arg(u32_arg(spec.m)?)
        .arg(u32_arg(spec.n)?)
        .arg(u32_arg(spec.k)?)
        .arg(u32_arg(spec.chunks())?)
        .arg(u32_arg(spec.packed_groups())?)
        .arg(u32_arg(spec.zero_groups())?)
        .arg(Arg::I32(i32::from(spec.pre == Pre::RmsNorm)))
        .arg(Arg::I32(match spec.post {
            Post::None => 0,
            Post::Residual => 1,
            Post::SiluMul => 2,
        }))
        .arg(Arg::I32(i32::from(spec.out == DType::F32)))
        .f32(spec.eps))
}

/// The kernel's name for a shape: dtype, groups in a chunk (a whole-row scale runs as one a chunk), zero points.
pub fn entry(variant: &str, spec: &Spec) -> String {
    let group = 128 / spec.groups_per_chunk();
    format!("w4a16_{variant}_{}_g{group}_{}", spec.dtype.name(), if spec.asym { "asym" } else { "sym" })
}

/// The launch of `gemv` or `gemv_bulk`.
pub fn gemv(spec: &Spec, chip: &Chip, at: &Bindings, bulk: bool) -> OpResult<Vec<Launch>> {
    gemv_supports(spec, chip, bulk)?;
    let c = gemv_config(spec, chip, bulk)?;
    let name = if bulk { "gemv_bulk" } else { "gemv" };
    let items = if spec.post == Post::SiluMul { spec.tiles() / 2 } else { spec.tiles() };
    let grid = items.min(u64::from(chip.sms) * c.blocks) as u32;
    let threads = 32 * (c.warps + u64::from(bulk)) as u32;
    let launch = Launch::new(format!("w4a16/{name}"), entry(name, spec), [grid, 1, 1], [threads, 1, 1])
        .shared(gemv_shared(spec, c, bulk) as u32)
        .programmatic();
    let launch = common(launch, spec, at)?;
    Ok(vec![if bulk { launch.arg(Arg::U32(c.depth as u32)) } else { launch }])
}

/// Bytes of a packed matrix: weights, scales, zero points.
pub fn packed_bytes(spec: &Spec) -> u64 {
    layout::qweight_bytes(spec) + 2 * layout::scales_len(spec) + layout::zeros_bytes(spec)
}
