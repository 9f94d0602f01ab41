//! One record's bytes to its value. Fields past those that are known are left alone: a newer writer may have added them.

use crate::record::*;
use crate::tags::{Last, has, tag};
use crate::wire::Cursor;
use std::collections::HashMap;

/// What the bytes of one record were.
pub enum Decoded {
    Record(Record),
    Table,
    Unknown,
    Bad,
}

/// Decodes one record, tag and fields; tables and differences are brought forward.
pub fn decode(
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
