//! `embed`: gathers one row of the embedding table for each token id. The first node of a decode step.

mod launch;
mod reference;

use crate::op::{
    Arch, Bindings, Buffer, Check, Chip, Cost, DType, Dim, Init, Launch, Op, OpResult, Rng, Shape, Unit, Variant, View,
};

pub struct Embed;

/// `embed`'s sizes, checked.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub m: u64,
    pub v: u64,
    pub k: u64,
    pub dtype: DType,
}

impl Size {
    pub fn of(shape: &Shape) -> OpResult<Self> {
        let size = Self { m: shape.int("m")?, v: shape.int("v")?, k: shape.int("k")?, dtype: shape.dtype()? };
        if !matches!(size.dtype, DType::Bf16 | DType::F16 | DType::F32) {
            return Err(crate::op_error!("embed: dtype={} is none of bf16, f16, f32", size.dtype.name()));
        }
        if size.v == 0 || size.v > i32::MAX as u64 {
            return Err(crate::op_error!("embed: v={} is not in 1..2^31", size.v));
        }
        if size.m > i32::MAX as u64 || size.k > i32::MAX as u64 {
            return Err(crate::op_error!("embed: m={} and k={} must be below 2^31", size.m, size.k));
        }
        Ok(size)
    }
}

impl Op for Embed {
    fn name(&self) -> &'static str {
        "embed"
    }
    fn about(&self) -> &'static str {
        "out[m, k] = table[ids[m], k]; an id outside the table gives a row of NaN"
    }
    fn dims(&self) -> &'static [Dim] {
        &[
            Dim { key: "m", default: "", about: "tokens" },
            Dim { key: "v", default: "", about: "rows of the table" },
            Dim { key: "k", default: "", about: "columns of the table" },
            Dim { key: "dtype", default: "bf16", about: "bf16, f16 or f32" },
        ]
    }
    fn variants(&self) -> &'static [Variant] {
        &[Variant {
            name: "gather",
            file: "gather.cu",
            archs: Arch::ALL,
            emulated: true,
            about: "one 16-byte vector for each thread, the row's id read once a block",
        }]
    }
    fn cost(&self, shape: &Shape) -> OpResult<Cost> {
        let s = Size::of(shape)?;
        let row = s.k * s.dtype.size();
        Ok(Cost::new(Unit::Fp32, 0).read("ids", s.m * 4).read("table", s.m * row).write("out", s.m * row))
    }
    fn buffers(&self, shape: &Shape, _seed: u64) -> OpResult<Vec<Buffer>> {
        let s = Size::of(shape)?;
        Ok(vec![
            Buffer::input("ids", DType::I32, s.m, Init::Uniform { lo: 0.0, hi: s.v as f32 }),
            Buffer::input("table", s.dtype, s.v * s.k, Init::Normal { std: 1.0 }),
            Buffer::output("out", s.dtype, s.m * s.k),
        ])
    }
    fn supports(&self, variant: &str, shape: &Shape, _chip: &Chip) -> OpResult<()> {
        self.variant(variant)?;
        Size::of(shape).map(|_| ())
    }
    fn launches(&self, variant: &str, shape: &Shape, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
        self.supports(variant, shape, chip)?;
        launch::gather(&Size::of(shape)?, at)
    }
    fn choose(&self, _shape: &Shape, _chip: &Chip) -> &'static str {
        "gather"
    }
    fn check(&self, shape: &Shape, view: &dyn View) -> OpResult<Vec<Check>> {
        reference::check(&Size::of(shape)?, view)
    }
    fn edge_shapes(&self) -> Vec<Shape> {
        let shapes =
            ["m=1,v=1,k=1", "m=3,v=7,k=5", "m=1,v=100,k=4096", "m=17,v=64,k=264", "m=0,v=4,k=8", "m=2,v=9,k=1023"];
        let types = ["bf16", "f16", "f32"];
        let all = shapes.iter().flat_map(|s| types.iter().map(move |t| format!("{s},dtype={t}")));
        all.filter_map(|s| Shape::parse(&s).ok()).collect()
    }
    fn random_shape(&self, rng: &mut Rng) -> Shape {
        let shape = Shape::new().with("m", rng.range(1, 40)).with("v", rng.range(1, 300)).with("k", rng.range(1, 700));
        shape.with("dtype", rng.pick(&["bf16", "f16", "f32"]))
    }
    fn bench_shapes(&self) -> Vec<Shape> {
        [1, 16, 64].iter().map(|m| Shape::new().with("m", m).with("v", 128_256).with("k", 4096)).collect()
    }
}
