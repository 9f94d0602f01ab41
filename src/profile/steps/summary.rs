//! The median step, the 99th-percentile step, and which lines make the one longer than the other.

use super::{Steps, Window};
use crate::error::Result;
use crate::profile::compare::{Difference, Renames, difference};
use crate::profile::ledger::{Accountant, Detail, Ledger, Line};
use serde::Serialize;

/// One step with its lines.
#[derive(Clone, Debug, Serialize)]
pub struct StepLedger {
    pub name: String,
    pub start_ns: i64,
    pub window_ns: i64,
    pub residual_ns: i64,
    pub busy_ns: i64,
    pub operations: u64,
    /// Cut by the capture's end.
    pub open: bool,
    pub lines: Vec<Line>,
}

/// All steps and the two that stand for them.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    pub how: String,
    pub stability: f64,
    /// Fewest and most operations in a step.
    pub operations: (usize, usize),
    /// Steps in the statistics: those that are whole, or all where none is.
    pub n: usize,
    pub median_ns: i64,
    pub p99_ns: i64,
    pub min_ns: i64,
    pub max_ns: i64,
    /// Indices into the steps.
    pub median: usize,
    pub p99: usize,
    /// The p99 step less the median step, line by line; sums exactly.
    pub difference: Difference,
}

/// Accounts every step. The ledgers of the median and the p99 step come whole, for a timeline.
pub fn report(a: &Accountant<'_>, steps: &Steps) -> Result<(StepReport, Vec<StepLedger>, Ledger, Ledger)> {
    let mut ledgers = Vec::with_capacity(steps.windows.len());
    for w in &steps.windows {
        let mut l = a.window_in(w.start, w.end, Detail::Lines)?;
        // A thousand steps need no evidence each; the whole window's lines carry it.
        l.lines.iter_mut().for_each(|line| line.evidence.clear());
        ledgers.push(StepLedger {
            name: w.name.clone(),
            start_ns: w.start,
            window_ns: l.window_ns,
            residual_ns: l.residual_ns,
            busy_ns: l.busy_ns,
            operations: l.operations,
            open: w.open,
            lines: l.lines,
        });
    }
    let whole = steps.windows.iter().any(|w| !w.open);
    let mut ranked: Vec<usize> = (0..steps.windows.len()).filter(|&i| !(whole && steps.windows[i].open)).collect();
    ranked.sort_by_key(|&i| (steps.windows[i].ns(), i));
    let n = ranked.len();
    // Order statistics, so that each stands for a step that exists: the lower median, and ⌈0.99 n⌉.
    let (median, p99) = (ranked[(n - 1) / 2], ranked[(99 * n).div_ceil(100) - 1]);
    let at = |i: usize| -> Result<Ledger> {
        let Window { start, end, .. } = steps.windows[i];
        a.window_in(start, end, Detail::Segments)
    };
    let (m, p) = (at(median)?, at(p99)?);
    let report = StepReport {
        how: steps.how.clone(),
        stability: steps.stability,
        operations: steps.operations,
        n,
        median_ns: m.window_ns,
        p99_ns: p.window_ns,
        min_ns: steps.windows[ranked[0]].ns(),
        max_ns: steps.windows[ranked[n - 1]].ns(),
        median,
        p99,
        difference: difference(&m, &p, &Renames::default()),
    };
    Ok((report, ledgers, m, p))
}
