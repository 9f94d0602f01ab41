//! `workbench note explain` and `close`: causes with sizes and evidence, then the lesson.

use super::book::{Open, digits};
use crate::error::{Error, Result};
use crate::notebook::quantity::{self, Pair, Quantity};
use crate::notebook::{check, document};
use std::path::Path;

#[derive(Debug, clap::Args)]
pub struct Explain {
    /// The note: its file, or its slug
    id: String,
    /// A cause of the gap: `WHAT | SIZE UNIT | EVIDENCE`, the size signed as measured less predicted; repeatable
    #[arg(long, required = true, value_name = "WHAT | SIZE | EVIDENCE")]
    cause: Vec<String>,
    /// Name of the quantity, where a note has several
    #[arg(long)]
    name: Option<String>,
    /// Accept causes more than twice as large as the gap that they should explain
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
pub struct Close {
    /// The note: its file, or its slug
    id: String,
    /// One sentence worth remembering
    #[arg(long)]
    lesson: Option<String>,
    /// What should be asked next; repeatable
    #[arg(long)]
    follow_up: Vec<String>,
}

/// Size of a cause, in gaps, above which it is taken for a slip.
const LARGEST: f64 = 2.0;

struct Cause {
    what: String,
    /// In the quantity's unit.
    size: f64,
    evidence: String,
}

fn cause(text: &str, unit: &str) -> Result<Cause> {
    let bad = |why: &str| Error::usage(format!("`{text}`: {why}")).try_next("--cause 'attention waits | 0.2 ms | trace, line 3'");
    let parts: Vec<&str> = text.split('|').map(str::trim).collect();
    let [what, size, evidence] = parts[..] else { return Err(bad("a cause is WHAT | SIZE UNIT | EVIDENCE")) };
    if what.is_empty() || evidence.is_empty() {
        return Err(bad("a cause needs what it is and its evidence"));
    }
    let (value, from) = quantity::value(size).ok_or_else(|| bad("its size is no number"))?;
    let size = Quantity { name: String::new(), value, unit: from }
        .in_unit(unit)
        .ok_or_else(|| bad(&format!("its size is not in {unit}")))?;
    Ok(Cause { what: what.into(), size, evidence: evidence.into() })
}

/// Share of a gap that causes of this total explain: 1 − |ln(measured / corrected)| / |ln(measured / predicted)|, where
/// corrected is predicted plus the causes. 1 is all, below 0 they point the wrong way.
fn share(pair: &Pair, measured: f64, total: f64) -> Option<f64> {
    let corrected = pair.predicted + total;
    let gap = (measured / pair.predicted).ln().abs();
    let left = (measured / corrected).ln().abs();
    (gap > 0.0 && corrected > 0.0 && left.is_finite()).then(|| 1.0 - left / gap)
}

pub fn explain(args: &Explain, dir: &Path) -> Result<()> {
    let mut open = Open::find(dir, &args.id)?;
    let measured: Vec<Pair> = open.note.pairs().into_iter().filter(|p| p.measured.is_some()).collect();
    if measured.is_empty() {
        return Err(Error::incomplete(format!("{} has no measurement to explain", open.note.file))
            .try_next(format!("workbench note measure {}", args.id)));
    }
    let pair = open.choose("measured quantity", args.name.as_deref(), &measured, |p| &p.name)?;
    let (unit, m) = (&pair.unit, pair.measured.unwrap_or_default());
    let causes = args.cause.iter().map(|c| cause(c, unit)).collect::<Result<Vec<_>>>()?;
    let gap = m - pair.predicted;
    let total: f64 = causes.iter().map(|c| c.size).sum();
    // Large causes may cancel; one that alone, or with the others, leaves more than it explains is a slip of the unit.
    let large = causes.iter().zip(&args.cause).find(|(c, _)| c.size.abs() > LARGEST * gap.abs());
    if let (Some((c, said)), true) = (large, (gap - total).abs() > gap.abs())
        && !args.force
    {
        return Err(Error::check(format!(
            "`{said}` is {} {unit}, more than {LARGEST} times the gap of {} {unit}: it explains something else",
            digits(c.size),
            digits(gap)
        ))
        .try_next("a size in the right unit; or --force, where other causes are still to come"));
    }
    let share = share(pair, m, total);
    let name = if pair.name.is_empty() { String::new() } else { format!("{}: ", pair.name) };
    let mut text = format!(
        "{name}Predicted {} {unit}, measured {} {unit}, {:+.1} %.\n\n| cause | size | evidence |\n| --- | ---: | --- |\n",
        digits(pair.predicted),
        digits(m),
        100.0 * gap / pair.predicted
    );
    for c in &causes {
        let sign = if c.size > 0.0 { "+" } else { "" };
        text += &format!("| {} | {sign}{} {unit} | {} |\n", c.what, digits(c.size), c.evidence);
    }
    let left = gap - total;
    let told = match share {
        Some(s) => format!("Explained: {:.0} % of the gap; {} {unit} have no cause.", 100.0 * s, digits(left)),
        None => "Explained: there is no gap, or the causes leave nothing to compare.".into(),
    };
    text += &format!("\n{told}");
    let sum: f64 = causes.iter().map(|c| c.size.abs()).sum();
    if sum > 2.0 * gap.abs() && causes.iter().any(|c| c.size > 0.0) && causes.iter().any(|c| c.size < 0.0) {
        text += " Large causes of opposite sign cancel: the number is right by luck.";
    }
    println!("{told}");
    let changed = document::append(&open.text, "Gap explanation", &text).ok_or_else(|| open.lacks("Gap explanation"))?;
    open.write(changed)
}

pub fn close(args: &Close, dir: &Path) -> Result<()> {
    let mut open = Open::find(dir, &args.id)?;
    let mut text = open.text.clone();
    if let Some(lesson) = &args.lesson {
        text = document::append(&text, "Lesson", &format!("> {}", lesson.trim())).ok_or_else(|| open.lacks("Lesson"))?;
    }
    for question in &args.follow_up {
        text = document::append(&text, "Follow-up", &format!("- {}", question.trim())).ok_or_else(|| open.lacks("Follow-up"))?;
    }
    open.write(text)?;
    let found = super::findings(dir)?;
    let mine: Vec<&check::Finding> =
        found.iter().filter(|f| f.note == open.note.file || f.note == "surprise_log.md").collect();
    if !open.note.pairs().iter().all(|p| p.measured.is_some()) {
        return Err(Error::incomplete(format!("{} predicts something that is not measured", open.note.file))
            .try_next(format!("workbench note measure {}", args.id)));
    }
    if mine.is_empty() {
        println!("{} is closed", open.note.file);
        return Ok(());
    }
    mine.iter().for_each(|f| eprintln!("{}: {}", f.note, f.what));
    Err(super::failed(&mine, format!("{} cannot be closed yet", open.note.file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let pair = Pair { name: String::new(), predicted: 10.0, measured: Some(12.0), unit: "ms".into() };
        assert!((share(&pair, 12.0, 2.0).unwrap() - 1.0).abs() < 1e-12);
        assert!(share(&pair, 12.0, 0.0).unwrap().abs() < 1e-12);
        assert!(share(&pair, 12.0, -1.0).unwrap() < 0.0);
        assert_eq!(share(&pair, 10.0, 1.0), None);
    }

    #[test]
    fn a_cause_needs_size_and_evidence() {
        assert!((cause("waits | 200 µs | trace", "ms").unwrap().size - 0.2).abs() < 1e-12);
        for text in ["waits", "waits | 0.2 ms |", "waits | much | trace", "waits | 3 GB | trace"] {
            assert!(cause(text, "ms").is_err(), "{text}");
        }
    }
}
