//! What one measured step leaves behind: enough to account it again on any machine, and nothing computed from the trace.

use crate::error::{Error, Result};
use crate::kernels;
use crate::launch::env::Environment;
use crate::op::{Chip, Cost, Shape};
use crate::plan::Plan;
use crate::roofline::{Calibration, Ceilings, Prediction};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Raised when a key changes its meaning.
pub const SCHEMA: u32 = 1;

/// A distribution of step times, ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    pub median_ns: f64,
    pub p10_ns: f64,
    pub p90_ns: f64,
    /// 95 % bootstrap interval of the median.
    pub low_ns: f64,
    pub high_ns: f64,
    pub n: u64,
    /// Every sample, in order.
    pub samples_ns: Vec<f64>,
}

impl Times {
    pub fn of(samples: Vec<f64>) -> Self {
        use crate::stats::{median, median_interval, quantile};
        let (low_ns, high_ns) = median_interval(&samples);
        Self {
            median_ns: median(&samples),
            p10_ns: quantile(&samples, 0.1),
            p90_ns: quantile(&samples, 0.9),
            low_ns,
            high_ns,
            n: samples.len() as u64,
            samples_ns: samples,
        }
    }
}

/// One node of the plan as it ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub label: String,
    pub class: String,
    pub op: String,
    pub variant: String,
    pub shape: String,
    /// Kernels that the node launches, in order.
    pub kernels: Vec<String>,
    /// Whether each may begin before its predecessor ended.
    pub programmatic: Vec<bool>,
    pub bytes: u64,
    pub flops: u64,
    pub floor_ns: f64,
    pub predicted_ns: f64,
    pub low_ns: f64,
    pub high_ns: f64,
}

/// One way of running the step: as a stream of launches or as one graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModeRecord {
    /// `graph` or `stream`.
    pub mode: String,
    pub untraced: Times,
    pub traced: Times,
    /// Untraced again afterwards: speed must be back.
    pub untraced_after: Times,
    /// The raw trace beside this file, gzip.
    pub trace: String,
    /// Replays in the trace, besides the warm-up.
    pub replays: u64,
    /// Records that CUPTI says it dropped.
    #[serde(default)]
    pub dropped: u64,
}

/// The whole recording, `step.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    pub schema: u32,
    pub kind: String,
    pub title: String,
    pub model: String,
    pub weights: String,
    pub batch: u64,
    pub context: u64,
    pub environment: Environment,
    pub ceilings: Ceilings,
    pub calibration: Calibration,
    /// Lab note whose sealed prediction the run measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub nodes: Vec<NodeRecord>,
    pub modes: Vec<ModeRecord>,
    pub weight_bytes: u64,
    pub kv_bytes: u64,
}

impl Recording {
    /// Reads `step.json` in a folder.
    pub fn load(folder: &Path) -> Result<Self> {
        let file = folder.join("step.json");
        let text = std::fs::read_to_string(&file).map_err(|e| no_recording(folder, &e))?;
        let this: Self = serde_json::from_str(&text).map_err(|e| {
            Error::usage(format!("{} is no recording of a step: {e}", file.display()))
                .try_next("workbench step --out FOLDER on a machine with a GPU makes one")
        })?;
        if this.schema != SCHEMA {
            return Err(Error::usage(format!(
                "{} has schema {}, this program reads {SCHEMA}",
                file.display(),
                this.schema
            )));
        }
        Ok(this)
    }

    pub fn save(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::usage(e.to_string()))?;
        Ok(std::fs::write(folder.join("step.json"), text + "\n")?)
    }

    /// The recording that a raw trace belongs to, and which of its modes the trace is: `step.json` beside the file, where it
    /// names the file.
    ///
    /// # Errors
    /// A `step.json` that cannot be read.
    pub fn of_trace(trace: &Path) -> Result<Option<(Self, usize)>> {
        let (Some(folder), Some(name)) = (trace.parent(), trace.file_name()) else { return Ok(None) };
        if !folder.join("step.json").is_file() {
            return Ok(None);
        }
        let this = Self::load(folder)?;
        let mode = this.modes.iter().position(|m| name == m.trace.as_str());
        Ok(mode.map(|mode| (this, mode)))
    }

    pub fn mode(&self, name: &str) -> Option<&ModeRecord> {
        self.modes.iter().find(|m| m.mode == name)
    }
}

/// What a folder without `step.json` is, and the command for it.
fn no_recording(folder: &Path, e: &std::io::Error) -> Error {
    let place = folder.display();
    let error = |what: String, next: String| Error::usage(format!("{place} {what}")).try_next(next);
    let make = "workbench step --out FOLDER on a machine with a GPU makes one";
    if folder.is_file() {
        return error(
            "is a file, no folder of a recorded step".into(),
            format!("workbench gaps {place}, if it is a trace; {make}"),
        );
    }
    let Ok(entries) = std::fs::read_dir(folder) else {
        let near = newest(Path::new("reports"), "");
        let near = near.map_or(String::new(), |n| format!("{}, a recording that is here; or ", n.display()));
        return error(format!("cannot be read: {e}"), format!("{near}{make}"));
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|f| f.path()).collect();
    files.sort();
    if let Some(file) = files.iter().find(|f| f.file_name().is_some_and(|n| n == "roofline.json")) {
        return error(
            "holds a recording of `roofline`, not of a step".into(),
            format!("workbench roofline --from {}", file.display()),
        );
    }
    let rows = files.iter().filter(|f| f.extension().is_some_and(|e| e == "jsonl"));
    let heads: Vec<(&PathBuf, String)> = rows
        .filter_map(|f| {
            let text = std::fs::read_to_string(f).ok()?;
            Some((f, text.lines().take(2).collect::<String>()))
        })
        .collect();
    if heads.iter().any(|(_, head)| head.contains("\"mode\":\"verify\"")) {
        let next = format!(
            "read its rows, one JSON object a line ({}); `workbench verify` makes them again",
            heads[0].0.display()
        );
        return error("holds rows of `verify`, not a recorded step".into(), next);
    }
    if let Some((file, _)) = heads.iter().find(|(_, head)| head.contains("\"op\"")) {
        let next =
            format!("workbench bench --from {} --peers FILES sets them beside other libraries' rows", file.display());
        return error("holds rows of `bench`, not a recorded step".into(), next);
    }
    let traces = files.iter().find(|f| f.to_string_lossy().contains(".wbtrace"));
    if let Some(trace) = traces {
        return error("holds a trace without its step.json".into(), format!("workbench gaps {}", trace.display()));
    }
    error("has no step.json: it is no recording of a step".into(), make.into())
}

/// The nodes of a plan with their predictions: made before anything runs.
pub fn predict_nodes<'a>(
    plan: &'a Plan,
    chip: &Chip,
    ceilings: &Ceilings,
    calibration: &Calibration,
) -> Result<Vec<NodeRecord>> {
    // Layers repeat the same few launches.
    let mut known: Vec<(&str, String, &Shape, Cost, Prediction)> = Vec::new();
    let mut predict = |name: &'static str, variant: String, shape: &'a Shape| -> Result<(Cost, Prediction)> {
        if let Some((.., cost, p)) = known.iter().find(|(o, v, s, ..)| (*o, v, *s) == (name, &variant, shape)) {
            return Ok((cost.clone(), *p));
        }
        let cost = kernels::op(name)?.cost(shape)?;
        let p = calibration.estimate(name, &variant, shape, &cost, (chip, ceilings)).prediction;
        known.push((name, variant, shape, cost.clone(), p));
        Ok((cost, p))
    };
    plan.nodes
        .iter()
        .map(|node| {
            let op = kernels::op(node.op)?;
            let variant = node.variant.clone().unwrap_or_else(|| op.choose(&node.shape, chip).to_string());
            let (cost, p) = predict(op.name(), variant.clone(), &node.shape)?;
            Ok(NodeRecord {
                label: node.label.clone(),
                class: node.class.clone(),
                op: node.op.into(),
                variant,
                shape: node.shape.to_string(),
                kernels: vec![],
                programmatic: vec![],
                bytes: cost.bytes(),
                flops: cost.flops,
                floor_ns: p.floor.ns,
                predicted_ns: p.ns,
                low_ns: p.low,
                high_ns: p.high,
            })
        })
        .collect()
}

/// The newest committed recording under `reports/` whose title begins with `prefix`; folders sort by their date.
pub fn newest(reports: &Path, prefix: &str) -> Option<PathBuf> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for gpu in std::fs::read_dir(reports).ok()?.flatten() {
        let Ok(runs) = std::fs::read_dir(gpu.path()) else { continue };
        for run in runs.flatten() {
            let path = run.path();
            if path.join("step.json").exists() && Recording::load(&path).is_ok_and(|r| r.title.starts_with(prefix)) {
                found.push((run.file_name().to_string_lossy().into_owned(), path));
            }
        }
    }
    found.sort();
    found.pop().map(|(_, p)| p)
}
