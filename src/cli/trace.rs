//! `workbench trace -- CMD`: any CUDA process, accounted.
//!
//! Standard output belongs to the command, so all that we have to say goes to standard error, unless `--json -` and the like
//! ask for it there.

use super::{OutputArgs, write_output};
use crate::error::{Error, Result};
use crate::profile::foreign::{self, Exit, Mode, Request};
use crate::profile::ledger::{self, Ledger};
use crate::profile::native::Recording;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Keep the recording in FILE (of all processes, in one); without it only the account is printed
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How much to record: `full`, `kernels` (only calls that launch, copy or wait) or `graph` (a graph launch is one record)
    #[arg(long, default_value = "full", value_parser = parse_mode)]
    mode: Mode,
    /// Begin this long after CUDA is initialised: 500ms, 10s, 2m
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    after: Option<Duration>,
    /// Record for this long, then leave the process, which runs on
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,
    /// Also record when each kernel was queued and submitted
    #[arg(long)]
    latency: bool,
    /// Finished records reach the disk this often; a killed process loses no more
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_time)]
    flush_every: Duration,
    /// Measure what tracing costs: run the command untraced and traced in turn, N times, and untraced once more
    #[arg(long, value_name = "N", default_value_t = 0)]
    ab: u32,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    Mode::parse(text).ok_or_else(|| "full, kernels or graph".to_string())
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err("a number with ms, s or m".into()),
    };
    let value: f64 = digits.parse().map_err(|_| "a number with ms, s or m".to_string())?;
    Duration::try_from_secs_f64(value * unit).map_err(|e| e.to_string())
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    if out.html.is_some() || out.csv.is_some() || out.md.is_some() {
        return Err(Error::usage("`trace` itself writes JSON only")
            .try_next("workbench trace -o FILE -- CMD, then `workbench gaps FILE --html report.html`"));
    }
    foreign::library()?;
    let folder = parts_folder(&args)?;
    let request = Request {
        command: args.command.clone(),
        folder: folder.clone(),
        mode: args.mode,
        flush_every: args.flush_every,
        after: args.after,
        duration: args.duration,
        latency: args.latency,
    };
    // Only if it is empty: recordings of a run that failed half way stay.
    let tidy = |_: &Error| drop(std::fs::remove_dir(&folder));
    let walls = if args.ab > 0 { Some(compare(&args, &request).inspect_err(tidy)?) } else { None };
    let mut early = false;
    let exit = match &walls {
        Some(walls) => walls.last,
        None => foreign::run(&request, || {
            early = true;
            eprintln!("workbench: recording ended after {:?}; the command runs on", args.duration.unwrap_or_default());
            tell(&foreign::gather(&folder).0);
        })
        .inspect_err(tidy)?,
    };
    let (recording, errors) = foreign::gather(&folder);
    for e in errors {
        eprintln!("workbench: {e}");
    }
    if !early {
        tell(&recording);
    }
    if let Some(walls) = &walls {
        walls.print(&recording);
    }
    match &args.output {
        Some(file) if !recording.processes.is_empty() => {
            let bytes = foreign::merge(&folder, file)?;
            eprintln!("workbench: {bytes} bytes in {}; account it again with `workbench gaps {0}`", file.display());
        }
        _ => {}
    }
    let _ = std::fs::remove_dir_all(&folder);
    if let Some(file) = &out.json {
        write_output(file, &format!("{:#}\n", to_json(&recording, exit, walls.as_ref())?))?;
    }
    if exit.code != 0 {
        // The command's own code, which no error of ours may stand in for.
        std::process::exit(exit.code.into());
    }
    verdict(&recording)
}

/// A folder for the parts: beside the output, so that they survive us; else among the temporary files.
fn parts_folder(args: &Args) -> Result<PathBuf> {
    let folder = match &args.output {
        Some(file) => {
            let mut name = file.as_os_str().to_owned();
            name.push(".parts");
            PathBuf::from(name)
        }
        None => std::env::temp_dir().join(format!("workbench-trace-{}", std::process::id())),
    };
    if !foreign::parts(&folder).is_empty() {
        return Err(Error::usage(format!("{} holds the recordings of another run", folder.display()))
            .try_next("look at them with `workbench gaps`, and remove the folder"));
    }
    std::fs::create_dir_all(&folder).map_err(|e| Error::usage(format!("cannot make {}: {e}", folder.display())))?;
    Ok(folder)
}

/// What keeps the account from being one, as the error with the right exit code.
fn verdict(recording: &Recording) -> Result<()> {
    if recording.processes.is_empty() {
        return Err(Error::no_device("the command never initialised CUDA, so there is nothing to account").try_next(
            "check that it uses the GPU (sudo and some launchers drop CUDA_INJECTION64_PATH), and `workbench doctor`",
        ));
    }
    let problems: Vec<_> = recording.processes.iter().filter(|p| p.problem.is_some()).collect();
    if problems.len() == recording.processes.len()
        && let Some((name, sentence)) = problems.first().and_then(|p| p.problem.clone())
    {
        let fix = problems[0].fact("problem_fix").unwrap_or("`workbench doctor`").to_string();
        return Err(match name.as_str() {
            "another_subscriber" | "hardware_busy" => Error::untrusted(sentence),
            _ => Error::no_device(sentence),
        }
        .try_next(fix));
    }
    Ok(())
}

/// The summary of processes, the account of each device, and what stands against them.
fn tell(recording: &Recording) {
    let mut processes = table(&["pid", "operations", "calls", "dropped", "closed", "command"], 1..4);
    for p in &recording.processes {
        processes.add_row([
            p.pid.to_string(),
            p.operations.to_string(),
            p.calls.to_string(),
            p.dropped.to_string(),
            if p.ended { "yes" } else { "no" }.to_string(),
            shorten(&p.command),
        ]);
    }
    if !recording.processes.is_empty() {
        eprintln!("\n{processes}");
    }
    for ledger in account(recording) {
        match ledger {
            Ok(ledger) => print_ledger(recording, &ledger),
            Err(e) => eprintln!("workbench: {e}"),
        }
    }
    for (what, fix) in diagnoses(recording) {
        eprintln!("workbench: {what}\n  try: {fix}");
    }
}

/// Named findings about the capture itself, each with what to do.
fn diagnoses(recording: &Recording) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for p in &recording.processes {
        let mut say = |what: String, fix: &str| found.push((format!("process {}: {what}", p.pid), fix.to_string()));
        if let Some((_, sentence)) = &p.problem {
            say(sentence.clone(), p.fact("problem_fix").unwrap_or("`workbench doctor`"));
        } else if p.operations == 0 && p.calls > 0 {
            say(
                "CUDA calls but no operation of the device were recorded".into(),
                "if it did launch work: WSL, MIG and missing permission look like this; see `workbench doctor`",
            );
        } else if p.operations == 0 {
            say("no GPU work".into(), "nothing, if it only asked for the devices; else lengthen --for or drop --after");
        }
        if p.dropped > 0 {
            say(
                format!("CUPTI dropped {} records: gaps next to them are not real", p.dropped),
                "--mode kernels or --mode graph, or a shorter --for",
            );
        }
        if let (Some(cupti), Some(driver)) = (p.fact("cupti"), p.fact("cuda_driver"))
            && release(cupti) < release(driver)
        {
            say(
                format!("CUPTI {cupti} is older than the driver's CUDA {driver}: new kinds of work may be missing"),
                "WORKBENCH_CUPTI=/path/to/a/newer/libcupti.so",
            );
        }
        if !p.ended && p.problem.is_none() {
            say(
                "it ended without running exit handlers; up to one flush period is missing".into(),
                "a shorter --flush-every",
            );
        }
    }
    found
}

/// `13.0 (130001)` as (13, 0).
fn release(text: &str) -> (u32, u32) {
    let mut parts = text.split([' ', '.']).map(|n| n.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// One ledger for each device with work: from its first operation to its last.
fn account(recording: &Recording) -> Vec<Result<Ledger>> {
    let trace = &recording.trace;
    let mut devices: Vec<u32> = trace.operations.iter().map(|o| o.device).collect();
    devices.sort_unstable();
    devices.dedup();
    let options = ledger::Options { detail: ledger::Detail::Lines, ..ledger::Options::default() };
    let windows = devices.into_iter().filter_map(|device| {
        let timed = trace.operations.iter().filter(|o| o.device == device && o.start > 0 && o.end >= o.start);
        let (t0, t1) = timed.fold((i64::MAX, i64::MIN), |(a, b), o| (a.min(o.start), b.max(o.end)));
        (t0 < t1).then_some((device, t0, t1))
    });
    windows.map(|(device, t0, t1)| ledger::account(trace, device, t0, t1, &options)).collect()
}

fn print_ledger(recording: &Recording, ledger: &Ledger) {
    const LINES: usize = 24;
    let name = recording.trace.devices.iter().find(|d| d.id == ledger.device).map_or("", |d| d.name.as_str());
    eprintln!(
        "\ndevice {} {name}: {} operations in {:.3} ms, busy {:.1} %, residual {} ns",
        ledger.device,
        ledger.operations,
        ledger.window_ns as f64 / 1e6,
        100.0 * ledger.busy_ns as f64 / ledger.window_ns as f64,
        ledger.residual_ns
    );
    let mut lines: Vec<_> = ledger.lines.iter().collect();
    lines.sort_by_key(|l| std::cmp::Reverse(l.ns));
    let mut printed = table(&["line", "count", "µs", "share"], 1..4);
    let row = |name: String, count: u64, ns: i64| {
        [
            name,
            count.to_string(),
            format!("{:.3}", ns as f64 / 1e3),
            format!("{:.2} %", 100.0 * ns as f64 / ledger.window_ns as f64),
        ]
    };
    for l in lines.iter().take(LINES) {
        let kind = format!("{:?}", l.kind).to_lowercase();
        let name = if l.name.starts_with(&kind) { l.name.clone() } else { format!("{kind} {}", l.name) };
        printed.add_row(row(shorten(&name), l.count, l.ns));
    }
    if let Some(rest) = lines.get(LINES..).filter(|r| !r.is_empty()) {
        let (count, ns) = rest.iter().fold((0, 0), |(c, n), l| (c + l.count, n + l.ns));
        printed.add_row(row(format!("{} more lines", rest.len()), count, ns));
    }
    eprintln!("{printed}");
    for note in &ledger.notes {
        eprintln!("  {note}");
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(70) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

fn table(head: &[&str], right: std::ops::Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head.to_vec());
    for i in right {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Wall times of the whole command, untraced and traced.
struct Walls {
    untraced: Vec<Duration>,
    traced: Vec<Duration>,
    last: Exit,
}

fn compare(args: &Args, request: &Request) -> Result<Walls> {
    let (mut untraced, mut traced) = (Vec::new(), Vec::new());
    let mut last = None;
    for round in 0..args.ab {
        untraced.push(foreign::run_untraced(&args.command)?.wall);
        // The account is of the last traced run.
        for old in foreign::parts(&request.folder).into_iter().filter(|_| round > 0) {
            let _ = std::fs::remove_file(old);
        }
        let exit = foreign::run(request, || {})?;
        traced.push(exit.wall);
        last = Some(exit);
    }
    untraced.push(foreign::run_untraced(&args.command)?.wall);
    let last = last.ok_or_else(|| Error::usage("--ab 0 measures nothing"))?;
    Ok(Walls { untraced, traced, last })
}

fn median(values: &[Duration]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().map(Duration::as_secs_f64).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n % 2 == 1 { sorted[n / 2] } else { (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0 }
}

impl Walls {
    fn print(&self, recording: &Recording) {
        let (plain, traced) = (median(&self.untraced), median(&self.traced));
        let operations: u64 = recording.processes.iter().map(|p| p.operations).sum();
        eprintln!(
            "\ntracing cost, whole command: untraced {:.3} s (n={}), traced {:.3} s (n={}), {:+.2} %, {:+.0} ns an operation; \
             the untraced runs themselves span {:.2} %",
            plain,
            self.untraced.len(),
            traced,
            self.traced.len(),
            100.0 * (traced / plain - 1.0),
            (traced - plain) * 1e9 / operations.max(1) as f64,
            100.0 * self.spread() / plain,
        );
    }
    /// Largest untraced wall less the smallest: what a difference must exceed to mean anything.
    fn spread(&self) -> f64 {
        let all = self.untraced.iter().map(Duration::as_secs_f64);
        all.clone().fold(f64::MIN, f64::max) - all.fold(f64::MAX, f64::min)
    }
    fn json(&self) -> Value {
        let ns = |all: &[Duration]| all.iter().map(|d| d.as_nanos() as u64).collect::<Vec<_>>();
        json!({"untraced_ns": ns(&self.untraced), "traced_ns": ns(&self.traced)})
    }
}

fn to_json(recording: &Recording, exit: Exit, walls: Option<&Walls>) -> Result<Value> {
    let mut ledgers = account(recording).into_iter().collect::<Result<Vec<_>>>()?;
    ledgers.sort_by_key(|l| std::cmp::Reverse(l.busy_ns));
    let first = ledgers.first();
    let processes: Vec<_> = recording
        .processes
        .iter()
        .map(|p| {
            json!({
                "pid": p.pid, "parent": p.parent, "command": p.command, "operations": p.operations, "calls": p.calls,
                "dropped": p.dropped, "ended": p.ended, "problem": p.problem.as_ref().map(|(name, _)| name),
            })
        })
        .collect();
    let defects = &recording.trace.defects;
    let facts: serde_json::Map<String, Value> =
        recording.trace.facts.iter().map(|(k, v)| (k.clone(), v.clone().into())).collect();
    Ok(json!({
        "schema": 1,
        "provenance": "measured",
        "environment": facts,
        "device": first.and_then(|l| recording.trace.devices.iter().find(|d| d.id == l.device)),
        "window_ns": first.map_or(0, |l| l.window_ns),
        "residual_ns": first.map_or(0, |l| l.residual_ns),
        "operations": first.map_or(0, |l| l.operations),
        "busy_ns": first.map_or(0, |l| l.busy_ns),
        "lines": first.map(|l| &l.lines),
        "steps": [],
        "defects": defects,
        "devices": ledgers,
        "processes": processes,
        "exit_code": exit.code,
        "overhead": walls.map(Walls::json),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_time("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_time("1.5m"), Ok(Duration::from_secs(90)));
        assert!(parse_time("10 h").is_err() && parse_time("s").is_err() && parse_time("-1s").is_err());
    }

    #[test]
    fn releases_compare() {
        assert!(release("12.9 (28)") < release("13.0"));
        assert!(release("13.0 (130001)") >= release("13.0"));
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let long = "µ".repeat(100);
        assert_eq!(shorten(&long).chars().count(), 71);
        assert_eq!(shorten("short"), "short");
    }
}
