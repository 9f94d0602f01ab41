//! `rmsnorm`: normalises rows by their root mean square, after adding a residual where asked.

mod launch;
mod reference;

use crate::op::{
    Arch, Bindings, Buffer, Check, Chip, Cost, DType, Dim, Init, Launch, Op, OpResult, Rng, Shape, Unit, Variant, View,
};

pub struct RmsNorm;

/// `rmsnorm`'s sizes, checked.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub m: u64,
    pub k: u64,
    pub dtype: DType,
    pub residual: bool,
    pub eps: f64,
}

impl Size {
    pub fn of(shape: &Shape) -> OpResult<Self> {
        let size = Self {
            m: shape.int("m")?,
            k: shape.int("k")?,
            dtype: shape.dtype()?,
            residual: shape.choice("residual", &["none", "add"])? == "add",
            eps: shape.float_or("eps", 1e-5)?,
        };
        if !matches!(size.dtype, DType::Bf16 | DType::F16 | DType::F32) {
            return Err(crate::op_error!("rmsnorm: dtype={} is none of bf16, f16, f32", size.dtype.name()));
        }
        if size.m > i32::MAX as u64 || size.k > i32::MAX as u64 {
            return Err(crate::op_error!("rmsnorm: m={} and k={} must be below 2^31", size.m, size.k));
        }
        if !(size.eps >= 0.0 && size.eps.is_finite()) {
            return Err(crate::op_error!("rmsnorm: eps={} is not a finite number from 0 on", size.eps));
        }
        Ok(size)
    }
}

impl Op for RmsNorm {
    fn name(&self) -> &'static str {
        "rmsnorm"
    }
    fn about(&self) -> &'static str {
        "out[m, k] = x / sqrt(mean(x^2) + eps) * gain[k]; residual=add: x + residual, rounded, written back to residual, in place of x"
    }
    fn dims(&self) -> &'static [Dim] {
        &[
            Dim { key: "m", default: "", about: "rows" },
            Dim { key: "k", default: "", about: "columns" },
            Dim { key: "residual", default: "none", about: "none, or add: residual += x first" },
            Dim { key: "eps", default: "1e-5", about: "added to the mean square" },
            Dim { key: "dtype", default: "bf16", about: "bf16, f16 or f32" },
        ]
    }
    fn variants(&self) -> &'static [Variant] {
        &[
            Variant {
                name: "reread",
                file: "reread.cu",
                archs: Arch::ALL,
                emulated: true,
                about: "one block a row, one element a thread and step; the second read comes from cache",
            },
            Variant {
                name: "block",
                file: "block.cu",
                archs: Arch::ALL,
                emulated: true,
                about: "one block a row, the row in registers, the gain fetched before the wait for the kernel before",
            },
        ]
    }
    fn cost(&self, shape: &Shape) -> OpResult<Cost> {
        let s = Size::of(shape)?;
        let (e, row) = (s.dtype.size(), s.m * s.k * s.dtype.size());
        let cost = Cost::new(Unit::Fp32, s.m * s.k * 4).read("x", row).read("gain", s.k * e);
        let cost = if s.residual { cost.read("residual", row).write("residual", row) } else { cost };
        Ok(cost.write("out", row))
    }
    fn buffers(&self, shape: &Shape, _seed: u64) -> OpResult<Vec<Buffer>> {
        let s = Size::of(shape)?;
        let mut all = vec![
            Buffer::input("x", s.dtype, s.m * s.k, Init::Normal { std: 1.5 }),
            Buffer::input("gain", s.dtype, s.k, Init::Uniform { lo: 0.5, hi: 1.5 }),
        ];
        if s.residual {
            all.push(Buffer::inout("residual", s.dtype, s.m * s.k, Init::Normal { std: 1.0 }));
        }
        all.push(Buffer::output("out", s.dtype, s.m * s.k));
        Ok(all)
    }
    fn supports(&self, variant: &str, shape: &Shape, _chip: &Chip) -> OpResult<()> {
        self.variant(variant)?;
        let s = Size::of(shape)?;
        if variant == "block" && launch::vectors(&s).is_none() {
            let (k, most) = (s.k, launch::MOST_VECTORS * 16 / s.dtype.size());
            return Err(crate::op_error!(
                "rmsnorm/block: k={k} is above {most}, or k * {} bytes is no multiple of 16",
                s.dtype.size()
            ));
        }
        Ok(())
    }
    fn launches(&self, variant: &str, shape: &Shape, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
        self.supports(variant, shape, chip)?;
        launch::launches(variant, &Size::of(shape)?, at)
    }
    fn choose(&self, shape: &Shape, chip: &Chip) -> &'static str {
        if self.supports("block", shape, chip).is_ok() { "block" } else { "reread" }
    }
    fn check(&self, shape: &Shape, view: &dyn View) -> OpResult<Vec<Check>> {
        reference::check(&Size::of(shape)?, view)
    }
    fn edge_shapes(&self) -> Vec<Shape> {
        let shapes = [
            "m=1,k=4096",
            "m=3,k=64,residual=add",
            "m=2,k=1",
            "m=5,k=1023,residual=add",
            "m=2,k=8192,residual=add",
            "m=1,k=16384",
            "m=1,k=40000",
            "m=0,k=64",
            "m=3,k=8,eps=0",
            "m=2,k=2880,eps=1e-6",
        ];
        let types = ["bf16", "f16", "f32"];
        let all = shapes.iter().flat_map(|s| types.iter().map(move |t| format!("{s},dtype={t}")));
        all.filter_map(|s| Shape::parse(&s).ok()).collect()
    }
    fn random_shape(&self, rng: &mut Rng) -> Shape {
        let k = if rng.range(0, 1) == 0 { rng.range(1, 3000) } else { rng.range(1, 1100) * 8 };
        let shape = Shape::new().with("m", rng.range(1, 12)).with("k", k).with("residual", rng.pick(&["none", "add"]));
        shape.with("dtype", rng.pick(&["bf16", "f16", "f32"]))
    }
    fn bench_shapes(&self) -> Vec<Shape> {
        [1, 16, 64, 4096].iter().map(|m| Shape::new().with("m", m).with("k", 4096)).collect()
    }
}
