//! Runs a step on a GPU: predicted first, untraced, traced, untraced again; as one graph and as a stream of launches.

use super::checkpoint::Checkpoint;
use super::recording::{self, ModeRecord, NodeRecord, Recording, Times};
use super::resident::Resident;
use crate::error::{Error, Result};
use crate::kernels;
use crate::launch::env::Environment;
use crate::launch::{Clocks, Device, Graph, Prepared, Stream, Timer};
use crate::op::{Chip, nearest};
use crate::plan::decode::{self, Options, Weights};
use crate::plan::model::Model;
use crate::plan::{Plan, Purpose};
use crate::profile::session::{self, Session};
use crate::roofline::{Calibration, Ceilings, store};
use crate::run::Gpu;
use crate::units::Bytes;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub model: Model,
    pub options: Options,
    /// Folder with the weights; random ones otherwise.
    pub checkpoint: Option<PathBuf>,
    pub seed: u64,
    pub gpu: u32,
    /// Untraced replays, before and after.
    pub replays: usize,
    pub traced: usize,
    /// Lab note whose prediction the run measures.
    pub note: Option<String>,
    /// Variants that replace the heuristics' choice, by class.
    pub choices: Vec<Choice>,
}

/// A variant for all nodes of a class, for experiments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub class: String,
    pub variant: String,
    pub cfg: Option<u32>,
}

impl Choice {
    /// Reads `class=variant` or `class=variant:cfg`.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || Error::usage(format!("`{text}` is not CLASS=VARIANT or CLASS=VARIANT:CFG"));
        let (class, rest) = text.split_once('=').ok_or_else(bad)?;
        let (variant, cfg) = match rest.split_once(':') {
            Some((v, c)) => (v, Some(c.parse().map_err(|_| bad())?)),
            None => (rest, None),
        };
        Ok(Self { class: class.into(), variant: variant.into(), cfg })
    }
}

/// The plan of the settings, with their choices.
fn plan(settings: &Settings, chip: &Chip) -> Result<(Plan, decode::Handles)> {
    let (mut plan, handles) = decode::decode(&settings.model, &settings.options, chip)?;
    for choice in &settings.choices {
        let mut some = false;
        for node in plan.nodes.iter_mut().filter(|n| n.class == choice.class) {
            some = true;
            let op = kernels::op(node.op)?;
            let variant =
                op.variant(&choice.variant).map_err(|e| Error::from(e).at(format!("--use {}", choice.class)))?;
            node.variant = Some(variant.name.into());
            if let Some(cfg) = choice.cfg {
                node.shape.set("cfg", cfg);
            }
            let place = || format!("--use {}={}", choice.class, variant.name);
            op.supports(variant.name, &node.shape, chip).map_err(|e| Error::from(e).at(place()))?;
        }
        if !some {
            let mut classes: Vec<&str> = plan.nodes.iter().map(|n| n.class.as_str()).collect();
            classes.sort_unstable();
            classes.dedup();
            let near = nearest(&choice.class, classes.iter().copied()).map_or(String::new(), |n| format!("`{n}`; or "));
            return Err(Error::usage(format!("the plan has no nodes of class `{}`", choice.class))
                .try_next(format!("{near}one of {}", classes.join(", "))));
        }
    }
    Ok((plan, handles))
}

/// The prediction alone, on the recorded H200's ceilings or a measured card's.
pub fn predict(settings: &Settings, ceilings: Option<&Ceilings>) -> Result<Vec<NodeRecord>> {
    let recorded = Ceilings::h200();
    let (plan, _) = plan(settings, &Chip::H200)?;
    recording::predict_nodes(&plan, &Chip::H200, ceilings.unwrap_or(&recorded), &Calibration::default())
}

/// Predicts, runs and traces the step; leaves `step.json` and the raw traces in `folder`. `say` gets each stage as text,
/// `predicted` the nodes before anything has run.
///
/// # Errors
/// `NoDevice` without a GPU or CUPTI; `Usage` where the plan does not fit its memory (says what would). Records that
/// CUPTI dropped are counted in the recording; [`crate::explain::step::account`] refuses it if a kernel is among them.
pub fn measure(
    settings: &Settings,
    folder: &Path,
    predicted: impl Fn(&[NodeRecord]),
    say: impl Fn(&str),
) -> Result<Recording> {
    let device = Device::open(settings.gpu)?;
    let chip = device.chip();
    let (plan, handles) = plan(settings, &chip)?;
    fits(&device, settings, Resident::bytes(&plan, &chip)?)?;
    let info = device.info();
    let ceilings = store::find(&store::file(), &info.uuid, &info.name)?.ok_or_else(|| {
        Error::usage(format!("no ceilings are known for {}", info.name))
            .try_next(format!("workbench roofline --gpu {} measures them", settings.gpu))
    })?;
    let calibration = Calibration::default();
    let mut nodes = recording::predict_nodes(&plan, &chip, &ceilings, &calibration)?;
    predicted(&nodes);

    let clocks = Clocks::new(info);
    let environment = Environment::begin(&device, &clocks);
    let checkpoint = settings.checkpoint.as_deref().map(Checkpoint::open).transpose()?;
    let mut gpu = Gpu::on(&device, false)?;
    let title = plan.title.clone();
    let (weight_bytes, kv_bytes) = (plan.bytes(Purpose::Weights), plan.bytes(Purpose::KvCache));
    say(&format!("loading {} of weights and {} of cache", Bytes(weight_bytes), Bytes(kv_bytes)));
    let resident = Resident::load(&mut gpu, plan, handles, settings.seed, checkpoint.as_ref())?;
    for (node, launch) in &resident.launches {
        nodes[*node].kernels.push(launch.entry.clone());
        nodes[*node].programmatic.push(launch.programmatic);
    }
    for (node, variant) in nodes.iter_mut().zip(&resident.variants) {
        node.variant.clone_from(variant);
    }
    let launches: Vec<_> = resident.launches.iter().map(|(_, l)| l.clone()).collect();
    let prepared = gpu.prepare(&launches)?;
    std::fs::create_dir_all(folder)?;
    let stage = Stage { device: &device, gpu: &gpu, prepared: &prepared, settings, folder };
    let modes = [("graph", true), ("stream", false)]
        .into_iter()
        .map(|(name, graph)| {
            say(&format!("running as a {name}"));
            stage.mode(name, graph)
        })
        .collect::<Result<Vec<_>>>()?;
    let mut environment = environment.finish(&clocks);
    environment.cupti = session::cupti_version();
    resident.release(&mut gpu);
    let weights = match settings.options.weights {
        Weights::Dense => settings.options.dtype.name().to_string(),
        Weights::W4a16 { group, .. } => format!("w4a16 g{group}"),
    };
    let recording = Recording {
        schema: recording::SCHEMA,
        kind: "step".into(),
        title,
        model: settings.model.name.clone(),
        weights,
        batch: settings.options.batch(),
        context: settings.options.lens.iter().copied().max().unwrap_or(0),
        environment,
        ceilings,
        // The nodes hold what the neighbours made of the lines; all of them would be most of the file.
        calibration: Calibration { nearby: Vec::new(), ..calibration },
        note: settings.note.clone(),
        nodes,
        modes,
        weight_bytes,
        kv_bytes,
    };
    recording.save(folder)?;
    Ok(recording)
}

/// Refuses what does not fit, and says what would.
fn fits(device: &Device, settings: &Settings, needed: u64) -> Result<()> {
    let (free, total) = device.memory()?;
    // The driver, the graph and the modules want a little of their own.
    let usable = free.saturating_sub(512 << 20);
    if needed <= usable {
        return Ok(());
    }
    let o = &settings.options;
    let per_request = settings.model.kv_bytes_per_token() * o.max_ctx.next_multiple_of(o.page);
    let fixed = needed.saturating_sub(per_request * o.batch());
    let batch = usable.saturating_sub(fixed) / per_request.max(1);
    let hint = if batch > 0 {
        format!("--batch {batch} fits at this context")
    } else {
        "a smaller model, or --weights w4a16".into()
    };
    Err(Error::usage(format!(
        "the step needs {:.2} GiB; {:.2} of {:.2} GiB are free",
        Bytes(needed).gib(),
        Bytes(free).gib(),
        Bytes(total).gib()
    ))
    .try_next(hint))
}

struct Stage<'a> {
    device: &'a Device,
    gpu: &'a Gpu,
    prepared: &'a [Prepared],
    settings: &'a Settings,
    folder: &'a Path,
}

impl Stage<'_> {
    fn mode(&self, name: &str, graph: bool) -> Result<ModeRecord> {
        let untraced = self.untraced(graph)?;
        let options = session::Options::default();
        let session = Session::start(&options)?;
        let traced = self.times(graph, self.settings.traced);
        let captured = session.finish()?;
        let traced = traced?;
        let trace = format!("{name}.wbt.gz");
        let file = std::fs::File::create(self.folder.join(&trace))?;
        let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::best());
        gz.write_all(&captured.bytes)?;
        gz.finish()?;
        let untraced_after = self.untraced(graph)?;
        Ok(ModeRecord {
            mode: name.into(),
            untraced,
            traced,
            untraced_after,
            trace,
            replays: self.settings.traced as u64,
            dropped: captured.dropped,
        })
    }

    fn untraced(&self, graph: bool) -> Result<Times> {
        self.times(graph, self.settings.replays)
    }

    /// Event-timed steps after a warm-up. The graph is made anew each time: nodes made before a session are not seen by
    /// it, and those made inside one must not be played after it.
    fn times(&self, graph: bool, count: usize) -> Result<Times> {
        let stream = self.gpu.stream();
        let mut timer = Timer::new(self.device);
        let warm = 5.min(count);
        let samples = if graph {
            let graph = Graph::of(self.device, self.prepared)?;
            self.batch(&mut timer, stream, warm, &|s| graph.launch(s))?;
            self.batch(&mut timer, stream, count, &|s| graph.launch(s))?
        } else {
            let run = |s: &Stream| self.prepared.iter().try_for_each(|p| p.launch(s));
            self.batch(&mut timer, stream, warm, &run)?;
            self.batch(&mut timer, stream, count, &run)?
        };
        Ok(Times::of(samples))
    }

    fn batch(
        &self,
        timer: &mut Timer,
        stream: &Stream,
        count: usize,
        run: &dyn Fn(&Stream) -> Result<()>,
    ) -> Result<Vec<f64>> {
        timer.batch(stream, count, |_| Ok(()), |_| run(stream), || ())
    }
}
