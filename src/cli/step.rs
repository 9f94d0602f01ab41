//! `workbench step`: predict, run and account one decode step; without a GPU, account the newest recording again.

use super::table::Sheet;
use super::{Form, OutputArgs};
use crate::error::{Error, Kind, Result};
use crate::explain::step::{ModeAccount, account};
use crate::op::DType;
use crate::plan::decode::{Options, Weights};
use crate::plan::model::Model;
use crate::profile::native;
use crate::report;
use crate::run::step::measure::{self, Choice, Settings};
use crate::run::step::recording::{self, NodeRecord, Recording};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Built-in model, a config.json, or a checkpoint folder (its weights are then used)
    #[arg(long, default_value = "llama-3-8b")]
    model: String,
    /// Requests decoded together
    #[arg(long, default_value_t = 1)]
    batch: u64,
    /// Tokens of each request, the new one included (`2k` is 2048)
    #[arg(long, default_value = "2048")]
    ctx: String,
    /// Ragged lengths, one a request: `128:4096:77` (instead of --batch and --ctx)
    #[arg(long)]
    lens: Option<String>,
    /// Projection weights
    #[arg(long, default_value = "bf16", value_parser = ["bf16", "f16", "w4a16"])]
    weights: String,
    /// Weights that share a scale (w4a16); 0 for a whole row
    #[arg(long, default_value_t = 128)]
    group: u64,
    /// Zero points beside the scales (w4a16)
    #[arg(long)]
    asymmetric: bool,
    /// Tokens in a page of the KV cache
    #[arg(long, default_value_t = 16)]
    page: u64,
    /// No folded norms, gates or rotations: each a kernel of its own (a residual is always added by the product before it)
    #[arg(long)]
    no_fuse: bool,
    /// Seed of random weights and cache
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Which GPU
    #[arg(long, default_value_t = 0)]
    gpu: u32,
    /// Untraced replays to time, before and after tracing
    #[arg(long, default_value_t = 200)]
    replays: usize,
    /// Replays to trace
    #[arg(long, default_value_t = 20)]
    traced: usize,
    /// Variant of a class of nodes, with a row of its configuration table: `qkv=gemv_async:2`; repeatable
    #[arg(long = "use", value_name = "CLASS=VARIANT[:CFG]")]
    choices: Vec<String>,
    /// Keep the recording (step.json and raw traces) in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Account a recording instead of measuring
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    from: Option<PathBuf>,
    /// Write the first mode's trace for Perfetto, every gap a slice with its cause
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Print the prediction and stop
    #[arg(long)]
    dry_run: bool,
    /// Lab note whose sealed prediction this run measures; nothing starts before it is sealed
    #[arg(long, value_name = "ID", conflicts_with = "from")]
    note: Option<String>,
    /// Folder of the notes
    #[arg(long, value_name = "DIR", default_value = "lab_notes")]
    notes: PathBuf,
    /// Check tokens and logits of a checkpoint made by peers/llama_reference.py
    #[arg(long, value_name = "DIR")]
    expect: Option<PathBuf>,
    /// Run --expect on the host emulator
    #[arg(long, requires = "expect")]
    emulated: bool,
}

impl Args {
    fn settings(&self) -> Result<Settings> {
        let model = Model::find(&self.model)?;
        let folder = Path::new(&self.model);
        let size = |t: &str| -> Result<u64> { Ok(crate::op::Shape::new().with("ctx", t).int("ctx")?) };
        let lens = match &self.lens {
            Some(text) => text.split(':').map(size).collect::<Result<Vec<_>>>()?,
            None => vec![size(&self.ctx)?; usize::try_from(self.batch).unwrap_or(usize::MAX).min(1 << 20)],
        };
        let dtype = if self.weights == "f16" { DType::F16 } else { DType::Bf16 };
        let weights = if self.weights == "w4a16" {
            Weights::W4a16 { group: self.group, asymmetric: self.asymmetric }
        } else {
            Weights::Dense
        };
        let max_ctx = lens.iter().copied().max().unwrap_or(0);
        Ok(Settings {
            model,
            options: Options { lens, max_ctx, page: self.page, dtype, weights, fuse: !self.no_fuse },
            checkpoint: folder.is_dir().then(|| folder.to_path_buf()),
            seed: self.seed,
            gpu: self.gpu,
            note: self.note.clone(),
            replays: self.replays,
            traced: self.traced,
            choices: self.choices.iter().map(|c| Choice::parse(c)).collect::<Result<_>>()?,
        })
    }
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    if let Some(folder) = &args.expect {
        return expect(&args, folder, out);
    }
    if args.dry_run {
        return forecast(&args.settings()?, out);
    }
    if let Some(id) = &args.note {
        super::note::book::require_sealed(&args.notes, id)?;
    }
    let scratch = tempfile_folder();
    let (folder, recorded) = match &args.from {
        Some(folder) => (folder.clone(), true),
        None => match measure_into(&args, args.out.as_deref().unwrap_or(&scratch)) {
            Ok(folder) => (folder, false),
            Err(e) if e.kind == Kind::NoDevice && args.out.is_none() && args.note.is_none() => (fallback(&args, e)?, true),
            Err(e) => return Err(e),
        },
    };
    let result = show(&folder, recorded, args.perfetto.as_deref(), out);
    let _ = std::fs::remove_dir_all(&scratch);
    result
}

/// `--dry-run`: the prediction in every form but the page, which is the account of a step that ran.
fn forecast(settings: &Settings, out: &OutputArgs) -> Result<()> {
    out.only("step --dry-run", &[Form::Json, Form::Csv, Form::Md], &[])?;
    let nodes = measure::predict(settings, None)?;
    let batch = settings.options.batch();
    let sum = |f: fn(&NodeRecord) -> f64| nodes.iter().map(f).sum::<f64>().round() as i64;
    if let Some(file) = &out.json {
        let value = json!({
            "schema": recording::SCHEMA, "provenance": "derived", "batch": batch,
            "floor_ns": sum(|n| n.floor_ns), "predicted_ns": sum(|n| n.predicted_ns), "low_ns": sum(|n| n.low_ns),
            "high_ns": sum(|n| n.high_ns), "bytes": nodes.iter().map(|n| n.bytes).sum::<u64>(),
            "flops": nodes.iter().map(|n| n.flops).sum::<u64>(), "nodes": erased::Json::json(&nodes),
        });
        super::write_output(file, &format!("{value:#}\n"))?;
    }
    let head = ["node", "class", "op", "variant", "shape", ">bytes", ">floor ns", ">predicted ns", ">low ns", ">high ns"];
    let mut sheet = Sheet::new("Predicted, node by node", &head);
    for n in &nodes {
        let ns = [n.floor_ns, n.predicted_ns, n.low_ns, n.high_ns].map(|v| format!("{v:.0}"));
        let text = [&n.label, &n.class, &n.op, &n.variant, &n.shape].map(String::clone);
        sheet.row(text.into_iter().chain([n.bytes.to_string()]).chain(ns));
    }
    if let Some(file) = &out.csv {
        super::write_output(file, &sheet.csv()?)?;
    }
    let text = report::step::prediction(&nodes, batch);
    if let Some(file) = &out.md {
        super::write_output(file, &format!("```\n{text}```\n\n{}", sheet.markdown()))?;
    }
    if !out.takes_stdout() {
        println!("{text}");
    }
    Ok(())
}

/// Where a measured step lies until it has been accounted, when nobody asked to keep it.
fn tempfile_folder() -> PathBuf {
    std::env::temp_dir().join(format!("workbench-step-{}", std::process::id()))
}

fn measure_into(args: &Args, folder: &Path) -> Result<PathBuf> {
    let settings = args.settings()?;
    let predicted = |nodes: &[_]| eprintln!("{}", report::step::prediction(nodes, settings.options.batch()));
    measure::measure(&settings, folder, predicted, |text| eprintln!("{text}"))?;
    Ok(folder.to_path_buf())
}

/// The newest committed recording of this model and weight type.
fn fallback(args: &Args, why: Error) -> Result<PathBuf> {
    let settings = args.settings()?;
    let (plan, _) =
        crate::plan::decode::decode(&settings.model, &settings.options, &crate::op::Chip::H200)?;
    let exe = std::env::current_exe().ok();
    let beside = exe.iter().flat_map(|e| e.ancestors().skip(1).take(4)).map(|p| p.join("reports"));
    let found = std::iter::once(PathBuf::from("reports"))
        .chain(beside)
        .find_map(|reports| recording::newest(&reports, &plan.title));
    let folder = found.ok_or_else(|| {
        Error::no_device(format!("{}, and no recording of `{}` was found in reports/", why.what, plan.title))
            .try_next("workbench step --dry-run predicts it; workbench step --from DIR accounts a recording")
    })?;
    eprintln!("{}.\nReplaying a recording instead: its raw trace is accounted again here.", why.what);
    Ok(folder)
}

/// Accounts the recording in a folder and writes every form that was asked for.
pub(super) fn show(folder: &Path, recorded: bool, perfetto: Option<&Path>, out: &OutputArgs) -> Result<()> {
    let recording = Recording::load(folder)?;
    let mut accounts: Vec<ModeAccount> = Vec::new();
    for mode in &recording.modes {
        let trace = native::open(&folder.join(&mode.trace))?.trace;
        let made = account(&recording, mode, &trace)?;
        if let (Some(file), true) = (perfetto, accounts.is_empty()) {
            let mut text = Vec::new();
            crate::profile::export::perfetto::write(&trace, &[&made.ledger], &mut text)?;
            super::write_output(file, &String::from_utf8_lossy(&text))?;
        }
        accounts.push(made);
    }
    let provenance = if recorded { "recorded" } else { "measured" };
    if let Some(file) = &out.json {
        let value = to_json(&recording, &accounts, provenance)?;
        super::write_output(file, &format!("{value:#}\n"))?;
    }
    if let Some(file) = &out.csv {
        super::write_output(file, &report::step_files::csv(&recording, &accounts)?)?;
    }
    if out.md.is_some() || out.html.is_some() {
        let page = report::step_page::page(&recording, &accounts, provenance)?;
        if let Some(file) = &out.md {
            super::write_output(file, &report::step_files::markdown(&page))?;
        }
        if let Some(file) = &out.html {
            super::write_output(file, &page.render()?)?;
        }
    }
    if !out.takes_stdout() {
        println!("{} — {provenance}", recording.title);
        if recorded {
            let e = &recording.environment;
            println!("recorded on {} on {}, commit {}", e.gpu, e.started, e.commit.as_deref().unwrap_or("unknown"));
        }
        println!("{}\n", recording.environment.lines());
        println!("{}", report::step::prediction(&recording.nodes, recording.batch));
        for (mode, a) in recording.modes.iter().zip(&accounts) {
            println!("{}", report::step::headline(&recording, mode));
            println!("{}", report::step::account(a));
        }
    }
    Ok(())
}

/// The object of `--json`: the graph's account at the top, each mode under `steps`.
fn to_json(r: &Recording, accounts: &[ModeAccount], provenance: &str) -> Result<serde_json::Value> {
    let text = |v: &dyn erased::Json| v.json();
    let head = accounts.first().ok_or_else(|| Error::usage("the recording holds no mode"))?;
    Ok(json!({
        "schema": recording::SCHEMA,
        "provenance": provenance,
        "environment": text(&r.environment),
        "title": r.title,
        "device": head.ledger.device,
        "window_ns": head.ledger.window_ns,
        "residual_ns": head.ledger.residual_ns,
        "operations": head.ledger.operations,
        "busy_ns": head.ledger.busy_ns,
        "lines": text(&head.ledger.lines),
        "steps": accounts.iter().zip(&r.modes).map(|(a, m)| json!({
            "mode": a.mode,
            "step_ns": a.step_ns,
            "window_ns": a.ledger.window_ns,
            "residual_ns": a.ledger.residual_ns,
            "untraced_ns": m.untraced.median_ns,
            "untraced_p10_ns": m.untraced.p10_ns,
            "untraced_p90_ns": m.untraced.p90_ns,
            "n": m.untraced.n,
            "traced_ns": m.traced.median_ns,
            "untraced_after_ns": m.untraced_after.median_ns,
            "lines": text(&a.ledger.lines),
            "waterfall": text(&a.waterfall),
            "classes": text(&a.classes),
            "nodes": text(&a.rows),
        })).collect::<Vec<_>>(),
        "defects": r.modes.iter().filter(|m| m.dropped > 0).map(|m| json!({
            "defect": "dropped_records", "count": m.dropped, "mode": m.mode,
        })).collect::<Vec<_>>(),
    }))
}

/// Serialises without a result at every use: these are plain structs of ours, which always serialise.
mod erased {
    pub trait Json {
        fn json(&self) -> serde_json::Value;
    }
    impl<T: serde::Serialize> Json for T {
        fn json(&self) -> serde_json::Value {
            serde_json::to_value(self).unwrap_or(serde_json::Value::Null)
        }
    }
}

fn expect(args: &Args, folder: &Path, out: &OutputArgs) -> Result<()> {
    out.only("step --expect", &[Form::Json], &[])?;
    let (page, fuse) = (args.page, !args.no_fuse);
    let outcome = if args.emulated {
        let mut exec = crate::run::Emulator::new(crate::op::Chip::H200)?;
        crate::run::step::expect::check(&mut exec, folder, page, fuse)?
    } else {
        let mut exec = crate::run::Gpu::open(args.gpu, true)?;
        crate::run::step::expect::check(&mut exec, folder, page, fuse)?
    };
    if let Some(file) = &out.json {
        use erased::Json;
        super::write_output(file, &format!("{:#}\n", outcome.json()))?;
    }
    if out.takes_stdout() {
        return verdict(&outcome);
    }
    println!(
        "{} requests, {} steps: {} tokens differ; logits within {:.2e} of the fp32 run (transformers' bf16 run: {:.2e}; \
         tolerance {:.0e})",
        outcome.requests,
        outcome.steps,
        outcome.wrong_tokens,
        outcome.logit_error,
        outcome.peer_error,
        crate::run::step::expect::LOGIT_TOLERANCE
    );
    verdict(&outcome)
}

fn verdict(outcome: &crate::run::step::expect::Outcome) -> Result<()> {
    if outcome.ok() { Ok(()) } else { Err(Error::check("the step does not agree with transformers")) }
}
