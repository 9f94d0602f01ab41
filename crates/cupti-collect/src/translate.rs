//! One activity record of CUPTI in, one record of the recording out. Judgement (what a gap means) comes much later.

use crate::hub::{Hub, Note};
use crate::machine::MachineDevice;
use crate::names::{copy, copy_name, event_id, overhead_name, thread_of};
use crate::{api, clock, label};
use cupti_sys as cu;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::io::{self, Write};
use wbtrace::{Call, EventRecord, Marker, MarkerEdge, NameId, Operation, Overhead, Record, Sync, Work, Writer};

/// Writes records and remembers names.
pub struct Translator<W: Write> {
    writer: Writer<W>,
    hub: &'static Hub,
    /// Names by CUPTI's pointer. A pointer may come to mean another text (a module was unloaded), so the text is compared.
    pointers: HashMap<usize, (CString, NameId)>,
    calls: HashMap<(bool, u32), NameId>,
    devices: Vec<u32>,
    /// This thread, whose own CUDA calls are no part of the program.
    ours: u32,
    dropped: u64,
    pub records: u64,
    pub operations: u64,
}

impl<W: Write> Translator<W> {
    pub fn new(writer: Writer<W>, hub: &'static Hub) -> Self {
        Self {
            writer,
            hub,
            pointers: HashMap::new(),
            calls: HashMap::new(),
            devices: Vec::new(),
            ours: crate::thread_id(),
            dropped: 0,
            records: 0,
            operations: 0,
        }
    }

    /// Writes out one completed buffer.
    ///
    /// # Safety
    /// The buffer must have just been completed by the hub's CUPTI, and be passed once only.
    pub unsafe fn buffer(&mut self, buffer: *mut u8, valid: usize) -> io::Result<()> {
        if self.writer.trim()? {
            self.pointers.clear();
            self.calls.clear();
        }
        let mut result = Ok(());
        let lib = self.hub.lib;
        // SAFETY: as this function's own contract.
        let count = unsafe {
            cu::records(lib, buffer, valid, |record| {
                if result.is_ok() {
                    result = self.record(record);
                }
            })
        };
        self.records += count;
        result
    }

    /// Writes what has come up beside the buffers: notes, node labels, drops.
    pub fn aside(&mut self) -> io::Result<()> {
        for note in self.hub.take_notes() {
            let record = match note {
                Note::Fact(key, value) => Record::Fact { key, value },
                Note::Window(name, start, end) => Record::Window { name: self.writer.name(&name)?, start, end },
                Note::Label(label, name) => Record::Label { label, name: self.writer.name(&name)? },
            };
            self.writer.record(&record)?;
        }
        for (node, label) in self.hub.take_nodes() {
            self.writer.record(&Record::Node { node, label })?;
        }
        let dropped = self.hub.dropped.load(std::sync::atomic::Ordering::Acquire);
        if dropped > self.dropped {
            let (from, time) = self.hub.take_lost();
            if from > 0 {
                self.writer.record(&Record::Fact { key: "dropped_from".into(), value: from.to_string() })?;
            }
            self.writer.record(&Record::Dropped { count: dropped - self.dropped, time })?;
            self.dropped = dropped;
        }
        Ok(())
    }

    pub fn clock(&mut self) -> io::Result<()> {
        match clock::pair(self.hub.lib) {
            Some(pair) => self.writer.record(&pair),
            None => Ok(()),
        }
    }

    pub fn plain(&mut self, record: &Record) -> io::Result<()> {
        self.writer.record(record)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Closes the recording in order.
    pub fn end(mut self) -> io::Result<W> {
        self.aside()?;
        self.clock()?;
        let time = clock::timestamp(self.hub.lib).unwrap_or(0);
        self.writer.record(&Record::End { time })?;
        self.writer.into_inner()
    }

    fn record(&mut self, record: cu::Record<'_>) -> io::Result<()> {
        match record {
            cu::Record::Kernel(k) => {
                let name = self.pointer(k.name)?;
                self.operation(Operation {
                    work: Work::Kernel,
                    name,
                    device: k.deviceId,
                    context: k.contextId,
                    stream: k.streamId,
                    start: k.start,
                    end: k.end,
                    queued: k.queued,
                    submitted: k.submitted,
                    correlation: k.correlationId,
                    graph_node: k.graphNodeId,
                    graph: k.graphId,
                    grid: [k.gridX as u32, k.gridY as u32, k.gridZ as u32],
                    block: [k.blockX as u32, k.blockY as u32, k.blockZ as u32],
                    cluster: [k.clusterX, k.clusterY, k.clusterZ],
                    registers: k.registersPerThread.into(),
                    static_shared: k.staticSharedMemory as u32,
                    dynamic_shared: k.dynamicSharedMemory as u32,
                    bytes: 0,
                })
            }
            cu::Record::Memcpy(m) => {
                let work = copy(m.copyKind);
                let name = self.writer.name(&copy_name(work, m.srcKind, m.dstKind))?;
                self.operation(Operation {
                    work,
                    name,
                    device: m.deviceId,
                    context: m.contextId,
                    stream: m.streamId,
                    start: m.start,
                    end: m.end,
                    correlation: m.correlationId,
                    graph_node: m.graphNodeId,
                    graph: m.graphId,
                    bytes: m.bytes,
                    ..Operation::default()
                })
            }
            cu::Record::MemcpyPeer(m) => {
                let name = self.writer.name("memcpy PtoP")?;
                self.operation(Operation {
                    work: Work::CopyPtoP,
                    name,
                    device: m.deviceId,
                    context: m.contextId,
                    stream: m.streamId,
                    start: m.start,
                    end: m.end,
                    correlation: m.correlationId,
                    graph_node: m.graphNodeId,
                    graph: m.graphId,
                    bytes: m.bytes,
                    ..Operation::default()
                })
            }
            cu::Record::Memset(m) => {
                let name = self.writer.name("memset")?;
                self.operation(Operation {
                    work: Work::Memset,
                    name,
                    device: m.deviceId,
                    context: m.contextId,
                    stream: m.streamId,
                    start: m.start,
                    end: m.end,
                    correlation: m.correlationId,
                    graph_node: m.graphNodeId,
                    graph: m.graphId,
                    bytes: m.bytes,
                    ..Operation::default()
                })
            }
            cu::Record::Graph(g) => {
                let name = self.writer.name(&format!("graph {}", g.graphId))?;
                self.operation(Operation {
                    work: Work::Graph,
                    name,
                    device: g.deviceId,
                    context: g.contextId,
                    stream: g.streamId,
                    start: g.start,
                    end: g.end,
                    correlation: g.correlationId,
                    graph: g.graphId,
                    ..Operation::default()
                })
            }
            cu::Record::Runtime(c) => self.call(c, false),
            cu::Record::Driver(c) => self.call(c, true),
            cu::Record::Synchronization(s, id) => self.writer.record(&Record::Sync(Sync {
                kind: s.type_.0,
                start: s.start,
                end: s.end,
                correlation: s.correlationId,
                context: s.contextId,
                stream: s.streamId,
                event: s.cudaEventId,
                sync_id: event_id(id),
            })),
            cu::Record::CudaEvent(e, id) => self.writer.record(&Record::Event(EventRecord {
                correlation: e.correlationId,
                context: e.contextId,
                stream: e.streamId,
                event: e.eventId,
                sync_id: event_id(id),
            })),
            cu::Record::Overhead(o, correlation) => {
                let name = self.writer.name(overhead_name(o.overheadKind))?;
                let thread = thread_of(o.objectKind, &o.objectId);
                if thread == self.ours && thread != 0 {
                    return Ok(());
                }
                let (start, end) = (o.start, o.end);
                self.writer.record(&Record::Overhead(Overhead { name, thread, start, end, correlation }))
            }
            cu::Record::Marker(m) => {
                let flags = m.flags.0;
                let edge = match flags {
                    f if f & cu::CUpti_ActivityFlag::CUPTI_ACTIVITY_FLAG_MARKER_START.0 != 0 => MarkerEdge::Start,
                    f if f & cu::CUpti_ActivityFlag::CUPTI_ACTIVITY_FLAG_MARKER_END.0 != 0 => MarkerEdge::End,
                    f if f & cu::CUpti_ActivityFlag::CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS.0 != 0 => {
                        MarkerEdge::Point
                    }
                    // Acquire and release marks of NVTX's synchronisation extension.
                    _ => return Ok(()),
                };
                let name = if edge == MarkerEdge::End { self.writer.name("")? } else { self.pointer(m.name)? };
                let domain = if m.domain.is_null() { self.writer.name("")? } else { self.pointer(m.domain)? };
                let thread = thread_of(m.objectKind, &m.objectId);
                self.writer.record(&Record::Marker(Marker { edge, id: m.id, thread, time: m.timestamp, name, domain }))
            }
            cu::Record::ExternalCorrelation(e) if e.externalKind == label::KIND => {
                self.writer.record(&Record::External { label: e.externalId, correlation: e.correlationId })
            }
            cu::Record::ExternalCorrelation(_) | cu::Record::Other(_) => Ok(()),
        }
    }

    fn operation(&mut self, o: Operation) -> io::Result<()> {
        if !self.devices.contains(&o.device) {
            self.devices.push(o.device);
            if let Some(MachineDevice { name, sm, sms, uuid }) = MachineDevice::query(o.device) {
                self.writer.record(&Record::Device { id: o.device, sm, sms, name, uuid })?;
            }
        }
        self.operations += 1;
        self.writer.operation(&o)
    }

    fn call(&mut self, c: &cu::CUpti_ActivityAPI, driver: bool) -> io::Result<()> {
        if c.threadId == self.ours {
            return Ok(());
        }
        let name = match self.calls.get(&(driver, c.cbid)) {
            Some(&id) => id,
            None => {
                let text = api::name(self.hub.lib, driver, c.cbid);
                let text = text.unwrap_or_else(|| format!("{} {}", if driver { "driver" } else { "runtime" }, c.cbid));
                let id = self.writer.name(&text)?;
                self.calls.insert((driver, c.cbid), id);
                id
            }
        };
        self.writer.record(&Record::Call(Call {
            name,
            driver,
            thread: c.threadId,
            start: c.start,
            end: c.end,
            correlation: c.correlationId,
            result: c.returnValue,
        }))
    }

    /// The number of a text that CUPTI points to.
    fn pointer(&mut self, text: *const c_char) -> io::Result<NameId> {
        if text.is_null() {
            return self.writer.name("?");
        }
        // SAFETY: record names are NUL-terminated and live until CUPTI is finalised, which waits for this thread.
        let text = unsafe { CStr::from_ptr(text) };
        if let Some((known, id)) = self.pointers.get(&(text.as_ptr() as usize))
            && known.as_c_str() == text
        {
            return Ok(*id);
        }
        let id = self.writer.name(&text.to_string_lossy())?;
        if self.pointers.len() > 100_000 {
            self.pointers.clear();
        }
        self.pointers.insert(text.as_ptr() as usize, (text.to_owned(), id));
        Ok(id)
    }
}
