//! The ledger: every nanosecond of a window of one device on exactly one line, the lines summing to the window.
//!
//! [`account`] is all that most callers need; [`Accountant`] builds its index of a trace once and accounts many windows.
//! Arithmetic is integer throughout. A ledger whose lines do not sum is never returned: it is an error.

mod cause;
mod classify;
mod close;
mod fast;
mod hidden;
mod host;
mod idle;
mod index;
mod submitted;
mod sweep;
#[cfg(test)]
mod tests;
mod types;

pub use cause::{Cause, Why};
pub(crate) use fast::FastMap;
pub use index::Accountant;
pub use types::{
    Detail, Evidence, Floors, Label, Labels, Ledger, Line, LineKind, NONE, Options, Piece, RecordKind, RecordRef,
    RunnerUp, Segment,
};

use super::trace::Trace;
use crate::error::{Error, Result};

/// Accounts the window `[t0, t1)` of one device.
///
/// # Errors
/// `Usage` for a window that ends before it begins; `Untrusted` where the lines do not sum to the window, which would
/// be a defect of this program.
pub fn account(trace: &Trace, device: u32, t0: i64, t1: i64, options: &Options) -> Result<Ledger> {
    Accountant::new(trace, device, options).window(t0, t1)
}

impl Ledger {
    /// A ledger of lines that were recorded elsewhere, for comparing; it has no segments.
    pub fn of_lines(window_ns: i64, lines: Vec<Line>) -> Self {
        let sum: i64 = lines.iter().map(|l| l.ns).sum();
        let busy = lines.iter().filter(|l| l.kind.is_busy());
        Self {
            device: 0,
            t0: 0,
            t1: window_ns,
            window_ns,
            residual_ns: window_ns - sum,
            operations: busy.clone().map(|l| l.count).sum(),
            busy_ns: busy.map(|l| l.ns).sum(),
            duration_ns: lines.iter().map(|l| l.duration_ns).sum(),
            clock_ns: 1,
            floors: Floors::default(),
            lines,
            notes: Vec::new(),
            segments: Vec::new(),
            pieces: Vec::new(),
        }
    }

    /// Checks the identity: the lines sum to the window, busy lines to the union, segments tile the window.
    pub fn verify(&self) -> Result<()> {
        let fail = |what: String| {
            Err(Error::untrusted(format!("the ledger of [{}, {}) does not close: {what}", self.t0, self.t1))
                .try_next("report this with the trace file; no number of this ledger may be used"))
        };
        let sum: i128 = self.lines.iter().map(|l| i128::from(l.ns)).sum();
        if sum != i128::from(self.window_ns) || self.residual_ns != 0 {
            return fail(format!("its lines sum to {sum} ns and the window is {} ns", self.window_ns));
        }
        let busy: i128 = self.lines.iter().filter(|l| l.kind.is_busy()).map(|l| i128::from(l.ns)).sum();
        if busy != i128::from(self.busy_ns) {
            return fail(format!("its busy lines sum to {busy} ns and the union is {} ns", self.busy_ns));
        }
        if let Some(l) = self.lines.iter().find(|l| l.ns < 0) {
            return fail(format!("line `{}` has {} ns", l.name, l.ns));
        }
        let mut at = self.t0;
        for s in &self.segments {
            if s.start != at || s.end <= s.start {
                return fail(format!("segment [{}, {}) does not follow {at}", s.start, s.end));
            }
            at = s.end;
        }
        if !self.segments.is_empty() && at != self.t1 {
            return fail(format!("its segments end at {at}"));
        }
        Ok(())
    }
}
