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

/// Tiles of the wgmma kernels: three warpgroups, one of which only copies.
pub const WGMMA: &[Tile] =
    &[Tile { m: 128, n: 256, threads: 384, stages: 4 }, Tile { m: 128, n: 128, threads: 384, stages: 6 }];

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
    pub fn entry(&self, variant: &str, p: &Problem) -> String {
        format!("matmul_{variant}_{}_{}x{}_s{}", p.dtype.name(), self.m, self.n, self.stages)
    }
    /// Work of the busiest SM, in products, weighted by how well the tile feeds the tensor cores: operands have to
    /// deliver (1/m + 1/n) per product.
    fn effort(&self, p: &Problem, chip: &Chip) -> f64 {
        let waves = self.count(p).div_ceil(u64::from(chip.sms));
        (waves * self.m * self.n) as f64 * (1.0 + 24.0 * (1.0 / self.m as f64 + 1.0 / self.n as f64))
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
    MMA.iter().filter(fits).min_by(|a, b| a.effort(p, chip).total_cmp(&b.effort(p, chip))).ok_or_else(|| {
        crate::op_error!("mma's smallest tile does not fit in {} bytes of shared memory", chip.shared_optin)
    })
}

/// Rows of a stored piece of the output, twice for each consumer: what wgmma_cluster keeps beside the ring.
pub const STORE_BUFFERS: u64 = 2 * 2 * 64 * 64 * 2;

/// The tile of the wgmma kernels.
///
/// # Errors
/// Rows that are no multiple of 16 bytes, which the copy engine cannot stride over; a `cfg` that does not exist.
pub fn wgmma_tile(variant: &str, p: &Problem, chip: &Chip) -> OpResult<&'static Tile> {
    if p.k % 8 != 0 {
        return Err(crate::op_error!(
            "{variant}: rows of k={} are {} bytes; tensor copies (TMA) need row strides that are multiples of 16: use mma",
            p.k,
            p.k * p.dtype.size()
        ));
    }
    if let Some(i) = p.cfg {
        let last = WGMMA.len() - 1;
        return WGMMA.get(i).ok_or_else(|| crate::op_error!("{variant} has configurations 0 to {last}"));
    }
    let best = WGMMA.iter().min_by(|a, b| a.effort(p, chip).total_cmp(&b.effort(p, chip)));
    best.ok_or_else(|| crate::op_error!("{variant} has no configuration"))
}

/// An instantiation of the swapped tensor-core kernel: 128 weight rows by `m` rows of x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skinny {
    pub m: u64,
    pub stages: u64,
    pub per_sm: u64,
}

/// Weight rows of a tile, k-elements of a unit.
const SKINNY_ROWS: u64 = 128;
const SKINNY_K: u64 = 64;

/// The first that fits is the default for its m.
pub const SKINNY: &[Skinny] = &[
    Skinny { m: 8, stages: 6, per_sm: 1 },
    Skinny { m: 8, stages: 4, per_sm: 1 },
    Skinny { m: 16, stages: 6, per_sm: 1 },
    Skinny { m: 16, stages: 4, per_sm: 1 },
    Skinny { m: 32, stages: 5, per_sm: 1 },
    Skinny { m: 32, stages: 4, per_sm: 1 },
    Skinny { m: 64, stages: 4, per_sm: 1 },
    Skinny { m: 128, stages: 3, per_sm: 1 },
    Skinny { m: 8, stages: 4, per_sm: 2 },
    Skinny { m: 16, stages: 6, per_sm: 2 },
    Skinny { m: 64, stages: 4, per_sm: 2 },
];

impl Skinny {
    pub fn shared(&self) -> u64 {
        self.stages * (SKINNY_ROWS + self.m) * SKINNY_K * 2
    }
    pub fn tiles(&self, p: &Problem) -> u64 {
        let cols = if p.post == Post::SiluMul { SKINNY_ROWS / 2 } else { SKINNY_ROWS };
        p.m.div_ceil(self.m) * p.cols().div_ceil(cols)
    }
    /// What the blocks divide evenly among themselves.
    pub fn units(&self, p: &Problem) -> u64 {
        self.tiles(p) * p.k.div_ceil(SKINNY_K)
    }
    pub fn blocks(&self, p: &Problem, chip: &Chip) -> u64 {
        (u64::from(chip.sms) * self.per_sm).min(self.units(p))
    }
    /// Bytes of the tiles' arrival counters, which lie before the pieces.
    pub fn counters(&self, p: &Problem) -> u64 {
        (self.tiles(p) * 4).next_multiple_of(16)
    }
    /// Counters, then two pieces of a tile for each block.
    pub fn workspace(&self, p: &Problem, chip: &Chip) -> u64 {
        self.counters(p) + self.blocks(p, chip) * 2 * SKINNY_ROWS * self.m * 4
    }
    pub fn entry(&self, p: &Problem) -> String {
        format!("matmul_skinny_{}_m{}_s{}", p.dtype.name(), self.m, self.stages)
    }
}

/// The smallest tile that holds all rows of x, or the largest, several times.
///
/// # Errors
/// More than 2^31 units of work; a `cfg` that does not exist or does not fit the chip.
pub fn skinny_config(p: &Problem, chip: &Chip) -> OpResult<&'static Skinny> {
    let fits = |c: &&Skinny| c.shared() + 1024 <= u64::from(chip.shared_optin);
    let found = match p.cfg {
        Some(i) => SKINNY.get(i).filter(fits).ok_or_else(|| {
            crate::op_error!("skinny has configurations 0 to {}, and cfg={i} has to fit this chip", SKINNY.len() - 1)
        })?,
        None => SKINNY
            .iter()
            .filter(fits)
            .find(|c| c.m >= p.m)
            .or_else(|| SKINNY.iter().filter(fits).max_by_key(|c| c.m))
            .ok_or_else(|| crate::op_error!("skinny does not fit in {} bytes of shared memory", chip.shared_optin))?,
    };
    if found.units(p) > i32::MAX as u64 {
        return Err(crate::op_error!("skinny: {} units of work, beyond 2^31; use mma", found.units(p)));
    }
    Ok(found)
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

/// Rows of x up to which the swapped tensor-core kernel streams weights about as fast as memory gives them.
const SKINNY_M: u64 = 128;
/// Its largest tile.
const SKINNY_TILE: u64 = 128;

/// The variant for a shape: a matrix-vector kernel for one or two rows of x (four where it folds the norm in), the
/// swapped tensor-core kernel while reading the weights is all the work, full tiles beyond: by wgmma on
/// 9.0, by mma.sync elsewhere and where rows are no multiple of 16 bytes.
pub fn variant(p: &Problem, chip: &Chip) -> &'static str {
    let p = Problem { cfg: None, ..p.clone() };
    // The plain version has no ring, so the most room for x.
    let decode = [if chip.sm >= 90 { "gemv_bulk" } else { "gemv_async" }, "gemv"];
    let takes = |v: &&str| gemv_table(v).is_some_and(|table| gemv_config(table, v, &p, chip).is_ok());
    let rows = if p.pre { 4 } else { 2 };
    if let Some(v) = decode.into_iter().find(|v| p.m <= rows && takes(v)) {
        return v;
    }
    if p.m <= SKINNY_M && skinny_config(&p, chip).is_ok() {
        return "skinny";
    }
    if chip.sm == 90 && wgmma_tile("wgmma_cluster", &p, chip).is_ok() {
        // Too few tiles for the chip: an even split matters more than the faster instruction.
        let busy = 2 * WGMMA[1].count(&p) >= u64::from(chip.sms);
        return if busy || p.m > 2 * SKINNY_TILE { "wgmma_cluster" } else { "skinny" };
    }
    "mma"
}
