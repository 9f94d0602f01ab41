//! A trace that Perfetto (ui.perfetto.dev) and chrome://tracing open, with the ledger as a track of its own.
//!
//! Those viewers drop slices of one track that overlap without nesting. Here every track is split into lanes until each
//! nests, so that every record of the capture is on the screen.

use crate::profile::ledger::{Ledger, NONE};
use crate::profile::trace::{Name, Operation, SyncKind, Trace, Work};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Writes the whole trace; the ledger's segments, where it has them, become the first track.
pub fn write(trace: &Trace, ledgers: &[&Ledger], out: &mut dyn Write) -> io::Result<()> {
    let zero = zero(trace);
    let mut w = Writer { out, zero, first: true, next_track: 1 };
    write!(w.out, "{{\"displayTimeUnit\": \"ns\", \"traceEvents\": [")?;
    for ledger in ledgers {
        w.ledger(ledger)?;
    }
    w.devices(trace)?;
    w.untimed(trace)?;
    w.syncs(trace)?;
    w.hosts(trace)?;
    write!(w.out, "\n]}}\n")
}

/// Earliest time of the capture: times are written relative to it, because viewers read them as doubles.
fn zero(trace: &Trace) -> i64 {
    let ops = trace.operations.iter().filter(|o| o.timed()).map(|o| o.start);
    let host = trace.calls.iter().map(|c| c.start).chain(trace.markers.iter().map(|m| m.start));
    ops.chain(host).min().unwrap_or(0)
}

/// What a record says of an operation beyond its name and times, as members of `args`.
fn arguments(index: usize, o: &Operation) -> String {
    let mut args = format!(r#""record": {index}, "correlation": {}"#, o.correlation);
    match o.work {
        Work::Kernel | Work::Graph => {
            args += &format!(r#", "grid": {:?}, "block": {:?}, "registers": {}"#, o.grid, o.block, o.registers);
        }
        Work::Memcpy(_) | Work::Memset => args += &format!(r#", "bytes": {}"#, o.bytes),
    }
    if o.graph_node != 0 {
        args += &format!(r#", "graph": {}, "graph node": {}"#, o.graph, o.graph_node);
    }
    args
}

/// A slice before it has a lane.
struct Slice {
    start: i64,
    end: i64,
    text: Name,
    /// JSON members of `args`, without braces.
    args: String,
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    zero: i64,
    first: bool,
    next_track: u64,
}

impl Writer<'_> {
    fn event(&mut self, body: &str) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "" } else { "," };
        write!(self.out, "{comma}\n{{{body}}}")
    }

    fn slice(&mut self, pid: u64, tid: u64, (start, end): (i64, i64), name: &str, args: &str) -> io::Result<()> {
        let (ts, duration) = (micros(start.saturating_sub(self.zero)), micros(end.saturating_sub(start)));
        let name = quoted(name);
        self.event(&format!(
            r#""ph": "X", "pid": {pid}, "tid": {tid}, "ts": {ts}, "dur": {duration}, "name": {name}, "args": {{{args}}}"#
        ))
    }

    fn named(&mut self, what: &str, pid: u64, tid: u64, name: &str) -> io::Result<()> {
        let name = quoted(name);
        self.event(&format!(r#""ph": "M", "pid": {pid}, "tid": {tid}, "name": "{what}", "args": {{"name": {name}}}"#))
    }

    fn ledger(&mut self, l: &Ledger) -> io::Result<()> {
        if l.segments.is_empty() {
            return Ok(());
        }
        let pid = self.track();
        self.named("process_name", pid, 0, &format!("ledger of device {}", l.device))?;
        self.named("thread_name", pid, 1, "every nanosecond")?;
        for s in &l.segments {
            let line = &l.lines[s.line as usize];
            let kind = quoted(&format!("{:?}", line.kind).to_lowercase());
            let args = match l.pieces.get(s.piece as usize) {
                Some(p) => {
                    let index = |i: u32| if i == NONE { "null".into() } else { i.to_string() };
                    format!(
                        r#""kind": {kind}, "previous": {}, "next": {}, "launch": {}, "record": {}, "runner-up": {}, "why it lost": {}"#,
                        index(p.previous),
                        index(p.next),
                        index(p.launch),
                        index(p.record),
                        quoted(p.runner_up.text()),
                        quoted(&p.why.text(p.margin)),
                    )
                }
                None => format!(r#""kind": {kind}"#),
            };
            self.slice(pid, 1, (s.start, s.end), &line.name, &args)?;
        }
        Ok(())
    }

    fn devices(&mut self, trace: &Trace) -> io::Result<()> {
        let mut streams: BTreeMap<(u32, u32, u64), Vec<Slice>> = BTreeMap::new();
        for (i, o) in trace.operations.iter().enumerate().filter(|(_, o)| o.timed()) {
            let slice = Slice { start: o.start, end: o.end, text: o.name, args: arguments(i, o) };
            streams.entry((o.device, o.process, o.stream)).or_default().push(slice);
        }
        let mut device = None;
        let mut pid = 0;
        for ((d, process, stream), slices) in streams {
            if device != Some(d) {
                pid = self.track();
                let name = trace.devices.iter().find(|i| i.id == d).map_or("", |i| i.name.as_str());
                self.named("process_name", pid, 0, format!("device {d} {name}").trim_end())?;
                device = Some(d);
            }
            let name = if process == 0 { format!("stream {stream}") } else { format!("stream {stream} of {process}") };
            self.lanes(trace, pid, &name, slices)?;
        }
        Ok(())
    }

    /// Operations that have no place on the time line, each at its launch.
    fn untimed(&mut self, trace: &Trace) -> io::Result<()> {
        let lost: Vec<(usize, &Operation)> = trace.operations.iter().enumerate().filter(|(_, o)| !o.timed()).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let launches: HashMap<_, _> = trace.calls.iter().map(|c| ((c.process, c.correlation), c.start)).collect();
        let slices = lost.into_iter().map(|(i, o)| {
            let at = launches.get(&(o.process, o.correlation)).copied().unwrap_or(self.zero);
            let args = arguments(i, o) + &format!(r#", "recorded start": {}, "recorded end": {}"#, o.start, o.end);
            Slice { start: at, end: at, text: o.name, args }
        });
        let slices = slices.collect();
        let pid = self.track();
        self.named("process_name", pid, 0, "operations without usable times, at their launch")?;
        self.lanes(trace, pid, "not on the time line", slices)
    }

    /// Synchronisations, by the stream that waits or is waited for.
    fn syncs(&mut self, trace: &Trace) -> io::Result<()> {
        let mut streams: BTreeMap<(u32, u32, u64), Vec<usize>> = BTreeMap::new();
        for (i, s) in trace.syncs.iter().enumerate() {
            streams.entry((s.process, s.device, s.stream)).or_default().push(i);
        }
        let mut place = None;
        let mut pid = 0;
        for ((process, device, stream), mut list) in streams {
            if place != Some((process, device)) {
                pid = self.track();
                let of = format!("synchronisations, process {process}, device {device}");
                self.named("process_name", pid, 0, &of)?;
                place = Some((process, device));
            }
            let label = if stream == u64::MAX { "device".into() } else { format!("stream {stream}") };
            let span = |i: usize| (trace.syncs[i].start, trace.syncs[i].end.max(trace.syncs[i].start));
            list.sort_by_key(|&i| (span(i).0, std::cmp::Reverse(span(i).1), i));
            let spans: Vec<(i64, i64)> = list.iter().map(|&i| span(i)).collect();
            for (i, (tid, span)) in list.into_iter().zip(self.place(pid, &label, &spans)?) {
                let s = &trace.syncs[i];
                let what = match s.kind {
                    SyncKind::Event => "event synchronisation",
                    SyncKind::StreamWaitEvent => "stream waits for an event",
                    SyncKind::Stream => "stream synchronisation",
                    SyncKind::Context => "context synchronisation",
                    SyncKind::Unknown => "synchronisation",
                };
                let number = |v: Option<u64>| v.map_or("null".to_string(), |v| v.to_string());
                let args = format!(
                    r#""record": {i}, "correlation": {}, "event": {}, "event's stream": {}, "event's correlation": {}"#,
                    s.correlation,
                    s.event,
                    number(s.event_stream),
                    number(s.event_correlation)
                );
                self.slice(pid, tid, span, what, &args)?;
            }
        }
        Ok(())
    }

    fn hosts(&mut self, trace: &Trace) -> io::Result<()> {
        let mut threads: BTreeMap<(u32, u64, u8), Vec<Slice>> = BTreeMap::new();
        let mut add = |process, thread, kind, start, end, text, args| {
            threads.entry((process, thread, kind)).or_default().push(Slice { start, end, text, args });
        };
        for m in &trace.markers {
            add(m.process, m.thread, 0, m.start, m.end, m.name, String::new());
        }
        for (i, c) in trace.calls.iter().enumerate() {
            let args = format!(r#""record": {i}, "correlation": {}"#, c.correlation);
            add(c.process, c.thread, 1, c.start, c.end, c.name, args);
        }
        for (i, o) in trace.overheads.iter().enumerate() {
            add(o.process, o.thread, 2, o.start, o.end, o.name, format!(r#""record": {i}"#));
        }
        let mut process = None;
        let mut pid = 0;
        for ((p, thread, kind), slices) in threads {
            if process != Some(p) {
                pid = self.track();
                self.named("process_name", pid, 0, format!("host process {p}").trim_end_matches(" 0"))?;
                process = Some(p);
            }
            let what = ["ranges", "CUDA calls", "profiler overhead"][kind as usize];
            self.lanes(trace, pid, &format!("thread {thread} {what}"), slices)?;
        }
        Ok(())
    }

    /// Puts slices on as many tracks as it takes for each to nest.
    fn lanes(&mut self, trace: &Trace, pid: u64, name: &str, mut slices: Vec<Slice>) -> io::Result<()> {
        for s in slices.iter_mut().filter(|s| s.end < s.start) {
            let comma = if s.args.is_empty() { "" } else { ", " };
            s.args += &format!(r#"{comma}"ends before its start, ns": {}"#, s.start.saturating_sub(s.end));
            s.end = s.start;
        }
        slices.sort_by_key(|s| (s.start, std::cmp::Reverse(s.end)));
        let spans: Vec<(i64, i64)> = slices.iter().map(|s| (s.start, s.end)).collect();
        for (s, (tid, span)) in slices.iter().zip(self.place(pid, name, &spans)?) {
            self.slice(pid, tid, span, trace.names.text(s.text), &s.args)?;
        }
        Ok(())
    }

    /// A track for each span, of as many as it takes for each to nest; spans in order of start, the longest first.
    fn place(&mut self, pid: u64, name: &str, spans: &[(i64, i64)]) -> io::Result<Vec<(u64, (i64, i64))>> {
        let mut out = Vec::with_capacity(spans.len());
        // Each lane: its track, and the ends of the slices that are open in it, innermost last.
        let mut lanes: Vec<(u64, Vec<i64>)> = Vec::new();
        for &(start, end) in spans {
            let free = lanes.iter_mut().position(|(_, open)| {
                while open.last().is_some_and(|end| *end <= start) {
                    open.pop();
                }
                open.last().is_none_or(|outer| *outer >= end)
            });
            let lane = match free {
                Some(lane) => lane,
                None => {
                    let tid = self.track();
                    let label =
                        if lanes.is_empty() { name.to_string() } else { format!("{name} (lane {})", lanes.len() + 1) };
                    self.named("thread_name", pid, tid, &label)?;
                    lanes.push((tid, Vec::new()));
                    lanes.len() - 1
                }
            };
            lanes[lane].1.push(end);
            out.push((lanes[lane].0, (start, end)));
        }
        Ok(out)
    }

    fn track(&mut self) -> u64 {
        self.next_track += 1;
        self.next_track - 1
    }
}

/// Microseconds as decimal text, every nanosecond kept.
fn micros(ns: i64) -> String {
    let abs = ns.unsigned_abs();
    format!("{}{}.{:03}", if ns < 0 { "-" } else { "" }, abs / 1_000, abs % 1_000)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::import::kineto;
    use crate::profile::ledger::{Options, account};
    use crate::profile::trace::{Call, CallKind, Sync};
    use std::io::Cursor;

    #[test]
    fn nothing_is_dropped_and_every_track_nests() {
        let mut t = Trace { resolution_ns: 1, ..Trace::default() };
        // Programmatic overlap, containment and equal intervals on one stream.
        for (i, (start, end)) in [(0, 100), (60, 160), (70, 90), (160, 200), (160, 200), (300, 300)].iter().enumerate()
        {
            let name = t.names.intern(&format!("k\"{i}\\"));
            t.operations.push(Operation {
                name,
                stream: 7,
                start: 1_000 + start,
                end: 1_000 + end,
                ..Operation::default()
            });
        }
        let name = t.names.intern("cudaLaunchKernel");
        let (kind, correlation) = (CallKind::Launch, 3);
        t.calls.push(Call { kind, name, process: 0, thread: 1, start: 900, end: 950, correlation, driver: false });
        // Without times, backwards, and two waits that overlap.
        for times in [(0, 0), (1_200, 1_100)] {
            t.operations.push(Operation { stream: 7, start: times.0, end: times.1, ..Operation::default() });
        }
        for (start, end) in [(1_000, 1_050), (1_020, 1_080)] {
            let kind = SyncKind::StreamWaitEvent;
            let (event_stream, event_correlation) = (Some(8), None);
            let device = 0;
            t.syncs.push(Sync {
                kind,
                process: 0,
                device,
                stream: 7,
                start,
                end,
                correlation: 1,
                event_stream,
                event_correlation,
                event: 2,
            });
        }
        let (kind, correlation) = (CallKind::Other, 9);
        t.calls.push(Call { kind, name, process: 0, thread: 1, start: 990, end: 980, correlation, driver: false });
        let l = account(&t, 0, 1_000, 1_300, &Options::default()).unwrap();
        let mut text = Vec::new();
        write(&t, &[&l], &mut text).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let slices: Vec<_> = events.iter().filter(|e| e["ph"] == "X").collect();
        assert_eq!(slices.len(), t.operations.len() + t.calls.len() + t.syncs.len() + l.segments.len());
        let mut tracks: BTreeMap<u64, Vec<(i64, i64)>> = BTreeMap::new();
        for s in &slices {
            let ns = |key: &str| (s[key].as_f64().unwrap() * 1e3).round() as i64;
            tracks
                .entry(s["tid"].as_u64().unwrap() << 32 | s["pid"].as_u64().unwrap())
                .or_default()
                .push((ns("ts"), ns("ts") + ns("dur")));
        }
        for track in tracks.values() {
            for (i, a) in track.iter().enumerate() {
                for b in &track[i + 1..] {
                    assert!(a.1 <= b.0 || b.1 <= a.0 || (a.0 <= b.0 && b.1 <= a.1), "{a:?} {b:?}");
                }
            }
        }
        // It is a Chrome trace, so our own importer reads it too.
        assert!(kineto::read(Box::new(Cursor::new(text))).unwrap().defects.is_empty());
    }
}
