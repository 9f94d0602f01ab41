//! `workbench size`: what fits on a card, and what would make it fit. Needs no GPU.

use super::OutputArgs;
use super::deployment::{Deployment, gib};
use super::table::{Sheet, emit, grouped};
use crate::error::{Error, Result};
use crate::op::Shape;
use crate::plan::dims::Dims;
use crate::plan::model::Model;
use crate::plan::size::Question;
use crate::roofline::machine;
use crate::units::Bytes;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Built-in model, a config.json, or a folder that holds one
    #[arg(long, default_value = "llama-3-8b")]
    model: String,
    /// Card of the table, or a machine's .json
    #[arg(long, default_value = "h200")]
    gpu: String,
    /// Memory of the card in GiB as its driver reports it, in place of the table's
    #[arg(long, value_name = "GIB")]
    memory: Option<f64>,
    /// Tokens of each sequence (`8k` is 8192)
    #[arg(long, default_value = "8192")]
    ctx: String,
    /// Sequences at once
    #[arg(long, default_value_t = 1)]
    batch: u64,
    /// Weights that share a scale (w4a16)
    #[arg(long, default_value_t = 128)]
    group: u64,
    /// Tokens of a page
    #[arg(long, default_value_t = 16)]
    page: u64,
    #[command(flatten)]
    on: Deployment,
}

/// The smallest card of the table that the batch fits on, where this one is too small.
fn larger(question: &Question) -> Option<String> {
    let mut cards: Vec<_> = machine::DATASHEETS.iter().map(|d| (machine::memory(d).0, &d.key)).collect();
    cards.sort();
    let fits = |memory| Question { memory, ..question.clone() }.answer().is_ok_and(|s| s.fits);
    cards.into_iter().find(|(m, _)| *m > question.memory && fits(*m)).map(|(_, key)| format!("--gpu {key}"))
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    let (bytes, from) = match args.memory {
        Some(0.0) => {
            return Err(Error::usage("a card with --memory 0 holds nothing").try_next("--memory GIB, or --gpu NAME"));
        }
        Some(g) => (gib("--memory", g)?, "given".to_string()),
        None => {
            let (bytes, provenance, source) = machine::memory(&machine::find(&args.gpu)?);
            (bytes, format!("{provenance}: {source}"))
        }
    };
    let on = &args.on;
    let question = Question {
        ctx: Shape::new().with("ctx", &args.ctx).int("ctx")?,
        batch: args.batch,
        ..on.question(Dims::find(&args.model)?, bytes, args.page, args.group)?
    };
    let size = question.answer()?;
    let mut remedies = question.remedies()?;
    if !size.fits {
        remedies.extend(larger(&question));
    }

    let of = if on.tp > 1 { format!(", on each of {} cards", on.tp) } else { String::new() };
    let card = if args.memory.is_some() { "the given memory" } else { args.gpu.as_str() };
    let title = format!("{} {} weights, {} cache, on {card}{of}", question.model.name, on.weights, on.kv);
    let mut sheet = Sheet::new(title, &["part", ">bytes", ">GiB", "from"]);
    let mut row = |name: &str, bytes: i64, from: String| {
        let sign = if bytes < 0 { "-" } else { "" };
        let g = bytes as f64 / f64::from(1 << 30);
        sheet.row([name.into(), format!("{sign}{}", grouped(bytes.unsigned_abs())), format!("{g:.3}"), from]);
    };
    row("memory", bytes as i64, from.clone());
    row("usable", (bytes as f64 * on.util) as i64, format!("memory × {}", on.util));
    row("weights", size.weight_bytes as i64, format!("derived: {} parameters", grouped(size.params)));
    let assumed = if on.overhead == 1.55 { "assumed: 1.2 runtime and graphs, 0.35 activations" } else { "given" };
    row("overhead", question.overhead as i64, assumed.into());
    row("pool", size.pool_bytes, "derived: usable − weights − overhead".into());
    let cell = match question.model.mla {
        Some(_) => "derived: layers × (latent + rotated part) × bytes, copied to every card",
        None => "derived: 2 × layers × KV heads × head size × bytes",
    };
    row("KV of a token", size.kv_bytes_per_token as i64, cell.into());

    let mut tail = format!(
        "{} tokens in pages of {}; {} sequences of {} tokens ({} each in whole pages)\n",
        grouped(size.tokens),
        question.page,
        grouped(size.sequences),
        grouped(question.ctx),
        Bytes(size.sequence_bytes),
    );
    tail += &match (size.fits, remedies.is_empty()) {
        (true, _) => format!("batch {} fits\n", question.batch),
        (false, false) => format!(
            "batch {} does not fit; any one of these makes it fit: {}\n",
            question.batch,
            remedies.join(", ")
        ),
        (false, true) => format!("batch {} does not fit, and no single change makes it fit\n", question.batch),
    };
    if let Some(w) = question.model.window {
        tail += &format!("{} of {} layers keep the last {} tokens only\n", w.layers, question.model.layers, w.tokens);
    }
    if let Err(e) = Model::find(&args.model) {
        tail += &format!("`step` cannot run it yet: {}\n", e.what);
    }
    let json = json!({
        "schema": 1, "model": question.model.name, "gpu": card, "memory_bytes": bytes, "memory_source": from,
        "params": size.params, "weight_bytes": size.weight_bytes, "kv_bytes_per_token": size.kv_bytes_per_token,
        "overhead_bytes": question.overhead, "pool_bytes": size.pool_bytes, "tokens": size.tokens,
        "sequences": size.sequences, "ctx": question.ctx, "batch": question.batch, "tp": question.tp,
        "sequence_bytes": size.sequence_bytes, "fits": size.fits, "remedies": remedies,
    });
    emit(out, &[sheet], &tail, &json)
}
