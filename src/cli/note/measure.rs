//! `workbench note measure`: a sealed prediction meets its number, from a command or from a recorded run.

use super::book::{self, Open, digits};
use crate::error::{Error, Result};
use crate::notebook::document;
use crate::notebook::quantity::{self, Quantity};
use crate::notebook::seal::Seal;
use crate::notebook::surprises;
use crate::stats;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Fewer samples say nothing about spread.
const FEWEST: usize = 3;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The note: its file, or its slug
    id: String,
    /// Name of the quantity, where a note has several
    #[arg(long)]
    name: Option<String>,
    /// A recorded run: a step's folder, JSON lines of `bench`, or any JSON with --row /POINTER
    #[arg(long, value_name = "PATH", conflicts_with_all = ["value", "command"])]
    run: Option<PathBuf>,
    /// Which row of the run: words of `OP/VARIANT SHAPE`, a step's mode, or a JSON pointer
    #[arg(long, requires = "run")]
    row: Option<String>,
    /// A number read elsewhere, such as `4.1 ms`; needs --log and --n
    #[arg(long, value_name = "VALUE UNIT", conflicts_with = "command", requires_all = ["log", "n"])]
    value: Option<String>,
    /// Log that the number was read from
    #[arg(long, value_name = "FILE", requires = "value")]
    log: Option<PathBuf>,
    /// Samples that the number is the median of
    #[arg(long, requires = "value")]
    n: Option<usize>,
    /// Runs of the command before those that count
    #[arg(long, default_value_t = 1)]
    warmup: usize,
    /// Runs of the command that count
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Regular expression whose first group is the number in the command's output, in the sealed unit; without it the
    /// number is the command's wall time
    #[arg(long, value_name = "REGEX")]
    pattern: Option<String>,
    /// Accept fewer than three samples
    #[arg(long)]
    few: bool,
    /// Command to run, after `--`
    #[arg(last = true)]
    command: Vec<String>,
}

/// A measurement in the sealed unit.
#[derive(Debug)]
struct Taken {
    value: f64,
    /// 10 % and 90 % of the samples.
    spread: Option<(f64, f64)>,
    n: usize,
    /// Floor that the run carries itself.
    floor: Option<f64>,
    at: String,
    commit: String,
    from: String,
}

pub fn run(args: &Args, dir: &Path) -> Result<()> {
    let mut open = Open::find(dir, &args.id)?;
    let seals: Vec<Seal> = open.seals().into_iter().map(|s| s.seal).collect();
    book::require_sealed(dir, &args.id)?;
    let measured = open.note.quantities().1;
    let waiting: Vec<Seal> =
        seals.into_iter().filter(|s| args.name.is_some() || !measured.iter().any(|m| m.name == s.name)).collect();
    if waiting.is_empty() || args.name.as_ref().is_some_and(|n| measured.iter().any(|m| m.name == n.to_lowercase())) {
        return Err(Error::usage(format!("{} is measured already", open.note.file))
            .try_next("a new note: the next number is another experiment"));
    }
    let seal = open.choose("sealed quantity", args.name.as_deref(), &waiting, |s| &s.name)?;
    let taken = match (&args.run, &args.value) {
        (Some(path), _) => recorded(path, args.row.as_deref(), seal)?,
        (_, Some(value)) => told(value, args, seal, dir)?,
        _ if args.command.is_empty() => {
            return Err(Error::usage("nothing to measure").try_next("--run PATH, --value V --log FILE --n N, or -- COMMAND"));
        }
        _ => ran(args, seal, &open)?,
    };
    // The note keeps so many digits; every percentage is of the number that it keeps.
    let taken = Taken { value: digits(taken.value).parse().unwrap_or(taken.value), ..taken };
    if taken.n < FEWEST && !args.few {
        return Err(Error::untrusted(format!("{} samples say nothing about the spread", taken.n)).try_next("--repeats 5, or --few"));
    }
    let time = |t: &str| t.parse::<jiff::Timestamp>().map_err(|e| Error::usage(format!("`{t}` is no time: {e}")));
    if time(&taken.at)? < time(&seal.at)? {
        return Err(Error::check(format!(
            "the run of {} is older than the prediction sealed at {}: nothing was predicted",
            taken.at, seal.at
        ))
        .try_next("measure again"));
    }
    let floor = [seal.floor, taken.floor].into_iter().flatten().find(|f| seal.better.beats(taken.value, *f));
    if let Some(floor) = floor {
        return Err(Error::untrusted(format!(
            "{} {unit} is better than the floor of {} {unit}: an invalid measurement or another configuration, not a surprise; \
             nothing was written",
            digits(taken.value),
            digits(floor),
            unit = seal.unit
        ))
        .try_next("was all the work done (quantised weights, a cached result, a wrong clock)? Else mend the floor"));
    }
    let name = if seal.name.is_empty() { String::new() } else { format!(" {}", seal.name) };
    let spread = taken.spread.map_or(String::new(), |(low, high)| format!(", 10 % {}, 90 % {}", digits(low), digits(high)));
    let line = format!(
        "- **Measured{name}: {} {}** (median of {}{spread}; at {}; commit {}; {})",
        digits(taken.value),
        seal.unit,
        taken.n,
        taken.at,
        taken.commit,
        taken.from
    );
    let text = document::append(&open.text, "Measurement", &line).ok_or_else(|| open.lacks("Measurement"))?;
    open.write(text)?;
    println!("{}: predicted {} {unit}, measured {} {unit}, {:+.1} %{}",
        open.note.file,
        digits(seal.value),
        digits(taken.value),
        100.0 * (taken.value / seal.value - 1.0),
        match seal.interval {
            Some((low, high)) if low <= taken.value && taken.value <= high => ", inside its 80 % interval",
            Some(_) => ", outside its 80 % interval",
            None => "",
        },
        unit = seal.unit);
    let pairs = open.note.pairs();
    if let Some(pair) = pairs.iter().find(|p| p.name == seal.name) {
        let date = taken.at.get(..10).unwrap_or_default();
        if let Some(log) = surprises::draft(&book::text(dir, "surprise_log.md"), &open.note.file, date, &open.note.title, pair) {
            crate::cli::write_output(&dir.join("surprise_log.md"), &log)?;
            println!("a surprise: surprise_log.md has a draft that waits for its cause and the fix to the mental model");
        }
    }
    Ok(())
}

/// A path as a note should show it: from the current folder.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

/// A number that somebody read.
fn told(value: &str, args: &Args, seal: &Seal, dir: &Path) -> Result<Taken> {
    let bad = || Error::usage(format!("`{value}` is not a value in {}", seal.unit));
    let (value, unit) = quantity::value(value).ok_or_else(bad)?;
    let value = Quantity { name: String::new(), value, unit }.in_unit(&seal.unit).ok_or_else(bad)?;
    let log = args.log.clone().unwrap_or_default();
    if !log.is_file() {
        return Err(Error::usage(format!("there is no log {}", log.display())));
    }
    let at = std::fs::metadata(&log)?.modified()?;
    let at = jiff::Timestamp::try_from(at).map_err(|e| Error::usage(e.to_string()))?.to_string();
    let (n, from) = (args.n.unwrap_or(0), format!("log `{}`", shown(&log)));
    Ok(Taken { value, spread: None, n, floor: None, at, commit: book::commit(dir), from })
}

/// Runs the command and keeps its log beside the notes.
fn ran(args: &Args, seal: &Seal, open: &Open) -> Result<Taken> {
    let pattern = args
        .pattern
        .as_deref()
        .map(regex::Regex::new)
        .transpose()
        .map_err(|e| Error::usage(format!("--pattern: {e}")))?;
    let wall = Quantity { name: String::new(), value: 1.0, unit: "s".into() }.in_unit(&seal.unit);
    if pattern.is_none() && wall.is_none() {
        return Err(Error::usage(format!("a command's wall time is no number in {}", seal.unit)).try_next("--pattern REGEX"));
    }
    let at = book::now();
    let (mut samples, mut log) = (Vec::new(), format!("{}\n{at}\n", args.command.join(" ")));
    for i in 0..args.warmup + args.repeats {
        let start = Instant::now();
        let out = Command::new(&args.command[0]).args(&args.command[1..]).output().map_err(|e| {
            Error::usage(format!("cannot run {}: {e}", args.command[0]))
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&out.stdout);
        let value = match (&pattern, wall) {
            (Some(p), _) => p.captures(&said).and_then(|c| c.get(1)?.as_str().replace(',', "").parse().ok()),
            (None, Some(unit)) => Some(seconds * unit),
            _ => None,
        };
        let counted = i >= args.warmup;
        let shown = value.map_or("no number".into(), |v: f64| format!("{} {}", digits(v), seal.unit));
        log += &format!("\n== {} {}: {shown}\n{said}{}", if counted { "run" } else { "warm-up" }, i + 1, String::from_utf8_lossy(&out.stderr));
        if !out.status.success() {
            return Err(Error::untrusted(format!("{} ended with {}", args.command[0], out.status))
                .try_next(String::from_utf8_lossy(&out.stderr).lines().last().unwrap_or("look at its output").to_string()));
        }
        match value {
            Some(v) if counted => samples.push(v),
            Some(_) => {}
            None => return Err(Error::untrusted("the pattern is not in the command's output, or its group is no number")),
        }
    }
    let file = log_file(open, &seal.name);
    std::fs::create_dir_all(open.dir.join("logs"))?;
    crate::cli::write_output(&open.dir.join("logs").join(&file), &log)?;
    let spread = (samples.len() > 1).then(|| (stats::quantile(&samples, 0.1), stats::quantile(&samples, 0.9)));
    Ok(Taken {
        value: stats::median(&samples),
        spread,
        n: samples.len(),
        floor: None,
        at,
        commit: book::commit(&open.dir),
        from: format!("log `logs/{file}`"),
    })
}

fn log_file(open: &Open, name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    let name = if name.is_empty() { String::new() } else { format!("_{plain}") };
    format!("{}{name}.log", open.note.file.trim_end_matches(".md"))
}

/// Time in ns with what makes a rate of it.
struct Times {
    ns: [f64; 3],
    n: usize,
    floor_ns: Option<f64>,
    bytes: f64,
    flops: f64,
    tokens: f64,
}

impl Times {
    /// A time in the sealed unit, whatever that is.
    fn convert(&self, ns: f64, unit: &str) -> Option<f64> {
        let rate = |per_ns: f64, unit_of: &str, work: f64| {
            (work > 0.0).then(|| Quantity { name: String::new(), value: work / ns * per_ns, unit: unit_of.into() }.in_unit(unit)).flatten()
        };
        Quantity { name: String::new(), value: ns, unit: "ns".into() }
            .in_unit(unit)
            .or_else(|| rate(1.0, "GB/s", self.bytes))
            .or_else(|| rate(1e-3, "TFLOP/s", self.flops))
            .or_else(|| ["tokens/s", "tok/s"].contains(&unit).then(|| rate(1e9, unit, self.tokens)).flatten())
    }
}

fn recorded(path: &Path, row: Option<&str>, seal: &Seal) -> Result<Taken> {
    let bad = |why: String| Error::usage(format!("{}: {why}", path.display()));
    let file = if path.is_dir() { path.join("step.json") } else { path.to_path_buf() };
    let text = std::fs::read_to_string(&file).map_err(|e| bad(e.to_string()))?;
    let whole: Option<Value> = serde_json::from_str(&text).ok();
    let head: Value = match &whole {
        Some(v) => v.clone(),
        None => serde_json::from_str(text.lines().next().unwrap_or_default()).map_err(|e| bad(format!("no JSON: {e}")))?,
    };
    let env = &head["environment"];
    let at = env["started"].as_str().ok_or_else(|| bad("it does not say when it ran (environment.started)".into()))?;
    let commit = env["commit"].as_str().map_or("unknown".into(), |c| c.chars().take(12).collect());
    let from = |row: &str| format!("`{}`{}{row}", shown(&file), if row.is_empty() { "" } else { ", " });
    let taken = |value, spread, n, floor, row: &str| Taken { value, spread, n, floor, at: at.into(), commit, from: from(row) };
    if let (Some(v), Some(pointer)) = (&whole, row.filter(|r| r.starts_with('/'))) {
        let value = v.pointer(pointer).and_then(Value::as_f64).ok_or_else(|| bad(format!("no number at {pointer}")))?;
        return Ok(taken(value, None, 1, None, pointer));
    }
    let (times, name) = match &whole {
        Some(v) if v["kind"] == "step" => of_step(v, row).map_err(|e| e.at(path.display()))?,
        _ => of_rows(&text, row).map_err(|e| e.at(path.display()))?,
    };
    let convert = |ns| times.convert(ns, &seal.unit).ok_or_else(|| bad(format!("its time is no number in {}", seal.unit)));
    let (a, b) = (convert(times.ns[1])?, convert(times.ns[2])?);
    let floor = times.floor_ns.and_then(|f| times.convert(f, &seal.unit));
    Ok(taken(convert(times.ns[0])?, Some((a.min(b), a.max(b))), times.n, floor, &name))
}

fn of_step(v: &Value, row: Option<&str>) -> Result<(Times, String)> {
    let modes = v["modes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let wanted = row.unwrap_or("graph");
    let mode = modes.iter().find(|m| m["mode"] == wanted).ok_or_else(|| {
        Error::usage(format!("it has no mode `{wanted}`")).try_next("--row graph or --row stream")
    })?;
    let of = |key: &str| mode["untraced"][key].as_f64().ok_or_else(|| Error::usage(format!("no untraced.{key}")));
    let nodes = v["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sum = |key: &str| nodes.iter().filter_map(|n| n[key].as_f64()).sum::<f64>();
    let times = Times {
        ns: [of("median_ns")?, of("p10_ns")?, of("p90_ns")?],
        n: of("n")? as usize,
        floor_ns: Some(sum("floor_ns")),
        bytes: sum("bytes"),
        flops: sum("flops"),
        tokens: v["batch"].as_f64().unwrap_or(0.0),
    };
    Ok((times, wanted.into()))
}

fn of_rows(text: &str, row: Option<&str>) -> Result<(Times, String)> {
    let rows = text.lines().skip(1).filter_map(|l| serde_json::from_str::<Value>(l).ok()).filter(|r| r["ns"].is_number());
    let name = |r: &Value| {
        format!("{}/{} {}", r["op"].as_str().unwrap_or(""), r["variant"].as_str().unwrap_or(""), r["shape"].as_str().unwrap_or(""))
    };
    let words: Vec<&str> = row.unwrap_or_default().split_whitespace().collect();
    let found: Vec<Value> = rows.filter(|r| words.iter().all(|w| name(r).contains(w))).collect();
    match found.as_slice() {
        [r] => {
            let of = |key: &str| r[key].as_f64().unwrap_or(0.0);
            let times = Times {
                ns: [of("ns"), r["ns_p10"].as_f64().unwrap_or(of("ns")), r["ns_p90"].as_f64().unwrap_or(of("ns"))],
                n: of("n") as usize,
                floor_ns: r["floor_ns"].as_f64(),
                bytes: of("bytes"),
                flops: of("flops"),
                tokens: 0.0,
            };
            Ok((times, name(r)))
        }
        [] => Err(Error::usage("no row matches").try_next("--row 'OP/VARIANT m=1,n=4096'")),
        many => {
            let names: Vec<String> = many.iter().take(6).map(name).collect();
            Err(Error::usage(format!("{} rows match: {}", many.len(), names.join("; "))).try_next("--row with more words"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_becomes_the_sealed_unit() {
        let t = Times { ns: [2e6; 3], n: 5, floor_ns: None, bytes: 8e9, flops: 4e12, tokens: 16.0 };
        assert_eq!(t.convert(2e6, "ms"), Some(2.0));
        assert_eq!(t.convert(2e6, "GB/s"), Some(4_000.0));
        assert_eq!(t.convert(2e6, "TB/s"), Some(4.0));
        assert_eq!(t.convert(2e6, "TFLOP/s"), Some(2_000.0));
        assert_eq!(t.convert(2e6, "tokens/s"), Some(8_000.0));
        assert_eq!(t.convert(2e6, "GiB"), None);
    }
}
