//! What a launch costs the host through each backend, and what follows on the device. The first table anyone should see
//! before blaming a kernel.

mod gpu;

use criterion::Criterion;
use std::time::{Duration, Instant};
use workbench::error::Result;
use workbench::launch::backend::{self, Backend, Kernel};
use workbench::stats;

/// Launches of one submission: fewer than the driver queues before it makes the host wait (1024).
const LAUNCHES: u32 = 500;

/// Median host time of a submission and of submission plus wait, ns a launch, over 40 rounds.
fn host(backend: &mut dyn Backend) -> Result<(f64, f64)> {
    let (mut submits, mut totals) = (Vec::new(), Vec::new());
    for round in 0..44 {
        let begun = Instant::now();
        backend.submit(LAUNCHES)?;
        let submitted = begun.elapsed();
        backend.wait()?;
        if round >= 4 {
            submits.push(submitted.as_nanos() as f64 / f64::from(LAUNCHES));
            totals.push(begun.elapsed().as_nanos() as f64 / f64::from(LAUNCHES));
        }
    }
    Ok((stats::median(&submits), stats::median(&totals)))
}

fn main() {
    let Some(session) = gpu::open("launch_overhead") else { return };
    let c = &session.ceilings;
    println!(
        "predicted ({}): stream launch {:.2} µs, graph edge {:.2} µs",
        c.provenance,
        c.launch_ns / 1e3,
        c.graph_node_ns / 1e3
    );
    println!("{:<14} {:<16} {:>16} {:>22}", "backend", "kernel", "host ns/launch", "with the wait, ns");
    let (device, modules) = (session.gpu.device().clone(), session.gpu.modules().clone());
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args()
        .without_plots();
    let mut run = || -> Result<()> {
        for (kernel, label) in [(Kernel::Empty, "no arguments"), (Kernel::EightArguments, "eight arguments")] {
            let mut backends = backend::all(&device, &modules, kernel, &mut |line| println!("note: {line}"));
            for backend in &mut backends {
                let (submit, total) = host(backend.as_mut())?;
                println!("{:<14} {label:<16} {submit:>16.0} {total:>22.0}", backend.name());
            }
            let mut group = criterion.benchmark_group(format!("{LAUNCHES} launches, {label}"));
            for backend in &mut backends {
                let name = backend.name();
                group.bench_function(name, |b| {
                    b.iter(|| backend.submit(LAUNCHES).and_then(|()| backend.wait()).expect("launched before"));
                });
            }
            group.finish();
            drop(backends);
            // A backend's own context handling may have changed which is current.
            device.bind()?;
        }
        Ok(())
    };
    if let Err(e) = run() {
        eprintln!("launch_overhead: {e}");
        std::process::exit(1);
    }
    session.finish();
    criterion.final_summary();
}
