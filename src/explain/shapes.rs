//! A decode step predicted from a model's shapes alone, for what the plan cannot run yet: mixtures of experts, latent
//! attention, windows, several cards, weights and caches of 8 bits.

use crate::error::{Error, Result};
use crate::explain::forecast::{Forecast, Term};
use crate::explain::redo::{self, Limit, Part};
use crate::plan::dims::{Dims, Stored};
use crate::plan::serve::Server;
use crate::roofline::machine::Datasheet;
use crate::roofline::{Calibration, Ceilings};
use crate::units::Provenance;

/// Time of a small all-reduce among the cards of a host, ns: what published tensor-parallel models assume a message costs.
pub const ALL_REDUCE_NS: f64 = 8_000.0;
/// Without NVLink, GB/s in one direction of PCIe 4.
const PCIE_GBPS: f64 = 25.0;

/// What to predict.
#[derive(Clone, Debug)]
pub struct Request {
    pub dims: Dims,
    pub stored: Stored,
    /// Bytes of one element of the cache.
    pub kv_element: u64,
    pub tp: u64,
    pub batch: u64,
    pub ctx: u64,
}

struct Sum<'a> {
    ceilings: &'a Ceilings,
    calibration: &'a Calibration,
    forecast: Forecast,
    low: f64,
    high: f64,
    floor: f64,
    ns: f64,
}

impl Sum<'_> {
    /// `count` launches of an op that share bytes and operations.
    fn add(&mut self, name: &str, op: &str, count: u64, bytes: f64, flops: f64) {
        let n = count.max(1) as f64;
        let cost = redo::read((bytes / n) as u64, (flops / n) as u64);
        let p = self.calibration.predict(op, "", &cost, self.ceilings);
        let fit = self.calibration.fit(op, "");
        let part = Part::unknown(count, &cost, self.ceilings, &fit);
        let provenance = match fit.provenance {
            // The fits are of dense kernels of this project.
            Provenance::Recorded => Provenance::Derived,
            other => other,
        };
        let limit = part.limit();
        self.push(
            name,
            (count, part, limit),
            (bytes, flops),
            (p.floor.ns * n, p.ns * n),
            (p.low * n, p.high * n),
            provenance,
        );
    }

    fn push(
        &mut self,
        name: &str,
        (count, part, limit): (u64, Part, Limit),
        (bytes, flops): (f64, f64),
        (floor, ns): (f64, f64),
        (low, high): (f64, f64),
        provenance: Provenance,
    ) {
        self.floor += floor;
        self.ns += ns;
        self.low += low;
        self.high += high;
        self.forecast.bytes += bytes as u64;
        self.forecast.flops += flops as u64;
        self.forecast.terms.push(Term {
            name: name.into(),
            count,
            bytes: bytes as u64,
            flops: flops as u64,
            floor_ns: floor.round() as i64,
            ns: ns.round() as i64,
            bound: Some(limit),
            arithmetic: redo::line(&[part], ns),
            provenance,
        });
    }
}

/// Ops whose fit stands for a product of these weights.
fn op(stored: Stored, experts: bool) -> &'static str {
    match stored {
        Stored::W4a16 { .. } => "w4a16",
        Stored::Mxfp4 if experts => "w4a16",
        _ => "matmul",
    }
}

/// Predicts a step on each of `tp` cards, class by class.
///
/// # Errors
/// Cards that cannot share the layers; a batch or context of 0.
pub fn step(r: &Request, sheet: &Datasheet, ceilings: &Ceilings, calibration: &Calibration) -> Result<Forecast> {
    let (d, b) = (&r.dims, r.batch as f64);
    d.shared_by(r.tp)?;
    if r.batch == 0 || r.ctx == 0 || r.ctx > d.max_positions {
        return Err(Error::usage(format!(
            "batch {} at {} tokens: both at least 1, tokens at most {}",
            r.batch, r.ctx, d.max_positions
        )));
    }
    let t = d.tensors(r.tp);
    let forecast = Forecast {
        floor_ns: 0,
        predicted_ns: 0,
        low_ns: 0,
        high_ns: 0,
        bytes: 0,
        flops: 0,
        terms: Vec::new(),
        arithmetic: String::new(),
        line: String::new(),
        near: Vec::new(),
    };
    let mut sum = Sum { ceilings, calibration, forecast, low: 0.0, high: 0.0, floor: 0.0, ns: 0.0 };
    let product = |weights: u64| 2.0 * b * weights as f64;
    let dense = op(r.stored, false);
    // Queries, keys and values are one product; a latent attention has three before its output.
    let launches = if d.mla.is_some() { 4 } else { 2 };
    let bytes = r.stored.bytes(t.attention, false) as f64;
    sum.add("attention projections", dense, launches * d.layers, bytes, product(t.attention));
    if t.dense > 0 {
        let name = if d.moe.is_some() { "dense layers and shared experts" } else { "gate, up and down" };
        sum.add(name, dense, 2 * d.layers, r.stored.bytes(t.dense, false) as f64, product(t.dense));
    }
    if let Some(m) = d.moe {
        let share = d.coverage(r.batch);
        let name = format!("routed experts, {:.1} of {} reached", share * m.experts as f64, m.experts);
        let met = t.experts as f64 * m.top_k as f64 / m.experts as f64;
        let count = 2 * (d.layers - m.dense_layers);
        sum.add(&name, op(r.stored, true), count, r.stored.bytes(t.experts, true) as f64 * share, 2.0 * b * met);
    }
    let cached = (r.batch * d.kv_bytes(r.ctx, r.kv_element, r.tp)) as f64;
    let attention = b * (d.flops(r.ctx) - 2.0 * d.read(1)) / r.tp as f64;
    sum.add("attention over the cache", "paged_attention", d.layers, cached, attention);
    let small = 2.0 * t.small as f64;
    let floor = small / ceilings.read_gbps;
    // Norms, biases and routers are folded into their neighbours or lost in the launches counted above.
    let part = (0, Part::bytes(1, small, ceilings.read_gbps, 0.0), Limit::Memory);
    sum.push("norms, biases, routers", part, (small, 0.0), (floor, floor), (floor, 2.0 * floor), Provenance::Derived);
    sum.add("output head", "matmul", 1, 2.0 * t.head as f64, product(t.head));
    if r.tp > 1 {
        let payload = 2.0 * b * d.hidden as f64;
        let link = sheet.nvlink_gbps.map_or(PCIE_GBPS, |both| both / 2.0);
        let sent = 2.0 * (r.tp - 1) as f64 / r.tp as f64 * payload;
        let ring = sent / link;
        let (n, count) = (2.0 * d.layers as f64, 2 * d.layers);
        let ns = n * (ring + ALL_REDUCE_NS);
        let part = (count, Part::bytes(count, sent, link, ALL_REDUCE_NS), Limit::Link);
        sum.push("all-reduces", part, (0.0, 0.0), (n * ring, ns), (0.5 * ns, 2.0 * ns), Provenance::Assumed);
    }
    let mut f = sum.forecast;
    f.floor_ns = sum.floor.round() as i64;
    f.predicted_ns = sum.ns.round() as i64;
    f.low_ns = sum.low.max(sum.floor).round() as i64;
    f.high_ns = sum.high.round() as i64;
    f.terms.sort_by_key(|t| std::cmp::Reverse(t.ns));
    Ok(f)
}

/// The closed-form model of a server, with what a step costs beyond its bytes taken from the step's own prediction.
pub fn server(r: &Request, sheet: &Datasheet, ceilings: &Ceilings, calibration: &Calibration) -> Result<Server> {
    let d = &r.dims;
    let t = d.tensors(r.tp);
    let one = Request { batch: 1, ..r.clone() };
    let f = step(&one, sheet, ceilings, calibration)?;
    let reduce = f.terms.iter().find(|t| t.name == "all-reduces").map_or(0.0, |t| t.ns as f64);
    let share = d.coverage(1);
    let experts = r.stored.bytes(t.experts, true) as f64 * share;
    let weights = r.stored.bytes(t.attention, false) as f64
        + r.stored.bytes(t.dense, false) as f64
        + experts
        + 2.0 * (t.small + t.head) as f64;
    let kv = d.kv_bytes(r.ctx, r.kv_element, r.tp) as f64 / r.ctx as f64;
    let fixed = (f.predicted_ns as f64 - reduce - (weights + kv * r.ctx as f64) / ceilings.read_gbps).max(0.0);
    Ok(Server {
        weight_bytes: weights,
        kv_bytes_per_token: kv,
        active_params: d.read(1),
        flops_per_context_token: (d.flops(r.ctx) - 2.0 * d.read(1)) / r.ctx as f64,
        hidden: d.hidden as f64,
        layers: d.layers as f64,
        element: weights / (d.read(1) / r.tp as f64),
        bandwidth: ceilings.read_gbps * 1e9,
        rate: ceilings.bf16_sustained_tflops * 1e12,
        fixed: fixed / 1e9,
        tp: r.tp as f64,
        all_reduce: reduce / 1e9 / (2.0 * d.layers as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::dims::MODELS;
    use crate::roofline::machine;
    use proptest::prelude::*;

    fn request(model: &str) -> Request {
        let dims = Dims::find(model).unwrap();
        Request { dims, stored: Stored::Bf16, kv_element: 2, tp: 1, batch: 1, ctx: 2048 }
    }

    fn on(gpu: &str, r: &Request) -> Result<Forecast> {
        let (_, ceilings) = crate::explain::forecast::card(gpu).unwrap();
        step(r, &machine::find(gpu).unwrap(), &ceilings, &Calibration::default())
    }

    #[test]
    fn a_dense_model_costs_what_its_plan_does() {
        use crate::plan::decode::{self, Options};
        let (chip, ceilings) = crate::explain::forecast::card("h200").unwrap();
        let model = crate::plan::model::Model::find("llama-3-8b").unwrap();
        let (plan, _) = decode::decode(&model, &Options::uniform(1, 2048), &chip).unwrap();
        let exact = crate::explain::forecast::plan(&plan, &chip, &ceilings, &Calibration::default()).unwrap();
        let shapes = on("h200", &request("llama-3-8b")).unwrap();
        let near = |a: i64, b: i64, by: f64| (a as f64 / b as f64 - 1.0).abs() < by;
        assert!(near(shapes.floor_ns, exact.floor_ns, 0.01) && near(shapes.predicted_ns, exact.predicted_ns, 0.05));
    }

    #[test]
    fn experts_are_read_as_a_batch_reaches_them() {
        let at = |batch| on("h200", &Request { batch, ..request("qwen3-30b-a3b") }).unwrap();
        let (one, many) = (at(1), at(64));
        assert!(many.bytes > 8 * one.bytes, "{} {}", one.bytes, many.bytes);
        assert!(many.terms.iter().any(|t| t.name.contains("of 128 reached")));
        // Twice the cards do not halve a step: the all-reduces stay.
        let two = on("h200", &Request { tp: 2, ..request("llama-3-70b") }).unwrap();
        let whole = on("h200", &request("llama-3-70b")).unwrap();
        assert!(two.predicted_ns > whole.predicted_ns / 2 && two.predicted_ns < whole.predicted_ns);
        assert!(on("h200", &Request { tp: 3, ..request("llama-3-70b") }).is_err());
    }

    proptest! {
        #[test]
        fn every_model_is_monotone_and_above_its_floor(i in 0..MODELS.len(), batch in 1u64..128, ctx in 16u64..4_000) {
            let r = Request { batch, ctx, ..request(&MODELS[i].name) };
            let (a, b, c) = (
                on("h100", &r).unwrap(),
                on("h100", &Request { batch: batch + 1, ..r.clone() }).unwrap(),
                on("h100", &Request { ctx: ctx + 16, ..r.clone() }).unwrap(),
            );
            prop_assert!(a.floor_ns <= a.low_ns && a.low_ns <= a.predicted_ns && a.predicted_ns <= a.high_ns);
            prop_assert!(b.floor_ns >= a.floor_ns && c.floor_ns >= a.floor_ns);
            prop_assert!(b.predicted_ns >= a.predicted_ns && c.predicted_ns >= a.predicted_ns);
        }
    }
}
