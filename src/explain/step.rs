//! A step's account: the recording beside its trace, every nanosecond on a line, each kernel beside its prediction.

use super::waterfall::{Bar, Row, Waterfall, attribute, waterfall};
use crate::error::{Error, Result};
use crate::profile::ledger::{self, Label, Ledger, LineKind};
use crate::profile::timeline::Timeline;
use crate::profile::trace::{Operation, Trace};
use crate::run::step::recording::{ModeRecord, Recording};
use crate::stats;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// One mode's account.
#[derive(Clone, Debug, Serialize)]
pub struct ModeAccount {
    pub mode: String,
    /// The accounted step: of all traced ones, the one of median length.
    pub step: usize,
    pub steps: usize,
    /// Length of every traced step, ns.
    pub step_ns: Vec<i64>,
    pub ledger: Ledger,
    pub waterfall: Waterfall,
    /// One row a node, in order.
    pub rows: Vec<Row>,
    pub classes: Vec<Class>,
    /// The accounted step, to be drawn; its kernels are named after their nodes.
    #[serde(skip)]
    pub timeline: Timeline,
    /// Class of each name of the timeline that stands for a node's kernel.
    #[serde(skip)]
    pub class_of: BTreeMap<String, String>,
}

/// A class of nodes, summed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Class {
    pub class: String,
    pub count: u64,
    pub ns: i64,
    pub floor_ns: i64,
    pub predicted_ns: i64,
    pub bytes: u64,
    /// Median and 99th percentile of one node's attributed time, over all traced steps.
    pub median_ns: f64,
    pub p99_ns: f64,
}

/// Matches a trace to the plan and accounts its median step.
///
/// A window reaches from the first kernel of one step to the first kernel of the next, so it is a whole period: what
/// lies between two steps belongs to the step before it.
///
/// # Errors
/// A trace that does not hold the plan's kernels in order (records dropped, another program's trace).
pub fn account(recording: &Recording, mode: &ModeRecord, trace: &Trace) -> Result<ModeAccount> {
    let (expected, order) = (expected(recording), order(trace));
    let steps = split(trace, &order, &expected)?;
    if steps.len() < 3 {
        return Err(Error::untrusted(format!(
            "the {} trace holds {} whole steps; 3 are needed",
            mode.mode,
            steps.len()
        ))
        .try_next("record again with more replays"));
    }
    let begin = |s: &[usize]| trace.operations[s[0]].start;
    let lengths: Vec<i64> = steps.windows(2).map(|w| begin(w[1]) - begin(w[0])).collect();
    let mut by_length: Vec<usize> = (0..lengths.len()).collect();
    by_length.sort_by_key(|&i| (lengths[i], i));
    let step = by_length[by_length.len() / 2];
    let (t0, t1) = (begin(steps[step]), begin(steps[step + 1]));

    let options = ledger::Options {
        floors: super::floors::of(&recording.ceilings),
        labels: labels_of(recording, &expected, &steps),
        ..ledger::Options::default()
    };
    let accountant = ledger::Accountant::new(trace, trace.operations[steps[step][0]].device, &options);
    let ledger = accountant.window(t0, t1)?;
    ledger.verify()?;
    let mut timeline = Timeline::new(trace, &accountant, &ledger)?;
    let class_of = name_nodes(&mut timeline, &ledger, recording, &expected, &steps);

    let rows_of = |s: &[usize], t0: i64, t1: i64| {
        let spans: Vec<_> = s.iter().map(|&i| (trace.operations[i].start, trace.operations[i].end)).collect();
        let (owned, _) = attribute(t0, t1, &spans);
        let mut rows: Vec<Row> = recording
            .nodes
            .iter()
            .map(|n| Row {
                label: n.label.clone(),
                class: n.class.clone(),
                kernel: n.kernels.join(" + "),
                floor_ns: n.floor_ns.round() as i64,
                predicted_ns: n.predicted_ns.round() as i64,
                ns: 0,
                bytes: n.bytes,
                flops: n.flops,
            })
            .collect();
        for (ns, e) in owned.iter().zip(&expected) {
            rows[e.node].ns += ns;
        }
        rows
    };
    let rows = rows_of(steps[step], t0, t1);
    let all: Vec<Vec<Row>> = steps.windows(2).map(|w| rows_of(w[0], begin(w[0]), begin(w[1]))).collect();
    let others: Vec<Bar> = ledger
        .lines
        .iter()
        .filter(|l| !l.kind.is_busy() || matches!(l.kind, LineKind::Memcpy | LineKind::Memset))
        .map(|l| Bar { kind: kind_name(l.kind).into(), name: l.name.clone(), ns: l.ns })
        .collect();
    let waterfall = waterfall(t1 - t0, &rows, &others);
    if waterfall.residual_ns != 0 {
        return Err(Error::untrusted(format!("the waterfall leaves {} ns unaccounted", waterfall.residual_ns))
            .try_next("report this with the recording"));
    }
    let classes = classes(&rows, &all);
    Ok(ModeAccount {
        mode: mode.mode.clone(),
        step,
        steps: steps.len(),
        step_ns: lengths,
        ledger,
        waterfall,
        rows,
        classes,
        timeline,
        class_of,
    })
}

/// Labels every operation of the trace's whole steps with the class, floor and prediction of its plan node; how many whole
/// steps there are.
///
/// # Errors
/// A trace that does not hold the plan's kernels in order.
pub fn labels(recording: &Recording, trace: &Trace) -> Result<(ledger::Labels, usize)> {
    let (expected, order) = (expected(recording), order(trace));
    let steps = split(trace, &order, &expected)?;
    Ok((labels_of(recording, &expected, &steps), steps.len()))
}

fn labels_of(recording: &Recording, expected: &[Expected<'_>], steps: &[&[usize]]) -> ledger::Labels {
    let mut labels = ledger::Labels::default();
    for s in steps {
        for (&op, e) in s.iter().zip(expected) {
            let n = &recording.nodes[e.node];
            // A node of several kernels has its numbers on the first, so that sums over kernels are sums over nodes.
            labels.set(
                op,
                Label {
                    class: n.class.clone(),
                    floor_ns: Some(if e.first { n.floor_ns.round() as i64 } else { 0 }),
                    predicted_ns: Some(if e.first { n.predicted_ns.round() as i64 } else { 0 }),
                    programmatic: e.programmatic,
                },
            );
        }
    }
    labels
}

/// Gives every kernel of the picture the name of its node instead of its class; returns the class of each new name.
fn name_nodes(
    timeline: &mut Timeline,
    ledger: &Ledger,
    recording: &Recording,
    expected: &[Expected<'_>],
    steps: &[&[usize]],
) -> BTreeMap<String, String> {
    let place: HashMap<u32, usize> =
        steps.iter().flat_map(|s| s.iter().enumerate().map(|(k, &op)| (op as u32, k))).collect();
    let (mut class_of, mut overlaps) = (BTreeMap::new(), HashMap::<String, u32>::new());
    let first = timeline.names.len() as u32;
    for e in expected {
        let node = &recording.nodes[e.node];
        let name = format!("{}: {}", node.label, e.kernel);
        class_of.insert(name.clone(), node.class.clone());
        timeline.names.push(name);
    }
    for (drawn, segment) in timeline.segments.iter_mut().zip(&ledger.segments) {
        let Some(&k) = place.get(&segment.operation) else { continue };
        match drawn.kind {
            LineKind::Kernel => drawn.name = first + k as u32,
            LineKind::Overlap => {
                let node = &recording.nodes[expected[k].node];
                let name = format!("{} first of {}", node.label, ledger.lines[segment.line as usize].name);
                drawn.name = *overlaps.entry(name).or_insert_with_key(|name| {
                    class_of.insert(name.clone(), node.class.clone());
                    timeline.names.push(name.clone());
                    timeline.names.len() as u32 - 1
                });
            }
            _ => {}
        }
    }
    for lane in timeline.lanes.iter_mut().filter(|l| l.group == "stream") {
        for slice in &mut lane.slices {
            if let Some(&k) = place.get(&slice.3) {
                slice.2 = first + k as u32;
            }
        }
    }
    class_of
}

/// One kernel that every step must hold, in this order.
struct Expected<'a> {
    node: usize,
    kernel: &'a str,
    programmatic: bool,
    /// The first of its node.
    first: bool,
}

/// The kernels of one step, in order.
fn expected(recording: &Recording) -> Vec<Expected<'_>> {
    recording
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(node, n)| {
            n.kernels.iter().zip(&n.programmatic).enumerate().map(move |(i, (kernel, &programmatic))| Expected {
                node,
                kernel,
                programmatic,
                first: i == 0,
            })
        })
        .collect()
}

/// The trace's operations by their start.
fn order(trace: &Trace) -> Vec<usize> {
    let mut order: Vec<usize> = (0..trace.operations.len()).collect();
    order.sort_by_key(|&i| (trace.operations[i].start, trace.operations[i].end));
    order
}

fn kind_name(kind: LineKind) -> &'static str {
    match kind {
        LineKind::Head => "head",
        LineKind::Tail => "tail",
        LineKind::Unknown => "unknown",
        LineKind::Memcpy => "memcpy",
        LineKind::Memset => "memset",
        _ => "gap",
    }
}

/// Whole steps of the trace, each a run of operations whose names are the plan's; a partial one at either edge is left.
fn split<'a>(trace: &Trace, order: &'a [usize], expected: &[Expected<'_>]) -> Result<Vec<&'a [usize]>> {
    let name = |i: usize| -> &str { text(trace, &trace.operations[i]) };
    let (mut steps, mut at) = (Vec::new(), 0);
    while at + expected.len() <= order.len() {
        let run = &order[at..at + expected.len()];
        if run.iter().zip(expected).all(|(&i, e)| name(i) == e.kernel) {
            steps.push(run);
            at += expected.len();
        } else if steps.is_empty() {
            at += 1;
        } else {
            let (k, bad) = run
                .iter()
                .zip(expected)
                .enumerate()
                .find(|(_, (i, e))| name(**i) != e.kernel)
                .map_or((0, String::new()), |(k, (i, e))| (k, format!("{} where the plan has {}", name(*i), e.kernel)));
            return Err(Error::untrusted(format!("step {} of the trace, kernel {k}: {bad}", steps.len()))
                .try_next("records were dropped or the recording and the trace do not belong together"));
        }
    }
    if steps.is_empty() {
        return Err(Error::untrusted(format!(
            "no step of {} kernels was found among {} operations",
            expected.len(),
            order.len()
        )));
    }
    Ok(steps)
}

fn text<'a>(trace: &'a Trace, op: &Operation) -> &'a str {
    trace.names.text(op.name)
}

fn classes(rows: &[Row], all: &[Vec<Row>]) -> Vec<Class> {
    let mut by: BTreeMap<&str, (Class, Vec<f64>)> = BTreeMap::new();
    for r in rows {
        let c =
            &mut by.entry(&r.class).or_insert_with(|| (Class { class: r.class.clone(), ..Class::default() }, vec![])).0;
        c.count += 1;
        c.ns += r.ns;
        c.floor_ns += r.floor_ns;
        c.predicted_ns += r.predicted_ns;
        c.bytes += r.bytes;
    }
    for r in all.iter().flatten() {
        if let Some((_, samples)) = by.get_mut(r.class.as_str()) {
            samples.push(r.ns as f64);
        }
    }
    let mut list: Vec<Class> = by
        .into_values()
        .map(|(mut c, samples)| {
            c.median_ns = stats::median(&samples);
            c.p99_ns = stats::quantile(&samples, 0.99);
            c
        })
        .collect();
    list.sort_by_key(|c| -c.ns);
    list
}
