//! The launches of the probe kernels in `kernels/common/probe_*.cu`. Pure: each function makes a value.

use crate::op::Launch;

const MEMORY: &str = "common/probe_memory";

/// How a memory probe is launched: `unroll` is 1, 2, 4 or 8 vectors of 16 bytes in flight a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub grid: u32,
    pub block: u32,
    pub unroll: u32,
}

impl Config {
    /// Every shape worth trying for an array of `vectors`: blocks that stay resident and loop, or one block a chunk.
    pub fn all(sms: u32, vectors: u64) -> Vec<Self> {
        let mut all = Vec::new();
        for block in [128, 256, 512, 1024] {
            for unroll in [1, 2, 4, 8] {
                let chunks = vectors.div_ceil(u64::from(block * unroll));
                all.push(Self { grid: sms * 2048 / block, block, unroll });
                if let Ok(grid) = u32::try_from(chunks) {
                    all.push(Self { grid, block, unroll });
                }
            }
        }
        all
    }
    fn launch(self, kind: &str) -> Launch {
        Launch::new(MEMORY, format!("probe_{kind}_u{}", self.unroll), [self.grid, 1, 1], [self.block, 1, 1])
    }
    /// Adds the wrapping sum of all 32-bit words of `vectors` 16-byte vectors to the word at `out`.
    pub fn read(self, from: u64, vectors: u64, out: u64) -> Launch {
        self.launch("read").ptr(from).i64(vectors as i64).ptr(out)
    }
    /// The same without the hint that makes L2 ask DRAM for 256 bytes at a time.
    pub fn read_once(self, from: u64, vectors: u64, out: u64) -> Launch {
        self.launch("read_once").ptr(from).i64(vectors as i64).ptr(out)
    }
    /// Writes a pattern of the index and `seed`: see [`pattern`].
    pub fn write(self, to: u64, vectors: u64, seed: u32) -> Launch {
        self.launch("write").ptr(to).i64(vectors as i64).arg(crate::op::Arg::U32(seed))
    }
    pub fn copy(self, from: u64, to: u64, vectors: u64) -> Launch {
        self.launch("copy").ptr(from).ptr(to).i64(vectors as i64)
    }
    /// The same without the hint to L2.
    pub fn copy_once(self, from: u64, to: u64, vectors: u64) -> Launch {
        self.launch("copy_once").ptr(from).ptr(to).i64(vectors as i64)
    }
    /// Reads an array that L2 holds `passes` times.
    pub fn read_l2(self, from: u64, vectors: u64, passes: u32, out: u64) -> Launch {
        self.launch("l2").ptr(from).i64(vectors as i64).i32(i64::from(passes)).ptr(out)
    }
}

/// What [`Config::write`] leaves in vector `index`.
pub fn pattern(index: u64, seed: u32) -> [u32; 4] {
    let h = (index as u32).wrapping_mul(2_654_435_761).wrapping_add(seed);
    [h, h ^ 0x9e37_79b9, h.wrapping_mul(3), !h]
}

/// Bytes of one stage of [`read_bulk`]; the array must be a multiple.
pub const BULK_STAGE: u64 = 16_384;
const BULK_STAGES: u32 = 6;

/// The sum of [`Config::read`] through the bulk copy engine (9.0 and newer).
pub fn read_bulk(from: u64, bytes: u64, out: u64, grid: u32, block: u32) -> Launch {
    Launch::new("common/probe_bulk", "probe_read_bulk", [grid, 1, 1], [block, 1, 1])
        .shared(BULK_STAGES * BULK_STAGE as u32)
        .ptr(from)
        .i64((bytes / BULK_STAGE) as i64)
        .ptr(out)
}

/// Independent chains of a thread of [`fma`].
pub const FMA_CHAINS: u64 = 8;

/// `rounds` multiply-adds `x = x * a + b` in each of eight chains a thread; `out` holds one float a thread.
pub fn fma(out: u64, grid: u32, block: u32, rounds: u32, a: f32, b: f32) -> Launch {
    Launch::new("common/probe_fma", "probe_fma", [grid, 1, 1], [block, 1, 1])
        .ptr(out)
        .i32(i64::from(rounds))
        .f32(a)
        .f32(b)
}

/// What [`fma`] leaves for a lane.
pub fn fma_result(lane: u32, rounds: u32, a: f32, b: f32) -> f32 {
    let chain = |c: u64| (0..rounds).fold((c as u32 + lane) as f32, |x, _| x.mul_add(a, b));
    (0..FMA_CHAINS).fold(0.0, |total, c| total + chain(c))
}

/// An empty kernel; `programmatic` ones release their successor and wait for their predecessor.
pub fn null(grid: u32, block: u32, programmatic: bool) -> Launch {
    let entry = if programmatic { "probe_null_pdl" } else { "probe_null" };
    let launch = Launch::new("common/probe_launch", entry, [grid, 1, 1], [block, 1, 1]);
    if programmatic { launch.programmatic() } else { launch }
}

/// An empty kernel with eight arguments, as a real one has.
pub fn null_args(grid: u32, block: u32) -> Launch {
    Launch::new("common/probe_launch", "probe_null_args", [grid, 1, 1], [block, 1, 1])
        .ptr(0)
        .ptr(0)
        .ptr(0)
        .ptr(0)
        .i64(0)
        .i32(0)
        .i32(0)
        .f32(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::image;

    #[test]
    fn every_probe_has_its_kernel() {
        let c = Config { grid: 1, block: 128, unroll: 4 };
        let mut launches = vec![
            c.read(0, 1, 0),
            c.write(0, 1, 0),
            c.read_once(0, 1, 0),
            c.copy(0, 0, 1),
            c.copy_once(0, 0, 1),
            c.read_l2(0, 1, 1, 0),
            read_bulk(0, BULK_STAGE, 0, 1, 128),
            fma(0, 1, 32, 1, 1.0, 1.0),
            null(1, 32, false),
            null(1, 32, true),
            null_args(1, 32),
        ];
        launches.extend([1, 2, 8].map(|unroll| Config { unroll, ..c }.read(0, 1, 0)));
        for launch in launches {
            let image = image::find(&launch.image).expect("the image is registered");
            // Entries made by a macro have their number pasted on.
            let stem = launch.entry.trim_end_matches(|c: char| c.is_ascii_digit());
            assert!(image.source.contains(stem), "{} in {}", launch.entry, launch.image);
        }
    }

    #[test]
    fn one_block_a_chunk_covers_the_array() {
        for c in Config::all(132, 1 << 28) {
            assert!(c.grid >= 132 && c.block * c.unroll <= 8192);
        }
        assert_eq!(Config::all(132, 1 << 28).len(), 32);
    }

    #[test]
    fn chains_add_up() {
        assert_eq!(fma_result(0, 0, 2.0, 1.0), 28.0);
        assert_eq!(fma_result(1, 1, 2.0, 1.0), (0..8).map(|c| 2.0 * (c as f32 + 1.0) + 1.0).sum::<f32>());
    }
}
