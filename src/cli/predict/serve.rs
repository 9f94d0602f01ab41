//! `workbench predict serve`: the closed forms of serving for a model on a card.

use crate::cli::OutputArgs;
use crate::cli::deployment::{Deployment, kv_element, stored};
use crate::cli::table::{Sheet, emit, grouped, percent};
use crate::error::{Error, Result};
use crate::explain::shapes::{self, Request};
use crate::op::Shape;
use crate::plan::dims::Dims;
use crate::plan::serve::{self, Server};
use crate::plan::size::Question;
use crate::roofline::{Calibration, Ceilings, machine};
use serde_json::json;

/// Weights that share a scale where 4-bit weights are stored.
const GROUP: u64 = 128;
/// A doubling that gains less than this share of a doubling is past the knee.
const KNEE: f64 = 0.25;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model of the table, a config.json, or a folder that holds one
    #[arg(long, default_value = "llama-3-8b")]
    model: String,
    /// Tokens of a prompt
    #[arg(long, default_value = "1024")]
    prompt: String,
    /// Tokens of an answer
    #[arg(long, default_value = "256")]
    answer: String,
    /// Requests at once, repeatable (default: a doubling series)
    #[arg(long)]
    concurrency: Vec<u64>,
    #[command(flatten)]
    on: Deployment,
    /// Tokens of a prefill chunk
    #[arg(long, default_value_t = 2048)]
    chunk: u64,
    /// Tokens that all prompts of a group begin with
    #[arg(long, default_value_t = 0)]
    prefix: u64,
    /// Requests, and groups of them, for the prefix cache
    #[arg(long, default_value_t = 64)]
    requests: u64,
    /// See --requests
    #[arg(long, default_value_t = 1)]
    groups: u64,
    /// Tokens of a block of the cache
    #[arg(long, default_value_t = 16)]
    block: u64,
    /// Speculation: share of proposals accepted
    #[arg(long, value_name = "SHARE", default_value_t = 0.7)]
    accept: f64,
    /// Speculation: tokens proposed in a round
    #[arg(long, value_name = "N", default_value_t = 3)]
    proposals: u64,
    /// Speculation: what a proposal costs, as a share of a step (n-gram: 0)
    #[arg(long, value_name = "SHARE", default_value_t = 0.165)]
    draft_cost: f64,
}

fn ms(seconds: f64) -> String {
    format!("{:.2}", seconds * 1e3)
}

pub fn run(a: &Args, gpu: &str, ceilings: &Ceilings, calibration: &Calibration, out: &OutputArgs) -> Result<()> {
    let size = |key: &str, text: &str| -> Result<u64> { Ok(Shape::new().with(key, text).int(key)?) };
    let (prompt, answer) = (size("prompt", &a.prompt)?, size("answer", &a.answer)?);
    let share = |v: f64| (0.0..=1.0).contains(&v);
    if prompt == 0 || answer == 0 || a.chunk == 0 || a.block == 0 || a.concurrency.contains(&0) {
        return Err(Error::usage("prompt, answer, chunk, block and concurrency must be at least 1"));
    }
    if !share(a.accept) || !share(a.draft_cost) || a.proposals > 64 {
        return Err(Error::usage("--accept and --draft-cost are shares from 0 to 1, --proposals at most 64"));
    }
    let dims = Dims::find(&a.model)?;
    let sheet = machine::find(gpu)?;
    // The middle of an answer.
    let ctx = prompt + answer / 2;
    let request = Request {
        dims: dims.clone(),
        stored: stored(&a.on.weights, GROUP),
        kv_element: kv_element(&a.on.kv),
        tp: a.on.tp,
        batch: 1,
        ctx,
    };
    let s = shapes::server(&request, &sheet, ceilings, calibration)?;
    let memory = machine::memory(&sheet).0;
    let question = Question { ctx: prompt + answer, ..a.on.question(dims.clone(), memory, a.block, GROUP)? };
    let fits = question.answer()?;

    let step = |batch: u64| {
        let f = shapes::step(&Request { batch, ..request.clone() }, &sheet, ceilings, calibration)?;
        Ok::<_, Error>((f.predicted_ns as f64 / 1e9, f.low_ns as f64 / 1e9, f.high_ns as f64 / 1e9))
    };
    let first = s.prefill(prompt as f64, 0.0);
    let mut levels = a.concurrency.clone();
    if levels.is_empty() {
        levels = (0..=8).map(|i| 1 << i).collect();
    }
    let title = format!("{} {} on {}{}, {prompt} + {answer} tokens", dims.name, a.on.weights, ceilings.gpu, if a.on.tp > 1 { format!(" × {}", a.on.tp) } else { String::new() });
    let heads = [">requests", ">TPOT ms", ">80 %", ">tokens/s", ">TTFT ms alone", ">request s", "fits"];
    let mut table = Sheet::new(title.clone(), &heads);
    let mut rows = Vec::new();
    for &n in &levels {
        let (t, low, high) = step(n)?;
        let ok = n <= fits.sequences;
        // While one prompt is read the others wait: each request's answer meets the prompts of the others once.
        let whole = first + answer as f64 * t + (n - 1) as f64 * first;
        table.row([
            grouped(n),
            ms(t),
            format!("{} to {}", ms(low), ms(high)),
            format!("{:.0}", n as f64 * answer as f64 / whole),
            ms(first),
            format!("{whole:.2}"),
            if ok { "yes".into() } else { format!("no: {} do", grouped(fits.sequences)) },
        ]);
        rows.push(json!({"concurrency": n, "tpot_ns": (t * 1e9).round(), "low_ns": (low * 1e9).round(), "high_ns": (high * 1e9).round(),
            "ttft_ns": (first * 1e9).round(), "request_ns": (whole * 1e9).round(), "fits": ok}));
    }

    let mut notes = Sheet::new("Where it bends", &["question", ">answer", "from"]);
    let mut note = |what: &str, answer: String, from: &str| notes.row([what.into(), answer, from.into()]);
    note("requests of this length that fit", grouped(fits.sequences), "pool / (pages of prompt + answer)");
    note("products turn to computing at batch", format!("{:.0}", s.critical_batch()), "W/β = 2·B·P/π");
    note("caches weigh as much as the weights at batch", format!("{:.0}", s.balanced_batch(ctx as f64)), "B·KV(ctx) = W");
    let knee = s.knee(ctx as f64, KNEE, 4096);
    note("knee of concurrency", grouped(knee), "a doubling gains under 25 %");
    let ridge = s.ridge_tokens();
    note("a prefill computes from tokens", ridge.map_or("never".into(), |t| format!("{t:.0}")), "b·I·d / (2·(d − b·I))");
    let gap = |chunk| s.worst_gap(prompt as f64, chunk, 16.0, ctx as f64);
    note("worst pause of 16 others, prompt whole", format!("{} ms", ms(gap(None))), "prefill + step");
    note(&format!("worst pause, chunks of {}", a.chunk), format!("{} ms", ms(gap(Some(a.chunk as f64)))), "chunk + step");
    let served = serve::servable(a.prefix.min(prompt), prompt, a.block, None);
    let hits = serve::hit_rate(a.requests, a.groups, prompt, served);
    note("prompt tokens from the prefix cache", percent(hits), "(N − groups)·blocks / (N·prompt)");
    let e = serve::accepted(a.accept, a.proposals);
    note("tokens of a speculative round", format!("{e:.2}"), "(1 − α^(κ+1)) / (1 − α)");
    let gain = serve::speculation(a.accept, a.proposals, a.draft_cost);
    note("speculation at batch 1", format!("×{gain:.2}"), "E / (1 + κ·c)");
    let limit = limit(a, &s);
    note("speculation stops paying at batch", format!("{limit:.0}"), "ridge·(E − κ·c) / (κ + 1)");
    let mut tail = format!("rates: {}: {}; efficiency of kernels: this project's fits, as a bound on what an engine may reach\n", ceilings.provenance, ceilings.source);
    if ridge.is_some_and(|t| (a.chunk as f64) < t) {
        tail += "chunks below the ridge read the weights once more each: TTFT grows\n";
    }
    if limit > fits.sequences as f64 {
        tail += "speculation pays at every batch that fits\n";
    }
    let json = json!({
        "schema": 1, "title": title, "provenance": "derived", "levels": rows, "sequences": fits.sequences,
        "critical_batch": s.critical_batch(), "balanced_batch": s.balanced_batch(ctx as f64), "knee": knee,
        "ridge_tokens": ridge, "gap_whole_ns": (gap(None) * 1e9).round(), "gap_chunked_ns": (gap(Some(a.chunk as f64)) * 1e9).round(),
        "hit_rate": hits, "accepted": e, "speculation": gain, "speculation_limit": limit,
    });
    emit(out, &[table, notes], &tail, &json)
}

fn limit(a: &Args, s: &Server) -> f64 {
    serve::speculation_limit(a.accept, a.proposals, a.draft_cost, s.critical_batch())
}
