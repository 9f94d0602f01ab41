//! `workbench predict`: the number before the run. Needs no GPU.

mod cited;
mod serve;
mod sweep;

use super::OutputArgs;
use super::deployment::{kv_element, stored};
use super::table::{Sheet, emit, grouped, percent, us};
use crate::error::{Error, Result};
use crate::explain::forecast::{self, Forecast};
use crate::explain::redo::Limit;
use crate::explain::{quantisation, shapes};
use crate::op::{Chip, DType, Op, Shape};
use crate::plan::decode::{self, Options, Weights};
use crate::plan::dims::Dims;
use crate::plan::model::Model;
use crate::plan::size::Question;
use crate::roofline::{Calibration, Ceilings, calibrate, machine};
use crate::units::{Bytes, Flops};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
    /// Card: the H200 as recorded, others from their datasheets; or a machine's .json
    #[arg(long, global = true, default_value = "h200")]
    gpu: String,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// One decode step, class by class
    Step {
        /// Built-in model, a config.json, or a folder that holds one
        #[arg(long, default_value = "llama-3-8b")]
        model: String,
        /// Requests decoded together
        #[arg(long, default_value_t = 1)]
        batch: u64,
        /// Tokens of each request, the new one included (`2k` is 2048)
        #[arg(long, default_value = "2048")]
        ctx: String,
        /// Projection weights
        #[arg(long, default_value = "bf16", value_parser = ["bf16", "f16", "w4a16", "fp8", "mxfp4"])]
        weights: String,
        /// Elements of the KV cache
        #[arg(long, default_value = "bf16", value_parser = ["bf16", "fp8"])]
        kv: String,
        /// Cards that share each layer
        #[arg(long, default_value_t = 1)]
        tp: u64,
        /// What another engine would take, from published rows: llama.cpp, gpt-fast, vllm, tensorrt-llm
        #[arg(long, value_name = "NAME")]
        engine: Option<String>,
        /// Weights that share a scale (w4a16); 0 for a whole row
        #[arg(long, default_value_t = 128)]
        group: u64,
        /// Zero points beside the scales (w4a16)
        #[arg(long)]
        asymmetric: bool,
        /// Tokens in a page of the KV cache
        #[arg(long, default_value_t = PAGE)]
        page: u64,
        /// Every op a kernel of its own
        #[arg(long)]
        no_fuse: bool,
    },
    /// Serving: time to first token, time per token, where batching, chunks, prefix cache and speculation stop paying
    Serve(serve::Args),
    /// Published decode throughputs, each estimated from the others
    Cited,
    /// Fits of this card's kernels from JSON lines of `bench`
    Calibrate {
        /// Files that `bench --json` wrote
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Where they come from, kept with every fit
        #[arg(long)]
        source: String,
    },
    /// A list of shapes over all ops, sealed before it is measured
    Sweep(sweep::Args),
    /// Sealed predictions beside a later run of `bench --sweep`
    Check(sweep::CheckArgs),
    /// One launch of an op
    Kernel {
        /// Op, as `workbench list` names it
        op: String,
        /// Shape: `m=1,n=4096,k=4096,dtype=bf16`
        shape: String,
        /// Variant in place of the heuristic's
        #[arg(long, value_name = "NAME")]
        variant: Option<String>,
    },
}

/// Tokens in a page where nobody says, here and in `step`.
const PAGE: u64 = 16;
/// More requests than any card holds; the plan keeps a length for each.
const MOST_REQUESTS: u64 = 1 << 16;

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    if let What::Calibrate { files, source } = &args.what {
        return calibrate(files, source, out);
    }
    if matches!(args.what, What::Cited) {
        return cited::table(out);
    }
    if let What::Check(a) = &args.what {
        return sweep::check(a, out);
    }
    let (chip, ceilings) = forecast::card(&args.gpu)?;
    let calibration = Calibration::default();
    let (title, forecast, batch) = match args.what {
        What::Calibrate { .. } | What::Cited | What::Check(_) => return Ok(()),
        What::Sweep(a) => return sweep::run(&a, &chip, &ceilings, out),
        What::Serve(a) => return serve::run(&a, &args.gpu, &ceilings, &calibration, out),
        What::Kernel { op, shape, variant } => {
            let op = super::op(&op)?;
            let shape = Shape::parse(&shape)?;
            let known: Vec<&str> = op.dims().iter().map(|d| d.key).collect();
            if let Some(key) = shape.keys().find(|k| !known.contains(k)) {
                return Err(Error::usage(format!("{} takes no `{key}`; it takes {}", op.name(), known.join(", "))));
            }
            return kernel(op, &shape, variant.as_deref(), (&chip, &ceilings, &calibration), out);
        }
        What::Step { model, batch, ctx, weights, kv, tp, engine, group, asymmetric, page, no_fuse } => {
            if batch == 0 || batch > MOST_REQUESTS {
                return Err(Error::usage(format!("--batch {batch} is not 1 to {MOST_REQUESTS}")));
            }
            if tp == 0 {
                return Err(Error::usage("a layer is shared by at least 1 card, --tp 0 is none").try_next("--tp 1"));
            }
            let tokens = Shape::new().with("ctx", &ctx).int("ctx")?;
            if let Some(engine) = engine {
                return cited::step(&engine, &model, &args.gpu, &weights, (batch, tokens, tp), out);
            }
            // What the plan cannot run is predicted from its shapes.
            let why = match Model::find(&model) {
                _ if tp > 1 => Some("it runs on one card".to_string()),
                _ if kv == "fp8" => Some("its cache is 16 bit".into()),
                _ if ["fp8", "mxfp4"].contains(&weights.as_str()) => Some(format!("it has no {weights} weights")),
                Err(e) => Some(e.what),
                Ok(m) if m.sliding_window.is_some_and(|w| w < tokens) => Some("it has no sliding windows".into()),
                Ok(_) => None,
            };
            if let Some(why) = why {
                let dims = Dims::find(&model)?;
                let request = shapes::Request {
                    dims,
                    stored: stored(&weights, group),
                    kv_element: kv_element(&kv),
                    tp,
                    batch,
                    ctx: tokens,
                };
                let sheet = machine::find(&args.gpu)?;
                let forecast = shapes::step(&request, &sheet, &ceilings, &calibration)?;
                let of = if tp > 1 { format!(" on each of {tp} cards") } else { String::new() };
                let title = format!("{} {weights} batch {batch} context {tokens}{of}", request.dims.name);
                let (sheets, mut tail) = text(&title, &forecast, Some(batch), &ceilings);
                tail += &room(&args.gpu, &model, (&weights, group, &kv), tp, (batch, tokens))?;
                tail += &format!("from shapes alone: `step` cannot run this yet: {why}\n");
                return emit(out, &sheets, &tail, &to_json(&title, &forecast, &ceilings)?);
            }
            let verify = format!(
                "verify: workbench step --model {model} --batch {batch} --ctx {ctx} --weights {weights}{}{}{}{}",
                if weights == "w4a16" { format!(" --group {group}") } else { String::new() },
                if weights == "w4a16" && asymmetric { " --asymmetric" } else { "" },
                if page == PAGE { String::new() } else { format!(" --page {page}") },
                if no_fuse { " --no-fuse" } else { "" }
            );
            let options = Options {
                dtype: if weights == "f16" { DType::F16 } else { DType::Bf16 },
                weights: if weights == "w4a16" { Weights::W4a16 { group, asymmetric } } else { Weights::Dense },
                page,
                fuse: !no_fuse,
                ..Options::uniform(batch, tokens)
            };
            let (plan, _) = decode::decode(&Model::find(&model)?, &options, &chip)?;
            let forecast = forecast::plan(&plan, &chip, &ceilings, &calibration)?;
            let room = room(&args.gpu, &model, (&weights, group, &kv), tp, (batch, tokens))?;
            (plan.title, forecast, Some((batch, format!("{room}{verify}"))))
        }
    };
    let (batch, verify) = batch.map_or((None, String::new()), |(b, v)| (Some(b), format!("{v}\n")));
    let (sheets, mut tail) = text(&title, &forecast, batch, &ceilings);
    tail += &verify;
    emit(out, &sheets, &tail, &to_json(&title, &forecast, &ceilings)?)
}

/// A line that says where weights and caches are more than the card holds, so that nobody waits for a run that cannot be.
fn room(
    gpu: &str,
    model: &str,
    (weights, group, kv): (&str, u64, &str),
    tp: u64,
    (batch, ctx): (u64, u64),
) -> Result<String> {
    let (memory, ..) = machine::memory(&machine::find(gpu)?);
    let question = Question {
        model: Dims::find(model)?,
        memory,
        util: 1.0,
        overhead: 0,
        stored: stored(weights, group),
        kv_element: kv_element(kv),
        page: PAGE,
        tp,
        ctx,
        batch,
    };
    let size = question.answer()?;
    if size.fits {
        return Ok(String::new());
    }
    Ok(format!(
        "does not fit: {} of weights and {batch} caches of {} are more than the {} of the card: workbench size --model {model} \
         --gpu {gpu} --batch {batch} --ctx {ctx} says what would\n",
        Bytes(size.weight_bytes),
        Bytes(size.sequence_bytes),
        Bytes(memory),
    ))
}

/// One launch: its terms, and what its launch plan loses to whole numbers.
fn kernel(
    op: &dyn Op,
    shape: &Shape,
    variant: Option<&str>,
    (chip, ceilings, calibration): (&Chip, &Ceilings, &Calibration),
    out: &OutputArgs,
) -> Result<()> {
    let variant = variant.map_or(Ok(op.choose(shape, chip)), |v| op.variant(v).map(|v| v.name))?;
    op.supports(variant, shape, chip).map_err(|e| Error::from(e).at(format!("{}/{variant}", op.name())))?;
    let plan = quantisation::of(op, variant, shape, chip, ceilings);
    if plan.as_ref().is_ok_and(|p| p.kernels.is_empty()) {
        return Err(Error::usage(format!("{} {shape} is empty: no kernel is launched, and no time is there to predict", op.name()))
            .try_next("sizes of at least 1"));
    }
    let forecast = forecast::kernel(op, variant, shape, (chip, ceilings), calibration)?;
    let title = format!("{}/{variant} {shape}", op.name());
    let (mut sheets, mut tail) = text(&title, &forecast, None, ceilings);
    tail += &format!("line: {}\n", forecast.line);
    tail += &format!("verify: workbench bench {} --shape {shape} --variant {variant}\n", op.name());
    if !forecast.near.is_empty() {
        let heads = ["measured nearby", ">lengths away", ">measured over its line"];
        let mut table = Sheet::new("What the last term leans on", &heads);
        for n in &forecast.near {
            table.row([format!("{}/{} {}", op.name(), n.variant, n.shape), format!("{:.2}", n.distance), format!("{:.3}", n.ratio)]);
        }
        sheets.push(table);
    }
    let mut json = to_json(&title, &forecast, ceilings)?;
    match plan {
        Ok(plan) => {
            let mut table = Sheet::new("The launch plan", &["kernel", "what", "arithmetic", ">result"]);
            for k in &plan.kernels {
                for (i, [what, arithmetic, result]) in k.lines(chip).into_iter().enumerate() {
                    table.row([if i == 0 { k.entry.clone() } else { String::new() }, what, arithmetic, result]);
                }
            }
            for t in &plan.tiles {
                let of = format!("{} {} of {} that the same grid covers", t.dimension, t.size, t.room);
                table.row([String::new(), "tiles".into(), of, format!("{:.0} % work", 100.0 * t.share)]);
            }
            sheets.push(table);
            json["launches"] = serde_json::to_value(&plan).map_err(|e| Error::usage(e.to_string()))?;
        }
        Err(e) => tail += &format!("no launch plan: {}\n", e.what),
    }
    emit(out, &sheets, &tail, &json)
}

fn calibrate(files: &[PathBuf], source: &str, out: &OutputArgs) -> Result<()> {
    let mut points = Vec::new();
    for file in files {
        let text =
            std::fs::read_to_string(file).map_err(|e| Error::usage(format!("cannot read {}: {e}", file.display())))?;
        points.extend(calibrate::points(&file.display().to_string(), &text)?);
    }
    let calibration = calibrate::calibrate(&points, source, &BTreeMap::new());
    let heads = ["op", "variant", ">fixed µs", ">of the ceiling", ">uneven", ">a turn µs", ">80 % ±", ">shapes"];
    let mut lines = Sheet::new(format!("t = fixed + floor / share + uneven + turns, from {source}"), &heads);
    for f in &calibration.fits {
        lines.row([
            f.op.clone(),
            if f.variant.is_empty() { "best of each shape".into() } else { f.variant.clone() },
            format!("{:.2}", f.fixed_ns / 1e3),
            percent(f.efficiency),
            format!("{:.2}", f.uneven),
            format!("{:.3}", f.turn_ns / 1e3),
            percent(f.spread),
            f.n.to_string(),
        ]);
    }
    let heads = ["op", ">shapes", ">median", ">worst", ">in their 80 %", ">widened by", "near in (octaves a length)"];
    let mut nearby = Sheet::new("Each shape estimated from the others", &heads);
    for n in &calibration.nearby {
        let lengths = n.scale.lengths.iter().map(|(key, l)| format!("{key} {l}"));
        let words = n.scale.words.iter().map(|(key, w)| format!("{key} ({w})"));
        nearby.row([
            n.op.clone(),
            n.neighbours.len().to_string(),
            percent(n.left_out.median),
            percent(n.left_out.worst),
            percent(n.left_out.inside),
            format!("{:.2}", n.widen),
            lengths.chain(words).collect::<Vec<_>>().join(", "),
        ]);
    }
    let json = serde_json::to_value(&calibration).map_err(|e| Error::usage(e.to_string()))?;
    emit(out, &[lines, nearby], "", &json)
}

fn text(title: &str, f: &Forecast, batch: Option<u64>, ceilings: &Ceilings) -> (Vec<Sheet>, String) {
    let heads = ["term", ">count", ">bytes", ">FLOP", ">floor µs", ">predicted µs", "bound", "provenance"];
    let mut sheet = Sheet::new(format!("{title} on {}", ceilings.gpu), &heads);
    for t in &f.terms {
        sheet.row([
            t.name.clone(),
            if t.count > 0 { grouped(t.count) } else { String::new() },
            if t.bytes > 0 { Bytes(t.bytes).to_string() } else { String::new() },
            if t.flops > 0 { Flops(t.flops).to_string() } else { String::new() },
            us(t.floor_ns),
            us(t.ns),
            t.bound.map_or("", Limit::name).into(),
            t.provenance.to_string(),
        ]);
    }
    sheet.row([
        "in all".into(),
        String::new(),
        Bytes(f.bytes).to_string(),
        Flops(f.flops).to_string(),
        us(f.floor_ns),
        us(f.predicted_ns),
        String::new(),
        "derived".into(),
    ]);
    let mut sums = Sheet::new("The sums, to be redone (MB and GB are 1e6 and 1e9)", &["term", "arithmetic"]);
    for t in f.terms.iter().filter(|t| !t.arithmetic.is_empty()) {
        sums.row([t.name.clone(), t.arithmetic.clone()]);
    }
    if !f.arithmetic.is_empty() {
        sums.row(["in all".into(), f.arithmetic.clone()]);
    }
    let rate = batch.map_or(String::new(), |b| format!(", {:.0} tokens/s", b as f64 * 1e9 / f.predicted_ns as f64));
    let tail = format!(
        "predicted {} µs ({} to {}){rate}; floor {} µs\nrates: {}: {}\n",
        us(f.predicted_ns),
        us(f.low_ns),
        us(f.high_ns),
        us(f.floor_ns),
        ceilings.provenance,
        ceilings.source
    );
    (vec![sheet, sums], tail)
}

fn to_json(title: &str, forecast: &Forecast, ceilings: &Ceilings) -> Result<Value> {
    let mut value = serde_json::to_value(forecast).map_err(|e| Error::usage(e.to_string()))?;
    value["schema"] = json!(1);
    value["title"] = json!(title);
    value["provenance"] = json!("derived");
    value["ceilings"] = json!(ceilings);
    Ok(value)
}
