//! Matrix product with the weights' rows as columns, `out[m, n] = x[m, k] · w[n, k]ᵀ`, from one thread per output to
//! Hopper's tensor cores; with the RMS norm before it and the residual or silu·mul after it folded in where a kernel
//! can. See README.md for the ladder.

pub mod choose;
mod launch;
pub mod problem;
mod reference;
mod shapes;
pub mod tables;

use crate::op::{
    Arch, Bindings, Buffer, Check, Chip, Cost, DType, Dim, Launch, Op, OpResult, Rng, Shape, Variant, View,
};
use problem::{Post, Problem};

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
        name: "tile",
        file: "tile.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "32 x 32 tiles in shared memory: each element read once per tile",
    },
    Variant {
        name: "register",
        file: "register.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "8 x 8 outputs per thread: the fp32 units become the bound",
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
    Variant {
        name: "gemv_ptx",
        file: "gemv.ptx",
        archs: Arch::ALL,
        emulated: false,
        about: "decode in hand-written PTX: a warp per row of w, bf16",
    },
    Variant {
        name: "skinny",
        file: "skinny.cu",
        archs: Arch::ALL,
        emulated: true,
        about: "up to 128 tokens: operands swapped, stream-K over an even split of the chip",
    },
    Variant {
        name: "swap_ab",
        file: "swap_ab.cu",
        archs: Arch::HOPPER,
        emulated: true,
        about: "Hopper, up to 256 tokens: weights on wgmma's wide side, tiles as even as n allows, k or x shared in clusters",
    },
    Variant {
        name: "wgmma",
        file: "wgmma.cu",
        archs: Arch::HOPPER,
        emulated: true,
        about: "Hopper: wgmma and TMA, a producer and two consumer warpgroups, persistent",
    },
    Variant {
        name: "wgmma_cluster",
        file: "wgmma_cluster.cu",
        archs: Arch::HOPPER,
        emulated: true,
        about: "Hopper: clusters of two share w by multicast, the output leaves by stmatrix and TMA",
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
            Dim { key: "out", default: "dtype", about: "type of the output: dtype, or f32" },
            Dim { key: "pre", default: "none", about: "none, or rmsnorm of x with gain `norm`" },
            Dim { key: "post", default: "none", about: "none, residual (added), or silu_mul (of gate and up halves)" },
            Dim { key: "eps", default: "1e-5", about: "added to the mean square by rmsnorm" },
            Dim { key: "values", default: "normal", about: "special puts inf, NaN and large cancelling sums into x" },
            Dim {
                key: "cfg",
                default: "",
                about: "row of the variant's configuration table, for experiments; of swap_ab a cut, in digits",
            },
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
        // Code for 9.0a runs on 9.0 alone, other code on its chip and all later ones.
        let runs = |a: &Arch| if *a == Arch::Sm90a { chip.sm == 90 } else { a.number() <= chip.sm };
        if !v.archs.iter().any(runs) {
            return Err(crate::op_error!("{variant} needs compute capability 9.0, and this chip has {}", chip.sm));
        }
        if let Some(table) = choose::gemv_table(variant) {
            return choose::gemv_config(table, variant, &p, chip).map(|_| ());
        }
        if let Some(table) = choose::streamk_table(variant) {
            no_norm(variant, &p)?;
            return choose::streamk_config(table, variant, &p, chip).map(|_| ());
        }
        match variant {
            "gemv_ptx" => ptx_rules(&p),
            "tile" | "register" => {
                if variant == "register" && p.m > 65_535 * 128 {
                    return Err(crate::op_error!("register takes m up to {}, not m={}", 65_535 * 128, p.m));
                }
                no_norm(variant, &p)?;
                no_pairs(variant, &p)
            }
            "swap_ab" => {
                if p.m > 64 || p.dtype != DType::Bf16 || p.post == Post::Residual {
                    no_norm(variant, &p)?;
                }
                choose::swap_ab_config(&p, chip).map(|_| ())
            }
            "wgmma" | "wgmma_cluster" => {
                no_norm(variant, &p)?;
                choose::copyable_rows(variant, &p)?;
                if variant == "wgmma" {
                    return choose::wgmma_tile(&p, chip).map(|_| ());
                }
                choose::cluster_tile(&p, chip).map(|_| ())
            }
            "mma" => {
                no_norm(variant, &p)?;
                choose::mma_tile(&p, chip).map(|_| ())
            }
            _ => Ok(()),
        }
    }
    fn workspace(&self, variant: &str, shape: &Shape, chip: &Chip) -> OpResult<u64> {
        let p = Problem::of(shape)?;
        match choose::streamk_table(variant) {
            Some(table) if !p.empty() => Ok(choose::streamk_config(table, variant, &p, chip)?.workspace(&p, chip)),
            _ => Ok(0),
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
    fn large_shapes(&self) -> Vec<Shape> {
        shapes::large()
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

/// Kernels whose threads do not hold the sums of a gate row and its up row.
fn no_pairs(variant: &str, p: &Problem) -> OpResult<()> {
    if p.post == Post::SiluMul {
        return Err(crate::op_error!("{variant} does not pair gate and up rows: run op silu_mul after it, or use mma"));
    }
    Ok(())
}

/// What the hand-written kernel takes.
fn ptx_rules(p: &Problem) -> OpResult<()> {
    no_norm("gemv_ptx", p)?;
    no_pairs("gemv_ptx", p)?;
    if p.dtype != DType::Bf16 || p.out != DType::Bf16 {
        return Err(crate::op_error!("gemv_ptx takes and gives bf16, not {} and {}", p.dtype.name(), p.out.name()));
    }
    if !p.k.is_multiple_of(8) || p.m > 65_535 {
        return Err(crate::op_error!(
            "gemv_ptx needs k to be a multiple of 8 (16-byte rows) and m up to 65535, not k={} and m={}",
            p.k,
            p.m
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
