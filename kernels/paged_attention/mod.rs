//! Paged decode attention: one query token of each request against its cached keys and values, found through a page
//! table. Grouped-query heads, ragged lengths, bf16 or fp16 with an optional e4m3 cache; optionally the step before it
//! (rotary embedding and the append of the new token) in the same launch.
//!
//! Arrays, row-major: q [batch, heads, d]; k_cache and v_cache [pages, page, kv_heads, d] (layout=nhd) or
//! [pages, kv_heads, page, d] (hnd); page_table i32 [batch, ceil(max_ctx / page)]; `seq_lens i32 [batch]`;
//! out [batch, heads, d]; lse f32 [batch, heads], the natural logarithm of Σ exp(score). With fuse=rope_append: qkv
//! [batch, (heads + 2 kv_heads) d] raw projections instead of q, cos_sin f32 [max_ctx, d] (d/2 cosines, then d/2 sines),
//! and seq_lens counts the new token, which is rotated (half-split, as Llama), written to its slot and attended to.
//!
//! Contract: fp32 accumulation; length 0 gives out 0 and lse -inf; slots beyond a length and pages that no token needs
//! are never read into a result, NaN or not; a length beyond the page table's columns is cut to them; a page id outside
//! the pool reads as zeros and is never dereferenced. Lengths are read on the device: a captured launch replays with
//! other lengths up to max_ctx.

pub mod choose;
pub mod launch;
pub mod reference;
mod shapes;
pub mod spec;

use crate::op::{
    Arch, Bindings, Buffer, Check, Chip, Cost, DType, Dim, Init, Launch, Op, OpResult, Rng, Shape, Unit, Variant, View,
};
use crate::op_error;
use spec::Spec;
use std::sync::{Mutex, PoisonError};

/// The op's registry entry.
pub struct PagedAttention;

const HOPPER: &[Arch] = &[Arch::Sm90];

const VARIANTS: &[Variant] = &[
    Variant {
        name: "one_pass",
        file: "one_pass.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "a block for each request and kv head, the whole context in one pass of online softmax",
    },
    Variant {
        name: "one_pass_ptx",
        file: "one_pass_d128.ptx",
        archs: Arch::ALL,
        emulated: false,
        about: "by hand in PTX, bf16 and d=128: a warp for each query head, nothing shared, nothing waited for",
    },
    Variant {
        name: "split",
        file: "split.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "the context cut into pieces read at the same time, joined by a second kernel",
    },
    Variant {
        name: "split_mma",
        file: "split_mma.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "tensor cores with keys as rows, an even share of all tokens for each block, the last to arrive joins",
    },
    Variant {
        name: "split_cluster",
        file: "split_cluster.cu",
        archs: HOPPER,
        emulated: true,
        about: "the pieces of a request are a cluster and meet in distributed shared memory",
    },
];

/// Caches up to this size begin with NaN in every slot that no token owns; larger ones are random throughout.
pub const POISON_LIMIT: u64 = 32 << 20;

impl Op for PagedAttention {
    fn name(&self) -> &'static str {
        "paged_attention"
    }
    fn about(&self) -> &'static str {
        "decode attention over a paged KV cache, optionally with rotary embedding and append"
    }
    fn dims(&self) -> &'static [Dim] {
        shapes::DIMS
    }
    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    fn cost(&self, shape: &Shape) -> OpResult<Cost> {
        let s = Spec::new(shape)?;
        let tokens: u64 = s.lens.iter().sum();
        let (b, row) = (s.batch(), s.kv_heads * s.d);
        let live = s.lens.iter().filter(|l| **l > 0).count() as u64;
        let pages: u64 = s.lens.iter().map(|l| l.div_ceil(s.page)).sum();
        // The new token of a fused step comes from the projections and goes to the cache.
        let cached = if s.fused { tokens - live } else { tokens };
        let q = if s.fused { live * s.qkv_row() } else { live * s.heads * s.d };
        let cost = Cost::new(Unit::Tensor16, 4 * s.heads * s.d * tokens)
            .read("kv", 2 * cached * row * s.kv.size())
            .read("q", q * s.dtype.size())
            .read("page_table", pages * 4)
            .read("seq_lens", b * 4)
            .write("out", b * s.heads * s.d * s.dtype.size())
            .write("lse", b * s.heads * 4);
        Ok(if s.fused {
            cost.read("cos_sin", live * s.d * 4).write("append", 2 * live * row * s.kv.size())
        } else {
            cost
        })
    }

    fn buffers(&self, shape: &Shape, seed: u64) -> OpResult<Vec<Buffer>> {
        let s = Spec::new(shape)?;
        let table = s.page_table(seed);
        let bytes = |v: &[i32]| Init::Bytes(v.iter().flat_map(|x| x.to_le_bytes()).collect());
        let lens: Vec<i32> = s.lens.iter().map(|l| *l as i32).collect();
        let normal = Init::Normal { std: 1.0 };
        let mut buffers = Vec::new();
        if s.fused {
            buffers.push(Buffer::input("qkv", s.dtype, s.batch() * s.qkv_row(), normal.clone()));
            buffers.push(Buffer::input("cos_sin", DType::F32, s.max_ctx * s.d, rotation(&s)));
        } else {
            buffers.push(Buffer::input("q", s.dtype, s.batch() * s.heads * s.d, normal.clone()));
        }
        for (name, salt) in [("k_cache", 1), ("v_cache", 2)] {
            let init = if poisoned(&s) { reference::poisoned_cache(&s, &table, seed ^ salt) } else { normal.clone() };
            buffers.push(if s.fused {
                Buffer::inout(name, s.kv, s.pool(), init)
            } else {
                Buffer::input(name, s.kv, s.pool(), init)
            });
        }
        buffers.push(Buffer::input("page_table", DType::I32, table.len() as u64, bytes(&table)));
        buffers.push(Buffer::input("seq_lens", DType::I32, s.batch(), bytes(&lens)));
        buffers.push(Buffer::output("out", s.dtype, s.batch() * s.heads * s.d));
        buffers.push(Buffer::output("lse", DType::F32, s.batch() * s.heads));
        Ok(buffers)
    }

    fn supports(&self, variant: &str, shape: &Shape, chip: &Chip) -> OpResult<()> {
        let s = Spec::new(shape)?;
        let v = self.variant(variant)?;
        let least = v.archs.iter().map(|a| a.number()).min().unwrap_or(0);
        if chip.sm < least {
            return Err(op_error!("{variant} needs compute capability {least}, the chip has {}", chip.sm));
        }
        if s.qk_norm.is_some() {
            return Err(op_error!("qk_norm=rms is rope_append's work; the fused launch rotates unnormalised heads"));
        }
        match variant {
            "one_pass_ptx" if s.d != 128 || s.dtype != DType::Bf16 || s.kv != DType::Bf16 || s.fused => {
                Err(op_error!("one_pass_ptx is for dtype=bf16, kv=bf16, d=128, fuse=none"))
            }
            "split_mma" => launch::ring(variant, shape, &s, chip).map(drop),
            "split_cluster" if s.deterministic => {
                Err(op_error!("deterministic=1 fixes the piece; a cluster deals every request to all its blocks"))
            }
            "split_cluster" => launch::ring(variant, shape, &s, chip).map(drop),
            _ => Ok(()),
        }
    }

    fn workspace(&self, variant: &str, shape: &Shape, chip: &Chip) -> OpResult<u64> {
        launch::workspace(variant, shape, chip)
    }
    fn launches(&self, variant: &str, shape: &Shape, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
        self.supports(variant, shape, chip)?;
        launch::launches(variant, shape, chip, at)
    }
    fn choose(&self, shape: &Shape, chip: &Chip) -> &'static str {
        Spec::new(shape).map_or("split_mma", |s| choose::variant(&s, chip))
    }
    fn check(&self, shape: &Shape, view: &dyn View) -> OpResult<Vec<Check>> {
        reference::check(&Spec::new(shape)?, view)
    }

    fn edge_shapes(&self) -> Vec<Shape> {
        shapes::EDGES.iter().map(|t| Shape::parse(t).expect("edge shapes are well formed")).collect()
    }

    fn random_shape(&self, rng: &mut Rng) -> Shape {
        shapes::random(rng)
    }
    fn large_shapes(&self) -> Vec<Shape> {
        shapes::large()
    }
    fn bench_shapes(&self) -> Vec<Shape> {
        shapes::bench()
    }
}

/// Whether the caches of a shape begin with NaN in unused slots.
pub fn poisoned(s: &Spec) -> bool {
    s.pool() * s.kv.size() <= POISON_LIMIT
}

/// Cosines and sines of Llama's rotation with base 500000, or random numbers where a table would be large.
pub fn rotation(s: &Spec) -> Init {
    if s.max_ctx * s.d > 1 << 22 {
        return Init::Uniform { lo: -1.0, hi: 1.0 };
    }
    // A bench asks for the same table once for each of its input sets.
    static LAST: Mutex<(u64, u64, Vec<u8>)> = Mutex::new((0, 0, Vec::new()));
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if (last.0, last.1) == (s.max_ctx, s.d) {
        return Init::Bytes(last.2.clone());
    }
    let half = s.d / 2;
    let rates: Vec<f64> = (0..half).map(|i| 500_000f64.powf(-(i as f64) / half as f64)).collect();
    let mut bytes = Vec::with_capacity((s.max_ctx * s.d * 4) as usize);
    for position in 0..s.max_ctx {
        for function in [f64::cos, f64::sin] {
            for rate in &rates {
                bytes.extend((function(position as f64 * rate) as f32).to_le_bytes());
            }
        }
    }
    *last = (s.max_ctx, s.d, bytes.clone());
    Init::Bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_the_sum_of_named_terms() {
        let cost = PagedAttention.cost(&Shape::parse("batch=1,ctx=2048").unwrap()).unwrap();
        let kv = cost.terms.iter().find(|t| t.name == "kv").unwrap();
        assert_eq!(kv.bytes, 2048 * 4096);
        assert_eq!(cost.flops, 4 * 32 * 128 * 2048);
        let fused = PagedAttention.cost(&Shape::parse("batch=1,ctx=2048,fuse=rope_append").unwrap()).unwrap();
        assert_eq!(fused.terms.iter().find(|t| t.name == "kv").unwrap().bytes, 2047 * 4096);
        assert_eq!(fused.terms.iter().find(|t| t.name == "append").unwrap().bytes, 4096);
    }

    #[test]
    fn bad_shapes_name_the_rule_and_the_numbers() {
        for (text, says) in [
            ("batch=1,ctx=8,d=80", "d=80"),
            ("batch=1,ctx=8,heads=7,kv_heads=2", "heads=7"),
            ("batch=1,ctx=8,page=512", "page=512"),
            ("batch=1,ctx=8,kv=f32", "kv=f32"),
            ("batch=1,ctx=100,max_ctx=50", "max_ctx=50"),
            ("batch=2,lens=1:2:3", "batch=2"),
            ("batch=1,ctx=100,pool_pages=2", "pool_pages=2"),
            ("batch=1,ctx=8,k_scale=2", "k_scale=2"),
            ("batch=1", "ctx"),
            ("lens=a:b", "lens=a"),
        ] {
            let e = PagedAttention.cost(&Shape::parse(text).unwrap()).unwrap_err();
            assert!(e.0.contains(says), "{text}: {e}");
        }
    }

    #[test]
    fn every_edge_is_a_shape_and_takes_its_own_choice() {
        let op = &PagedAttention;
        for shape in op.edge_shapes().iter().chain(&op.bench_shapes()).chain(&op.large_shapes()) {
            let v = op.choose(shape, &Chip::H200);
            op.supports(v, shape, &Chip::H200).unwrap_or_else(|e| panic!("{shape}: {e}"));
        }
        for shape in op.large_shapes() {
            let s = Spec::new(&shape).unwrap();
            if s.batch() * s.heads * s.d > 1 << 31 {
                continue;
            }
            assert!(s.pool() > 1 << 31);
            let last = s.pool_pages * (1 << 31) / s.pool();
            assert!(s.page_table(1).iter().any(|id| *id as u64 > last), "a page beyond 2^31 elements is used");
        }
    }

    #[test]
    fn pages_are_a_permutation_and_unused_slots_are_nan() {
        let s = Spec::new(&Shape::parse("lens=20:3:16,page=16,heads=2,kv_heads=1,d=64").unwrap()).unwrap();
        let table = s.page_table(3);
        let mut used: Vec<i32> =
            (0..3).flat_map(|r| table[r * 2..r * 2 + s.lens[r].div_ceil(16) as usize].to_vec()).collect();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), 4);
        let Init::Bytes(cache) = reference::poisoned_cache(&s, &table, 1) else { panic!("small caches are given") };
        let nan = |id: i32, slot: u64| {
            let at = s.element(id as u64, slot, 0) as usize * 2;
            u16::from_le_bytes([cache[at], cache[at + 1]]) == 0xffff
        };
        assert!(!nan(table[0], 15) && !nan(table[1], 3) && nan(table[1], 4));
        assert!(!nan(table[2], 2) && nan(table[2], 3));
    }

    #[test]
    fn layouts_differ_only_in_strides() {
        let nhd = Spec::new(&Shape::parse("batch=1,ctx=5").unwrap()).unwrap();
        let hnd = Spec::new(&Shape::parse("batch=1,ctx=5,layout=hnd").unwrap()).unwrap();
        assert_eq!(hnd.layout, spec::Layout::Hnd);
        assert_eq!(nhd.element(1, 2, 3), 16 * 1024 + 2 * 1024 + 3 * 128);
        assert_eq!(hnd.element(1, 2, 3), 16 * 1024 + 3 * 16 * 128 + 2 * 128);
    }
}
