//! Theoretical occupancy: how many blocks of a kernel fit on one multiprocessor, and which resource says no to one more.
//!
//! Limits by compute capability are those of the CUDA C++ Programming Guide's table and of CCCL's architecture traits.
//! The arithmetic is NVIDIA's: registers go out by warp in units of 256, warps in fours, shared memory in units of
//! 128 bytes after 1 KiB that the system keeps in each block since 8.0. On a card the driver's own answer is the judge.

pub mod driver;

use crate::error::{Error, Result};
use serde::Serialize;

const REGISTERS: u32 = 65_536;
const REGISTER_UNIT: u32 = 256;
const WARP_UNIT: u32 = 4;
const SHARED_UNIT: u32 = 128;
const SHARED_RESERVED: u32 = 1024;
const MOST_THREADS: u32 = 1024;
const MOST_REGISTERS: u32 = 255;

/// What a multiprocessor of a compute capability holds. Shared memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    pub sm: u32,
    pub warps: u32,
    pub blocks: u32,
    pub shared: u32,
    /// Largest shared memory of one block after opting in.
    pub shared_optin: u32,
}

const fn row(sm: u32, warps: u32, blocks: u32, shared_kib: u32) -> Limits {
    Limits { sm, warps, blocks, shared: shared_kib << 10, shared_optin: (shared_kib - 1) << 10 }
}

/// Capabilities known here.
pub static LIMITS: &[Limits] = &[
    row(80, 64, 32, 164),
    row(86, 48, 16, 100),
    row(89, 48, 24, 100),
    row(90, 64, 32, 228),
    row(100, 64, 32, 228),
    row(120, 48, 24, 100),
];

/// The limits of a capability written as one number, 90 for 9.0.
pub fn limits(sm: u32) -> Result<&'static Limits> {
    LIMITS.iter().find(|l| l.sm == sm).ok_or_else(|| {
        let known: Vec<String> = LIMITS.iter().map(|l| l.sm.to_string()).collect();
        Error::usage(format!("the limits of compute capability {sm} are not known here"))
            .try_next(format!("--sm with one of {}", known.join(", ")))
    })
}

/// What one block asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Static and dynamic shared memory, bytes.
    pub shared: u32,
}

/// A resource that bounds the number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    Warps,
    Blocks,
    Registers,
    Shared,
}

impl Resource {
    pub fn name(self) -> &'static str {
        match self {
            Self::Warps => "warps",
            Self::Blocks => "block slots",
            Self::Registers => "registers",
            Self::Shared => "shared memory",
        }
    }
}

/// The answer for one multiprocessor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Occupancy {
    pub blocks: u32,
    pub warps: u32,
    pub max_warps: u32,
    /// Blocks that each resource alone would allow.
    pub allowed: Vec<(Resource, u32)>,
    /// The resources that allow no more than `blocks`.
    pub binding: Vec<Resource>,
    /// Changes after which one more block fits, one line each.
    pub raise: Vec<String>,
}

impl Occupancy {
    pub fn share(&self) -> f64 {
        f64::from(self.warps) / f64::from(self.max_warps)
    }
}

fn by_registers(threads: u32, registers: u32) -> u32 {
    if registers == 0 {
        return u32::MAX;
    }
    let warp = (32 * registers).next_multiple_of(REGISTER_UNIT);
    REGISTERS / warp / WARP_UNIT * WARP_UNIT / threads.div_ceil(32)
}

fn by_shared(limits: &Limits, shared: u32) -> u32 {
    limits.shared / (shared + SHARED_RESERVED).next_multiple_of(SHARED_UNIT)
}

/// Blocks of a kernel on one multiprocessor.
///
/// # Errors
/// A block that cannot be launched at all: no or too many threads, registers or shared memory.
pub fn occupancy(limits: &Limits, block: Block) -> Result<Occupancy> {
    let Block { threads, registers, shared } = block;
    if threads == 0 || threads > MOST_THREADS {
        return Err(Error::usage(format!("a block of {threads} threads: it must have 1 to {MOST_THREADS}")));
    }
    if registers > MOST_REGISTERS {
        return Err(Error::usage(format!("{registers} registers a thread: there are at most {MOST_REGISTERS}")));
    }
    if shared > limits.shared_optin {
        return Err(Error::usage(format!(
            "{shared} bytes of shared memory: a block has at most {} on compute capability {}",
            limits.shared_optin, limits.sm
        )));
    }
    let warps = threads.div_ceil(32);
    let allowed = vec![
        (Resource::Warps, limits.warps / warps),
        (Resource::Blocks, limits.blocks),
        (Resource::Registers, by_registers(threads, registers)),
        (Resource::Shared, by_shared(limits, shared)),
    ];
    let blocks = allowed.iter().map(|(_, n)| *n).min().unwrap_or(0);
    if blocks == 0 {
        return Err(Error::usage(format!(
            "{threads} threads of {registers} registers exceed the {REGISTERS} registers of a multiprocessor"
        )));
    }
    let binding: Vec<Resource> = allowed.iter().filter(|(_, n)| *n == blocks).map(|(r, _)| *r).collect();
    let raise = binding.iter().map(|r| raise(limits, block, *r, blocks + 1)).collect();
    Ok(Occupancy { blocks, warps: blocks * warps, max_warps: limits.warps, allowed, binding, raise })
}

/// What would let this resource hold `wanted` blocks.
fn raise(limits: &Limits, block: Block, resource: Resource, wanted: u32) -> String {
    let none = |what: &str| format!("{what} cannot give a block more at this size");
    match resource {
        Resource::Registers => (1..block.registers)
            .rev()
            .find(|r| by_registers(block.threads, *r) >= wanted)
            .map_or_else(|| none("registers"), |r| format!("{r} registers a thread or fewer: {wanted} blocks")),
        Resource::Shared => (0..block.shared / SHARED_UNIT + 1)
            .rev()
            .map(|units| units * SHARED_UNIT)
            .find(|s| *s < block.shared && by_shared(limits, *s) >= wanted)
            .map_or_else(|| none("shared memory"), |s| format!("{s} bytes of shared memory or fewer: {wanted} blocks")),
        Resource::Warps => match limits.warps / wanted {
            0 => none("warps"),
            n if n * 32 < block.threads => format!("{} threads a block or fewer: {wanted} blocks", n * 32),
            _ => none("warps"),
        },
        Resource::Blocks => match block.threads.div_ceil(32) * limits.blocks {
            w if w >= limits.warps => "nothing: every warp slot is in use".into(),
            _ => format!(
                "larger blocks: {} slots are in use, and {} threads a block would fill the warps",
                limits.blocks,
                32 * limits.warps / limits.blocks
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sm: u32, threads: u32, registers: u32, shared: u32) -> Occupancy {
        occupancy(limits(sm).unwrap(), Block { threads, registers, shared }).unwrap()
    }

    #[test]
    fn each_resource_can_bind() {
        assert_eq!((at(90, 1024, 32, 0).blocks, at(90, 1024, 32, 0).warps), (2, 64));
        assert_eq!(at(90, 32, 16, 0).binding, [Resource::Blocks]);
        // 33 registers round to 1280 a warp: 51 warps, 48 in fours; six blocks of eight.
        let o = at(90, 256, 33, 0);
        assert_eq!((o.blocks, o.binding.as_slice()), (6, &[Resource::Registers][..]));
        // 100 KiB and the reserved KiB: two in 228, not one more.
        let o = at(90, 128, 32, 100 << 10);
        assert_eq!((o.blocks, o.binding.as_slice()), (2, &[Resource::Shared][..]));
        // Without the reserved KiB this would be two.
        assert_eq!(at(86, 128, 32, 50 << 10).blocks, 1);
        assert_eq!(at(86, 128, 32, 49 << 10).blocks, 2);
    }

    #[test]
    fn a_change_that_is_named_helps() {
        for (threads, registers, shared) in [(256, 33, 0), (256, 168, 0), (128, 128, 40_000), (384, 40, 9_000)] {
            for l in LIMITS {
                let block = Block { threads, registers, shared };
                let o = occupancy(l, block).unwrap();
                if o.binding.len() != 1 {
                    continue;
                }
                let number: Option<u32> = o.raise[0].split(' ').next().and_then(|w| w.parse().ok());
                let Some(n) = number else { continue };
                let less = match o.binding[0] {
                    Resource::Registers => Block { registers: n, ..block },
                    Resource::Shared => Block { shared: n, ..block },
                    _ => Block { threads: n, ..block },
                };
                assert!(occupancy(l, less).unwrap().blocks > o.blocks, "{l:?} {block:?} {o:?}");
            }
        }
    }

    #[test]
    fn impossible_blocks_say_why() {
        let l = limits(90).unwrap();
        for (block, word) in [
            (Block { threads: 0, registers: 1, shared: 0 }, "threads"),
            (Block { threads: 1024, registers: 128, shared: 0 }, "registers"),
            (Block { threads: 32, registers: 256, shared: 0 }, "registers"),
            (Block { threads: 32, registers: 1, shared: 233_000 }, "shared"),
        ] {
            assert!(occupancy(l, block).unwrap_err().what.contains(word));
        }
        assert!(limits(75).is_err());
    }
}
