//! A window as a picture needs it: the ledger's segments with their evidence, and every stream and thread in lanes that
//! do not overlap. Compact on purpose: a page holds a hundred thousand of these.

use super::ledger::{Accountant, Evidence, Ledger, LineKind, NONE};
use super::trace::Trace;
use crate::error::{Error, Result};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// More segments than this are not drawn: a page of them would open in no browser. The stretch around the longest gap is.
const MOST: usize = 250_000;

/// A window ready to be drawn. Times are nanoseconds from the window's start; texts are indices into `names`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Timeline {
    /// Length of what is drawn.
    pub window_ns: i64,
    /// Where that begins in the ledger's window, and how long the whole of this is.
    pub from_ns: i64,
    pub whole_ns: i64,
    pub names: Vec<String>,
    /// The ledger: its segments tile the window.
    pub segments: Vec<Segment>,
    /// Evidence of idle segments, by [`Segment::evidence`].
    pub evidence: Vec<Evidence>,
    /// Streams, then threads; a stream whose operations overlap has several lanes.
    pub lanes: Vec<Lane>,
}

/// One stretch of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Segment {
    pub start: i64,
    pub ns: i64,
    pub kind: LineKind,
    pub name: u32,
    /// Index into the timeline's `evidence`; none where the device is busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<u32>,
}

/// One row of slices in time order, none overlapping the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lane {
    pub title: String,
    /// `stream` or `thread`.
    pub group: &'static str,
    /// Start, length, name, record index in the trace.
    pub slices: Vec<(i64, i64, u32, u32)>,
}

impl Timeline {
    /// Draws a window of a trace; where it has too much in it, the stretch around its longest gap.
    ///
    /// # Errors
    /// `Usage` where the ledger was made without segments.
    pub fn new(trace: &Trace, a: &Accountant<'_>, ledger: &Ledger) -> Result<Self> {
        Self::within(trace, a, ledger, MOST)
    }

    fn within(trace: &Trace, a: &Accountant<'_>, ledger: &Ledger, most: usize) -> Result<Self> {
        if ledger.segments.is_empty() && ledger.window_ns > 0 {
            return Err(Error::usage("the ledger has no segments; account it in Detail::Segments"));
        }
        let mut names = Names::default();
        let drawn = stretch(ledger, most);
        let (t0, t1) = match drawn {
            [] => (ledger.t0, ledger.t1),
            [first, .., last] | [first @ last] => (first.start, last.end),
        };
        let mut made =
            Self { window_ns: t1 - t0, from_ns: t0 - ledger.t0, whole_ns: ledger.window_ns, ..Self::default() };
        for s in drawn {
            let line = &ledger.lines[s.line as usize];
            let evidence = ledger.pieces.get(s.piece as usize).filter(|_| s.piece != NONE).map(|p| {
                made.evidence.push(a.evidence(p));
                made.evidence.len() as u32 - 1
            });
            let (start, ns) = (s.start - t0, s.end - s.start);
            made.segments.push(Segment { start, ns, kind: line.kind, name: names.id(&line.name), evidence });
        }
        made.streams(trace, a, (t0, t1), &mut names);
        made.threads(trace, (t0, t1), &mut names);
        made.names = names.texts;
        Ok(made)
    }

    fn streams(&mut self, trace: &Trace, a: &Accountant<'_>, (t0, t1): (i64, i64), names: &mut Names) {
        let mut streams: BTreeMap<(u32, u64), Vec<Slice>> = BTreeMap::new();
        for &i in a.in_order() {
            let o = &trace.operations[i as usize];
            if o.start < t1 && o.end > t0 {
                let text = match a.labels().get(i) {
                    Some(label) => names.id(&label.class),
                    None => names.id(trace.names.text(o.name)),
                };
                let slice = Slice { start: o.start.max(t0), end: o.end.min(t1), text, index: i };
                streams.entry((o.process, o.stream)).or_default().push(slice);
            }
        }
        for ((process, stream), slices) in streams {
            let of = if process == 0 { String::new() } else { format!(" of process {process}") };
            self.lay("stream", &format!("stream {stream}{of}"), t0, slices);
        }
    }

    fn threads(&mut self, trace: &Trace, (t0, t1): (i64, i64), names: &mut Names) {
        let mut threads: BTreeMap<(u32, u64), Vec<Slice>> = BTreeMap::new();
        for (i, c) in trace.calls.iter().enumerate().filter(|(_, c)| c.start < t1 && c.end > t0) {
            let text = names.id(trace.names.text(c.name));
            let slice = Slice { start: c.start.max(t0), end: c.end.min(t1), text, index: i as u32 };
            threads.entry((c.process, c.thread)).or_default().push(slice);
        }
        for ((_, thread), slices) in threads {
            self.lay("thread", &format!("thread {thread}"), t0, slices);
        }
    }

    /// Spreads slices over as many lanes as they need; nested calls go below the call that they are in.
    fn lay(&mut self, group: &'static str, title: &str, t0: i64, mut slices: Vec<Slice>) {
        slices.sort_by_key(|s| (s.start, std::cmp::Reverse(s.end), s.index));
        let first = self.lanes.len();
        let mut ends: Vec<i64> = Vec::new();
        for s in slices {
            let lane = ends.iter().position(|end| *end <= s.start).unwrap_or_else(|| {
                let title = if ends.is_empty() { title.to_string() } else { format!("{title} ({})", ends.len() + 1) };
                self.lanes.push(Lane { title, group, slices: Vec::new() });
                ends.push(i64::MIN);
                ends.len() - 1
            });
            ends[lane] = s.end;
            self.lanes[first + lane].slices.push((s.start - t0, s.end - s.start, s.text, s.index));
        }
    }
}

/// At most so many segments, with the longest idle one in the middle.
fn stretch(ledger: &Ledger, most: usize) -> &[super::ledger::Segment] {
    let all = &ledger.segments;
    if all.len() <= most {
        return all;
    }
    let idle = all.iter().enumerate().filter(|(_, s)| s.piece != NONE);
    let longest = idle.max_by_key(|(_, s)| s.end - s.start).map_or(0, |(i, _)| i);
    let first = longest.saturating_sub(most / 2).min(all.len() - most);
    &all[first..first + most]
}

/// A slice before it has a lane.
struct Slice {
    start: i64,
    end: i64,
    text: u32,
    index: u32,
}

/// Texts that the page holds once.
#[derive(Default)]
struct Names {
    texts: Vec<String>,
    index: HashMap<String, u32>,
}

impl Names {
    fn id(&mut self, text: &str) -> u32 {
        if let Some(&i) = self.index.get(text) {
            return i;
        }
        self.texts.push(text.to_string());
        self.index.insert(text.to_string(), self.texts.len() as u32 - 1);
        self.texts.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ledger::Options;
    use crate::profile::synth;
    use crate::profile::trace::Operation;

    #[test]
    fn everything_in_the_window_is_drawn_once() {
        let mut t = synth::trace(2, 3, 1);
        // One that overlaps its neighbours on the stream.
        let (start, end) = (t.operations[3].start, t.operations[5].end);
        t.operations.push(Operation { stream: 7, start: start + 10, end, ..Operation::default() });
        let o = Options::default();
        let a = Accountant::new(&t, 0, &o);
        let (t0, t1) = a.span().unwrap();
        let l = a.window(t0, t1).unwrap();
        let d = Timeline::new(&t, &a, &l).unwrap();
        assert_eq!(d.segments.iter().map(|s| s.ns).sum::<i64>(), d.window_ns);
        assert_eq!(d.evidence.len(), l.pieces.len());
        let drawn: usize = d.lanes.iter().filter(|x| x.group == "stream").map(|x| x.slices.len()).sum();
        assert_eq!(drawn, t.operations.len());
        for lane in &d.lanes {
            assert!(lane.slices.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{}", lane.title);
        }
        assert!(d.lanes.iter().any(|x| x.title == "stream 7 (2)"));
        // Of a window with too much in it, what lies around the longest gap.
        let part = Timeline::within(&t, &a, &l, 9).unwrap();
        assert_eq!((part.segments.len(), part.whole_ns), (9, l.window_ns));
        assert_eq!(part.segments.iter().map(|s| s.ns).sum::<i64>(), part.window_ns);
        let longest = |d: &Timeline| d.segments.iter().filter(|s| s.evidence.is_some()).map(|s| s.ns).max();
        assert_eq!(longest(&part), longest(&d));
        let inside = |s: &(i64, i64, u32, u32)| s.0 >= 0 && s.0 + s.1 <= part.window_ns;
        assert!(part.lanes.iter().flat_map(|x| &x.slices).all(inside));
        let bare = Ledger { segments: Vec::new(), ..l };
        assert!(Timeline::new(&t, &a, &bare).is_err());
    }
}
