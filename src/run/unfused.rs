//! The launches of `kernels/common/unfused.cu`: the elementwise passes that fusion saves. Pure.

use crate::op::{DType, Launch};

fn launch(entry: &str, len: u64, dtype: DType) -> Launch {
    let blocks = len.div_ceil(8 * 256).clamp(1, 1 << 30) as u32;
    Launch::new("common/unfused", format!("unfused_{entry}_{}", dtype.name()), [blocks, 1, 1], [256, 1, 1])
}

/// `y = x * scale`, bf16 or f16, each result rounded.
pub fn scale(x: u64, y: u64, len: u64, scale: f32, dtype: DType) -> Launch {
    launch("scale", len, dtype).ptr(x).ptr(y).i64(len as i64).f32(scale)
}

/// `y[i] = x[i] + mask[i % period]`, bf16 or f16; in place where `x` is `y`.
pub fn add_mask(x: u64, mask: u64, y: u64, len: u64, period: u64, dtype: DType) -> Launch {
    launch("add_mask", len, dtype).ptr(x).ptr(mask).ptr(y).i64(len as i64).i64(period as i64)
}

/// `y[i] = x[i] * scale + mask[i % period]` in one pass, bf16 or f16; in place where `x` is `y`.
pub fn scale_add_mask(x: u64, mask: u64, y: u64, len: u64, period: u64, scale: f32, dtype: DType) -> Launch {
    launch("scale_add_mask", len, dtype).ptr(x).ptr(mask).ptr(y).i64(len as i64).i64(period as i64).f32(scale)
}
