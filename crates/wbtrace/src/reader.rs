//! Reads a recording as far as it goes, and says what was lost.
//!
//! A file may be cut off (the process died), torn, or made to hurt. No more memory is taken than one chunk plus the tables,
//! and the tables can only grow by bytes that the file really has.

use crate::crc::crc32;
use crate::decode::{Decoded, decode};
use crate::record::*;
use crate::tags::Last;
use crate::wire::Cursor;
use crate::{MAGIC, MAX_CHUNK, SCHEMA};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};

/// Why a file cannot be read at all.
#[derive(Debug)]
pub enum Error {
    Io(io::Error),
    /// Does not begin with the magic bytes.
    NotARecording,
    /// Written by a newer version.
    Schema(u32),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "{e}"),
            Self::NotARecording => write!(f, "not a workbench recording (it does not begin with WBTRACE)"),
            Self::Schema(s) => write!(f, "the recording has schema {s}; this program reads up to {SCHEMA}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// What the reader had to leave out. Complete once [`Reader::next`] has returned None.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    pub bytes: u64,
    pub chunks: u64,
    pub records: u64,
    /// Chunks whose checksum does not fit.
    pub bad_chunks: u64,
    /// Records that could not be decoded, or that refer to a table entry that was lost.
    pub bad_records: u64,
    /// Records of tags that this version does not know.
    pub unknown_records: u64,
    /// Byte offset of the first flaw.
    pub first_flaw: Option<u64>,
    /// The file stops inside a chunk at this offset.
    pub truncated_at: Option<u64>,
    /// An end mark was read: the (last) recording of the file was closed in order.
    pub ended: bool,
}

impl Health {
    fn flaw(&mut self, offset: u64) {
        self.first_flaw.get_or_insert(offset);
    }
}

/// Streams records out of `R`. Names come as [`Record::Name`] before they are used; a name that is defined again replaces
/// the old one.
pub struct Reader<R: Read> {
    source: R,
    chunk: Vec<u8>,
    /// Position in the chunk, and the chunk's own offset in the file.
    at: usize,
    offset: u64,
    shapes: HashMap<u32, Operation>,
    places: HashMap<u32, [u32; 4]>,
    last: Last,
    health: Health,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the file header.
    pub fn new(mut source: R) -> Result<Self, Error> {
        let mut header = [0; 16];
        let n = fill(&mut source, &mut header)?;
        if n < 16 || &header[..8] != MAGIC {
            return Err(Error::NotARecording);
        }
        let schema = schema(&header[8..12]);
        if schema == 0 || schema > SCHEMA {
            return Err(Error::Schema(schema));
        }
        Ok(Self {
            source,
            chunk: Vec::new(),
            at: 0,
            offset: 16,
            shapes: HashMap::new(),
            places: HashMap::new(),
            last: Last::default(),
            health: Health { bytes: 16, ..Health::default() },
            done: false,
        })
    }

    pub fn health(&self) -> &Health {
        &self.health
    }

    /// The next record, None at the end. Flaws are counted in [`Health`], never returned; an error is the source's own.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> io::Result<Option<Record>> {
        loop {
            while self.at < self.chunk.len() {
                let offset = self.offset + self.at as u64;
                let mut cursor = Cursor(&self.chunk[self.at..]);
                let size = cursor.varint().and_then(|s| usize::try_from(s).ok());
                let Some(body) = size.filter(|&s| s > 0).and_then(|s| cursor.0.get(..s)) else {
                    // The rest of the chunk cannot be cut into records.
                    self.health.bad_records += 1;
                    self.health.flaw(offset);
                    self.at = self.chunk.len();
                    break;
                };
                self.at = self.chunk.len() - cursor.0.len() + body.len();
                let known = decode(body, &mut self.last, &mut self.shapes, &mut self.places);
                match known {
                    Decoded::Record(record) => {
                        self.health.records += 1;
                        self.health.ended |= matches!(record, Record::End { .. });
                        return Ok(Some(record));
                    }
                    Decoded::Table => {}
                    Decoded::Unknown => self.health.unknown_records += 1,
                    Decoded::Bad => {
                        self.health.bad_records += 1;
                        self.health.flaw(offset);
                    }
                }
            }
            match if self.done { Loaded::End } else { self.load_chunk()? } {
                Loaded::Chunk => {}
                Loaded::Begin => return Ok(Some(Record::Begin)),
                Loaded::End => return Ok(None),
            }
        }
    }

    /// Reads chunks until one is sound.
    fn load_chunk(&mut self) -> io::Result<Loaded> {
        loop {
            let start = self.health.bytes;
            let mut header = [0; 8];
            let n = fill(&mut self.source, &mut header)?;
            self.health.bytes += n as u64;
            if n < 8 {
                self.done = true;
                if n > 0 {
                    self.cut(start);
                }
                return Ok(Loaded::End);
            }
            if &header == MAGIC {
                // As a length this would be far more than a chunk may have, so it cannot be one.
                return self.begin(start);
            }
            let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let sum = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
            if length > MAX_CHUNK {
                // Not a length that the writer makes: what follows cannot be framed.
                self.done = true;
                self.health.bad_chunks += 1;
                self.health.flaw(start);
                return Ok(Loaded::End);
            }
            self.chunk.clear();
            // `take` and not a buffer of `length`: memory follows what is there, not what is claimed.
            let n = (&mut self.source).take(length as u64).read_to_end(&mut self.chunk)?;
            self.health.bytes += n as u64;
            if n < length {
                self.done = true;
                self.chunk.clear();
                self.at = 0;
                self.cut(start);
                return Ok(Loaded::End);
            }
            self.offset = start + 8;
            self.at = 0;
            self.last = Last::default();
            self.health.chunks += 1;
            if crc32(&self.chunk) == sum {
                return Ok(Loaded::Chunk);
            }
            self.health.bad_chunks += 1;
            self.health.flaw(start);
            self.chunk.clear();
        }
    }

    /// The rest of a file header inside the file.
    fn begin(&mut self, start: u64) -> io::Result<Loaded> {
        let mut rest = [0; 8];
        let n = fill(&mut self.source, &mut rest)?;
        self.health.bytes += n as u64;
        self.shapes.clear();
        self.places.clear();
        self.chunk.clear();
        self.at = 0;
        self.health.ended = false;
        if n == 8 && (1..=SCHEMA).contains(&schema(&rest[..4])) {
            return Ok(Loaded::Begin);
        }
        self.done = true;
        self.cut(start);
        Ok(Loaded::End)
    }

    fn cut(&mut self, offset: u64) {
        self.health.truncated_at = Some(offset);
        self.health.flaw(offset);
    }
}

/// What came next in the file.
enum Loaded {
    Chunk,
    Begin,
    End,
}

fn schema(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |v, &b| v << 8 | u32::from(b))
}

/// Reads until the buffer is full or the source ends; how much was read.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match source.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}
