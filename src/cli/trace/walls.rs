//! What tracing costs: the command's wall time untraced, traced, untraced, or a number that it prints itself.

use crate::error::{Error, Result};
use crate::profile::foreign::{self, Exit, Request};
use crate::profile::native::Recording;
use regex::Regex;
use serde_json::{Value, json};

/// One figure of every run.
pub struct Walls {
    /// What the figures are numbers of, where the command told them; else they are wall times in seconds.
    metric: Option<Regex>,
    untraced: Vec<f64>,
    traced: Vec<f64>,
    /// How the last traced run ended.
    pub last: Exit,
}

/// Runs the command untraced and traced in turn, and untraced once more; the recording of the last traced run stays.
pub fn measure(request: &Request, rounds: u32, metric: Option<Regex>) -> Result<Walls> {
    let (mut untraced, mut traced, mut last) = (Vec::new(), Vec::new(), None);
    let figure = |exit: Exit, heard: &str| match &metric {
        Some(metric) => number(metric, heard),
        None => Ok(exit.wall.as_secs_f64()),
    };
    let plain = || {
        let mut heard = String::new();
        let exit = foreign::run_untraced(&request.command, metric.is_some().then_some(&mut heard))?;
        figure(exit, &heard)
    };
    for _ in 0..rounds {
        untraced.push(plain()?);
        for old in foreign::parts(&request.folder) {
            let _ = std::fs::remove_file(old);
        }
        let mut heard = String::new();
        let exit = foreign::run(request, metric.is_some().then_some(&mut heard), || {})?;
        traced.push(figure(exit, &heard)?);
        last = Some(exit);
    }
    untraced.push(plain()?);
    let last = last.ok_or_else(|| Error::usage("--ab 0 measures nothing").try_next("--ab 3"))?;
    Ok(Walls { metric, untraced, traced, last })
}

/// The first group of the last match, or all of it where there is no group.
fn number(metric: &Regex, heard: &str) -> Result<f64> {
    let found = metric.captures_iter(heard).last();
    let text = found.as_ref().and_then(|c| c.get(1).or(c.get(0))).map(|m| m.as_str());
    text.and_then(|t| t.parse().ok()).ok_or_else(|| {
        let what = text.map_or("nothing".into(), |t| format!("`{t}`, which is no number,"));
        Error::usage(format!("--metric '{metric}' found {what} in the command's standard output"))
            .try_next("a group around the number: --metric 'step_ns\": ([0-9.]+)'")
    })
}

impl Walls {
    pub fn text(&self, recording: &Recording) -> String {
        let (plain, traced) = (crate::stats::median(&self.untraced), crate::stats::median(&self.traced));
        let (n, m) = (self.untraced.len(), self.traced.len());
        let change = format!(
            "{:+.2} %; the untraced runs themselves span {:.2} %",
            100.0 * (traced / plain - 1.0),
            100.0 * self.spread() / plain
        );
        if let Some(metric) = &self.metric {
            return format!("tracing cost, `{metric}`: untraced {plain} (n={n}), traced {traced} (n={m}): {change}");
        }
        let operations: u64 = recording.processes.iter().map(|p| p.operations).sum();
        format!(
            "tracing cost, whole command: untraced {plain:.3} s (n={n}), traced {traced:.3} s (n={m}), {:+.0} ns an \
             operation: {change}",
            (traced - plain) * 1e9 / operations.max(1) as f64,
        )
    }

    /// Largest untraced figure less the smallest: what a difference must exceed to mean anything.
    fn spread(&self) -> f64 {
        let all = || self.untraced.iter().copied();
        all().fold(f64::MIN, f64::max) - all().fold(f64::MAX, f64::min)
    }

    pub fn json(&self) -> Value {
        match &self.metric {
            Some(metric) => json!({"metric": metric.as_str(), "untraced": self.untraced, "traced": self.traced}),
            None => {
                let ns = |all: &[f64]| all.iter().map(|s| (s * 1e9) as u64).collect::<Vec<_>>();
                json!({"untraced_ns": ns(&self.untraced), "traced_ns": ns(&self.traced)})
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_counts() {
        let metric = Regex::new(r#"ms: ([0-9.]+)"#).unwrap();
        assert_eq!(number(&metric, "ms: 9\nms: 4.5 and more\n").unwrap(), 4.5);
        assert!(number(&metric, "nothing").unwrap_err().what.contains("found nothing"));
        assert!(number(&Regex::new("m(s)").unwrap(), "ms").unwrap_err().what.contains("`s`, which is no number"));
    }
}
