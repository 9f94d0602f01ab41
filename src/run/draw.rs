//! Lists of shapes drawn at random: what decode steps of the model table launch on one card or a share of it, at any batch and
//! context, and odd sizes between. A seed gives the same list anywhere, so that predictions can be tried on shapes that
//! nobody chose and no fit has seen.

use super::grid::{Case, find};
use crate::error::Result;
use crate::kernels;
use crate::op::{Chip, Rng, Shape};
use crate::plan::dims::Dims;
use crate::plan::model::Model;
use crate::roofline::coordinates::Place;

/// Shapes of a list where no number is given.
pub const COUNT: usize = 260;
/// Of each hundred shapes.
const SHARES: [(&str, u64); 9] = [
    ("matmul", 32),
    ("w4a16", 20),
    ("paged_attention", 15),
    ("softmax", 9),
    ("rmsnorm", 5),
    ("silu_mul", 5),
    ("argmax", 5),
    ("rope_append", 5),
    ("embed", 4),
];
/// Most bytes that a shape may touch.
const MOST: u64 = 4 << 30;

struct Draw {
    rng: Rng,
    models: Vec<Dims>,
}

impl Draw {
    /// Uniform in the logarithm, whole numbers.
    fn size(&mut self, lo: u64, hi: u64) -> u64 {
        let at = self.rng.range(0, 1 << 20) as f64 / (1 << 20) as f64;
        ((lo as f64) * (hi as f64 / lo as f64).powf(at)).round() as u64
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.rng.range(1, n) == 1
    }
    fn model(&mut self) -> Dims {
        self.rng.pick(&self.models).clone()
    }
    fn cards(&mut self) -> u64 {
        *self.rng.pick(&[1, 1, 1, 1, 2, 4])
    }
    /// Rows of x: often a power of two.
    fn rows(&mut self, most: u64) -> u64 {
        let m = self.size(1, most);
        if self.one_in(2) { m.next_power_of_two().min(most) } else { m }
    }

    /// n, k and what is folded in, of a projection or of no model at all.
    fn matrix(&mut self, multiple: u64) -> (u64, u64, Shape) {
        let folded = Shape::new();
        if self.one_in(5) {
            return (self.size(1000, 32_768), self.size(512, 16_384).div_ceil(multiple) * multiple, folded);
        }
        let (d, cards) = (self.model(), self.cards());
        let fuse = self.one_in(2);
        let with = |key: &str, word: &str| if fuse { Shape::new().with(key, word) } else { Shape::new() };
        let (heads, kv) = ((d.heads / cards).max(1), (d.kv_heads / cards).max(1));
        let (n, k, folded) = match self.rng.range(0, 3) {
            0 => ((heads + 2 * kv) * d.head_dim, d.hidden, with("pre", "rmsnorm")),
            1 => (d.hidden, heads * d.head_dim, with("post", "residual")),
            2 => (2 * d.intermediate / cards, d.hidden, with("post", "silu_mul")),
            _ => (d.hidden, d.intermediate / cards, with("post", "residual")),
        };
        (n, k.div_ceil(multiple) * multiple, folded)
    }

    fn shape(&mut self, op: &str) -> Shape {
        let s = Shape::new();
        match op {
            "matmul" if self.one_in(12) => {
                let d = self.model();
                let s = s.with("m", self.rows(64)).with("n", d.vocab / self.cards()).with("k", d.hidden);
                if self.one_in(2) { s.with("out", "f32") } else { s }
            }
            "matmul" => {
                let multiple = if self.one_in(20) { 1 } else { 8 };
                let (n, k, folded) = self.matrix(multiple);
                let s = s.with("m", self.rows(256)).with("n", n).with("k", k);
                folded.iter().fold(s, |s, (key, word)| s.with(key, word))
            }
            "w4a16" => {
                let (n, k, folded) = self.matrix(128);
                let s = s.with("m", self.rows(64)).with("n", n.next_multiple_of(16)).with("k", k);
                let s = folded.iter().fold(s, |s, (key, word)| s.with(key, word));
                let s = if self.one_in(8) { s.with("group", *self.rng.pick(&[32, 64])) } else { s };
                if self.one_in(8) { s.with("zeros", "asym") } else { s }
            }
            "paged_attention" | "rope_append" => {
                let (d, cards) = (self.model(), self.cards());
                let fused = op == "rope_append" || self.one_in(3);
                let batch = self.rows(128);
                let ctx = if op == "rope_append" { 64 } else { self.size(128, 32_768) };
                let s = if op != "rope_append" && batch > 1 && batch <= 16 && self.one_in(5) {
                    let lens: Vec<String> = (0..batch).map(|_| self.size(128, ctx.max(256)).to_string()).collect();
                    s.with("lens", lens.join(":"))
                } else {
                    s.with("batch", batch).with("ctx", ctx)
                };
                let (kv, heads) = ((d.kv_heads / cards).max(1), (d.heads / cards).max(1));
                let s = s.with("heads", heads).with("kv_heads", kv).with("d", d.head_dim);
                let s = if fused && op == "paged_attention" { s.with("fuse", "rope_append") } else { s };
                if self.one_in(6) { s.with("kv", "e4m3") } else { s }
            }
            "softmax" if self.one_in(2) => {
                let vocab = self.model().vocab;
                s.with("rows", self.rows(128)).with("cols", vocab)
            }
            "softmax" => {
                let cols = self.size(128, 16_384).next_multiple_of(8);
                let rows = self.size(1 << 20, 1 << 27) / cols;
                let s = s.with("rows", rows.max(1)).with("cols", cols);
                match self.rng.range(0, 5) {
                    0 => s.with("mask", "causal").with("mask_rows", cols).with("scale", 0.125),
                    1 if cols <= 4096 => s.with("mask", "additive").with("mask_rows", cols).with("scale", 0.125),
                    _ => s,
                }
            }
            "rmsnorm" => {
                let s = s.with("m", self.rows(512)).with("k", self.model().hidden);
                if self.one_in(3) { s.with("residual", "add") } else { s }
            }
            "silu_mul" => s.with("m", self.rows(256)).with("n", self.model().intermediate / self.cards()),
            "argmax" => s.with("m", self.rows(64)).with("v", self.model().vocab),
            _ => s.with("m", self.rows(256)).with("v", 32_000).with("k", self.model().hidden),
        }
    }
}

/// So many shapes of a seed: each runs on an H200, none comes twice, none is in the list that fits are made from.
///
/// # Errors
/// A built-in list or model that cannot be read.
pub fn draw(seed: u64, count: usize) -> Result<Vec<Case>> {
    let mut taken: Vec<(&str, Place)> =
        find("calibration")?.iter().map(|(op, s)| (op.name(), Place::of(op.name(), s))).collect();
    let models = Model::built_in().iter().map(|name| Dims::find(name)).collect::<Result<Vec<_>>>()?;
    // Latent attention has no kernel here.
    let models: Vec<Dims> = models.into_iter().filter(|d| d.mla.is_none()).collect();
    let mut draw = Draw { rng: Rng(crate::op::mix(seed)), models };
    let mut cases = Vec::new();
    let mut quota = 0;
    for (i, (name, share)) in SHARES.iter().enumerate() {
        quota += share;
        let last = i + 1 == SHARES.len();
        let until = if last { count } else { (count as u64 * quota / 100) as usize };
        let op = kernels::op(name)?;
        let mut tries = 0;
        while cases.len() < until && tries < 100 * count {
            tries += 1;
            let shape = draw.shape(name);
            let chosen = op.choose(&shape, &Chip::H200);
            let runs = op.supports(chosen, &shape, &Chip::H200).is_ok();
            if !runs || op.cost(&shape).is_ok_and(|c| c.bytes() > MOST) {
                continue;
            }
            let place = Place::of(name, &shape);
            if taken.iter().any(|(o, p)| o == name && p.same_work(&place)) {
                continue;
            }
            taken.push((name, place));
            cases.push((op, shape));
        }
    }
    // In no order, so that a run that is cut short misses nothing in particular.
    for i in (1..cases.len()).rev() {
        cases.swap(i, draw.rng.range(0, i as u64) as usize);
    }
    Ok(cases)
}
