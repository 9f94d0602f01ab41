//! Times pieces of device work so that the number can be trusted, or says why it cannot.
//!
//! Three modes. In a graph: N launches over rotating input sets captured once, time per launch = replay / N; what a
//! kernel costs inside a decode step, and the default. Cold: one launch between two events, L2 flushed before. Hot: a
//! graph over one input set. Several pieces of work are timed in alternation (A B A B …), so that clocks and power
//! drift alike for all and their ratio means something.

pub use super::replay::Replayer;
use super::replay::Spin;
pub use super::timing::{Timing, ratio};
use super::timing::{relative_deviation, settled};
use super::warning::Warning;
use crate::error::Result;
use crate::launch::clocks::Reading;
use crate::launch::l2::Flush;
use crate::launch::{Clocks, Device, Graph, Modules, Prepared, Stream, Timer};
use std::time::{Duration, Instant};

/// How a piece of work is run for its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Many launches over rotating inputs in one graph
    Graph,
    /// One launch at a time, L2 flushed before each
    Cold,
    /// Many launches over the same inputs in one graph
    Hot,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Graph => "graph",
            Self::Cold => "cold",
            Self::Hot => "hot",
        }
    }
}

/// Device work that can be enqueued again and again, over one or more equal sets of inputs.
pub trait Work {
    fn name(&self) -> &str;
    /// Input sets to rotate over.
    fn sets(&self) -> usize;
    /// Enqueues the work once on a set. Must be capturable: no synchronisation, no allocation.
    fn enqueue(&self, set: usize, stream: &Stream) -> Result<()>;
}

/// Launches prepared for each input set.
#[derive(Debug)]
pub struct Launches {
    pub name: String,
    pub sets: Vec<Vec<Prepared>>,
}

impl Work for Launches {
    fn name(&self) -> &str {
        &self.name
    }
    fn sets(&self) -> usize {
        self.sets.len()
    }
    fn enqueue(&self, set: usize, stream: &Stream) -> Result<()> {
        self.sets[set].iter().try_for_each(|launch| launch.launch(stream))
    }
}

/// When to stop. The noise criterion is nvbench's `stdrel`: enough samples, enough time, and either a relative standard
/// deviation below `max_noise` or one that has settled.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub mode: Mode,
    pub min_samples: usize,
    pub max_noise: f64,
    /// Device time to collect for each piece of work.
    pub min_time: Duration,
    /// Host time after which sampling stops whatever the noise.
    pub timeout: Duration,
    /// Device time of one graph replay to aim at.
    pub replay: Duration,
}

impl Options {
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            min_samples: 20,
            max_noise: 0.005,
            min_time: Duration::from_millis(60),
            timeout: Duration::from_secs(5),
            replay: Duration::from_millis(1),
        }
    }
}

/// What timing needs and keeps from one measurement to the next.
#[derive(Debug)]
pub struct Bench {
    device: Device,
    modules: Modules,
    stream: Stream,
    timer: Timer,
    clocks: Clocks,
    flush: Option<Flush>,
    spin: Spin,
}

/// Host time to enqueue one sample, generously; the spin in front of a batch must last longer than the whole batch.
const ENQUEUE_US: u64 = 25;
/// Most samples that one spin covers.
const BATCH: usize = 64;
/// Most launches in one graph: instantiation takes a microsecond or more for each.
const MOST_NODES: usize = 4_096;

impl Bench {
    pub fn new(device: &Device, modules: &Modules) -> Result<Self> {
        let clocks = Clocks::new(device.info());
        let spin = Spin::new(device, modules, &clocks, BATCH as u64 * ENQUEUE_US + 400)?;
        Ok(Self {
            device: device.clone(),
            modules: modules.clone(),
            stream: Stream::new(device)?,
            timer: Timer::new(device),
            clocks,
            flush: None,
            spin,
        })
    }
    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Durations of `count` repetitions of stream work that a graph would change (a driver's copy), each between events.
    pub fn in_stream(&mut self, count: usize, work: impl Fn(&Stream) -> Result<()>) -> Result<Vec<f64>> {
        self.spin.launch(&self.stream)?;
        let stream = &self.stream;
        self.timer.batch(stream, count, |_| Ok(()), |_| work(stream), || ())
    }

    /// Times pieces of work in alternation.
    ///
    /// # Errors
    /// A launch that fails, named; noise and throttling are warnings on the result.
    pub fn measure(&mut self, works: &[&dyn Work], options: &Options) -> Result<Vec<Timing>> {
        // Whatever loads lazily (modules, a library's handles) does so before any capture.
        for work in works {
            for set in 0..work.sets() {
                work.enqueue(set, &self.stream)?;
            }
            self.stream.synchronize(|| format!("warming up {}", work.name()))?;
        }
        match options.mode {
            Mode::Cold => {
                if self.flush.is_none() {
                    self.flush = Some(Flush::new(&self.device)?);
                }
                self.sample(works, &vec![1; works.len()], None, options)
            }
            Mode::Graph | Mode::Hot => {
                let graphs = works.iter().map(|w| self.graph(*w, options)).collect::<Result<Vec<_>>>()?;
                let counts: Vec<u64> = graphs.iter().map(|(_, n)| *n).collect();
                let graphs: Vec<Graph> = graphs.into_iter().map(|(g, _)| g).collect();
                self.sample(works, &counts, Some(&graphs), options)
            }
        }
    }

    /// A piece of work as a graph to be replayed by someone else's sampling (criterion's).
    pub fn replayer(&mut self, work: &dyn Work, options: &Options) -> Result<Replayer> {
        for set in 0..work.sets() {
            work.enqueue(set, &self.stream)?;
        }
        self.stream.synchronize(|| format!("warming up {}", work.name()))?;
        let (graph, launches) = self.graph(work, options)?;
        Ok(Replayer {
            graph,
            launches,
            stream: Stream::new(&self.device)?,
            timer: Timer::new(&self.device),
            spin: Spin::new(&self.device, &self.modules, &self.clocks, 4 * ENQUEUE_US)?,
        })
    }

    /// A graph of about `options.replay` of work, and how often it does the work.
    fn graph(&mut self, work: &dyn Work, options: &Options) -> Result<(Graph, u64)> {
        let sets = if options.mode == Mode::Hot { 1 } else { work.sets() };
        let capture = |n: usize| {
            Graph::capture(&self.device, |stream| (0..n).try_for_each(|i| work.enqueue(i % sets, stream)))
                .map_err(|e| e.at(format!("capturing {}", work.name())))
        };
        let first = capture(sets)?;
        first.replay(&self.stream, 2)?;
        let once = first.replay(&self.stream, 3)?.into_iter().fold(f64::INFINITY, f64::min).max(1.0);
        let most = (MOST_NODES / first.nodes().max(1)).max(1);
        let rounds = ((options.replay.as_nanos() as f64 / once).ceil() as usize).clamp(1, most);
        let graph = if rounds > 1 { capture(sets * rounds)? } else { first };
        graph.replay(&self.stream, 2)?;
        Ok((graph, (sets * rounds) as u64))
    }

    fn sample(
        &mut self,
        works: &[&dyn Work],
        counts: &[u64],
        graphs: Option<&[Graph]>,
        options: &Options,
    ) -> Result<Vec<Timing>> {
        let begun = Instant::now();
        let mut samples: Vec<Vec<f64>> = vec![Vec::new(); works.len()];
        let mut noises: Vec<Vec<f64>> = vec![Vec::new(); works.len()];
        let mut readings: Vec<Reading> = Vec::new();
        let flush = self.flush.take();
        let mut rounds = 4;
        let outcome = loop {
            let stream = &self.stream;
            let first = samples[0].len();
            let batch = {
                self.spin.launch(stream)?;
                let (clocks, mut reading) = (&self.clocks, Reading::default());
                let times = self.timer.batch(
                    stream,
                    rounds * works.len(),
                    |_| flush.as_ref().filter(|_| graphs.is_none()).map_or(Ok(()), |f| f.enqueue(stream)),
                    |i| {
                        let (round, which) = (first + i / works.len(), i % works.len());
                        match graphs {
                            Some(graphs) => graphs[which].launch(stream),
                            None => works[which].enqueue(round % works[which].sets(), stream),
                        }
                    },
                    || reading = clocks.read(),
                );
                readings.push(reading);
                times
            };
            let times = match batch {
                Ok(times) => times,
                Err(e) => break Err(e.at(works.iter().map(|w| w.name()).collect::<Vec<_>>().join(", "))),
            };
            for (i, ns) in times.iter().enumerate() {
                samples[i % works.len()].push(ns / counts[i % works.len()] as f64);
            }
            let spent: f64 = times.iter().sum();
            // A batch of some 50 ms, so that clocks are read often and a timeout is kept; no more than was asked for.
            let per_round = (spent / rounds as f64).max(1.0);
            let batch = (works.len() as f64 * options.min_time.as_nanos() as f64).clamp(5e6, 50e6);
            rounds = ((batch / per_round) as usize).clamp(1, (BATCH / works.len()).max(1));
            for (noise, sample) in noises.iter_mut().zip(&samples) {
                noise.push(relative_deviation(sample));
            }
            let done = |i: usize| {
                let collected = samples[i].iter().sum::<f64>() * counts[i] as f64;
                samples[i].len() >= options.min_samples
                    && collected >= options.min_time.as_nanos() as f64
                    && (noises[i].last().is_some_and(|n| *n <= options.max_noise)
                        || settled(&noises[i], samples[i].len()))
            };
            if (0..works.len()).all(done) || begun.elapsed() >= options.timeout {
                break Ok(());
            }
        };
        self.flush = flush;
        outcome?;
        let shared = Warning::from_readings(&readings);
        Ok(samples
            .into_iter()
            .enumerate()
            .map(|(i, sample)| {
                let mut timing = Timing::new(works[i].name(), options.mode, counts[i], sample);
                timing.warnings.extend(shared.iter().cloned());
                if timing.samples.len() < options.min_samples {
                    let (samples, wanted) = (timing.samples.len(), options.min_samples);
                    timing.warnings.push(Warning::FewSamples { samples, wanted });
                }
                // A robust spread: one late sample must not cry wolf over a steady median.
                let noise = timing.mad / timing.ns.max(1e-9);
                if noise > options.max_noise {
                    timing.warnings.push(Warning::Noisy { noise, limit: options.max_noise });
                }
                if options.mode == Mode::Cold && timing.ns < crate::launch::event::RESOLUTION_NS {
                    timing.warnings.push(Warning::BelowEventResolution { ns: timing.ns });
                }
                timing
            })
            .collect())
    }
}
