//! The launches of `wgmma`: weights as the register operand of Hopper's warpgroup products, up to 64 rows of x at once.

use super::launch::{entry, halves_on_tiles};
use super::layout;
use super::shape::{Post, Pre, Spec, TILE};
use crate::op::{Arg, Bindings, Chip, DType, Launch, OpResult};
use crate::op_error;

/// Rows of weights a block (wgmma.cu: kRows).
const ROWS: u64 = 256;
/// Tiles of 16 rows a block.
const TILES: u64 = 16;
/// Columns of sums in shared memory at once (wgmma.cu: kPass), beside x and weights.
const PASS: u64 = 16;
/// Columns of x that a block takes.
const COLUMNS: [u64; 4] = [8, 16, 32, 64];
/// Chunks in a unit (wgmma.cu: kUnit).
const UNIT: u64 = 2;

/// Configurations by `cfg`: blocks of a cluster, each with a part of k.
pub const SPLITS: [u64; 7] = [1, 2, 3, 4, 5, 6, 8];

/// How a shape is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Columns of x a block: 8, 16, 32 or 64.
    pub columns: u64,
    /// Blocks of columns.
    pub slices: u64,
    /// Blocks of rows of weights.
    pub items: u64,
    pub split: u64,
    /// Blocks of a slice.
    pub blocks: u64,
}

/// Chunks of x in a step (wgmma.cu: Step).
fn step(columns: u64) -> u64 {
    match columns {
        8 | 16 | 32 => 4,
        _ => 2,
    }
}

/// Threads of a block (wgmma.cu: Block).
fn threads(columns: u64) -> u32 {
    if columns == 32 { 512 } else { 256 }
}

/// Units in a warp's ring (wgmma.cu: Depth).
fn depth(spec: &Spec, columns: u64) -> u64 {
    if columns >= 32 && spec.groups_per_chunk() == 4 { 2 } else { 3 }
}

/// Bytes of a chunk of x as the products take it (wgmma.cu: Tile).
fn tile(spec: &Spec, columns: u64) -> u64 {
    columns * if columns < 32 { 320 + 8 * spec.groups_per_chunk() } else { 256 }
}

/// Dynamic shared memory of a block, bytes: x, sums, rings.
fn shared(spec: &Spec, p: &Plan) -> u64 {
    let x = 3 * step(p.columns) * tile(spec, p.columns);
    let groups = UNIT * spec.groups_per_chunk();
    let scales = groups * 32 + if spec.asym { (groups * 8).next_multiple_of(16) } else { 0 };
    let rings = TILES * depth(spec, p.columns) * (UNIT * 1024 + scales);
    let sums = |columns: u64| columns * (ROWS + 4) * 4;
    // A cluster's sums lie where x and weights were.
    if p.split > 1 { (x + rings).max(sums(p.columns)) } else { x + rings + sums(p.columns.min(PASS)) }
}

/// Clusters that are resident at once, one block a multiprocessor: a cluster's blocks sit on multiprocessors of one GPC, of 18 on
/// an H200 and fewer in some. Of that card `cudaOccupancyMaxActiveClusters` says it; of others the estimate is low.
fn resident(chip: &Chip, split: u64) -> u64 {
    const H200: [u64; 8] = [132, 66, 39, 30, 22, 17, 15, 15];
    let sms = u64::from(chip.sms);
    match H200.get(split as usize - 1) {
        Some(clusters) if sms == 132 => *clusters,
        _ if split == 1 || sms < 18 => (sms / split).max(1),
        _ => sms / 18 * (18 / split),
    }
}

/// Blocks of a cluster for `items` blocks of rows. Counted in units of 256 rows, which take about a microsecond: those of the
/// busiest block, and one more for adding up through distributed shared memory.
fn choose_split(chip: &Chip, items: u64, units: u64) -> u64 {
    let cost = |split: u64| {
        if split == 1 {
            (items * units).div_ceil(items.clamp(1, u64::from(chip.sms)))
        } else {
            items.div_ceil(resident(chip, split)) * units.div_ceil(split) + 1
        }
    };
    SPLITS.into_iter().filter(|s| *s <= units).min_by_key(|s| (cost(*s), *s)).unwrap_or(1)
}

/// Cuts a shape for a chip.
///
/// # Errors
/// Another chip than 9.0, halves that do not fall on tiles, more work than 32 bits count, `cfg` that names nothing.
pub fn plan(spec: &Spec, chip: &Chip) -> OpResult<Plan> {
    if chip.sm != 90 {
        return Err(op_error!("w4a16/wgmma needs sm_90a; this chip is sm_{}", chip.sm));
    }
    halves_on_tiles(spec, "wgmma")?;
    let columns = COLUMNS.into_iter().find(|c| *c >= spec.m).unwrap_or(64);
    let rows = if spec.post == Post::SiluMul { spec.n / 2 } else { spec.n };
    let items = rows.div_ceil(TILE).div_ceil(if spec.post == Post::SiluMul { 8 } else { 16 });
    let slices = spec.m.div_ceil(columns);
    let most = (items * spec.chunks()).max(layout::zeros_bytes(spec));
    if most > u64::from(u32::MAX) || slices > 65_535 {
        return Err(op_error!("w4a16/wgmma: m={}, n={}, k={} is too much work for one launch", spec.m, spec.n, spec.k));
    }
    let split = match spec.cfg {
        None => choose_split(chip, items, spec.chunks().div_ceil(UNIT)),
        Some(i) => SPLITS
            .get(i as usize)
            .copied()
            .ok_or_else(|| op_error!("w4a16: cfg={i} is not below {}, the configurations of wgmma", SPLITS.len()))?,
    };
    let blocks = if split > 1 { items * split } else { items.min(u64::from(chip.sms)) };
    // The second dimension of the grid that lays x out.
    if padded(spec).div_ceil(4096) > 65_535 {
        return Err(op_error!("w4a16/wgmma lays x out in blocks of 4096 columns, 65535 at most; k={}", spec.k));
    }
    Ok(Plan { columns, slices, items, split, blocks })
}

/// Columns of x as tiles: whole units.
fn padded(spec: &Spec) -> u64 {
    spec.chunks().next_multiple_of(UNIT) * 128
}

/// Parts of the workspace, bytes: flags, what blocks leave for their neighbours (wgmma.cu: LEFT), x as tiles.
fn parts(spec: &Spec, p: &Plan) -> [u64; 3] {
    let uneven = p.split == 1 && !p.items.is_multiple_of(p.blocks.max(1));
    let flags = if uneven { (p.slices * p.items * 4).next_multiple_of(256) } else { 0 };
    let sums = if uneven { p.slices * p.blocks * 2 * ROWS * p.columns * 4 } else { 0 };
    [flags, sums, p.slices * padded(spec) / 128 * tile(spec, p.columns)]
}

/// Bytes of workspace. The flags at its beginning are zero before and after.
pub fn workspace(spec: &Spec, chip: &Chip) -> OpResult<u64> {
    Ok(parts(spec, &plan(spec, chip)?).iter().sum())
}

/// What a sum of x is multiplied by: all that symmetric weights owe for zero points and offsets, or itself (convert.cuh).
fn owed(spec: &Spec) -> f32 {
    if spec.asym {
        1.0
    } else if spec.dtype == DType::F16 {
        -136.0
    } else {
        -24.0
    }
}

/// Two launches: x as tiles, and the product.
pub fn launches(spec: &Spec, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
    let p = plan(spec, chip)?;
    let sizes = parts(spec, &p);
    let workspace = at.get("workspace")?;
    let (partial, tiles) = (workspace + sizes[0], workspace + sizes[0] + sizes[1]);
    let u32_arg = |v: u64| Arg::U32(v as u32);
    let name = format!("w4a16_wgmma_prepare_{}", spec.dtype.name());
    let prepare = Launch::new("w4a16/wgmma", name, [spec.m as u32, padded(spec).div_ceil(4096) as u32, 1], [512, 1, 1])
        .programmatic()
        .ptr(at.get("x")?)
        .ptr(if spec.pre == Pre::RmsNorm { at.get("norm")? } else { 0 })
        .ptr(tiles)
        .arg(u32_arg(spec.k))
        .arg(u32_arg(padded(spec)))
        .arg(u32_arg(p.columns))
        .arg(u32_arg(spec.groups_per_chunk()))
        .f32(spec.eps)
        .f32(owed(spec));
    let name = format!("{}_m{}", entry("wgmma", spec), p.columns);
    let product = Launch::new("w4a16/wgmma", name, [p.blocks as u32, p.slices as u32, 1], [threads(p.columns), 1, 1])
        .cluster([p.split as u32, 1, 1])
        .shared(shared(spec, &p) as u32)
        .programmatic()
        .ptr(at.get("qweight")?)
        .ptr(at.get("scales")?)
        .ptr(if spec.asym { at.get("zeros")? } else { 0 })
        .ptr(tiles)
        .ptr(if spec.post == Post::Residual { at.get("residual")? } else { 0 })
        .ptr(at.get("out")?)
        .ptr(partial)
        .ptr(workspace)
        .arg(u32_arg(spec.m))
        .arg(u32_arg(spec.n))
        .arg(u32_arg(spec.chunks()))
        .arg(u32_arg(spec.packed_groups()))
        .arg(u32_arg(spec.zero_groups()))
        .arg(u32_arg(p.split))
        .arg(Arg::I32(match spec.post {
            Post::None => 0,
            Post::Residual => 1,
            Post::SiluMul => 2,
        }))
        .arg(Arg::I32(i32::from(spec.out == DType::F32)));
    Ok(vec![prepare, product])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Shape;

    fn plan_of(text: &str) -> Plan {
        plan(&Spec::read(&Shape::parse(text).unwrap()).unwrap(), &Chip::H200).unwrap()
    }

    #[test]
    fn every_configuration_fits() {
        for m in [1, 8, 9, 16, 17, 32, 33, 64, 65, 300] {
            for group in [128, 64, 32, 0] {
                for cfg in 0..SPLITS.len() {
                    let spec = format!("m={m},n=4096,k=4096,group={group},zeros=asym,cfg={cfg}");
                    let spec = Spec::read(&Shape::parse(&spec).unwrap()).unwrap();
                    let p = plan(&spec, &Chip::H200).unwrap();
                    assert!(p.columns * p.slices >= m);
                    // The barrier takes the first kilobyte.
                    assert!(shared(&spec, &p) + 1024 <= u64::from(Chip::H200.shared_optin), "{p:?}");
                }
            }
        }
    }

    #[test]
    fn all_multiprocessors_have_work() {
        for (text, split, blocks) in [
            ("m=8,n=28672,k=4096", 1, 112),
            ("m=8,n=57344,k=8192", 1, 132),
            ("m=8,n=8192,k=8192", 3, 96),
            ("m=8,n=4096,k=14336", 6, 96),
            ("m=8,n=4096,k=4096", 6, 96),
            ("m=8,n=6144,k=4096", 4, 96),
        ] {
            let p = plan_of(text);
            assert_eq!((p.split, p.blocks), (split, blocks), "{text}");
        }
    }
}
