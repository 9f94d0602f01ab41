//! `workbench roofline`: the ceilings of a card, measured, cited or recorded, and where kernels land under them.

use super::{OutputArgs, write_output};
use crate::error::{Error, Result};
use crate::kernels;
use crate::launch::{Device, Environment};
use crate::op::Shape;
use crate::roofline::machine::{self, datasheet};
use crate::roofline::plot::{self, Point};
use crate::roofline::{Ceilings, store};
use crate::run::ceilings::{self, Trial};
use crate::run::measure::{Bench, Mode, Options};
use crate::run::sweep::{self, Plan, Row, Which};
use crate::run::{Gpu, rows};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// GPU to measure
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: u32,
    /// Draw a card from its datasheet instead of measuring one
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    machine: Option<String>,
    /// Draw a recorded run (the JSON that this command wrote) instead of measuring
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Measure the ceilings only, without the sweep of kernels
    #[arg(long)]
    ceilings_only: bool,
    /// Write the picture to FILE.svg or FILE.png; repeat for both
    #[arg(long, value_name = "FILE")]
    plot: Vec<PathBuf>,
    /// Do not keep the ceilings for later commands
    #[arg(long)]
    no_save: bool,
    /// Lab note that holds the prediction of this run; recorded with it
    #[arg(long, value_name = "ID")]
    note: Option<String>,
}

/// Weight shapes (n, k) of one Llama-3-8B layer: query, key and value; output; gate and up; down.
const LLAMA: [(u64, u64); 4] = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)];
const ROWS: [u64; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const SQUARES: [u64; 6] = [512, 1024, 2048, 4096, 8192, 16384];

/// What is drawn and written, wherever it came from.
struct Content {
    ceilings: Ceilings,
    points: Vec<Point>,
    trials: Vec<Trial>,
    environment: Option<Environment>,
    rows: Vec<Value>,
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    for file in &args.plot {
        if !matches!(file.extension().and_then(|e| e.to_str()), Some("svg" | "png")) {
            return Err(Error::usage(format!("--plot {}: its name must end in .svg or .png", file.display())));
        }
    }
    let content = match (&args.machine, &args.from) {
        (Some(name), _) => cited(name)?,
        (_, Some(file)) => recorded(file)?,
        _ => measured(&args)?,
    };
    for file in &args.plot {
        plot::draw(file, &content.ceilings, &content.points)?;
        eprintln!("drew {}", file.display());
    }
    if let Some(file) = &out.json {
        write_output(file, &format!("{:#}\n", to_json(&content, args.note.as_deref())))?;
    }
    if let Some(file) = &out.csv {
        write_output(file, &csv(&content)?)?;
    }
    if let Some(file) = &out.md {
        write_output(file, &format!("```\n{}```\n", table(&content)))?;
    }
    if !out.takes_stdout() {
        write_output("-".as_ref(), &table(&content))?;
    }
    Ok(())
}

fn cited(name: &str) -> Result<Content> {
    let sheet = machine::find(name)?;
    Ok(Content {
        ceilings: sheet.ceilings(),
        points: Vec::new(),
        trials: Vec::new(),
        environment: None,
        rows: Vec::new(),
    })
}

fn recorded(file: &Path) -> Result<Content> {
    let broken = |e: &dyn std::fmt::Display| {
        Error::usage(format!("{} is no recording of `workbench roofline`: {e}", file.display()))
            .try_next("workbench roofline --gpu 0 --json FILE")
    };
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::usage(format!("cannot read {}: {e}", file.display())))?;
    let value: Value = serde_json::from_str(&text).map_err(|e| broken(&e))?;
    let mut ceilings: Ceilings = serde_json::from_value(value["ceilings"].clone()).map_err(|e| broken(&e))?;
    if ceilings.provenance == crate::units::Provenance::Measured {
        ceilings.provenance = crate::units::Provenance::Recorded;
    }
    Ok(Content {
        ceilings,
        points: serde_json::from_value(value["points"].clone()).map_err(|e| broken(&e))?,
        trials: Vec::new(),
        environment: serde_json::from_value(value["environment"].clone()).ok(),
        rows: Vec::new(),
    })
}

fn measured(args: &Args) -> Result<Content> {
    let device = Device::open(args.gpu).map_err(|e| match e.next {
        Some(_) => e.try_next("`workbench roofline --machine h200`, or `--from` a recorded run in reports/"),
        None => e,
    })?;
    let mut gpu = Gpu::on(&device, false)?;
    let mut bench = Bench::new(&device, gpu.modules())?;
    let environment = Environment::begin(&device, bench.clocks());
    let found = ceilings::measure(&mut gpu, &mut bench, &mut |line| eprintln!("{line}"))?;
    if !args.no_save {
        let file = store::file();
        store::save(&file, &device.info().uuid, &found.ceilings)?;
        eprintln!("kept the ceilings in {}", file.display());
    }
    let measured = if args.ceilings_only { Vec::new() } else { kernels_under(&mut gpu, &mut bench, &found.ceilings)? };
    Ok(Content {
        points: measured.iter().map(|(group, row)| point(group, row)).collect(),
        rows: measured.iter().map(|(_, row)| rows::json(row)).collect(),
        ceilings: found.ceilings,
        trials: found.trials,
        environment: Some(environment.finish(bench.clocks())),
    })
}

/// Matrix products over squares and over rows for each of Llama-3-8B's weight shapes, and each other op on its own
/// default shapes. An op that fails is told and left out: the ceilings are already kept.
fn kernels_under(gpu: &mut Gpu, bench: &mut Bench, ceilings: &Ceilings) -> Result<Vec<(String, Row)>> {
    let plan = Plan {
        which: Which::Chosen,
        options: Options {
            min_samples: 12,
            min_time: Duration::from_millis(25),
            timeout: Duration::from_secs(2),
            ..Options::new(Mode::Graph)
        },
        check: true,
        library: true,
        seed: 1,
    };
    let product = |m: u64, n: u64, k: u64| Shape::new().with("m", m).with("n", n).with("k", k).with("dtype", "bf16");
    let mut wanted: Vec<(String, &str, Shape)> = Vec::new();
    wanted.extend(SQUARES.map(|s| ("square products".to_string(), "matmul", product(s, s, s))));
    for (n, k) in LLAMA {
        wanted.extend(ROWS.map(|m| {
            let group = if m <= 64 { "decode products (M ≤ 64)" } else { "prefill products (M > 64)" };
            (group.to_string(), "matmul", product(m, n, k))
        }));
    }
    for op in kernels::OPS.iter().filter(|op| op.name() != "matmul") {
        wanted.extend(op.bench_shapes().into_iter().take(4).map(|s| (op.name().to_string(), op.name(), s)));
    }
    let mut found = Vec::new();
    eprintln!("{}", rows::header());
    for (group, op, shape) in wanted {
        let measured = kernels::op(op).map_err(Error::from).and_then(|op| {
            sweep::shape(gpu, bench, op, &shape, ceilings, &plan, &mut |line| eprintln!("note: {line}"))
        });
        match measured {
            Ok(measured) => {
                measured.refused.iter().for_each(|refusal| eprintln!("note: {refusal}"));
                found.extend(measured.rows.into_iter().map(|row| {
                    eprintln!("{}", rows::line(&row));
                    (group.clone(), row)
                }));
            }
            Err(e) => eprintln!("note: {op} {shape} left out: {e}"),
        }
    }
    Ok(found)
}

fn point(group: &str, row: &Row) -> Point {
    let cost = &row.predicted.cost;
    Point {
        op: row.op.into(),
        variant: row.variant.clone(),
        shape: row.shape.to_string(),
        group: group.into(),
        flop_per_byte: cost.flops as f64 / cost.bytes().max(1) as f64,
        tflops: cost.flops as f64 / row.timing.ns / 1e3,
        gbps: cost.bytes() as f64 / row.timing.ns,
        ns: row.timing.ns.round() as i64,
        share_of_ceiling: row.share(),
        peer: row.peer,
    }
}

fn table(content: &Content) -> String {
    let c = &content.ceilings;
    let sheet = datasheet(&c.gpu);
    let mut text = format!("{} ({}: {})\n", c.gpu, c.provenance, c.source);
    let mut line = |name: &str, value: Option<f64>, unit: &str, printed: Option<f64>| {
        let Some(value) = value else { return };
        let share = printed.map_or(String::new(), |p| format!("{:>6.1} % of {p:.0}", 100.0 * value / p));
        text += &format!("{name:<30} {value:>10.1} {unit:<10} {share}\n");
    };
    let memory = sheet.map(|s| s.memory_gbps);
    line("read", Some(c.read_gbps), "GB/s", memory);
    line("write", Some(c.write_gbps), "GB/s", memory);
    line("copy (both directions)", Some(c.copy_gbps), "GB/s", memory);
    line("L2 read", c.l2_gbps, "GB/s", None);
    line("bf16 tensor, burst", Some(c.bf16_tflops), "TFLOP/s", sheet.map(|s| s.bf16_tflops));
    line("bf16 tensor, sustained", Some(c.bf16_sustained_tflops), "TFLOP/s", sheet.map(|s| s.bf16_tflops));
    line("fp16 tensor, burst", Some(c.fp16_tflops), "TFLOP/s", sheet.map(|s| s.bf16_tflops));
    line("fp8 tensor", c.fp8_tflops, "TFLOP/s", sheet.and_then(|s| s.fp8_tflops));
    line("fp32", Some(c.fp32_tflops), "TFLOP/s", sheet.map(|s| s.fp32_tflops));
    line("stream launch", Some(c.launch_ns), "ns", None);
    line("stream launch and wait", Some(c.launch_sync_ns), "ns", None);
    line("stream edge", c.stream_edge_ns, "ns", None);
    line("graph edge", Some(c.graph_node_ns), "ns", None);
    line("programmatic graph edge", Some(c.pdl_edge_ns), "ns", None);
    line("ridge", Some(c.ridge()), "FLOP/byte", None);
    if !content.points.is_empty() {
        text += &format!(
            "\n{:<26} {:<14} {:<46} {:>9} {:>9} {:>9} {:>10} {:>6}\n",
            "group", "variant", "shape", "FLOP/byte", "GB/s", "TFLOP/s", "µs", "share"
        );
        for p in &content.points {
            text += &format!(
                "{:<26} {:<14} {:<46} {:>9.2} {:>9.0} {:>9.2} {:>10.2} {:>5.1}%\n",
                p.group,
                p.variant,
                p.shape,
                p.flop_per_byte,
                p.gbps,
                p.tflops,
                p.ns as f64 / 1e3,
                100.0 * p.share_of_ceiling
            );
        }
    }
    if let Some(environment) = &content.environment {
        text += &format!("\n{}\n", environment.lines());
    }
    text
}

/// One row for each ceiling, then one for each point.
fn csv(content: &Content) -> Result<String> {
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_string);
    let value = serde_json::to_value(&content.ceilings).map_err(|e| Error::usage(format!("cannot write CSV: {e}")))?;
    let ceilings = value.as_object().into_iter().flatten().filter(|(_, v)| v.is_number());
    let mut rows: Vec<Vec<String>> = ceilings.map(|(k, v)| vec!["ceiling".into(), k.clone(), text(v)]).collect();
    rows.extend(content.points.iter().map(|p| {
        let numbers = [p.flop_per_byte, p.gbps, p.tflops, p.share_of_ceiling].map(|v| v.to_string());
        let words = ["point", &p.group, ""].into_iter().chain([p.op.as_str(), &p.variant]).map(String::from);
        let mut row: Vec<String> = words.chain([p.shape.clone(), p.ns.to_string()]).collect();
        row.extend(numbers);
        row
    }));
    let head =
        ["kind", "name", "value", "op", "variant", "shape", "ns", "flop_per_byte", "gbps", "tflops", "share_of_ceiling"];
    rows.iter_mut().for_each(|r| r.resize(head.len(), String::new()));
    super::table::csv(&head, rows.iter())
}

fn to_json(content: &Content, note: Option<&str>) -> Value {
    json!({
        "schema": 1,
        "provenance": content.ceilings.provenance,
        "environment": content.environment,
        "note": note,
        "ceilings": content.ceilings,
        "ridge_flop_per_byte": content.ceilings.ridge(),
        "trials": content.trials,
        "points": content.points,
        "rows": content.rows,
    })
}
