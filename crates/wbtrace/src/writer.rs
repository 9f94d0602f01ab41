//! Writes a recording chunk by chunk. A chunk is handed to the sink whole, so what a crash can lose is what was not flushed.

use crate::crc::crc32;
use crate::record::*;
use crate::tags::{Last, has, tag};
use crate::wire::Put;
use crate::{MAGIC, MAX_TEXT, SCHEMA};
use std::collections::HashMap;
use std::io::{self, Write};

/// A chunk is closed once it holds this much.
const CHUNK: usize = 128 << 10;
/// The tables are emptied when their texts pass this, so that a program with endless new names costs bounded memory.
const TABLE_BYTES: usize = 32 << 20;

/// All that is the same from launch to launch of one kernel.
type Shape = (u8, NameId, [u32; 3], [u32; 3], [u32; 3], u32, u32, u32);
/// Where operations run: device, context, stream, graph.
type Place = (u32, u32, u32, u32);

/// Streams records to `W`.
pub struct Writer<W: Write> {
    sink: W,
    chunk: Vec<u8>,
    record: Vec<u8>,
    names: HashMap<Box<str>, NameId>,
    shapes: HashMap<Shape, u32>,
    places: HashMap<Place, u32>,
    table_bytes: usize,
    last: Last,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a recording: the file header goes to the sink at once.
    pub fn new(mut sink: W) -> io::Result<Self> {
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&SCHEMA.to_le_bytes());
        header.extend_from_slice(&0u32.to_le_bytes());
        sink.write_all(&header)?;
        Ok(Self {
            sink,
            chunk: Vec::with_capacity(CHUNK + MAX_TEXT),
            record: Vec::with_capacity(256),
            names: HashMap::new(),
            shapes: HashMap::new(),
            places: HashMap::new(),
            table_bytes: 0,
            last: Last::default(),
            written: header.len() as u64,
        })
    }

    /// The number of a text, written out if it is new.
    pub fn name(&mut self, text: &str) -> io::Result<NameId> {
        if let Some(&id) = self.names.get(text) {
            return Ok(id);
        }
        let id = self.names.len() as NameId;
        self.names.insert(text.into(), id);
        self.table_bytes += text.len() + 64;
        self.put(tag::NAME, |r, _| {
            r.varint(id.into());
            r.text(text);
        })?;
        Ok(id)
    }

    /// Empties the tables if they have grown large. Every [`NameId`] got before is void if this returns true; call it
    /// between records, where none is held.
    pub fn trim(&mut self) -> io::Result<bool> {
        if self.table_bytes < TABLE_BYTES {
            return Ok(false);
        }
        self.names.clear();
        self.shapes.clear();
        self.places.clear();
        self.table_bytes = 0;
        self.put(tag::RESET, |_, _| {})?;
        Ok(true)
    }

    pub fn operation(&mut self, o: &Operation) -> io::Result<()> {
        let shape = (o.work as u8, o.name, o.grid, o.block, o.cluster, o.registers, o.static_shared, o.dynamic_shared);
        let next = self.shapes.len() as u32;
        let shape_id = *self.shapes.entry(shape).or_insert(next);
        if shape_id == next {
            self.table_bytes += 128;
            self.put(tag::SHAPE, |r, _| {
                r.varint(shape_id.into());
                r.push(o.work as u8);
                r.varint(o.name.into());
                for v in o.grid.iter().chain(&o.block).chain(&o.cluster) {
                    r.varint((*v).into());
                }
                for v in [o.registers, o.static_shared, o.dynamic_shared] {
                    r.varint(v.into());
                }
            })?;
        }
        let place = (o.device, o.context, o.stream, o.graph);
        let next = self.places.len() as u32;
        let place_id = *self.places.entry(place).or_insert(next);
        if place_id == next {
            self.table_bytes += 64;
            self.put(tag::PLACE, |r, _| {
                for v in [place_id, o.device, o.context, o.stream, o.graph] {
                    r.varint(v.into());
                }
            })?;
        }
        let mut flags = 0;
        flags |= if o.graph_node != 0 { has::NODE } else { 0 };
        flags |= if o.queued != 0 || o.submitted != 0 { has::LATENCY } else { 0 };
        flags |= if o.bytes != 0 { has::BYTES } else { 0 };
        self.put(tag::OPERATION, |r, last| {
            r.push(flags);
            r.varint(shape_id.into());
            r.varint(place_id.into());
            span(r, last, o.start, o.end);
            correlation(r, last, o.correlation);
            if flags & has::NODE != 0 {
                r.delta(o.graph_node, last.node);
                last.node = o.graph_node;
            }
            if flags & has::LATENCY != 0 {
                r.delta(o.queued, o.start);
                r.delta(o.submitted, o.start);
            }
            if flags & has::BYTES != 0 {
                r.varint(o.bytes);
            }
        })
    }

    /// Writes any record but names, resets and beginnings, which [`Writer::name`], [`Writer::trim`] and [`Writer::new`]
    /// write in their place.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Begin | Record::Name { .. } | Record::Reset => Ok(()),
            Record::Operation(o) => self.operation(o),
            Record::Fact { key, value } => self.put(tag::FACT, |r, _| {
                r.text(key);
                r.text(value);
            }),
            &Record::Clock { capture, realtime, monotonic } => self.put(tag::CLOCK, |r, last| {
                r.delta(capture, last.time);
                last.time = capture;
                r.varint(realtime);
                r.varint(monotonic);
            }),
            Record::Process { pid, parent, command } => self.put(tag::PROCESS, |r, _| {
                r.varint((*pid).into());
                r.varint((*parent).into());
                r.text(command);
            }),
            Record::Device { id, sm, sms, name, uuid } => self.put(tag::DEVICE, |r, _| {
                for v in [*id, *sm, *sms] {
                    r.varint(v.into());
                }
                r.text(name);
                r.text(uuid);
            }),
            Record::Call(c) => self.put(tag::CALL, |r, last| {
                r.push(u8::from(c.driver));
                r.varint(c.name.into());
                r.varint(c.thread.into());
                span(r, last, c.start, c.end);
                correlation(r, last, c.correlation);
                if c.result != 0 {
                    r.varint(c.result.into());
                }
            }),
            Record::Sync(s) => self.put(tag::SYNC, |r, last| {
                r.varint(s.kind.into());
                span(r, last, s.start, s.end);
                correlation(r, last, s.correlation);
                // Plus one and wrapping, so that "does not apply" takes one byte.
                for v in [s.context, s.stream.wrapping_add(1), s.event.wrapping_add(1)] {
                    r.varint(v.into());
                }
                r.varint(s.sync_id.wrapping_add(1));
            }),
            Record::Event(e) => self.put(tag::EVENT, |r, last| {
                correlation(r, last, e.correlation);
                for v in [e.context, e.stream.wrapping_add(1), e.event.wrapping_add(1)] {
                    r.varint(v.into());
                }
                r.varint(e.sync_id.wrapping_add(1));
            }),
            Record::Overhead(o) => self.put(tag::OVERHEAD, |r, last| {
                r.varint(o.name.into());
                r.varint(o.thread.into());
                span(r, last, o.start, o.end);
                correlation(r, last, o.correlation);
            }),
            Record::Marker(m) => self.put(tag::MARKER, |r, last| {
                r.push(m.edge as u8);
                r.varint(m.id.into());
                r.varint(m.thread.into());
                r.delta(m.time, last.time);
                last.time = m.time;
                r.varint(m.name.into());
                r.varint(m.domain.into());
            }),
            &Record::External { label, correlation: c } => self.put(tag::EXTERNAL, |r, last| {
                r.varint(label);
                correlation(r, last, c);
            }),
            &Record::Node { node, label } => self.put(tag::NODE, |r, last| {
                r.delta(node, last.node);
                last.node = node;
                r.varint(label);
            }),
            &Record::Label { label, name } => self.put(tag::LABEL, |r, _| {
                r.varint(label);
                r.varint(name.into());
            }),
            &Record::Window { name, start, end } => self.put(tag::WINDOW, |r, last| {
                r.varint(name.into());
                span(r, last, start, end);
            }),
            &Record::Dropped { count, time } => self.put(tag::DROPPED, |r, last| {
                r.varint(count);
                r.delta(time, last.time);
                last.time = time;
            }),
            &Record::End { time } => self.put(tag::END, |r, last| {
                r.delta(time, last.time);
                last.time = time;
            }),
        }
    }

    fn put(&mut self, tag: u8, fields: impl FnOnce(&mut Vec<u8>, &mut Last)) -> io::Result<()> {
        self.record.clear();
        self.record.push(tag);
        fields(&mut self.record, &mut self.last);
        self.chunk.varint(self.record.len() as u64);
        self.chunk.extend_from_slice(&self.record);
        if self.chunk.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    /// Hands the chunk under construction to the sink. After this returns, a crash of the process loses none of it.
    pub fn flush(&mut self) -> io::Result<()> {
        self.last = Last::default();
        if !self.chunk.is_empty() {
            // One write, so that a kill between the parts of a chunk is unlikely; a torn one is found by its checksum.
            let mut whole = Vec::with_capacity(self.chunk.len() + 8);
            whole.extend_from_slice(&(self.chunk.len() as u32).to_le_bytes());
            whole.extend_from_slice(&crc32(&self.chunk).to_le_bytes());
            whole.append(&mut self.chunk);
            self.written += whole.len() as u64;
            self.sink.write_all(&whole)?;
        }
        self.sink.flush()
    }

    /// Bytes handed to the sink.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Flushes and gives the sink back. Write [`Record::End`] first where the recording is complete.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.sink)
    }
}

fn span(r: &mut Vec<u8>, last: &mut Last, start: u64, end: u64) {
    r.delta(start, last.time);
    r.delta(end, start);
    last.time = start;
}

fn correlation(r: &mut Vec<u8>, last: &mut Last, correlation: u32) {
    r.delta(correlation.into(), last.correlation);
    last.correlation = correlation.into();
}
