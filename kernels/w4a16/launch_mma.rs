//! The launches of `mma`: the tensor-core tile for many rows of x, and what it needs beside its inputs.

use super::launch::halves_on_tiles;
use super::shape::{Post, Pre, Spec, TILE};
use crate::op::{Arg, Bindings, Chip, DType, Launch, OpResult};
use crate::op_error;

/// Columns of x that a block takes, and blocks that share a multiprocessor.
const TILES: [(u64, u64); 4] = [(8, 2), (16, 2), (32, 1), (64, 1)];
/// Weight tiles of a block; half as many pairs with post=silu_mul.
const ITEM_TILES: u64 = 8;
/// Columns of k in a step, in chunks.
const STEP_CHUNKS: u64 = 2;
const STAGES: std::ops::RangeInclusive<u64> = 2..=5;

/// How a shape is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Columns of x a block: 8, 16, 32 or 64.
    pub columns: u64,
    pub stages: u64,
    pub blocks: u64,
    /// Blocks of columns.
    pub slices: u64,
    pub items: u64,
}

/// Shared memory of a block, bytes (mma.cu: stages of weights and x, then sums of half a block).
fn shared(columns: u64, stages: u64) -> u64 {
    let weights = 8 * (2 * 1024 + 2 * 4 * 32 + 2 * 32);
    let x = columns * (STEP_CHUNKS * 256 + 64);
    stages * (weights + x) + columns * 128 * 4
}

/// The most stages that fit, for a width of x.
fn stages(columns: u64, blocks: u64, chip: &Chip) -> Option<u64> {
    let room = u64::from(chip.shared_optin) + 1024;
    STAGES.rev().find(|s| blocks * (shared(columns, *s) + 1024) <= room)
}

/// Cuts a shape for a chip: the narrowest tile that holds m, or the widest that the chip's shared memory allows.
///
/// # Errors
/// Halves that do not fall on tiles; more work than 32 bits count.
pub fn plan(spec: &Spec, chip: &Chip) -> OpResult<Plan> {
    halves_on_tiles(spec, "mma")?;
    let fit = |(columns, most): &(u64, u64)| {
        (1..=*most).rev().find_map(|b| stages(*columns, b, chip).map(|s| (*columns, b, s)))
    };
    let mut fitting: Vec<_> = TILES.iter().filter_map(fit).collect();
    if let Some(cfg) = spec.cfg {
        fitting = fitting.get(cfg as usize).copied().into_iter().collect();
    }
    let (columns, resident, stages) = fitting
        .iter()
        .find(|f| f.0 >= spec.m)
        .or(fitting.last())
        .copied()
        .ok_or_else(|| op_error!("w4a16/mma: cfg={} names no tile", spec.cfg.unwrap_or(0)))?;
    let items = if spec.post == Post::SiluMul {
        (spec.tiles() / 2).div_ceil(ITEM_TILES / 2)
    } else {
        spec.tiles().div_ceil(ITEM_TILES)
    };
    let total = items * spec.chunks().div_ceil(STEP_CHUNKS);
    let slices = spec.m.div_ceil(columns);
    if total > u64::from(u32::MAX) || slices > 65_535 {
        return Err(op_error!("w4a16/mma: m={}, n={}, k={} is too much work for one launch", spec.m, spec.n, spec.k));
    }
    let blocks = total.min(u64::from(chip.sms) * resident);
    Ok(Plan { columns, stages, blocks, slices, items })
}

/// Whether x must be copied first: to normalise it, or because its rows are no multiples of 16 bytes.
fn prepared(spec: &Spec) -> bool {
    spec.pre == Pre::RmsNorm || !spec.k.is_multiple_of(8)
}

/// Parts of the workspace, bytes: counters, partial sums, prepared x.
fn parts(spec: &Spec, p: &Plan) -> [u64; 3] {
    let x = if prepared(spec) { spec.m * spec.chunks() * 256 } else { 0 };
    let sums = p.slices * p.blocks * 2 * (ITEM_TILES * TILE * p.columns * 4);
    [(p.slices * p.items * 4).next_multiple_of(256), sums, x]
}

/// Bytes of workspace. The counters at its beginning are zero before and after.
pub fn workspace(spec: &Spec, chip: &Chip) -> OpResult<u64> {
    Ok(parts(spec, &plan(spec, chip)?).iter().sum())
}

/// One launch, or two where x has to be prepared.
pub fn launches(spec: &Spec, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
    let p = plan(spec, chip)?;
    let counters = at.get("workspace")?;
    let [bytes, sums, _] = parts(spec, &p);
    let (partial, x) = (counters + bytes, counters + bytes + sums);
    let u32_arg = |v: u64| Arg::U32(v as u32);
    let padded = spec.chunks() * 128;
    let mut all = Vec::new();
    if prepared(spec) {
        let norm = if spec.pre == Pre::RmsNorm { at.get("norm")? } else { 0 };
        all.push(
            Launch::new(
                "w4a16/mma",
                format!("w4a16_mma_prepare_{}", spec.dtype.name()),
                [spec.m as u32, 1, 1],
                [512, 1, 1],
            )
            .programmatic()
            .ptr(at.get("x")?)
            .ptr(norm)
            .ptr(x)
            .arg(u32_arg(spec.k))
            .arg(u32_arg(padded))
            .arg(Arg::I32(i32::from(spec.pre == Pre::RmsNorm)))
            .f32(spec.eps),
        );
    }
    let entry = format!("w4a16_mma_{}_m{}", spec.dtype.name(), p.columns);
    let (k, stride) = if prepared(spec) { (padded, padded) } else { (spec.k, spec.k) };
    all.push(
        Launch::new("w4a16/mma", entry, [p.blocks as u32, p.slices as u32, 1], [256, 1, 1])
            .shared(shared(p.columns, p.stages) as u32)
            .programmatic()
            .ptr(at.get("qweight")?)
            .ptr(at.get("scales")?)
            .ptr(if spec.asym { at.get("zeros")? } else { 0 })
            .ptr(if prepared(spec) { x } else { at.get("x")? })
            .ptr(if spec.post == Post::Residual { at.get("residual")? } else { 0 })
            .ptr(at.get("out")?)
            .ptr(partial)
            .ptr(counters)
            .arg(u32_arg(spec.m))
            .arg(u32_arg(spec.n))
            .arg(u32_arg(k))
            .arg(u32_arg(stride))
            .arg(u32_arg(spec.chunks()))
            .arg(u32_arg(spec.packed_groups()))
            .arg(u32_arg(spec.zero_groups()))
            .arg(u32_arg(spec.groups_per_chunk()))
            .arg(Arg::I32(i32::from(spec.asym)))
            .arg(Arg::I32(match spec.post {
                Post::None => 0,
                Post::Residual => 1,
                Post::SiluMul => 2,
            }))
            .arg(Arg::I32(i32::from(spec.out == DType::F32)))
            .arg(u32_arg(p.stages)),
    );
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Shape;

    fn plan_of(text: &str, chip: &Chip) -> Plan {
        plan(&Spec::read(&Shape::parse(text).unwrap()).unwrap(), chip).unwrap()
    }

    #[test]
    fn tiles_fit_each_chip() {
        let a100 = Chip { sm: 80, sms: 108, l2_bytes: 40 << 20, shared_optin: 166_912 };
        let ada = Chip { sm: 89, sms: 128, l2_bytes: 72 << 20, shared_optin: 101_376 };
        for chip in [Chip::H200, a100, ada] {
            for m in [1, 8, 9, 16, 17, 32, 33, 64, 65, 300] {
                let p = plan_of(&format!("m={m},n=4096,k=4096"), &chip);
                assert!(p.columns * p.slices >= m && p.stages >= 2);
                assert!(shared(p.columns, p.stages) <= u64::from(chip.shared_optin));
            }
        }
        assert_eq!(plan_of("m=64,n=4096,k=4096", &Chip::H200).columns, 64);
        // 99 KB do not hold two stages of 64 columns.
        assert_eq!(plan_of("m=64,n=4096,k=4096", &ada).columns, 32);
    }

    #[test]
    fn all_multiprocessors_have_work() {
        let p = plan_of("m=16,n=4096,k=4096", &Chip::H200);
        assert_eq!((p.items, p.blocks), (32, 264));
        let p = plan_of("m=16,n=64,k=128", &Chip::H200);
        assert_eq!((p.items, p.blocks), (1, 1));
    }
}
