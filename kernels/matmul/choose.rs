//! Which variant, and which of its configurations, suits a shape and a chip. Tables here name exactly the kernels that
//! the `.cu` files instantiate; `cfg=N` in a shape picks row N of a table instead.

use super::problem::{Post, Problem};
use crate::op::{Chip, OpResult};

/// Elements that a warp covers with one 16-byte load per lane.
const SEGMENT: u64 = 256;

/// One instantiation of a matrix-vector kernel and how many of its blocks an SM is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemv {
    /// Rows of x it holds, at most.
    pub m: u64,
    /// Weight rows that a warp takes at a time.
    pub rows: u64,
    /// 256-element segments of each row in a batch.
    pub unroll: u64,
    /// Stages of the ring in shared memory; 0 where weights go to registers.
    pub depth: u64,
    pub warps: u64,
    pub per_sm: u64,
}

const fn gemv(m: u64, rows: u64, unroll: u64, depth: u64, warps: u64, per_sm: u64) -> Gemv {
    Gemv { m, rows, unroll, depth, warps, per_sm }
}

/// The first row that fits is the default.
pub const GEMV: &[Gemv] = &[
    gemv(1, 2, 4, 0, 8, 2),
    gemv(1, 2, 4, 0, 8, 4),
    gemv(1, 2, 4, 0, 16, 2),
    gemv(1, 2, 8, 0, 8, 1),
    gemv(1, 4, 2, 0, 8, 3),
    gemv(2, 2, 4, 0, 8, 2),
    gemv(4, 2, 2, 0, 8, 2),
    gemv(8, 2, 2, 0, 8, 2),
];
pub const GEMV_ASYNC: &[Gemv] = &[
    gemv(1, 2, 2, 6, 8, 1),
    gemv(1, 2, 2, 4, 8, 1),
    gemv(1, 2, 2, 3, 16, 1),
    gemv(1, 2, 1, 6, 16, 1),
    gemv(1, 4, 1, 6, 8, 1),
    gemv(1, 2, 2, 4, 8, 2),
    gemv(1, 2, 2, 6, 8, 2),
    gemv(2, 2, 2, 6, 8, 1),
    gemv(2, 2, 2, 3, 8, 1),
    gemv(4, 2, 2, 4, 8, 1),
    gemv(8, 2, 2, 3, 8, 1),
];
pub const GEMV_BULK: &[Gemv] = &[
    gemv(1, 2, 2, 6, 8, 1),
    gemv(1, 2, 2, 4, 8, 1),
    gemv(1, 2, 2, 3, 16, 1),
    gemv(1, 2, 4, 3, 8, 1),
    gemv(1, 2, 4, 4, 8, 1),
    gemv(1, 2, 2, 4, 8, 2),
    gemv(1, 2, 2, 6, 8, 2),
    gemv(2, 2, 2, 6, 8, 1),
    gemv(2, 2, 2, 3, 8, 1),
    gemv(4, 2, 2, 4, 8, 1),
    gemv(8, 2, 2, 3, 8, 1),
];

impl Gemv {
    /// Rows of x are kept in shared memory up to whole batches.
    pub fn padded_k(&self, p: &Problem) -> u64 {
        p.k.next_multiple_of(self.unroll * SEGMENT)
    }
    /// Dynamic shared memory: the ring, x, and the gain where x is normalised.
    pub fn shared(&self, p: &Problem) -> u64 {
        let ring = self.warps * self.depth * self.rows * self.unroll * SEGMENT * 2;
        ring + (self.m + u64::from(p.pre)) * self.padded_k(p) * 2
    }
    /// Blocks: an even split over the chip, fewer where there is not a row for every warp.
    pub fn blocks(&self, p: &Problem, chip: &Chip) -> u64 {
        (u64::from(chip.sms) * self.per_sm).min(p.cols().div_ceil(self.warps))
    }
    pub fn entry(&self, variant: &str, p: &Problem) -> String {
        let (dtype, ring) = (p.dtype.name(), if self.depth > 0 { format!("d{}", self.depth) } else { String::new() });
        format!("matmul_{variant}_{dtype}_m{}_r{}u{}{ring}w{}", self.m, self.rows, self.unroll, self.warps)
    }
}

/// Static shared memory of the matrix-vector kernels, at most; counted with the dynamic part against the limit.
const GEMV_STATIC: u64 = 2048;

/// The configuration of a matrix-vector variant for a shape: `cfg` if given, else the first whose block shares an SM
/// with the next kernel's (half the shared memory), else the first that fits at all.
///
/// # Errors
/// More than 8 rows of x, or an x that does not fit in shared memory with any ring.
pub fn gemv_config<'a>(table: &'a [Gemv], variant: &str, p: &Problem, chip: &Chip) -> OpResult<&'a Gemv> {
    let limit = u64::from(chip.shared_optin);
    let fits = |c: &&Gemv, limit: u64| p.m <= c.m && c.shared(p) + GEMV_STATIC <= limit;
    if let Some(i) = p.cfg {
        let c =
            table.get(i).ok_or_else(|| crate::op_error!("{variant} has configurations 0 to {}", table.len() - 1))?;
        return if fits(&c, limit) {
            Ok(c)
        } else {
            Err(crate::op_error!(
                "{variant} cfg={i} takes m up to {} and needs {} bytes of shared memory of {limit}",
                c.m,
                c.shared(p) + GEMV_STATIC
            ))
        };
    }
    if p.m > 8 {
        return Err(crate::op_error!("{variant} is for up to 8 rows of x, not m={}", p.m));
    }
    // Only the smallest M that holds the rows: more would multiply zeros.
    let m = table.iter().map(|c| c.m).filter(|m| *m >= p.m).min().unwrap_or(8);
    let mine = || table.iter().filter(|c| c.m == m);
    mine().find(|c| fits(c, limit / 2)).or_else(|| mine().find(|c| fits(c, limit))).ok_or_else(|| {
        crate::op_error!(
            "{variant}: {} rows of k={} need {} bytes of shared memory, beyond this chip's {limit}",
            p.m,
            p.k,
            mine().map(|c| c.shared(p)).min().unwrap_or(0) + GEMV_STATIC
        )
    })
}

/// A tile of the tensor-core kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    pub m: u64,
    pub n: u64,
    pub threads: u64,
    pub stages: u64,
}

pub const MMA: &[Tile] = &[
    Tile { m: 128, n: 256, threads: 256, stages: 4 },
    Tile { m: 128, n: 256, threads: 256, stages: 3 },
    Tile { m: 128, n: 128, threads: 256, stages: 3 },
    Tile { m: 64, n: 128, threads: 128, stages: 4 },
    Tile { m: 64, n: 64, threads: 128, stages: 4 },
];

impl Tile {
    /// Stages of 64 k-elements of both operands.
    pub fn shared(&self) -> u64 {
        self.stages * (self.m + self.n) * 64 * 2
    }
    /// Tiles of the output; gate and up rows share a tile.
    pub fn count(&self, p: &Problem) -> u64 {
        let cols = if p.post == Post::SiluMul { self.n / 2 } else { self.n };
        p.m.div_ceil(self.m) * p.cols().div_ceil(cols)
    }
    pub fn entry(&self, p: &Problem) -> String {
        format!("matmul_mma_{}_{}x{}_s{}", p.dtype.name(), self.m, self.n, self.stages)
    }
}

/// The tile with the least work on the busiest SM, among those that fit; a larger tile wins a tie because it reads less.
pub fn mma_tile(p: &Problem, chip: &Chip) -> OpResult<&'static Tile> {
    let fits = |t: &&Tile| t.shared() <= u64::from(chip.shared_optin);
    if let Some(i) = p.cfg {
        return MMA.get(i).filter(fits).ok_or_else(|| {
            crate::op_error!("mma has configurations 0 to {}, and cfg={i} has to fit this chip", MMA.len() - 1)
        });
    }
    // Small tiles feed the tensor cores less well: shared memory delivers (1/m + 1/n) per product.
    let cost = |t: &Tile| {
        let waves = t.count(p).div_ceil(u64::from(chip.sms));
        let traffic = 1.0 + 24.0 * (1.0 / t.m as f64 + 1.0 / t.n as f64);
        (waves * t.m * t.n) as f64 * traffic
    };
    MMA.iter().filter(fits).min_by(|a, b| cost(a).total_cmp(&cost(b))).ok_or_else(|| {
        crate::op_error!("mma's smallest tile does not fit in {} bytes of shared memory", chip.shared_optin)
    })
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

/// The variant for a shape: a matrix-vector kernel while reading the weights is all the work, tensor cores beyond.
pub fn variant(p: &Problem, chip: &Chip) -> &'static str {
    let p = Problem { cfg: None, ..p.clone() };
    // The plain version has no ring, so the most room for x.
    let decode = [if chip.sm >= 90 { "gemv_bulk" } else { "gemv_async" }, "gemv"];
    let takes = |v: &&str| gemv_table(v).is_some_and(|table| gemv_config(table, v, &p, chip).is_ok());
    decode.into_iter().find(|v| p.m <= 8 && takes(v)).unwrap_or("mma")
}
