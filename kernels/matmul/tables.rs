//! The configurations of each variant: exactly the kernels that the `.cu` files instantiate, with the shared memory, the
//! blocks and the scratch that each needs. `cfg=N` in a shape picks row N of a table.

use super::problem::{Post, Problem};
use crate::op::Chip;

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

/// The default is the first row that fits (`choose::gemv_config`; gemv_async prefers its second where weights are few).
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
    gemv(1, 2, 2, 5, 8, 2),
    gemv(1, 2, 2, 3, 8, 3),
    gemv(1, 2, 2, 4, 8, 2),
    gemv(1, 2, 2, 6, 8, 2),
    gemv(1, 2, 2, 6, 8, 1),
    gemv(1, 2, 2, 4, 8, 1),
    gemv(1, 2, 2, 3, 16, 1),
    gemv(1, 2, 1, 6, 16, 1),
    gemv(1, 4, 1, 6, 8, 1),
    gemv(1, 2, 2, 3, 8, 2),
    gemv(1, 2, 1, 6, 8, 2),
    gemv(1, 2, 1, 6, 8, 3),
    gemv(1, 2, 1, 4, 8, 4),
    gemv(1, 4, 1, 4, 8, 2),
    gemv(1, 2, 4, 2, 8, 2),
    gemv(1, 2, 4, 3, 8, 2),
    gemv(2, 2, 2, 6, 8, 1),
    gemv(2, 2, 2, 4, 8, 1),
    gemv(2, 2, 2, 3, 8, 1),
    gemv(4, 2, 2, 4, 8, 1),
    gemv(8, 2, 2, 3, 8, 1),
];
pub const GEMV_BULK: &[Gemv] = &[
    gemv(1, 2, 2, 4, 8, 2),
    gemv(1, 2, 2, 6, 8, 2),
    gemv(1, 2, 2, 3, 16, 1),
    gemv(1, 2, 2, 6, 8, 1),
    gemv(1, 2, 2, 4, 8, 1),
    gemv(1, 2, 4, 3, 8, 2),
    gemv(1, 2, 4, 3, 8, 1),
    gemv(1, 2, 4, 4, 8, 1),
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
    pub fn effort(&self, p: &Problem, chip: &Chip) -> f64 {
        let waves = self.count(p).div_ceil(u64::from(chip.sms));
        (waves * self.m * self.n) as f64 * (1.0 + 24.0 * (1.0 / self.m as f64 + 1.0 / self.n as f64))
    }
}

/// Rows of a stored piece of the output, twice for each consumer: what wgmma_cluster keeps beside the ring.
pub const STORE_BUFFERS: u64 = 2 * 2 * 64 * 64 * 2;

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

/// An instantiation of `swap_ab` and how it cuts a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapAb {
    /// Rows of x in a tile.
    pub m: u64,
    /// Operands of up to 64 weight rows for each consumer warpgroup; silu_mul needs two.
    pub operands: u64,
    pub consumers: u64,
    /// Slices of 64 k-elements in a stage.
    pub depth: u64,
    /// Blocks of a cluster, which share a tile's k.
    pub split: u64,
    /// Blocks that shared memory leaves room for on an SM: 2 lets the next kernel's stand beside this one's.
    pub per_sm: u64,
    /// Whether tiles begin at different places of k.
    pub turn: bool,
}

const fn swap_ab(m: u64, operands: u64, consumers: u64, depth: u64, split: u64, per_sm: u64) -> SwapAb {
    SwapAb { m, operands, consumers, depth, split, per_sm, turn: false }
}

const fn turned(cut: SwapAb) -> SwapAb {
    SwapAb { turn: true, ..cut }
}

/// The cuts of one width, in the order in which ties are settled.
const fn swap_ab_cuts(m: u64) -> [SwapAb; 16] {
    // By registers an SM holds one block of the widest.
    let pair = if m < 128 { 2 } else { 1 };
    [
        swap_ab(m, 1, 1, 4, 1, pair),
        swap_ab(m, 1, 1, 4, 2, pair),
        swap_ab(m, 1, 2, 2, 1, pair),
        swap_ab(m, 1, 2, 2, 2, pair),
        swap_ab(m, 1, 2, 2, 4, pair),
        swap_ab(m, 2, 2, 1, 1, pair),
        swap_ab(m, 2, 2, 1, 2, pair),
        swap_ab(m, 1, 1, 2, 1, pair),
        swap_ab(m, 1, 1, 2, 2, pair),
        swap_ab(m, 1, 2, 1, 2, pair),
        swap_ab(m, 1, 2, 1, 4, pair),
        swap_ab(m, 2, 2, 1, 1, 1),
        swap_ab(m, 1, 2, 2, 2, 1),
        swap_ab(m, 2, 2, 1, 4, 1),
        turned(swap_ab(m, 1, 2, 1, 2, pair)),
        turned(swap_ab(m, 2, 2, 1, 1, pair)),
    ]
}

/// `cfg` = 16 times the width's place (8, 16, 32, 64, 128) + the cut's.
pub const SWAP_AB: &[[SwapAb; 16]] =
    &[swap_ab_cuts(8), swap_ab_cuts(16), swap_ab_cuts(32), swap_ab_cuts(64), swap_ab_cuts(128)];

/// What a [`SwapAb`] makes of a problem on a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Output columns of a tile: the height of a weight box.
    pub cols: u64,
    /// Weight rows of a tile: twice that with silu_mul.
    pub rows: u64,
    /// Weight rows from one operand to the next.
    pub pitch: u64,
    pub tiles: u64,
    pub blocks: u64,
    pub stages: u64,
    /// Dynamic shared memory.
    pub shared: u64,
}

impl SwapAb {
    /// Clusters that run at once. Those of four leave SMs over where a processing cluster (GPC) has no multiple of four.
    fn slots(&self, chip: &Chip) -> u64 {
        let sms = u64::from(chip.sms);
        (if self.split > 2 { sms * 32 / 33 } else { sms } / self.split).max(1)
    }
    /// Tiles as even as they get: all of the same height, as many as whole waves of clusters.
    pub fn cut(&self, p: &Problem, chip: &Chip) -> Cut {
        let silu = p.post == Post::SiluMul;
        // Gate rows have one half of the operands, up rows the other.
        let operands = (self.consumers * self.operands / if silu { 2 } else { 1 }).max(1);
        let (most, tiles_m, slots) = (64 * operands, p.m.div_ceil(self.m).max(1), self.slots(chip));
        let waves = (tiles_m * p.cols()).div_ceil(slots * most).max(1);
        let cols = (tiles_m * p.cols()).div_ceil(slots * waves).clamp(8, most);
        let tiles = tiles_m * p.cols().div_ceil(cols);
        let pitch = cols.div_ceil(operands).next_multiple_of(8);

        let slice = (self.consumers * self.operands * pitch + self.m) * 128;
        let spare = (64 - pitch).saturating_sub(self.m) * 128;
        let sums = (self.split - 1) * self.operands * (self.m / 8).div_ceil(self.split) * self.consumers * 128 * 16;
        let budget = ((u64::from(chip.shared_optin) + RESERVED) / self.per_sm).saturating_sub(RESERVED + BARRIERS);
        // At least two: what then does not fit is refused.
        let steps = p.k.div_ceil(64 * self.depth).div_ceil(self.split) * tiles.div_ceil(slots);
        let stages = (budget.saturating_sub(spare + sums) / (self.depth * slice)).min(steps).clamp(2, MAX_STAGES);
        let blocks = if self.split == 1 { tiles.min(slots) } else { tiles * self.split };
        let shared = stages * self.depth * slice + spare + sums;
        Cut { cols, rows: cols * if silu { 2 } else { 1 }, pitch, tiles, blocks, stages, shared }
    }
    /// Bytes that the busiest SM waits for: its weights; its share of x, which all SMs ask of L2 at once, at three quarters
    /// of the price; both at up to half as much again where the ring holds less than 96 KB of weights; the exchange in a
    /// cluster, worth the bytes of 0.2 µs; those of 1.8 µs where the next kernel's blocks find no room beside this one's;
    /// and those of 0.1 µs for every stage, which cost the thread that asks.
    pub fn effort(&self, p: &Problem, chip: &Chip) -> u64 {
        let c = self.cut(p, chip);
        let waves = c.tiles.div_ceil(self.slots(chip));
        let k = p.k.div_ceil(self.split) * 2;
        let exchange = if self.split > 1 { 8 << 10 } else { 0 };
        let alone = if self.per_sm == 1 { 64 << 10 } else { 0 };
        const ENOUGH: u64 = 96 << 10;
        let missing = ENOUGH.saturating_sub(c.stages * self.depth * c.rows * 128);
        let stages = waves * k.div_ceil(128 * self.depth) * (3 << 10);
        let stream = waves * (c.rows * k + self.m * k * 3 / 4);
        stream + stages + stream / 2 * missing / ENOUGH + exchange + alone
    }
    /// Whether its share of an SM's shared memory holds two stages.
    pub fn fits(&self, p: &Problem, chip: &Chip) -> bool {
        (self.cut(p, chip).shared + BARRIERS + RESERVED) * self.per_sm <= u64::from(chip.shared_optin) + RESERVED
    }
    pub fn threads(&self) -> u64 {
        self.consumers * 128 + 32
    }
    pub fn entry(&self, p: &Problem) -> String {
        format!("matmul_swap_ab_{}_n{}_r{}c{}", p.dtype.name(), self.m, self.operands, self.consumers)
    }
}

/// The barriers of the largest ring and of the exchange, in static shared memory.
pub const BARRIERS: u64 = (2 * MAX_STAGES + 1) * 8;
const MAX_STAGES: u64 = 16;
