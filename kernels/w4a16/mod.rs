//! Products with 4-bit weights and 16-bit activations: out = x · wᵀ, w = (q − z) · s by groups along k.
//!
//! Shapes: x \[m, k\], out \[m, n\] (\[m, n/2\] for `post=silu_mul`), row-major, bf16 or f16 (`out=f32` for fp32 results);
//! `qweight`, `scales`, `zeros` in the packed layout of [`layout`]. Fusions as in `matmul`: `pre=rmsnorm` normalises
//! x by its root mean square with gain `norm` (the product's operand, x · gain with or without 1/rms, is 16-bit),
//! `post=residual` adds `residual` (which `out` may alias), `post=silu_mul` takes rows 0..n/2 of w as gate and the rest as
//! up. Accumulation is fp32 throughout: integers q − z times 16-bit x are exact products in the tensor core or the FMA unit.
//!
//! [`quantize`] makes packed weights from floats; [`repack`] reads GPTQ and AWQ checkpoints.

pub mod choose;
pub mod launch;
pub mod launch_dequant;
pub mod launch_fixed;
pub mod launch_mma;
pub mod launch_ptx;
pub mod launch_wgmma;
pub mod layout;
pub mod quantize;
pub mod reference;
pub mod repack;
pub mod shape;

use crate::op::{
    Arch, Bindings, Buffer, Check, Chip, Cost, DType, Dim, Init, Launch, Op, OpResult, Rng, Shape, Unit, Variant, View,
};
use crate::op_error;
use shape::{Post, Pre, Spec};

/// The op.
pub struct W4a16;

const DIMS: &[Dim] = &[
    Dim { key: "m", default: "1", about: "rows of x (tokens in the batch)" },
    Dim { key: "n", default: "", about: "output features" },
    Dim { key: "k", default: "", about: "input features" },
    Dim { key: "dtype", default: "bf16", about: "type of x, scales and out: bf16, f16" },
    Dim { key: "group", default: "128", about: "weights that share a scale: 32, 64, 128, 0 = the whole row" },
    Dim { key: "zeros", default: "sym", about: "zero point: sym (8) or asym (4 bits a group)" },
    Dim { key: "pre", default: "none", about: "before the product: none, rmsnorm" },
    Dim { key: "post", default: "none", about: "after it: none, residual, silu_mul" },
    Dim { key: "eps", default: "1e-5", about: "epsilon of rmsnorm" },
    Dim { key: "out", default: "dtype", about: "type of out: the dtype, or f32" },
    Dim { key: "amp", default: "1", about: "standard deviation of the random x" },
    Dim { key: "cfg", default: "", about: "configuration of the variant, by index; none: the heuristic's" },
];

const VARIANTS: &[Variant] = &[
    Variant {
        name: "dequant",
        file: "dequant.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "make fp32 weights first, then multiply: right for every shape, 17 times the traffic",
    },
    Variant {
        name: "gemv",
        file: "gemv.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "eight 16-byte loads in flight a thread, exact integers through the tensor core, K split over warps",
    },
    Variant {
        name: "gemv_bulk",
        file: "gemv_bulk.cu",
        archs: &[Arch::Sm90],
        emulated: true,
        about: "the same, fed by bulk copies into a ring in shared memory that outlives tile and kernel edges",
    },
    Variant {
        name: "gemv_fixed",
        file: "gemv_fixed.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "x as block fixed point, exact integers through the int8 tensor core, a ring a warp, one barrier at the end",
    },
    Variant {
        name: "gemv_ptx",
        file: "gemv_ptx.ptx",
        archs: &[Arch::Sm90],
        emulated: false,
        about: "the same by hand in PTX, for one bf16 row and symmetric groups of 128",
    },
    Variant {
        name: "mma",
        file: "mma.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "any number of rows: 128 x 64 tensor-core tiles through cp.async stages, work dealt out evenly (stream-K)",
    },
    Variant {
        name: "wgmma",
        file: "wgmma.cu",
        archs: Arch::HOPPER,
        emulated: true,
        about: "weights from a ring a warp to the products' register operand, x as tiles made once, even runs or k cut by a cluster",
    },
];

impl Op for W4a16 {
    fn name(&self) -> &'static str {
        "w4a16"
    }
    fn about(&self) -> &'static str {
        "product with 4-bit weights in groups and 16-bit activations"
    }
    fn dims(&self) -> &'static [Dim] {
        DIMS
    }
    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    fn cost(&self, shape: &Shape) -> OpResult<Cost> {
        let s = Spec::read(shape)?;
        if s.empty() {
            return Ok(Cost::new(Unit::Tensor16, 0));
        }
        let size = s.dtype.size();
        Ok(Cost::new(Unit::Tensor16, 2 * s.m * s.n * s.k)
            .read("weights", (s.n * s.k).div_ceil(2))
            .read("scales", s.n * s.groups() * size)
            .read("zeros", if s.asym { (s.n * s.groups()).div_ceil(2) } else { 0 })
            .read("x", s.m * s.k * size)
            .read("norm", if s.pre == Pre::RmsNorm { s.k * size } else { 0 })
            .read("residual", if s.post == Post::Residual { s.m * s.n * size } else { 0 })
            .write("out", s.m * s.out_n() * s.out.size()))
    }

    fn buffers(&self, shape: &Shape, _seed: u64) -> OpResult<Vec<Buffer>> {
        let s = Spec::read(shape)?;
        // q − z has a standard deviation of 4.6 (symmetric) or 6.5; scales that make out about as large as x.
        let unit = 1.0 / ((s.k as f32).sqrt() * if s.asym { 6.5 } else { 4.6 });
        let normal = |std| Init::Normal { std };
        let mut all = vec![
            Buffer::input("qweight", DType::U8, layout::qweight_bytes(&s), Init::Bits),
            Buffer::input("scales", s.dtype, layout::scales_len(&s), Init::Uniform { lo: 0.5 * unit, hi: 1.5 * unit }),
        ];
        if s.asym {
            all.push(Buffer::input("zeros", DType::U8, layout::zeros_bytes(&s), Init::Bits));
        }
        all.push(Buffer::input("x", s.dtype, s.m * s.k, normal(s.amp)));
        if s.pre == Pre::RmsNorm {
            all.push(Buffer::input("norm", s.dtype, s.k, Init::Uniform { lo: 0.5, hi: 1.5 }));
        }
        if s.post == Post::Residual {
            all.push(Buffer::input("residual", s.dtype, s.m * s.n, normal(1.0)));
        }
        all.push(Buffer::output("out", s.out, s.m * s.out_n()));
        Ok(all)
    }

    fn supports(&self, variant: &str, shape: &Shape, chip: &Chip) -> OpResult<()> {
        self.variant(variant)?;
        let s = Spec::read(shape)?;
        match variant {
            "gemv" => launch::gemv_supports(&s, chip, false),
            "gemv_bulk" => launch::gemv_supports(&s, chip, true),
            "gemv_fixed" => launch_fixed::supports(&s, chip),
            "gemv_ptx" => launch_ptx::supports(&s, chip),
            "mma" => launch_mma::plan(&s, chip).map(|_| ()),
            "wgmma" => launch_wgmma::plan(&s, chip).map(|_| ()),
            _ => launch_dequant::supports(&s),
        }
    }

    fn workspace(&self, variant: &str, shape: &Shape, chip: &Chip) -> OpResult<u64> {
        let s = Spec::read(shape)?;
        match variant {
            "mma" if !s.empty() => launch_mma::workspace(&s, chip),
            "wgmma" if !s.empty() => launch_wgmma::workspace(&s, chip),
            "dequant" if !s.empty() => Ok(launch_dequant::workspace(&s)),
            _ => Ok(0),
        }
    }

    fn launches(&self, variant: &str, shape: &Shape, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
        let s = Spec::read(shape)?;
        self.supports(variant, shape, chip)?;
        if s.empty() {
            return Ok(Vec::new());
        }
        match variant {
            "gemv" => launch::gemv(&s, chip, at, false),
            "gemv_bulk" => launch::gemv(&s, chip, at, true),
            "gemv_fixed" => launch_fixed::launches(&s, chip, at),
            "gemv_ptx" => launch_ptx::launches(&s, chip, at),
            "mma" => launch_mma::launches(&s, chip, at),
            "wgmma" => launch_wgmma::launches(&s, chip, at),
            "dequant" => launch_dequant::launches(&s, at),
            _ => Err(op_error!("w4a16 has no launcher for `{variant}`")),
        }
    }

    fn choose(&self, shape: &Shape, chip: &Chip) -> &'static str {
        Spec::read(shape).map_or("dequant", |s| choose::variant(&s, chip))
    }

    fn check(&self, shape: &Shape, view: &dyn View) -> OpResult<Vec<Check>> {
        reference::check(&Spec::read(shape)?, view)
    }

    fn edge_shapes(&self) -> Vec<Shape> {
        let mut texts: Vec<String> = Vec::new();
        // Every number of rows to 17, with n that is no multiple of a tile.
        for m in 1..=17 {
            texts.push(format!("m={m},n={},k=256", 16 + 7 * m));
        }
        // Every group, symmetric or not, both types; k that leaves half a chunk, one group, many.
        for dtype in ["bf16", "f16"] {
            for zeros in ["sym", "asym"] {
                for (group, k) in
                    [(128, 128), (128, 1152), (64, 64), (64, 320), (32, 32), (32, 1056), (0, 77), (0, 1000)]
                {
                    texts.push(format!("m=3,n=41,k={k},dtype={dtype},group={group},zeros={zeros}"));
                }
            }
        }
        for rest in [
            // Empty.
            "m=0,n=64,k=128",
            "m=1,n=0,k=128",
            // One row, one column.
            "m=1,n=1,k=128",
            "m=1,n=1,k=1,group=0",
            // Fusions, odd widths and rows that are not aligned.
            "m=1,n=48,k=512,pre=rmsnorm",
            "m=5,n=48,k=512,pre=rmsnorm,post=residual,dtype=f16",
            "m=8,n=49,k=259,group=0,pre=rmsnorm,post=residual",
            "m=1,n=64,k=384,pre=rmsnorm,post=silu_mul",
            "m=7,n=96,k=384,post=silu_mul,zeros=asym",
            "m=2,n=90,k=384,post=silu_mul",
            "m=2,n=33,k=384,out=f32",
            // Sums beyond the range of fp16.
            "m=2,n=64,k=4096,dtype=f16,amp=1000,out=f32",
            "m=1,n=32,k=2880,group=64",
            // More rows, several blocks of rows of weights; more than one block of columns.
            "m=20,n=300,k=1152,zeros=asym",
            "m=33,n=270,k=640,pre=rmsnorm,post=residual",
            "m=64,n=544,k=256,post=silu_mul,dtype=f16",
            "m=65,n=40,k=128,group=32",
        ] {
            texts.push(rest.to_string());
        }
        texts.iter().map(|t| Shape::parse(t).expect("an edge shape reads")).collect()
    }

    fn random_shape(&self, rng: &mut Rng) -> Shape {
        // One in eight is what every variant takes, the one by hand in PTX too: one bf16 row, symmetric groups of 128.
        if rng.range(0, 7) == 0 {
            return Shape::new().with("m", 1).with("n", rng.range(1, 600)).with("k", 128 * rng.range(1, 32));
        }
        let group = *rng.pick(&[128u64, 128, 64, 32, 0]);
        let unit = if group == 0 { 1 } else { group };
        let post = *rng.pick(&["none", "none", "residual", "silu_mul"]);
        let n = if post == "silu_mul" { 32 * rng.range(1, 8) } else { rng.range(1, 300) };
        Shape::new()
            .with("m", rng.range(1, 24))
            .with("n", n)
            .with("k", unit * rng.range(1, 2048 / unit))
            .with("dtype", rng.pick(&["bf16", "f16"]))
            .with("group", group)
            .with("zeros", rng.pick(&["sym", "asym"]))
            .with("pre", rng.pick(&["none", "rmsnorm"]))
            .with("post", post)
    }

    /// More than 2^31 bytes of packed weights, for one row and for a tile of them.
    fn large_shapes(&self) -> Vec<Shape> {
        [1, 16].map(|m| Shape::new().with("m", m).with("n", 1_100_000).with("k", 4096)).to_vec()
    }
    fn bench_shapes(&self) -> Vec<Shape> {
        let mut all = Vec::new();
        for (n, k) in [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (57344, 8192)] {
            for m in [1, 2, 4, 8, 16, 32, 64] {
                all.push(Shape::new().with("m", m).with("n", n).with("k", k));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_of_the_gate_and_up_product() {
        let shape = Shape::parse("m=1,n=28672,k=4096").unwrap();
        let c = W4a16.cost(&shape).unwrap();
        assert_eq!(c.bytes(), 28672 * 2048 + 28672 * 32 * 2 + 2 * 4096 + 2 * 28672);
        assert_eq!(c.flops, 2 * 28672 * 4096);
    }

    #[test]
    fn drawn_shapes_reach_every_variant() {
        let mut rng = Rng(3);
        let shapes: Vec<Shape> = (0..60).map(|_| W4a16.random_shape(&mut rng)).collect();
        for v in VARIANTS {
            let taken = shapes.iter().filter(|s| W4a16.supports(v.name, s, &Chip::H200).is_ok()).count();
            assert!(taken >= 3, "{}: {taken} of 60", v.name);
        }
    }

    #[test]
    fn edge_shapes_read_and_somebody_takes_each() {
        for shape in W4a16.edge_shapes() {
            let chosen = W4a16.choose(&shape, &Chip::H200);
            W4a16.supports(chosen, &shape, &Chip::H200).unwrap();
            let buffers = W4a16.buffers(&shape, 1).unwrap();
            assert_eq!(buffers.last().unwrap().name, "out");
        }
    }

    #[test]
    fn a_launch_is_programmatic_and_whole() {
        let shape = Shape::parse("m=1,n=28672,k=4096").unwrap();
        let mut at = Bindings::new();
        for (i, b) in W4a16.buffers(&shape, 1).unwrap().iter().enumerate() {
            at.set(b.name, 4096 * (i as u64 + 1));
        }
        for (v, blocks) in [("gemv", 132), ("gemv_bulk", 264), ("gemv_fixed", 132), ("gemv_ptx", 264)] {
            let l = W4a16.launches(v, &shape, &Chip::H200, &at).unwrap();
            assert_eq!(l.len(), 1);
            assert!(l[0].programmatic && l[0].grid == [blocks, 1, 1], "{:?}", l[0]);
        }
    }
}
