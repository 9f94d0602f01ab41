//! Launches of `embed`: a grid of (chunk of the row, token).

use super::Size;
use crate::op::{Bindings, Launch, OpResult};

const THREADS: u64 = 128;

pub fn gather(s: &Size, at: &Bindings) -> OpResult<Vec<Launch>> {
    if s.m == 0 || s.k == 0 {
        return Ok(Vec::new());
    }
    let lanes = 16 / s.dtype.size();
    // The scalar path strides through the row, so the same grid serves both.
    let chunks = s.k.div_ceil(lanes).div_ceil(THREADS);
    let grid = [s.m as u32, chunks as u32, 1];
    if chunks > 65_535 {
        return Err(crate::op_error!("embed: k={} needs {chunks} chunks, the grid takes 65535", s.k));
    }
    let launch = Launch::new("embed/gather", format!("embed_gather_{}", s.dtype.name()), grid, [THREADS as u32, 1, 1])
        .ptr(at.get("ids")?)
        .ptr(at.get("table")?)
        .ptr(at.get("out")?)
        .i32(s.v as i64)
        .i32(s.k as i64);
    Ok(vec![launch.programmatic()])
}
