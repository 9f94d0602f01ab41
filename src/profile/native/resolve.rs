//! The joins that need the whole of a process's recording, and what its flaws mean for the numbers.

use super::join::Join;
use crate::profile::trace::*;

impl Join<'_> {
    /// Joins that need the whole file: labels, events, open ranges, the process id, the clock.
    pub(super) fn resolve(&mut self) {
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
                detail: format!("the host clock moved by {} ns against the capture's", max - min),
                ..Defect::default()
            });
        }
        mine - base
    }

    pub(super) fn defects(&mut self, health: &wbtrace::Health, before: &wbtrace::Health, broken: Option<&str>) {
        let pid = self.process.pid;
        let since = |t: i64| self.process.span.map_or(t, |(first, _)| t.saturating_sub(first).max(0));
        let ms = |t: i64| format!("{:.1} ms", since(t) as f64 / 1e6);
        let window = self.process.dropped_between.map(|(a, b)| (ms(a), ms(b)));
        let (chunks, records) = (health.bad_chunks - before.bad_chunks, health.bad_records - before.bad_records);
        let mut add = |defect: &str, count: u64, first_offset: Option<u64>, detail: String| {
            if count > 0 {
                self.out.trace.defects.push(Defect {
                    defect: defect.into(),
                    count,
                    first_offset,
                    detail,
                    ..Defect::default()
                });
            }
        };
        add(
            "dropped_records",
            self.process.dropped,
            None,
            format!(
                "process {pid}: CUPTI ran out of buffers{}; operations or calls are missing and gaps are too long there",
                window.map_or(String::new(), |w| format!(" between {} and {}", w.0, w.1))
            ),
        );
        add(
            "truncated",
            health.truncated_at.is_some().into(),
            health.truncated_at,
            match broken {
                Some(why) => format!(
                    "process {pid}: the compressed stream breaks off ({why}), by which the recording stops at this byte of \
                     its decompressed text; what came before is used"
                ),
                None => format!("process {pid}: the recording stops inside a chunk; what came before is used"),
            },
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
