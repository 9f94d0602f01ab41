//! Rotary embedding and KV append, the step between the qkv projection and attention: qkv [batch, (heads + 2 kv_heads) d]
//! in; q [batch, heads, d] rotated out; the new key (rotated) and value written at position seq_lens - 1 of the paged
//! cache. Shapes, cache layouts and page table are paged_attention's (its `spec`).
//!
//! Rotation is half-split (Llama's rotate_half): pairs (i, i + d/2), cos_sin f32 [max_ctx, d] holding d/2 cosines and
//! then d/2 sines of each position. With qk_norm=rms, `q_norm` and `k_norm`, d values each, are gains of a root-mean-
//! square norm of each q and k head before the rotation (Qwen3). Length 0: q is rotated as at position 0 and nothing
//! is appended. A page id outside the pool appends nothing.

use crate::kernels::paged_attention::{reference, rotation, spec::Spec};
use crate::op::{
    Arch, Bindings, Buffer, Check, Chip, Cost, DType, Dim, Init, Launch, Op, OpResult, Rng, Shape, Unit, Variant, View,
};

/// The op's registry entry.
pub struct RopeAppend;

const VARIANTS: &[Variant] = &[Variant {
    name: "rows",
    file: "rows.cu",
    archs: Arch::ALL,
    emulated: true,
    about: "a warp for each head; lengths, table and cosines are read before the projections are ready",
}];

const DIMS: &[Dim] = &[
    Dim { key: "batch", default: "", about: "requests (or give lens)" },
    Dim { key: "ctx", default: "", about: "tokens of every request, the new one included" },
    Dim { key: "lens", default: "", about: "tokens of each request, a:b:c" },
    Dim { key: "heads", default: "32", about: "query heads" },
    Dim { key: "kv_heads", default: "8", about: "key and value heads" },
    Dim { key: "d", default: "128", about: "head size: 64, 96, 128, 192 or 256" },
    Dim { key: "page", default: "16", about: "tokens of a page, 1 to 256" },
    Dim { key: "dtype", default: "bf16", about: "bf16 or f16" },
    Dim { key: "kv", default: "dtype", about: "type of the cache: dtype or e4m3" },
    Dim { key: "layout", default: "nhd", about: "nhd or hnd" },
    Dim { key: "max_ctx", default: "longest", about: "longest length a replay may have" },
    Dim { key: "pool_pages", default: "batch * max_pages", about: "pages in the cache" },
    Dim { key: "k_scale", default: "1", about: "keys are cached as k / k_scale (e4m3)" },
    Dim { key: "v_scale", default: "1", about: "values are cached as v / v_scale (e4m3)" },
    Dim { key: "qk_norm", default: "none", about: "none or rms" },
    Dim { key: "eps", default: "1e-6", about: "epsilon of qk_norm" },
];

/// The shape, with the new token's slot known to be this op's to fill.
fn spec(shape: &Shape) -> OpResult<Spec> {
    Ok(Spec { fused: true, ..Spec::new(shape)? })
}

impl Op for RopeAppend {
    fn name(&self) -> &'static str {
        "rope_append"
    }
    fn about(&self) -> &'static str {
        "rotary embedding of q and k, append of k and v to the paged cache"
    }
    fn dims(&self) -> &'static [Dim] {
        DIMS
    }
    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    fn cost(&self, shape: &Shape) -> OpResult<Cost> {
        let s = spec(shape)?;
        let (b, live) = (s.batch(), s.lens.iter().filter(|l| **l > 0).count() as u64);
        let (q, kv) = (s.heads * s.d, s.kv_heads * s.d);
        let norm = if s.qk_norm.is_some() { 2 * s.d * s.dtype.size() } else { 0 };
        Ok(Cost::new(Unit::Fp32, 3 * b * (q + kv))
            .read("qkv", b * s.qkv_row() * s.dtype.size())
            .read("cos_sin", b * s.d * 4)
            .read("norm", norm)
            .read("page_table", live * 4)
            .read("seq_lens", b * 4)
            .write("q", b * q * s.dtype.size())
            .write("append", 2 * live * kv * s.kv.size()))
    }

    fn buffers(&self, shape: &Shape, seed: u64) -> OpResult<Vec<Buffer>> {
        let s = spec(shape)?;
        let table = s.page_table(seed);
        let bytes = |v: &[i32]| Init::Bytes(v.iter().flat_map(|x| x.to_le_bytes()).collect());
        let lens: Vec<i32> = s.lens.iter().map(|l| *l as i32).collect();
        let mut buffers = vec![
            Buffer::input("qkv", s.dtype, s.batch() * s.qkv_row(), Init::Normal { std: 1.0 }),
            Buffer::input("cos_sin", DType::F32, s.max_ctx * s.d, rotation(&s)),
        ];
        if s.qk_norm.is_some() {
            let gain = Init::Uniform { lo: 0.5, hi: 1.5 };
            buffers.push(Buffer::input("q_norm", s.dtype, s.d, gain.clone()));
            buffers.push(Buffer::input("k_norm", s.dtype, s.d, gain));
        }
        // No token is read here: NaN everywhere shows any store but the right one.
        buffers.push(Buffer::inout("k_cache", s.kv, s.pool(), Init::Poison));
        buffers.push(Buffer::inout("v_cache", s.kv, s.pool(), Init::Poison));
        buffers.push(Buffer::input("page_table", DType::I32, table.len() as u64, bytes(&table)));
        buffers.push(Buffer::input("seq_lens", DType::I32, s.batch(), bytes(&lens)));
        buffers.push(Buffer::output("q", s.dtype, s.batch() * s.heads * s.d));
        Ok(buffers)
    }

    fn supports(&self, variant: &str, shape: &Shape, _chip: &Chip) -> OpResult<()> {
        self.variant(variant)?;
        spec(shape).map(drop)
    }

    fn launches(&self, variant: &str, shape: &Shape, _chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
        self.variant(variant)?;
        let s = spec(shape)?;
        if s.batch() == 0 {
            return Ok(Vec::new());
        }
        let types = if s.kv == s.dtype { s.dtype.name().to_string() } else { format!("{}_e4m3", s.dtype.name()) };
        let rows = s.heads + 2 * s.kv_heads;
        let (page, slot, head) = s.strides();
        let gain = |name: &str| if s.qk_norm.is_some() { at.get(name) } else { Ok(0) };
        let grid = [rows.div_ceil(4) as u32, s.batch() as u32, 1];
        Ok(vec![
            Launch::new("rope_append/rows", format!("rope_append_rows_{types}"), grid, [128, 1, 1])
                .programmatic()
                .ptr(at.get("qkv")?)
                .ptr(at.get("cos_sin")?)
                .ptr(gain("q_norm")?)
                .ptr(gain("k_norm")?)
                .ptr(at.get("k_cache")?)
                .ptr(at.get("v_cache")?)
                .ptr(at.get("page_table")?)
                .ptr(at.get("seq_lens")?)
                .ptr(at.get("q")?)
                .i32(s.heads as i64)
                .i32(s.kv_heads as i64)
                .i32(s.d as i64)
                .i32(s.page as i64)
                .i32(s.max_pages() as i64)
                .i32(s.pool_pages as i64)
                .i32(s.max_ctx as i64)
                .i64(page as i64)
                .i64(slot as i64)
                .i64(head as i64)
                .f32(s.k_scale as f32)
                .f32(s.v_scale as f32)
                .f32(s.qk_norm.unwrap_or(0.0) as f32),
        ])
    }

    fn choose(&self, _shape: &Shape, _chip: &Chip) -> &'static str {
        "rows"
    }

    fn check(&self, shape: &Shape, view: &dyn View) -> OpResult<Vec<Check>> {
        let s = spec(shape)?;
        if s.batch() == 0 {
            return Ok(Vec::new());
        }
        let d = s.d as usize;
        let table = view.read("page_table", 0, s.batch() * s.max_pages())?;
        let lens = view.read("seq_lens", 0, s.batch())?;
        let gain = |name: &str| if s.qk_norm.is_some() { view.read(name, 0, s.d) } else { Ok(vec![1.0; d]) };
        let (q_gain, k_gain) = (gain("q_norm")?, gain("k_norm")?);
        let [mut q, mut k, mut v] = [(); 3].map(|()| (Vec::new(), Vec::new()));
        let mut stray = None;
        for b in 0..s.batch() {
            let len = (lens[b as usize].max(0.0) as u64).min(s.max_pages() * s.page);
            let cos_sin = view.read("cos_sin", len.saturating_sub(1).min(s.max_ctx - 1) * s.d, s.d)?;
            let row = view.read("qkv", b * s.qkv_row(), s.qkv_row())?;
            let turn = |x: &[f64], gain: &[f64]| {
                let mean = x.iter().map(|v| v * v).sum::<f64>() / d as f64;
                let f = s.qk_norm.map_or(1.0, |eps| 1.0 / (mean + eps).sqrt());
                let mut y: Vec<f64> = x.iter().zip(gain).map(|(v, g)| v * f * g).collect();
                reference::rotate(&mut y, &cos_sin);
                y
            };
            for h in 0..s.heads as usize {
                q.1.extend(turn(&row[h * d..(h + 1) * d], &q_gain).iter().map(|x| reference::round(s.dtype, *x)));
            }
            if len == 0 {
                continue;
            }
            let (id, slot) = (table[(b * s.max_pages() + (len - 1) / s.page) as usize] as u64, (len - 1) % s.page);
            for h in 0..s.kv_heads {
                let at = ((s.heads + h) * s.d) as usize;
                let key = turn(&row[at..at + d], &k_gain);
                let at = at + (s.kv_heads * s.d) as usize;
                k.1.extend(key.iter().map(|x| reference::round(s.kv, x / s.k_scale)));
                v.1.extend(row[at..at + d].iter().map(|x| reference::round(s.kv, x / s.v_scale)));
                let first = s.element(id, slot, h);
                k.0.extend(view.read("k_cache", first, s.d)?);
                v.0.extend(view.read("v_cache", first, s.d)?);
                let next = first + s.strides().1;
                if slot + 1 < s.page && view.read("k_cache", next, s.d)?.iter().any(|x| !x.is_nan()) {
                    stray = Some(format!("request {b}, kv head {h}: the slot after the new token was written"));
                }
            }
        }
        q.0 = view.read("q", 0, s.batch() * s.heads * s.d)?;
        // Correctly rounded, but for sums that fp32 puts on the other side of a tie.
        let mut checks = vec![Check::compare("q", &q.0, &q.1, s.dtype.epsilon() / 2.0)];
        checks.push(Check::compare("k_cache", &k.0, &k.1, s.kv.epsilon() / 2.0));
        checks.push(Check::compare("v_cache", &v.0, &v.1, s.kv.epsilon() / 2.0));
        checks[1].broken = checks[1].broken.take().or(stray);
        Ok(checks)
    }

    fn edge_shapes(&self) -> Vec<Shape> {
        EDGES.iter().map(|t| Shape::parse(t).expect("edge shapes are well formed")).collect()
    }

    fn random_shape(&self, rng: &mut Rng) -> Shape {
        let kv_heads = rng.range(1, 8);
        let lens: Vec<String> = (0..rng.range(1, 9)).map(|_| rng.range(0, 200).to_string()).collect();
        let longest = lens.iter().filter_map(|l| l.parse::<u64>().ok()).max().unwrap_or(0);
        let mut shape = Shape::new()
            .with("lens", lens.join(":"))
            .with("heads", kv_heads * rng.range(1, 8))
            .with("kv_heads", kv_heads)
            .with("d", *rng.pick(&crate::kernels::paged_attention::spec::HEAD_SIZES))
            .with("page", *rng.pick(&[1, 2, 3, 16, 64, 256]))
            .with("dtype", *rng.pick(&["bf16", "f16"]))
            .with("layout", *rng.pick(&["nhd", "hnd"]))
            .with("max_ctx", longest.max(1) + rng.range(0, 50));
        if rng.range(0, 2) == 0 {
            shape = shape.with("kv", "e4m3").with("k_scale", "0.75").with("v_scale", "1.5");
        }
        if rng.range(0, 2) == 0 {
            shape = shape.with("qk_norm", "rms");
        }
        shape
    }

    fn bench_shapes(&self) -> Vec<Shape> {
        [1, 8, 32, 128].map(|b| Shape::new().with("batch", b).with("ctx", 2048)).to_vec()
    }
}

/// The contract's edges: no tokens, the first token, page boundaries, one-token pages, normalised heads, e4m3 scales.
const EDGES: &[&str] = &[
    "batch=0,ctx=16",
    "lens=0:0",
    "lens=1:0:2:16:17:15:64:65",
    "lens=1:2:3,page=1",
    "lens=255:256:257,page=256,layout=hnd,heads=4,kv_heads=2",
    "batch=1,ctx=17,heads=5,kv_heads=1,d=96",
    "batch=2,ctx=17,heads=3,kv_heads=3,d=192,dtype=f16",
    "batch=2,ctx=17,heads=6,kv_heads=2,d=256,qk_norm=rms",
    "batch=2,ctx=17,qk_norm=rms,eps=1e-5,dtype=f16",
    "batch=2,ctx=33,kv=e4m3,k_scale=0.5,v_scale=1.75,d=64",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_projections_is_read_and_q_and_two_rows_are_written() {
        let cost = RopeAppend.cost(&Shape::parse("batch=1,ctx=2048").unwrap()).unwrap();
        assert_eq!(cost.terms.iter().find(|t| t.name == "qkv").unwrap().bytes, 6144 * 2);
        assert_eq!(cost.terms.iter().find(|t| t.name == "append").unwrap().bytes, 2 * 8 * 128 * 2);
    }

    #[test]
    fn the_norm_needs_its_gains() {
        let shape = Shape::parse("batch=1,ctx=4,qk_norm=rms").unwrap();
        let names: Vec<_> = RopeAppend.buffers(&shape, 1).unwrap().iter().map(|b| b.name).collect();
        assert!(names.contains(&"q_norm") && names.contains(&"k_norm"));
    }
}
