//! The gap report as a value: one device of one capture, accounted. The terminal, JSON, CSV, Markdown and HTML forms are
//! all made from this.

use super::defects::Audit;
use super::import::ncu::Launched;
use super::ledger::{Accountant, Cause, Evidence, FastMap, Ledger, Line, LineKind};
use super::steps::{StepLedger, StepReport, Steps};
use super::timeline::Timeline;
use super::trace::{Defect, DeviceInfo, Name, Trace, Work};
use crate::error::Result;
use serde::Serialize;
use std::collections::BTreeMap;

/// Everything that `workbench gaps` knows of one device. The JSON is this, flat, with the keys that scripts rely on.
#[derive(Clone, Debug, Serialize)]
pub struct GapReport {
    pub schema: u32,
    /// Always `recorded`: the capture was taken elsewhere or earlier.
    pub provenance: &'static str,
    /// Facts that the file states of itself.
    pub environment: BTreeMap<String, String>,
    pub file: String,
    pub format: String,
    /// The plan whose nodes name the kernels, where the trace is one of a recorded step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    pub device_info: DeviceInfo,
    pub defects: Vec<Defect>,
    /// Least error of the clock that the capture's own causality proves.
    pub clock_error_ns: i64,
    /// The ledger of the whole window.
    #[serde(flatten)]
    pub ledger: Ledger,
    pub kernels: Vec<KernelRow>,
    pub gaps: Vec<GapRow>,
    pub streams: Vec<StreamRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_report: Option<StepReport>,
    pub steps: Vec<StepLedger>,
    /// The median and the p99 step, to be drawn; `Timeline` tells what a page needs.
    #[serde(skip)]
    pub median: Option<Timeline>,
    #[serde(skip)]
    pub p99: Option<Timeline>,
    /// The whole window, where it is more than one step and was accounted in segments.
    #[serde(skip)]
    pub whole: Option<Timeline>,
}

/// One kernel, copy direction or plan class over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelRow {
    pub kind: LineKind,
    pub name: String,
    pub calls: u64,
    /// Sum of durations, overlapped time included.
    pub total_ns: i64,
    pub median_ns: i64,
    pub p99_ns: i64,
    pub min_ns: i64,
    pub max_ns: i64,
    /// Bytes moved, for copies and sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_ns: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_ns: Option<i64>,
    /// Counters of Nsight Compute, joined by name and order: metric, unit, median.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<(String, String, f64)>,
}

/// One cause of idle time; head, tail and gaps between together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GapRow {
    pub name: String,
    pub cause: Cause,
    pub pieces: u64,
    pub total_ns: i64,
    /// Of the window.
    pub share: f64,
    pub below_clock_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least_ns: Option<i64>,
    pub worst: Vec<Evidence>,
}

/// One stream's own occupation. Streams overlap, so these never add up to the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamRow {
    pub process: u32,
    pub stream: u64,
    pub operations: u64,
    /// Union of the stream's operations inside the window.
    pub busy_ns: i64,
}

/// What a report is made from.
pub struct Source<'a> {
    pub file: &'a str,
    pub trace: &'a Trace,
    pub audit: &'a Audit,
    pub accountant: &'a Accountant<'a>,
}

impl GapReport {
    /// Accounts `[t0, t1)` and its steps.
    pub fn new(from: &Source<'_>, device: u32, (t0, t1): (i64, i64), steps: Option<&Steps>) -> Result<Self> {
        let ledger = from.accountant.window(t0, t1)?;
        let (step_report, steps, median, p99) = match steps {
            Some(steps) => {
                let (r, all, m, p) = super::steps::report(from.accountant, steps)?;
                let draw = |l: &Ledger| Timeline::new(from.trace, from.accountant, l).map(Some);
                (Some(r), all, draw(&m)?, draw(&p)?)
            }
            None => (None, Vec::new(), None, None),
        };
        let several = step_report.as_ref().is_some_and(|s| s.n > 1);
        let whole = match several && !ledger.segments.is_empty() {
            true => Some(Timeline::new(from.trace, from.accountant, &ledger)?),
            false => None,
        };
        let info = from.trace.devices.iter().find(|d| d.id == device).cloned();
        Ok(Self {
            schema: 1,
            provenance: "recorded",
            environment: environment(from.trace),
            file: from.file.to_string(),
            format: from.trace.format.clone(),
            plan: None,
            device_info: info.unwrap_or(DeviceInfo { id: device, ..DeviceInfo::default() }),
            defects: from.audit.defects.clone(),
            clock_error_ns: from.audit.clock_error_ns,
            kernels: kernels(from, &ledger),
            gaps: gaps(&ledger),
            streams: streams(from, t0, t1),
            ledger,
            step_report,
            steps,
            median,
            p99,
            whole,
        })
    }

    /// The kernels of the window in order of time, each with its row of [`Self::kernels`].
    pub fn launched<'t>(&self, from: &Source<'t>) -> Vec<Launched<'t>> {
        let rows = self.kernels.iter().enumerate().filter(|(_, k)| k.kind == LineKind::Kernel);
        let rows: FastMap<&str, usize> = rows.map(|(i, k)| (k.name.as_str(), i)).collect();
        let labels = from.accountant.labels();
        let inside = from.accountant.in_order().iter().filter_map(|&i| {
            let operation = &from.trace.operations[i as usize];
            let kernel = operation.work == Work::Kernel && (self.ledger.t0..self.ledger.t1).contains(&operation.start);
            let name = || labels.get(i).map_or(from.trace.names.text(operation.name), |l| l.class.as_str());
            let row = *rows.get(kernel.then(name)?)?;
            Some(Launched { operation, row })
        });
        inside.collect()
    }
}

/// What the file states of itself; what it states twice, such as its warnings, in one.
fn environment(trace: &Trace) -> BTreeMap<String, String> {
    let mut out: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in &trace.facts {
        match out.get_mut(key) {
            Some(have) if have != value => *have += &format!("; {value}"),
            Some(_) => {}
            None => drop(out.insert(key.clone(), value.clone())),
        }
    }
    out
}

/// Per kernel, over the operations that begin in the window.
fn kernels(from: &Source<'_>, ledger: &Ledger) -> Vec<KernelRow> {
    let labels = from.accountant.labels();
    let mut of: FastMap<(String, Work, Name), Vec<i64>> = FastMap::default();
    let mut bytes: FastMap<(String, Work, Name), u64> = FastMap::default();
    for &i in from.accountant.in_order() {
        let op = &from.trace.operations[i as usize];
        if op.start < ledger.t0 || op.start >= ledger.t1 {
            continue;
        }
        let class = labels.get(i).map_or(String::new(), |l| l.class.clone());
        let name =
            if !class.is_empty() || matches!(op.work, Work::Memcpy(_) | Work::Memset) { Name(0) } else { op.name };
        let key = (class, op.work, name);
        *bytes.entry(key.clone()).or_insert(0) += op.bytes;
        of.entry(key).or_default().push(op.end - op.start);
    }
    let mut rows: Vec<KernelRow> = of
        .into_iter()
        .map(|(key, mut durations)| {
            durations.sort_unstable();
            let n = durations.len();
            let (class, work, name) = &key;
            let (kind, text) = match work {
                Work::Memcpy(kind) => (LineKind::Memcpy, format!("{kind:?}")),
                Work::Memset => (LineKind::Memset, "memset".into()),
                Work::Graph => (LineKind::Kernel, format!("whole graph {}", from.trace.names.text(*name))),
                Work::Kernel => (LineKind::Kernel, from.trace.names.text(*name).to_string()),
            };
            let text = if class.is_empty() { text } else { class.clone() };
            let line: Option<&Line> = ledger.lines.iter().find(|l| l.kind == kind && l.name == text);
            KernelRow {
                calls: n as u64,
                total_ns: durations.iter().fold(0, |s, d| s.saturating_add(*d)),
                median_ns: durations[(n - 1) / 2],
                p99_ns: durations[(99 * n).div_ceil(100) - 1],
                min_ns: durations[0],
                max_ns: durations[n - 1],
                bytes: bytes.get(&key).copied().filter(|_| kind != LineKind::Kernel),
                floor_ns: line.and_then(|l| l.floor_ns),
                predicted_ns: line.and_then(|l| l.predicted_ns),
                counters: Vec::new(),
                kind,
                name: text,
            }
        })
        .collect();
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// Per cause: head, tail and gap lines of one name folded.
fn gaps(ledger: &Ledger) -> Vec<GapRow> {
    let mut rows: Vec<GapRow> = Vec::new();
    for l in &ledger.lines {
        let Some(cause) = l.cause else { continue };
        let i = rows.iter().position(|r| r.name == l.name).unwrap_or_else(|| {
            rows.push(GapRow {
                name: l.name.clone(),
                cause,
                pieces: 0,
                total_ns: 0,
                share: 0.0,
                below_clock_ns: 0,
                at_least_ns: None,
                worst: Vec::new(),
            });
            rows.len() - 1
        });
        let r = &mut rows[i];
        r.pieces += l.count;
        r.total_ns += l.ns;
        r.below_clock_ns += l.below_clock_ns;
        r.at_least_ns = match (r.at_least_ns, l.at_least_ns) {
            // Bounds of two places: what either may save, both may.
            (Some(a), Some(b)) => Some(ledger.busy_ns.max(a + b - ledger.window_ns)),
            (a, b) => a.or(b),
        };
        r.worst.extend(l.evidence.iter().cloned());
    }
    for r in &mut rows {
        r.share = r.total_ns as f64 / ledger.window_ns.max(1) as f64;
        r.worst.sort_by_key(|e| (std::cmp::Reverse(e.ns), e.start_ns));
        r.worst.truncate(5);
    }
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}

fn streams(from: &Source<'_>, t0: i64, t1: i64) -> Vec<StreamRow> {
    let mut rows: Vec<(StreamRow, i64)> = Vec::new();
    let mut at: FastMap<(u32, u64), usize> = FastMap::default();
    for &i in from.accountant.in_order() {
        let op = &from.trace.operations[i as usize];
        let (start, end) = (op.start.max(t0), op.end.min(t1));
        if end < start {
            continue;
        }
        let k = *at.entry((op.process, op.stream)).or_insert_with(|| {
            rows.push((StreamRow { process: op.process, stream: op.stream, operations: 0, busy_ns: 0 }, i64::MIN));
            rows.len() - 1
        });
        let (row, reach) = &mut rows[k];
        row.operations += u64::from(op.start >= t0 && op.start < t1);
        row.busy_ns += (end - start.max(*reach)).max(0);
        *reach = (*reach).max(end);
    }
    let mut rows: Vec<StreamRow> = rows.into_iter().map(|r| r.0).collect();
    rows.sort_by_key(|r| (std::cmp::Reverse(r.busy_ns), r.process, r.stream));
    rows
}
