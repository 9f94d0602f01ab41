//! Fits from runs of `bench`: t = t0 + floor / efficiency by least squares of the relative error, for each variant and
//! bound, and for the best variant of each shape; each with the variant's shapes beside it, for their neighbours.

use super::ceilings::Bound;
use super::nearby::{self, Neighbour};
use super::predict::{CLOSEST, Calibration, DEVIATIONS, Fit, Ready};
use crate::error::{Error, Result};
use crate::units::Provenance;
use serde_json::Value;
use std::collections::BTreeMap;

/// Fewest shapes that give two numbers.
const FEWEST: usize = 2;

/// One measured shape, ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub op: String,
    pub variant: String,
    /// Without the row of the configuration table.
    pub shape: String,
    pub bound: Bound,
    pub floor_ns: f64,
    pub ns: f64,
}

/// Points of a file that `bench --json` wrote; rows of other libraries are left out.
///
/// # Errors
/// A file without such rows.
pub fn points(name: &str, text: &str) -> Result<Vec<Point>> {
    let rows = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let point = |r: Value| {
        let shape: Vec<&str> = r["shape"].as_str()?.split(',').filter(|p| !p.starts_with("cfg=")).collect();
        Some(Point {
            op: r["op"].as_str()?.into(),
            variant: r["variant"].as_str()?.into(),
            shape: shape.join(","),
            bound: if r["bound"] == "compute" { Bound::Compute } else { Bound::Memory },
            floor_ns: r["floor_ns"].as_f64()?,
            ns: r["ns"].as_f64()?,
        })
    };
    let found: Vec<Point> =
        rows.filter(|r| r.get("peer").is_none_or(Value::is_null) && r["ok"] != false).filter_map(point).collect();
    if found.is_empty() {
        return Err(Error::usage(format!("{name} holds no rows of `bench`")).try_next("workbench bench OP --json FILE"));
    }
    Ok(found)
}

/// The fits of all points, each with `source`: of every variant with at least two shapes, and of the best variants.
pub fn calibrate(points: &[Point], source: &str) -> Calibration {
    // The best configuration of a shape is what a heuristic would pick.
    let mut best: BTreeMap<(&str, &str, u8, &str), &Point> = BTreeMap::new();
    for p in points {
        for variant in [p.variant.as_str(), ""] {
            let slot = best.entry((&p.op, variant, p.bound as u8, &p.shape)).or_insert(p);
            if p.ns < slot.ns {
                *slot = p;
            }
        }
    }
    let mut groups: BTreeMap<(&str, &str, u8), Vec<&Point>> = BTreeMap::new();
    for ((op, variant, bound, _), p) in &best {
        groups.entry((op, variant, *bound)).or_default().push(p);
    }
    let fits = groups.iter().filter(|(_, g)| g.len() >= FEWEST).map(|((op, variant, _), g)| {
        let (op, variant) = (*op, *variant);
        let told = if variant.is_empty() { fewest_rows(g) } else { g.clone() };
        let (fixed_ns, efficiency) = line(&told);
        let (fixed_ns, efficiency) = ((10.0 * fixed_ns).round() / 10.0, (1e6 * efficiency).round().max(1.0) / 1e6);
        let all = groups.iter().filter(|((o, v, _), _)| (*o, *v) == (op, variant)).flat_map(|(_, g)| g);
        let ratio = |p: &Point| (1e4 * p.ns / (fixed_ns + p.floor_ns / efficiency)).round() / 1e4;
        let neighbours: Vec<Neighbour> = all.map(|p| Neighbour { shape: p.shape.clone(), ratio: ratio(p) }).collect();
        Fit {
            op: op.into(),
            variant: variant.into(),
            bound: Some(g[0].bound),
            fixed_ns,
            efficiency,
            spread: (1e3 * spread(&told, fixed_ns, efficiency)).round() / 1e3,
            n: told.len(),
            provenance: Provenance::Recorded,
            source: source.into(),
            length: nearby::best_length(op, &neighbours),
            neighbours,
            ready: Ready::default(),
        }
    });
    Calibration { fits: fits.collect() }
}

/// The points with the fewest rows, where there are enough of them: the line of an op's best variants is asked where no shape
/// is known, of a decode step's products; what more rows cost is the neighbours' to say.
fn fewest_rows<'a>(points: &[&'a Point]) -> Vec<&'a Point> {
    let rows = |p: &Point| p.shape.split(',').find_map(|part| part.strip_prefix("m=")?.parse::<u64>().ok());
    let least = points.iter().filter_map(|p| rows(p)).min();
    let few: Vec<&Point> = points.iter().copied().filter(|p| p.bound == Bound::Memory && rows(p) == least).collect();
    if least.is_some() && few.len() > FEWEST { few } else { points.to_vec() }
}

/// t0 at or above 0 and efficiency at or below 1 with the least sum of ((t0 + f / e) / t − 1)².
fn line(points: &[&Point]) -> (f64, f64) {
    let sums = points.iter().fold([0.0; 5], |s, p| {
        let (x, y) = (1.0 / p.ns, p.floor_ns / p.ns);
        [s[0] + x * x, s[1] + x * y, s[2] + y * y, s[3] + x, s[4] + y]
    });
    let [xx, xy, yy, x, y] = sums;
    let det = xx * yy - xy * xy;
    let free =
        if det.abs() > 1e-12 * xx * yy { ((x * yy - y * xy) / det, (y * xx - x * xy) / det) } else { (0.0, y / yy) };
    match free {
        (t0, inverse) if t0 >= 0.0 && inverse >= 1.0 => (t0, 1.0 / inverse),
        (t0, _) if t0 < 0.0 => (0.0, (yy / y).min(1.0)),
        _ => (((x - xy) / xx).max(0.0), 1.0),
    }
}

/// Half-width of the 80 % interval of a further shape: 1.28 standard deviations of the relative error, with the two
/// fitted numbers taken off the count, and wider the fewer shapes there were.
fn spread(points: &[&Point], fixed_ns: f64, efficiency: f64) -> f64 {
    let n = points.len() as f64;
    let squares: f64 = points.iter().map(|p| ((fixed_ns + p.floor_ns / efficiency) / p.ns - 1.0).powi(2)).sum();
    (DEVIATIONS * (squares / (n - 2.0).max(1.0)).sqrt() * (1.0 + 2.0 / n)).max(CLOSEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(floor_ns: f64, ns: f64) -> Point {
        Point {
            op: "o".into(),
            variant: "v".into(),
            shape: format!("n={floor_ns}"),
            bound: Bound::Memory,
            floor_ns,
            ns,
        }
    }

    #[test]
    fn a_line_is_found_and_bounds_are_kept() {
        let of = |f: fn(f64) -> f64| calibrate(&[1e3, 1e4, 1e5].map(|x| point(x, f(x))), "s").fits[0].clone();
        let f = of(|x| 1_500.0 + x / 0.8);
        assert!((f.fixed_ns - 1_500.0).abs() < 1.0 && (f.efficiency - 0.8).abs() < 1e-3, "{f:?}");
        assert_eq!((f.spread, f.n), (0.05, 3));
        assert!(of(|x| x / 0.7 * if x > 1e4 { 1.1 } else { 1.0 }).fixed_ns >= 0.0);
        assert_eq!(of(|x| 800.0 + 0.99 * x).efficiency, 1.0);
    }

    /// Where the built-in fits come from. After other runs: `workbench predict calibrate FILES --source SOURCE --json
    /// data/calibration-h200.json` with the `bench` rows of these folders; of a sweep, those of its `calibration.jsonl` only,
    /// because its other rows are what predictions are tried on.
    const SOURCE: &str =
        "reports/h200/2026-11-30-bench, reports/h200/2026-11-30-bench-late, reports/h200/2026-11-30-sweep";

    #[test]
    fn the_data_file_is_what_the_committed_runs_give() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut all: Vec<Point> = Vec::new();
        for folder in SOURCE.split(", ") {
            let mut names: Vec<_> = std::fs::read_dir(root.join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
            names.sort();
            if names.iter().any(|p| p.ends_with("sealed.jsonl")) {
                names.retain(|p| p.ends_with("calibration.jsonl"));
            }
            all.extend(names.iter().flat_map(|p| points("x", &std::fs::read_to_string(p).unwrap()).unwrap()));
        }
        assert!(calibrate(&all, SOURCE) == Calibration::default(), "see SOURCE for how to make the file again");
        assert!(points("x", "{}").is_err());
    }
}
