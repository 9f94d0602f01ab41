//! Where one step ends and the next begins: by the capture's own markers, by graph launches, or by repetition alone.
//!
//! A step is a window on the device: from the first operation that its host range launched to the first operation of
//! the next step, so that steps tile the time line and no nanosecond between two of them is lost.

mod repeat;
mod summary;
#[cfg(test)]
mod tests;

pub use summary::{StepLedger, StepReport, report};

use super::ledger::{Accountant, FastMap};
use super::trace::{CallKind, Trace};
use crate::error::{Error, Result};
use regex::Regex;
use serde::Serialize;
use std::str::FromStr;

/// How steps are found.
#[derive(Clone, Debug)]
pub enum Selector {
    /// Profiler steps, else repetition, else the whole capture.
    Auto,
    /// One window: first operation to last.
    Whole,
    /// `ProfilerStep#N` ranges.
    Profiler,
    /// Host ranges (NVTX, annotations, operators) whose name matches.
    Ranges(Regex),
    /// Each launch of the graph that does most of the work.
    Graph,
    /// A new step at each kernel whose name matches.
    Kernel(Regex),
    /// The period of the kernel sequence.
    Repeat,
}

impl FromStr for Selector {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let regex = |pattern: &str| {
            Regex::new(pattern).map_err(|e| Error::usage(format!("`{pattern}` is no regular expression: {e}")))
        };
        Ok(match text.split_once(':').map_or((text, None), |(k, p)| (k, Some(p))) {
            ("auto", None) => Self::Auto,
            ("whole", None) => Self::Whole,
            ("profiler", None) => Self::Profiler,
            ("graph", None) => Self::Graph,
            ("repeat", None) => Self::Repeat,
            ("range" | "nvtx", Some(p)) => Self::Ranges(regex(p)?),
            ("kernel", Some(p)) => Self::Kernel(regex(p)?),
            _ => {
                return Err(Error::usage(format!("`{text}` names no way to find steps"))
                    .try_next("--step auto, whole, profiler, graph, repeat, range:REGEX or kernel:REGEX"));
            }
        })
    }
}

/// One step on the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    pub name: String,
    pub start: i64,
    pub end: i64,
    /// Cut by the capture's end rather than by the next step; kept out of the statistics where others are whole.
    pub open: bool,
}

impl Window {
    pub fn ns(&self) -> i64 {
        self.end - self.start
    }
}

/// The steps of one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Steps {
    /// How they were found, a phrase.
    pub how: String,
    pub windows: Vec<Window>,
    /// Share of steps with the most common sequence of operations.
    pub stability: f64,
    /// Fewest and most operations in a step.
    pub operations: (usize, usize),
}

impl Steps {
    /// Windows (name, start, end) that the recording program marked itself.
    pub fn marked(trace: &Trace, a: &Accountant<'_>, windows: &[(String, i64, i64)]) -> Self {
        let window = |(name, start, end): &(String, i64, i64)| Window {
            name: name.clone(),
            start: *start,
            end: *end,
            open: false,
        };
        Self::of(trace, a, "windows that the program marked".into(), windows.iter().map(window).collect())
    }

    /// Windows with what their operations say of their likeness.
    fn of(trace: &Trace, a: &Accountant<'_>, how: String, windows: Vec<Window>) -> Self {
        let order = a.in_order();
        let from = |t: i64| order.partition_point(|&i| trace.operations[i as usize].start < t);
        let whole = windows.iter().any(|w| !w.open);
        let mut sequences: FastMap<u64, usize> = FastMap::default();
        let (mut fewest, mut most) = (usize::MAX, 0);
        for w in windows.iter().filter(|w| !(whole && w.open)) {
            // The last operation of the capture may start where an open window ends.
            let end = if w.open { order.len() } else { from(w.end) };
            let inside = &order[from(w.start).min(end)..end];
            (fewest, most) = (fewest.min(inside.len()), most.max(inside.len()));
            let hash = inside.iter().fold(0u64, |h, &i| {
                let name = u64::from(trace.operations[i as usize].name.0);
                (h.rotate_left(5) ^ name).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            });
            *sequences.entry(hash).or_insert(0) += 1;
        }
        let counted: usize = sequences.values().sum();
        let common = sequences.values().max().copied().unwrap_or(0);
        let stability = common as f64 / counted.max(1) as f64;
        Self { how, windows, stability, operations: (fewest.min(most), most) }
    }
}

/// Finds the steps of the accountant's device.
///
/// # Errors
/// `Usage` where the capture has nothing of the kind asked for; the message says what it has.
pub fn find(trace: &Trace, a: &Accountant<'_>, selector: &Selector) -> Result<Steps> {
    let order = a.in_order();
    if order.is_empty() {
        return Err(Error::usage("the capture has no operation of this device with usable times")
            .try_next("`workbench doctor FILE` says what the file holds"));
    }
    let none = |what: &str| {
        Err(Error::usage(format!("the capture has no {what}"))
            .try_next("--step repeat finds steps without markers, --step whole takes the capture as one"))
    };
    let profiler = |name: &str| name.starts_with("ProfilerStep");
    let (how, heads) = match selector {
        Selector::Whole => return Ok(whole(a)),
        Selector::Auto => {
            let mut found = ranges(trace, a, profiler);
            let mut how = "ProfilerStep ranges".to_string();
            if found.is_empty()
                && let Some(period) = repeat::period(trace, order)
            {
                (how, found) = (period.how(), period.heads(trace, order));
            }
            if found.is_empty() {
                return Ok(whole(a));
            }
            (how, found)
        }
        Selector::Profiler => ("ProfilerStep ranges".into(), ranges(trace, a, profiler)),
        Selector::Ranges(r) => (format!("host ranges that match {r}"), ranges(trace, a, |n| r.is_match(n))),
        Selector::Kernel(r) => {
            let heads = (0..order.len())
                .filter(|&p| r.is_match(trace.names.text(trace.operations[order[p] as usize].name)))
                .map(|p| (p, format!("step {p}")))
                .collect();
            (format!("kernels that match {r}"), heads)
        }
        Selector::Graph => ("launches of the graph with most work".into(), graphs(trace, a)),
        Selector::Repeat => match repeat::period(trace, order) {
            Some(period) => (period.how(), period.heads(trace, order)),
            None => return none("period in its kernel sequence"),
        },
    };
    if heads.is_empty() {
        return none(&how);
    }
    Ok(tile(trace, a, how, &heads))
}

fn whole(a: &Accountant<'_>) -> Steps {
    let (start, end) = a.span().unwrap_or((0, 0));
    let n = a.in_order().len();
    let window = Window { name: "whole capture".into(), start, end, open: true };
    Steps { how: "the whole capture as one step".into(), windows: vec![window], stability: 1.0, operations: (n, n) }
}

/// For each matching host range, the position of the first operation that it launched.
fn ranges(trace: &Trace, a: &Accountant<'_>, matches: impl Fn(&str) -> bool) -> Vec<(usize, String)> {
    let mut known: FastMap<u32, bool> = FastMap::default();
    let mut list: Vec<(u32, i64, i64, u32)> = trace
        .markers
        .iter()
        .filter(|m| *known.entry(m.name.0).or_insert_with(|| matches(trace.names.text(m.name))))
        .map(|m| (m.process, m.start, m.end, m.name.0))
        .collect();
    list.sort_unstable();
    // A matching range inside another one of its process starts no step of its own; those of two processes overlap freely.
    let mut reach = (u32::MAX, i64::MIN);
    list.retain(|&(process, start, end, _)| {
        let outer = process != reach.0 || start >= reach.1;
        reach = (process, if process == reach.0 { reach.1.max(end) } else { end });
        outer
    });
    // First operation by launch time, for each range.
    let mut first: Vec<Option<usize>> = vec![None; list.len()];
    for (p, &i) in a.in_order().iter().enumerate() {
        let op = &trace.operations[i as usize];
        let launched = match a.launch_of(p) {
            Some(call) => trace.calls[call as usize].start,
            None => continue,
        };
        let r = list.partition_point(|&(process, start, _, _)| (process, start) <= (op.process, launched));
        if r > 0 && list[r - 1].0 == op.process && launched < list[r - 1].2 {
            first[r - 1].get_or_insert(p);
        }
    }
    let named = first
        .into_iter()
        .zip(&list)
        .filter_map(|(p, r)| Some((p?, trace.names.text(super::trace::Name(r.3)).to_string())));
    let mut heads: Vec<(usize, String)> = named.collect();
    heads.sort();
    heads.dedup_by_key(|h| h.0);
    heads
}

/// Positions of the first node of each launch of the graph whose nodes run longest in all.
fn graphs(trace: &Trace, a: &Accountant<'_>) -> Vec<(usize, String)> {
    struct Launch {
        head: usize,
        nodes: u32,
        ns: i64,
        graph: u32,
        first: u32,
    }
    let mut launches: Vec<Launch> = Vec::new();
    let mut at: FastMap<(u32, u64), usize> = FastMap::default();
    for (p, &i) in a.in_order().iter().enumerate() {
        let op = &trace.operations[i as usize];
        let by_call = a.launch_of(p).is_some_and(|c| trace.calls[c as usize].kind == CallKind::GraphLaunch);
        if op.correlation == 0 || !(by_call || op.graph_node != 0 || op.graph != 0) {
            continue;
        }
        let k = *at.entry((op.process, op.correlation)).or_insert_with(|| {
            launches.push(Launch { head: p, nodes: 0, ns: 0, graph: op.graph, first: op.name.0 });
            launches.len() - 1
        });
        launches[k].nodes += 1;
        launches[k].ns = launches[k].ns.saturating_add(op.end - op.start);
    }
    // Without graph ids, launches of as many nodes that begin with the same kernel count as one graph.
    let key = |l: &Launch| if l.graph != 0 { (l.graph, 0, 0) } else { (0, l.nodes, l.first) };
    let mut work: FastMap<(u32, u32, u32), i64> = FastMap::default();
    for l in &launches {
        *work.entry(key(l)).or_insert(0) += l.ns;
    }
    let Some(best) = work.into_iter().max_by_key(|(k, ns)| (*ns, std::cmp::Reverse(*k))).map(|w| w.0) else {
        return Vec::new();
    };
    let heads = launches.iter().filter(|l| key(l) == best);
    heads.enumerate().map(|(n, l)| (l.head, format!("graph launch {n}"))).collect()
}

/// Windows from one step's first operation to the next one's.
fn tile(trace: &Trace, a: &Accountant<'_>, how: String, heads: &[(usize, String)]) -> Steps {
    let order = a.in_order();
    let start = |p: usize| trace.operations[order[p] as usize].start;
    let end = a.span().map_or(0, |s| s.1);
    let window = |(i, (p, name)): (usize, &(usize, String))| {
        let next = heads.get(i + 1).map(|h| h.0);
        Window { name: name.clone(), start: start(*p), end: next.map_or(end, start), open: next.is_none() }
    };
    Steps::of(trace, a, how, heads.iter().enumerate().map(window).collect())
}
