//! Launches of `silu_mul`: a grid of (row, chunk of the row).

use super::Size;
use crate::op::{Bindings, Launch, OpResult};

const THREADS: u64 = 128;

pub fn vector(s: &Size, at: &Bindings) -> OpResult<Vec<Launch>> {
    if s.m == 0 || s.n == 0 {
        return Ok(Vec::new());
    }
    let chunks = s.n.div_ceil(16 / s.dtype.size()).div_ceil(THREADS);
    if chunks > 65_535 {
        return Err(crate::op_error!("silu_mul: n={} needs {chunks} chunks, the grid takes 65535", s.n));
    }
    let grid = [s.m as u32, chunks as u32, 1];
    let entry = format!("silu_mul_vector_{}", s.dtype.name());
    let launch = Launch::new("silu_mul/vector", entry, grid, [THREADS as u32, 1, 1]);
    Ok(vec![launch.ptr(at.get("x")?).ptr(at.get("out")?).i32(s.n as i64).programmatic()])
}
