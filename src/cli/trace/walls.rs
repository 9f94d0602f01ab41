//! What tracing costs: the command's wall time untraced, traced, untraced.

use crate::error::{Error, Result};
use crate::profile::foreign::{self, Exit, Request};
use crate::profile::native::Recording;
use serde_json::{Value, json};
use std::time::Duration;

/// Wall times of the whole command.
pub struct Walls {
    untraced: Vec<Duration>,
    traced: Vec<Duration>,
    /// How the last traced run ended.
    pub last: Exit,
}

/// Runs the command untraced and traced in turn, and untraced once more; the recording of the last traced run stays.
pub fn measure(request: &Request, rounds: u32) -> Result<Walls> {
    let (mut untraced, mut traced, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..rounds {
        untraced.push(foreign::run_untraced(&request.command)?.wall);
        for old in foreign::parts(&request.folder) {
            let _ = std::fs::remove_file(old);
        }
        let exit = foreign::run(request, || {})?;
        traced.push(exit.wall);
        last = Some(exit);
    }
    untraced.push(foreign::run_untraced(&request.command)?.wall);
    let last = last.ok_or_else(|| Error::usage("--ab 0 measures nothing").try_next("--ab 3"))?;
    Ok(Walls { untraced, traced, last })
}

impl Walls {
    pub fn text(&self, recording: &Recording) -> String {
        let (plain, traced) = (median(&self.untraced), median(&self.traced));
        let operations: u64 = recording.processes.iter().map(|p| p.operations).sum();
        format!(
            "tracing cost, whole command: untraced {plain:.3} s (n={}), traced {traced:.3} s (n={}): {:+.2} %, {:+.0} ns an \
             operation; the untraced runs themselves span {:.2} %",
            self.untraced.len(),
            self.traced.len(),
            100.0 * (traced / plain - 1.0),
            (traced - plain) * 1e9 / operations.max(1) as f64,
            100.0 * self.spread() / plain,
        )
    }

    /// Largest untraced wall less the smallest: what a difference must exceed to mean anything.
    fn spread(&self) -> f64 {
        let all = self.untraced.iter().map(Duration::as_secs_f64);
        all.clone().fold(f64::MIN, f64::max) - all.fold(f64::MAX, f64::min)
    }

    pub fn json(&self) -> Value {
        let ns = |all: &[Duration]| all.iter().map(|d| d.as_nanos() as u64).collect::<Vec<_>>();
        json!({"untraced_ns": ns(&self.untraced), "traced_ns": ns(&self.traced)})
    }
}

fn median(values: &[Duration]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().map(Duration::as_secs_f64).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n % 2 == 1 { sorted[n / 2] } else { (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0 }
}
