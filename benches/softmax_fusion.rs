//! Scale, mask and softmax in three passes, in two and in one: the same arithmetic, and each pass less is a read and a write
//! of the whole array less.

mod gpu;

use criterion::Throughput;
use workbench::error::Result;
use workbench::kernels;
use workbench::op::{DType, Launch, Op, Shape, Unit};
use workbench::run::arrays::{Arrays, workspace};
use workbench::run::measure::{Launches, Work, ratio};
use workbench::run::{Executor, Gpu, unfused};
use workbench::units::Bytes;

const NAMES: [&str; 3] = ["three passes", "two passes", "one pass"];

/// Attention scores of 16 sequences, 32 heads, 2048 queries and keys, with one additive mask; fewer rows where the card
/// holds fewer.
fn shape(free: u64) -> Shape {
    let (cols, full) = (2048u64, 16 * 32 * 2048u64);
    let fits = free / 4 / (cols * 2) / cols * cols;
    Shape::new()
        .with("rows", full.min(fits.max(cols)))
        .with("cols", cols)
        .with("scale", "0.08838834764831845")
        .with("mask", "additive")
        .with("mask_rows", cols)
        .with("dtype", "bf16")
}

fn run(session: &mut gpu::Session, c: &mut criterion::Criterion<gpu::GpuTime>) -> Result<()> {
    let op: &'static dyn Op = kernels::op("softmax")?;
    let (shape, chip) = (shape(session.gpu.device().memory()?.0), session.gpu.chip());
    let fused_cost = op.cost(&shape)?;
    let (rows, cols) = (shape.int("rows")?, shape.int("cols")?);
    let array = rows * cols * DType::Bf16.size();
    let mask = cols * cols * DType::Bf16.size();
    // Three passes: scale (read, write), mask (read twice, write), softmax (read, write). Two: scale and mask in one.
    let passes_cost = |passes: u64| {
        workbench::op::Cost::new(Unit::Fp32, fused_cost.flops)
            .read("in of the passes", passes * array + mask)
            .write("out of the passes", passes * array)
    };
    let steps: Vec<(&str, workbench::op::Cost)> =
        vec![(NAMES[0], passes_cost(3)), (NAMES[1], passes_cost(2)), (NAMES[2], fused_cost)];
    let floors: Vec<_> = steps.iter().map(|(_, cost)| session.ceilings.floor(cost)).collect();
    println!(
        "softmax {shape}, predicted from the {} ceilings of {}:",
        session.ceilings.provenance, session.ceilings.gpu
    );
    for ((name, cost), floor) in steps.iter().zip(&floors) {
        println!(
            "  {name:<24} {:>10} at the ceiling takes {:>8.1} µs, {:.2} times one pass",
            Bytes(cost.bytes()),
            floor.ns / 1e3,
            floor.ns / floors[2].ns
        );
    }

    let arrays = Arrays::new(&mut session.gpu, op, &shape, 1)?;
    let scratch = session.gpu.alloc(array)?;
    let plain = Shape::new().with("rows", rows).with("cols", cols).with("dtype", "bf16");
    let mut workspaces = Vec::new();
    let mut launches = |shape: &Shape, x: Option<u64>, gpu: &mut Gpu| -> Result<Vec<Launch>> {
        let variant = op.choose(shape, &chip);
        let mut at = arrays.bindings().clone();
        if let Some(x) = x {
            at.set("x", x);
        }
        if let Some(address) = workspace(gpu, op, variant, shape)? {
            at.set("workspace", address);
            workspaces.push(address);
        }
        Ok(op.launches(variant, shape, &chip, &at)?)
    };
    let fused = launches(&shape, None, &mut session.gpu)?;
    let last = launches(&plain, Some(scratch), &mut session.gpu)?;
    let at = arrays.bindings();
    let scale = shape.float_or("scale", 1.0)? as f32;
    let (x, mask_at, len, period) = (at.get("x")?, at.get("mask")?, rows * cols, cols * cols);
    let mut three = vec![
        unfused::scale(x, scratch, len, scale, DType::Bf16),
        unfused::add_mask(scratch, mask_at, scratch, len, period, DType::Bf16),
    ];
    three.extend(last.iter().cloned());
    let mut two = vec![unfused::scale_add_mask(x, mask_at, scratch, len, period, scale, DType::Bf16)];
    two.extend(last);
    let works = NAMES
        .into_iter()
        .zip([three, two, fused])
        .map(|(name, launches)| Ok(Launches { name: name.into(), sets: vec![session.gpu.prepare(&launches)?] }))
        .collect::<Result<Vec<_>>>()?;

    for work in &works {
        arrays.reset(&mut session.gpu)?;
        session.gpu.sync()?;
        work.enqueue(0, session.gpu.stream())?;
        session.gpu.stream().synchronize(|| work.name().into())?;
        for check in arrays.check(&mut session.gpu, op, &shape)? {
            // Rounding the scores to bf16 on the way costs the unfused forms some accuracy; nothing else may.
            let allowed = if work.name() == NAMES[2] { check.tolerance } else { 4.0 * check.tolerance };
            println!("  {:<22} error {:.2e} (allowed {allowed:.1e})", work.name(), check.error);
            if check.broken.is_some() || check.error > allowed {
                return Err(workbench::error::Error::check(workbench::run::rows::wrong(&check)).at(work.name()));
            }
        }
    }
    let works: Vec<&dyn Work> = works.iter().map(|w| w as &dyn Work).collect();
    let timings = session.bench.measure(&works, &gpu::Session::options())?;
    println!(
        "\n{:<24} {:>10} {:>12} {:>10} {:>10} {:>10} {:>8}",
        "", "moved", "predicted µs", "median µs", "p90", "GB/s", "share"
    );
    for (timing, ((_, cost), floor)) in timings.iter().zip(steps.iter().zip(&floors)) {
        println!(
            "{:<24} {:>10} {:>12.1} {:>10.1} {:>10.1} {:>10.0} {:>7.1}%",
            timing.name,
            Bytes(cost.bytes()),
            floor.ns / 1e3,
            timing.ns / 1e3,
            timing.p90 / 1e3,
            cost.bytes() as f64 / timing.ns,
            100.0 * floor.ns / timing.ns
        );
        timing.warnings.iter().for_each(|w| println!("  {w}"));
    }
    for i in [0, 1] {
        let (times, low, high) = ratio(&timings[i], &timings[2]);
        println!(
            "{} is {times:.3} times as fast as {} (95 %: {low:.3} to {high:.3}); predicted {:.2}",
            NAMES[2],
            NAMES[i],
            floors[i].ns / floors[2].ns
        );
    }
    println!();
    let pairs: Vec<(&dyn Work, Throughput)> =
        works.iter().zip(&steps).map(|(work, (_, cost))| (*work, Throughput::Bytes(cost.bytes()))).collect();
    session.criterion(c, "softmax_fusion", &pairs)?;
    workspaces.into_iter().chain([scratch]).try_for_each(|address| session.gpu.free(address))?;
    arrays.free(&mut session.gpu)
}

fn main() {
    gpu::main("softmax_fusion", run);
}
