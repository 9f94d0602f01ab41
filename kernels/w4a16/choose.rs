//! Which kernel and which configuration for a shape. Rules of thumb, apart from the kernels, tested without a GPU.

use super::launch::{BULK, GEMV, GEMV_MAX_M, GemvConfig, PREFERRED, gemv_shared, gemv_supports};
use super::launch_fixed::{self, FIXED};
use super::launch_mma;
use super::launch_wgmma;
use super::shape::Spec;
use crate::op::Chip;

/// The variant for a shape: matrix-vector while x has at most eight rows and fits in shared memory, then the tensor-core
/// tile, then the kernel that takes everything. Of the matrix-vector kernels the one in integers: a decode step of
/// Llama-3-8B takes 1.74 ms with it on an H200, 2.15 with direct loads, 2.46 with the bulk ring (lab notes).
pub fn variant(spec: &Spec, chip: &Chip) -> &'static str {
    // With fewer warps than eight, where a wide x leaves no room for their rings, the integers lose: 34 µs for four rows
    // of 14336 on an H200, wgmma 15.1. Of 4 and 8 rows there (µs): 4096 × 4096 gemv 6.5 and 8.1, wgmma 7.9 and 7.9, integers 7.4
    // and 9.3; 28672 × 4096 integers 19.5 and 22.3, wgmma 20.5 and 20.7, gemv 25.0 and 26.5.
    let few = spec.n * spec.k <= FEW_WEIGHTS;
    let integers = spec.m <= if few { 2 } else { FIXED_MOST } && fixed_config(spec, chip).warps >= 8;
    let most = if chip.sm == 90 { FIXED_MOST } else { GEMV_MAX_M };
    let whole = few && spec.m <= most && gemv_supports(spec, chip, false).is_ok();
    if !integers && !whole && launch_wgmma::plan(spec, chip).is_ok() {
        "wgmma"
    } else if chip.sm == 90 && !integers && whole {
        "gemv"
    } else if fixed_config(spec, chip).warps >= 8 && launch_fixed::supports(spec, chip).is_ok() {
        "gemv_fixed"
    } else if gemv_supports(spec, chip, false).is_ok() {
        "gemv"
    } else if gemv_supports(spec, chip, true).is_ok() {
        "gemv_bulk"
    } else if launch_mma::plan(spec, chip).is_ok() {
        "mma"
    } else {
        "dequant"
    }
}

/// Most rows of x that three digits for each take the least time with, and that `gemv` does where weights are few.
const FIXED_MOST: u64 = 4;
/// Weights up to which a kernel is start and end more than stream: 6144 × 4096 is below, 8192 × 8192 above.
const FEW_WEIGHTS: u64 = 1 << 25;

/// The configuration of a matrix-vector kernel: the first of the table whose blocks fit on a multiprocessor together.
///
/// The bulk ring: eight warps twice rather than sixteen once, so that one block's barrier at a tile's end leaves the other
/// computing, and no more than half of the shared memory where that is possible, so that the next kernel's blocks can
/// move in. Direct loads: sixteen warps once, which stage x once and were the fastest inside a step.
pub fn gemv_config(spec: &Spec, chip: &Chip, bulk: bool) -> GemvConfig {
    let table = &(if bulk { BULK } else { GEMV })[..PREFERRED];
    // Each block takes 1 KiB beside its own.
    let fits =
        |c: &&GemvConfig| c.blocks * (gemv_shared(spec, **c, bulk) + 1024) <= u64::from(chip.shared_optin) + 1024;
    table.iter().find(fits).copied().unwrap_or(table[PREFERRED - 1])
}

/// The configuration of `gemv_fixed`: the first of the table whose blocks fit on a multiprocessor. Sixteen warps keep the
/// four schedulers busy; of two, three and four units each the last made the shortest decode step on an H200.
pub fn fixed_config(spec: &Spec, chip: &Chip) -> GemvConfig {
    let table = &FIXED[..launch_fixed::PREFERRED];
    let fits = |c: &&GemvConfig| launch_fixed::shared(spec, chip, **c) <= u64::from(chip.shared_optin);
    table.iter().find(fits).copied().unwrap_or(table[launch_fixed::PREFERRED - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Shape;

    fn spec(text: &str) -> Spec {
        Spec::read(&Shape::parse(text).unwrap()).unwrap()
    }

    const A100: Chip = Chip { sm: 80, sms: 108, l2_bytes: 40 << 20, shared_optin: 166_912 };
    const RTX3090: Chip = Chip { sm: 86, sms: 82, l2_bytes: 6 << 20, shared_optin: 101_376 };

    #[test]
    fn the_decode_shapes_take_integers() {
        for shape in ["n=28672,k=4096", "n=4096,k=14336,m=2", "n=57344,k=8192"] {
            assert_eq!(variant(&spec(shape), &Chip::H200), "gemv_fixed", "{shape}");
        }
        for shape in ["n=28672,k=4096,m=5", "n=4096,k=14336,m=8", "n=57344,k=8192,m=64,group=64,dtype=f16"] {
            assert_eq!(variant(&spec(shape), &Chip::H200), "wgmma", "{shape}");
        }
        assert_eq!(variant(&spec("n=4096,k=4096,m=4"), &Chip::H200), "gemv");
        assert_eq!(variant(&spec("n=4096,k=4096,m=8"), &Chip::H200), "wgmma");
        assert_eq!(variant(&spec("n=8192,k=8192,m=4"), &Chip::H200), "gemv_fixed");
        assert_eq!(variant(&spec("n=28672,k=4096"), &A100), "gemv_fixed");
        assert_eq!(variant(&spec("n=6144,k=4096,m=8"), &A100), "gemv");
    }

    #[test]
    fn x_that_does_not_fit_goes_elsewhere() {
        assert_eq!(variant(&spec("n=4096,k=14336,m=8"), &A100), "mma");
        assert_eq!(variant(&spec("n=4096,k=14336,m=2"), &RTX3090), "gemv");
        assert_ne!(variant(&spec("n=4096,k=14336,m=4"), &RTX3090), "gemv");
        assert_eq!(variant(&spec("n=96,k=128,m=1,post=silu_mul"), &Chip::H200), "gemv_fixed");
        assert_eq!(variant(&spec("n=90,k=128,m=1,post=silu_mul"), &Chip::H200), "dequant");
    }

    #[test]
    fn the_first_configuration_that_fits_is_taken() {
        assert_eq!(gemv_config(&spec("n=4096,k=4096"), &Chip::H200, false), GEMV[0]);
        assert_eq!(gemv_config(&spec("n=4096,k=4096"), &Chip::H200, true), BULK[0]);
        assert_eq!(gemv_config(&spec("n=4096,k=14336,m=4"), &Chip::H200, true).blocks, 1);
    }
}
