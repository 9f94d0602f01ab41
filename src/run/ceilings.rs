//! Measures what a card can do at best: memory in each direction, L2, tensor and plain arithmetic, and what launching
//! costs. Every probe's result is checked before its time counts.

mod cache;
mod launch;
mod tensor;

use super::measure::{Bench, Launches, Mode, Options};
use super::probes::{self, Config};
use super::{Executor, Gpu, fill};
use crate::error::{Error, Result};
use crate::launch::Memory;
use crate::op::{DType, Init, Launch};
use crate::roofline::Ceilings;
use crate::units::Provenance;
use serde::Serialize;
use std::time::Duration;

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
        stream_edge_ns: Some(launches[4]),
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
            if self.sum(out, config.read(x, vectors, out))? != whole
                || self.sum(out, config.read_once(x, vectors, out))? != whole
            {
                return wrong("read");
            }
        }
        let name = |c: &Config| format!("grid {} block {} unroll {}", c.grid, c.block, c.unroll);
        let each = |make: &dyn Fn(&Config) -> Launch| configs.iter().map(|c| (name(c), make(c))).collect::<Vec<_>>();
        let mut read = self.best("read", bytes, each(&|c| c.read(x, vectors, out)))?;
        read = read.max(self.best("read, no hint to L2", bytes, each(&|c| c.read_once(x, vectors, out)))?);
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
        copy = copy.max(self.best("copy, no hint to L2", 2 * bytes, each(&|c| c.copy_once(x, y, vectors)))?);
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
}
