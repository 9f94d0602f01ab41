//! Which kernel a shape gets, apart from the kernels: how many lanes share a row, how many blocks, and why.
//!
//! A thread holds four 16-byte vectors: at 64 registers a multiprocessor runs 1024 threads, so 64 kB are in flight,
//! which is what Hopper's latency times its bandwidth asks of each (40 to 64 kB).

use super::{Mask, Size};
use crate::op::{Chip, DType, OpResult};

/// Vectors of a thread of the cluster kernel, and of the fused one's warps.
pub const EACH: u64 = 4;

/// Vectors of each of the fused kernel's up to 512 threads: two where mask vectors need registers too, and where a row without a
/// mask is short enough (32768 x 4096: 127.9 µs, with four 131.7).
pub fn fused_each(s: &Size) -> u64 {
    match s.mask {
        Mask::Bool | Mask::Additive => 2,
        Mask::None if vectors(s) <= 512 || four(s) => 2,
        _ => EACH,
    }
}

/// Whether the fused kernel of four blocks a multiprocessor takes a row: 512 threads of two vectors, none idle.
pub fn four(s: &Size) -> bool {
    s.mask == Mask::None && whole_vectors(s) && vectors(s) == 1024
}

/// Vectors of the longest row that one block of the fused kernel holds.
fn fused_most(s: &Size) -> u64 {
    512 * if matches!(s.mask, Mask::Bool | Mask::Additive) { EACH / 2 } else { EACH }
}

/// Largest block.
pub const MOST_THREADS: u64 = 1024;
/// Blocks of a cluster that every 9.0 chip can place.
pub const MOST_BLOCKS: u64 = 8;

/// Whether every row is a whole number of 16-byte vectors.
pub fn whole_vectors(s: &Size) -> bool {
    s.cols.is_multiple_of(16 / s.dtype.size())
}

/// The same in runs of the bulk kernel, which begin on lines of 128 bytes.
fn vectors_in_lines(s: &Size) -> u64 {
    vectors(s) + if (s.cols * s.dtype.size()).is_multiple_of(128) { 0 } else { 7 }
}

/// 16-byte vectors that a row may touch: one more where rows do not begin on a boundary.
pub fn vectors(s: &Size) -> u64 {
    let lanes = 16 / s.dtype.size();
    let shift = if whole_vectors(s) { 0 } else { lanes - 1 };
    (s.cols + shift).div_ceil(lanes)
}

/// How the fused kernel divides its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fused {
    /// `lanes` lanes hold a row of `vectors` vectors each, and `rows` rows.
    Warp { lanes: u64, vectors: u64, rows: u64 },
    /// A block of `threads` holds a row.
    Block { threads: u64 },
}

/// Few lanes to a row: it then takes fewer steps of shuffles (1048576 x 256: 255.4 µs with eight lanes, 261 with 32; sixteen lanes
/// of two vectors, in blocks of three warps, 253.4).
pub fn fused(s: &Size) -> Option<Fused> {
    let v = vectors(s);
    Some(match v {
        0..=8 => Fused::Warp { lanes: 8, vectors: 1, rows: if whole_vectors(s) { 4 } else { 2 } },
        9..=16 => Fused::Warp { lanes: 8, vectors: 4, rows: 1 },
        17..=32 => Fused::Warp { lanes: 16, vectors: 2, rows: 1 },
        33..=64 => Fused::Warp { lanes: 16, vectors: 4, rows: 1 },
        65..=128 => Fused::Warp { lanes: 32, vectors: 4, rows: 1 },
        _ if v <= fused_most(s) => Fused::Block { threads: v.div_ceil(fused_each(s)).next_multiple_of(32) },
        _ => return None,
    })
}

/// Warps of a block of the fused kernel's warp form. Two: smaller blocks end and are replaced at more even intervals. Three where a
/// thread has two vectors: two make so many blocks that starting them takes longer than memory does (317.9 µs for 253.4).
pub fn warps(vectors: u64) -> u64 {
    if vectors == 2 { 3 } else { 2 }
}

/// Whether all threads that share a row have as many vectors as they can hold.
pub fn full(s: &Size, f: Fused) -> bool {
    let room = match f {
        Fused::Warp { lanes, vectors, .. } => lanes * vectors,
        Fused::Block { threads } => threads * fused_each(s),
    };
    whole_vectors(s) && vectors(s) == room
}

/// Blocks and threads of a cluster, and whether the row must be read twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub blocks: u64,
    pub threads: u64,
    pub long: bool,
}

pub fn cluster(s: &Size, chip: &Chip) -> Cluster {
    let v = vectors(s);
    // Blocks of 512: two share a multiprocessor, one loads while the other reduces and stores.
    let mut blocks = v.div_ceil(EACH * 512).next_power_of_two().min(MOST_BLOCKS);
    // Few rows: more blocks for each, down to 128 threads.
    while blocks < MOST_BLOCKS && s.rows * blocks < u64::from(chip.sms) && v > blocks * EACH * 128 {
        blocks *= 2;
    }
    let threads = v.div_ceil(blocks * EACH).next_multiple_of(32).clamp(32, MOST_THREADS);
    let long = v > blocks * EACH * threads;
    Cluster { blocks, threads: if long { 512 } else { threads }, long }
}

/// How the bulk kernel divides a row: `blocks` of `warps`, each with `each` vectors in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk {
    pub blocks: u64,
    pub warps: u64,
    pub each: u64,
    /// Each lane has [`KEPT`] vectors more in registers.
    pub most: bool,
    /// What is read is what L2 gives up first.
    pub once: bool,
}

/// Vectors of a warp's run (4 KiB): with twice as many the passes of a row take so long that fewer rows are being read
/// (4096 x 32768: 133.1 µs instead of 130.9).
const RUN: u64 = 256;

/// The run for a row of `v` vectors, as measured: 8 warps for 8192 columns of bf16, 12 for 16384; rows of odd width 6 for each
/// quarter of 50257.
fn run(s: &Size, v: u64) -> u64 {
    match v {
        0..=1024 => RUN / 2,
        1025..=2048 => 176,
        _ if whole_vectors(s) => RUN,
        _ => 264,
    }
}
/// Bytes of a block's part of a row: three of them are resident, one reads, one computes, one writes.
const PART: u64 = 64 << 10;
/// Shared memory that a block needs besides.
const BESIDE: u64 = 2 << 10;
/// Vectors in registers of each lane of the kernel for the longest rows.
pub const KEPT: u64 = 2;
/// Blocks of a cluster for the longest rows. A chip of more than 8 x 15 multiprocessors has a processing cluster that holds it.
const LARGE_CLUSTER: u64 = 16;

/// None where a row exceeds what the largest cluster holds.
pub fn bulk(s: &Size, chip: &Chip) -> Option<Bulk> {
    let v = vectors_in_lines(s).max(1);
    let t = &s.tuning;
    let (sms, room) = (u64::from(chip.sms), u64::from(chip.shared_optin).saturating_sub(BESIDE) / 16);
    if t.blocks == 0 && v > MOST_BLOCKS * room {
        // More warps hold more in registers, and take longer.
        let some = if t.warps > 0 { [t.warps; 3] } else { [16, 28, 32] };
        let mut large = some.into_iter().map(|warps| {
            let each = v.div_ceil(LARGE_CLUSTER * warps).saturating_sub(32 * KEPT).next_multiple_of(8);
            Bulk { blocks: LARGE_CLUSTER, warps, each, most: true, once: false }
        });
        return large.find(|b| sms > 8 * (LARGE_CLUSTER - 1) && b.warps * b.each <= room);
    }
    // One wave: all rows are on the chip at once, in blocks so small that they end at different times: stores of one row beside
    // loads of another.
    let one_wave = s.rows * v <= sms * room;
    let blocks = match t.blocks {
        0 if one_wave && v >= 4 * RUN => v.div_ceil(8 * RUN).next_power_of_two().clamp(2, MOST_BLOCKS),
        // Rows that need four blocks are better off with eight (1024 x 128256: 129.0 µs for 130.3); those of odd width with smaller
        // ones (2048 x 50257 in four blocks of six warps: 102.6 µs, in two of ten 103.0).
        0 => {
            let whole = whole_vectors(s);
            let part = if whole { PART } else { PART / 2 };
            match ((16 * v).div_ceil(part).next_power_of_two(), if whole { 2 } else { 4 }) {
                (few, most) if few <= most => few,
                _ => MOST_BLOCKS,
            }
        }
        blocks => blocks,
    };
    let warps = if t.warps > 0 { t.warps } else { v.div_ceil(blocks * run(s, v)).min(32) };
    let each = v.div_ceil(blocks * warps).next_multiple_of(8);
    (warps * each <= room).then_some(Bulk { blocks, warps, each, most: false, once: one_wave })
}

pub fn supports(variant: &str, s: &Size, chip: &Chip) -> OpResult<()> {
    let (cols, rows) = (s.cols, s.rows);
    match variant {
        "fused" if fused(s).is_none() => {
            let most = fused_most(s) * 16 / s.dtype.size();
            Err(crate::op_error!("softmax/fused: cols={cols} is above {most} (less 7 where rows are misaligned)"))
        }
        "cluster" if chip.sm < 90 => Err(crate::op_error!("softmax/cluster: needs sm_90, this is sm_{}", chip.sm)),
        "cluster" if rows * MOST_BLOCKS > i32::MAX as u64 => {
            Err(crate::op_error!("softmax/cluster: rows={rows} times {MOST_BLOCKS} blocks exceed the grid's 2^31 - 1"))
        }
        "bulk" if chip.sm < 90 => Err(crate::op_error!("softmax/bulk: needs sm_90, this is sm_{}", chip.sm)),
        "bulk" if matches!(s.mask, Mask::Bool | Mask::Additive) => Err(crate::op_error!(
            "softmax/bulk: takes mask=none and mask=causal; a mask array is read beside registers"
        )),
        "bulk" => match bulk(s, chip) {
            None => Err(crate::op_error!(
                "softmax/bulk: cols={cols} exceeds what the blocks of a cluster hold on this chip"
            )),
            Some(b) if rows * b.blocks > i32::MAX as u64 => {
                Err(crate::op_error!("softmax/bulk: rows={rows} times {} blocks exceed the grid's 2^31 - 1", b.blocks))
            }
            Some(_) => Ok(()),
        },
        "by_hand" if s.dtype != DType::Bf16 || s.mask != Mask::None || cols % 8 != 0 || cols > 8192 => {
            Err(crate::op_error!(
                "softmax/by_hand: takes dtype=bf16, mask=none and cols a multiple of 8 up to 8192, not cols={cols}"
            ))
        }
        _ if rows > i32::MAX as u64 => Err(crate::op_error!("softmax: rows={rows} exceeds the grid's 2^31 - 1")),
        _ => Ok(()),
    }
}

pub fn choose(s: &Size, chip: &Chip) -> &'static str {
    let v = vectors(s);
    // A few rows leave most multiprocessors without work unless several blocks share each.
    let wide = v > fused_most(s) || (v >= EACH * 256 && s.rows < u64::from(chip.sms));
    // A row in shared memory: above 2048 vectors, without a mask from 513 on where there is a row for each multiprocessor.
    let enough = s.rows >= u64::from(chip.sms);
    let bulky = v > fused_most(s) || (s.mask == Mask::None && v > 512 && enough && !four(s));
    if bulky && supports("bulk", s, chip).is_ok() {
        "bulk"
    } else if wide && supports("cluster", s, chip).is_ok() {
        "cluster"
    } else if fused(s).is_some() {
        "fused"
    } else {
        "online"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Shape;

    fn of(text: &str) -> Size {
        Size::of(&Shape::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn short_rows_share_a_warp() {
        let warp = |lanes, vectors, rows| Some(Fused::Warp { lanes, vectors, rows });
        let block = |threads| Some(Fused::Block { threads });
        let fused = |text: &str| fused(&of(text));
        assert_eq!(fused("rows=9,cols=64"), warp(8, 1, 4));
        assert_eq!(fused("rows=9,cols=65"), warp(8, 4, 1));
        assert_eq!(fused("rows=9,cols=128"), warp(8, 4, 1));
        assert_eq!(fused("rows=9,cols=129"), warp(16, 2, 1));
        assert_eq!(fused("rows=9,cols=256"), warp(16, 2, 1));
        assert_eq!(fused("rows=9,cols=264"), warp(16, 4, 1));
        assert_eq!(fused("rows=9,cols=1024"), warp(32, 4, 1));
        assert_eq!(fused("rows=9,cols=1025"), block(96));
        assert_eq!(fused("rows=9,cols=2048"), block(128));
        assert_eq!(fused("rows=9,cols=2048,mask=causal"), block(64));
        assert_eq!(fused("rows=9,cols=5000"), block(160));
        assert_eq!(fused("rows=9,cols=8192"), block(512));
        assert_eq!(fused("rows=9,cols=8184"), block(256));
        assert_eq!(fused("rows=9,cols=16384"), block(512));
        assert_eq!(fused("rows=9,cols=8192,mask=bool"), block(512));
        assert_eq!(fused("rows=9,cols=16385"), None);
        assert_eq!(fused("rows=9,cols=8192,dtype=f32"), block(512));
        let full = |text: &str| full(&of(text), super::fused(&of(text)).unwrap());
        assert!(full("rows=9,cols=256") && full("rows=9,cols=2048") && full("rows=9,cols=2048,mask=additive"));
        assert!(!full("rows=9,cols=255") && !full("rows=9,cols=2056") && !full("rows=9,cols=1000"));
    }

    #[test]
    fn every_row_has_room() {
        for cols in (1..70_000).step_by(37).chain([128_256, 151_936, 262_144, 262_145, 1 << 21]) {
            for dtype in ["bf16", "f32"] {
                for rows in [1, 64, 10_000] {
                    let s = of(&format!("rows={rows},cols={cols},dtype={dtype}"));
                    let v = vectors(&s);
                    match fused(&s) {
                        Some(Fused::Warp { lanes, vectors, .. }) => assert!(lanes * vectors >= v),
                        Some(Fused::Block { threads }) => assert!(threads * EACH >= v && threads <= 1024),
                        None => assert!(v > 2048),
                    }
                    let c = cluster(&s, &Chip::H200);
                    assert!(c.long || c.blocks * c.threads * EACH >= v, "{s:?} {c:?}");
                    assert!(c.threads.is_multiple_of(32) && c.threads <= 1024 && c.blocks <= 8);
                }
            }
        }
    }

    #[test]
    fn long_and_few_rows_take_a_cluster() {
        let h200 = Chip::H200;
        let a100 = Chip { sm: 80, sms: 108, l2_bytes: 40 << 20, shared_optin: 166_912 };
        assert_eq!(choose(&of("rows=65536,cols=1024"), &h200), "fused");
        assert_eq!(choose(&of("rows=32768,cols=4096"), &h200), "fused");
        assert_eq!(choose(&of("rows=8192,cols=8192"), &h200), "fused");
        assert_eq!(choose(&of("rows=8192,cols=8184"), &h200), "bulk");
        assert_eq!(choose(&of("rows=8192,cols=16384"), &h200), "bulk");
        assert_eq!(choose(&of("rows=8192,cols=16384,mask=causal"), &h200), "fused");
        assert_eq!(choose(&of("rows=8192,cols=32768"), &h200), "bulk");
        assert_eq!(choose(&of("rows=8192,cols=32768,mask=additive"), &h200), "cluster");
        assert_eq!(choose(&of("rows=2,cols=2m"), &h200), "bulk");
        assert_eq!(choose(&of("rows=64,cols=2m"), &h200), "bulk");
        assert_eq!(choose(&of("rows=2,cols=3m"), &h200), "cluster");
        assert_eq!(choose(&of("rows=8192,cols=16384"), &a100), "fused");
        assert_eq!(choose(&of("rows=8192,cols=40000"), &a100), "online");
        assert_eq!(choose(&of("rows=4,cols=16384"), &h200), "cluster");
        assert_eq!(cluster(&of("rows=1024,cols=128256"), &h200), Cluster { blocks: 8, threads: 512, long: false });
        assert_eq!(cluster(&of("rows=1024,cols=32768"), &h200), Cluster { blocks: 2, threads: 512, long: false });
        assert_eq!(cluster(&of("rows=4,cols=16384"), &h200), Cluster { blocks: 4, threads: 128, long: false });
        assert!(cluster(&of("rows=1,cols=2m"), &h200).long);
    }

    #[test]
    fn bulk_rows_are_in_shared_memory() {
        let part = |blocks, warps, each, once| Some(Bulk { blocks, warps, each, most: false, once });
        let bulk = |text: &str| bulk(&of(text), &Chip::H200);
        assert_eq!(bulk("rows=32768,cols=4096"), part(1, 4, 128, false));
        assert_eq!(bulk("rows=4096,cols=32768"), part(1, 16, 256, false));
        assert_eq!(bulk("rows=8192,cols=8192"), part(1, 8, 128, false));
        assert_eq!(bulk("rows=8192,cols=16384"), part(1, 12, 176, false));
        assert_eq!(bulk("rows=2048,cols=50257"), part(4, 6, 264, false));
        assert_eq!(bulk("rows=1024,cols=128256"), part(8, 8, 256, false));
        assert_eq!(bulk("rows=64,cols=128256"), part(8, 8, 256, true));
        // What fits no cluster of eight takes sixteen and registers; on a chip with fewer multiprocessors there may be no such cluster.
        let longest = bulk("rows=1,cols=2000000").unwrap();
        assert!(longest.most && longest.blocks == 16 && 16 * longest.warps * (longest.each + 32 * KEPT) >= 250_000);
        assert_eq!(super::bulk(&of("rows=1,cols=2000000"), &Chip { sms: 114, ..Chip::H200 }), None);
        assert_eq!(bulk("rows=1,cols=3m"), None);
        for cols in (1..70_000).step_by(37).chain([128_256, 151_936, 262_144, 262_145]) {
            for rows in [1, 64, 200, 10_000] {
                let b = bulk(&format!("rows={rows},cols={cols}")).unwrap();
                let needed = vectors_in_lines(&of(&format!("rows={rows},cols={cols}")));
                assert!(b.blocks * b.warps * b.each >= needed, "{cols} {b:?}");
                assert!(b.warps <= 32 && b.blocks <= 8 && b.each.is_multiple_of(8) && !b.most, "{cols} {b:?}");
            }
        }
    }
}
