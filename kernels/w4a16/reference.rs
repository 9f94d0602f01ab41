//! The f64 reference, computed from the packed bytes as they lie in memory, on sampled rows where the matrix is large.

use super::layout;
use super::shape::{CHUNK_BYTES, Post, Pre, Spec, TILE};
use crate::op::{Check, DType, OpResult, View};
use half::f16;

/// Multiplications that a check may cost.
const WORK: u64 = 1 << 26;

/// x, normalised where asked; nothing rounded.
fn operand(spec: &Spec, view: &dyn View) -> OpResult<Vec<f64>> {
    let mut x = view.read("x", 0, spec.m * spec.k)?;
    if spec.pre == Pre::RmsNorm {
        let gain = view.read("norm", 0, spec.k)?;
        for row in x.chunks_mut(spec.k as usize) {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / spec.k as f64;
            let r = 1.0 / (mean + f64::from(spec.eps)).sqrt();
            for (v, g) in row.iter_mut().zip(&gain) {
                *v *= r * g;
            }
        }
    }
    Ok(x)
}

/// One dequantised row after the other; keeps the last tile read.
struct Rows<'a> {
    spec: &'a Spec,
    view: &'a dyn View,
    tile: Option<u64>,
    qweight: Vec<u8>,
    scales: Vec<f64>,
    zeros: Vec<u8>,
}

impl<'a> Rows<'a> {
    fn new(spec: &'a Spec, view: &'a dyn View) -> Self {
        Self { spec, view, tile: None, qweight: Vec::new(), scales: Vec::new(), zeros: Vec::new() }
    }
    /// w\[row, :\] = (q − z) · s.
    fn row(&mut self, row: u64) -> OpResult<Vec<f64>> {
        let (s, tile, r) = (self.spec, row / TILE, row % TILE);
        if self.tile != Some(tile) {
            let bytes = s.chunks() * CHUNK_BYTES;
            self.qweight = self.view.raw("qweight", tile * bytes, bytes)?;
            let len = s.packed_groups() * TILE;
            self.scales = self.view.read("scales", tile * len, len)?;
            if s.asym {
                let len = s.zero_groups() * 8;
                self.zeros = self.view.raw("zeros", tile * len, len)?;
            }
            self.tile = Some(tile);
        }
        Ok((0..s.k)
            .map(|col| {
                let group = layout::group_of(s, col);
                let q = layout::q_at(&self.qweight, layout::place(s, r, col));
                let z = if s.asym { layout::zero_at(&self.zeros, layout::zero_place(s, r, group)) } else { 8 };
                (f64::from(q) - f64::from(z)) * self.scales[layout::scale_index(s, r, group) as usize]
            })
            .collect())
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Compares `out` with the reference, on whole tiles of output columns spread over the width.
pub fn check(spec: &Spec, view: &dyn View) -> OpResult<Vec<Check>> {
    if spec.empty() {
        return Ok(Vec::new());
    }
    let (k, width) = (spec.k as usize, spec.out_n());
    let x = operand(spec, view)?;
    let out = view.read("out", 0, spec.m * width)?;
    let residual = if spec.post == Post::Residual { view.read("residual", 0, spec.m * width)? } else { Vec::new() };
    let tiles = width.div_ceil(TILE);
    let sample = (WORK / (TILE * spec.k * spec.m)).clamp(3, 96).min(tiles);
    let (mut got, mut want) = (Vec::new(), Vec::new());
    let (mut rows, mut up_rows) = (Rows::new(spec, view), Rows::new(spec, view));
    for i in 0..sample {
        // The first, the last, and evenly between.
        let tile = if sample == 1 { 0 } else { i * (tiles - 1) / (sample - 1) };
        for row in tile * TILE..((tile + 1) * TILE).min(width) {
            let w = rows.row(row)?;
            let up = if spec.post == Post::SiluMul { Some(up_rows.row(row + width)?) } else { None };
            for (m, x) in x.chunks(k).enumerate() {
                let at = m * width as usize + row as usize;
                let mut v = dot(&w, x);
                match spec.post {
                    Post::None => {}
                    Post::Residual => v += residual[at],
                    Post::SiluMul => v = v / (1.0 + (-v).exp()) * dot(up.as_deref().unwrap_or(&[]), x),
                }
                // Only infinities: rounding both sides would hide half of the error.
                if spec.out == DType::F16 && f16::from_f64(v).is_infinite() {
                    v = f64::INFINITY.copysign(v);
                }
                got.push(out[at]);
                want.push(v);
            }
        }
    }
    // One rounding of out (a single element may be off by all of it) and fp32 sums.
    let mut tolerance = spec.out.epsilon().max(1e-5) * if spec.post == Post::None { 1.25 } else { 2.0 };
    if spec.pre == Pre::RmsNorm {
        // The normalised x is rounded, too: noise beside the size of a typical element, while a few elements may happen
        // to be much smaller than that.
        tolerance += spec.dtype.epsilon() * (1.0 + 12.0 / (want.len() as f64).sqrt());
    }
    Ok(vec![Check::compare("out", &got, &want, tolerance)])
}
