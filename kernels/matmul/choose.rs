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
    gemv(1, 2, 4, 0, 8, 3),
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
    gemv(2, 2, 2, 4, 8, 1),
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
    gemv(2, 2, 2, 4, 8, 1),
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
    /// All shared memory of a block: the norm's partial sums and the ring's barriers are static.
    pub fn block_shared(&self, p: &Problem) -> u64 {
        self.shared(p) + self.m * 32 * 4 + self.warps * self.depth * 8
    }
    /// Whether an SM has room for this block and its like of the next kernel.
    pub fn pairs_up(&self, p: &Problem, chip: &Chip) -> bool {
        2 * (self.block_shared(p) + RESERVED) <= u64::from(chip.shared_optin) + RESERVED
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

/// What the driver keeps of an SM's shared memory for each block.
const RESERVED: u64 = 1024;

/// The configuration of a matrix-vector variant for a shape: `cfg` if given, else the first whose block shares an SM
/// with the next kernel's, else the first that fits at all.
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
    mine().find(|c| c.pairs_up(p, chip)).or_else(|| mine().find(fits)).ok_or_else(|| {
        crate::op_error!(
            "{variant}: {} rows of k={} need {} bytes of shared memory, beyond this chip's {limit}",
            p.m,
            p.k,
            mine().map(|c| c.block_shared(p)).min().unwrap_or(0)
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

/// # Errors
/// Rows that are no multiple of 16 bytes, which the copy engine cannot stride over.
pub fn copyable_rows(variant: &str, p: &Problem) -> OpResult<()> {
    if p.k % 8 != 0 {
        return Err(crate::op_error!(
            "{variant}: rows of k={} are {} bytes; tensor copies (TMA) need row strides that are multiples of 16: use mma",
            p.k,
            p.k * p.dtype.size()
        ));
    }
    Ok(())
}

/// The tile of the wgmma kernels.
///
/// # Errors
/// A `cfg` that does not exist.
pub fn wgmma_tile(variant: &str, p: &Problem, chip: &Chip) -> OpResult<&'static Tile> {
    if let Some(i) = p.cfg {
        let last = WGMMA.len() - 1;
        return WGMMA.get(i).ok_or_else(|| crate::op_error!("{variant} has configurations 0 to {last}"));
    }
    let best = WGMMA.iter().min_by(|a, b| a.effort(p, chip).total_cmp(&b.effort(p, chip)));
    best.ok_or_else(|| crate::op_error!("{variant} has no configuration"))
}

/// An instantiation of a stream-K kernel (`skinny`, `wgmma_streamk`): tiles of 128 weight rows by `m` rows of x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamK {
    pub m: u64,
    pub stages: u64,
    pub per_sm: u64,
}

/// Weight rows of a tile, k-elements of a unit.
const STREAMK_ROWS: u64 = 128;
const STREAMK_K: u64 = 64;

/// The first that fits is the default for its m.
pub const SKINNY: &[StreamK] = &[
    StreamK { m: 8, stages: 6, per_sm: 1 },
    StreamK { m: 8, stages: 4, per_sm: 1 },
    StreamK { m: 16, stages: 6, per_sm: 1 },
    StreamK { m: 16, stages: 4, per_sm: 1 },
    StreamK { m: 32, stages: 5, per_sm: 1 },
    StreamK { m: 32, stages: 4, per_sm: 1 },
    StreamK { m: 64, stages: 4, per_sm: 1 },
    StreamK { m: 128, stages: 3, per_sm: 1 },
    StreamK { m: 8, stages: 4, per_sm: 2 },
    StreamK { m: 16, stages: 6, per_sm: 2 },
    StreamK { m: 64, stages: 4, per_sm: 2 },
];

pub const WGMMA_STREAMK: &[StreamK] = &[
    StreamK { m: 64, stages: 6, per_sm: 1 },
    StreamK { m: 128, stages: 6, per_sm: 1 },
    StreamK { m: 256, stages: 4, per_sm: 1 },
    StreamK { m: 64, stages: 8, per_sm: 1 },
];

impl StreamK {
    pub fn shared(&self) -> u64 {
        self.stages * (STREAMK_ROWS + self.m) * STREAMK_K * 2
    }
    pub fn tiles(&self, p: &Problem) -> u64 {
        let cols = if p.post == Post::SiluMul { STREAMK_ROWS / 2 } else { STREAMK_ROWS };
        p.m.div_ceil(self.m) * p.cols().div_ceil(cols)
    }
    /// What the blocks divide evenly among themselves.
    pub fn units(&self, p: &Problem) -> u64 {
        self.tiles(p) * p.k.div_ceil(STREAMK_K)
    }
    pub fn blocks(&self, p: &Problem, chip: &Chip) -> u64 {
        (u64::from(chip.sms) * self.per_sm).min(self.units(p))
    }
    /// Bytes of the arrival counters, up to two for a tile, which lie before the pieces.
    pub fn counters(&self, p: &Problem) -> u64 {
        (self.tiles(p) * 2 * 4).next_multiple_of(16)
    }
    /// Counters, then two pieces of a tile for each block.
    pub fn workspace(&self, p: &Problem, chip: &Chip) -> u64 {
        self.counters(p) + self.blocks(p, chip) * 2 * STREAMK_ROWS * self.m * 4
    }
    pub fn entry(&self, variant: &str, p: &Problem) -> String {
        format!("matmul_{variant}_{}_m{}_s{}", p.dtype.name(), self.m, self.stages)
    }
}

/// The table of a stream-K variant.
pub fn streamk_table(variant: &str) -> Option<&'static [StreamK]> {
    match variant {
        "skinny" => Some(SKINNY),
        "wgmma_streamk" => Some(WGMMA_STREAMK),
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

/// The table of a matrix-vector variant.
pub fn gemv_table(variant: &str) -> Option<&'static [Gemv]> {
    match variant {
        "gemv" => Some(GEMV),
        "gemv_async" => Some(GEMV_ASYNC),
        "gemv_bulk" => Some(GEMV_BULK),
        _ => None,
    }
}

/// Rows of x up to which mma.sync, operands swapped, streams weights as fast as memory gives them.
const SKINNY_M: u64 = 32;
/// The same without wgmma to go on with.
const SKINNY_M_SM80: u64 = 128;
/// The largest tile of wgmma_streamk.
const STREAMK_M: u64 = 256;

/// The variant for a shape: a matrix-vector kernel for one or two rows of x (four where it folds the norm in), a
/// stream-K kernel while reading the weights is most of the work, full tiles beyond; by wgmma on 9.0, by mma.sync
/// elsewhere and where rows are no multiple of 16 bytes.
pub fn variant(p: &Problem, chip: &Chip) -> &'static str {
    let p = Problem { cfg: None, ..p.clone() };
    // The plain version has no ring, so the most room for x.
    let decode = [if chip.sm >= 90 { "gemv_bulk" } else { "gemv_async" }, "gemv"];
    let takes = |v: &&str| gemv_table(v).is_some_and(|table| gemv_config(table, v, &p, chip).is_ok());
    let rows = if p.pre { 4 } else { 2 };
    if let Some(v) = decode.into_iter().find(|v| p.m <= rows && takes(v)) {
        return v;
    }
    let wgmma = chip.sm == 90 && p.k % 8 == 0;
    let streams = |v: &str| streamk_table(v).is_some_and(|table| streamk_config(table, v, &p, chip).is_ok());
    match p.m {
        m if m <= if wgmma { SKINNY_M } else { SKINNY_M_SM80 } && streams("skinny") => "skinny",
        m if m <= STREAMK_M && wgmma && streams("wgmma_streamk") => "wgmma_streamk",
        _ if wgmma => "wgmma_cluster",
        _ => "mma",
    }
}
