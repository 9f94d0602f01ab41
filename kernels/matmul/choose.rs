//! Which variant, and which of its configurations, suits a shape and a chip.

use super::problem::{Post, Problem};
pub use super::tables::*;
use crate::op::{Chip, OpResult};

/// The configuration of a matrix-vector variant for a shape: `cfg` if given, else the first of which an SM holds two
/// blocks, else the first that fits at all. Few weights are over before deep rings have filled: there three blocks with
/// short rings go before two (6144 × 4096 alone 12.6 µs instead of 13.7 on an H200; qkv and o of a decode step together
/// 35 µs of 3,864).
///
/// # Errors
/// More than 8 rows of x, or an x that does not fit in shared memory with any ring.
pub fn gemv_config<'a>(table: &'a [Gemv], variant: &str, p: &Problem, chip: &Chip) -> OpResult<&'a Gemv> {
    let limit = u64::from(chip.shared_optin);
    let fits = |c: &&Gemv| p.m <= c.m && c.block_shared(p) <= limit;
    if let Some(i) = p.cfg {
        let c =
            table.get(i).ok_or_else(|| crate::op_error!("{variant} has configurations 0 to {}", table.len() - 1))?;
        return if fits(&c) {
            Ok(c)
        } else {
            Err(crate::op_error!(
                "{variant} cfg={i} takes m up to {} and needs {} bytes of shared memory of {limit}",
                c.m,
                c.block_shared(p)
            ))
        };
    }
    if p.m > 8 {
        return Err(crate::op_error!("{variant} is for up to 8 rows of x, not m={}", p.m));
    }
    // Only the smallest M that holds the rows: more would multiply zeros.
    let m = table.iter().map(|c| c.m).filter(|m| *m >= p.m).min().unwrap_or(8);
    let mine = || table.iter().filter(|c| c.m == m);
    let paired = || mine().filter(|c| c.pairs_up(p, chip));
    let few = p.n * p.k * p.dtype.size() <= FEW_WEIGHTS;
    let short = paired().find(|c| few && c.depth > 0 && c.per_sm == 3);
    short.or_else(|| paired().next()).or_else(|| mine().find(fits)).ok_or_else(|| {
        crate::op_error!(
            "{variant}: {} rows of k={} need {} bytes of shared memory, beyond this chip's {limit}",
            p.m,
            p.k,
            mine().map(|c| c.block_shared(p)).min().unwrap_or(0)
        )
    })
}

/// The tile with the least work on the busiest SM, among those that fit; a larger tile wins a tie because it reads less.
pub fn mma_tile(p: &Problem, chip: &Chip) -> OpResult<&'static Tile> {
    let fits = |t: &&Tile| t.shared() <= u64::from(chip.shared_optin);
    if let Some(i) = p.cfg {
        return MMA.get(i).filter(fits).ok_or_else(|| {
            crate::op_error!("mma has configurations 0 to {}, and cfg={i} has to fit this chip", MMA.len() - 1)
        });
    }
    MMA.iter().filter(fits).min_by(|a, b| a.effort(p, chip).total_cmp(&b.effort(p, chip))).ok_or_else(|| {
        crate::op_error!("mma's smallest tile does not fit in {} bytes of shared memory", chip.shared_optin)
    })
}

/// # Errors
/// Rows that are no multiple of 16 bytes, which the copy engine cannot stride over.
pub fn copyable_rows(variant: &str, p: &Problem) -> OpResult<()> {
    if !p.k.is_multiple_of(8) {
        return Err(crate::op_error!(
            "{variant}: rows of k={} are {} bytes; tensor copies (TMA) need row strides that are multiples of 16: use mma",
            p.k,
            p.k * p.dtype.size()
        ));
    }
    Ok(())
}

/// The tile of wgmma.
///
/// # Errors
/// A `cfg` that does not exist.
pub fn wgmma_tile(p: &Problem, chip: &Chip) -> OpResult<&'static Tile> {
    if let Some(i) = p.cfg {
        return WGMMA.get(i).ok_or_else(|| crate::op_error!("wgmma has configurations 0 to {}", WGMMA.len() - 1));
    }
    let best = WGMMA.iter().min_by(|a, b| a.effort(p, chip).total_cmp(&b.effort(p, chip)));
    best.ok_or_else(|| crate::op_error!("wgmma has no configuration"))
}

/// The tile of wgmma_cluster.
///
/// # Errors
/// A `cfg` that does not exist.
pub fn cluster_tile(p: &Problem, chip: &Chip) -> OpResult<&'static ClusterTile> {
    if let Some(i) = p.cfg {
        let last = WGMMA_CLUSTER.len() - 1;
        return WGMMA_CLUSTER.get(i).ok_or_else(|| crate::op_error!("wgmma_cluster has configurations 0 to {last}"));
    }
    // Of two with the same work the low one: 64 x 128 moves less through shared memory than 128 x 64.
    let order =
        WGMMA_CLUSTER.iter().rev().filter(|c| c.tile.m == 64).chain(WGMMA_CLUSTER.iter().filter(|c| c.tile.m > 64));
    let best = order.min_by(|a, b| a.effort(p, chip).total_cmp(&b.effort(p, chip)));
    best.ok_or_else(|| crate::op_error!("wgmma_cluster has no configuration"))
}

/// The table of a stream-K variant.
pub fn streamk_table(variant: &str) -> Option<&'static [StreamK]> {
    match variant {
        "skinny" => Some(SKINNY),
        _ => None,
    }
}

/// The smallest tile that holds all rows of x, or the largest, several times.
///
/// # Errors
/// More than 2^31 units of work; a `cfg` that does not exist or does not fit the chip.
pub fn streamk_config<'a>(table: &'a [StreamK], variant: &str, p: &Problem, chip: &Chip) -> OpResult<&'a StreamK> {
    let fits = |c: &&StreamK| c.shared() + 1024 <= u64::from(chip.shared_optin);
    let found = match p.cfg {
        Some(i) => table.get(i).filter(fits).ok_or_else(|| {
            crate::op_error!("{variant} has configurations 0 to {}, and cfg={i} has to fit this chip", table.len() - 1)
        })?,
        None => table
            .iter()
            .filter(fits)
            .find(|c| c.m >= p.m)
            .or_else(|| table.iter().filter(fits).max_by_key(|c| c.m))
            .ok_or_else(|| {
                crate::op_error!("{variant} does not fit in {} bytes of shared memory", chip.shared_optin)
            })?,
    };
    if found.units(p) > i32::MAX as u64 {
        return Err(crate::op_error!("{variant}: {} units of work, beyond 2^31; use mma", found.units(p)));
    }
    Ok(found)
}

/// The cut of swap_ab with the least work on the busiest SM, among those of the narrowest tile that holds all rows of x.
///
/// # Errors
/// Rows that are no multiple of 16 bytes; a `cfg` that names no cut, does not fit the chip or does not take the shape;
/// more than 2^31 tiles.
pub fn swap_ab_config(p: &Problem, chip: &Chip) -> OpResult<SwapAb> {
    copyable_rows("swap_ab", p)?;
    let takes = |c: &SwapAb| c.takes(p) && c.fits(p, chip);
    let found = if let Some(i) = p.cfg {
        SwapAb::numbered(i).filter(takes).ok_or_else(|| {
            crate::op_error!(
                "swap_ab cfg={i} has to name a cut (tables.rs, such as 3122120) and to fit this chip (silu_mul: two operands)"
            )
        })?
    } else {
        let width = SWAP_AB.iter().filter(|c| c.m >= p.m && takes(c)).map(|c| c.m).min().unwrap_or(128);
        let cuts = || SWAP_AB.iter().copied().filter(|c| c.m == width && takes(c));
        // Measured on an H200: a block that fills an SM alone earns it with the widest tiles only.
        match SwapAb::numbered(measured(p, width, chip)).filter(takes) {
            Some(c) => c,
            None => cuts()
                .filter(|c| c.per_sm == 2 || c.m >= 128 || c.operands == 2)
                .min_by_key(|c| c.effort(p, chip))
                .ok_or_else(|| {
                    crate::op_error!("swap_ab does not fit in {} bytes of shared memory", chip.shared_optin)
                })?,
        }
    };
    if found.cut(p, chip).tiles * found.split > i32::MAX as u64 {
        return Err(crate::op_error!("swap_ab: more than 2^31 tiles; use wgmma"));
    }
    Ok(found)
}

/// The digits of the cut that did best on an H200 for products like this one (lab notes `swap_ab_cuts`, `swap_ab_stages`,
/// `swap_ab_resident`, `swap_ab_elect`), or 0.
///
/// Every SM is filled by the kernel's own blocks, one or two: room for a block of the next kernel is taken unevenly, and two
/// on one SM, none on another, cost a decode step a tenth. Where pairs of blocks have a tile of up to two operands' height,
/// they share k.
fn measured(p: &Problem, width: u64, chip: &Chip) -> usize {
    let pairs = u64::from(chip.sms) / 2;
    let rows = (p.m.div_ceil(width.min(128)).max(1) * p.cols()).div_ceil(pairs);
    let place = width.trailing_zeros() as usize - 2;
    let cut = match (width, rows) {
        // Gate and up rows need two operands of one consumer.
        (128.., _) if p.post == Post::SiluMul => return 0,
        (8, _) if p.post == Post::SiluMul => 421_114,
        (_, _) if p.post == Post::SiluMul => 411_112,
        // With the norm folded in a decode step of 8 requests was faster with these.
        (8, 0..=64) if p.pre => 122_114,
        (8, 65..=128) if p.pre => 222_114,
        (8, _) if p.pre => 411_114,
        (8 | 16, 0..=128) => 142_136,
        (8 | 16, 129..=1024) => 411_116,
        (8, _) => 411_136,
        (16, _) => 211_136,
        (32, 0..=64) => 142_116,
        (32, 65..=128) => 122_136,
        (64, 0..=64) => 142_116,
        (64, 65..=128) => 222_116,
        (32 | 64, 129..=1024) => 211_136,
        (32 | 64, _) => 211_132,
        (128, 0..=64) => 122_112,
        (128, 65..=128) => 212_112,
        (128, 129..=1024) => 211_116,
        (128, _) => 211_210,
        // Two rows of tiles of 128 columns where n is small.
        (256, 0..=128) => return 5_212_112,
        (256, 129..=192) => return 5_312_110,
        (256, _) => 211_112,
        _ => return 0,
    };
    place * 1_000_000 + cut
}

/// The table of a matrix-vector variant.
pub fn gemv_table(variant: &str) -> Option<&'static [Gemv]> {
    match variant {
        "gemv" => Some(GEMV),
        "gemv_async" => Some(GEMV_ASYNC),
        "gemv_bulk" => Some(GEMV_BULK),
        _ => None,
    }
}

/// Rows of x up to which swap_ab folds the norm in; with more, normalising x in every block and stage costs the step more
/// than a kernel of its own (lab note `swap_ab_norm`).
const FOLDED_M: u64 = 8;
/// Bytes of weights up to which a matrix-vector product takes short rings.
const FEW_WEIGHTS: u64 = 64 << 20;
/// Rows of x up to which the operands are swapped on 9.0.
const SWAP_AB_M: u64 = 256;
/// Rows of x up to which mma.sync, operands swapped, streams weights as fast as memory gives them.
const SKINNY_M: u64 = 128;

/// Whether wgmma_cluster's tiles beat swap_ab's for up to 256 rows of x and a plain output (lab note `matmul_cluster_low`):
/// beyond 128; from 65 rows on where clusters of two are one wave of tiles of 96
/// columns, of which swap_ab would multiply 128, and where weights are a vocabulary's.
fn clusters(p: &Problem, chip: &Chip) -> bool {
    let pairs = u64::from(chip.sms) / 2;
    p.post == Post::None
        && match p.m {
            129.. => true,
            65.. => (65..=96).contains(&p.n.div_ceil(pairs)) || p.n >= 65_536,
            _ => false,
        }
}

/// The variant for a shape: a matrix-vector kernel for one row of x (two without wgmma, four where it folds the norm in),
/// swapped operands while reading the weights is most of the work, full tiles beyond; by wgmma on 9.0, by mma.sync
/// elsewhere and where rows are no multiple of 16 bytes.
pub fn variant(p: &Problem, chip: &Chip) -> &'static str {
    let p = Problem { cfg: None, ..p.clone() };
    // Measured inside a decode step on an H200, gemv_async beats gemv_bulk by 2 % (lab notes); the plain version has no
    // ring, so the most room for x.
    let decode = ["gemv_async", "gemv"];
    let takes = |v: &&str| gemv_table(v).is_some_and(|table| gemv_config(table, v, &p, chip).is_ok());
    let wgmma = chip.sm == 90 && p.k.is_multiple_of(8);
    // Two rows by gemv_async take what swap_ab takes for eight, and more with many weights: 56.6 µs for 55.6 at 28672 x 4096.
    let rows = match (p.pre, wgmma) {
        (true, _) => 4,
        (_, true) => 1,
        _ => 2,
    };
    if let Some(v) = decode.into_iter().find(|v| p.m <= rows && takes(v)) {
        return v;
    }
    let streams = |v: &str| streamk_table(v).is_some_and(|table| streamk_config(table, v, &p, chip).is_ok());
    let swaps = p.m <= SWAP_AB_M && (!p.pre || p.m <= FOLDED_M) && !clusters(&p, chip);
    match p.m {
        _ if wgmma && swaps && swap_ab_config(&p, chip).is_ok() => "swap_ab",
        m if m <= SKINNY_M && !wgmma && streams("skinny") => "skinny",
        _ if wgmma => "wgmma_cluster",
        _ => "mma",
    }
}
