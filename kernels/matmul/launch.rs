//! Launch lists: grids, shared memory and arguments of each variant.

use super::choose::{self, Gemv};
use super::problem::{Post, Problem};
use crate::op::{Arg, Bindings, Chip, DType, Launch, OpResult, TensorMap};

/// Addresses of a problem's arrays; 0 for those it does not have.
struct At {
    x: u64,
    w: u64,
    norm: u64,
    residual: u64,
    out: u64,
}

impl At {
    fn new(p: &Problem, at: &Bindings) -> OpResult<Self> {
        Ok(Self {
            x: at.get("x")?,
            w: at.get("w")?,
            norm: if p.pre { at.get("norm")? } else { 0 },
            residual: if p.post == Post::Residual { at.get("residual")? } else { 0 },
            out: at.get("out")?,
        })
    }
    /// Whether every row of x, w and norm begins on 16 bytes.
    fn aligned(&self, p: &Problem) -> bool {
        p.k.is_multiple_of(8) && (self.x | self.w | self.norm).is_multiple_of(16)
    }
    /// # Errors
    /// An array that does not begin on 16 bytes, which the copy engine cannot address.
    fn copyable(&self, variant: &str) -> OpResult<()> {
        if !(self.x | self.w).is_multiple_of(16) {
            return Err(crate::op_error!("{variant}: tensor copies (TMA) need x and w to begin on 16 bytes: use mma"));
        }
        Ok(())
    }
}

/// Row-major [rows, columns] in boxes of 64 columns (128 bytes, swizzled) by `box_rows`.
fn tensor_map(address: u64, dtype: DType, columns: u64, rows: u64, box_rows: u32) -> Arg {
    Arg::TensorMap(Box::new(TensorMap {
        address,
        dtype,
        dims: vec![columns, rows],
        strides: vec![columns * dtype.size()],
        box_dims: vec![64, box_rows],
        swizzle: 128,
    }))
}

/// The argument list that all kernels of this op share (`MATMUL_PARAMS` in matmul.cuh).
fn kernel(variant: &str, entry: String, grid: [u32; 3], block: [u32; 3], p: &Problem, at: &At) -> Launch {
    let post = match p.post {
        Post::None => 0,
        Post::Residual => 1,
        Post::SiluMul => 2,
    };
    Launch::new(format!("matmul/{variant}"), entry, grid, block)
        .programmatic()
        .ptr(at.x)
        .ptr(at.w)
        .ptr(at.norm)
        .ptr(at.residual)
        .ptr(at.out)
        .i32(p.m as i64)
        .i32(p.n as i64)
        .i32(p.k as i64)
        .f32(p.eps)
        .i32(i64::from(p.pre))
        .i32(post)
        .i32(i64::from(p.out == DType::F32))
        .i32(i64::from(at.aligned(p)))
}

fn gemv(table: &[Gemv], variant: &str, p: &Problem, chip: &Chip, at: &At) -> OpResult<Launch> {
    let c = choose::gemv_config(table, variant, p, chip)?;
    let (grid, block) = ([c.blocks(p, chip) as u32, 1, 1], [c.warps as u32 * 32, 1, 1]);
    Ok(kernel(variant, c.entry(variant, p), grid, block, p, at).shared(c.shared(p) as u32))
}

/// The kernels for a supported, non-empty problem.
pub fn launches(variant: &str, p: &Problem, chip: &Chip, bindings: &Bindings) -> OpResult<Vec<Launch>> {
    let at = At::new(p, bindings)?;
    let dtype = p.dtype.name();
    if let Some(table) = choose::gemv_table(variant) {
        return Ok(vec![gemv(table, variant, p, chip, &at)?]);
    }
    if let Some(table) = choose::streamk_table(variant) {
        let c = choose::streamk_config(table, variant, p, chip)?;
        let workspace = bindings.get("workspace")?;
        let grid = [c.blocks(p, chip) as u32, 1, 1];
        let launch = kernel(variant, c.entry(variant, p), grid, [256, 1, 1], p, &at).shared(c.shared() as u32);
        return Ok(vec![launch.ptr(workspace).ptr(workspace + c.counters(p))]);
    }
    Ok(vec![match variant {
        "naive" => {
            let grid = [p.cols().div_ceil(32) as u32, p.m.div_ceil(8).min(65_535) as u32, 1];
            kernel(variant, format!("matmul_naive_{dtype}"), grid, [32, 8, 1], p, &at)
        }
        "tile" => {
            let grid = [p.n.div_ceil(32) as u32, p.m.div_ceil(32).min(65_535) as u32, 1];
            kernel(variant, format!("matmul_tile_{dtype}"), grid, [32, 32, 1], p, &at)
        }
        "register" => {
            let grid = [p.n.div_ceil(128) as u32, p.m.div_ceil(128) as u32, 1];
            kernel(variant, format!("matmul_register_{dtype}"), grid, [256, 1, 1], p, &at)
        }
        "gemv_ptx" => {
            if !at.aligned(p) {
                return Err(crate::op_error!("gemv_ptx needs x and w to begin on 16 bytes"));
            }
            let grid = [p.n.div_ceil(8) as u32, p.m as u32, 1];
            let mut launch = kernel(variant, "matmul_gemv_ptx_bf16".into(), grid, [256, 1, 1], p, &at);
            // Written for 8.0: it has no griddepcontrol.wait, so it may not begin early.
            launch.programmatic = false;
            launch
        }
        "mma" => {
            let tile = choose::mma_tile(p, chip)?;
            let grid = [tile.count(p) as u32, 1, 1];
            kernel(variant, tile.entry(variant, p), grid, [tile.threads as u32, 1, 1], p, &at)
                .shared(tile.shared() as u32)
        }
        "swap_ab" => {
            let c = choose::swap_ab_config(p, chip)?;
            let cut = c.cut(p, chip);
            at.copyable(variant)?;
            let grid = [cut.blocks as u32, 1, 1];
            kernel(variant, c.entry(p), grid, [c.threads() as u32, 1, 1], p, &at)
                .cluster([c.cluster() as u32, 1, 1])
                .shared(cut.shared as u32)
                .arg(tensor_map(at.w, p.dtype, p.k, p.n, cut.cols as u32))
                .arg(tensor_map(at.x, p.dtype, p.k, p.m, (c.m / c.share) as u32))
                .i32(cut.rows as i64)
                .i32(cut.pitch as i64)
                .i32(c.depth as i64)
                .i32(cut.stages as i64)
                .i32(c.share as i64)
                .i32(i64::from(cut.drained))
                .i32(c.lead(&cut))
                .i32(i64::from(c.turn))
                .i32(i64::from(c.once))
                .i32(cut.gains as i64)
        }
        "wgmma" => {
            let tile = choose::wgmma_tile(p, chip)?;
            at.copyable(variant)?;
            let grid = [tile.count(p).min(u64::from(chip.sms)) as u32, 1, 1];
            kernel(variant, tile.entry(variant, p), grid, [tile.threads as u32, 1, 1], p, &at)
                .shared(tile.shared() as u32)
                .arg(tensor_map(at.x, p.dtype, p.k, p.m, tile.m as u32))
                .arg(tensor_map(at.w, p.dtype, p.k, p.n, tile.n as u32 / 2))
        }
        "wgmma_cluster" => {
            let c = choose::cluster_tile(p, chip)?;
            at.copyable(variant)?;
            let clusters = c.pairs(p).min(u64::from(chip.sms) / 2);
            // The copy engine stores plain outputs whose rows it can stride over; others are stored from registers.
            let copied = p.post == Post::None && p.out == p.dtype && p.n.is_multiple_of(8) && at.out.is_multiple_of(16);
            let (x_rows, w_rows) = c.boxes();
            let (x, w) = (tensor_map(at.x, p.dtype, p.k, p.m, x_rows), tensor_map(at.w, p.dtype, p.k, p.n, w_rows));
            let out = if copied { tensor_map(at.out, p.dtype, p.n, p.m, 64) } else { w.clone() };
            kernel(variant, c.entry(variant, p), [clusters as u32 * 2, 1, 1], [c.tile.threads as u32, 1, 1], p, &at)
                .cluster([2, 1, 1])
                .shared(c.shared() as u32)
                .arg(x)
                .arg(w)
                .arg(out)
                .i32(i64::from(copied))
        }
        other => return Err(crate::op_error!("matmul has no variant `{other}`")),
    }])
}
