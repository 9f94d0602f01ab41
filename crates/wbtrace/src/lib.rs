//! The recording format of the workbench: what a profiler saw of one process, streamed to disk while it runs.
//!
//! It is written inside processes that we do not own and that may die at any moment, so it needs nothing but `std`, is
//! append-only, and a reader takes every whole chunk that reached the disk. It is also what reports commit, so it is
//! compact: a kernel of a CUDA graph takes about a dozen bytes.
//!
//! # Layout
//!
//! All integers are little-endian; `varint` is LEB128, `zigzag` a varint of a signed value.
//!
//! ```text
//! file    := process+                              one recording, or those of several processes end to end
//! process := "WBTRACE\n" schema:u32 flags:u32(0) chunk*
//! chunk   := length:u32 crc32:u32 record*          length counts the records only, at most 16 MiB
//! record  := size:varint tag:u8 field*             size counts tag and fields
//! ```
//!
//! A reader skips tags that it does not know and fields past those that it knows; `schema` is raised when a known field
//! changes its meaning. Texts ([`Record::Name`]), launch configurations and places are written once, before their first
//! use, and referred to by number. Times are differences from the record before, starting from 0 in each chunk, so chunks
//! decode by themselves but for those tables. A [`Record::Reset`] empties the tables, which bounds the writer's memory.
//!
//! Times are nanoseconds on the capture's own clock; [`Record::Clock`] pairs it with the host's.

mod crc;
mod decode;
mod dump;
mod reader;
mod record;
mod tags;
mod wire;
mod writer;

pub use dump::dump;
pub use reader::{Error, Health, Reader};
pub use record::*;
pub use writer::Writer;

/// Raised when a known field changes its meaning.
pub const SCHEMA: u32 = 1;
/// The first bytes of every recording.
pub const MAGIC: &[u8; 8] = b"WBTRACE\n";
/// The most that one chunk may hold.
pub const MAX_CHUNK: usize = 16 << 20;
/// The longest text kept; longer ones are cut.
pub const MAX_TEXT: usize = 1 << 16;
