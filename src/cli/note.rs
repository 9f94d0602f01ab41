//! `workbench note`: the lab notebook. Predict (sealed), measure, explain, close; surprises, calibration, check, index.

mod amend;
pub mod book;
mod explain;
mod measure;
mod predict;
mod statistics;

use super::table::{Sheet, emit};
use super::{OutputArgs, write_output};
use crate::error::{Error, Kind, Result};
use crate::launch::{Clocks, Device, driver};
use crate::notebook::check::{self, Finding, Severity};
use crate::notebook::{BLANK, document, template};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
    /// Folder of the notes
    #[arg(long, global = true, value_name = "DIR", default_value = "lab_notes")]
    dir: PathBuf,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Begin a note
    New(New),
    /// Seal a note's predictions: nothing is measured before
    Predict(predict::Args),
    /// Say below a seal how its number comes about, or that nothing derives it; it is marked as said afterwards
    Amend(amend::Args),
    /// Put the measured number beside a sealed prediction, from a command or a recorded run
    Measure(measure::Args),
    /// Say where the gap is: causes with their sizes and evidence
    Explain(explain::Explain),
    /// Write the lesson and hold the note to the rules
    Close(explain::Close),
    /// Read the surprise log
    Surprises,
    /// Say how good the predictions are: bias, spread, hit rate, by regime and over time
    Calibration(statistics::Calibration),
    /// Hold every note to the rules; exit code 1 if something is wrong, 5 if something is only missing
    Check,
    /// Write the index, README.md
    Index,
}

#[derive(Debug, clap::Args)]
struct New {
    /// Lower-case letters, digits and `_`; the file is DATE_SLUG.md
    slug: String,
    /// One line, searchable
    #[arg(long)]
    title: String,
    /// Card, driver and versions; this machine's GPU where it has one
    #[arg(long)]
    hardware: Option<String>,
    /// Related sprint
    #[arg(long)]
    sprint: Option<String>,
    /// Related file or pull request
    #[arg(long)]
    file: Option<String>,
    /// Ask the three questions first
    #[arg(long)]
    ask: bool,
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    let dir = args.dir.as_path();
    if !matches!(args.what, What::Surprises | What::Calibration(_) | What::Check) {
        out.only("note", &[], &["`note check`, `calibration` and `surprises` write JSON, CSV and Markdown"])?;
    }
    match &args.what {
        What::New(new) => begin(dir, new),
        What::Predict(a) => predict::run(a, dir),
        What::Amend(a) => amend::run(a, dir),
        What::Measure(a) => measure::run(a, dir),
        What::Explain(a) => explain::explain(a, dir),
        What::Close(a) => explain::close(a, dir),
        What::Surprises => statistics::surprises(dir, out),
        What::Calibration(a) => statistics::calibration(a, dir, out),
        What::Check => check(dir, out),
        What::Index => book::write_index(dir),
    }
}

/// All findings about a notebook. Paths that notes name are looked for beside the notes and in the folder above.
fn findings(dir: &Path) -> Result<Vec<Finding>> {
    let above = dir.canonicalize().ok().and_then(|d| d.parent().map(Path::to_path_buf)).unwrap_or_default();
    let exists = |path: &str| dir.join(path).exists() || above.join(path).exists();
    let (log, readme) = (book::text(dir, "surprise_log.md"), book::text(dir, "README.md"));
    Ok(check::check(&book::notes(dir)?, &log, &readme, &exists, jiff::Timestamp::now()))
}

/// The error of some findings: wrong if one is, else incomplete.
fn failed(found: &[&Finding], what: String) -> Error {
    let kind = match found.iter().map(|f| f.kind).max() {
        Some(Severity::Wrong) => Kind::Check,
        _ => Kind::Incomplete,
    };
    Error::new(kind, what)
}

fn check(dir: &Path, out: &OutputArgs) -> Result<()> {
    let (notes, found) = (book::notes(dir)?, findings(dir)?);
    let mut sheet = Sheet::new("", &["file", "kind", "what"]);
    let told = check::information(&notes);
    for f in told.iter().chain(&found) {
        sheet.row([f.note.clone(), format!("{:?}", f.kind).to_lowercase(), f.what.clone()]);
    }
    let listed: Vec<Value> =
        notes.iter().map(|n| json!({"file": n.file, "title": n.title, "quantities": n.pairs()})).collect();
    let wrong = found.iter().filter(|f| f.kind == Severity::Wrong).count();
    let missing = found.len() - wrong;
    let [before, after, nowhere] = check::derivations(&notes);
    let tail = format!(
        "{} notes, {wrong} things wrong, {missing} missing\nsealed numbers: {before} derived before the seal, {after} derived after the seal, {nowhere} not derived\n",
        notes.len()
    );
    let sheets = if sheet.is_empty() { Vec::new() } else { vec![sheet] };
    let seals = json!({"derived": before, "derived_after_the_seal": after, "not_derived": nowhere});
    emit(out, &sheets, &tail, &json!({"schema": 1, "notes": listed, "errors": found, "information": told, "seals": seals}))?;
    if found.is_empty() {
        return Ok(());
    }
    Err(failed(&found.iter().collect::<Vec<_>>(), format!("the notebook in {}: {wrong} wrong, {missing} missing", dir.display())))
}

fn begin(dir: &Path, new: &New) -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let date = template::date(now);
    let file = dir.join(template::file_name(&new.slug, &date)?);
    if new.title.trim().is_empty() || new.title.contains('\n') {
        return Err(Error::usage("--title must be one line"));
    }
    if file.exists() {
        return Err(Error::usage(format!("{} exists", file.display())).try_next("another SLUG"));
    }
    let mut text = template::note(new.title.trim(), &date);
    let hardware = new.hardware.clone().or_else(hardware);
    for (name, value) in [("Hardware", &hardware), ("Related sprint", &new.sprint), ("Related file/PR", &new.file)] {
        if let Some(value) = value {
            text = text.replace(&format!("**{name}:** {BLANK}"), &format!("**{name}:** {}", value.trim()));
        }
    }
    if new.ask {
        text = asked(text)?;
    }
    std::fs::create_dir_all(dir)?;
    write_output(&file, &text)?;
    println!("{}", file.display());
    book::write_index(dir)
}

/// This machine's first GPU as a note says it.
fn hardware() -> Option<String> {
    let device = Device::open(0).ok()?;
    let (info, cuda) = (device.info(), driver::version_text(device.driver()));
    let driver = Clocks::new(info).driver_version().unwrap_or_else(|| "unknown".into());
    Some(format!("{} ({} SMs, {} MiB L2), driver {driver}, CUDA {cuda}", info.name, info.chip.sms, info.chip.l2_bytes >> 20))
}

/// The three-line check: a minute for three answers, or one is not ready to run.
fn asked(mut text: String) -> Result<String> {
    let questions = [
        ("What number am I about to measure?", "Hypothesis", "> "),
        ("What do I expect that number to be, and why (with arithmetic)?", "Arithmetic", "- "),
        ("If the number surprises me, what will I have learned?", "Follow-up", "- If it surprises: "),
    ];
    let start = Instant::now();
    for (question, section, mark) in questions {
        eprint!("{question}\n> ");
        std::io::stderr().flush()?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        if answer.trim().is_empty() {
            return Err(Error::incomplete("without three answers you are not ready to run the experiment"));
        }
        text = document::append(&text, section, &format!("{mark}{}", answer.trim())).unwrap_or(text);
    }
    if start.elapsed().as_secs() > 60 {
        eprintln!("note: that took {} s; more than a minute says that the experiment is not clear yet", start.elapsed().as_secs());
    }
    Ok(text)
}
