//! Which shapes are verified and benched: the contract's edges, random ones, and those of real models.

use crate::op::{Rng, Shape};

fn shape(m: u64, n: u64, k: u64) -> Shape {
    Shape::new().with("m", m).with("n", n).with("k", k).with("dtype", "bf16")
}

/// Edges: empty and single dimensions, rows that are no multiple of 16 bytes, odd widths, sizes one off every tile,
/// each fusion, special values.
pub fn edges() -> Vec<Shape> {
    let mut all = vec![shape(0, 64, 64), shape(1, 0, 64), shape(1, 1, 1), shape(3, 5, 1), shape(1, 17, 8)];
    for m in 1..=17 {
        all.push(shape(m, 96, 264));
    }
    for (m, n, k) in [(1, 33, 257), (2, 31, 100), (5, 130, 1000), (16, 127, 63), (64, 129, 1030), (130, 258, 72)] {
        all.push(shape(m, n, k));
        all.push(shape(m, n, k).with("dtype", "f16").with("out", "f32"));
    }
    for (m, n, k) in [(1, 300, 2056), (4, 66, 512), (8, 1026, 320), (33, 272, 136)] {
        all.push(shape(m, n, k).with("post", "residual"));
        all.push(shape(m, n, k).with("post", "silu_mul"));
        all.push(shape(m, n, k).with("post", "silu_mul").with("dtype", "f16").with("out", "f32"));
    }
    for (m, n, k) in [(1, 64, 4096), (3, 34, 1032), (8, 70, 333), (2, 1, 8)] {
        for post in ["none", "residual", "silu_mul"] {
            if n > 1 || post != "silu_mul" {
                all.push(shape(m, n, k).with("pre", "rmsnorm").with("post", post).with("eps", "1e-6"));
            }
        }
    }
    for dtype in ["bf16", "f16"] {
        all.push(shape(4, 48, 2048).with("dtype", dtype).with("values", "special"));
        all.push(shape(4, 48, 2048).with("dtype", dtype).with("values", "special").with("post", "silu_mul"));
        all.push(shape(20, 40, 136).with("dtype", dtype).with("values", "special").with("out", "f32"));
    }
    all
}

/// More than 2^31 elements in w, in x, in the output.
pub fn large() -> Vec<Shape> {
    vec![shape(1, 600_000, 4096), shape(600_000, 128, 4096), shape(40_000, 60_000, 64)]
}

/// A random shape with a few million products at most, one in four with rows that are not 16-byte aligned.
pub fn random(rng: &mut Rng) -> Shape {
    let m = *rng.pick(&[1, 1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 64, 100, 128, 200]);
    let k = if rng.range(0, 3) == 0 { rng.range(1, 700) } else { 8 * rng.range(1, 256) };
    let most = (4_000_000 / (m * k)).clamp(2, 600);
    let n = 2 * rng.range(1, most / 2).max(1) - rng.range(0, 1);
    let mut s = shape(m, n, k).with("dtype", rng.pick(&["bf16", "f16"]));
    match rng.range(0, 3) {
        0 => s.set("post", "residual"),
        1 if n.is_multiple_of(2) => s.set("post", "silu_mul"),
        _ => {}
    }
    if m <= 8 && rng.range(0, 2) == 0 {
        s.set("pre", "rmsnorm");
    }
    if rng.range(0, 4) == 0 {
        s.set("out", "f32");
    }
    s
}

/// Rows and columns of Llama-3-8B's weights: qkv, attention output, gate and up, down, logits.
pub const LLAMA_3_8B: [(u64, u64); 5] = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128_256, 4096)];

/// Llama-3-8B's products for 1 to 256 tokens, then squares and a prefill.
pub fn bench() -> Vec<Shape> {
    let mut all = Vec::new();
    for m in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        all.extend(LLAMA_3_8B.map(|(n, k)| shape(m, n, k)));
    }
    all.extend([1024, 2048, 4096, 8192].map(|s| shape(s, s, s)));
    all.push(shape(16384, 4096, 4096));
    all
}
