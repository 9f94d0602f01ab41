//! Measures what a card can do at best: memory in each direction, L2, tensor and plain arithmetic, and what launching
//! costs. Every probe's result is checked before its time counts.

use super::arrays::Arrays;
use super::fill;
use super::measure::{Bench, Launches, Mode, Options, Work};
use super::peer::{self, CublasLt};
use super::probes::{self, Config};
use super::{Executor, Gpu};
use crate::error::{Error, Result};
use crate::kernels;
use crate::launch::{Graph, Memory, Prepared, Stream};
use crate::op::{DType, Init, Launch, Shape};
use crate::roofline::Ceilings;
use crate::units::Provenance;
use serde::Serialize;
use std::time::{Duration, Instant};

/// One thing tried: its best time and how it was launched.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    pub probe: String,
    pub config: String,
    pub ns: f64,
    /// GB/s for memory, TFLOP/s for arithmetic, absent for launches.
    pub rate: Option<f64>,
    /// Configurations that it was the best of.
    pub tried: usize,
}

/// The ceilings and everything tried on the way.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub ceilings: Ceilings,
    pub trials: Vec<Trial>,
}

struct Session<'a> {
    gpu: &'a mut Gpu,
    bench: &'a mut Bench,
    trials: Vec<Trial>,
    say: &'a mut dyn FnMut(&str),
}

/// Measures everything; about half a minute. `say` hears each result as it comes.
///
/// # Errors
/// A probe that computes something wrong (exit code 1), no memory, a failed launch.
pub fn measure(gpu: &mut Gpu, bench: &mut Bench, say: &mut dyn FnMut(&str)) -> Result<Measured> {
    let info = gpu.device().info().clone();
    let mut session = Session { gpu, bench, trials: Vec::new(), say };
    let launches = session.launches()?;
    let memory = session.memory()?;
    let l2_gbps = session.l2()?;
    let fp32_tflops = session.fma()?;
    let tensor16 = session.tensor(DType::Bf16)?;
    let fp16 = session.tensor(DType::F16)?;
    let ceilings = Ceilings {
        gpu: info.name.clone(),
        uuid_tail: info.uuid_tail().into(),
        provenance: Provenance::Measured,
        source: format!("workbench roofline, {}", &jiff::Timestamp::now().to_string()[..10]),
        sms: info.chip.sms,
        l2_bytes: info.chip.l2_bytes,
        read_gbps: memory[0],
        write_gbps: memory[1],
        copy_gbps: memory[2],
        l2_gbps,
        bf16_tflops: tensor16.0,
        bf16_sustained_tflops: tensor16.1,
        fp16_tflops: fp16.0,
        fp8_tflops: None,
        fp32_tflops,
        launch_ns: launches[0],
        launch_sync_ns: launches[1],
        graph_node_ns: launches[2],
        pdl_edge_ns: launches[3],
    };
    Ok(Measured { ceilings, trials: session.trials })
}

impl Session<'_> {
    fn keep(&mut self, trial: Trial) {
        let rate = trial.rate.map_or(String::new(), |r| format!(", {r:.1}"));
        (self.say)(&format!(
            "{}: {:.2} µs{rate} ({}, best of {})",
            trial.probe,
            trial.ns / 1e3,
            trial.config,
            trial.tried
        ));
        self.trials.push(trial);
    }

    /// Median time of one launch, a short measurement.
    fn time(&mut self, launch: &Launch) -> Result<f64> {
        let work = Launches { name: launch.entry.clone(), sets: vec![self.gpu.prepare(std::slice::from_ref(launch))?] };
        let options = Options {
            min_samples: 12,
            min_time: Duration::from_millis(15),
            timeout: Duration::from_millis(500),
            ..Options::new(Mode::Graph)
        };
        Ok(self.bench.measure(&[&work], &options)?[0].ns)
    }
    /// The fastest of several launches of one probe, as GB/s of `bytes`.
    fn best(&mut self, probe: &str, bytes: u64, launches: Vec<(String, Launch)>) -> Result<f64> {
        let mut best: Option<(f64, String)> = None;
        let tried = launches.len();
        for (config, launch) in launches {
            let ns = self.time(&launch)?;
            if best.as_ref().is_none_or(|(b, _)| ns < *b) {
                best = Some((ns, config));
            }
        }
        let (ns, config) = best.ok_or_else(|| Error::usage(format!("{probe}: nothing to try")))?;
        let rate = bytes as f64 / ns;
        self.keep(Trial { probe: probe.into(), config, ns, rate: Some(rate), tried });
        Ok(rate)
    }
    fn once(&mut self, launch: Launch) -> Result<()> {
        self.gpu.launch(&[launch])?;
        self.gpu.sync()
    }
    fn word(&mut self, address: u64) -> Result<u32> {
        let mut raw = [0; 4];
        self.gpu.read(address, &mut raw)?;
        Ok(u32::from_le_bytes(raw))
    }
    /// The sum that a reading launch leaves.
    fn sum(&mut self, out: u64, launch: Launch) -> Result<u32> {
        self.gpu.fill(out, DType::U32, 1, &Init::Zero, 0)?;
        self.once(launch)?;
        self.word(out)
    }

    /// Read, write and copy ceilings over 4 GiB (less where the card has less).
    fn memory(&mut self) -> Result<[f64; 3]> {
        let (free, _) = self.gpu.device().memory()?;
        let bytes = (4u64 << 30).min(free / 3).next_multiple_of(1 << 20);
        let (x, y) = (self.gpu.alloc(bytes)?, self.gpu.alloc(bytes)?);
        let out = self.gpu.alloc(4)?;
        let rates = self.memory_on(bytes, x, y, out);
        for address in [x, y, out] {
            self.gpu.free(address)?;
        }
        rates
    }

    fn memory_on(&mut self, bytes: u64, x: u64, y: u64, out: u64) -> Result<[f64; 3]> {
        let (sms, vectors, key) = (self.gpu.chip().sms, bytes / 16, fill::key(1, "x"));
        self.gpu.fill(x, DType::U8, bytes, &Init::Bits, key)?;
        self.gpu.fill(y, DType::U8, bytes, &Init::Poison, 0)?;
        let configs = Config::all(sms, vectors);

        // The first 4 MiB against the host's own sum; then every shape against one another over everything.
        let slice = 4 << 20;
        let host = fill::bytes(&Init::Bits, DType::U8, key, 0, slice)?;
        let sum = |raw: &[u8]| {
            raw.chunks_exact(4).fold(0u32, |s, w| s.wrapping_add(u32::from_le_bytes([w[0], w[1], w[2], w[3]])))
        };
        let wrong = |what: &str| Err(Error::check(format!("the {what} probe computed something wrong")));
        if self.sum(out, configs[0].read(x, slice / 16, out))? != sum(&host) {
            return wrong("read");
        }
        let whole = self.sum(out, configs[0].read(x, vectors, out))?;
        for config in &configs {
            if self.sum(out, config.read(x, vectors, out))? != whole {
                return wrong("read");
            }
        }
        let name = |c: &Config| format!("grid {} block {} unroll {}", c.grid, c.block, c.unroll);
        let each = |make: &dyn Fn(&Config) -> Launch| configs.iter().map(|c| (name(c), make(c))).collect::<Vec<_>>();
        let mut read = self.best("read", bytes, each(&|c| c.read(x, vectors, out)))?;
        if self.gpu.chip().sm >= 90 {
            let mut launches = Vec::new();
            for blocks in [1, 2] {
                for block in [128, 256, 512] {
                    let launch = probes::read_bulk(x, bytes, out, sms * blocks, block);
                    if self.sum(out, launch.clone())? != whole {
                        return wrong("bulk read");
                    }
                    launches.push((format!("grid {} block {block}", sms * blocks), launch));
                }
            }
            read = read.max(self.best("read, bulk copies", bytes, launches)?);
        }

        self.once(configs[0].copy(x, y, vectors))?;
        if self.sum(out, configs[0].read(y, vectors, out))? != whole {
            return wrong("copy");
        }
        let mut copy = self.best("copy", 2 * bytes, each(&|c| c.copy(x, y, vectors)))?;
        copy = copy.max(self.driver_copy(bytes)?);

        let seed = 12_345;
        let write = self.best("write", bytes, each(&|c| c.write(y, vectors, seed)))?;
        for index in [0, vectors / 2, vectors - 1] {
            let mut raw = [0; 16];
            self.gpu.read(y + index * 16, &mut raw)?;
            let want: Vec<u8> = probes::pattern(index, seed).iter().flat_map(|w| w.to_le_bytes()).collect();
            if raw[..] != want[..] {
                return wrong("write");
            }
        }
        Ok([read, write, copy])
    }

    /// The driver's copy, in a stream: inside a graph a large one is far slower.
    fn driver_copy(&mut self, bytes: u64) -> Result<f64> {
        let device = self.gpu.device().clone();
        let bytes = bytes.min(device.memory()?.0 / 3) / 2;
        let (from, to) = (Memory::new(&device, bytes)?, Memory::new(&device, bytes)?);
        from.set(0, bytes, 0x3c, self.bench.stream())?;
        let times = self.bench.in_stream(12, |stream| from.copy_to(&to, stream))?;
        let ns = crate::stats::median(&times[2..]);
        let rate = 2.0 * bytes as f64 / ns;
        let config = format!("{} MiB in a stream", bytes >> 20);
        self.keep(Trial { probe: "copy by the driver".into(), config, ns, rate: Some(rate), tried: 1 });
        Ok(rate)
    }

    /// Reading arrays that L2 holds and the L1 caches together might not.
    fn l2(&mut self) -> Result<Option<f64>> {
        let chip = self.gpu.chip();
        let mib = chip.l2_bytes >> 20;
        // Half of L2 at most: on a chip whose L2 is in two halves, each keeps its own copy of what the other holds.
        let sizes: Vec<u64> = [mib / 8, mib / 4, mib * 2 / 5].into_iter().filter(|m| *m > 0).map(|m| m << 20).collect();
        let Some(&largest) = sizes.last() else { return Ok(None) };
        let (x, out) = (self.gpu.alloc(largest)?, self.gpu.alloc(4)?);
        self.gpu.fill(x, DType::U8, largest, &Init::Bits, fill::key(1, "l2"))?;
        let mut best: f64 = 0.0;
        for bytes in sizes {
            let passes = ((4u64 << 30) / bytes) as u32;
            let configs: Vec<Config> = [(512, 4), (512, 8), (1024, 4), (256, 8)]
                .into_iter()
                .map(|(block, unroll)| Config { grid: chip.sms * 2048 / block, block, unroll })
                .collect();
            let single = self.sum(out, configs[0].read(x, bytes / 16, out))?;
            for config in &configs {
                if self.sum(out, config.read_l2(x, bytes / 16, passes, out))? != single.wrapping_mul(passes) {
                    return Err(Error::check("the L2 probe computed something wrong"));
                }
            }
            let launches = configs
                .iter()
                .map(|c| (format!("block {} unroll {}", c.block, c.unroll), c.read_l2(x, bytes / 16, passes, out)))
                .collect();
            best =
                best.max(self.best(&format!("L2 read, {} MiB", bytes >> 20), bytes * u64::from(passes), launches)?);
        }
        self.gpu.free(x)?;
        self.gpu.free(out)?;
        Ok(Some(best))
    }

    /// Fused multiply-adds outside the tensor cores.
    fn fma(&mut self) -> Result<f64> {
        let (sms, rounds, a, b) = (self.gpu.chip().sms, 4096u32, 0.999f32, 0.001f32);
        let out = self.gpu.alloc(u64::from(sms) * 2048 * 4)?;
        let launch = |block: u32| probes::fma(out, sms * 2048 / block, block, rounds, a, b);
        self.once(launch(256))?;
        for lane in [0u32, 13, 31] {
            let got = f32::from_bits(self.word(out + u64::from(lane) * 4)?);
            let want = probes::fma_result(lane, rounds, a, b);
            if got != want {
                return Err(Error::check(format!(
                    "the multiply-add probe gave {got} for lane {lane}, expected {want}"
                )));
            }
        }
        let launches = [128, 256, 512].map(|block| (format!("block {block}"), launch(block))).to_vec();
        let flops = 2 * probes::FMA_CHAINS * u64::from(rounds) * u64::from(sms) * 2048;
        let rate = self.best("fp32 multiply-add", flops, launches)? / 1e3;
        if let Some(trial) = self.trials.last_mut() {
            trial.rate = Some(rate);
        }
        self.gpu.free(out)?;
        Ok(rate)
    }

    /// Tensor rate on a product of 8192³ with random data: the first replays after half a second of rest, and the end of
    /// a second of load. The library where it is there, our own variants beside it.
    fn tensor(&mut self, dtype: DType) -> Result<(f64, f64)> {
        let size = 8192u64;
        let shape = Shape::new().with("m", size).with("n", size).with("k", size).with("dtype", dtype.name());
        let op = kernels::op("matmul")?;
        let chip = self.gpu.chip();
        let arrays = Arrays::new(self.gpu, op, &shape, 1)?;
        let mut works: Vec<Box<dyn Work>> = Vec::new();
        if peer::present() {
            match CublasLt::product(self.gpu.device(), &shape, std::slice::from_ref(&arrays)) {
                Ok(work) => works.extend(work.map(|w| Box::new(w) as Box<dyn Work>)),
                Err(e) => (self.say)(&format!("cuBLASLt left out: {e}")),
            }
        }
        let mut scratch = Vec::new();
        for variant in op.variants() {
            if op.supports(variant.name, &shape, &chip).is_err() || self.gpu.can_run("matmul", variant).is_err() {
                continue;
            }
            let mut at = arrays.bindings().clone();
            if let Some(address) = super::arrays::workspace(self.gpu, op, variant.name, &shape)? {
                at.set("workspace", address);
                scratch.push(address);
            }
            let prepared = self.gpu.prepare(&op.launches(variant.name, &shape, &chip, &at)?)?;
            works.push(Box::new(Launches { name: format!("matmul/{}", variant.name), sets: vec![prepared] }));
        }
        let mut best: Option<(f64, f64, String)> = None;
        let (tried, flops) = (works.len(), (2 * size * size * size) as f64);
        for work in &works {
            arrays.reset(self.gpu)?;
            self.gpu.sync()?;
            work.enqueue(0, self.gpu.stream())?;
            self.gpu.stream().synchronize(|| work.name().into())?;
            if let Some(bad) = arrays.check(self.gpu, op, &shape)?.iter().find(|c| !c.ok()) {
                (self.say)(&format!("{} left out, it is wrong: {}", work.name(), super::rows::wrong(bad)));
                continue;
            }
            let graph = Graph::capture(self.gpu.device(), |stream| work.enqueue(0, stream))?;
            let once = graph.replay(self.bench.stream(), 3)?.into_iter().fold(f64::INFINITY, f64::min);
            // A variant several times slower than the best so far is no ceiling, and a second of it is wasted.
            if best.as_ref().is_some_and(|(b, ..)| once > 1.5 * b) {
                continue;
            }
            std::thread::sleep(Duration::from_millis(500));
            let burst = crate::stats::median(&graph.replay(self.bench.stream(), 6)?);
            let load = graph.replay(self.bench.stream(), (1e9 / once) as usize + 20)?;
            let sustained = crate::stats::median(&load[load.len() - 20..]);
            if best.as_ref().is_none_or(|(b, ..)| burst < *b) {
                best = Some((burst, sustained, work.name().into()));
            }
        }
        drop(works);
        for address in scratch {
            self.gpu.free(address)?;
        }
        arrays.free(self.gpu)?;
        let (burst, sustained, who) =
            best.ok_or_else(|| Error::usage(format!("nothing here multiplies {} matrices", dtype.name())))?;
        for (state, ns) in [("burst", burst), ("sustained", sustained)] {
            self.keep(Trial {
                probe: format!("{} product 8192³, {state}", dtype.name()),
                config: who.clone(),
                ns,
                rate: Some(flops / ns / 1e3),
                tried,
            });
        }
        Ok((flops / burst / 1e3, flops / sustained / 1e3))
    }

    /// Launch in a stream, launch and wait, edge of a graph, programmatic edge of a graph; ns, for a grid of all SMs.
    fn launches(&mut self) -> Result<[f64; 4]> {
        let device = self.gpu.device().clone();
        let stream = Stream::new(&device)?;
        let mut costs = [0.0; 4];
        for (grid, block) in [(1, 32), (self.gpu.chip().sms, 256)] {
            let config = format!("grid {grid} block {block}");
            let null = &self.gpu.prepare(&[probes::null(grid, block, false)])?[0];
            let pdl = &self.gpu.prepare(&[probes::null(grid, block, true)])?[0];
            let chain = |launch: &Prepared| -> Result<f64> {
                let nodes = 2_000;
                let graph = Graph::capture(&device, |s| (0..nodes).try_for_each(|_| launch.launch(s)))?;
                graph.replay(&stream, 3)?;
                Ok(crate::stats::median(&graph.replay(&stream, 32)?) / f64::from(nodes))
            };
            let (back, sync) = (stream_cost(null, &stream, 20_000, 0)?, stream_cost(null, &stream, 2_000, 1)?);
            costs = [back, sync, chain(null)?, chain(pdl)?];
            let probes = ["stream launch", "stream launch and wait", "graph edge", "programmatic graph edge"];
            for (probe, ns) in probes.into_iter().zip(costs) {
                self.keep(Trial { probe: probe.into(), config: config.clone(), ns, rate: None, tried: 1 });
            }
        }
        Ok(costs)
    }
}

/// Host time of a launch, back to back or (`wait` 1) with a wait after each.
fn stream_cost(launch: &Prepared, stream: &Stream, count: u32, wait: u32) -> Result<f64> {
    let waiting = || stream.synchronize(|| "waiting for an empty kernel".into());
    for _ in 0..200 {
        launch.launch(stream)?;
    }
    waiting()?;
    let begun = Instant::now();
    for _ in 0..count {
        launch.launch(stream)?;
        if wait > 0 {
            waiting()?;
        }
    }
    waiting()?;
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(count))
}
