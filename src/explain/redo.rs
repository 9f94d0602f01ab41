//! The arithmetic of a prediction as a line that a reader can redo: `32 × (50.33 MB / 4581 GB/s / 0.95 + 1.56 µs)`.
//!
//! Every number is shown with as many digits as the line needs to give the sum that is printed beside it, and no more.

use crate::op::{Cost, Traffic, Unit};
use crate::roofline::ceilings::Bound;
use crate::roofline::predict::{Fit, Load};
use crate::roofline::{Ceilings, Floor};
use serde::Serialize;

/// What a term's time is mostly made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    Memory,
    Compute,
    /// The time that every launch pays, whatever its size.
    Launch,
    /// Messages between cards.
    Link,
}

impl Limit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Launch => "launch",
            Self::Link => "link",
        }
    }
}

/// An amount at a rate: MB at GB/s, or GFLOP at TFLOP/s; either way the quotient is in ms.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Work {
    amount: f64,
    rate: f64,
    compute: bool,
}

/// `count` launches alike: each (work / share + uneven + turns + fixed) × factor.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    count: u64,
    work: Vec<Work>,
    efficiency: f64,
    /// A number and the ns that each of it takes: what the busiest multiprocessor has beyond its share, its blocks in turn.
    beside: Vec<(f64, f64)>,
    fixed_ns: f64,
    factor: f64,
}

impl Part {
    /// Launches of a cost, as [`crate::roofline::Calibration::estimate`] adds them up.
    pub fn launches(count: u64, cost: &Cost, ceilings: &Ceilings, fit: &Fit, load: &Load, factor: f64) -> Self {
        let floor = ceilings.floor(cost);
        let work = work(cost, &floor, ceilings);
        // Nothing is predicted faster than its floor.
        if fit.line(load) * factor < floor.ns {
            return Self { count, work, efficiency: 1.0, beside: Vec::new(), fixed_ns: 0.0, factor: 1.0 };
        }
        let beside = [(fit.uneven, load.uneven_ns), (load.turns, fit.turn_ns)];
        let beside = beside.into_iter().filter(|(a, b)| a * b > 0.0).collect();
        Self { count, work, efficiency: fit.efficiency, beside, fixed_ns: fit.fixed_ns, factor }
    }

    /// Launches of which only the cost is known.
    pub fn unknown(count: u64, cost: &Cost, ceilings: &Ceilings, fit: &Fit) -> Self {
        let load = Load { floor_ns: ceilings.floor(cost).ns, uneven_ns: 0.0, turns: 1.0 };
        Self::launches(count, cost, ceilings, fit, &load, 1.0)
    }

    /// Bytes at a rate in GB/s, each time with a fixed time.
    pub fn bytes(count: u64, bytes: f64, gbps: f64, fixed_ns: f64) -> Self {
        let work = vec![Work { amount: bytes / 1e6, rate: gbps, compute: false }];
        Self { count, work, efficiency: 1.0, beside: Vec::new(), fixed_ns, factor: 1.0 }
    }

    /// What most of its time is.
    pub fn limit(&self) -> Limit {
        let work: f64 = self.work.iter().map(|w| 1e6 * w.amount / w.rate).sum();
        match self.work.first() {
            _ if self.fixed_ns > work / self.efficiency + self.beside.iter().map(|(n, ns)| n * ns).sum::<f64>() => {
                Limit::Launch
            }
            Some(w) if w.compute => Limit::Compute,
            _ => Limit::Memory,
        }
    }

    /// The time with its numbers cut to so many digits, ns.
    fn ns(&self, digits: usize) -> f64 {
        let cut = |v: f64| significant(v, digits).parse::<f64>().unwrap_or(v);
        let work: f64 = self.work.iter().map(|w| cut(w.amount) / cut(w.rate) * 1e6).sum();
        let beside: f64 = self.beside.iter().map(|(n, ns)| cut(*n) * 1e3 * cut(ns / 1e3)).sum();
        self.count as f64 * (work / cut(self.efficiency) + beside + 1e3 * cut(self.fixed_ns / 1e3)) * cut(self.factor)
    }

    fn text(&self, digits: usize) -> String {
        let n = |v: f64| significant(v, digits);
        let one = |w: &Work| {
            let (unit, per) = if w.compute { ("GFLOP", "TFLOP/s") } else { ("MB", "GB/s") };
            format!("{} {unit} / {} {per}", n(w.amount), n(w.rate))
        };
        let mut text = self.work.iter().map(one).collect::<Vec<_>>().join(" + ");
        if self.efficiency != 1.0 {
            let sum = if self.work.len() > 1 { format!("({text})") } else { text };
            text = format!("{sum} / {}", n(self.efficiency));
        }
        for (count, ns) in &self.beside {
            text += &format!(" + {} × {} µs", n(*count), n(ns / 1e3));
        }
        if self.fixed_ns > 0.0 {
            text += &format!(" + {} µs", n(self.fixed_ns / 1e3));
        }
        let factor = if self.factor == 1.0 { String::new() } else { format!(" × {}", n(self.factor)) };
        match (self.count, factor.is_empty()) {
            (0 | 1, true) => text,
            (0 | 1, false) => format!("({text}){factor}"),
            (count, _) => format!("{count} × ({text}){factor}"),
        }
    }
}

/// The work that sets the floor: traffic as pairs of reads and writes and what is left, or arithmetic.
fn work(cost: &Cost, floor: &Floor, ceilings: &Ceilings) -> Vec<Work> {
    if floor.bound() == Bound::Compute {
        let rate = ceilings.rate(cost.unit);
        return vec![Work { amount: cost.flops as f64 / 1e9, rate, compute: true }];
    }
    let (read, write) = (cost.bytes_of(Traffic::Read), cost.bytes_of(Traffic::Write));
    let (rest, rate) =
        if read >= write { (read - write, ceilings.read_gbps) } else { (write - read, ceilings.write_gbps) };
    [(2 * read.min(write), ceilings.copy_gbps), (rest, rate)]
        .into_iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, rate)| Work { amount: bytes as f64 / 1e6, rate, compute: false })
        .collect()
}

/// Digits of the sum.
const SUM: usize = 5;

/// The arithmetic of a sum of `ns`, and the sum itself in µs.
pub fn line(parts: &[Part], ns: f64) -> String {
    let sum = significant(ns / 1e3, SUM);
    let gives = |digits: &usize| {
        let ns: f64 = parts.iter().map(|p| p.ns(*digits)).sum();
        significant(ns / 1e3, SUM) == sum
    };
    let digits = (3..=14).find(gives).unwrap_or(14);
    let text: Vec<String> = parts.iter().map(|p| p.text(digits)).collect();
    format!("{} = {sum} µs", text.join(" + "))
}

/// So many significant digits, no zeros at the end; whole numbers are never cut.
fn significant(v: f64, digits: usize) -> String {
    let size = if v == 0.0 { 0 } else { v.abs().log10().floor() as i32 };
    let decimals = (digits as i32 - 1 - size).clamp(0, 15) as usize;
    let text = format!("{v:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// A cost of bytes read and tensor operations, for what has no op of its own.
pub fn read(bytes: u64, flops: u64) -> Cost {
    Cost::new(Unit::Tensor16, flops).read("bytes", bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roofline::Calibration;
    use crate::units::Provenance;

    #[test]
    fn the_line_of_the_docs() {
        let fit = Fit {
            efficiency: 0.95,
            fixed_ns: 1_560.0,
            provenance: Provenance::Recorded,
            ..Calibration { fits: Vec::new(), nearby: Vec::new() }.fit("matmul", "gemv")
        };
        let c = Ceilings::h200();
        let part = Part::unknown(32, &read(50_331_648, 2 * 25_165_824), &c, &fit);
        let ns = 32.0 * (50_331_648.0 / 4_581.0 / 0.95 + 1_560.0);
        assert_eq!(part.limit(), Limit::Memory);
        assert_eq!(line(&[part], ns), "32 × (50.332 MB / 4581 GB/s / 0.95 + 1.56 µs) = 420.01 µs");
        let load = Load { floor_ns: 1.8, uneven_ns: 10.0, turns: 1.0 };
        let small = Part::launches(1, &read(8_192, 0), &c, &fit, &load, 1.1);
        assert_eq!(small.limit(), Limit::Launch);
        let copy = Cost::new(Unit::Fp32, 10).read("in", 4_000_000).write("out", 3_000_000);
        let text = Part::unknown(2, &copy, &c, &fit).text(4);
        assert_eq!(text, "2 × ((6 MB / 4283 GB/s + 1 MB / 4581 GB/s) / 0.95 + 1.56 µs)");
        let uneven = Fit { uneven: 0.5, turn_ns: 250.0, ..fit };
        let load = Load { floor_ns: c.floor(&copy).ns, uneven_ns: 1_200.0, turns: 3.0 };
        let text = Part::launches(1, &copy, &c, &uneven, &load, 1.0).text(4);
        assert!(text.ends_with(" / 0.95 + 0.5 × 1.2 µs + 3 × 0.25 µs + 1.56 µs"), "{text}");
    }
}
