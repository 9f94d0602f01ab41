//! `workbench note predict`: writes predictions down and seals them.

use super::book::{self, Open, digits};
use crate::error::{Error, Result};
use crate::notebook::quantity::{self, Quantity};
use crate::notebook::seal::{Better, REGIMES, Seal};
use crate::notebook::{Note, arithmetic, document};
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The note: its file, or its slug
    id: String,
    /// The prediction, such as `3.75 ms`; without it the numbers in bold of the note are sealed
    #[arg(long, value_name = "VALUE UNIT", conflicts_with = "from")]
    value: Option<String>,
    /// Take value, interval, floor and terms from the JSON of `workbench predict`
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Name of the quantity, where a note has several
    #[arg(long)]
    name: Option<String>,
    /// What bounds it
    #[arg(long, value_parser = REGIMES)]
    regime: String,
    /// Which way is better; the unit says it for times, sizes and rates
    #[arg(long, value_parser = ["less", "more"])]
    better: Option<String>,
    /// 80 % interval in the same unit
    #[arg(long, num_args = 2, value_names = ["LOW", "HIGH"])]
    interval: Option<Vec<f64>>,
    /// The best that physics allows, in the same unit
    #[arg(long, value_name = "VALUE")]
    floor: Option<f64>,
}

pub fn run(args: &Args, dir: &Path) -> Result<()> {
    let mut open = Open::find(dir, &args.id)?;
    if !open.note.quantities().1.is_empty() && open.seals().is_empty() {
        return Err(Error::check(format!("{} is measured already: what is sealed now predicts nothing", open.note.file))
            .try_next("a new note for the next experiment"));
    }
    let (mut interval, mut floor) = (args.interval.as_ref().map(|v| (v[0], v[1])), args.floor);
    let mut text = open.text.clone();
    let append = |text: &str, line: &str| document::append(text, "Arithmetic", line).ok_or_else(|| open.lacks("Arithmetic"));
    let mut wanted: Vec<Quantity> = Vec::new();
    let name = args.name.clone().unwrap_or_default().to_lowercase();
    if let Some(file) = &args.from {
        let forecast = read(file)?;
        for line in &forecast.lines {
            text = append(&text, line)?;
        }
        interval = interval.or(Some(forecast.interval));
        floor = floor.or(Some(forecast.floor));
        wanted.push(Quantity { name, value: forecast.value, unit: "µs".into() });
    } else if let Some(value) = &args.value {
        let (value, unit) = quantity::value(value)
            .filter(|(_, unit)| !unit.is_empty())
            .ok_or_else(|| Error::usage(format!("`{value}` is not a value with its unit")).try_next("--value '3.75 ms'"))?;
        wanted.push(Quantity { name, value, unit });
    } else {
        let bold = open.note.quantities().0;
        wanted.extend(bold.into_iter().filter(|q| args.name.is_none() || q.name == name));
        wanted.retain(|q| !open.seals().iter().any(|s| s.seal.name == q.name));
    }
    if wanted.is_empty() {
        return Err(Error::incomplete(format!("{} has no prediction left to seal", open.note.file))
            .try_next("--value 'VALUE UNIT', or a line **Predicted: VALUE UNIT** in its arithmetic"));
    }
    if (interval.is_some() || floor.is_some()) && wanted.len() > 1 {
        return Err(Error::usage("--interval and --floor are of one quantity").try_next("--name NAME"));
    }
    let mut sealed = Vec::new();
    for q in wanted {
        let seal = seal(args, &q, interval, floor, dir)?;
        let known = Note::parse(&open.note.file, &text).quantities().0.into_iter().find(|k| k.name == q.name);
        match known.and_then(|k| k.in_unit(&q.unit)) {
            Some(v) if v == q.value => {}
            Some(v) if !open.seals().iter().any(|s| s.seal.name == q.name) => {
                return Err(Error::usage(format!("{} predicts {v} {}, not {}", open.note.file, q.unit, q.value))
                    .try_next("change the note's number in bold, or leave --value out"));
            }
            Some(_) => {}
            None => {
                let name = if q.name.is_empty() { String::new() } else { format!(" {}", q.name) };
                text = append(&text, &format!("- **Predicted{name}: {} {}**", q.value, q.unit))?;
            }
        }
        let now = Note::parse(&open.note.file, &text);
        let section = |name: &str| now.section(name).map(document::written).unwrap_or_default();
        let (hypothesis, arithmetic) = (section("Hypothesis"), section("Arithmetic"));
        if hypothesis.is_empty() || reasons(&arithmetic) == 0 {
            let what = if hypothesis.is_empty() { "hypothesis" } else { "arithmetic" };
            return Err(Error::incomplete(format!("{} has no {what} yet, and a number without it is a guess", open.note.file))
                .try_next(format!("write it into {}", dir.join(&open.note.file).display())));
        }
        if let Some(fault) = arithmetic::check(&arithmetic).faults.first() {
            return Err(Error::check(format!(
                "the arithmetic of {} is wrong, and sealed it could not be mended: `{}`: {}",
                open.note.file, fault.text, fault.why
            ))
            .try_next(format!("mend that line in {}, then seal again", dir.join(&open.note.file).display())));
        }
        let twice = |q: &&Quantity| now.quantities().0.iter().filter(|o| o.name == q.name).count() > 1;
        if let Some(q) = now.quantities().0.iter().find(twice) {
            let name = if q.name.is_empty() { String::new() } else { format!(" {}", q.name) };
            return Err(Error::check(format!("{} predicts two numbers{name}, and only one is scored", open.note.file))
                .try_next("one line **Predicted NAME: VALUE UNIT** for each quantity"));
        }
        let hash = seal.digest(&open.note.file, &hypothesis, &arithmetic);
        let seal = Seal { hash, ..seal };
        text = append(&text, &seal.line())?;
        sealed.push(seal);
    }
    open.write(text)?;
    for s in &sealed {
        println!("{}: {}", open.note.file, s.line().trim_start_matches("- "));
    }
    Ok(())
}

/// Lines of an arithmetic that are neither predictions nor seals.
fn reasons(arithmetic: &str) -> usize {
    let lines = arithmetic.lines().map(str::trim).filter(|l| !l.is_empty());
    lines.filter(|l| !l.starts_with("- **Predicted") && !l.starts_with("- Sealed")).count()
}

/// The seal of a quantity, not yet hashed.
fn seal(args: &Args, q: &Quantity, interval: Option<(f64, f64)>, floor: Option<f64>, dir: &Path) -> Result<Seal> {
    let better = args.better.as_deref().and_then(Better::parse).or_else(|| Better::of_unit(&q.unit)).ok_or_else(|| {
        Error::usage(format!("`{}` does not say which way is better", q.unit)).try_next("--better less or --better more")
    })?;
    if q.value == 0.0 || !q.value.is_finite() {
        return Err(Error::usage(format!("a prediction of {} has no relative miss", q.value)));
    }
    if interval.is_some_and(|(low, high)| !(low <= q.value && q.value <= high)) {
        return Err(Error::usage(format!("the interval does not hold the predicted {} {}", q.value, q.unit)));
    }
    if floor.is_some_and(|f| better.beats(q.value, f)) {
        return Err(Error::usage(format!("{} {} is better than the floor", q.value, q.unit)).try_next("look at the arithmetic again"));
    }
    let (regime, at, commit) = (args.regime.clone(), book::now(), book::commit(dir));
    Ok(Seal {
        name: q.name.clone(),
        value: q.value,
        unit: q.unit.clone(),
        better,
        interval,
        floor,
        regime,
        at,
        commit,
        hash: String::new(),
    })
}

/// A prediction of `workbench predict --json`, in µs, with its terms as lines of arithmetic.
struct Read {
    value: f64,
    interval: (f64, f64),
    floor: f64,
    lines: Vec<String>,
}

fn read(file: &Path) -> Result<Read> {
    let bad = |why: String| {
        Error::usage(format!("{} is no prediction: {why}", file.display())).try_next("workbench predict … --json FILE")
    };
    let text = std::fs::read_to_string(file).map_err(|e| bad(e.to_string()))?;
    let v: Value = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    let us = |key: &str| v[key].as_f64().map(|ns| ns / 1e3).ok_or_else(|| bad(format!("it has no `{key}`")));
    let mut lines = vec![format!("- `workbench predict`: {}", v["title"].as_str().unwrap_or("untitled"))];
    for t in v["terms"].as_array().into_iter().flatten() {
        let of = |key: &str| t[key].as_f64().unwrap_or(0.0);
        lines.push(format!(
            "- {} ({}): {} MB, floor {} µs, predicted {} µs",
            t["name"].as_str().unwrap_or("term"),
            t["provenance"].as_str().unwrap_or("unknown"),
            digits(of("bytes") / 1e6),
            digits(of("floor_ns") / 1e3),
            digits(of("ns") / 1e3),
        ));
    }
    lines.push(format!("- In all: floor {} µs, predicted {} µs", us("floor_ns")?, us("predicted_ns")?));
    Ok(Read { value: us("predicted_ns")?, interval: (us("low_ns")?, us("high_ns")?), floor: us("floor_ns")?, lines })
}
