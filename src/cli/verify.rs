//! `workbench verify`: every variant against its f64 reference, on a GPU or on the host emulator.

use super::{OutputArgs, write_output};
use crate::error::{Error, Kind, Result};
use crate::op::{Chip, Op, Variant};
use crate::run::verify::{Case, Limits, Outcome, Summary, select, shapes, sweep};
use crate::run::{Emulator, Executor, Gpu};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this op
    #[arg(long)]
    op: Option<String>,
    /// Only variants of this name
    #[arg(long)]
    variant: Option<String>,
    /// Random shapes for each variant, besides its edge shapes
    #[arg(long, default_value_t = 20, value_name = "N")]
    shapes: u64,
    /// Random shapes only: for long runs after the edges have been seen
    #[arg(long, conflicts_with = "large")]
    no_edges: bool,
    /// Seed of shapes and contents; without it one is drawn and printed
    #[arg(long)]
    seed: Option<u64>,
    /// Run on the host emulator (small shapes, three thread orders); needs no GPU
    #[arg(long, conflicts_with_all = ["gpu", "large", "models"])]
    emulated: bool,
    /// Which GPU
    #[arg(long, value_name = "N")]
    gpu: Option<u32>,
    /// The shapes beyond 2^31 elements instead, checked by samples; needs tens of GB
    #[arg(long)]
    large: bool,
    /// The shapes that `bench` times instead, those of models: blocks with many tiles, full rings, uneven waves
    #[arg(long, conflicts_with_all = ["large", "no_edges", "shapes"])]
    models: bool,
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    if let Some(op) = &args.op {
        super::op(op)?;
    }
    let selected = select(args.op.as_deref(), args.variant.as_deref())?;
    let mut executor = open(&args)?;
    let seed = args.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |t| t.as_nanos() as u64 % 1_000_000_000)
    });
    eprintln!("verify on {}, seed {seed}", executor.describe());
    let limits = if args.emulated { Limits::EMULATOR } else { Limits::GPU };
    let mut summaries = Vec::new();
    for (op, variant) in selected {
        let (list, too_large) = match (args.large, args.models) {
            (true, _) => (op.large_shapes(), 0),
            (_, true) => (op.bench_shapes(), 0),
            _ => shapes(op, !args.no_edges, args.shapes, seed, limits),
        };
        summaries.push(sweep(executor.as_mut(), op, variant, (&list, too_large), seed, |case| tell(op, variant, case))?);
    }
    if let Some(file) = &out.json {
        let rows: Vec<String> = summaries.iter().flat_map(|s| s.cases.iter().map(|c| to_json(s, c).to_string() + "\n")).collect();
        write_output(file, &rows.concat())?;
    }
    let rows: Vec<Vec<String>> = summaries.iter().map(row).collect();
    if let Some(file) = &out.csv {
        let lines = std::iter::once(HEAD.join(",")).chain(rows.iter().map(|r| r.join(",")));
        write_output(file, &lines.map(|l| l + "\n").collect::<String>())?;
    }
    if let Some(file) = &out.md {
        write_output(file, &(table(&rows, presets::ASCII_MARKDOWN) + "\n"))?;
    }
    if !out.takes_stdout() {
        write_output("-".as_ref(), &(table(&rows, presets::NOTHING) + "\n"))?;
    }
    verdict(&summaries, seed, args.emulated)
}

fn open(args: &Args) -> Result<Box<dyn Executor>> {
    if args.emulated {
        return Ok(Box::new(Emulator::new(Chip::H200)?));
    }
    match Gpu::open(args.gpu.unwrap_or(0), true) {
        Ok(gpu) => Ok(Box::new(gpu)),
        Err(e) if e.kind == Kind::NoDevice => {
            Err(e.try_next("without a GPU: cargo xtask emulate, then workbench verify --emulated"))
        }
        Err(e) => Err(e),
    }
}

/// A failure is told at once, with the command that repeats it.
fn tell(op: &dyn Op, variant: &Variant, case: &Case) {
    if let Outcome::Wrong(why) = &case.outcome {
        eprintln!("WRONG {}/{} {} (contents seed {}): {why}", op.name(), variant.name, case.shape, case.seed);
    }
}

const HEAD: &[&str] = &["variant", "shapes", "right", "wrong", "skipped", "too large", "worst error", "tolerance", "at"];

fn row(s: &Summary) -> Vec<String> {
    let (error, tolerance, at) = match s.worst() {
        // Commas would split a CSV cell.
        Some((case, e, t)) => (format!("{e:.2e}"), format!("{t:.1e}"), case.shape.to_string().replace(',', " ")),
        None => ("-".into(), "-".into(), "-".into()),
    };
    let counts = [s.cases.len(), s.right(), s.wrong(), s.skipped(), s.too_large].map(|n| n.to_string());
    let name = format!("{}/{}", s.op, s.variant);
    std::iter::once(name).chain(counts).chain([error, tolerance, at]).collect()
}

fn table(rows: &[Vec<String>], preset: comfy_table::TableStyle) -> String {
    let mut table = Table::new();
    table.load_style(preset).set_header(HEAD);
    for row in rows {
        table.add_row(row);
    }
    for i in 1..HEAD.len() - 1 {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string().lines().map(|l| l.trim_end().to_string() + "\n").collect::<String>().trim_end().to_string()
}

fn to_json(s: &Summary, case: &Case) -> Value {
    let mut row = json!({
        "schema": 1, "op": s.op, "variant": s.variant, "shape": case.shape.to_string(), "mode": "verify",
        "seed": case.seed, "ns": case.host_ns, "n": 1,
    });
    match &case.outcome {
        Outcome::Right(_) => {
            row["ok"] = true.into();
            if let Some(w) = case.outcome.worst() {
                row["error"] = w.error.into();
                row["tolerance"] = w.tolerance.into();
            }
        }
        Outcome::Wrong(why) => {
            row["ok"] = false.into();
            row["why"] = why.as_str().into();
        }
        Outcome::Skipped(why) => row["skipped"] = why.as_str().into(),
    }
    row
}

fn verdict(summaries: &[Summary], seed: u64, emulated: bool) -> Result<()> {
    let wrong: usize = summaries.iter().map(Summary::wrong).sum();
    let right: usize = summaries.iter().map(Summary::right).sum();
    let flag = if emulated { " --emulated" } else { "" };
    if let Some(bad) = summaries.iter().find(|s| s.wrong() > 0) {
        let again = format!("workbench verify --op {} --variant {} --seed {seed}{flag}", bad.op, bad.variant);
        return Err(Error::check(format!("{wrong} of {} checks failed", wrong + right)).try_next(again));
    }
    if right == 0 {
        let why = summaries.iter().flat_map(|s| &s.cases).find_map(|c| match &c.outcome {
            Outcome::Skipped(why) => Some(why.as_str()),
            _ => None,
        });
        return Err(Error::check(format!("nothing was checked: {}", why.unwrap_or("no shape fits this executor")))
            .try_next(if emulated { "cargo xtask emulate" } else { "workbench list" }));
    }
    Ok(())
}
