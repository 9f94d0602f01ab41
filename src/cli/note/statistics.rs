//! `workbench note surprises` and `calibration`.

use super::book;
use crate::cli::OutputArgs;
use crate::cli::table::{Sheet, emit, percent};
use crate::error::Result;
use crate::notebook::amend::Derivation;
use crate::notebook::score::{self, Score, Standing, Summary};
use crate::notebook::{self, surprises};
use crate::report::calibration_plot;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Below this many, a group's statistics say little.
const FEW: usize = 5;

#[derive(Debug, clap::Args)]
pub struct Calibration {
    /// Draw every prediction beside its measurement into FILE.svg or FILE.png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Only predictions sealed before their measurement
    #[arg(long)]
    sealed: bool,
}

pub fn surprises(dir: &Path, out: &OutputArgs) -> Result<()> {
    let notes = book::notes(dir)?;
    let entries = surprises::entries(&book::text(dir, "surprise_log.md"));
    let mut sheet = Sheet::new("Surprises", &["entry", "suspected cause", "fix to the mental model"]);
    for e in &entries {
        sheet.row([e.heading.clone(), e.cause.clone(), e.fix.clone()]);
    }
    let mut without = Vec::new();
    for n in &notes {
        let missed = n.pairs().iter().any(|p| p.miss().is_some_and(notebook::is_surprise));
        if missed && !entries.iter().any(|e| e.is_of(&n.file)) {
            without.push(n.file.clone());
        }
    }
    let open = entries.iter().filter(|e| !e.missing().is_empty()).count();
    let mut tail = format!("{} entries, {open} of them unfinished\n", entries.len());
    if !without.is_empty() {
        tail += &format!("without an entry: {}\n", without.join(", "));
    }
    let sheets = if sheet.is_empty() { vec![] } else { vec![sheet] };
    emit(out, &sheets, &tail, &json!({"schema": 1, "entries": entries, "without_entry": without}))
}

fn row(sheet: &mut Sheet, name: &str, s: &Summary) {
    let coverage = match s.with_interval {
        0 => "–".into(),
        n => format!("{} of {n}", s.inside),
    };
    sheet.row([
        if s.n < FEW { format!("{name} (few)") } else { name.into() },
        s.n.to_string(),
        format!("×{:.2}", s.bias),
        format!("{:.2}", s.spread),
        percent(s.typical),
        format!("{} ({} to {})", percent(s.hit_rate), percent(s.hit_low), percent(s.hit_high)),
        s.surprises.to_string(),
        coverage,
    ]);
}

pub fn calibration(args: &Calibration, dir: &Path, out: &OutputArgs) -> Result<()> {
    let (mut scores, excluded) = score::scores(&book::notes(dir)?);
    if args.sealed {
        scores.retain(|s| s.standing == Standing::Sealed);
    }
    let heads =
        ["predictions", ">n", ">bias", ">spread of ln", ">typical miss", ">within 30 % (95 % Wilson)", ">surprises", ">inside 80 %"];
    let mut sheet = Sheet::new("Measured against predicted; a bias above 1 is worse than predicted", &heads);
    let all = score::summary(&scores);
    let mut groups: Map<String, Value> = Map::new();
    if let Some(s) = &all {
        row(&mut sheet, "all", s);
    }
    for (name, standing) in [("sealed", Standing::Sealed), ("unsealed", Standing::Unsealed)] {
        if let Some(s) = score::summary(scores.iter().filter(|s| s.standing == standing)) {
            row(&mut sheet, name, &s);
        }
    }
    let mut by_derivation: Map<String, Value> = Map::new();
    for (key, d) in
        [("derived", Derivation::Sealed), ("derived_after_the_seal", Derivation::After), ("not_derived", Derivation::None)]
    {
        let of = scores.iter().filter(|s| s.standing == Standing::Sealed && s.derivation == Some(d));
        if let Some(s) = score::summary(of) {
            row(&mut sheet, &format!("sealed, {}", d.name()), &s);
            by_derivation.insert(key.into(), json!(s));
        }
    }
    let mut regimes: Vec<&str> = scores.iter().map(|s| s.regime.as_str()).collect();
    regimes.sort();
    regimes.dedup();
    for regime in regimes {
        if let Some(s) = score::summary(scores.iter().filter(|s| s.regime == regime)) {
            row(&mut sheet, &format!("regime {regime}"), &s);
            groups.insert(regime.into(), json!(s));
        }
    }
    let mut months: Vec<&str> = scores.iter().filter_map(|s| s.date.get(..7)).collect();
    months.dedup();
    let mut by_month: Map<String, Value> = Map::new();
    for month in months {
        if let Some(s) = score::summary(scores.iter().filter(|s| s.date.starts_with(month))) {
            row(&mut sheet, month, &s);
            by_month.insert(month.into(), json!(s));
        }
    }
    let trend = score::trend(&scores);
    let mut tail = trend_text(&scores, &trend);
    for e in &excluded {
        let name = if e.name.is_empty() { String::new() } else { format!(" ({})", e.name) };
        tail += &format!("left out: {}{name}: {}\n", e.file, e.why);
    }
    if let Some(file) = &args.plot {
        calibration_plot::draw(file, &scores)?;
        tail += &format!("plot: {}\n", file.display());
    }
    let sheets = if all.is_some() { vec![sheet] } else { vec![] };
    let mut value = all.as_ref().map_or(json!({"n": 0}), |s| json!(s));
    value["schema"] = json!(1);
    value["by_regime"] = Value::Object(groups);
    value["by_derivation"] = Value::Object(by_derivation);
    value["by_month"] = Value::Object(by_month);
    value["trend"] = json!(trend);
    value["scores"] = json!(scores);
    value["excluded"] = json!(excluded);
    emit(out, &sheets, &tail, &value)
}

fn trend_text(scores: &[Score], t: &score::Trend) -> String {
    match scores.len() {
        0 => "no prediction has a measurement yet\n".into(),
        n if n < FEW => format!("{n} scores say nothing about a trend\n"),
        _ => {
            let last = t.rolling.last().map_or(String::new(), |r| format!("; last ten: typical miss {}", percent(r.exp() - 1.0)));
            format!("trend: |ln(measured/predicted)| moves by {:+.4} a prediction (sign test p = {:.2}){last}\n", t.slope, t.p)
        }
    }
}
