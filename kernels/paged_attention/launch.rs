//! Launches of paged attention as data, in the order of the kernels' argument list (ATTN_PARAMS in problem.cuh).

use super::choose::{self, CLUSTER_WARPS, FIXED_PIECE, SIMT_HEADS, STREAM_WARPS, TILE_HEADS};
use super::spec::Spec;
use crate::op::{Arg, Bindings, Chip, DType, Launch, OpResult, Shape};
use crate::op_error;

/// Least units (a tile for each warp) that make a block of `split_mma` worth starting.
const LEAST_UNITS: u64 = 2;

/// Sizes of one launch, settled by a variant's own rules.
struct Geometry {
    grid: [u64; 3],
    /// Meaning by variant: see the kernels.
    plan: (i64, i64),
    /// Pieces that the workspace holds, and floats of each.
    pieces: u64,
    piece_floats: u64,
}

fn type_names(spec: &Spec) -> String {
    match spec.kv {
        DType::E4m3 => format!("{}_e4m3", spec.dtype.name()),
        _ => spec.dtype.name().to_string(),
    }
}

fn geometry(variant: &str, shape: &Shape, spec: &Spec, chip: &Chip) -> OpResult<Geometry> {
    let (b, d) = (spec.batch(), spec.d);
    // What the page table can name: the kernels take any length up to it, and max_ctx may end inside a page.
    let fixed_pieces = (spec.max_pages() * spec.page).div_ceil(FIXED_PIECE);
    Ok(match variant {
        "one_pass" | "one_pass_ptx" => {
            let columns = if variant == "one_pass" { choose::head_tiles(spec, SIMT_HEADS) } else { spec.kv_heads };
            let grid = [columns, b, 1];
            Geometry { grid, plan: (0, 0), pieces: 0, piece_floats: 0 }
        }
        "split" => {
            let (plan, count) = if spec.deterministic {
                ((0, FIXED_PIECE as i64), fixed_pieces)
            } else {
                let n = choose::pieces(spec, chip);
                ((n as i64, n as i64), n)
            };
            let grid = [count, choose::head_tiles(spec, SIMT_HEADS), b];
            Geometry { grid, plan, pieces: b * spec.heads * count, piece_floats: d + 4 }
        }
        "split_mma" => {
            let unit = STREAM_WARPS * choose::keys(spec.kv);
            let tiles = choose::head_tiles(spec, TILE_HEADS);
            let piece_floats = TILE_HEADS * d + TILE_HEADS * 2;
            if spec.deterministic {
                let blocks = b * tiles * fixed_pieces;
                let plan = ((FIXED_PIECE / unit) as i64, fixed_pieces as i64);
                return Ok(Geometry { grid: [blocks, 1, 1], plan, pieces: blocks, piece_floats });
            }
            let ring = ring(variant, shape, spec, chip)?;
            let resident = u64::from(chip.sms) * ring.blocks_per_sm;
            let side = match shape.int_or("side", 0)? {
                0 => choose::side(tiles, resident),
                n if tiles.is_multiple_of(n) => n,
                n => return Err(op_error!("side={n} does not divide the {tiles} head tiles")),
            };
            let most = (b * tiles / side * spec.max_ctx.div_ceil(unit) / LEAST_UNITS).max(1);
            let blocks = side * (resident / side).min(most).max(1);
            Geometry {
                grid: [blocks, 1, 1],
                plan: (-(side as i64), LEAST_UNITS as i64),
                pieces: 2 * blocks,
                piece_floats,
            }
        }
        "split_cluster" => {
            let grid = [cluster_size(shape, spec, chip)?, choose::head_tiles(spec, TILE_HEADS), b];
            Geometry { grid, plan: (0, 0), pieces: 0, piece_floats: 0 }
        }
        other => return Err(op_error!("paged_attention has no variant `{other}`")),
    })
}

/// Blocks of a cluster: the dimension `cluster` (16 needs a launch that allows it), or what the heuristic takes.
fn cluster_size(shape: &Shape, spec: &Spec, chip: &Chip) -> OpResult<u64> {
    let size = shape.int_or("cluster", choose::cluster(spec, chip))?;
    if ![1, 2, 4, 8, 16].contains(&size) {
        return Err(op_error!("cluster={size} is none of 1, 2, 4, 8, 16"));
    }
    Ok(size)
}

/// Ring of a tensor-core variant on a chip; `stages` in the shape caps its depth.
pub fn ring(variant: &str, shape: &Shape, spec: &Spec, chip: &Chip) -> OpResult<choose::Ring> {
    let ring = if variant == "split_cluster" {
        let tiles =
            spec.max_ctx.div_ceil(CLUSTER_WARPS * choose::keys(spec.kv)).div_ceil(cluster_size(shape, spec, chip)?);
        choose::cluster_ring(spec.d, spec.kv, chip, tiles)
    } else {
        choose::stream_ring(spec.d, spec.kv, chip, shape.int_or("stages", 0)?)
    };
    ring.ok_or_else(|| {
        op_error!("d={} needs more than the {} B of shared memory of a block", spec.d, chip.shared_optin)
    })
}

/// Bytes of the workspace: counters first (a multiple of 16 bytes), then the pieces.
pub fn workspace(variant: &str, shape: &Shape, chip: &Chip) -> OpResult<u64> {
    let spec = Spec::new(shape)?;
    if spec.batch() == 0 {
        return Ok(0);
    }
    let g = geometry(variant, shape, &spec, chip)?;
    Ok(counter_bytes(variant, &spec) + g.pieces * g.piece_floats * 4)
}

fn counter_bytes(variant: &str, spec: &Spec) -> u64 {
    if variant == "split_mma" {
        (spec.batch() * choose::head_tiles(spec, TILE_HEADS) * 4).next_multiple_of(16)
    } else {
        0
    }
}

/// The kernels of a variant, in order; nothing for an empty batch.
pub fn launches(variant: &str, shape: &Shape, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
    let image = format!("paged_attention/{variant}");
    let spec = Spec::new(shape)?;
    if spec.batch() == 0 {
        return Ok(Vec::new());
    }
    let g = geometry(variant, shape, &spec, chip)?;
    let grid = [g.grid[0] as u32, g.grid[1] as u32, g.grid[2] as u32];
    let entry = format!("paged_attention_{variant}_{}_d{}", type_names(&spec), spec.d);
    let start = |entry: String, grid, threads| Launch::new(image.clone(), entry, grid, [threads, 1, 1]).programmatic();
    let with_args = |launch: Launch| arguments(launch, variant, &spec, &g, at);
    Ok(match variant {
        "split" => {
            let join = format!("paged_attention_join_{}_d{}", spec.dtype.name(), spec.d);
            let join = start(join, [spec.heads as u32, spec.batch() as u32, 1], 64);
            vec![with_args(start(entry, grid, 128))?, with_args(join)?.i32(g.grid[0] as i64)]
        }
        "split_mma" => {
            let ring = ring(variant, shape, &spec, chip)?;
            let launch = start(entry, grid, 128).shared(ring.shared as u32);
            vec![with_args(launch)?.i32(ring.stages as i64)]
        }
        "split_cluster" => {
            let ring = ring(variant, shape, &spec, chip)?;
            let launch = start(entry, grid, 256).cluster([grid[0], 1, 1]).shared(ring.shared as u32);
            vec![with_args(launch)?.i32(ring.stages as i64)]
        }
        // Below 9.0's instructions there is no wait for the kernel before, so it must not begin early.
        "one_pass_ptx" => vec![with_args(Launch { programmatic: false, ..start(entry, grid, 128) })?],
        _ => vec![with_args(start(entry, grid, 128))?],
    })
}

fn arguments(launch: Launch, variant: &str, s: &Spec, g: &Geometry, at: &Bindings) -> OpResult<Launch> {
    let (page, slot, head) = s.strides();
    let chunks = |elements: u64| Arg::U32((elements * s.kv.size() / 16) as u32);
    let magic = if s.page == 1 { 0 } else { (1u64 << 32).div_ceil(s.page) as u32 };
    let scratch = if g.pieces > 0 { at.get("workspace")? } else { 0 };
    let (q, q_row) = if s.fused { (at.get("qkv")?, s.qkv_row()) } else { (at.get("q")?, s.heads * s.d) };
    Ok(launch
        .ptr(q)
        .ptr(at.get("k_cache")?)
        .ptr(at.get("v_cache")?)
        .ptr(at.get("page_table")?)
        .ptr(at.get("seq_lens")?)
        .ptr(if s.fused { at.get("cos_sin")? } else { 0 })
        .ptr(at.get("out")?)
        .ptr(at.get("lse")?)
        .ptr(scratch + counter_bytes(variant, s))
        .ptr(scratch)
        .i64(q_row as i64)
        .i32(s.batch() as i64)
        .i32(s.heads as i64)
        .i32(s.kv_heads as i64)
        .i32(s.page as i64)
        .arg(Arg::U32(magic))
        .i32(s.max_pages() as i64)
        .i32(s.pool_pages as i64)
        .arg(chunks(page))
        .arg(chunks(slot))
        .arg(chunks(head))
        .f32((s.scale * s.k_scale * std::f64::consts::LOG2_E) as f32)
        .f32(s.k_scale as f32)
        .f32(s.v_scale as f32)
        .i32(i64::from(s.fused))
        .i32(s.max_ctx as i64)
        .i32(g.plan.0)
        .i32(g.plan.1))
}
