//! Launches of `rmsnorm`: one block for each row.

use super::Size;
use crate::op::{Bindings, Launch, OpResult};

/// 16-byte vectors of the longest row that `block` holds in registers: 1024 threads, 4 each.
pub const MOST_VECTORS: u64 = 4096;

/// Threads of the block and vectors of each thread, where the row fits and is a multiple of 16 bytes.
pub fn vectors(s: &Size) -> Option<(u32, u32)> {
    let bytes = s.k * s.dtype.size();
    let vectors = bytes / 16;
    if !bytes.is_multiple_of(16) || vectors > MOST_VECTORS {
        return None;
    }
    // One vector a thread while the block allows: the latency of one load is the whole kernel at batch 1.
    let each = match vectors {
        0..=1024 => 1,
        1025..=2048 => 2,
        _ => 4,
    };
    let threads = vectors.div_ceil(each).next_multiple_of(32).max(32);
    Some((threads as u32, each as u32))
}

pub fn launches(variant: &str, s: &Size, at: &Bindings) -> OpResult<Vec<Launch>> {
    if s.m == 0 || s.k == 0 {
        return Ok(Vec::new());
    }
    let (threads, suffix) = match vectors(s).filter(|_| variant == "block") {
        Some((threads, each)) => (threads, format!("{}_{each}", s.dtype.name())),
        None => (256, s.dtype.name().to_string()),
    };
    let residual = if s.residual { at.get("residual")? } else { 0 };
    let launch = Launch::new(
        format!("rmsnorm/{variant}"),
        format!("rmsnorm_{variant}_{suffix}"),
        [s.m as u32, 1, 1],
        [threads, 1, 1],
    )
    .ptr(at.get("x")?)
    .ptr(at.get("gain")?)
    .ptr(residual)
    .ptr(at.get("out")?)
    .i32(s.k as i64)
    .f32(s.eps as f32);
    Ok(vec![launch.programmatic()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Shape;

    fn of(text: &str) -> Option<(u32, u32)> {
        vectors(&Size::of(&Shape::parse(text).unwrap()).unwrap())
    }

    #[test]
    fn rows_fit_their_blocks() {
        assert_eq!(of("m=1,k=4096"), Some((512, 1)));
        assert_eq!(of("m=1,k=8192"), Some((1024, 1)));
        assert_eq!(of("m=1,k=16384"), Some((1024, 2)));
        assert_eq!(of("m=1,k=32768"), Some((1024, 4)));
        assert_eq!(of("m=1,k=32776"), None);
        assert_eq!(of("m=1,k=1023"), None);
        assert_eq!(of("m=1,k=8"), Some((32, 1)));
    }
}
