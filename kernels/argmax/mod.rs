//! `argmax`: the greedy token of each row of logits. The last node of a decode step.

mod choose;
mod launch;
mod reference;

use crate::op::{
    Arch, Bindings, Buffer, Check, Chip, Cost, DType, Dim, Init, Launch, Op, OpResult, Rng, Shape, Unit, Variant, View,
};

pub struct Argmax;

/// `argmax`'s sizes, checked.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub m: u64,
    pub v: u64,
    pub dtype: DType,
}

impl Size {
    pub fn of(shape: &Shape) -> OpResult<Self> {
        let size = Self { m: shape.int("m")?, v: shape.int("v")?, dtype: shape.dtype_or("dtype", DType::F32)? };
        if !matches!(size.dtype, DType::Bf16 | DType::F16 | DType::F32) {
            return Err(crate::op_error!("argmax: dtype={} is none of f32, bf16, f16", size.dtype.name()));
        }
        if size.v == 0 || size.v > i32::MAX as u64 {
            return Err(crate::op_error!("argmax: v={} is not in 1..2^31", size.v));
        }
        if size.m > 65_535 {
            return Err(crate::op_error!("argmax: m={} is above the grid's 65535", size.m));
        }
        Ok(size)
    }
}

impl Op for Argmax {
    fn name(&self) -> &'static str {
        "argmax"
    }
    fn about(&self) -> &'static str {
        "out[m] = index of the largest logits[m, v]; the lowest of equals, the first NaN before everything"
    }
    fn dims(&self) -> &'static [Dim] {
        &[
            Dim { key: "m", default: "", about: "rows" },
            Dim { key: "v", default: "", about: "columns" },
            Dim { key: "dtype", default: "f32", about: "f32, bf16 or f16" },
        ]
    }
    fn variants(&self) -> &'static [Variant] {
        &[
            Variant {
                name: "block",
                file: "block.cu",
                archs: Arch::ALL,
                emulated: true,
                about: "one block a row: right for many rows, one multiprocessor's bandwidth for one",
            },
            Variant {
                name: "split",
                file: "split.cu",
                archs: Arch::ALL,
                emulated: true,
                about: "a row over many blocks; an integer maximum of (value, index) keys needs no order, the last block tells",
            },
        ]
    }
    fn cost(&self, shape: &Shape) -> OpResult<Cost> {
        let s = Size::of(shape)?;
        Ok(Cost::new(Unit::Fp32, s.m * s.v).read("logits", s.m * s.v * s.dtype.size()).write("out", s.m * 4))
    }
    fn buffers(&self, shape: &Shape, _seed: u64) -> OpResult<Vec<Buffer>> {
        let s = Size::of(shape)?;
        Ok(vec![
            Buffer::input("logits", s.dtype, s.m * s.v, Init::Normal { std: 3.0 }),
            Buffer::output("out", DType::I32, s.m),
        ])
    }
    fn supports(&self, variant: &str, shape: &Shape, _chip: &Chip) -> OpResult<()> {
        self.variant(variant)?;
        Size::of(shape).map(|_| ())
    }
    fn workspace(&self, variant: &str, shape: &Shape, _chip: &Chip) -> OpResult<u64> {
        let s = Size::of(shape)?;
        // A key and a counter for each row.
        Ok(if variant == "split" { s.m * 16 } else { 0 })
    }
    fn launches(&self, variant: &str, shape: &Shape, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
        self.supports(variant, shape, chip)?;
        launch::launches(variant, &Size::of(shape)?, chip, at)
    }
    fn choose(&self, shape: &Shape, chip: &Chip) -> &'static str {
        Size::of(shape).map_or("block", |s| choose::choose(&s, chip))
    }
    fn check(&self, shape: &Shape, view: &dyn View) -> OpResult<Vec<Check>> {
        reference::check(&Size::of(shape)?, view)
    }
    fn edge_shapes(&self) -> Vec<Shape> {
        let shapes = ["m=1,v=1", "m=3,v=31", "m=1,v=128256", "m=2,v=50257", "m=0,v=10", "m=5,v=1000", "m=1,v=151936"];
        let types = ["f32", "bf16", "f16"];
        let all = shapes.iter().flat_map(|s| types.iter().map(move |t| format!("{s},dtype={t}")));
        all.filter_map(|s| Shape::parse(&s).ok()).collect()
    }
    fn random_shape(&self, rng: &mut Rng) -> Shape {
        let v = *rng.pick(&[3, 64, 1000, 5000, 40_000]);
        let shape = Shape::new().with("m", rng.range(1, 6)).with("v", rng.range(1, v));
        shape.with("dtype", rng.pick(&["f32", "bf16", "f16"]))
    }
    fn bench_shapes(&self) -> Vec<Shape> {
        [1, 16, 64].iter().map(|m| Shape::new().with("m", m).with("v", 128_256)).collect()
    }
}
