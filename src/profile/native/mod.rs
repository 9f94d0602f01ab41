//! Our own recordings (`crates/wbtrace`) as a [`Trace`].

mod join;
mod prefix;
mod resolve;
#[cfg(test)]
mod tests;

use super::trace::Trace;
use crate::error::{Error, Result};
use join::Join;
use prefix::Prefix;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::path::Path;
use wbtrace::Reader;

/// A recording of one process, or of several merged.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub trace: Trace,
    /// Windows that the recording program marked (name, start, end): its steps.
    pub windows: Vec<(String, i64, i64)>,
    /// What the labels in [`Operation::external`](super::trace::Operation::external) stand for.
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
    /// Between these times, on the capture's clock; where the recorder did not say, the end alone is known and both are it.
    pub dropped_between: Option<(i64, i64)>,
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

    /// Adds a recording of one process. A stream that breaks off, as a cut gzip file does, is read up to there and
    /// counted as `truncated`.
    ///
    /// # Errors
    /// `Usage` where the stream does not begin as a recording, or breaks before it has.
    pub fn add(&mut self, source: impl Read) -> Result<()> {
        let broken = RefCell::new(None);
        let mut reader = Reader::new(Prefix::new(source, &broken)).map_err(|e| {
            Error::usage(match broken.take() {
                Some(why) => format!("the compressed stream is damaged from its start: {why}"),
                None => e.to_string(),
            })
        })?;
        let mut before = wbtrace::Health::default();
        while Join::new(self).run(&mut reader, &mut before, &broken)? {}
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
