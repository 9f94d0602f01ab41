//! Matrix product with the weights' rows as columns, `out[m, n] = x[m, k] · w[n, k]ᵀ`, from one thread per output to
//! Hopper's tensor cores; with the RMS norm before it and the residual or silu·mul after it folded in where a kernel
//! can. See README.md for the ladder.

pub mod choose;
mod launch;
pub mod problem;
mod reference;
mod shapes;

use crate::op::{Arch, Bindings, Buffer, Check, Chip, Cost, Dim, Launch, Op, OpResult, Rng, Shape, Variant, View};
use problem::Problem;

/// The op.
pub struct Matmul;

const VARIANTS: &[Variant] = &[
    Variant {
        name: "naive",
        file: "naive.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "one thread, one output: every shape, every fusion, no speed",
    },
    Variant {
        name: "mma",
        file: "mma.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "tensor cores by mma.sync: ldmatrix, swizzle, cp.async stages, grouped raster",
    },
    Variant {
        name: "gemv",
        file: "gemv.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "decode: weights into registers, eight 16-byte loads in flight per lane",
    },
    Variant {
        name: "gemv_async",
        file: "gemv_async.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "decode: a ring per lane in shared memory, filled by cp.async, without any barrier",
    },
    Variant {
        name: "gemv_bulk",
        file: "gemv_bulk.cu",
        archs: &[Arch::Sm90],
        emulated: true,
        about: "decode on 9.0: a ring per warp filled by bulk copies, counted by mbarriers",
    },
];

impl Op for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }
    fn about(&self) -> &'static str {
        "out = x · wᵀ, with RMS norm before and residual or silu·mul after"
    }
    fn dims(&self) -> &'static [Dim] {
        &[
            Dim { key: "m", default: "", about: "rows of x: tokens" },
            Dim { key: "n", default: "", about: "rows of w: output features (gate and up together for silu_mul)" },
            Dim { key: "k", default: "", about: "columns of x and w: input features" },
            Dim { key: "dtype", default: "bf16", about: "bf16 or f16" },
            Dim { key: "out", default: "", about: "type of the output: dtype, or f32" },
            Dim { key: "pre", default: "none", about: "none, or rmsnorm of x with gain `norm`" },
            Dim { key: "post", default: "none", about: "none, residual (added), or silu_mul (of gate and up halves)" },
            Dim { key: "eps", default: "1e-5", about: "added to the mean square by rmsnorm" },
            Dim { key: "values", default: "normal", about: "special puts inf, NaN and large cancelling sums into x" },
            Dim { key: "cfg", default: "", about: "row of the variant's configuration table, for experiments" },
        ]
    }
    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }
    fn cost(&self, shape: &Shape) -> OpResult<Cost> {
        Ok(Problem::of(shape)?.cost())
    }
    fn buffers(&self, shape: &Shape, _seed: u64) -> OpResult<Vec<Buffer>> {
        Ok(Problem::of(shape)?.buffers())
    }
    fn supports(&self, variant: &str, shape: &Shape, chip: &Chip) -> OpResult<()> {
        let p = Problem::of(shape)?;
        let v = self.variant(variant)?;
        if v.archs.iter().all(|a| a.number() > chip.sm) {
            return Err(crate::op_error!("{variant} needs compute capability 9.0, and this chip has {}", chip.sm));
        }
        if let Some(table) = choose::gemv_table(variant) {
            return choose::gemv_config(table, variant, &p, chip).map(|_| ());
        }
        match variant {
            "mma" => {
                no_norm(variant, &p)?;
                choose::mma_tile(&p, chip).map(|_| ())
            }
            _ => Ok(()),
        }
    }
    fn launches(&self, variant: &str, shape: &Shape, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
        self.supports(variant, shape, chip)?;
        let p = Problem::of(shape)?;
        if p.empty() { Ok(Vec::new()) } else { launch::launches(variant, &p, chip, at) }
    }
    fn choose(&self, shape: &Shape, chip: &Chip) -> &'static str {
        Problem::of(shape).map_or("naive", |p| choose::variant(&p, chip))
    }
    fn check(&self, shape: &Shape, view: &dyn View) -> OpResult<Vec<Check>> {
        reference::check(&Problem::of(shape)?, view)
    }
    fn edge_shapes(&self) -> Vec<Shape> {
        shapes::edges()
    }
    fn random_shape(&self, rng: &mut Rng) -> Shape {
        shapes::random(rng)
    }
    fn bench_shapes(&self) -> Vec<Shape> {
        shapes::bench()
    }
}

/// Tile kernels multiply x as it lies in memory.
fn no_norm(variant: &str, p: &Problem) -> OpResult<()> {
    if p.pre {
        return Err(crate::op_error!(
            "{variant} does not fold pre=rmsnorm in (m={}): run op rmsnorm first, or a gemv variant for m up to 8",
            p.m
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
