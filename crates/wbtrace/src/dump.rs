//! A recording as JSON lines, for people and for `jq`. One object a record, names spelt out.

use crate::reader::{Health, Reader};
use crate::record::*;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};

/// Writes every record of `reader` as one JSON object a line, and returns what was lost.
pub fn dump<R: Read>(reader: &mut Reader<R>, mut out: impl Write) -> io::Result<Health> {
    let mut names: HashMap<NameId, String> = HashMap::new();
    while let Some(record) = reader.next()? {
        match record {
            Record::Name { id, text } => {
                names.insert(id, text);
            }
            Record::Reset => names.clear(),
            Record::Begin => {
                names.clear();
                writeln!(out, r#"{{"begin":true}}"#)?;
            }
            other => writeln!(out, "{}", line(&other, &names))?,
        }
    }
    Ok(*reader.health())
}

fn line(record: &Record, names: &HashMap<NameId, String>) -> String {
    let name = |id: &NameId| quote(names.get(id).map_or("?", String::as_str));
    let mut s = String::new();
    // Writing to a String cannot fail.
    let _ = match record {
        Record::Fact { key, value } => write!(s, r#"{{"fact":{},"value":{}}}"#, quote(key), quote(value)),
        Record::Clock { capture, realtime, monotonic } => {
            write!(s, r#"{{"clock":{capture},"realtime":{realtime},"monotonic":{monotonic}}}"#)
        }
        Record::Process { pid, parent, command } => {
            write!(s, r#"{{"process":{pid},"parent":{parent},"command":{}}}"#, quote(command))
        }
        Record::Device { id, sm, sms, name, uuid } => {
            write!(s, r#"{{"device":{id},"sm":{sm},"sms":{sms},"name":{},"uuid":{}}}"#, quote(name), quote(uuid))
        }
        Record::Operation(o) => {
            let _ = write!(
                s,
                r#"{{"op":"{}","name":{},"device":{},"stream":{},"start":{},"end":{},"correlation":{}"#,
                o.work.label(),
                name(&o.name),
                o.device,
                o.stream,
                o.start,
                o.end,
                o.correlation
            );
            if o.graph_node != 0 || o.graph != 0 {
                let _ = write!(s, r#","graph":{},"node":{}"#, o.graph, o.graph_node);
            }
            if o.queued != 0 || o.submitted != 0 {
                let _ = write!(s, r#","queued":{},"submitted":{}"#, o.queued, o.submitted);
            }
            if o.work == Work::Kernel {
                let _ = write!(
                    s,
                    r#","grid":{:?},"block":{:?},"cluster":{:?},"registers":{},"shared":{}"#,
                    o.grid,
                    o.block,
                    o.cluster,
                    o.registers,
                    u64::from(o.static_shared) + u64::from(o.dynamic_shared)
                );
            } else if o.work != Work::Graph {
                let _ = write!(s, r#","bytes":{}"#, o.bytes);
            }
            s.write_char('}')
        }
        Record::Call(c) => write!(
            s,
            r#"{{"call":{},"driver":{},"thread":{},"start":{},"end":{},"correlation":{},"result":{}}}"#,
            name(&c.name),
            c.driver,
            c.thread,
            c.start,
            c.end,
            c.correlation,
            c.result
        ),
        Record::Sync(y) => write!(
            s,
            r#"{{"sync":{},"start":{},"end":{},"correlation":{},"stream":{},"event":{},"sync_id":{}}}"#,
            y.kind, y.start, y.end, y.correlation, y.stream as i32, y.event as i32, y.sync_id as i64
        ),
        Record::Event(e) => write!(
            s,
            r#"{{"event":{},"correlation":{},"stream":{},"sync_id":{}}}"#,
            e.event as i32, e.correlation, e.stream as i32, e.sync_id as i64
        ),
        Record::Overhead(o) => write!(
            s,
            r#"{{"overhead":{},"thread":{},"start":{},"end":{},"correlation":{}}}"#,
            name(&o.name),
            o.thread,
            o.start,
            o.end,
            o.correlation
        ),
        Record::Marker(m) => write!(
            s,
            r#"{{"marker":"{:?}","name":{},"domain":{},"id":{},"thread":{},"time":{}}}"#,
            m.edge,
            name(&m.name),
            name(&m.domain),
            m.id,
            m.thread,
            m.time
        ),
        Record::External { label, correlation } => {
            write!(s, r#"{{"external":{label},"correlation":{correlation}}}"#)
        }
        Record::Node { node, label } => write!(s, r#"{{"node":{node},"label":{label}}}"#),
        Record::Label { label, name: n } => write!(s, r#"{{"label":{label},"name":{}}}"#, name(n)),
        Record::Window { name: n, start, end } => {
            write!(s, r#"{{"window":{},"start":{start},"end":{end}}}"#, name(n))
        }
        Record::Dropped { count, time } => write!(s, r#"{{"dropped":{count},"time":{time}}}"#),
        Record::End { time } => write!(s, r#"{{"end":{time}}}"#),
        Record::Begin | Record::Name { .. } | Record::Reset => Ok(()),
    };
    s
}

fn quote(text: &str) -> String {
    let mut s = String::with_capacity(text.len() + 2);
    s.push('"');
    for c in text.chars() {
        match c {
            '"' => s.push_str("\\\""),
            '\\' => s.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _ = write!(s, "\\u{:04x}", c as u32);
            }
            c => s.push(c),
        }
    }
    s.push('"');
    s
}
