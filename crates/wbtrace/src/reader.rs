//! Reads a recording as far as it goes, and says what was lost.
//!
//! A file may be cut off (the process died), torn, or made to hurt. No more memory is taken than one chunk plus the tables,
//! and the tables can only grow by bytes that the file really has.

use crate::crc::crc32;
use crate::record::*;
use crate::wire::Cursor;
use crate::writer::{Last, has, tag};
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

enum Decoded {
    Record(Record),
    Table,
    Unknown,
    Bad,
}

fn decode(
    body: &[u8],
    last: &mut Last,
    shapes: &mut HashMap<u32, Operation>,
    places: &mut HashMap<u32, [u32; 4]>,
) -> Decoded {
    let (tag, fields) = (body[0], &mut Cursor(&body[1..]));
    match tag {
        tag::SHAPE => match shape(fields) {
            Some((id, shape)) => {
                shapes.insert(id, shape);
                Decoded::Table
            }
            None => Decoded::Bad,
        },
        tag::PLACE => match five(fields) {
            Some([id, place @ ..]) => {
                places.insert(id, place);
                Decoded::Table
            }
            None => Decoded::Bad,
        },
        tag::RESET => {
            shapes.clear();
            places.clear();
            Decoded::Record(Record::Reset)
        }
        tag::OPERATION => match operation(fields, last, shapes, places) {
            Some(o) => Decoded::Record(Record::Operation(o)),
            None => Decoded::Bad,
        },
        tag::NAME..=tag::DEVICE | tag::CALL..=tag::DROPPED | tag::END => match plain(tag, fields, last) {
            Some(r) => Decoded::Record(r),
            None => Decoded::Bad,
        },
        _ => Decoded::Unknown,
    }
}

fn five(c: &mut Cursor<'_>) -> Option<[u32; 5]> {
    Some([c.u32()?, c.u32()?, c.u32()?, c.u32()?, c.u32()?])
}

fn three(c: &mut Cursor<'_>) -> Option<[u32; 3]> {
    Some([c.u32()?, c.u32()?, c.u32()?])
}

/// An operation with only its launch configuration filled in.
fn shape(c: &mut Cursor<'_>) -> Option<(u32, Operation)> {
    Some((
        c.u32()?,
        Operation {
            work: *Work::ALL.get(usize::from(c.byte()?))?,
            name: c.u32()?,
            grid: three(c)?,
            block: three(c)?,
            cluster: three(c)?,
            registers: c.u32()?,
            static_shared: c.u32()?,
            dynamic_shared: c.u32()?,
            ..Operation::default()
        },
    ))
}

fn span(c: &mut Cursor<'_>, last: &mut Last) -> Option<(u64, u64)> {
    let start = c.delta(last.time)?;
    last.time = start;
    Some((start, c.delta(start)?))
}

fn correlation(c: &mut Cursor<'_>, last: &mut Last) -> Option<u32> {
    last.correlation = c.delta(last.correlation)?;
    u32::try_from(last.correlation).ok()
}

fn operation(
    c: &mut Cursor<'_>,
    last: &mut Last,
    shapes: &HashMap<u32, Operation>,
    places: &HashMap<u32, [u32; 4]>,
) -> Option<Operation> {
    let flags = c.byte()?;
    let (shape, place) = (c.u32()?, c.u32()?);
    // The differences go on even where the tables have a hole.
    let (start, end) = span(c, last)?;
    let correlation = correlation(c, last)?;
    let mut node = 0;
    if flags & has::NODE != 0 {
        node = c.delta(last.node)?;
        last.node = node;
    }
    let (mut queued, mut submitted, mut bytes) = (0, 0, 0);
    if flags & has::LATENCY != 0 {
        (queued, submitted) = (c.delta(start)?, c.delta(start)?);
    }
    if flags & has::BYTES != 0 {
        bytes = c.varint()?;
    }
    let [device, context, stream, graph] = *places.get(&place)?;
    Some(Operation {
        device,
        context,
        stream,
        graph,
        start,
        end,
        queued,
        submitted,
        correlation,
        graph_node: node,
        bytes,
        ..*shapes.get(&shape)?
    })
}

fn plain(tag: u8, c: &mut Cursor<'_>, last: &mut Last) -> Option<Record> {
    let point = |c: &mut Cursor<'_>, last: &mut Last| {
        last.time = c.delta(last.time)?;
        Some(last.time)
    };
    Some(match tag {
        tag::NAME => Record::Name { id: c.u32()?, text: c.text()? },
        tag::FACT => Record::Fact { key: c.text()?, value: c.text()? },
        tag::CLOCK => Record::Clock { capture: point(c, last)?, realtime: c.varint()?, monotonic: c.varint()? },
        tag::PROCESS => Record::Process { pid: c.u32()?, parent: c.u32()?, command: c.text()? },
        tag::DEVICE => {
            let (id, sm, sms, name) = (c.u32()?, c.u32()?, c.u32()?, c.text()?);
            Record::Device { id, sm, sms, name, uuid: c.text().unwrap_or_default() }
        }
        tag::CALL => {
            let (driver, name, thread) = (c.byte()? != 0, c.u32()?, c.u32()?);
            let (start, end) = span(c, last)?;
            let correlation = correlation(c, last)?;
            let result = if c.0.is_empty() { 0 } else { c.u32()? };
            Record::Call(Call { name, driver, thread, start, end, correlation, result })
        }
        tag::SYNC => {
            let kind = c.u32()?;
            let (start, end) = span(c, last)?;
            let correlation = correlation(c, last)?;
            let [context, stream, event] = three(c)?;
            let sync_id = c.varint()?.wrapping_sub(1);
            let (stream, event) = (stream.wrapping_sub(1), event.wrapping_sub(1));
            Record::Sync(Sync { kind, start, end, correlation, context, stream, event, sync_id })
        }
        tag::EVENT => {
            let correlation = correlation(c, last)?;
            let [context, stream, event] = three(c)?;
            let sync_id = c.varint()?.wrapping_sub(1);
            let (stream, event) = (stream.wrapping_sub(1), event.wrapping_sub(1));
            Record::Event(EventRecord { correlation, context, stream, event, sync_id })
        }
        tag::OVERHEAD => {
            let (name, thread) = (c.u32()?, c.u32()?);
            let (start, end) = span(c, last)?;
            Record::Overhead(Overhead { name, thread, start, end, correlation: correlation(c, last)? })
        }
        tag::MARKER => {
            let edge = match c.byte()? {
                0 => MarkerEdge::Point,
                1 => MarkerEdge::Start,
                2 => MarkerEdge::End,
                _ => return None,
            };
            let (id, thread, time) = (c.u32()?, c.u32()?, point(c, last)?);
            Record::Marker(Marker { edge, id, thread, time, name: c.u32()?, domain: c.u32()? })
        }
        tag::EXTERNAL => Record::External { label: c.varint()?, correlation: correlation(c, last)? },
        tag::NODE => {
            last.node = c.delta(last.node)?;
            Record::Node { node: last.node, label: c.varint()? }
        }
        tag::LABEL => Record::Label { label: c.varint()?, name: c.u32()? },
        tag::WINDOW => {
            let name = c.u32()?;
            let (start, end) = span(c, last)?;
            Record::Window { name, start, end }
        }
        tag::DROPPED => Record::Dropped { count: c.varint()?, time: point(c, last)? },
        tag::END => Record::End { time: point(c, last)? },
        _ => return None,
    })
}
