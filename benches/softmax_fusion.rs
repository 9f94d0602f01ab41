//! Scale, mask and softmax as three passes against one: the same arithmetic, a third of the traffic.

mod gpu;

use criterion::Throughput;
use workbench::error::Result;
use workbench::kernels;
use workbench::op::{DType, Launch, Op, Shape, Unit};
use workbench::run::arrays::{Arrays, workspace};
use workbench::run::measure::{Launches, Work, ratio};
use workbench::run::{Executor, Gpu, unfused};
use workbench::units::Bytes;

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
    // Three passes: scale (read, write), mask (read twice, write), softmax (read, write).
    let unfused_cost = workbench::op::Cost::new(Unit::Fp32, fused_cost.flops)
        .read("in of three passes", 3 * array + mask)
        .write("out of three passes", 3 * array);
    let (fused_floor, unfused_floor) = (session.ceilings.floor(&fused_cost), session.ceilings.floor(&unfused_cost));
    println!(
        "softmax {shape}, predicted from the {} ceilings of {}:",
        session.ceilings.provenance, session.ceilings.gpu
    );
    for (name, cost, floor) in [("fused", &fused_cost, fused_floor), ("unfused", &unfused_cost, unfused_floor)] {
        println!("  {name:<8} {:>10} at the ceiling takes {:>8.1} µs", Bytes(cost.bytes()), floor.ns / 1e3);
    }
    println!("  so fusing should be {:.2} times as fast", unfused_floor.ns / fused_floor.ns);

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
    let mut passes: Vec<Launch> = vec![
        unfused::scale(at.get("x")?, scratch, rows * cols, scale, DType::Bf16),
        unfused::add_mask(scratch, at.get("mask")?, scratch, rows * cols, cols * cols, DType::Bf16),
    ];
    passes.extend(last);
    let works = [("unfused, three passes", passes), ("fused", fused)]
        .into_iter()
        .map(|(name, launches)| Ok(Launches { name: name.into(), sets: vec![session.gpu.prepare(&launches)?] }))
        .collect::<Result<Vec<_>>>()?;

    for work in &works {
        arrays.reset(&mut session.gpu)?;
        session.gpu.sync()?;
        work.enqueue(0, session.gpu.stream())?;
        session.gpu.stream().synchronize(|| work.name().into())?;
        for check in arrays.check(&mut session.gpu, op, &shape)? {
            // Rounding the scores to bf16 twice on the way costs the unfused form some accuracy; nothing else may.
            let allowed = if work.name() == "fused" { check.tolerance } else { 4.0 * check.tolerance };
            println!("  {:<22} error {:.2e} (allowed {allowed:.1e})", work.name(), check.error);
            if check.broken.is_some() || check.error > allowed {
                return Err(workbench::error::Error::check(workbench::run::rows::wrong(&check)).at(work.name()));
            }
        }
    }
    let timings = session.bench.measure(&[&works[0], &works[1]], &gpu::Session::options())?;
    println!("\n{:<24} {:>10} {:>10} {:>10} {:>10} {:>8}", "", "median µs", "p90", "moved", "GB/s", "share");
    for (timing, (cost, floor)) in timings.iter().zip([(&unfused_cost, unfused_floor), (&fused_cost, fused_floor)]) {
        println!(
            "{:<24} {:>10.1} {:>10.1} {:>10} {:>10.0} {:>7.1}%",
            timing.name,
            timing.ns / 1e3,
            timing.p90 / 1e3,
            Bytes(cost.bytes()),
            cost.bytes() as f64 / timing.ns,
            100.0 * floor.ns / timing.ns
        );
        timing.warnings.iter().for_each(|w| println!("  {w}"));
    }
    let (times, low, high) = ratio(&timings[0], &timings[1]);
    println!(
        "fused is {times:.3} times as fast (95 %: {low:.3} to {high:.3}); predicted {:.2}\n",
        unfused_floor.ns / fused_floor.ns
    );
    let pairs: Vec<(&dyn Work, Throughput)> =
        vec![(&works[0], Throughput::Bytes(unfused_cost.bytes())), (&works[1], Throughput::Bytes(fused_cost.bytes()))];
    session.criterion(c, "softmax_fusion", &pairs)?;
    workspaces.into_iter().chain([scratch]).try_for_each(|address| session.gpu.free(address))?;
    arrays.free(&mut session.gpu)
}

fn main() {
    gpu::main("softmax_fusion", run);
}
