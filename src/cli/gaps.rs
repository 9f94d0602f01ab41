//! `workbench gaps`: account every nanosecond of anyone's trace, and say why the device idled.

use super::table::{Sheet, delta_us, grouped, percent, short, us};
use super::{OutputArgs, write_output};
use crate::error::{Error, Result};
use crate::explain;
use crate::profile::compare::LineDelta;
use crate::profile::defects::{self, Audit, severity};
use crate::profile::export::perfetto;
use crate::profile::import::ncu;
use crate::profile::gaps::{GapReport, KernelRow, Source};
use crate::profile::import::{self, Loaded};
use crate::profile::ledger::{Accountant, Detail, Floors, Labels, LineKind, Options};
use crate::profile::steps::{self, Selector, Steps};
use crate::profile::trace::Trace;
use crate::roofline::store;
use crate::report::html::{Page, Section};
use crate::report;
use crate::run::step::recording::Recording;
use crate::units::Provenance;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Traces: our own, PyTorch profiler or Chrome JSON (plain, .gz, .zst), Nsight Systems SQLite. In a folder of `step
    /// --out` each kernel gets the class of its plan node, with floor and prediction (step.json beside the trace has them)
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How to find steps: auto, whole, profiler, graph, repeat, range:REGEX or kernel:REGEX
    #[arg(long, default_value = "auto", value_name = "HOW")]
    step: Selector,
    /// Only this device; all that have work otherwise
    #[arg(long)]
    device: Option<u32>,
    /// Rows of each table
    #[arg(long, default_value_t = 20)]
    top: usize,
    /// Counters of an Nsight Compute CSV (details or raw page) beside the kernels
    #[arg(long, value_name = "FILE")]
    ncu: Option<PathBuf>,
    /// Write a trace that Perfetto opens, every gap a slice with its cause
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Put every segment of the time line into the JSON
    #[arg(long)]
    timeline: bool,
    /// Back-to-back gap of two kernels of a stream on this card, ns
    #[arg(long, value_name = "NS")]
    stream_floor: Option<i64>,
    /// The same between two nodes of a graph
    #[arg(long, value_name = "NS")]
    graph_floor: Option<i64>,
    /// A page will be drawn.
    #[arg(skip)]
    page: bool,
}

impl Args {
    /// What `workbench trace` uses: everything, with steps found as told.
    pub(super) fn plain(step: Selector, top: usize) -> Self {
        Self {
            files: Vec::new(),
            step,
            device: None,
            top,
            ncu: None,
            perfetto: None,
            timeline: false,
            stream_floor: None,
            graph_floor: None,
            page: false,
        }
    }
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    let args = Args { page: out.html.is_some(), ..args };
    if args.perfetto.is_some() && args.files.len() > 1 {
        return Err(Error::usage("--perfetto takes one trace").try_next("give each trace its own call"));
    }
    let mut reports = Vec::new();
    for file in &args.files {
        reports.extend(one(file, &args)?);
    }
    if let Some(file) = &out.json {
        let lines: Vec<String> = reports
            .iter()
            .map(|r| serde_json::to_string(r).map_err(|e| Error::usage(format!("cannot write JSON: {e}"))))
            .collect::<Result<_>>()?;
        write_output(file, &(lines.join("\n") + "\n"))?;
    }
    if let Some(file) = &out.csv {
        write_output(file, &csv(&reports)?)?;
    }
    if let Some(file) = &out.md {
        let text: Vec<String> = reports.iter().map(|r| markdown(r, args.top)).collect();
        write_output(file, &text.join("\n"))?;
    }
    if let Some(file) = &out.html {
        write_output(file, &html(&reports, args.top)?.render()?)?;
    }
    if !out.takes_stdout() {
        let text: Vec<String> = reports.iter().map(|r| terminal(r, args.top)).collect();
        write_output(Path::new("-"), &text.join("\n"))?;
    }
    Ok(())
}

/// The reports of one file, one for each device that has work.
fn one(file: &Path, args: &Args) -> Result<Vec<GapReport>> {
    account(file, &import::load(file)?, args)
}

/// The reports of a capture that has been read, or just been made.
pub(super) fn account(file: &Path, loaded: &Loaded, args: &Args) -> Result<Vec<GapReport>> {
    let trace = &loaded.trace;
    let audit = defects::audit(trace);
    let mut devices: Vec<u32> = trace.operations.iter().map(|o| o.device).collect();
    devices.sort_unstable();
    devices.dedup();
    if let Some(only) = args.device {
        devices.retain(|d| *d == only);
    }
    if devices.is_empty() {
        let what = match args.device {
            Some(d) => format!("{} has no work of device {d}", file.display()),
            None => format!("{} has no GPU work", file.display()),
        };
        return Err(Error::untrusted(what).try_next(format!("workbench doctor {}", file.display())));
    }
    let plan = plan(file, trace);
    let profiled = args.ncu.as_deref().map(ncu::read).transpose()?;
    let mut reports = Vec::new();
    for &device in &devices {
        let options = options(trace, &audit, device, plan.as_ref(), args)?;
        let accountant = Accountant::new(trace, device, &options);
        let Some(span) = accountant.span() else {
            eprintln!("workbench: device {device} of {}: no operation has usable times", file.display());
            continue;
        };
        let steps = match (&args.step, loaded.windows.as_slice()) {
            (Selector::Auto, windows) if !windows.is_empty() => Steps::marked(trace, &accountant, windows),
            (how, _) => steps::find(trace, &accountant, how)?,
        };
        let source = Source { file: &file.display().to_string(), trace, audit: &audit, accountant: &accountant };
        let mut report = GapReport::new(&source, device, span, Some(&steps))?;
        report.plan = plan.as_ref().map(|p| p.text.clone());
        if let Some(profiled) = &profiled {
            let launched = report.launched(&source);
            let j = ncu::join(&mut report.kernels, &launched, &trace.names, profiled);
            tell_join(j, profiled.len(), &format!("device {device} of {}", file.display()));
        }
        reports.push(report);
    }
    if let Some(to) = &args.perfetto {
        let ledgers: Vec<_> = reports.iter().map(|r| &r.ledger).collect();
        let mut text = Vec::new();
        perfetto::write(trace, &ledgers, &mut text)?;
        write_output(to, &String::from_utf8_lossy(&text))?;
    }
    if !args.timeline {
        for r in &mut reports {
            (r.ledger.segments, r.ledger.pieces) = (Vec::new(), Vec::new());
        }
    }
    if reports.is_empty() {
        return Err(Error::untrusted(format!("{} has no operation with usable times", file.display()))
            .try_next(format!("workbench doctor {}", file.display())));
    }
    Ok(reports)
}

/// How the counters found their kernels, where that is not plain.
fn tell_join(j: ncu::Joined, all: usize, place: &str) {
    if j.by_order > 0 {
        eprintln!("workbench: {} of {all} profiled launches joined by grid, block and order: several kernels have their name", j.by_order);
    }
    if j.strangers > 0 {
        eprintln!("workbench: {} of {all} profiled launches name no kernel of {place}, or several that nothing tells apart", j.strangers);
    }
}

/// What the recording of a step says of its trace.
struct Plan {
    labels: Labels,
    floors: Floors,
    text: String,
}

/// The plan of a trace that `step --out` wrote. One that does not fit is told and left out: the trace has its account anyway.
fn plan(file: &Path, trace: &Trace) -> Option<Plan> {
    let (recording, mode) = Recording::of_trace(file)
        .inspect_err(|e| eprintln!("workbench: kernels keep their own names: {e}"))
        .ok()
        .flatten()?;
    let (labels, steps) = explain::step::labels(&recording, trace)
        .inspect_err(|e| eprintln!("workbench: kernels keep their own names, step.json does not fit: {e}"))
        .ok()?;
    let text = format!("{}, {}: {steps} whole steps", recording.title, recording.modes[mode].mode);
    // Measured, but on another day.
    let floors = Floors { provenance: Provenance::Recorded, ..explain::floors::of(&recording.ceilings) };
    Some(Plan { labels, floors, text })
}

/// The card's back-to-back gaps: as measured on a card of that name (`workbench roofline` keeps them), else as recorded.
pub(super) fn floors(trace: &Trace, device: u32) -> Result<Floors> {
    let name = trace.devices.iter().find(|d| d.id == device).map_or("", |d| d.name.as_str());
    if let Some(ceilings) = store::of_model(&store::file(), name)? {
        return Ok(explain::floors::of(&ceilings));
    }
    let mut floors = Floors::default();
    if !name.contains("H200") {
        floors.provenance = Provenance::Assumed;
        floors.source = format!("{}, not measured on this card", floors.source);
    }
    Ok(floors)
}

fn options(trace: &Trace, audit: &Audit, device: u32, plan: Option<&Plan>, args: &Args) -> Result<Options> {
    let mut floors = match plan {
        Some(plan) => plan.floors.clone(),
        None => floors(trace, device)?,
    };
    if args.stream_floor.is_some() || args.graph_floor.is_some() {
        floors.stream_ns = args.stream_floor.unwrap_or(floors.stream_ns);
        floors.graph_node_ns = args.graph_floor.unwrap_or(floors.graph_node_ns);
        (floors.provenance, floors.source) = (Provenance::Assumed, "given on the command line".into());
    }
    Ok(Options {
        floors,
        labels: plan.map(|p| p.labels.clone()).unwrap_or_default(),
        detail: match args.timeline || args.page || args.perfetto.is_some() {
            true => Detail::Segments,
            false => Detail::Lines,
        },
        clock_ns: Some(trace.resolution_ns.max(audit.clock_error_ns)),
        ..Options::default()
    })
}

fn sheets(r: &GapReport, top: usize) -> Vec<Sheet> {
    let l = &r.ledger;
    let share = |ns: i64| percent(ns as f64 / l.window_ns.max(1) as f64);
    let mut out = Vec::new();
    let mut found = Sheet::new("Defects", &["", "defect", ">count", ">first at", "meaning"]);
    for d in &r.defects {
        let level = format!("{:?}", severity(&d.defect)).to_lowercase();
        found.row([level, d.defect.clone(), grouped(d.count), d.first(), d.detail.clone()]);
    }
    out.push(found);

    let mut lines = Sheet::new(
        "Ledger: every nanosecond of the window on one line",
        &["kind", "name", ">count", ">µs", ">share", ">floor µs", ">predicted µs"],
    );
    let optional = |v: Option<i64>| v.map_or(String::new(), us);
    let (mut shown, mut hidden, mut hidden_ns, mut hidden_count) = (0, 0, 0, 0);
    for line in &l.lines {
        if !line.kind.is_busy() && hidden > 0 {
            lines.row(more(top, hidden, hidden_count, hidden_ns, share(hidden_ns)));
            hidden = 0;
        }
        if line.kind.is_busy() && shown >= top {
            (hidden, hidden_ns, hidden_count) = (hidden + 1, hidden_ns + line.ns, hidden_count + line.count);
            continue;
        }
        shown += usize::from(line.kind.is_busy());
        lines.row([
            format!("{:?}", line.kind).to_lowercase(),
            short(&line.name, 72),
            grouped(line.count),
            us(line.ns),
            share(line.ns),
            optional(line.floor_ns),
            optional(line.predicted_ns),
        ]);
    }
    if hidden > 0 {
        lines.row(more(top, hidden, hidden_count, hidden_ns, share(hidden_ns)));
    }
    lines.row(["".into(), "sum".into(), "".into(), us(l.lines.iter().map(|x| x.ns).sum()), share(l.window_ns)]);
    lines.row(["".into(), "residual".into(), "".into(), us(l.residual_ns), share(l.residual_ns)]);
    out.push(lines);

    let mut kernels = Sheet::new(
        "Kernels and copies, by their own durations",
        &["name", ">calls", ">total µs", ">median µs", ">p99 µs", ">floor µs", "counters (Nsight Compute)"],
    );
    for k in r.kernels.iter().take(top) {
        kernels.row([
            short(&k.name, 72),
            grouped(k.calls),
            us(k.total_ns),
            us(k.median_ns),
            us(k.p99_ns),
            optional(k.floor_ns),
            counters(k),
        ]);
    }
    out.push(kernels);

    let mut gaps = Sheet::new(
        "Why the device idled",
        &["cause", ">pieces", ">total µs", ">share", ">below clock µs", ">without it, at least µs"],
    );
    for g in r.gaps.iter().take(top) {
        gaps.row([
            short(&g.name, 60),
            grouped(g.pieces),
            us(g.total_ns),
            percent(g.share),
            us(g.below_clock_ns),
            optional(g.at_least_ns),
        ]);
    }
    out.push(gaps);

    let mut streams =
        Sheet::new("Streams (they overlap: their sum means nothing)", &["stream", ">operations", ">busy µs", ">share"]);
    for s in r.streams.iter().take(top) {
        let name = if s.process == 0 { s.stream.to_string() } else { format!("{} of process {}", s.stream, s.process) };
        streams.row([name, grouped(s.operations), us(s.busy_ns), share(s.busy_ns)]);
    }
    streams.row(["device, union".into(), grouped(l.operations), us(l.busy_ns), share(l.busy_ns)]);
    out.push(streams);
    if let Some(s) = &r.step_report
        && s.n > 1
    {
        let all = &s.difference.lines;
        let mut difference = Sheet::new(
            format!("Why the p99 step is {} µs longer than the median step: both ledgers", us(s.difference.wall_delta_ns)),
            &["kind", "name", ">median µs", ">p99 µs", ">difference µs"],
        );
        for d in all.iter().take(top) {
            difference.row([
                format!("{:?}", d.kind).to_lowercase(),
                short(&d.name, 72),
                us(d.a_ns),
                us(d.b_ns),
                delta_us(d.delta_ns),
            ]);
        }
        let sums = |lines: &[LineDelta]| {
            let sum = |of: fn(&LineDelta) -> i64| lines.iter().map(of).sum::<i64>();
            [us(sum(|d| d.a_ns)), us(sum(|d| d.b_ns)), delta_us(sum(|d| d.delta_ns))]
        };
        if all.len() > top {
            let [a, b, delta] = sums(&all[top..]);
            let name = format!("{} more lines (--top {})", all.len() - top, all.len());
            difference.row(["".into(), name, a, b, delta]);
        }
        let [a, b, delta] = sums(all);
        difference.row(["".into(), "sum".into(), a, b, delta]);
        out.push(difference);
    }
    out.retain(|s| !s.is_empty());
    out
}

fn counters(k: &KernelRow) -> String {
    let one = |(name, unit, value): &(String, String, f64)| {
        let space = if unit.is_empty() { "" } else { " " };
        format!("{name} {value:.1}{space}{unit}")
    };
    k.counters.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The row that stands for the busy lines that are not shown.
fn more(top: usize, hidden: usize, count: u64, ns: i64, share: String) -> [String; 5] {
    let name = format!("{hidden} more lines (--top {} shows them)", top + hidden);
    ["busy".into(), name, grouped(count), us(ns), share]
}

/// The worst pieces of each cause, with the records that speak for it and the cause that came second.
fn evidence(r: &GapReport, causes: usize) -> Vec<String> {
    let mut out = Vec::new();
    for g in r.gaps.iter().filter(|g| g.share >= 0.001).take(causes) {
        out.push(format!("{} ({} µs in {} pieces):", short(&g.name, 72), us(g.total_ns), grouped(g.pieces)));
        for e in &g.worst {
            let records: Vec<String> =
                e.records.iter().map(|x| format!("{} {} #{}", x.role, short(&x.name, 40), x.index)).collect();
            let records = if records.is_empty() { "no record".into() } else { records.join(", ") };
            out.push(format!(
                "  {} µs at {} µs: {records}. Not {}: {}",
                us(e.ns),
                us(e.start_ns - r.ledger.t0),
                e.runner_up.cause.text(),
                e.runner_up.why,
            ));
        }
    }
    out
}

/// The lines above the tables.
fn summary(r: &GapReport) -> Vec<String> {
    let l = &r.ledger;
    let mut name = r.device_info.name.clone();
    if name.is_empty() {
        name = "unnamed".into();
    }
    let mut out = vec![
        format!("{} ({}), device {} {name}, {}", r.file, r.format, l.device, r.provenance),
        format!(
            "window {} µs, {} operations, busy {} µs ({}), residual {} ns; clock {} ns",
            us(l.window_ns),
            grouped(l.operations),
            us(l.busy_ns),
            percent(l.busy_ns as f64 / l.window_ns.max(1) as f64),
            l.residual_ns,
            l.clock_ns,
        ),
        format!(
            "dispatch floors: stream {} ns, graph node {} ns, programmatic {} ns ({}: {})",
            l.floors.stream_ns, l.floors.graph_node_ns, l.floors.pdl_ns, l.floors.provenance, l.floors.source
        ),
    ];
    let facts: Vec<String> = r.environment.iter().map(|(k, v)| format!("{k} {}", short(v, 120))).collect();
    if !facts.is_empty() {
        out.push(format!("the capture says: {}", facts.join(", ")));
    }
    out.extend(r.plan.iter().map(|p| format!("kernels by plan node ({p})")));
    if let Some(s) = &r.step_report {
        let one = if s.n == 1 { "step" } else { "steps" };
        out.push(format!(
            "{} {one} ({}): median {} µs, p99 {} µs; {} share one sequence of operations, {} to {} operations each",
            s.n,
            s.how,
            us(s.median_ns),
            us(s.p99_ns),
            percent(s.stability),
            s.operations.0,
            s.operations.1,
        ));
    }
    out.extend(l.notes.iter().map(|n| format!("note: {n}")));
    out
}

pub(super) fn terminal(r: &GapReport, top: usize) -> String {
    let mut text = summary(r).join("\n") + "\n";
    for sheet in sheets(r, top) {
        text += "\n";
        text += &sheet.terminal();
    }
    text += "\nThe worst pieces of each cause, with their evidence\n";
    text += &evidence(r, 8).join("\n");
    text + "\n"
}

fn markdown(r: &GapReport, top: usize) -> String {
    let mut text = format!("## {}\n\n", r.file);
    text += &summary(r).iter().map(|l| format!("- {l}\n")).collect::<String>();
    for sheet in sheets(r, top) {
        text += "\n";
        text += &sheet.markdown();
    }
    text += "\n### The worst pieces of each cause, with their evidence\n\n";
    text += &evidence(r, 8).iter().map(|l| format!("- {}\n", l.trim_start())).collect::<String>();
    text
}

/// One page: a section for each report, its median and p99 step as timelines.
fn html(reports: &[GapReport], top: usize) -> Result<Page> {
    let mut page = Page { provenance: "recorded".into(), ..Page::default() };
    let first = reports.first().map_or("", |r| r.file.as_str());
    let base = |f: &str| Path::new(f).file_name().map_or(f.to_string(), |n| n.to_string_lossy().into_owned());
    page.title = format!("Gaps: {}", base(first));
    page.subtitle = "Every nanosecond of the device on one line, and why it idled".into();
    for (i, r) in reports.iter().enumerate() {
        let mut section = Section {
            id: format!("report-{i}"),
            title: format!("{}, device {} {}", base(&r.file), r.ledger.device, r.device_info.name).trim_end().into(),
            notes: summary(r),
            tables: sheets(r, top).iter().map(Sheet::html).collect(),
            evidence: evidence(r, 8).iter().map(|l| l.trim_start().to_string()).collect(),
            ..Section::default()
        };
        let single = r.step_report.as_ref().is_none_or(|s| s.n < 2);
        // Where there are several steps, the whole comes last: every gap of the window is in it.
        for (name, timeline) in [("median", &r.median), ("p99", &r.p99), ("whole", &r.whole)] {
            let title = match name {
                _ if single => "Timeline".into(),
                "whole" => "The whole capture".into(),
                _ => format!("The {name} step"),
            };
            if let Some(t) = timeline.as_ref().filter(|_| !single || name == "median") {
                let id = format!("timeline-{i}-{name}");
                let cut = match t.window_ns < t.whole_ns {
                    true => format!(": {} of its {} µs, around the longest gap", us(t.window_ns), us(t.whole_ns)),
                    false => String::new(),
                };
                let title = title + &cut;
                section.timelines.push(report::timeline::picture(&id, &title, t, str::to_string)?);
            }
        }
        page.sections.push(section);
    }
    Ok(page)
}

/// Every line of every report, nanoseconds unformatted.
fn csv(reports: &[GapReport]) -> Result<String> {
    let mut rows = Vec::new();
    let number = |v: Option<i64>| v.map_or(String::new(), |v| v.to_string());
    for r in reports {
        for l in &r.ledger.lines {
            let kind = if l.kind == LineKind::Unknown { "unknown".into() } else { format!("{:?}", l.kind).to_lowercase() };
            rows.push(vec![
                r.file.clone(),
                r.ledger.device.to_string(),
                kind,
                l.name.clone(),
                l.count.to_string(),
                l.ns.to_string(),
                number(l.floor_ns),
                number(l.predicted_ns),
            ]);
        }
    }
    super::table::csv(&["file", "device", "kind", "name", "count", "ns", "floor_ns", "predicted_ns"], rows.iter())
}
