//! The calibrated estimate: what a kernel should really cost, with an interval, beside the floor that physics sets.
//!
//! The form is t = t0 + floor / efficiency, per op: t0 is the ramp, drain and edge that every launch pays, efficiency
//! the share of the ceiling that a long run of the op reaches. Both come from measured runs and say which.

use super::{Ceilings, Floor};
use crate::op::Cost;
use crate::units::Provenance;
use serde::{Deserialize, Serialize};

/// The fit of one op on one card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    pub op: String,
    /// Fixed time of a launch inside a graph, ns.
    pub fixed_ns: f64,
    /// Share of the ceiling reached by the part that grows with size.
    pub efficiency: f64,
    /// Half-width of the 80 % interval, relative.
    pub spread: f64,
    pub provenance: Provenance,
    pub source: String,
}

/// The fits in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    pub fits: Vec<Fit>,
}

/// One node's prediction, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    pub floor: Floor,
    pub ns: f64,
    /// 80 % interval.
    pub low: f64,
    pub high: f64,
}

impl Default for Calibration {
    /// Assumptions written down before the first run (see `lab_notes/`); a run of `bench` on the card replaces them.
    fn default() -> Self {
        let fit = |op: &str, fixed_ns: f64, efficiency: f64, spread: f64| Fit {
            op: op.into(),
            fixed_ns,
            efficiency,
            spread,
            provenance: Provenance::Assumed,
            source: "lab notes of 2026-11-30, before any run".into(),
        };
        Self {
            fits: vec![
                fit("matmul", 2_500.0, 1.0, 0.15),
                fit("w4a16", 2_000.0, 0.75, 0.25),
                fit("paged_attention", 4_300.0, 0.98, 0.3),
                fit("softmax", 2_000.0, 0.97, 0.1),
            ],
        }
    }
}

impl Calibration {
    /// The fit of an op; ops without one pay 2 µs a launch at 90 % of the ceiling.
    pub fn fit(&self, op: &str) -> Fit {
        self.fits.iter().find(|f| f.op == op).cloned().unwrap_or_else(|| Fit {
            op: op.into(),
            fixed_ns: 2_000.0,
            efficiency: 0.9,
            spread: 0.5,
            provenance: Provenance::Assumed,
            source: "no run of this op yet".into(),
        })
    }

    /// Floor and calibrated estimate of one launch of an op.
    pub fn predict(&self, op: &str, cost: &Cost, ceilings: &Ceilings) -> Prediction {
        let fit = self.fit(op);
        let floor = ceilings.floor(cost);
        let ns = fit.fixed_ns + floor.ns / fit.efficiency;
        Prediction { floor, ns, low: (ns * (1.0 - fit.spread)).max(floor.ns), high: ns * (1.0 + fit.spread) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Unit;

    #[test]
    fn prediction_is_never_below_the_floor() {
        let (c, cal) = (Ceilings::h200(), Calibration::default());
        for bytes in [0u64, 1_000, 1_000_000, 1_000_000_000] {
            for op in ["matmul", "w4a16", "paged_attention", "softmax", "unheard_of"] {
                let p = cal.predict(op, &Cost::new(Unit::Tensor16, 2).read("w", bytes), &c);
                assert!(p.floor.ns <= p.low && p.low <= p.ns && p.ns <= p.high, "{op} {bytes} {p:?}");
            }
        }
    }
}
