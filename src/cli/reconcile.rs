//! `workbench reconcile`: an engine's start-up log beside what the model's shapes say. Needs no GPU.

use super::OutputArgs;
use super::deployment::Deployment;
use super::table::{Sheet, emit, grouped, percent};
use crate::error::{Error, Result};
use crate::plan::dims::Dims;
use crate::plan::engine_log::{self, Reconciled, Report, Row};
use crate::plan::size::Question;
use crate::roofline::machine;
use serde_json::{Map, Value, json};
use std::io::Read;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Log of vLLM, SGLang or llama.cpp, or `-` for standard input
    log: PathBuf,
    /// Model of the table, a config.json, or a folder that holds one
    #[arg(long)]
    model: String,
    /// Card, for its memory where the log does not say it; without both, pool and tokens are not held against memory
    #[arg(long)]
    gpu: Option<String>,
    /// Tokens of a vLLM block, where only blocks are printed
    #[arg(long, default_value_t = 16)]
    block: u64,
    // What the log says of these goes before them.
    #[command(flatten)]
    on: Deployment,
}

/// Weights that share a scale where 4-bit weights are stored.
const GROUP: u64 = 128;

fn text(path: &std::path::Path) -> Result<String> {
    let failed = |e: std::io::Error| Error::usage(format!("cannot read {}: {e}", path.display()));
    let mut bytes = Vec::new();
    if path == std::path::Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).map_err(failed)?;
    } else {
        bytes = std::fs::read(path).map_err(failed)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    let memory = match &args.gpu {
        Some(gpu) => machine::memory(&machine::find(gpu)?).0,
        None => 0,
    };
    let question = args.on.question(Dims::find(&args.model)?, memory, args.block, GROUP)?;
    let report = engine_log::read(&text(&args.log)?, args.block).map_err(|e| e.at(args.log.display()))?;
    let reconciled = engine_log::reconcile(&report, &question)?;
    show(&report, &reconciled, &question, out)?;
    let off: Vec<&str> = reconciled.rows.iter().filter(|r| !r.agrees).map(|r| r.quantity).collect();
    if off.is_empty() {
        return Ok(());
    }
    Err(Error::check(format!("the log and the shapes disagree about {}", off.join(", "))))
}

/// A quantity as it is read: bytes in GiB, counts with separators.
fn number(row: &Row, v: f64) -> String {
    match row.quantity {
        "weights" | "pool" | "cache for one request" => format!("{:.3} GiB", v / f64::from(1 << 30)),
        "concurrency" => format!("{v:.2}"),
        _ => grouped(v.max(0.0) as u64),
    }
}

fn show(report: &Report, r: &Reconciled, question: &Question, out: &OutputArgs) -> Result<()> {
    let engine = serde_json::to_value(report.engine).map_or(String::new(), |v| v.as_str().unwrap_or_default().into());
    let title = format!("{engine}, {} rank(s), beside {}", report.ranks, question.model.name);
    let mut sheet = Sheet::new(title, &["quantity", ">reported", ">predicted", ">gap", "", "predicted from"]);
    let mut predicted: Map<String, Value> = Map::new();
    for row in &r.rows {
        sheet.row([
            row.quantity.into(),
            number(row, row.reported),
            number(row, row.predicted),
            percent(row.gap()),
            if row.agrees { "agrees" } else { "DISAGREES" }.into(),
            row.arithmetic.clone(),
        ]);
        let key = match row.quantity {
            "weights" => "weight_bytes",
            "pool" => "pool_bytes",
            other => other,
        };
        predicted.insert(key.replace(' ', "_"), json!(row.predicted));
    }
    let mut tail = String::new();
    for remark in &report.remarks {
        tail += &format!("the log: {remark}\n");
    }
    for what in &r.unknown {
        tail += &format!("{what}\n");
    }
    if !r.causes.is_empty() {
        tail += "likely causes, in this order:\n";
        r.causes.iter().enumerate().for_each(|(i, c)| tail += &format!("  {}. {c}\n", i + 1));
    }
    let disagrees: Vec<&str> = r.rows.iter().filter(|r| !r.agrees).map(|r| r.quantity).collect();
    let json = json!({
        "schema": 1, "engine": report.engine, "reported": report, "predicted": predicted, "rows": r.rows,
        "disagrees": disagrees, "causes": r.causes, "not_compared": r.unknown,
    });
    emit(out, &[sheet], &tail, &json)
}
