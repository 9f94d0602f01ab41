//! A prediction before any run: floor, calibrated estimate with its interval, and the terms that make it up.

use crate::error::Result;
use crate::explain::occupancy;
use crate::explain::redo::{self, Limit, Part};
use crate::kernels;
use crate::op::{Chip, Cost, Op, Shape, Traffic};
use crate::plan::Plan;
use crate::roofline::ceilings::Bound;
use crate::roofline::machine;
use crate::roofline::predict::{Estimate, Near};
use crate::roofline::{Calibration, Ceilings};
use crate::run::step::recording;
use crate::units::Provenance;
use serde::Serialize;

/// One part of a prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Term {
    pub name: String,
    /// Nodes that it sums.
    pub count: u64,
    pub bytes: u64,
    pub flops: u64,
    pub floor_ns: i64,
    pub ns: i64,
    /// What most of its time is; absent where a term is a share of others.
    pub bound: Option<Limit>,
    /// The sum that gives `ns`; empty where a term is a part of one sum.
    pub arithmetic: String,
    pub provenance: Provenance,
}

/// The prediction of a kernel or of a step. Times in ns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    pub floor_ns: i64,
    pub predicted_ns: i64,
    /// 80 % interval; a step's takes its nodes to miss together.
    pub low_ns: i64,
    pub high_ns: i64,
    pub bytes: u64,
    pub flops: u64,
    pub terms: Vec<Term>,
    /// The one sum of a kernel's terms; empty for a step, whose terms have their own.
    pub arithmetic: String,
    /// Where a kernel's line is from, and the measured shapes that its last term leans on most.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub line: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<Near>,
}

/// The chip and the rates to predict with, for a card by its key: the recorded ones for the H200, else its datasheet's
/// scaled by the shares that the H200 reaches.
pub fn card(key: &str) -> Result<(Chip, Ceilings)> {
    let sheet = machine::find(key)?;
    if sheet.key == "h200" {
        return Ok((Chip::H200, Ceilings::h200()));
    }
    let shared_optin = occupancy::limits(sheet.sm)?.shared_optin;
    let chip = Chip { sm: sheet.sm, sms: sheet.sms, l2_bytes: sheet.l2_mib << 20, shared_optin };
    Ok((chip, sheet.expected()))
}

fn round(ns: f64) -> i64 {
    ns.round() as i64
}

/// One launch of an op: its traffic part by part, its arithmetic, and what the calibration adds. Traffic and arithmetic
/// overlap, so the shorter of the two counts for nothing and its terms stand with the time that they hide.
pub fn kernel(
    op: &dyn Op,
    variant: &str,
    shape: &Shape,
    (chip, ceilings): (&Chip, &Ceilings),
    calibration: &Calibration,
) -> Result<Forecast> {
    let cost: Cost = op.cost(shape)?;
    let estimate = calibration.estimate(op.name(), variant, shape, &cost, (chip, ceilings));
    let Estimate { prediction: p, fit, load, factor, near } = estimate;
    let part = Part::launches(1, &cost, ceilings, &fit, &load, factor);
    let total = cost.bytes().max(1) as f64;
    let memory = p.floor.bound() == Bound::Memory;
    let term = |name: String, bytes, flops, floor: f64, ns: f64, bound, provenance| Term {
        name,
        count: 1,
        bytes,
        flops,
        floor_ns: round(floor),
        ns: round(ns),
        bound,
        arithmetic: String::new(),
        provenance,
    };
    let of_floor = if memory { Limit::Memory } else { Limit::Compute };
    let mut terms: Vec<Term> = cost
        .terms
        .iter()
        .map(|t| {
            let way = if t.traffic == Traffic::Read { "read" } else { "write" };
            let floor = p.floor.memory_ns * t.bytes as f64 / total;
            let ns = if memory { floor } else { 0.0 };
            term(format!("{way} {}", t.name), t.bytes, 0, floor, ns, Some(Limit::Memory), ceilings.provenance)
        })
        .collect();
    let arithmetic = p.floor.compute_ns;
    let counted = if memory { 0.0 } else { arithmetic };
    let compute = Some(Limit::Compute);
    terms.push(term("arithmetic".into(), 0, cost.flops, arithmetic, counted, compute, ceilings.provenance));
    let below = p.floor.ns / fit.efficiency - p.floor.ns;
    let share = format!("at {:.0} % of the ceiling", 100.0 * fit.efficiency);
    terms.push(term(share, 0, 0, 0.0, below, Some(of_floor), fit.provenance));
    let uneven = fit.uneven * load.uneven_ns;
    if uneven > 0.0 {
        let name = "the busiest multiprocessor's share".into();
        terms.push(term(name, 0, 0, 0.0, uneven, Some(of_floor), fit.provenance));
    }
    let turns = fit.turn_ns * load.turns;
    if turns > 0.0 {
        let name = format!("{} blocks in turn", load.turns);
        terms.push(term(name, 0, 0, 0.0, turns, Some(Limit::Launch), fit.provenance));
    }
    terms.push(term("launch, ramp and drain".into(), 0, 0, 0.0, fit.fixed_ns, Some(Limit::Launch), fit.provenance));
    if !near.is_empty() {
        let rest = p.ns - fit.line(&load);
        terms.push(term("as the measured shapes nearby".into(), 0, 0, 0.0, rest, None, fit.provenance));
    }
    Ok(Forecast {
        floor_ns: round(p.floor.ns),
        predicted_ns: round(p.ns),
        low_ns: round(p.low),
        high_ns: round(p.high),
        bytes: cost.bytes(),
        flops: cost.flops,
        terms,
        arithmetic: redo::line(&[part], p.ns),
        line: fit.source,
        near,
    })
}

/// A whole plan: one term for each class of nodes, the longest first.
pub fn plan(plan: &Plan, chip: &Chip, ceilings: &Ceilings, calibration: &Calibration) -> Result<Forecast> {
    let nodes = recording::predict_nodes(plan, chip, ceilings, calibration)?;
    let sum = |of: fn(&recording::NodeRecord) -> f64| round(nodes.iter().map(of).sum());
    let mut terms: Vec<Term> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for node in &nodes {
        if !names.contains(&node.class.as_str()) {
            names.push(&node.class);
        }
    }
    for name in names {
        let of: Vec<_> = nodes.iter().filter(|n| n.class == name).collect();
        // Launches of one shape by one variant are one part of the class's sum.
        let mut alike: Vec<(&recording::NodeRecord, &Shape, u64)> = Vec::new();
        for (node, planned) in nodes.iter().zip(&plan.nodes).filter(|(n, _)| n.class == name) {
            let same = |(n, ..): &&mut (&recording::NodeRecord, &Shape, u64)| {
                (&n.op, &n.variant, &n.shape) == (&node.op, &node.variant, &node.shape)
            };
            match alike.iter_mut().find(same) {
                Some((.., count)) => *count += 1,
                None => alike.push((node, &planned.shape, 1)),
            }
        }
        let mut parts = Vec::new();
        for (node, shape, count) in alike {
            let cost = kernels::op(&node.op)?.cost(shape)?;
            let e = calibration.estimate(&node.op, &node.variant, shape, &cost, (chip, ceilings));
            parts.push(Part::launches(count, &cost, ceilings, &e.fit, &e.load, e.factor));
        }
        let ns: f64 = of.iter().map(|n| n.predicted_ns).sum();
        terms.push(Term {
            name: name.into(),
            count: of.len() as u64,
            bytes: of.iter().map(|n| n.bytes).sum(),
            flops: of.iter().map(|n| n.flops).sum(),
            floor_ns: round(of.iter().map(|n| n.floor_ns).sum()),
            ns: round(ns),
            bound: parts.first().map(Part::limit),
            arithmetic: redo::line(&parts, ns),
            provenance: calibration.fit(&of[0].op, &of[0].variant).provenance,
        });
    }
    terms.sort_by_key(|t| std::cmp::Reverse(t.ns));
    Ok(Forecast {
        floor_ns: sum(|n| n.floor_ns),
        predicted_ns: sum(|n| n.predicted_ns),
        low_ns: sum(|n| n.low_ns),
        high_ns: sum(|n| n.high_ns),
        bytes: nodes.iter().map(|n| n.bytes).sum(),
        flops: nodes.iter().map(|n| n.flops).sum(),
        terms,
        arithmetic: String::new(),
        line: String::new(),
        near: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels;
    use crate::plan::decode::{self, Options};
    use crate::plan::model::Model;

    #[test]
    fn a_kernels_terms_add_up() {
        let (chip, ceilings) = card("h200").unwrap();
        for op in kernels::OPS {
            for shape in op.bench_shapes() {
                let f =
                    kernel(*op, op.choose(&shape, &chip), &shape, (&chip, &ceilings), &Calibration::default()).unwrap();
                let sum: i64 = f.terms.iter().map(|t| t.ns).sum();
                assert!((sum - f.predicted_ns).abs() <= f.terms.len() as i64, "{} {shape}: {f:?}", op.name());
                assert!(f.floor_ns <= f.low_ns && f.low_ns <= f.predicted_ns && f.predicted_ns <= f.high_ns);
                assert_eq!(f.bytes, f.terms.iter().map(|t| t.bytes).sum::<u64>());
            }
        }
    }

    #[test]
    fn a_step_reads_at_least_its_weights_and_slower_cards_take_longer() {
        let model = Model::find("llama-3-8b").unwrap();
        let on = |key: &str| {
            let (chip, ceilings) = card(key).unwrap();
            let (p, _) = decode::decode(&model, &Options::uniform(1, 2048), &chip).unwrap();
            plan(&p, &chip, &ceilings, &Calibration::default()).unwrap()
        };
        let (h200, a100) = (on("h200"), on("a100-80"));
        // 7.505e9 parameters are read by every step, and 2047 cached tokens of 131,072 bytes.
        assert!(h200.bytes >= 2 * 7_504_924_672 + 2047 * 131_072, "{}", h200.bytes);
        assert!(a100.floor_ns > 2 * h200.floor_ns && h200.predicted_ns >= h200.floor_ns);
        let sum: i64 = h200.terms.iter().map(|t| t.ns).sum();
        assert!((sum - h200.predicted_ns).abs() <= h200.terms.len() as i64);
        assert!(card("abacus").is_err());
    }
}
