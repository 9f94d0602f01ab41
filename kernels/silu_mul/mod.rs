//! `silu_mul`: the gate of a SwiGLU block where the product before it did not fold it in.

mod launch;
mod reference;

use crate::op::{
    Arch, Bindings, Buffer, Check, Chip, Cost, DType, Dim, Init, Launch, Op, OpResult, Rng, Shape, Unit, Variant, View,
};

pub struct SiluMul;

/// `silu_mul`'s sizes, checked.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub m: u64,
    pub n: u64,
    pub dtype: DType,
}

impl Size {
    pub fn of(shape: &Shape) -> OpResult<Self> {
        let size = Self { m: shape.int("m")?, n: shape.int("n")?, dtype: shape.dtype()? };
        if !matches!(size.dtype, DType::Bf16 | DType::F16 | DType::F32) {
            return Err(crate::op_error!("silu_mul: dtype={} is none of bf16, f16, f32", size.dtype.name()));
        }
        if size.m > i32::MAX as u64 || size.n > i32::MAX as u64 {
            return Err(crate::op_error!("silu_mul: m={} and n={} must be below 2^31", size.m, size.n));
        }
        Ok(size)
    }
}

impl Op for SiluMul {
    fn name(&self) -> &'static str {
        "silu_mul"
    }
    fn about(&self) -> &'static str {
        "out[m, n] = silu(x[m, 0..n]) * x[m, n..2n]"
    }
    fn dims(&self) -> &'static [Dim] {
        &[
            Dim { key: "m", default: "", about: "rows" },
            Dim { key: "n", default: "", about: "columns of the output; x has twice as many, gate then up" },
            Dim { key: "dtype", default: "bf16", about: "bf16, f16 or f32" },
        ]
    }
    fn variants(&self) -> &'static [Variant] {
        &[Variant {
            name: "vector",
            file: "vector.cu",
            archs: Arch::ALL,
            emulated: true,
            about: "16-byte loads of gate and up, arithmetic in fp32",
        }]
    }
    fn cost(&self, shape: &Shape) -> OpResult<Cost> {
        let s = Size::of(shape)?;
        let bytes = s.m * s.n * s.dtype.size();
        Ok(Cost::new(Unit::Fp32, s.m * s.n * 6).read("x", 2 * bytes).write("out", bytes))
    }
    fn buffers(&self, shape: &Shape, _seed: u64) -> OpResult<Vec<Buffer>> {
        let s = Size::of(shape)?;
        Ok(vec![
            Buffer::input("x", s.dtype, s.m * 2 * s.n, Init::Normal { std: 2.0 }),
            Buffer::output("out", s.dtype, s.m * s.n),
        ])
    }
    fn supports(&self, variant: &str, shape: &Shape, _chip: &Chip) -> OpResult<()> {
        self.variant(variant)?;
        Size::of(shape).map(|_| ())
    }
    fn launches(&self, variant: &str, shape: &Shape, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
        self.supports(variant, shape, chip)?;
        launch::vector(&Size::of(shape)?, at)
    }
    fn choose(&self, _shape: &Shape, _chip: &Chip) -> &'static str {
        "vector"
    }
    fn check(&self, shape: &Shape, view: &dyn View) -> OpResult<Vec<Check>> {
        reference::check(&Size::of(shape)?, view)
    }
    fn edge_shapes(&self) -> Vec<Shape> {
        let shapes = ["m=1,n=1", "m=1,n=14336", "m=3,n=7", "m=5,n=264", "m=0,n=8", "m=2,n=1025", "m=4,n=0"];
        let types = ["bf16", "f16", "f32"];
        let all = shapes.iter().flat_map(|s| types.iter().map(move |t| format!("{s},dtype={t}")));
        all.filter_map(|s| Shape::parse(&s).ok()).collect()
    }
    fn random_shape(&self, rng: &mut Rng) -> Shape {
        let n = if rng.range(0, 1) == 0 { rng.range(1, 1500) } else { rng.range(1, 200) * 8 };
        Shape::new().with("m", rng.range(1, 20)).with("n", n).with("dtype", rng.pick(&["bf16", "f16", "f32"]))
    }
    fn bench_shapes(&self) -> Vec<Shape> {
        [1, 16, 64].iter().map(|m| Shape::new().with("m", m).with("n", 14_336)).collect()
    }
}
