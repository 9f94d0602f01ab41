//! One process's records put together: labels to operations, events to waits, ends of ranges to their starts. The recorder
//! wrote them down as they came, buffer by buffer and thread by thread.

use super::{Process, Recording};
use crate::error::{Error, Result};
use crate::profile::import::{call_kind, unversioned};
use crate::profile::trace::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read;
use wbtrace::{MarkerEdge, Reader, Record, Work as Kind};

/// One file on its way into the recording.
pub(super) struct Join<'a> {
    pub(super) out: &'a mut Recording,
    pub(super) process: Process,
    pub(super) names: HashMap<u32, Name>,
    /// Label of a call by its correlation, and of a graph node.
    pub(super) external: HashMap<u32, u64>,
    pub(super) nodes: HashMap<u64, u64>,
    /// Event records by sync id, and by event in the order of their calls.
    pub(super) by_sync: HashMap<u64, (u32, u32)>,
    pub(super) by_event: HashMap<(u32, u32), Vec<(u32, u32)>>,
    pub(super) pending_syncs: Vec<wbtrace::Sync>,
    /// NVTX starts that await their end.
    pub(super) open_markers: HashMap<u32, wbtrace::Marker>,
    pub(super) devices_of: HashMap<u32, u32>,
    /// This process's number of a device to the recording's.
    pub(super) devices: HashMap<u32, u32>,
    pub(super) clocks: Vec<(u64, u64)>,
    /// Since when records may be missing, until the record that says how many.
    dropped_from: Option<i64>,
    pub(super) first_operation: usize,
    pub(super) first: [usize; 5],
}

impl<'a> Join<'a> {
    pub(super) fn new(out: &'a mut Recording) -> Self {
        let t = &out.trace;
        let first = [t.operations.len(), t.calls.len(), t.syncs.len(), t.overheads.len(), t.markers.len()];
        Self {
            process: Process::default(),
            names: HashMap::new(),
            external: HashMap::new(),
            nodes: HashMap::new(),
            by_sync: HashMap::new(),
            by_event: HashMap::new(),
            pending_syncs: Vec::new(),
            open_markers: HashMap::new(),
            devices_of: HashMap::new(),
            devices: HashMap::new(),
            clocks: Vec::new(),
            dropped_from: None,
            first_operation: first[0],
            first,
            out,
        }
    }

    /// Reads one process's part; true if another follows in the file. `broken` says why the stream ended early, if it did.
    pub(super) fn run<R: Read>(
        mut self,
        reader: &mut Reader<R>,
        before: &mut wbtrace::Health,
        broken: &RefCell<Option<String>>,
    ) -> Result<bool> {
        let mut more = false;
        while let Some(record) = reader.next().map_err(|e| Error::usage(e.to_string()))? {
            if record == Record::Begin {
                more = true;
                break;
            }
            self.record(record);
        }
        let mut health = *reader.health();
        let broken = broken.borrow();
        if broken.is_some() {
            // A stream may break between two chunks, where the reader has nothing to complain of.
            health.truncated_at.get_or_insert(health.bytes);
        }
        self.process.truncated_at = health.truncated_at;
        self.resolve();
        self.defects(&health, before, broken.as_deref());
        self.out.processes.push(self.process);
        *before = health;
        Ok(more)
    }

    /// The recording's number for a device: its own, unless another process has used that for another card.
    fn device(&mut self, id: u32, uuid: &str, info: DeviceInfo) {
        let out = &mut *self.out;
        let same = |i: usize| !uuid.is_empty() && out.uuids[i] == uuid;
        let known =
            (0..out.trace.devices.len()).find(|&i| same(i) || (uuid.is_empty() && out.trace.devices[i].id == id));
        let global = known.map_or_else(
            || {
                let free = |n: &u32| out.trace.devices.iter().all(|d| d.id != *n);
                std::iter::once(id).chain(0..).find(free).unwrap_or(id)
            },
            |i| out.trace.devices[i].id,
        );
        if known.is_none() {
            out.trace.devices.push(DeviceInfo { id: global, ..info });
            out.uuids.push(uuid.to_string());
        }
        self.devices.insert(id, global);
    }

    fn name(&mut self, id: u32) -> Name {
        match self.names.get(&id) {
            Some(&n) => n,
            None => self.out.trace.names.intern("?"),
        }
    }

    pub(super) fn see(&mut self, start: i64, end: i64) {
        if start > 0 {
            let (a, b) = self.process.span.unwrap_or((start, end));
            self.process.span = Some((a.min(start), b.max(end)));
        }
    }

    fn record(&mut self, record: Record) {
        match record {
            Record::Name { id, text } => {
                let name = self.out.trace.names.intern(&readable(text));
                self.names.insert(id, name);
            }
            Record::Reset => self.names.clear(),
            Record::Begin => {}
            Record::Fact { key, value } => {
                if key == "problem" {
                    let (name, sentence) = value.split_once(": ").unwrap_or((&value, ""));
                    self.process.problem = Some((name.into(), sentence.into()));
                }
                match key.as_str() {
                    "dropped_from" => self.dropped_from = value.parse().ok(),
                    _ => self.process.facts.push((key, value)),
                }
            }
            Record::Clock { capture, realtime, .. } => self.clocks.push((capture, realtime)),
            Record::Process { pid, parent, command } => {
                (self.process.pid, self.process.parent, self.process.command) = (pid, parent, command);
            }
            Record::Device { id, sm, sms, name, uuid } => {
                self.device(id, &uuid, DeviceInfo { id, name, sm, sms });
            }
            Record::Operation(o) => self.operation(&o),
            Record::Call(c) => {
                let name = self.name(c.name);
                let kind = call_kind(self.out.trace.names.text(name));
                self.see(c.start as i64, c.end as i64);
                self.process.calls += 1;
                self.out.trace.calls.push(Call {
                    kind,
                    name,
                    process: 0,
                    thread: c.thread.into(),
                    start: c.start as i64,
                    end: c.end as i64,
                    correlation: c.correlation.into(),
                    driver: c.driver,
                });
            }
            Record::Sync(s) => self.pending_syncs.push(s),
            Record::Event(e) => {
                if e.sync_id != u64::MAX {
                    self.by_sync.insert(e.sync_id, (e.stream, e.correlation));
                }
                self.by_event.entry((e.context, e.event)).or_default().push((e.correlation, e.stream));
            }
            Record::Overhead(o) => {
                let name = self.name(o.name);
                self.out.trace.overheads.push(Overhead {
                    name,
                    process: 0,
                    thread: o.thread.into(),
                    start: o.start as i64,
                    end: o.end as i64,
                });
            }
            Record::Marker(m) => match m.edge {
                MarkerEdge::Start => drop(self.open_markers.insert(m.id, m)),
                MarkerEdge::End => {
                    if let Some(start) = self.open_markers.remove(&m.id) {
                        self.marker(&start, m.time);
                    }
                }
                MarkerEdge::Point => self.marker(&m, m.time),
            },
            Record::External { label, correlation } => drop(self.external.insert(correlation, label)),
            Record::Node { node, label } => drop(self.nodes.insert(node, label)),
            Record::Label { label, name } => {
                let name = self.name(name);
                self.out.labels.insert(label, self.out.trace.names.text(name).to_string());
            }
            Record::Window { name, start, end } => {
                let name = self.name(name);
                let text = self.out.trace.names.text(name).to_string();
                self.out.windows.push((text, start as i64, end as i64));
            }
            Record::Dropped { count, time } => {
                self.process.dropped += count;
                let time = time.min(i64::MAX as u64) as i64;
                let from = self.dropped_from.take().unwrap_or(time).min(time);
                let (a, b) = self.process.dropped_between.unwrap_or((from, time));
                self.process.dropped_between = Some((a.min(from), b.max(time)));
            }
            Record::End { time } => {
                self.process.ended = true;
                self.see(time as i64, time as i64);
            }
        }
    }

    fn operation(&mut self, o: &wbtrace::Operation) {
        let name = self.name(o.name);
        let device = self.devices.get(&o.device).copied().unwrap_or(o.device);
        self.devices_of.insert(o.context, device);
        self.see(o.start as i64, o.end as i64);
        self.process.operations += 1;
        self.out.trace.operations.push(Operation {
            work: match o.work {
                Kind::Kernel => Work::Kernel,
                Kind::CopyHtoD => Work::Memcpy(CopyKind::HtoD),
                Kind::CopyDtoH => Work::Memcpy(CopyKind::DtoH),
                Kind::CopyDtoD => Work::Memcpy(CopyKind::DtoD),
                Kind::CopyHtoH => Work::Memcpy(CopyKind::HtoH),
                Kind::CopyPtoP => Work::Memcpy(CopyKind::PtoP),
                Kind::CopyOther => Work::Memcpy(CopyKind::Other),
                Kind::Memset => Work::Memset,
                Kind::Graph => Work::Graph,
            },
            name,
            process: 0,
            device,
            stream: o.stream.into(),
            start: o.start as i64,
            end: o.end as i64,
            correlation: o.correlation.into(),
            graph_node: o.graph_node,
            graph: o.graph,
            grid: o.grid,
            block: o.block,
            registers: o.registers,
            shared: o.static_shared.saturating_add(o.dynamic_shared),
            bytes: o.bytes,
            external: 0,
        });
    }

    pub(super) fn marker(&mut self, start: &wbtrace::Marker, end: u64) {
        let (name, domain) = (self.name(start.name), self.name(start.domain));
        let category = match self.out.trace.names.text(domain) {
            "" => self.out.trace.names.intern("nvtx"),
            _ => domain,
        };
        self.out.trace.markers.push(Marker {
            name,
            category,
            process: 0,
            thread: start.thread.into(),
            start: start.time as i64,
            end: end as i64,
        });
    }
}

/// C++ names demangled, and the version that runtime callbacks carry (`cudaLaunchKernel_v7000`) taken off.
pub(super) fn readable(text: String) -> String {
    if text.starts_with("_Z") {
        let demangled = cpp_demangle::Symbol::new(text.as_str()).ok().and_then(|s| s.demangle().ok());
        return demangled.unwrap_or(text);
    }
    match text.starts_with("cuda") {
        true => unversioned(&text).to_string(),
        false => text,
    }
}
