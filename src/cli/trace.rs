//! `workbench trace -- CMD`: any CUDA process, accounted.
//!
//! Standard output belongs to the command, so all that we have to say goes to standard error, unless `--json -` asks for it.

mod cost;
mod diagnosis;
mod walls;

use super::gaps;
use super::table::{Sheet, grouped, short};
use super::{OutputArgs, write_output};
use crate::error::{Error, Result};
use crate::profile::foreign::{self, Exit, Mode, Parts, Request};
use crate::profile::gaps::GapReport;
use crate::profile::import::Loaded;
use crate::profile::native::Recording;
use crate::profile::steps::Selector;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use walls::Walls;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Keep the recording in FILE (of all processes, in one); without it only the account is printed
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How much to record: `full`, `kernels` (only calls that launch, copy or wait) or `graph` (a graph launch is one record)
    #[arg(long, default_value = "full", value_parser = parse_mode)]
    mode: Mode,
    /// Record these parts instead of a mode's: graph, kernel, memcpy, peer, memset, sync, overhead, nvtx, runtime, driver,
    /// event, label, calls, small, nodes, pinned; each costs something (docs/tracing.md)
    #[arg(long, value_name = "PART,…", conflicts_with = "mode", value_parser = parse_parts)]
    collect: Option<Parts>,
    /// How to find steps: auto, whole, profiler, graph, repeat, range:REGEX or kernel:REGEX
    #[arg(long, alias = "steps", default_value = "auto", value_name = "HOW")]
    step: Selector,
    /// Rows of each table
    #[arg(long, default_value_t = 20)]
    top: usize,
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
    /// With --ab: a number in the command's own output that tells its time or speed better than its whole run, such as
    /// 'step_ns": ([0-9.]+)'; the first group of the last match
    #[arg(long, value_name = "REGEX")]
    metric: Option<regex::Regex>,
    /// Do not measure what tracing costs a launch (it is measured after the command has ended, for about two seconds)
    #[arg(long)]
    no_cost: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    Mode::parse(text).ok_or_else(|| "full, kernels or graph".to_string())
}

fn parse_parts(text: &str) -> Result<Parts, String> {
    Parts::parse(text).map_err(|word| {
        let names: Vec<_> = Parts::names().collect();
        format!("`{word}` is none of {}", names.join(", "))
    })
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
    if args.metric.is_some() && args.ab == 0 {
        return Err(Error::usage("--metric compares runs, and there is only one").try_next("add --ab 3"));
    }
    foreign::library()?;
    let folder = parts_folder(args.output.as_deref())?;
    let request = Request {
        command: args.command.clone(),
        folder: folder.clone(),
        mode: args.mode,
        parts: args.collect,
        flush_every: args.flush_every,
        after: args.after,
        duration: args.duration,
        latency: args.latency,
    };
    let view = gaps::Args::plain(args.step.clone(), args.top);
    // Only if it is empty: recordings of a run that failed half way stay.
    let tidy = |_: &Error| drop(std::fs::remove_dir(&folder));
    let mut early = false;
    let (exit, walls) = match args.ab {
        0 => {
            let stopped = || {
                early = true;
                let time = args.duration.unwrap_or_default();
                eprintln!("workbench: recording ended after {time:?}; the command runs on");
                let mut recording = foreign::gather(&folder).0;
                let reports = account(&mut recording, &view);
                tell(&recording, &reports, args.top);
            };
            (foreign::run(&request, None, stopped).inspect_err(tidy)?, None)
        }
        rounds => {
            let walls = walls::measure(&request, rounds, args.metric.clone()).inspect_err(tidy)?;
            (walls.last, Some(walls))
        }
    };
    let (mut recording, errors) = foreign::gather(&folder);
    errors.iter().for_each(|e| eprintln!("workbench: {e}"));
    let kept = args.output.as_ref().filter(|_| !recording.processes.is_empty());
    let merged = kept.map(|file| (file, foreign::merge(&folder, file)));
    if !matches!(merged, Some((_, Err(_)))) {
        let _ = std::fs::remove_dir_all(&folder);
    }
    // The recording is home: from here on a closed pipe may end us.
    super::end_on_closed_pipe();
    let reports = account(&mut recording, &view);
    if !early {
        tell(&recording, &reports, args.top);
    }
    if let Some(walls) = &walls {
        eprintln!("\n{}", walls.text(&recording));
    }
    if let Some((file, bytes)) = merged {
        let bytes = bytes?;
        eprintln!(
            "workbench: {} bytes in {1}; account it again with `workbench gaps {1}`",
            grouped(bytes),
            file.display()
        );
    }
    // A command that used no GPU has no launches to be slowed down, and may have had none to use; who interrupted one
    // does not want to wait.
    let used = recording.processes.iter().any(|p| p.operations > 0);
    let cost = (used && exit.code < 128 && !args.no_cost).then(|| cost::measure(&request));
    match &cost {
        Some(Ok(cost)) => eprintln!("\nworkbench: {}", cost.text()),
        Some(Err(e)) => eprintln!("\nworkbench: launch cost not measured: {}", e.what),
        None => {}
    }
    if let Some(file) = &out.json {
        let cost = cost.as_ref().and_then(|c| c.as_ref().ok());
        let json = to_json(&recording, reports.as_deref().unwrap_or(&[]), exit, (walls.as_ref(), cost))?;
        write_output(file, &format!("{json:#}\n"))?;
    }
    if exit.code != 0 {
        if recording.processes.is_empty()
            && let Err(e) = diagnosis::verdict(&recording)
        {
            eprintln!("workbench: {e}");
        }
        // The command's own code, which no error of ours may stand in for.
        std::process::exit(exit.code.into());
    }
    diagnosis::verdict(&recording)?;
    reports.map(drop)
}

/// A folder for the parts: beside the output, so that they survive us; else among the temporary files.
fn parts_folder(output: Option<&Path>) -> Result<PathBuf> {
    let folder = match output {
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

/// The gap report of each device that did anything.
fn account(recording: &mut Recording, view: &gaps::Args) -> Result<Vec<GapReport>> {
    if recording.trace.operations.is_empty() {
        return Ok(Vec::new());
    }
    // Lent, not copied: a trace may be large.
    let loaded =
        Loaded { trace: std::mem::take(&mut recording.trace), windows: std::mem::take(&mut recording.windows) };
    let reports = gaps::account(Path::new("this run"), &loaded, view);
    (recording.trace, recording.windows) = (loaded.trace, loaded.windows);
    let mut reports = reports?;
    reports.iter_mut().for_each(|r| r.provenance = "measured");
    Ok(reports)
}

/// The processes, the account of each device, and what stands against them.
fn tell(recording: &Recording, reports: &Result<Vec<GapReport>>, top: usize) {
    let mut processes = Sheet::new("Processes", &["pid", ">operations", ">calls", ">dropped", "closed", "command"]);
    for p in &recording.processes {
        let closed = if p.ended { "yes" } else { "no" };
        let command = short(&p.command, 72);
        processes.row([
            p.pid.to_string(),
            grouped(p.operations),
            grouped(p.calls),
            grouped(p.dropped),
            closed.into(),
            command,
        ]);
    }
    if !processes.is_empty() {
        eprintln!("\n{}", processes.terminal());
    }
    match reports {
        Ok(reports) => reports.iter().for_each(|r| eprintln!("{}", gaps::terminal(r, top))),
        Err(e) => eprintln!("workbench: {e}"),
    }
    for (what, fix) in diagnosis::all(recording) {
        eprintln!("workbench: {what}\n  try: {fix}");
    }
}

/// The busiest device's report, flat, with the processes, the command's end and every device beside it.
fn to_json(
    recording: &Recording,
    reports: &[GapReport],
    exit: Exit,
    (walls, cost): (Option<&Walls>, Option<&cost::Cost>),
) -> Result<Value> {
    let value = |r: &GapReport| serde_json::to_value(r).map_err(|e| Error::usage(format!("cannot write JSON: {e}")));
    let mut object = match reports.iter().max_by_key(|r| r.ledger.busy_ns) {
        Some(report) => value(report)?,
        None => json!({
            "schema": 1, "provenance": "measured", "environment": recording.trace.facts, "device": null, "window_ns": 0,
            "residual_ns": 0, "operations": 0, "busy_ns": 0, "lines": [], "steps": [], "defects": recording.trace.defects,
        }),
    };
    let processes = recording.processes.iter().map(|p| {
        json!({
            "pid": p.pid, "parent": p.parent, "command": p.command, "operations": p.operations, "calls": p.calls,
            "dropped": p.dropped, "dropped_between": p.dropped_between, "ended": p.ended, "problem": p.problem.as_ref().map(|(name, _)| name),
        })
    });
    let findings = diagnosis::all(recording).into_iter().map(|(what, fix)| json!({"what": what, "fix": fix}));
    let extra = json!({
        "processes": processes.collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
        "exit_code": exit.code,
        "wall_ns": exit.wall.as_nanos() as u64,
        "overhead": walls.map(Walls::json),
        "launch_cost": cost.map(cost::Cost::json),
        "devices": reports.iter().map(value).collect::<Result<Vec<_>>>()?,
    });
    if let (Value::Object(object), Value::Object(extra)) = (&mut object, extra) {
        let extra: Map<_, _> = extra;
        object.extend(extra);
    }
    Ok(object)
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
}
