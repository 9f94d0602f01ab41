//! From events to the trace: which list each goes to, and what its fields mean there.

use super::event::{Category, Event};
use super::json::{self, Value};
use crate::profile::import::{Flaws, call_kind, copy_kind, unversioned};
use crate::profile::trace::{Call, CallKind, Defect, Marker, Name, Operation, Overhead, Sync, SyncKind, Trace, Work};
use std::collections::HashMap;

/// The trace while it is read.
#[derive(Default)]
pub struct Builder {
    trace: Trace,
    /// `baseTimeNanoseconds`, which may come after the events.
    base: Option<i64>,
    /// Digits after the decimal point were seen, so times are nanoseconds.
    fraction: bool,
    latest_start: i64,
    /// Kind of each call name, computed once.
    kinds: HashMap<Name, CallKind>,
    categories: [Name; 2],
}

impl Builder {
    /// A member of the outermost object beside the events.
    pub fn header(&mut self, key: &[u8], raw: &[u8]) {
        match key {
            b"deviceProperties" => self.trace.devices = super::devices(raw),
            b"baseTimeNanoseconds" => self.base = json::integer(raw),
            _ => {
                let (key, text) = (json::text(key).0, json::text(raw).0);
                if text.len() <= 200 {
                    self.trace.facts.push((key.into_owned(), text.into_owned()));
                }
            }
        }
    }

    /// Takes an event of the file at `offset`.
    pub fn take(&mut self, e: &Event<'_>, offset: u64, flaws: &mut Flaws) {
        use Category as C;
        if e.phase != b'X' || matches!(e.category, C::Ignored | C::None) {
            return;
        }
        if e.quoted {
            flaws.add("quoted_number", offset, "times are written as strings; read as numbers");
        }
        let device_work = matches!(e.category, C::Kernel | C::Memcpy | C::Memset | C::NsysDevice);
        let times = e.ts.zip(e.duration).and_then(|(ts, d)| Some((ts, ts.checked_add(d)?)));
        // An operation of the device ran, whenever that was.
        let unknown = (device_work && e.category != C::NsysDevice).then_some((i64::MIN, i64::MIN));
        let Some((start, end)) = times.or(unknown) else {
            flaws.add("missing_time", offset, "events without a readable ts and dur; left out");
            return;
        };
        self.fraction |= e.fraction;
        self.latest_start = self.latest_start.max(start);
        let raw = match e.category {
            C::Runtime => std::str::from_utf8(e.name).map_or(e.name, |n| unversioned(n).as_bytes()),
            _ => e.name,
        };
        let name = self.name(raw, offset, flaws);
        if device_work {
            return self.operation(e, name, start, end);
        }
        let thread = thread(e.tid);
        match e.category {
            C::Runtime | C::Driver => {
                let names = &self.trace.names;
                let kind = *self.kinds.entry(name).or_insert_with(|| call_kind(names.text(name)));
                let correlation = e.args.correlation.unwrap_or(0).max(0) as u64;
                let driver = e.category == C::Driver;
                self.trace.calls.push(Call { kind, name, process: 0, thread, start, end, correlation, driver });
            }
            C::Overhead => self.trace.overheads.push(Overhead { name, process: 0, thread, start, end }),
            C::Sync => self.sync(e, start, end),
            _ => {
                let which = usize::from(e.category == C::Operator);
                if self.categories[which] == Name(0) {
                    self.categories[which] = self.trace.names.intern(["annotation", "operator"][which]);
                }
                let category = self.categories[which];
                self.trace.markers.push(Marker { name, category, process: 0, thread, start, end });
            }
        }
    }

    fn name(&mut self, raw: &[u8], offset: u64, flaws: &mut Flaws) -> Name {
        if self.trace.names.is_empty() {
            // Name 0 is the empty text, so that a default record has no name.
            self.trace.names.intern("");
        }
        let (text, replaced) = json::text(raw);
        if replaced {
            flaws.add("invalid_utf8", offset, "names that are not UTF-8; the bad bytes are replaced");
        }
        self.trace.names.intern(&text)
    }

    fn operation(&mut self, e: &Event<'_>, name: Name, start: i64, end: i64) {
        let a = &e.args;
        let text = self.trace.names.text(name);
        let work = match e.category {
            Category::Memcpy => Work::Memcpy(match std::str::from_utf8(a.kind) {
                Ok(kind) if !kind.is_empty() => copy_kind(kind),
                _ => copy_kind(text),
            }),
            Category::Memset => Work::Memset,
            Category::NsysDevice if text.starts_with("Memcpy") || text.starts_with("[CUDA memcpy") => {
                Work::Memcpy(copy_kind(&text.replace("Host-to-Device", "HtoD").replace("Device-to-Host", "DtoH")))
            }
            Category::NsysDevice if text.starts_with("Memset") || text.starts_with("[CUDA memset") => Work::Memset,
            _ => Work::Kernel,
        };
        self.trace.operations.push(Operation {
            work,
            name,
            process: 0,
            device: a.device.or(trailing(e.pid)).unwrap_or(0).clamp(0, i64::from(u32::MAX)) as u32,
            stream: a.stream.or(trailing(e.tid)).unwrap_or(0) as u64,
            start,
            end,
            correlation: a.correlation.unwrap_or(0).max(0) as u64,
            graph_node: a.graph_node.unwrap_or(0),
            graph: a.graph.unwrap_or(0).clamp(0, i64::from(u32::MAX)) as u32,
            grid: a.grid,
            block: a.block,
            registers: a.registers.unwrap_or(0).clamp(0, i64::from(u32::MAX)) as u32,
            shared: a.shared.unwrap_or(0).clamp(0, i64::from(u32::MAX)) as u32,
            bytes: a.bytes.unwrap_or(0).max(0) as u64,
            external: 0,
        });
    }

    fn sync(&mut self, e: &Event<'_>, start: i64, end: i64) {
        let a = &e.args;
        let text = if a.sync_kind.is_empty() { e.name } else { a.sync_kind };
        let kind = match text {
            b"Event Sync" => SyncKind::Event,
            b"Stream Wait Event" => SyncKind::StreamWaitEvent,
            b"Stream Sync" => SyncKind::Stream,
            b"Context Sync" => SyncKind::Context,
            _ => SyncKind::Unknown,
        };
        let known = |v: Option<i64>| v.filter(|v| *v >= 0 && *v < i64::from(u32::MAX)).map(|v| v as u64);
        self.trace.syncs.push(Sync {
            kind,
            process: 0,
            device: a.device.or(trailing(e.pid)).unwrap_or(0).clamp(0, i64::from(u32::MAX)) as u32,
            stream: known(a.stream).unwrap_or(u64::MAX),
            start,
            end,
            correlation: a.correlation.unwrap_or(0).max(0) as u64,
            event_stream: known(a.event_stream),
            event_correlation: known(a.event_correlation),
            event: known(a.event).unwrap_or(0),
        });
    }

    pub fn finish(mut self, flaws: Flaws) -> Trace {
        self.trace.format = "kineto".into();
        self.trace.defects = flaws.into_defects();
        let joined = super::order::join(&mut self.trace);
        if joined > 0 {
            self.trace.defects.push(Defect {
                defect: "joined_by_order".into(),
                count: joined as u64,
                detail:
                    "kernels carry no correlation ids; on their one stream each was joined to the launch at its place"
                        .into(),
                ..Defect::default()
            });
        }
        self.trace.resolution_ns = if self.fraction { 1 } else { 500 };
        // Old files carry absolute times and no base; the year 2001 in nanoseconds tells them apart.
        self.trace.base_unix_ns = self.base.or((self.latest_start > 1_000_000_000_000_000_000).then_some(0));
        self.trace
    }
}

/// A thread as a number: itself, the number its name ends in, or a hash of the name.
fn thread(tid: Option<Value<'_>>) -> u64 {
    match trailing(tid) {
        Some(v) => v as u64,
        None => tid
            .and_then(Value::bytes)
            .unwrap_or(b"")
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)),
    }
}

/// A number, or the number that a text such as `Device 0`, `CUDA API 7` or `stream 7` ends in.
fn trailing(value: Option<Value<'_>>) -> Option<i64> {
    let value = value?;
    value.integer().or_else(|| {
        let text = value.bytes()?;
        let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        json::integer(&text[text.len() - digits..])
    })
}
