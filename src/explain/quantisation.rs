//! What a launch plan loses to whole numbers: blocks that fit on a multiprocessor, waves of them, tiles that hang over the
//! edge of the problem, and what its launches cost. From the launches themselves, which are data.

use super::occupancy::{Block, Limits, Occupancy, limits, occupancy};
use crate::error::{Error, Result};
use crate::launch::image;
use crate::op::{Bindings, Chip, Launch, Op, Shape};
use crate::roofline::Ceilings;
use serde::Serialize;

/// One kernel of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Kernel {
    pub image: String,
    pub entry: String,
    pub grid: [u32; 3],
    pub blocks: u64,
    pub block: Block,
    pub occupancy: Occupancy,
    /// Blocks over all that the chip holds at once, and that rounded up.
    pub waves: f64,
    pub whole_waves: u64,
    /// Blocks of the busiest multiprocessor where blocks are dealt evenly.
    pub busiest: u64,
    /// Average over busiest: the share of the chip that works if every block takes equally long.
    pub balance: f64,
    /// Whether it may begin before its predecessor has ended.
    pub programmatic: bool,
    /// What its edge in a graph costs, ns.
    pub edge_ns: f64,
}

/// How far a size could grow in the same grids.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tiles {
    pub dimension: String,
    pub size: u64,
    /// Largest size found that launches the same grids.
    pub room: u64,
    /// Share of the tiles that is work.
    pub share: f64,
}

/// A variant's launches for a shape.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchPlan {
    pub variant: String,
    pub kernels: Vec<Kernel>,
    pub tiles: Vec<Tiles>,
    /// Edges of all launches, ns.
    pub launch_ns: f64,
}

/// The launches of a variant at invented, distinct addresses.
pub fn launches(op: &dyn Op, variant: &str, shape: &Shape, chip: &Chip) -> Result<Vec<Launch>> {
    let mut at = Bindings::new();
    for (i, buffer) in op.buffers(shape, 1)?.iter().enumerate() {
        at.set(buffer.name, (i as u64 + 1) << 40);
    }
    at.set("workspace", 1 << 50);
    Ok(op.launches(variant, shape, chip, &at)?)
}

/// What one block of a launch asks for, with the registers that the assembler reported.
///
/// # Errors
/// A kernel that this program was not built with, or not for that architecture.
pub fn block_of(launch: &Launch, limits: &Limits) -> Result<Block> {
    let image = image::find(&launch.image)
        .ok_or_else(|| Error::usage(format!("{} is not built into this program", launch.image)))?;
    let arch = format!("sm_{}", limits.sm);
    let resources = image
        .resources(&launch.entry, &format!("{arch}a"))
        .or_else(|| image.resources(&launch.entry, &arch))
        .ok_or_else(|| {
            Error::usage(format!("the registers of {} on {arch} are not known to this build", launch.entry))
                .try_next("build with nvcc for that architecture, or give --threads, --regs and --shared")
        })?;
    Ok(Block {
        threads: launch.block.iter().product(),
        registers: resources.registers,
        shared: resources.shared + launch.shared,
    })
}

/// The arithmetic of a variant's launches at a shape.
///
/// # Errors
/// A shape that the variant refuses; kernels whose registers this build does not know.
pub fn of(op: &dyn Op, variant: &str, shape: &Shape, chip: &Chip, ceilings: &Ceilings) -> Result<LaunchPlan> {
    let limits = limits(chip.sm)?;
    let launched = launches(op, variant, shape, chip)?;
    let kernel = |launch: &Launch| {
        let block = block_of(launch, limits)?;
        let occupancy = occupancy(limits, block).map_err(|e| e.at(&launch.entry))?;
        let blocks: u64 = launch.grid.iter().map(|g| u64::from(*g)).product();
        let sms = u64::from(chip.sms);
        let slots = u64::from(occupancy.blocks) * sms;
        let busiest = blocks.div_ceil(sms);
        let programmatic = launch.programmatic && chip.sm >= 90;
        Ok(Kernel {
            image: launch.image.clone(),
            entry: launch.entry.clone(),
            grid: launch.grid,
            blocks,
            block,
            waves: blocks as f64 / slots as f64,
            whole_waves: blocks.div_ceil(slots),
            busiest,
            balance: blocks as f64 / sms as f64 / busiest.max(1) as f64,
            occupancy,
            programmatic,
            edge_ns: if programmatic { ceilings.pdl_edge_ns } else { ceilings.graph_node_ns },
        })
    };
    let kernels = launched.iter().map(kernel).collect::<Result<Vec<_>>>()?;
    let grids = |s: &Shape| -> Option<Vec<[u32; 3]>> {
        op.supports(variant, s, chip).ok()?;
        Some(launches(op, variant, s, chip).ok()?.iter().map(|l| l.grid).collect())
    };
    let now: Vec<[u32; 3]> = launched.iter().map(|l| l.grid).collect();
    let sizes = shape.iter().filter(|(key, _)| SIZES.contains(key));
    let tiles = sizes.filter_map(|(key, _)| room(key, shape, &now, &grids)).collect();
    Ok(LaunchPlan { variant: variant.into(), launch_ns: kernels.iter().map(|k| k.edge_ns).sum(), kernels, tiles })
}

/// Dimensions that are cut into tiles.
const SIZES: [&str; 7] = ["m", "n", "rows", "cols", "v", "batch", "ctx"];

/// Largest size of a dimension, up to twice its own, that launches the same grids; sizes that the variant refuses tell
/// nothing. None where no larger size could be asked about.
fn room(key: &str, shape: &Shape, now: &[[u32; 3]], grids: &dyn Fn(&Shape) -> Option<Vec<[u32; 3]>>) -> Option<Tiles> {
    let size = shape.int(key).ok().filter(|s| *s > 0)?;
    let same = |v: u64| grids(&shape.clone().with(key, v)).map(|g| g == now);
    // The finest step that the variant takes.
    let step = [1u64, 2, 4, 8, 16, 32, 64, 128].into_iter().find(|s| same(size + s).is_some())?;
    let most = size / step + 1;
    // Grids grow with the size: the last step that changes nothing is found by halving.
    let (mut low, mut high) = (0, most);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if same(size + middle * step) == Some(true) { low = middle } else { high = middle }
    }
    if same(size + step) == Some(true) && low == 0 {
        low = 1;
    }
    let room = size + low * step;
    Some(Tiles { dimension: key.into(), size, room, share: size as f64 / room as f64 })
}

impl Kernel {
    /// The lines of a table: what, the arithmetic, the result.
    pub fn lines(&self, chip: &Chip) -> Vec<[String; 3]> {
        let [x, y, z] = self.grid;
        let b = self.block;
        let allowed: Vec<String> = self
            .occupancy
            .allowed
            .iter()
            .map(|(resource, n)| match n {
                &u32::MAX => format!("{} any", resource.name()),
                n => format!("{} {n}", resource.name()),
            })
            .collect();
        let bound: Vec<&str> = self.occupancy.binding.iter().map(|r| r.name()).collect();
        let of = |share: f64| format!("{:.0} %", 100.0 * share);
        vec![
            [
                "blocks".into(),
                format!(
                    "{x} × {y} × {z}, each {} threads of {} registers, {} B shared",
                    b.threads, b.registers, b.shared
                ),
                self.blocks.to_string(),
            ],
            [
                "occupancy".into(),
                format!("least of {}: by {}", allowed.join(", "), bound.join(", ")),
                format!("{} a multiprocessor", self.occupancy.blocks),
            ],
            [
                "waves".into(),
                format!(
                    "{} / ({} × {}) = {:.2}, in whole {}",
                    self.blocks, self.occupancy.blocks, chip.sms, self.waves, self.whole_waves
                ),
                format!("{} of the slots", of(self.waves / self.whole_waves.max(1) as f64)),
            ],
            [
                "balance".into(),
                format!(
                    "{} / {} = {:.2}, the busiest has {}",
                    self.blocks,
                    chip.sms,
                    self.blocks as f64 / f64::from(chip.sms),
                    self.busiest
                ),
                format!("{} of the chip", of(self.balance)),
            ],
            [
                "launch".into(),
                if self.programmatic { "a programmatic edge of a graph" } else { "an edge of a graph" }.into(),
                format!("{:.2} µs", self.edge_ns / 1e3),
            ],
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels;
    use crate::launch::image::TOOLCHAIN;

    #[test]
    fn room_ends_where_the_grid_grows() {
        // A tile of 128 rows and two of 64 columns.
        let grids = |s: &Shape| {
            let (m, n) = (s.int("m").unwrap(), s.int("n").unwrap());
            n.is_multiple_of(8).then(|| vec![[m.div_ceil(128) as u32, n.div_ceil(64) as u32, 1]])
        };
        let shape = Shape::parse("m=100,n=96").unwrap();
        let now = grids(&shape).unwrap();
        let m = room("m", &shape, &now, &grids).unwrap();
        assert_eq!((m.room, m.share), (128, 100.0 / 128.0));
        assert_eq!(room("n", &shape, &now, &grids).unwrap().room, 128);
        assert_eq!(room("n", &Shape::parse("m=128,n=128").unwrap(), &[[1, 2, 1]], &grids).unwrap().room, 128);
        assert_eq!(room("k", &shape, &now, &grids), None);
    }

    #[test]
    fn every_ops_default_plan_has_its_arithmetic() {
        if TOOLCHAIN.nvcc.is_none() {
            eprintln!("SKIPPED: this program was built without nvcc");
            return;
        }
        let (chip, ceilings) = (Chip::H200, Ceilings::h200());
        for op in kernels::OPS {
            let shape = &op.bench_shapes()[0];
            let plan = of(*op, op.choose(shape, &chip), shape, &chip, &ceilings)
                .unwrap_or_else(|e| panic!("{} {shape}: {e}", op.name()));
            assert!(!plan.kernels.is_empty() && plan.launch_ns > 0.0, "{plan:?}");
            for k in &plan.kernels {
                assert_eq!(k.blocks, k.grid.iter().map(|g| u64::from(*g)).product::<u64>());
                assert!(k.waves <= k.whole_waves as f64 && k.balance > 0.0 && k.balance <= 1.0, "{k:?}");
                assert!(k.busiest * 132 >= k.blocks && (k.busiest - 1) * 132 < k.blocks, "{k:?}");
                assert_eq!(k.lines(&chip).len(), 5);
            }
            assert!(plan.tiles.iter().all(|t| t.room >= t.size && t.share <= 1.0), "{plan:?}");
        }
    }
}
