//! criterion in GPU time: what an iteration costs is read from events on the device, not from the host's clock.
//!
//! Without a GPU every bench prints one line and ends well, so that `cargo bench` and `cargo test --benches` stay green
//! on any machine.
#![allow(dead_code)] // each bench uses its part

use criterion::measurement::{Measurement, ValueFormatter};
use criterion::{Criterion, SamplingMode, Throughput};
use std::time::Duration;
use workbench::error::Result;
use workbench::launch::{Device, Environment};
use workbench::op::{Op, Shape};
use workbench::roofline::ceilings::Bound;
use workbench::roofline::{Ceilings, store};
use workbench::run::measure::{Bench, Mode, Options, Replayer, Work};
use workbench::run::sweep::{Lineup, Plan, Which};
use workbench::run::{Gpu, rows};

/// Nanoseconds on the device.
pub struct GpuTime;

impl Measurement for GpuTime {
    type Intermediate = ();
    type Value = f64;
    // Never used: every routine here is `iter_custom`, which returns its own time.
    fn start(&self) {}
    fn end(&self, (): ()) -> f64 {
        0.0
    }
    fn add(&self, a: &f64, b: &f64) -> f64 {
        a + b
    }
    fn zero(&self) -> f64 {
        0.0
    }
    fn to_f64(&self, value: &f64) -> f64 {
        *value
    }
    fn formatter(&self) -> &dyn ValueFormatter {
        &Format
    }
}

struct Format;

impl ValueFormatter for Format {
    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        let (factor, unit) = match typical {
            t if t < 1e3 => (1.0, "ns"),
            t if t < 1e6 => (1e-3, "µs"),
            _ => (1e-6, "ms"),
        };
        values.iter_mut().for_each(|v| *v *= factor);
        unit
    }
    /// Bytes are least traffic, elements are floating-point operations.
    fn scale_throughputs(&self, _: f64, throughput: &Throughput, values: &mut [f64]) -> &'static str {
        let (amount, unit) = match throughput {
            Throughput::Elements(n) => (*n as f64 / 1e3, "TFLOP/s"),
            Throughput::Bytes(n) => (*n as f64, "GB/s"),
            _ => (1.0, "/ns"),
        };
        values.iter_mut().for_each(|ns| *ns = amount / *ns);
        unit
    }
    fn scale_for_machines(&self, _: &mut [f64]) -> &'static str {
        "ns"
    }
}

/// A GPU ready to be measured.
pub struct Session {
    pub gpu: Gpu,
    pub bench: Bench,
    pub ceilings: Ceilings,
    pub environment: Environment,
}

/// Opens GPU 0; says in one line why it cannot.
pub fn open(name: &str) -> Option<Session> {
    let opened = || -> Result<Session> {
        let device = Device::open(0)?;
        let gpu = Gpu::on(&device, false)?;
        let bench = Bench::new(&device, gpu.modules())?;
        let info = device.info();
        let ceilings = store::find(&store::file(), &info.uuid, &info.name)?.ok_or_else(|| {
            workbench::error::Error::usage(format!("nobody has measured the ceilings of {} yet", info.name))
        })?;
        let environment = Environment::begin(&device, bench.clocks());
        Ok(Session { gpu, bench, ceilings, environment })
    };
    opened().map_err(|e| println!("{name}: skipped: {}", e.what)).ok()
}

/// criterion as these benches use it: few samples, since one is already a mean over many launches.
pub fn criterion() -> Criterion<GpuTime> {
    Criterion::default()
        .with_measurement(GpuTime)
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .configure_from_args()
        // Its pictures want fonts, which a machine that only measures seldom has; without them criterion panics.
        .without_plots()
}

impl Session {
    /// Sampling options of the paired tables.
    pub fn options() -> Options {
        Options { timeout: Duration::from_secs(3), ..Options::new(Mode::Graph) }
    }
    /// Hands pieces of work to criterion, each as `group/name`.
    pub fn criterion(
        &mut self,
        c: &mut Criterion<GpuTime>,
        group: &str,
        works: &[(&dyn Work, Throughput)],
    ) -> Result<()> {
        let mut replayers: Vec<Replayer> = Vec::new();
        for (work, _) in works {
            replayers.push(self.bench.replayer(*work, &Self::options())?);
        }
        let mut group = c.benchmark_group(group);
        group.sampling_mode(SamplingMode::Flat);
        for ((work, throughput), replayer) in works.iter().zip(&mut replayers) {
            group.throughput(throughput.clone());
            group.bench_function(work.name(), |b| {
                b.iter_custom(|n| replayer.run(n).expect("a graph that replayed before"));
            });
        }
        group.finish();
        Ok(())
    }
    /// Prints the prediction for each shape, then the variants (and the library) in alternation, then criterion's rows.
    pub fn op(
        &mut self,
        c: &mut Criterion<GpuTime>,
        op: &'static dyn Op,
        shapes: &[Shape],
        which: &Which,
    ) -> Result<()> {
        let plan = Plan { which: which.clone(), options: Self::options(), check: true, library: true, seed: 1 };
        println!("predicted from the {} ceilings of {}", self.ceilings.provenance, self.ceilings.gpu);
        for shape in shapes {
            let floor = self.ceilings.floor(&op.cost(shape)?);
            println!("  {} {shape}: floor {:.2} µs, bound by {}", op.name(), floor.ns / 1e3, rows::bound(&floor));
        }
        println!("{}", rows::header());
        for shape in shapes {
            let mut note = |line: String| println!("note: {line}");
            let lineup = match Lineup::new(&mut self.gpu, op, shape, &self.ceilings, &plan, &mut note) {
                Ok(lineup) => lineup,
                Err(e) => {
                    println!("note: {shape} left out: {e}");
                    continue;
                }
            };
            lineup.refused().iter().for_each(|refusal| println!("note: {refusal}"));
            let measured = lineup.measure(&mut self.bench, &plan.options)?;
            for row in &measured {
                println!("{}", rows::line(row));
                row.timing.warnings.iter().for_each(|w| println!("  {w}"));
            }
            let works: Vec<(&dyn Work, Throughput)> = lineup
                .works()
                .map(|(work, predicted)| {
                    let throughput = match predicted.floor.bound() {
                        Bound::Memory => Throughput::Bytes(predicted.cost.bytes()),
                        Bound::Compute => Throughput::Elements(predicted.cost.flops),
                    };
                    (work, throughput)
                })
                .collect();
            self.criterion(c, &format!("{} {shape}", op.name()), &works)?;
            drop(works);
            lineup.free(&mut self.gpu)?;
        }
        Ok(())
    }
    /// Prints where and how this was measured.
    pub fn finish(self) {
        println!("\n{}", self.environment.finish(self.bench.clocks()).lines());
    }
}

/// Runs a bench to its end; a failure is printed and fails the process.
pub fn main(name: &str, run: impl FnOnce(&mut Session, &mut Criterion<GpuTime>) -> Result<()>) {
    let Some(mut session) = open(name) else { return };
    let mut c = criterion();
    match run(&mut session, &mut c) {
        Ok(()) => {
            session.finish();
            c.final_summary();
        }
        Err(e) => {
            eprintln!("{name}: {e}");
            std::process::exit(1);
        }
    }
}
