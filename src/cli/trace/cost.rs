//! What tracing costs a launch, printed with every account: an empty kernel, on a stream and in a graph, untraced, traced in
//! the mode of the run, untraced again; each in a process of its own.

use crate::error::{Error, Result};
use crate::profile::foreign::{self, Parts, Request};
use crate::profile::launch_cost::LaunchCost;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// The three measurements.
pub struct Cost {
    mode: String,
    rounds: [LaunchCost; 3],
}

/// Runs the probe three times; about two seconds, most of it CUDA's start.
///
/// # Errors
/// No GPU for it, or a probe that failed.
pub fn measure(request: &Request) -> Result<Cost> {
    let scratch = std::env::temp_dir().join(format!("workbench-launch-cost-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(Error::from)?;
    // The whole of it is recorded, whatever part of the command was.
    let request = Request { folder: scratch.clone(), after: None, duration: None, ..request.clone() };
    let rounds: Result<_> = (|| Ok([probe(None)?, probe(Some(&request))?, probe(None)?]))();
    let _ = std::fs::remove_dir_all(&scratch);
    Ok(Cost { mode: request.parts.map_or_else(|| request.mode.label().into(), Parts::label), rounds: rounds? })
}

fn probe(traced: Option<&Request>) -> Result<LaunchCost> {
    let mut command = Command::new(std::env::current_exe().map_err(Error::from)?);
    command.arg("launch-probe").stdin(Stdio::null());
    if let Some(request) = traced {
        command.envs(foreign::environment(request)?);
    }
    let output = command.output().map_err(Error::from)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("no reason given").trim_start_matches("workbench: ");
        return Err(Error::no_device(said.to_string()));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| Error::untrusted(format!("the launch probe said no JSON: {e}")))
}

impl Cost {
    pub fn text(&self) -> String {
        let nodes = self.rounds[0].nodes;
        format!(
            "launch cost, mode {}, untraced / traced / untraced: {}; {}; {}; {}",
            self.mode,
            part("a stream launch", self.rounds.map(|r| r.stream_ns)),
            part(&format!("launching a graph of {nodes} nodes"), self.rounds.map(|r| r.graph_ns)),
            part("launching it and waiting for its end", self.rounds.map(|r| r.waited_ns)),
            part("a graph's node on the device", self.rounds.map(|r| r.node_ns)),
        )
    }

    pub fn json(&self) -> Value {
        json!({
            "mode": self.mode,
            "nodes": self.rounds[0].nodes,
            "stream_ns": self.rounds.map(|r| r.stream_ns),
            "graph_ns": self.rounds.map(|r| r.graph_ns),
            "waited_ns": self.rounds.map(|r| r.waited_ns),
            "node_ns": self.rounds.map(|r| r.node_ns),
        })
    }
}

/// The difference against the mean of the untraced ends; what these differ by among themselves is its error.
fn part(what: &str, [before, during, after]: [f64; 3]) -> String {
    let (added, error) = (during - (before + after) / 2.0, (before - after).abs() / 2.0);
    format!("{what} {before:.0} / {during:.0} / {after:.0} ns, {added:+.0} ± {error:.0} ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_to_both_ends() {
        assert_eq!(part("a launch", [2_000.0, 3_500.0, 2_100.0]), "a launch 2000 / 3500 / 2100 ns, +1450 ± 50 ns");
    }
}
