//! `workbench compare A B`: where the time went between two captures or two recorded steps, line by line, adding up exactly.

use super::table::{Sheet, delta_us, grouped, percent, short, us};
use super::{OutputArgs, write_output};
use crate::error::{Error, Kind, Result};
use crate::explain::step::account;
use crate::profile::compare::{Difference, Interval, Sequences, Verdict, difference, judge, sequences};
use crate::profile::import;
use crate::profile::ledger::{Accountant, Ledger, Line, Options};
use crate::profile::steps::{self, Selector, Steps};
use crate::profile::native;
use crate::profile::trace::Trace;
use crate::run::step::recording::Recording;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The capture before: a trace, a folder that `step --out` wrote (its first mode; name the trace in it for another), or
    /// JSON of `step`, `trace` or `gaps`
    a: PathBuf,
    /// The capture after
    b: PathBuf,
    /// How to find steps in traces: auto, whole, profiler, graph, repeat, range:REGEX or kernel:REGEX
    #[arg(long, default_value = "auto", value_name = "HOW")]
    step: Selector,
    /// Device of A and of B
    #[arg(long)]
    device: Option<u32>,
    /// Differences of the median below this share of A do not matter
    #[arg(long, default_value = "1%", value_name = "SHARE")]
    tolerance: Share,
    /// Exit 1 where B's median step is slower than A's by more than this share
    #[arg(long, value_name = "SHARE")]
    max_regression: Option<Share>,
    /// Rows of the table
    #[arg(long, default_value_t = 25)]
    top: usize,
}

/// A share: `2%` or `0.02`.
#[derive(Clone, Copy, Debug)]
struct Share(f64);

impl FromStr for Share {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let (digits, scale) = match text.strip_suffix('%') {
            Some(d) => (d.trim(), 0.01),
            None => (text, 1.0),
        };
        match digits.parse::<f64>() {
            Ok(v) if v.is_finite() && v >= 0.0 => Ok(Self(v * scale)),
            _ => Err(Error::usage(format!("`{text}` is no share; write 2% or 0.02"))),
        }
    }
}

/// One side: the ledger that stands for it, and the times of all its steps.
struct Side {
    ledger: Ledger,
    times: Vec<f64>,
    clock_ns: i64,
    how: String,
}

/// What a path stands for.
enum Subject {
    /// A mode of a recorded step: its folder, its step.json, or one of its traces.
    Run(Box<Recording>, usize, PathBuf),
    /// A report of ours in JSON.
    Report(Value),
    Trace,
}

impl Subject {
    fn of(path: &Path, args: &Args) -> Result<Self> {
        let folder = match path {
            _ if path.is_dir() => {
                if !path.join("step.json").is_file() {
                    return Err(Error::usage(format!("{} is a folder without step.json", path.display()))
                        .try_next("give a trace file, or a folder that `workbench step --out DIR` wrote"));
                }
                Some(path)
            }
            _ if path.file_name().is_some_and(|n| n == "step.json") => Some(path.parent().unwrap_or(Path::new(""))),
            _ => None,
        };
        if let Some(folder) = folder {
            if !matches!(args.step, Selector::Auto) {
                return Err(Error::usage(format!("--step finds steps in traces, and {} has its own", path.display()))
                    .try_next(format!("the trace itself, such as {}", folder.join("graph.wbt.gz").display())));
            }
            return Ok(Self::Run(Box::new(Recording::load(folder)?), 0, folder.to_path_buf()));
        }
        if let Some(value) = report(path)? {
            return Ok(Self::Report(value));
        }
        // A trace whose plan is known is accounted as its step is, unless other steps were asked for.
        if matches!(args.step, Selector::Auto)
            && let Ok(Some((recording, mode))) = Recording::of_trace(path)
        {
            return Ok(Self::Run(Box::new(recording), mode, path.parent().unwrap_or(Path::new("")).to_path_buf()));
        }
        Ok(Self::Trace)
    }

    /// The side that this is; none for a trace, which must be kept open while it is compared.
    fn side(&self, path: &Path) -> Result<Option<Side>> {
        match self {
            Self::Run(recording, mode, folder) => run_side(recording, *mode, folder).map(Some),
            Self::Report(value) => recorded(path, value).map(Some),
            Self::Trace => Ok(None),
        }
    }
}

/// A mode of a recorded step, accounted as `step` does: its kernels under the classes of their plan nodes.
fn run_side(recording: &Recording, mode: usize, folder: &Path) -> Result<Side> {
    let Some(m) = recording.modes.get(mode) else {
        return Err(Error::usage(format!("{} holds no mode of a step", folder.join("step.json").display())));
    };
    let file = folder.join(&m.trace);
    let trace = native::open(&file)?.trace;
    let a = account(recording, m, &trace).map_err(|e| e.at(file.display()))?;
    Ok(Side {
        how: format!(
            "median step of {} ({}, {}; untraced {} µs)",
            a.step_ns.len(),
            recording.title,
            m.mode,
            us(m.untraced.median_ns.round() as i64)
        ),
        times: a.step_ns.iter().map(|ns| *ns as f64).collect(),
        clock_ns: trace.resolution_ns,
        ledger: a.ledger,
    })
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    let (a, b, relation) = sides(&args)?;
    let changes = difference(&a.ledger, &b.ledger, &relation.as_ref().map_or_else(Default::default, |r| r.renames.clone()));
    if changes.residual_ns != 0 {
        return Err(Error::untrusted(format!("the deltas leave {} ns unexplained", changes.residual_ns))
            .try_next("report this with both files"));
    }
    let clock = (a.clock_ns + b.clock_ns) as f64;
    let (verdict, interval) = judge(&a.times, &b.times, args.tolerance.0, clock);
    if let Some(file) = &out.json {
        let report = json!({
            "schema": 1, "a": args.a.display().to_string(), "b": args.b.display().to_string(),
            "a_window_ns": a.ledger.window_ns, "b_window_ns": b.ledger.window_ns,
            "wall_delta_ns": changes.wall_delta_ns, "residual_ns": changes.residual_ns, "lines": changes.lines,
            "verdict": verdict, "interval": interval, "sequences": relation,
        });
        write_output(file, &format!("{report:#}\n"))?;
    }
    let sheet = table(&changes, a.ledger.window_ns, args.top);
    if let Some(file) = &out.csv {
        write_output(file, &csv(&changes)?)?;
    }
    let summary = summary(&args, &a, &b, relation.as_ref(), verdict, &interval);
    if let Some(file) = &out.md {
        let list: String = summary.iter().map(|l| format!("- {l}\n")).collect();
        write_output(file, &format!("{list}\n{}", sheet.markdown()))?;
    }
    if !out.takes_stdout() {
        write_output(Path::new("-"), &format!("{}\n\n{}", summary.join("\n"), sheet.terminal()))?;
    }
    gate(&args, &a, verdict, &interval)
}

/// The two sides, and how their kernel sequences relate where both are traces.
fn sides(args: &Args) -> Result<(Side, Side, Option<Sequences>)> {
    let side = |path: &Path| Subject::of(path, args)?.side(path);
    let trace = |path: &Path| with_trace(path, args, |s, _| Ok(s));
    match (side(&args.a)?, side(&args.b)?) {
        (Some(a), Some(b)) => return Ok((a, b, None)),
        (Some(a), None) => return Ok((a, trace(&args.b)?, None)),
        (None, Some(b)) => return Ok((trace(&args.a)?, b, None)),
        (None, None) => {}
    }
    with_trace(&args.a, args, |a, (trace_a, accountant_a)| {
        with_trace(&args.b, args, |b, (trace_b, accountant_b)| {
            let relation = sequences(
                (trace_a, accountant_a, (a.ledger.t0, a.ledger.t1)),
                (trace_b, accountant_b, (b.ledger.t0, b.ledger.t1)),
            );
            Ok((a, b, Some(relation)))
        })
    })
}

/// Opens a trace, finds its steps and hands the median one on while the trace is alive.
fn with_trace<T>(file: &Path, args: &Args, then: impl FnOnce(Side, (&Trace, &Accountant<'_>)) -> Result<T>) -> Result<T> {
    let loaded = import::load(file)?;
    let trace = &loaded.trace;
    let device = args.device.or_else(|| trace.operations.first().map(|o| o.device)).unwrap_or(0);
    let options = Options { floors: super::gaps::floors(trace, device)?, ..Options::default() };
    let accountant = Accountant::new(trace, device, &options);
    let found = match (&args.step, loaded.windows.as_slice()) {
        (Selector::Auto, windows) if !windows.is_empty() => Steps::marked(trace, &accountant, windows),
        (how, _) => steps::find(trace, &accountant, how).map_err(|e| e.at(file.display()))?,
    };
    let (report, _, median, _) = steps::report(&accountant, &found)?;
    let whole = found.windows.iter().any(|w| !w.open);
    let side = Side {
        ledger: median,
        times: found.windows.iter().filter(|w| !(whole && w.open)).map(|w| w.ns() as f64).collect(),
        clock_ns: trace.resolution_ns,
        how: format!("{} of {} ({})", if report.n == 1 { "the one step" } else { "median step" }, report.n, report.how),
    };
    then(side, (trace, &accountant))
}

/// A report of ours in JSON, if the file is one.
fn report(file: &Path) -> Result<Option<Value>> {
    let head = import::head(file)?;
    let text = String::from_utf8_lossy(&head);
    if import::detect(&head) != import::Format::Json || !text.contains("\"schema\"") || text.contains("\"traceEvents\"") {
        return Ok(None);
    }
    let bytes = std::fs::read(file).map_err(|e| Error::usage(format!("cannot read {}: {e}", file.display())))?;
    let first = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>().next();
    Ok(first.and_then(std::result::Result::ok).filter(|v| v["lines"].is_array() && v["window_ns"].is_i64()))
}

fn recorded(file: &Path, v: &Value) -> Result<Side> {
    let bad = |what: &str| Error::usage(format!("{}: {what}", file.display()));
    let lines: Vec<Line> = v["lines"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|l| {
            let mut l = l.clone();
            // Only the documented keys are required of a report.
            for key in ["duration_ns", "below_clock_ns"] {
                if l[key].is_null() {
                    l[key] = json!(0);
                }
            }
            if let Some(members) = l.as_object_mut() {
                members.remove("evidence");
            }
            serde_json::from_value(l).map_err(|e| bad(&format!("a line cannot be read: {e}")))
        })
        .collect::<Result<_>>()?;
    let window_ns = v["window_ns"].as_i64().unwrap_or(0);
    let sum: i64 = lines.iter().map(|l| l.ns).sum();
    if sum != window_ns {
        return Err(Error::untrusted(format!(
            "{}: its lines sum to {sum} ns and its window is {window_ns} ns",
            file.display()
        )));
    }
    let steps: Vec<f64> = v["steps"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|s| s["open"] != json!(true))
        .filter_map(|s| s["window_ns"].as_f64())
        .collect();
    let ledger = Ledger::of_lines(window_ns, lines);
    let times = if steps.is_empty() { vec![window_ns as f64] } else { steps };
    Ok(Side { ledger, times, clock_ns: v["clock_ns"].as_i64().unwrap_or(1), how: "its recorded window".into() })
}

fn summary(
    args: &Args,
    a: &Side,
    b: &Side,
    relation: Option<&Sequences>,
    verdict: Verdict,
    interval: &Interval,
) -> Vec<String> {
    let base = crate::stats::median(&a.times).max(1.0);
    let word = format!("{verdict:?}").to_lowercase();
    let ns = |v: f64| delta_us(v.round() as i64);
    let mut out = vec![
        format!("A {}: {} µs, {}", args.a.display(), us(a.ledger.window_ns), a.how),
        format!("B {}: {} µs, {}", args.b.display(), us(b.ledger.window_ns), b.how),
        format!(
            "{word}: median step {} µs ({:+.2} %), 95 % interval {} to {} µs, {} and {} steps",
            ns(interval.median_ns),
            100.0 * interval.median_ns / base,
            ns(interval.low_ns),
            ns(interval.high_ns),
            interval.n.0,
            interval.n.1,
        ),
    ];
    if let Some(r) = relation {
        let how = match r.distance {
            Some(d) => format!("{} kept their place, {d} inserted or deleted", grouped(r.same as u64)),
            None => "too far apart to be aligned; lines are matched by name alone".into(),
        };
        out.push(format!("operations: {} in A, {} in B; {how}", grouped(r.a_operations as u64), grouped(r.b_operations as u64)));
        for (x, y) in r.replaced.iter().take(10) {
            let list = |l: &[String]| l.iter().map(|n| short(n, 48)).collect::<Vec<_>>().join(" + ");
            out.push(format!("replaced: {} → {}", list(x), list(y)));
        }
    }
    out
}

fn table(d: &Difference, base: i64, top: usize) -> Sheet {
    let mut sheet = Sheet::new(
        "B less A, every line of the two ledgers",
        &["kind", "name", ">A µs", ">B µs", ">difference µs", ">of A"],
    );
    let share = |ns: i64| percent(ns as f64 / base.max(1) as f64);
    let changed: Vec<_> = d.lines.iter().filter(|l| l.delta_ns != 0).collect();
    for l in changed.iter().take(top) {
        let name = match &l.renamed {
            Some(to) => format!("{} → {}", short(&l.name, 34), short(to, 34)),
            None => short(&l.name, 72),
        };
        let kind = format!("{:?}", l.kind).to_lowercase();
        sheet.row([kind, name, us(l.a_ns), us(l.b_ns), delta_us(l.delta_ns), share(l.delta_ns)]);
    }
    if changed.len() > top {
        let rest: i64 = changed[top..].iter().map(|l| l.delta_ns).sum();
        let name = format!("{} more lines (--top {})", changed.len() - top, changed.len());
        sheet.row(["".into(), name, "".into(), "".into(), delta_us(rest), share(rest)]);
    }
    let (a, b) = (d.lines.iter().map(|l| l.a_ns).sum(), d.lines.iter().map(|l| l.b_ns).sum());
    sheet.row(["".into(), "sum".into(), us(a), us(b), delta_us(d.wall_delta_ns), share(d.wall_delta_ns)]);
    sheet.row(["".into(), "residual".into(), "".into(), "".into(), us(d.residual_ns), share(d.residual_ns)]);
    sheet
}

fn csv(d: &Difference) -> Result<String> {
    let rows: Vec<Vec<String>> = d
        .lines
        .iter()
        .map(|l| {
            let kind = format!("{:?}", l.kind).to_lowercase();
            let to = l.renamed.clone().unwrap_or_default();
            vec![kind, l.name.clone(), to, l.a_ns.to_string(), l.b_ns.to_string(), l.delta_ns.to_string()]
        })
        .collect();
    super::table::csv(&["kind", "name", "renamed", "a_ns", "b_ns", "delta_ns"], rows.iter())
}

/// Fails the command where B is slower than allowed, or where it may be and the steps are too few to say.
fn gate(args: &Args, a: &Side, verdict: Verdict, interval: &Interval) -> Result<()> {
    let Some(Share(most)) = args.max_regression else { return Ok(()) };
    let allowed = most * crate::stats::median(&a.times);
    let percent = |ns: f64| format!("{:+.2} %", 100.0 * ns / crate::stats::median(&a.times).max(1.0));
    if interval.low_ns > allowed {
        return Err(Error::check(format!(
            "the median step is slower by {} (at least {}), more than the {:.2} % allowed",
            percent(interval.median_ns),
            percent(interval.low_ns),
            100.0 * most
        ))
        .try_next("the largest rows of the table say where"));
    }
    if interval.high_ns > allowed && verdict != Verdict::Same && interval.n.0.min(interval.n.1) > 1 {
        return Err(Error::new(
            Kind::Untrusted,
            format!("a regression of up to {} cannot be excluded", percent(interval.high_ns)),
        )
        .try_next("record more steps of both"));
    }
    Ok(())
}
