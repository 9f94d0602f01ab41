//! How fast a trace is read and accounted, and in how much memory. Needs no GPU.
//!
//! First once over a large file on disk (`WORKBENCH_BENCH_MB`, 256 by default): wall and processor time, peak memory
//! against the file's size, the ledger of 10 million operations; then criterion's distributions over smaller inputs.
//! With `WORKBENCH_HTA=PYTHON` that Python, which must have Holistic Trace Analysis, reads the same file too.

use criterion::{BatchSize, Criterion, Throughput};
use flate2::{Compression, write::GzEncoder};
use std::hint::black_box;
use std::io::{BufWriter, Cursor, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use workbench::profile::import;
use workbench::profile::ledger::{Accountant, Detail, Options, account};
use workbench::profile::{defects, synth};

/// Layers of the made-up model; a step has five kernels for each.
const LAYERS: u64 = 32;
/// Bytes of JSON that one step takes, about.
const STEP_BYTES: u64 = 229_000;

fn main() {
    let mut c = Criterion::default().sample_size(10).configure_from_args();
    // As criterion does: without --bench this is a test that everything runs, not a measurement.
    let measuring =
        std::env::args().any(|a| a == "--bench") && !std::env::args().any(|a| a == "--list" || a == "--test");
    if measuring {
        large();
    }
    kineto(&mut c);
    ledger(&mut c);
    c.final_summary();
}

/// Processor time of this thread, seconds: what counts where the machine is shared.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Peak memory since [`forget_peak`], bytes.
fn peak() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn forget_peak() -> u64 {
    // Writing 5 resets the peak to what is resident now; where that is not allowed the figure is an upper bound.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    peak()
}

fn large() {
    let megabytes = std::env::var("WORKBENCH_BENCH_MB").ok().and_then(|v| v.parse::<u64>().ok()).unwrap_or(256);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("large.json");
    let mut out = BufWriter::new(std::fs::File::create(&file).expect("a file"));
    synth::kineto((megabytes * 1_000_000 / STEP_BYTES).max(1), LAYERS, 1, &mut out).expect("room on the disk");
    out.flush().expect("room on the disk");
    drop(out);
    let size = std::fs::metadata(&file).expect("its size").len() as f64;
    let (before, wall, used) = (forget_peak(), Instant::now(), cpu());
    let trace = import::open(&file).expect("a good trace");
    let (wall, used, memory) = (wall.elapsed().as_secs_f64(), cpu() - used, (peak() - before) as f64);
    println!(
        "kineto, {:.0} MB on disk: {:.0} MB/s of processor time, {:.0} MB/s of wall time, peak {:.2} of the file's size, \
         {} operations",
        size / 1e6,
        size / 1e6 / used.max(1e-9),
        size / 1e6 / wall,
        memory / size,
        trace.operations.len()
    );
    drop(trace);
    hta(&file);

    let trace = synth::trace(62_500, LAYERS, 1);
    let options = Options { detail: Detail::Lines, ..Options::default() };
    let (wall, used) = (Instant::now(), cpu());
    let accountant = Accountant::new(&trace, 0, &options);
    let (t0, t1) = accountant.span().expect("operations");
    let ledger = accountant.window(t0, t1).expect("a closed ledger");
    println!(
        "ledger, {} operations: {:.2} s of processor time, {:.2} s of wall time, residual {} ns",
        ledger.operations,
        cpu() - used,
        wall.elapsed().as_secs_f64(),
        ledger.residual_ns
    );
}

fn hta(file: &Path) {
    let Ok(python) = std::env::var("WORKBENCH_HTA") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/hta_import.py");
    match Command::new(python).arg(script).arg(file).output() {
        Ok(o) if o.status.success() => print!("{}", String::from_utf8_lossy(&o.stdout)),
        Ok(o) => println!("hta: failed\n{}", String::from_utf8_lossy(&o.stderr)),
        Err(e) => println!("hta: not run ({e})"),
    }
}

fn kineto(c: &mut Criterion) {
    let mut text = Vec::new();
    synth::kineto(60, LAYERS, 1, &mut text).expect("memory");
    let mut group = c.benchmark_group("import");
    group.throughput(Throughput::Bytes(text.len() as u64));
    let read = |bytes: Vec<u8>| import::kineto::read(Box::new(Cursor::new(bytes))).expect("a good trace");
    group.bench_function("kineto", |b| b.iter_batched(|| text.clone(), |t| black_box(read(t)), BatchSize::LargeInput));
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(&text).expect("memory");
    let gz = gz.finish().expect("memory");
    let inflate = |bytes: Vec<u8>| {
        let reader = flate2::read::MultiGzDecoder::new(Cursor::new(bytes));
        import::kineto::read(Box::new(reader)).expect("a good trace")
    };
    group.bench_function("kineto_gz", |b| {
        b.iter_batched(|| gz.clone(), |t| black_box(inflate(t)), BatchSize::LargeInput)
    });
    group.finish();
}

fn ledger(c: &mut Criterion) {
    let trace = synth::trace(625, LAYERS, 1);
    let end = trace.operations.last().map_or(0, |o| o.end);
    let mut group = c.benchmark_group("ledger");
    group.throughput(Throughput::Elements(trace.operations.len() as u64));
    for (name, detail) in [("lines", Detail::Lines), ("segments", Detail::Segments)] {
        let options = Options { detail, ..Options::default() };
        group.bench_function(name, |b| b.iter(|| black_box(account(&trace, 0, 0, end, &options).expect("it closes"))));
    }
    group.bench_function("audit", |b| b.iter(|| black_box(defects::audit(&trace))));
    group.finish();
}
