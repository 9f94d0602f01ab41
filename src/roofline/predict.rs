//! The calibrated estimate: what a kernel should really cost, with an interval, beside the floor that physics sets.
//!
//! A line for each op and variant, t = t0 + floor / efficiency + uneven · u + turns · v: t0 is the ramp, drain and edge that
//! every launch pays; efficiency the share of the ceiling that a long run reaches; `uneven` what the busiest multiprocessor
//! has to move beyond an even share; `turns` the blocks that it runs one after the other. What is left (tiles, a heuristic's
//! steps, the pipeline's depth) is a factor from the measured shapes nearby ([`super::nearby`]). The fits in use are data,
//! `data/calibration-h200.json`, made by [`super::calibrate`] from committed runs of `bench`.

use super::coordinates::{self, Kernel, Place};
use super::nearby::{Field, Neighbour, Scale};
use super::{Ceilings, Floor};
use crate::kernels;
use crate::op::{Chip, Cost, Shape};
use crate::units::Provenance;
use serde::{Deserialize, Serialize};
use std::sync::{LazyLock, OnceLock};

/// The line of one variant on one card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    pub op: String,
    /// Empty: the best variant of each shape.
    #[serde(default)]
    pub variant: String,
    /// Fixed time of a launch inside a graph, ns.
    pub fixed_ns: f64,
    /// Share of the ceiling reached by the part that grows with size.
    pub efficiency: f64,
    /// Share of its uneven part that the busiest multiprocessor adds to the time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uneven: f64,
    /// What each block adds that the busiest multiprocessor runs in turn, ns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turn_ns: f64,
    /// Half-width of the 80 % interval of the line alone, relative.
    pub spread: f64,
    /// Shapes that it was made from.
    #[serde(default)]
    pub n: usize,
    pub provenance: Provenance,
    pub source: String,
}

// The signature that serde asks for.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(v: &f64) -> bool {
    *v == 0.0
}

/// What a launch gives a line to work with, ns and counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    pub floor_ns: f64,
    /// Time that the busiest multiprocessor needs beyond an even share of the traffic, at an even share of the bandwidth.
    pub uneven_ns: f64,
    /// Blocks that the busiest multiprocessor runs one after the other.
    pub turns: f64,
}

impl Load {
    /// On a chip of so many multiprocessors.
    pub fn of(cost: &Cost, floor: &Floor, kernels: &[Kernel], sms: u64) -> Self {
        let Some(widest) = coordinates::widest(kernels) else {
            return Self { floor_ns: floor.ns, ..Self::default() };
        };
        let turns = widest.turns(sms) as f64;
        let busiest = floor.memory_ns * turns * sms as f64 / widest.blocks.max(1) as f64;
        // Nothing to move is nothing uneven.
        let uneven_ns = if cost.bytes() > 0 { (busiest - floor.memory_ns).max(0.0) } else { 0.0 };
        Self { floor_ns: floor.ns, uneven_ns, turns }
    }
}

impl Fit {
    /// The line's time, ns.
    pub fn line(&self, load: &Load) -> f64 {
        self.fixed_ns + load.floor_ns / self.efficiency + self.uneven * load.uneven_ns + self.turn_ns * load.turns
    }
}

/// How the neighbours did when each was asked of the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// |estimate − measured| / measured, of all and the largest.
    pub median: f64,
    pub worst: f64,
    /// Share inside the 80 % interval before it was widened.
    pub inside: f64,
}

/// The measured shapes of an op around its lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbourhood {
    pub op: String,
    pub scale: Scale,
    /// What intervals are multiplied with, so that four of five neighbours lie in theirs when they are left out.
    pub widen: f64,
    pub left_out: LeftOut,
    pub neighbours: Vec<Neighbour>,
    #[serde(skip)]
    pub(super) ready: Ready,
}

/// The neighbours ready to be asked, made when they are first asked.
#[derive(Debug, Default)]
pub struct Ready(OnceLock<Option<Field>>);

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

impl Neighbourhood {
    /// None where a neighbour's shape is none of the op's.
    pub(super) fn field(&self) -> Option<&Field> {
        let make = || {
            let op = kernels::op(&self.op).ok()?;
            let place = |n: &Neighbour| {
                let shape = Shape::parse(&n.shape).ok()?;
                let cost = op.cost(&shape).ok()?;
                Some(Place::launched(&self.op, &n.variant, &shape, &cost, &n.kernels, u64::from(Chip::H200.sms)))
            };
            let places = self.neighbours.iter().map(place).collect::<Option<Vec<_>>>()?;
            let logs: Vec<f64> = self.neighbours.iter().map(|n| n.ratio.max(1e-9).ln()).collect();
            Some(Field::new(&places, &logs, self.scale.clone()))
        };
        self.ready.0.get_or_init(make).as_ref()
    }
}

/// Standard deviations on each side of an 80 % interval.
pub const DEVIATIONS: f64 = 1.28;
/// No prediction is trusted closer than this.
pub const CLOSEST: f64 = 0.05;
/// Interval of a line that is not the variant's own.
const FOREIGN: f64 = 0.4;

/// The fits in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    pub fits: Vec<Fit>,
    #[serde(default)]
    pub nearby: Vec<Neighbourhood>,
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

/// A measured shape that a prediction leans on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Near {
    pub variant: String,
    pub shape: String,
    pub ratio: f64,
    /// Lengths away.
    pub distance: f64,
}

/// A prediction with all that it is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    pub prediction: Prediction,
    pub fit: Fit,
    pub load: Load,
    /// What the neighbours make of the line.
    pub factor: f64,
    /// The three nearest of them.
    pub near: Vec<Near>,
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

    fn own(&self, op: &str, variant: &str) -> Option<&Fit> {
        self.fits.iter().find(|f| f.op == op && f.variant == variant)
    }

    /// The line of a variant; else that of the op's best variants, with a wide interval; else 2 µs a launch at 90 % of
    /// the ceiling.
    pub fn fit(&self, op: &str, variant: &str) -> Fit {
        let best = || {
            let fit = self.own(op, "")?.clone();
            let source = format!("{} (best variants, not {variant})", fit.source);
            Some(Fit { spread: fit.spread.max(FOREIGN), provenance: Provenance::Derived, source, ..fit })
        };
        self.own(op, variant).cloned().or_else(best).unwrap_or_else(|| Fit {
            op: op.into(),
            variant: variant.into(),
            fixed_ns: 2_000.0,
            efficiency: 0.9,
            uneven: 0.0,
            turn_ns: 0.0,
            spread: 0.5,
            n: 0,
            provenance: Provenance::Assumed,
            source: "no run of this op yet".into(),
        })
    }

    /// Floor and calibrated estimate of one launch of a variant at a shape on a chip.
    pub fn estimate(
        &self,
        op: &str,
        variant: &str,
        shape: &Shape,
        cost: &Cost,
        (chip, ceilings): (&Chip, &Ceilings),
    ) -> Estimate {
        let launched = kernels::op(op).and_then(|op| coordinates::kernels(op, variant, shape, chip));
        let launched = launched.unwrap_or_default();
        let floor = ceilings.floor(cost);
        let (fit, load) = (self.fit(op, variant), Load::of(cost, &floor, &launched, u64::from(chip.sms)));
        let (mut factor, mut spread, mut near) = (1.0, fit.spread, Vec::new());
        let around = self.nearby.iter().find(|n| n.op == op);
        if let Some((around, field)) = around.and_then(|n| Some((n, n.field()?))) {
            let place = Place::launched(op, variant, shape, cost, &launched, u64::from(chip.sms));
            let (mean, deviation) = field.at(&place);
            factor = mean.exp();
            spread = DEVIATIONS * around.widen * deviation;
            // Another variant's line says less than its neighbours believe.
            if fit.provenance != Provenance::Recorded {
                spread = spread.max(fit.spread);
            }
            near = field
                .nearest(&place, 3)
                .into_iter()
                .map(|(i, distance)| {
                    let Neighbour { variant, shape, ratio, .. } = around.neighbours[i].clone();
                    Near { variant, shape, ratio, distance }
                })
                .collect();
        }
        let spread = spread.clamp(CLOSEST, 0.95);
        let ns = (fit.line(&load) * factor).max(floor.ns);
        let prediction = Prediction { floor, ns, low: (ns * (1.0 - spread)).max(floor.ns), high: ns * (1.0 + spread) };
        Estimate { prediction, fit, load, factor, near }
    }

    /// The same where no shape is known, from the floor's part of the line alone.
    pub fn predict(&self, op: &str, variant: &str, cost: &Cost, ceilings: &Ceilings) -> Prediction {
        let floor = ceilings.floor(cost);
        let fit = self.fit(op, variant);
        let ns = fit.fixed_ns + fit.turn_ns + floor.ns / fit.efficiency;
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
        for n in &cal.nearby {
            assert!(n.field().is_some() && n.widen >= 1.0, "{}", n.op);
        }
        for f in &cal.fits {
            assert!(f.provenance == Provenance::Recorded && f.source.starts_with("reports/"), "{f:?}");
            assert!(f.fixed_ns >= 0.0 && f.efficiency > 0.0 && f.efficiency <= 1.0 && f.spread > 0.0, "{f:?}");
        }
        assert_eq!(cal.fit("matmul", "unheard_of").provenance, Provenance::Derived);
        assert_eq!(cal.fit("unheard_of", "x").provenance, Provenance::Assumed);
    }
}
