//! Launches of `argmax`: a grid of (part of the row, row).

use super::{Size, choose};
use crate::op::{Bindings, Chip, Launch, OpResult};

pub fn launches(variant: &str, s: &Size, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
    if s.m == 0 {
        return Ok(Vec::new());
    }
    let split = variant == "split";
    let (parts, threads) = if split { (choose::splits(s, chip), choose::THREADS) } else { (1, 1024) };
    let entry = format!("argmax_{variant}_{}", s.dtype.name());
    let mut launch =
        Launch::new(format!("argmax/{variant}"), entry, [parts as u32, s.m as u32, 1], [threads as u32, 1, 1])
            .ptr(at.get("logits")?)
            .ptr(at.get("out")?)
            .i32(s.v as i64);
    if split {
        launch = launch.ptr(at.get("workspace")?);
    }
    Ok(vec![launch.programmatic()])
}
