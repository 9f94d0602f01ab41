//! The launch of `gemv_fixed`: integers through the tensor core, a ring of units for each warp.

use super::choose;
use super::launch::{GEMV_MAX_M, GemvConfig, common, config, entry, halves_on_tiles};
use super::shape::{Post, Pre, Spec, TILE};
use crate::op::{Arg, Bindings, Chip, Launch, OpResult};
use crate::op_error;

/// Configurations by `cfg`; the heuristic looks at the first [`PREFERRED`] in their order. A warp's unit is two chunks, so
/// bytes in flight on a multiprocessor are about warps · blocks · depth · 2 KiB.
pub const FIXED: &[GemvConfig] = &[
    config(16, 1, 4),
    config(16, 1, 3),
    config(16, 1, 2),
    config(8, 1, 4),
    config(4, 1, 2),
    config(16, 1, 5),
    config(12, 1, 4),
    config(12, 1, 5),
    config(8, 2, 3),
    config(8, 2, 4),
    config(8, 1, 5),
];

/// How many configurations the heuristic looks at: the last two serve small chips and wide x.
pub const PREFERRED: usize = 5;

/// Chunks that are fetched together (gemv_fixed.cu: kUnit).
const UNIT: u64 = 2;
/// Most tiles of a block: what its partial sums may take of shared memory.
const MOST_TILES: u64 = 128;
/// Rows of x that one block of eight columns takes, three digits each.
const NARROW_ROWS: u64 = 2;

/// Items of the grid: tiles, or pairs of a gate and an up tile.
fn items(spec: &Spec) -> u64 {
    if spec.post == Post::SiluMul { spec.tiles() / 2 } else { spec.tiles() }
}

/// Blocks: as many as are resident, or more where one could not hold the partial sums of its tiles.
fn blocks(spec: &Spec, chip: &Chip, c: GemvConfig) -> u64 {
    let parts = if spec.post == Post::SiluMul { 2 } else { 1 };
    items(spec).min(u64::from(chip.sms) * c.blocks).max((items(spec) * parts).div_ceil(MOST_TILES))
}

/// Dynamic shared memory of a block, bytes: rings, digits of x, powers of two, sums of squares, partial sums.
pub fn shared(spec: &Spec, chip: &Chip, c: GemvConfig) -> u64 {
    let (steps, per_chunk) = (spec.chunks().div_ceil(UNIT), spec.groups_per_chunk());
    let unit = UNIT * (1024 + per_chunk * (32 + if spec.asym { 8 } else { 0 }));
    let digits = spec.m * (steps * UNIT * 128 * 3 + 64);
    let factors = steps * UNIT * per_chunk * if spec.m <= NARROW_ROWS { 2 } else { GEMV_MAX_M } * 4;
    let parts = if spec.post == Post::SiluMul { 2 } else { 1 };
    let tiles = items(spec).div_ceil(blocks(spec, chip, c).max(1)) * parts;
    c.warps * c.depth * unit + digits + factors + spec.m * 32 * 4 + (tiles + c.warps) * spec.m * TILE * 4
}

/// The configuration that `cfg` names, or the heuristic's.
fn configuration(spec: &Spec, chip: &Chip) -> OpResult<GemvConfig> {
    match spec.cfg {
        None => Ok(choose::fixed_config(spec, chip)),
        Some(i) => FIXED
            .get(i as usize)
            .copied()
            .ok_or_else(|| op_error!("w4a16: cfg={i} is not below {}, the configurations of gemv_fixed", FIXED.len())),
    }
}

/// Whether the kernel takes a shape.
///
/// # Errors
/// More than eight rows, k that leaves rows of x off 16 bytes, x beyond shared memory, halves that do not fall on tiles.
pub fn supports(spec: &Spec, chip: &Chip) -> OpResult<()> {
    if spec.m > GEMV_MAX_M {
        return Err(op_error!("w4a16/gemv_fixed takes m up to {GEMV_MAX_M}, not m={}", spec.m));
    }
    if !spec.k.is_multiple_of(8) {
        return Err(op_error!("w4a16/gemv_fixed reads x by 16 bytes; k={} is not a multiple of 8", spec.k));
    }
    halves_on_tiles(spec, "gemv_fixed")?;
    let need = shared(spec, chip, configuration(spec, chip)?);
    if need > u64::from(chip.shared_optin) {
        return Err(op_error!(
            "w4a16/gemv_fixed keeps x in shared memory: m={} rows of k={} need {need} bytes, a block may have {}",
            spec.m,
            spec.k,
            chip.shared_optin
        ));
    }
    Ok(())
}

/// One launch.
pub fn launches(spec: &Spec, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
    let c = configuration(spec, chip)?;
    for name in ["x", "norm"] {
        if name == "norm" && spec.pre != Pre::RmsNorm {
            continue;
        }
        let address = at.get(name)?;
        if !address.is_multiple_of(16) {
            return Err(op_error!("w4a16/gemv_fixed reads {name} by 16 bytes; it begins at {address:#x}"));
        }
    }
    let name =
        format!("{}_m{}", entry("gemv_fixed", spec), if spec.m <= NARROW_ROWS { NARROW_ROWS } else { GEMV_MAX_M });
    let launch =
        Launch::new("w4a16/gemv_fixed", name, [blocks(spec, chip, c) as u32, 1, 1], [32 * c.warps as u32, 1, 1])
            .shared(shared(spec, chip, c) as u32)
            .programmatic();
    Ok(vec![common(launch, spec, at)?.arg(Arg::U32(c.depth as u32))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Shape;

    fn spec(text: &str) -> Spec {
        Spec::read(&Shape::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn blocks_cover_the_tiles_and_no_more() {
        let chip = Chip::H200;
        for (text, count) in [
            ("n=28672,k=4096", 132),
            ("n=28672,k=4096,post=silu_mul", 132),
            ("n=64,k=4096", 4),
            ("n=1000000,k=128", 489), // 62,500 tiles, 128 a block
        ] {
            assert_eq!(blocks(&spec(text), &chip, FIXED[0]), count, "{text}");
        }
    }

    #[test]
    fn refusals_name_the_numbers() {
        for (text, words) in [
            ("n=64,k=128,m=9", "not m=9"),
            ("n=64,k=77,group=0", "k=77 is not a multiple of 8"),
            ("n=64,k=131072,m=8", "m=8 rows of k=131072 need"),
            ("n=64,k=128,cfg=99", "cfg=99"),
        ] {
            let e = supports(&spec(text), &Chip::H200).unwrap_err().0;
            assert!(e.contains(words), "{text}: {e}");
        }
    }
}
