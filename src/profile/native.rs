//! Our own recordings (`crates/wbtrace`) as a [`Trace`](super::trace::Trace): joins what the recorder could only write down as it came.

use super::trace::*;
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::path::Path;
use wbtrace::{MarkerEdge, Reader, Record, Work as Kind};

/// A recording of one process, or of several merged.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub trace: Trace,
    /// Windows that the recording program marked (name, start, end): its steps.
    pub windows: Vec<(String, i64, i64)>,
    /// What the labels in [`Operation::external`] stand for.
    pub labels: HashMap<u64, String>,
    pub processes: Vec<Process>,
    /// UUIDs of `trace.devices`, in their order; empty texts where unknown.
    pub uuids: Vec<String>,
}

/// One recorded process and how well it was recorded.
#[derive(Clone, Debug, Default)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    pub command: String,
    pub operations: u64,
    pub calls: u64,
    /// Records that CUPTI dropped.
    pub dropped: u64,
    /// Closed in order; otherwise the process died or left without cleaning up.
    pub ended: bool,
    pub truncated_at: Option<u64>,
    /// What kept the recorder from working, if something did: its stable name and the sentence.
    pub problem: Option<(String, String)>,
    pub facts: Vec<(String, String)>,
    /// First and last time seen, on the capture's clock.
    pub span: Option<(i64, i64)>,
}

impl Process {
    /// A fact of the recording by its key.
    pub fn fact(&self, key: &str) -> Option<&str> {
        self.facts.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

/// Whether a file begins like a recording, gzipped or not.
pub fn is_recording(head: &[u8]) -> bool {
    head.starts_with(wbtrace::MAGIC)
}

/// How many bytes of a file can be framed, and so be followed by another recording; None if it is none at all.
pub fn sound_bytes(path: &Path) -> Option<u64> {
    let mut reader = Reader::new(BufReader::new(std::fs::File::open(path).ok()?)).ok()?;
    while reader.next().ok()?.is_some() {}
    let health = reader.health();
    Some(health.truncated_at.unwrap_or(health.bytes))
}

/// Reads one recording file (plain, or gzip where the name ends in `.gz`).
pub fn open(path: &Path) -> Result<Recording> {
    let mut recording = Recording::default();
    recording.add_file(path)?;
    recording.finish();
    Ok(recording)
}

/// Reads a recording from bytes.
pub fn read(source: impl Read) -> Result<Recording> {
    let mut recording = Recording::default();
    recording.add(source)?;
    recording.finish();
    Ok(recording)
}

impl Recording {
    /// Adds a file of another process. Call [`Recording::finish`] after the last.
    pub fn add_file(&mut self, path: &Path) -> Result<()> {
        let place = path.display();
        let file = std::fs::File::open(path).map_err(|e| Error::usage(format!("cannot open {place}: {e}")))?;
        let file = BufReader::with_capacity(1 << 18, file);
        match path.extension().is_some_and(|e| e == "gz") {
            true => self.add(flate2::bufread::MultiGzDecoder::new(file)),
            false => self.add(file),
        }
        .map_err(|e| e.at(place))
    }

    /// Adds a recording of one process.
    pub fn add(&mut self, source: impl Read) -> Result<()> {
        let mut reader = Reader::new(source).map_err(|e| Error::usage(e.to_string()))?;
        let mut before = wbtrace::Health::default();
        while Join::new(self).run(&mut reader, &mut before)? {}
        Ok(())
    }

    /// Sorts by start, so that the order does not depend on which buffer came first.
    pub fn finish(&mut self) {
        let t = &mut self.trace;
        t.format = "workbench".into();
        t.resolution_ns = 1;
        t.operations.sort_by_key(|o| (o.start, o.end, o.process, o.stream));
        t.calls.sort_by_key(|c| (c.start, std::cmp::Reverse(c.end), c.process, c.thread));
        t.syncs.sort_by_key(|s| (s.start, s.end));
        t.overheads.sort_by_key(|o| (o.start, o.end));
        t.markers.sort_by_key(|m| (m.start, std::cmp::Reverse(m.end)));
        self.windows.sort_by_key(|w| (w.1, w.2));
        self.processes.sort_by_key(|p| p.pid);
    }

    /// Gives graph operations the label of the plan's launch at the same place, for each graph launch that has exactly as
    /// many operations as there are labels and the same kernel names in the same order. For captures whose nodes carry no
    /// label of their own. Returns how many graph launches were labelled.
    pub fn label_by_order(&mut self, launches: &[(u64, &str)]) -> usize {
        let mut groups: HashMap<(u32, u64), Vec<usize>> = HashMap::new();
        for (i, o) in self.trace.operations.iter().enumerate().filter(|(_, o)| o.graph != 0 && o.correlation != 0) {
            groups.entry((o.process, o.correlation)).or_default().push(i);
        }
        let mut labelled = 0;
        for group in groups.values().filter(|g| g.len() == launches.len()) {
            let fits =
                |(&i, (_, name)): (&usize, &(u64, &str))| self.trace.names.text(self.trace.operations[i].name) == *name;
            if group.iter().zip(launches).all(fits) {
                labelled += 1;
                for (&i, &(label, _)) in group.iter().zip(launches) {
                    self.trace.operations[i].external = label;
                }
            }
        }
        labelled
    }
}

/// One file on its way into the recording.
struct Join<'a> {
    out: &'a mut Recording,
    process: Process,
    names: HashMap<u32, Name>,
    /// Label of a call by its correlation, and of a graph node.
    external: HashMap<u32, u64>,
    nodes: HashMap<u64, u64>,
    /// Event records by sync id, and by event in the order of their calls.
    by_sync: HashMap<u64, (u32, u32)>,
    by_event: HashMap<(u32, u32), Vec<(u32, u32)>>,
    pending_syncs: Vec<wbtrace::Sync>,
    /// NVTX starts that await their end.
    open_markers: HashMap<u32, wbtrace::Marker>,
    devices_of: HashMap<u32, u32>,
    /// This process's number of a device to the recording's.
    devices: HashMap<u32, u32>,
    clocks: Vec<(u64, u64)>,
    first_operation: usize,
    first: [usize; 5],
}

impl<'a> Join<'a> {
    fn new(out: &'a mut Recording) -> Self {
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
            first_operation: first[0],
            first,
            out,
        }
    }

    /// Reads one process's part; true if another follows in the file.
    fn run<R: Read>(mut self, reader: &mut Reader<R>, before: &mut wbtrace::Health) -> Result<bool> {
        let mut more = false;
        while let Some(record) = reader.next().map_err(|e| Error::usage(e.to_string()))? {
            if record == Record::Begin {
                more = true;
                break;
            }
            self.record(record);
        }
        let health = *reader.health();
        self.process.truncated_at = health.truncated_at;
        self.resolve();
        self.defects(&health, before);
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

    fn see(&mut self, start: i64, end: i64) {
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
                self.process.facts.push((key, value));
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
            Record::Dropped { count, .. } => self.process.dropped += count,
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

    fn marker(&mut self, start: &wbtrace::Marker, end: u64) {
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

    /// Joins that need the whole file: labels, events, open ranges, the process id, the clock.
    fn resolve(&mut self) {
        for o in &mut self.out.trace.operations[self.first_operation..] {
            let by_node = self.nodes.get(&o.graph_node).filter(|_| o.graph_node != 0);
            let label = by_node.or_else(|| self.external.get(&(o.correlation as u32)));
            o.external = label.copied().unwrap_or(0);
        }
        self.by_event.values_mut().for_each(|v| v.sort_unstable());
        for s in std::mem::take(&mut self.pending_syncs) {
            self.see(s.start as i64, s.end as i64);
            let record = self.by_sync.get(&s.sync_id).copied().or_else(|| {
                // The event's last record call before the wait.
                let records = self.by_event.get(&(s.context, s.event))?;
                let before = records.partition_point(|r| r.0 < s.correlation);
                records.get(before.checked_sub(1)?).map(|&(correlation, stream)| (stream, correlation))
            });
            let kind = match s.kind {
                1 => SyncKind::Event,
                2 => SyncKind::StreamWaitEvent,
                3 => SyncKind::Stream,
                4 => SyncKind::Context,
                _ => SyncKind::Unknown,
            };
            let wants_event = matches!(kind, SyncKind::Event | SyncKind::StreamWaitEvent);
            self.out.trace.syncs.push(Sync {
                kind,
                process: 0,
                device: self.devices_of.get(&s.context).copied().unwrap_or(0),
                stream: if s.stream == u32::MAX { u64::MAX } else { s.stream.into() },
                start: s.start as i64,
                end: s.end as i64,
                correlation: s.correlation.into(),
                event_stream: record.filter(|_| wants_event).map(|r| r.0.into()),
                event_correlation: record.filter(|_| wants_event).map(|r| r.1.into()),
                event: if wants_event && s.event != u32::MAX { s.event.into() } else { 0 },
            });
        }
        let end = self.process.span.map_or(0, |s| s.1.max(0)) as u64;
        for m in std::mem::take(&mut self.open_markers).into_values() {
            self.marker(&m, end.max(m.time));
        }
        let pid = self.process.pid;
        let shift = self.clock_shift();
        let t = &mut self.out.trace;
        let [ops, calls, syncs, overheads, markers] = self.first;
        let at = |time: &mut i64| *time += if *time == 0 { 0 } else { shift };
        for o in &mut t.operations[ops..] {
            o.process = pid;
            at(&mut o.start);
            at(&mut o.end);
        }
        for c in &mut t.calls[calls..] {
            c.process = pid;
            at(&mut c.start);
            at(&mut c.end);
        }
        for s in &mut t.syncs[syncs..] {
            s.process = pid;
            at(&mut s.start);
            at(&mut s.end);
        }
        for o in &mut t.overheads[overheads..] {
            o.process = pid;
            at(&mut o.start);
            at(&mut o.end);
        }
        for m in &mut t.markers[markers..] {
            m.process = pid;
            at(&mut m.start);
            at(&mut m.end);
        }
    }

    /// What to add to this file's times so that they are on the first file's clock. Both are the host's clock as a rule, and
    /// then nothing is added: correcting by the noise of the pairing would only do harm.
    fn clock_shift(&mut self) -> i64 {
        let mut offsets: Vec<i64> =
            self.clocks.iter().map(|&(capture, realtime)| realtime.wrapping_sub(capture) as i64).collect();
        offsets.sort_unstable();
        let Some(&offset) = offsets.get(offsets.len() / 2) else { return 0 };
        let near_host = offset.abs() < 1_000_000;
        let mine = if near_host { 0 } else { offset };
        let base = *self.out.trace.base_unix_ns.get_or_insert(mine);
        for (key, value) in &self.process.facts {
            let fact = (key.clone(), value.clone());
            if !self.out.trace.facts.contains(&fact) {
                self.out.trace.facts.push(fact);
            }
        }
        if let (Some(min), Some(max)) = (offsets.first(), offsets.last())
            && max - min > 1_000_000
        {
            // The host clock was stepped (NTP, a suspended machine) while the capture ran.
            self.out.trace.defects.push(Defect {
                defect: "clock_stepped".into(),
                count: 1,
                first_offset: None,
                detail: format!("the host clock moved by {} ns against the capture's", max - min),
            });
        }
        mine - base
    }

    fn defects(&mut self, health: &wbtrace::Health, before: &wbtrace::Health) {
        let pid = self.process.pid;
        let (chunks, records) = (health.bad_chunks - before.bad_chunks, health.bad_records - before.bad_records);
        let mut add = |defect: &str, count: u64, first_offset: Option<u64>, detail: String| {
            if count > 0 {
                self.out.trace.defects.push(Defect { defect: defect.into(), count, first_offset, detail });
            }
        };
        add(
            "dropped_records",
            self.process.dropped,
            None,
            format!("process {pid}: CUPTI ran out of buffers; operations or calls are missing and gaps are too long"),
        );
        add(
            "truncated",
            health.truncated_at.is_some().into(),
            health.truncated_at,
            format!("process {pid}: the recording stops inside a chunk; what came before is used"),
        );
        add(
            "malformed_event",
            chunks + records,
            health.first_flaw,
            format!("process {pid}: {chunks} chunks and {records} records are damaged"),
        );
        add(
            "unfinished",
            (!self.process.ended && health.truncated_at.is_none()).into(),
            None,
            format!("process {pid}: ended without closing its recording; its last moments may be missing"),
        );
    }
}

/// C++ names demangled, and the version that runtime callbacks carry (`cudaLaunchKernel_v7000`) taken off.
fn readable(text: String) -> String {
    if text.starts_with("_Z") {
        let demangled = cpp_demangle::Symbol::new(text.as_str()).ok().and_then(|s| s.demangle().ok());
        return demangled.unwrap_or(text);
    }
    if text.starts_with("cuda")
        && let Some((stem, version)) = text.rsplit_once("_v")
        && version.len() >= 4
        && version.bytes().all(|b| b.is_ascii_digit())
    {
        return stem.to_string();
    }
    text
}

/// What a call does, as far as gaps care.
fn call_kind(name: &str) -> CallKind {
    let stem = ["cuda", "cu"].iter().find_map(|p| name.strip_prefix(p)).unwrap_or(name);
    match stem {
        s if s.starts_with("GraphLaunch") => CallKind::GraphLaunch,
        s if s.starts_with("LaunchHostFunc") => CallKind::Other,
        s if ["Launch", "Memcpy", "Memset"].iter().any(|p| s.starts_with(p)) => CallKind::Launch,
        s if s.contains("Synchronize") => CallKind::Sync,
        _ => CallKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wbtrace::Writer;

    fn record(build: impl FnOnce(&mut Writer<Vec<u8>>)) -> Vec<u8> {
        let mut w = Writer::new(Vec::new()).unwrap();
        w.record(&Record::Process { pid: 42, parent: 1, command: "python decode.py".into() }).unwrap();
        w.record(&Record::Clock { capture: 1_000, realtime: 1_100, monotonic: 5 }).unwrap();
        build(&mut w);
        w.into_inner().unwrap()
    }

    #[test]
    fn joins_labels_events_and_ranges() {
        let bytes = record(|w| {
            let kernel = w.name("_Z3fooILi4EEvPf").unwrap();
            let launch = w.name("cudaLaunchKernel_v7000").unwrap();
            let range = w.name("step").unwrap();
            let none = w.name("").unwrap();
            let k = |start, node, correlation| wbtrace::Operation {
                name: kernel,
                device: 1,
                context: 3,
                stream: 7,
                start,
                end: start + 10,
                graph_node: node,
                correlation,
                static_shared: 16,
                dynamic_shared: 32,
                ..Default::default()
            };
            // Out of order, as buffers of several threads come.
            w.operation(&k(2_000, 0, 9)).unwrap();
            w.operation(&k(1_500, 77, 8)).unwrap();
            let mark = |edge, name, time| {
                Record::Marker(wbtrace::Marker { edge, id: 5, thread: 11, time, name, domain: none })
            };
            w.record(&mark(MarkerEdge::Start, range, 1_400)).unwrap();
            for r in [
                Record::Call(wbtrace::Call {
                    name: launch,
                    thread: 11,
                    start: 1_900,
                    end: 1_950,
                    correlation: 9,
                    ..Default::default()
                }),
                Record::External { label: 4, correlation: 9 },
                Record::Node { node: 77, label: 3 },
                Record::Sync(wbtrace::Sync {
                    kind: 2,
                    start: 1_960,
                    end: 1_970,
                    correlation: 10,
                    context: 3,
                    stream: 8,
                    event: 2,
                    sync_id: 600,
                }),
                Record::Event(wbtrace::EventRecord { correlation: 6, context: 3, stream: 7, event: 2, sync_id: 600 }),
                Record::Dropped { count: 12, time: 2_100 },
                mark(MarkerEdge::End, none, 2_050),
                Record::End { time: 2_200 },
            ] {
                w.record(&r).unwrap();
            }
        });
        let r = read(&bytes[..]).unwrap();
        let t = &r.trace;
        assert_eq!(t.operations.iter().map(|o| (o.start, o.external)).collect::<Vec<_>>(), [(1_500, 3), (2_000, 4)]);
        let o = &t.operations[0];
        assert_eq!((t.names.text(o.name), o.process, o.device, o.shared), ("void foo<4>(float*)", 42, 1, 48));
        assert_eq!((t.names.text(t.calls[0].name), t.calls[0].kind), ("cudaLaunchKernel", CallKind::Launch));
        let s = &t.syncs[0];
        assert_eq!((s.kind, s.device, s.stream), (SyncKind::StreamWaitEvent, 1, 8));
        assert_eq!((s.event_stream, s.event_correlation), (Some(7), Some(6)));
        let m = &t.markers[0];
        assert_eq!((t.names.text(m.name), t.names.text(m.category), m.start, m.end), ("step", "nvtx", 1_400, 2_050));
        assert_eq!(t.defects.len(), 1);
        assert_eq!((t.defects[0].defect.as_str(), t.defects[0].count), ("dropped_records", 12));
        assert!(r.processes[0].ended);
    }

    /// Without sync ids (before 12.8) a wait joins the event's last record before it.
    #[test]
    fn an_event_wait_takes_the_last_record_before_it() {
        let event =
            |correlation, stream| wbtrace::EventRecord { correlation, context: 1, stream, event: 2, sync_id: u64::MAX };
        let bytes = record(|w| {
            for e in [event(30, 9), event(10, 7), event(20, 8)] {
                w.record(&Record::Event(e)).unwrap();
            }
            let wait = wbtrace::Sync {
                kind: 2,
                start: 1,
                end: 2,
                correlation: 25,
                context: 1,
                stream: 5,
                event: 2,
                sync_id: u64::MAX,
            };
            w.record(&Record::Sync(wait)).unwrap();
        });
        let r = read(&bytes[..]).unwrap();
        assert_eq!((r.trace.syncs[0].event_stream, r.trace.syncs[0].event_correlation), (Some(8), Some(20)));
        assert_eq!(r.trace.defects[0].defect, "unfinished");
    }

    #[test]
    fn a_cut_recording_is_used_to_the_cut() {
        let mut bytes = record(|w| {
            let name = w.name("k").unwrap();
            for i in 0..3 {
                w.operation(&wbtrace::Operation { name, start: 100 * i + 1, end: 100 * i + 50, ..Default::default() })
                    .unwrap();
                w.flush().unwrap();
            }
        });
        bytes.truncate(bytes.len() - 2);
        let r = read(&bytes[..]).unwrap();
        assert_eq!(r.trace.operations.len(), 2);
        assert_eq!(r.trace.defects[0].defect, "truncated");
    }

    #[test]
    fn graph_launches_are_labelled_by_order_only_where_they_fit() {
        let bytes = record(|w| {
            let (a, b) = (w.name("a").unwrap(), w.name("b").unwrap());
            for (i, (name, correlation)) in [(a, 1), (b, 1), (b, 2), (a, 2), (a, 3)].into_iter().enumerate() {
                let start = 1_000 + 10 * i as u64;
                w.operation(&wbtrace::Operation {
                    name,
                    start,
                    end: start + 5,
                    correlation,
                    graph: 1,
                    ..Default::default()
                })
                .unwrap();
            }
        });
        let mut r = read(&bytes[..]).unwrap();
        assert_eq!(r.label_by_order(&[(1, "a"), (2, "b")]), 1);
        assert_eq!(r.trace.operations.iter().map(|o| o.external).collect::<Vec<_>>(), [1, 2, 0, 0, 0]);
    }

    /// Two processes that each call another card "device 0", and a third on the first's card.
    #[test]
    fn cards_are_told_apart_by_their_uuid() {
        let process = |pid, uuid: &str| {
            let mut w = Writer::new(Vec::new()).unwrap();
            w.record(&Record::Process { pid, parent: 1, command: String::new() }).unwrap();
            let (name, uuid) = ("NVIDIA H200".to_string(), uuid.to_string());
            w.record(&Record::Device { id: 0, sm: 90, sms: 132, name, uuid }).unwrap();
            let name = w.name("k").unwrap();
            w.operation(&wbtrace::Operation { name, start: pid.into(), end: 50, ..Default::default() }).unwrap();
            w.record(&Record::End { time: 60 }).unwrap();
            w.into_inner().unwrap()
        };
        let file = [process(1, "aa"), process(2, "bb"), process(3, "aa")].concat();
        let r = read(&file[..]).unwrap();
        assert_eq!(
            r.trace.operations.iter().map(|o| (o.process, o.device)).collect::<Vec<_>>(),
            [(1, 0), (2, 1), (3, 0)]
        );
        assert_eq!(r.processes.iter().map(|p| (p.pid, p.ended)).collect::<Vec<_>>(), [(1, true), (2, true), (3, true)]);
        assert!(r.trace.defects.is_empty(), "{:?}", r.trace.defects);
    }

    #[test]
    fn names_are_made_readable() {
        assert_eq!(readable("cudaMemcpyAsync_v3020".into()), "cudaMemcpyAsync");
        assert_eq!(readable("cuMemcpyHtoDAsync_v2".into()), "cuMemcpyHtoDAsync_v2");
        assert_eq!(readable("_Znonsense".into()), "_Znonsense");
        assert_eq!(call_kind("cudaGraphLaunch"), CallKind::GraphLaunch);
        assert_eq!(call_kind("cuLaunchKernelEx"), CallKind::Launch);
        assert_eq!(call_kind("cuGraphAddKernelNode_v2"), CallKind::Other);
        assert_eq!(call_kind("cudaEventSynchronize"), CallKind::Sync);
    }
}
