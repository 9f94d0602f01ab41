//! Launch lists: grids, shared memory and arguments of each variant.

use super::choose::{self, Gemv};
use super::problem::{Post, Problem};
use crate::op::{Bindings, Chip, DType, Launch, OpResult};

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
        p.k % 8 == 0 && (self.x | self.w | self.norm) % 16 == 0
    }
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
pub fn launches(variant: &str, p: &Problem, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
    let at = At::new(p, at)?;
    let dtype = p.dtype.name();
    if let Some(table) = choose::gemv_table(variant) {
        return Ok(vec![gemv(table, variant, p, chip, &at)?]);
    }
    Ok(vec![match variant {
        "naive" => {
            let grid = [p.cols().div_ceil(32) as u32, p.m.div_ceil(8).min(65_535) as u32, 1];
            kernel(variant, format!("matmul_naive_{dtype}"), grid, [32, 8, 1], p, &at)
        }
        "mma" => {
            let tile = choose::mma_tile(p, chip)?;
            let grid = [tile.count(p) as u32, 1, 1];
            kernel(variant, tile.entry(p), grid, [tile.threads as u32, 1, 1], p, &at).shared(tile.shared() as u32)
        }
        other => return Err(crate::op_error!("matmul has no variant `{other}`")),
    }])
}
