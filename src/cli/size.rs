//! `workbench size`: what fits on a card, and what would make it fit. Needs no GPU.

use super::OutputArgs;
use super::table::{Sheet, emit, grouped};
use crate::error::{Error, Result};
use crate::op::Shape;
use crate::plan::model::Model;
use crate::plan::size::{Question, Stored, memory};
use crate::units::Bytes;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Built-in model, a config.json, or a folder that holds one
    #[arg(long, default_value = "llama-3-8b")]
    model: String,
    /// Card
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
    /// Projection weights; embedding, norms and output head stay 16 bit
    #[arg(long, default_value = "bf16", value_parser = ["bf16", "w4a16", "fp8"])]
    weights: String,
    /// Weights that share a scale (w4a16)
    #[arg(long, default_value_t = 128)]
    group: u64,
    /// Elements of the KV cache
    #[arg(long, default_value = "bf16", value_parser = ["bf16", "fp8"])]
    kv: String,
    /// Share of the memory that may be taken
    #[arg(long, default_value_t = 0.9)]
    util: f64,
    /// Cards that share each layer
    #[arg(long, default_value_t = 1)]
    tp: u64,
    /// Tokens of a page
    #[arg(long, default_value_t = 16)]
    page: u64,
    /// Runtime, graphs and activations of one card, GiB
    #[arg(long, value_name = "GIB", default_value_t = 1.55)]
    overhead: f64,
}

fn gib(text: &str, value: f64) -> Result<u64> {
    match value {
        v if (0.0..1e6).contains(&v) => Ok((v * f64::from(1 << 30)) as u64),
        v => Err(Error::usage(format!("{text} {v} is not a size in GiB"))),
    }
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    let (bytes, from) = match args.memory {
        Some(g) => (gib("--memory", g)?, "given".to_string()),
        None => memory(&args.gpu).map(|m| (m.bytes, format!("{}: {}", m.provenance, m.source)))?,
    };
    let model = Model::find(&args.model)?;
    let window = model.sliding_window;
    let question = Question {
        model,
        memory: bytes,
        util: args.util,
        overhead: gib("--overhead", args.overhead)?,
        stored: match args.weights.as_str() {
            "fp8" => Stored::Fp8,
            "w4a16" => Stored::W4a16 { group: args.group },
            _ => Stored::Bf16,
        },
        kv_element: if args.kv == "fp8" { 1 } else { 2 },
        page: args.page,
        tp: args.tp,
        ctx: Shape::new().with("ctx", &args.ctx).int("ctx")?,
        batch: args.batch,
    };
    let size = question.answer()?;
    let remedies = question.remedies()?;

    let of = if args.tp > 1 { format!(", on each of {} cards", args.tp) } else { String::new() };
    let card = if args.memory.is_some() { "the given memory" } else { args.gpu.as_str() };
    let title = format!("{} {} weights, {} cache, on {card}{of}", question.model.name, args.weights, args.kv);
    let mut sheet = Sheet::new(title, &["part", ">bytes", ">GiB", "from"]);
    let mut row = |name: &str, bytes: i64, from: String| {
        let sign = if bytes < 0 { "-" } else { "" };
        let g = bytes as f64 / f64::from(1 << 30);
        sheet.row([name.into(), format!("{sign}{}", grouped(bytes.unsigned_abs())), format!("{g:.3}"), from]);
    };
    row("memory", bytes as i64, from.clone());
    row("usable", (bytes as f64 * args.util) as i64, format!("memory × {}", args.util));
    row("weights", size.weight_bytes as i64, format!("derived: {} parameters", grouped(size.params)));
    let assumed = if args.overhead == 1.55 { "assumed: 1.2 runtime and graphs, 0.35 activations" } else { "given" };
    row("overhead", question.overhead as i64, assumed.into());
    row("pool", size.pool_bytes, "derived: usable − weights − overhead".into());
    row("KV of a token", size.kv_bytes_per_token as i64, "derived: 2 × layers × KV heads × head size × bytes".into());

    let used = question.ctx.next_multiple_of(question.page);
    let mut tail = format!(
        "{} tokens in pages of {}; {} sequences of {} tokens ({} each in whole pages)\n",
        grouped(size.tokens),
        question.page,
        grouped(size.sequences),
        grouped(question.ctx),
        Bytes(used * size.kv_bytes_per_token),
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
    if let Some(w) = window {
        tail += &format!("the model's sliding window of {w} is not used: every layer keeps the whole context\n");
    }
    let json = json!({
        "schema": 1, "model": question.model.name, "gpu": card, "memory_bytes": bytes, "memory_source": from,
        "params": size.params, "weight_bytes": size.weight_bytes, "kv_bytes_per_token": size.kv_bytes_per_token,
        "overhead_bytes": question.overhead, "pool_bytes": size.pool_bytes, "tokens": size.tokens,
        "sequences": size.sequences, "ctx": question.ctx, "batch": question.batch, "tp": question.tp,
        "fits": size.fits, "remedies": remedies,
    });
    emit(out, &[sheet], &tail, &json)
}
