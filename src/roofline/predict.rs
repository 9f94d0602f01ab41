//! The calibrated estimate: what a kernel should really cost, with an interval, beside the floor that physics sets.
//!
//! The form is t = t0 + floor / efficiency, per op, variant and bound: t0 is the ramp, drain and edge that every launch
//! pays, efficiency the share of the ceiling that a long run reaches. What tiles, waves and a heuristic's steps add is taken
//! from the measured shapes nearby ([`super::nearby`]). The fits in use are data, `data/calibration-h200.json`, made by
//! [`super::calibrate`] from committed runs of `bench`.

use super::ceilings::Bound;
use super::nearby::{Field, Neighbour, Place};
use super::{Ceilings, Floor};
use crate::op::{Cost, Shape};
use crate::units::Provenance;
use serde::{Deserialize, Serialize};
use std::sync::{LazyLock, OnceLock};

/// The fit of one variant on one card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    pub op: String,
    /// Empty: the best variant of each shape.
    #[serde(default)]
    pub variant: String,
    /// What bound the shapes it was made from; absent in older recordings.
    #[serde(default)]
    pub bound: Option<Bound>,
    /// Fixed time of a launch inside a graph, ns.
    pub fixed_ns: f64,
    /// Share of the ceiling reached by the part that grows with size.
    pub efficiency: f64,
    /// Half-width of the 80 % interval, relative.
    pub spread: f64,
    /// Shapes that it was made from.
    #[serde(default)]
    pub n: usize,
    pub provenance: Provenance,
    pub source: String,
    /// Octaves over which a measured shape tells something of another.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub length: f64,
    /// The variant's measured shapes of either bound, beside this line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbour>,
    #[serde(skip)]
    pub(super) ready: Ready,
}

/// The neighbours ready to be asked, made when they are first asked.
#[derive(Debug, Default)]
pub struct Ready(OnceLock<Field>);

impl Clone for Ready {
    fn clone(&self) -> Self {
        Self::default()
    }
}
impl PartialEq for Ready {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

// The signature that serde asks for.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(v: &f64) -> bool {
    *v == 0.0
}

impl Fit {
    /// The factor that the neighbours put on this line at a shape, and the standard deviation of its logarithm; the line
    /// itself where there are none.
    fn nearby(&self, shape: &Shape) -> (f64, f64) {
        if self.neighbours.is_empty() {
            return (1.0, self.spread / DEVIATIONS);
        }
        let field = self.ready.0.get_or_init(|| Field::new(&self.op, &self.neighbours, self.length));
        let (mean, deviation) = field.at(&Place::of(&self.op, shape));
        (mean.exp(), deviation)
    }
}

/// Standard deviations on each side of an 80 % interval.
pub const DEVIATIONS: f64 = 1.28;
/// No prediction is trusted closer than this.
pub const CLOSEST: f64 = 0.05;
/// Neighbours of a variant's own with which it needs no other variant's.
const ENOUGH: usize = 4;

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
    /// The fits of the recorded H200; `workbench predict calibrate` makes others from runs of `bench`.
    fn default() -> Self {
        Self::recorded().clone()
    }
}

impl Calibration {
    /// The fits of the recorded H200.
    pub fn recorded() -> &'static Self {
        static FITS: LazyLock<Calibration> = LazyLock::new(|| {
            let text = include_str!("../../data/calibration-h200.json");
            serde_json::from_str(text).expect("data/calibration-h200.json is checked by the tests")
        });
        &FITS
    }

    fn own(&self, op: &str, variant: &str, bound: Bound) -> Option<&Fit> {
        let found = || self.fits.iter().filter(|f| f.op == op && f.variant == variant);
        let bare = || found().find(|f| f.bound.is_none());
        // The other bound's line, where its neighbours carry it over.
        let other = || found().find(|f| !f.neighbours.is_empty());
        found().find(|f| f.bound == Some(bound)).or_else(bare).or_else(other)
    }

    /// The fit of a variant where that bound rules; else that of the op's best variants, with a wide interval; else 2 µs
    /// a launch at 90 % of the ceiling.
    pub fn fit(&self, op: &str, variant: &str, bound: Bound) -> Fit {
        let best = || {
            let fit = self.own(op, "", bound)?.clone();
            let source = format!("{} (best variants, not {variant})", fit.source);
            Some(Fit { spread: fit.spread.max(0.4), provenance: Provenance::Derived, source, ..fit })
        };
        self.own(op, variant, bound).cloned().or_else(best).unwrap_or_else(|| Fit {
            op: op.into(),
            variant: variant.into(),
            bound: Some(bound),
            fixed_ns: 2_000.0,
            efficiency: 0.9,
            spread: 0.5,
            n: 0,
            provenance: Provenance::Assumed,
            source: "no run of this op yet".into(),
            length: 0.0,
            neighbours: Vec::new(),
            ready: Ready::default(),
        })
    }

    /// The fit for a shape, and what its neighbours make of it: the variant's own, or that of the op's best variants where
    /// the variant has few shapes and those lie nearer. (fit, factor on its line, standard deviation of the logarithm)
    pub fn fit_at(&self, op: &str, variant: &str, shape: &Shape, bound: Bound) -> (Fit, f64, f64) {
        let Some(own) = self.own(op, variant, bound) else {
            let fit = self.fit(op, variant, bound);
            let (factor, deviation) =
                self.own(op, "", bound).map_or_else(|| fit.nearby(shape), |best| best.nearby(shape));
            return (fit, factor, deviation);
        };
        let (factor, deviation) = own.nearby(shape);
        if own.neighbours.len() < ENOUGH
            && !variant.is_empty()
            && let Some(best) = self.own(op, "", bound)
        {
            let (other, wide) = best.nearby(shape);
            if !best.neighbours.is_empty() && wide < deviation {
                let source = format!("{} (best variants, not {variant})", best.source);
                return (Fit { provenance: Provenance::Derived, source, ..best.clone() }, other, wide);
            }
        }
        (own.clone(), factor, deviation)
    }

    /// Floor and calibrated estimate of one launch of a variant at a shape.
    pub fn predict_at(&self, op: &str, variant: &str, shape: &Shape, cost: &Cost, ceilings: &Ceilings) -> Prediction {
        let floor = ceilings.floor(cost);
        let (fit, factor, deviation) = self.fit_at(op, variant, shape, floor.bound());
        let ns = ((fit.fixed_ns + floor.ns / fit.efficiency) * factor).max(floor.ns);
        let spread = (DEVIATIONS * deviation).clamp(CLOSEST, 0.95);
        Prediction { floor, ns, low: (ns * (1.0 - spread)).max(floor.ns), high: ns * (1.0 + spread) }
    }

    /// The same where no shape is known, from the line alone.
    pub fn predict(&self, op: &str, variant: &str, cost: &Cost, ceilings: &Ceilings) -> Prediction {
        let floor = ceilings.floor(cost);
        let fit = self.fit(op, variant, floor.bound());
        let ns = fit.fixed_ns + floor.ns / fit.efficiency;
        Prediction { floor, ns, low: (ns * (1.0 - fit.spread)).max(floor.ns), high: ns * (1.0 + fit.spread) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Unit;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_below_the_floor_and_monotone_in_bytes(bytes in 0u64..10_000_000_000, more in 1u64..1_000_000_000, op in 0usize..5) {
            let (c, cal) = (Ceilings::h200(), Calibration::default());
            let op = ["matmul", "w4a16", "paged_attention", "softmax", "unheard_of"][op];
            let at = |bytes| cal.predict(op, "gemv", &Cost::new(Unit::Tensor16, 2).read("w", bytes), &c);
            let (p, q) = (at(bytes), at(bytes + more));
            prop_assert!(p.floor.ns <= p.low && p.low <= p.ns && p.ns <= p.high, "{op} {bytes} {p:?}");
            prop_assert!(q.ns > p.ns && q.floor.ns > p.floor.ns);
        }
    }

    #[test]
    fn the_fits_are_recorded_and_say_where() {
        let cal = Calibration::default();
        assert!(cal.fits.len() >= 8);
        for f in &cal.fits {
            assert!(f.provenance == Provenance::Recorded && f.source.starts_with("reports/"), "{f:?}");
            assert!(f.fixed_ns >= 0.0 && f.efficiency > 0.0 && f.efficiency <= 1.0 && f.spread > 0.0, "{f:?}");
        }
        assert_eq!(cal.fit("matmul", "unheard_of", Bound::Memory).provenance, Provenance::Derived);
        assert_eq!(cal.fit("unheard_of", "x", Bound::Memory).provenance, Provenance::Assumed);
    }
}
