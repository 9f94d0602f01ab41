//! The configurations of each variant: exactly the kernels that the `.cu` files instantiate, with the shared memory, the
//! blocks and the scratch that each needs. `cfg=N` in a shape picks row N of a table.

use super::problem::{Post, Problem};
use crate::op::{Chip, DType};

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

/// A tile of wgmma_cluster, and what the two blocks of a cluster share: rows of x, with neighbouring columns, or rows of w.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterTile {
    pub tile: Tile,
    pub shares_x: bool,
}

const fn cluster_tile(m: u64, n: u64, stages: u64, shares_x: bool) -> ClusterTile {
    // A warpgroup that copies, and one for each 64 rows.
    ClusterTile { tile: Tile { m, n, threads: 128 + m * 2, stages }, shares_x }
}

/// Wide tiles, and narrow or low ones, so that few weights make a tile for every SM.
pub const WGMMA_CLUSTER: &[ClusterTile] = &[
    cluster_tile(128, 256, 4, false),
    cluster_tile(128, 128, 6, false),
    cluster_tile(128, 96, 7, false),
    cluster_tile(128, 64, 8, false),
    cluster_tile(64, 96, 10, false),
    cluster_tile(64, 128, 8, false),
    cluster_tile(128, 256, 4, true),
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
    pub fn entry(&self, variant: &str, p: &Problem) -> String {
        format!("matmul_{variant}_{}_{}x{}_s{}", p.dtype.name(), self.m, self.n, self.stages)
    }
    /// Work of the busiest SM, in products, weighted by how well the tile feeds the tensor cores: operands have to
    /// deliver (1/m + 1/n) per product.
    pub fn effort(&self, p: &Problem, chip: &Chip) -> f64 {
        self.effort_of(self.count(p), chip)
    }
    fn effort_of(&self, tiles: u64, chip: &Chip) -> f64 {
        let waves = tiles.div_ceil(u64::from(chip.sms));
        (waves * self.m * self.n) as f64 * (1.0 + 24.0 * (1.0 / self.m as f64 + 1.0 / self.n as f64))
    }
}

/// Columns of a piece of the output that the copy engine stores.
const PIECE: u64 = 64;

impl ClusterTile {
    /// The ring and beside it room for outputs: two pieces of 64 rows for each consumer, or where a tile is no whole pieces
    /// 16 rows for each of its warps, eight elements longer.
    pub fn shared(&self) -> u64 {
        let (n, consumers) = (self.tile.n, self.tile.m / 64);
        let buffers = if n.is_multiple_of(PIECE) { 2 * 64 * PIECE * 2 } else { 4 * 16 * (n + 8) * 2 };
        self.tile.shared() + consumers * buffers
    }
    /// Rows of x and output columns of the two tiles of a cluster.
    fn pair(&self, p: &Problem) -> (u64, u64) {
        let cols = if p.post == Post::SiluMul { self.tile.n / 2 } else { self.tile.n };
        if self.shares_x { (self.tile.m, 2 * cols) } else { (2 * self.tile.m, cols) }
    }
    /// Pairs of tiles.
    pub fn pairs(&self, p: &Problem) -> u64 {
        let (rows, cols) = self.pair(p);
        p.m.div_ceil(rows) * p.cols().div_ceil(cols)
    }
    /// As [`Tile::effort`], with clusters that are whole whatever of their tiles exists.
    pub fn effort(&self, p: &Problem, chip: &Chip) -> f64 {
        self.tile.effort_of(2 * self.pairs(p), chip)
    }
    /// Rows of x and of w that a copy brings: half of a tile's of what is shared, and of w in any case.
    pub fn boxes(&self) -> (u32, u32) {
        (if self.shares_x { self.tile.m / 2 } else { self.tile.m } as u32, self.tile.n as u32 / 2)
    }
    pub fn entry(&self, variant: &str, p: &Problem) -> String {
        format!("{}{}", self.tile.entry(variant, p), if self.shares_x { "_x" } else { "" })
    }
}

/// An instantiation of the stream-K kernel, `skinny`: tiles of 128 weight rows by `m` rows of x.
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
    /// Blocks of a cluster that share a tile's k.
    pub split: u64,
    /// Blocks of a cluster that have neighbouring tiles and share x.
    pub share: u64,
    /// Blocks that shared memory leaves room for on an SM: 2 lets the next kernel's stand beside this one's.
    pub per_sm: u64,
    /// Blocks that this kernel has on an SM.
    pub resident: u64,
    /// Whether tiles begin at different places of k.
    pub turn: bool,
    /// Whether L2 is told that weights are read once.
    pub once: bool,
    /// Whether the next kernel is let in before nothing is left to ask for: see [`SwapAb::lead`].
    pub early: bool,
}

const fn swap_ab(m: u64, operands: u64, consumers: u64, depth: u64, split: u64, share: u64, per_sm: u64) -> SwapAb {
    let resident = 1;
    SwapAb { m, operands, consumers, depth, split, share, per_sm, resident, turn: false, once: false, early: false }
}

/// The instantiations: rows of x, operands of each consumer, consumers.
const SWAP_AB_KERNELS: &[(u64, u64, u64)] = &[
    (8, 1, 1),
    (8, 1, 2),
    (8, 2, 2),
    (16, 1, 1),
    (16, 1, 2),
    (16, 2, 2),
    (32, 1, 1),
    (32, 1, 2),
    (32, 2, 2),
    (64, 1, 1),
    (64, 1, 2),
    (64, 2, 2),
    (128, 1, 1),
    (128, 1, 2),
    (128, 1, 3),
    (128, 2, 2),
    (256, 1, 2),
];

/// The cuts that the heuristic weighs, in the order in which ties are settled.
pub const SWAP_AB: &[SwapAb] = &[
    swap_ab(8, 1, 1, 4, 1, 1, 2),
    swap_ab(8, 1, 1, 4, 2, 1, 2),
    swap_ab(8, 1, 2, 2, 1, 1, 2),
    swap_ab(8, 1, 2, 2, 2, 1, 2),
    swap_ab(8, 2, 2, 1, 1, 1, 2),
    swap_ab(8, 2, 2, 1, 2, 1, 2),
    swap_ab(8, 1, 1, 2, 1, 1, 2),
    swap_ab(8, 1, 1, 2, 2, 1, 2),
    swap_ab(8, 1, 2, 1, 2, 1, 2),
    swap_ab(8, 2, 2, 1, 1, 1, 1),
    swap_ab(16, 1, 1, 4, 1, 1, 2),
    swap_ab(16, 1, 1, 4, 2, 1, 2),
    swap_ab(16, 1, 2, 2, 1, 1, 2),
    swap_ab(16, 1, 2, 2, 2, 1, 2),
    swap_ab(16, 2, 2, 1, 1, 1, 2),
    swap_ab(16, 2, 2, 1, 2, 1, 2),
    swap_ab(16, 1, 1, 2, 1, 1, 2),
    swap_ab(16, 1, 1, 2, 2, 1, 2),
    swap_ab(16, 1, 2, 1, 2, 1, 2),
    swap_ab(16, 2, 2, 1, 1, 1, 1),
    swap_ab(32, 1, 1, 4, 1, 1, 2),
    swap_ab(32, 1, 1, 4, 2, 1, 2),
    swap_ab(32, 1, 2, 2, 1, 1, 2),
    swap_ab(32, 1, 2, 2, 2, 1, 2),
    swap_ab(32, 2, 2, 1, 1, 1, 2),
    swap_ab(32, 2, 2, 1, 2, 1, 2),
    swap_ab(32, 1, 1, 2, 1, 1, 2),
    swap_ab(32, 1, 1, 2, 2, 1, 2),
    swap_ab(32, 1, 2, 1, 2, 1, 2),
    swap_ab(32, 2, 2, 1, 1, 1, 1),
    swap_ab(64, 1, 1, 4, 1, 1, 2),
    swap_ab(64, 1, 1, 4, 2, 1, 2),
    swap_ab(64, 1, 2, 2, 1, 1, 2),
    swap_ab(64, 1, 2, 2, 2, 1, 2),
    swap_ab(64, 2, 2, 1, 1, 1, 2),
    swap_ab(64, 2, 2, 1, 2, 1, 2),
    swap_ab(64, 1, 1, 2, 1, 1, 2),
    swap_ab(64, 1, 1, 2, 2, 1, 2),
    swap_ab(64, 1, 2, 1, 2, 1, 2),
    swap_ab(64, 2, 2, 1, 1, 1, 1),
    swap_ab(128, 1, 2, 2, 1, 1, 1),
    swap_ab(128, 1, 2, 2, 2, 1, 1),
    swap_ab(128, 2, 2, 1, 1, 1, 1),
    swap_ab(128, 2, 2, 1, 2, 1, 1),
    swap_ab(128, 1, 2, 1, 2, 1, 1),
    swap_ab(256, 1, 2, 1, 1, 1, 1),
    swap_ab(256, 1, 2, 1, 2, 1, 1),
];

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
    /// Whether the sums of other blocks take the place of the ring.
    pub drained: bool,
    /// Where the gain of the norm lies in shared memory.
    pub gains: u64,
}

impl SwapAb {
    /// The cut that six digits name, `cfg` in a shape: the width's place from 1 on (8, 16, 32, 64, 128, 256), operands of
    /// 64 rows in all (1 or 2 of one consumer each, 3, or 4: two of two), slices in a stage, blocks that share k, blocks
    /// that share x, blocks of an SM (1; 2: its own and one of the next kernel; 3, 4 and 5: two, three and four of its
    /// own); and a seventh that adds up 1 `turn`, 2 `once`, 4 `early`.
    pub fn numbered(cfg: usize) -> Option<Self> {
        let digits: Vec<u64> = format!("{cfg:07}").bytes().map(|b| u64::from(b - b'0')).collect();
        let &[width, all, depth, split, share, room, flags] = digits.as_slice() else { return None };
        let (per_sm, resident) = match room {
            1 | 2 => (room, 1),
            3..=5 => (room - 1, room - 1),
            _ => return None,
        };
        let (operands, consumers) = if all == 4 { (2, 2) } else { (1, all) };
        let m = 4 << width;
        let clusters = [1, 2, 4, 8].contains(&split) && [1, 2, 4, 8].contains(&share) && split * share <= 8;
        let known = SWAP_AB_KERNELS.contains(&(m, operands, consumers)) && share * 8 <= m;
        (known && clusters && matches!(depth, 1..=4) && flags < 8).then(|| Self {
            resident,
            turn: flags & 1 != 0,
            once: flags & 2 != 0,
            early: flags & 4 != 0,
            ..swap_ab(m, operands, consumers, depth, split, share, per_sm)
        })
    }
    /// Blocks of a cluster.
    pub fn cluster(&self) -> u64 {
        self.split * self.share
    }
    /// Tiles that are computed at once. Clusters of more than two leave SMs over where a processing cluster (GPC) has no
    /// multiple of them: by the driver's count an H200 holds 30 of four with a block to an SM, and not 33, 62 with two and
    /// 92 with three.
    fn slots(&self, chip: &Chip) -> u64 {
        let blocks = u64::from(chip.sms) * self.resident;
        let clusters = if self.cluster() > 2 { blocks * 10 / 11 } else { blocks } / self.cluster();
        clusters.max(1) * self.share
    }
    /// Tiles as even as they get: all of the same height, as many as whole waves of clusters.
    pub fn cut(&self, p: &Problem, chip: &Chip) -> Cut {
        let silu = p.post == Post::SiluMul;
        // Gate rows have one half of the operands, up rows the other.
        let operands = (self.consumers * self.operands / if silu { 2 } else { 1 }).max(1);
        let (most, tiles_m, slots) = (64 * operands, p.m.div_ceil(self.m).max(1), self.slots(chip));
        let waves = (tiles_m * p.cols()).div_ceil(slots * most).max(1);
        // Many rows of x are stored 16 bytes at a time.
        let step = if self.m < WIDE { 1 } else { 8 };
        let even = (tiles_m * p.cols()).div_ceil(slots * waves).next_multiple_of(step).clamp(8, most);
        // The tensor cores are the bound of the widest, and multiply whole operands in any case.
        let cols = if self.m == 256 && self.split == 1 { most.min(p.cols().next_multiple_of(8).max(8)) } else { even };
        // Clusters are whole, whatever of their last tiles exists.
        let tiles = tiles_m * p.cols().div_ceil(cols).next_multiple_of(self.share);
        let pitch = cols.div_ceil(operands).next_multiple_of(8);

        let slice = (self.consumers * self.operands * pitch + self.m) * 128;
        let spare = (64 - pitch).saturating_sub(self.m) * 128;
        let squares = if p.pre { self.m * 16 } else { 0 };
        let each = self.operands * (self.m / 8).div_ceil(self.split) * self.consumers * 128 * 16;
        let sums = (self.split - 1) * (each + squares);
        let chunks = p.k.div_ceil(64 * self.depth).div_ceil(self.split);
        let gain = if p.pre { chunks * self.depth * 64 * 2 } else { 0 };
        // A larger exchange would take stages from the ring, and waits for the ring's end instead.
        let drained = sums > 32 << 10;
        let kept = if drained { 0 } else { sums };
        let budget = ((u64::from(chip.shared_optin) + RESERVED) / self.per_sm).saturating_sub(RESERVED + self.fixed());
        // At least two: what then does not fit is refused.
        let steps = chunks * tiles.div_ceil(slots);
        let room = budget.saturating_sub(spare + kept + gain) / (self.depth * slice);
        let stages = room.min(steps).clamp(2, MAX_STAGES);
        let blocks = if self.split == 1 { tiles.min(slots) } else { tiles * self.split };
        let gains = (stages * self.depth * slice + spare + kept).max(sums);
        let rows = cols * if silu { 2 } else { 1 };
        Cut { cols, rows, pitch, tiles, blocks, stages, shared: gains + gain, drained, gains }
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
    /// Stages still to be asked for when the next kernel is let in. Where a block fills an SM that is at once: the next
    /// one's begin wherever an SM has done its part, and not two to an SM.
    pub fn lead(&self, cut: &Cut) -> i64 {
        match (self.early, self.per_sm) {
            (false, _) => 0,
            (true, room) if room == self.resident => i64::from(i32::MAX),
            (true, _) => cut.stages as i64,
        }
    }
    /// Whether its share of an SM's shared memory holds two stages.
    pub fn fits(&self, p: &Problem, chip: &Chip) -> bool {
        (self.cut(p, chip).shared + self.fixed() + RESERVED) * self.per_sm <= u64::from(chip.shared_optin) + RESERVED
    }
    /// Whether a kernel of this width takes the shape: the norm is folded in up to 64 rows of bf16, before anything but a
    /// residual; gate and up rows need two operands.
    pub fn takes(&self, p: &Problem) -> bool {
        let norm = !p.pre || (self.m <= 64 && p.dtype == DType::Bf16 && p.post != Post::Residual);
        norm && (p.post != Post::SiluMul || self.operands == 2)
    }
    /// Static shared memory: the barriers of the largest ring and of the exchange, half a kilobyte for each warp that
    /// stores, and the sums of squares.
    pub fn fixed(&self) -> u64 {
        let squares = self.m.max(self.consumers * 16) * 4;
        ((2 * MAX_STAGES + 1) * 8).next_multiple_of(16) + self.consumers * 4 * 512 + squares
    }
    /// The two warps that copy are a warpgroup where its registers are needed.
    pub fn threads(&self) -> u64 {
        self.consumers * 128 + if self.m == 256 { 128 } else { 64 }
    }
    pub fn entry(&self, p: &Problem) -> String {
        format!("matmul_swap_ab_{}_n{}_r{}c{}", p.dtype.name(), self.m, self.operands, self.consumers)
    }
}

/// Stages of the largest ring.
const MAX_STAGES: u64 = 16;
/// Rows of x from which on tiles are multiples of 8 columns.
const WIDE: u64 = 32;
