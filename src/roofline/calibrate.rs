//! Fits from runs of `bench`: a line for each variant, and for the best variant of each shape, by least squares of the relative
//! error; and around the lines the measured shapes of each op, with the scale on which they are neighbours.

use super::Ceilings;
use super::coordinates::{self, Kernel, Place};
use super::nearby::{self, Field, Neighbour, Scale};
use super::predict::{CLOSEST, Calibration, DEVIATIONS, Fit, LeftOut, Load, Neighbourhood, Ready};
use crate::error::{Error, Result};
use crate::kernels;
use crate::op::{Chip, Shape};
use crate::stats;
use crate::units::Provenance;
use serde_json::Value;
use std::collections::BTreeMap;

/// Fewest shapes that give the two numbers of a line, and all four.
const FEWEST: usize = 2;
const FOUR: usize = 8;
/// Fewest shapes that are neighbours.
const NEIGHBOURS: usize = 3;

/// One measured shape, ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub op: String,
    pub variant: String,
    /// Without the row of the configuration table.
    pub shape: String,
    pub load: Load,
    pub place: Place,
    pub kernels: Vec<Kernel>,
    pub ns: f64,
}

/// Points of a file that `bench --json` wrote; rows of other libraries are left out, and rows of ops and
/// variants that are not here.
///
/// # Errors
/// A file without such rows.
pub fn points(name: &str, text: &str) -> Result<Vec<Point>> {
    let rows: Vec<Value> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let head = rows.iter().find_map(|r| serde_json::from_value::<Ceilings>(r["ceilings"].clone()).ok());
    let ceilings = head.unwrap_or_else(Ceilings::h200);
    let ours = |r: &&Value| r.get("peer").is_none_or(Value::is_null) && r["ok"] != false;
    let found: Vec<Point> = rows.iter().filter(ours).filter_map(|r| point(r, &ceilings)).collect();
    if found.is_empty() {
        return Err(Error::usage(format!("{name} holds no rows of `bench`")).try_next("workbench bench OP --json FILE"));
    }
    Ok(found)
}

fn point(row: &Value, ceilings: &Ceilings) -> Option<Point> {
    let (op, variant) = (row["op"].as_str()?, row["variant"].as_str()?);
    let (ns, full) = (row["ns"].as_f64()?, Shape::parse(row["shape"].as_str()?).ok()?);
    let known = kernels::op(op).ok()?;
    // A variant that is gone predicts nothing.
    known.variants().iter().find(|v| v.name == variant)?;
    let cost = known.cost(&full).ok()?;
    // Older rows do not say how they were launched; then today's launches stand for theirs.
    let kernels: Vec<Kernel> = match serde_json::from_value(row["launches"].clone()) {
        Ok(kernels) => kernels,
        Err(_) => coordinates::kernels(known, variant, &full, &Chip::H200).unwrap_or_default(),
    };
    let parts: Vec<String> = full.iter().filter(|(k, _)| *k != "cfg").map(|(k, v)| format!("{k}={v}")).collect();
    let (shape, sms) = (parts.join(","), u64::from(ceilings.sms));
    Some(Point {
        op: op.into(),
        variant: variant.into(),
        load: Load::of(&cost, &ceilings.floor(&cost), &kernels, sms),
        place: Place::launched(op, variant, &Shape::parse(&shape).ok()?, &cost, &kernels, sms),
        shape,
        kernels,
        ns,
    })
}

/// The fits of all points, each with `source`: of every variant with at least two shapes, and of the best variants; and the
/// neighbours of each op. Scales that are given are taken, others are searched for.
pub fn calibrate(points: &[Point], source: &str, scales: &BTreeMap<String, Scale>) -> Calibration {
    // The best configuration of a shape is what a heuristic would pick.
    let mut best: BTreeMap<(&str, &str, &str), &Point> = BTreeMap::new();
    for p in points {
        for variant in [p.variant.as_str(), ""] {
            let slot = best.entry((&p.op, variant, &p.shape)).or_insert(p);
            if p.ns < slot.ns {
                *slot = p;
            }
        }
    }
    let mut groups: BTreeMap<(&str, &str), Vec<&Point>> = BTreeMap::new();
    for ((op, variant, _), p) in &best {
        groups.entry((op, variant)).or_default().push(p);
    }
    let fits: Vec<Fit> = groups
        .iter()
        .filter(|(_, g)| g.len() >= FEWEST)
        .map(|((op, variant), g)| {
            let told = if variant.is_empty() { fewest_rows(g) } else { g.clone() };
            let terms = if variant.is_empty() || told.len() < FOUR { 2 } else { 4 };
            let mut fit = line(&told, terms);
            (fit.op, fit.variant, fit.source, fit.n) = ((*op).into(), (*variant).into(), source.into(), told.len());
            fit.spread = (1e3 * spread(&told, &fit)).round() / 1e3;
            fit
        })
        .collect();
    let lines = Calibration { fits, nearby: Vec::new() };
    let mut ops: Vec<&str> = groups.keys().map(|(op, _)| *op).collect();
    ops.dedup();
    // A search takes a second or more: each op on a core of its own.
    let nearby = std::thread::scope(|scope| {
        let (groups, lines) = (&groups, &lines);
        let each = ops.into_iter().map(|op| {
            scope.spawn(move || {
                let own = groups.iter().filter(|((o, v), _)| *o == op && !v.is_empty());
                let own: Vec<&Point> = own.flat_map(|(_, g)| g.iter().copied()).collect();
                (own.len() >= NEIGHBOURS).then(|| neighbourhood(op, &own, lines, scales.get(op)))
            })
        });
        let each: Vec<_> = each.collect();
        each.into_iter().filter_map(|t| t.join().unwrap_or_default()).collect()
    });
    Calibration { nearby, ..lines }
}

fn neighbourhood(op: &str, points: &[&Point], lines: &Calibration, scale: Option<&Scale>) -> Neighbourhood {
    let ratio = |p: &Point| (1e4 * p.ns / lines.fit(op, &p.variant).line(&p.load)).round().max(1.0) / 1e4;
    let neighbours: Vec<Neighbour> = points
        .iter()
        .map(|p| Neighbour {
            variant: p.variant.clone(),
            shape: p.shape.clone(),
            ratio: ratio(p),
            kernels: p.kernels.clone(),
        })
        .collect();
    let logs: Vec<f64> = neighbours.iter().map(|n| n.ratio.ln()).collect();
    let places: Vec<Place> = points.iter().map(|p| p.place.clone()).collect();
    let scale = scale.cloned().unwrap_or_else(|| nearby::best_scale(&places, &logs));
    let off = Field::new(&places, &logs, scale.clone()).left_out();
    let cut = |v: f64| (1e4 * v).round() / 1e4;
    // An estimate that is off by ln e is e^-off of the measured time.
    let misses: Vec<f64> = off.iter().map(|(off, _)| ((-off).exp() - 1.0).abs()).collect();
    let sure: Vec<f64> = off.iter().map(|(off, deviation)| off.abs() / deviation / DEVIATIONS).collect();
    let inside = sure.iter().filter(|s| **s <= 1.0).count() as f64 / sure.len().max(1) as f64;
    Neighbourhood {
        op: op.into(),
        scale,
        widen: cut(stats::quantile(&sure, 0.8)).max(1.0),
        left_out: LeftOut {
            median: cut(stats::median(&misses)),
            worst: cut(misses.iter().copied().fold(0.0, f64::max)),
            inside: cut(inside),
        },
        neighbours,
        ready: Ready::default(),
    }
}

/// The points with the fewest rows, where there are enough of them: the line of an op's best variants is asked where no shape
/// is known, of a decode step's products; what more rows cost is the neighbours' to say.
fn fewest_rows<'a>(points: &[&'a Point]) -> Vec<&'a Point> {
    let rows = |p: &Point| p.place.numbers.get("m").map(|m| m.exp2().round() as u64);
    let least = points.iter().filter_map(|p| rows(p)).min();
    let few: Vec<&Point> = points.iter().copied().filter(|p| rows(p) == least).collect();
    if least.is_some() && few.len() > FEWEST { few } else { points.to_vec() }
}

/// The line with the least sum of (line / t − 1)², none of its numbers below 0, efficiency and uneven share at most 1: of every
/// choice of its terms the best one whose numbers are so.
fn line(points: &[&Point], terms: usize) -> Fit {
    let of = |p: &Point| [1.0, p.load.floor_ns, p.load.uneven_ns, p.load.turns];
    let mut best: Option<(f64, [f64; 4])> = None;
    for mask in 0..1usize << terms {
        let used: Vec<usize> = (0..terms).filter(|i| mask >> i & 1 == 1).collect();
        let Some(found) = least_squares(points, &used, &of) else { continue };
        let mut all = [0.0; 4];
        used.iter().zip(found).for_each(|(i, v)| all[*i] = v);
        // A multiprocessor reads no slower alone than among all the others.
        if all.iter().any(|v| *v < 0.0) || all[2] > 1.0 {
            continue;
        }
        // Nothing beats the floor: it counts once at least.
        all[1] += 1.0;
        let miss = |p: &&Point| (of(p).iter().zip(all).map(|(x, c)| x * c).sum::<f64>() / p.ns - 1.0).powi(2);
        let sum: f64 = points.iter().map(miss).sum();
        if best.is_none_or(|(least, _)| sum < least) {
            best = Some((sum, all));
        }
    }
    let (_, [fixed, floor, uneven, turn]) = best.unwrap_or((0.0, [0.0, 1.0, 0.0, 0.0]));
    let cut = |v: f64, digits: f64| (digits * v).round() / digits;
    Fit {
        op: String::new(),
        variant: String::new(),
        fixed_ns: cut(fixed, 10.0),
        efficiency: cut(1.0 / floor, 1e6).max(1e-6),
        uneven: cut(uneven, 1e6),
        turn_ns: cut(turn, 1e3),
        spread: 0.0,
        n: 0,
        provenance: Provenance::Recorded,
        source: String::new(),
    }
}

/// The numbers of these terms with the least sum of (Σ c x + floor − t)² / t²; none where they cannot be told apart.
fn least_squares(points: &[&Point], used: &[usize], of: &dyn Fn(&Point) -> [f64; 4]) -> Option<Vec<f64>> {
    let n = used.len();
    // Normal equations, each row with its right side.
    let mut rows = vec![vec![0.0; n + 1]; n];
    for p in points {
        let x = of(p).map(|x| x / p.ns);
        let y = 1.0 - p.load.floor_ns / p.ns;
        for (row, i) in rows.iter_mut().zip(used) {
            for (cell, j) in row.iter_mut().zip(used) {
                *cell += x[*i] * x[*j];
            }
            row[n] += x[*i] * y;
        }
    }
    let scale: Vec<f64> = (0..n).map(|i| rows[i][i]).collect();
    for i in 0..n {
        if rows[i][i].abs() <= 1e-9 * scale[i] || scale[i] == 0.0 {
            return None;
        }
        for k in 0..n {
            if k != i {
                let f = rows[k][i] / rows[i][i];
                let from = rows[i].clone();
                rows[k].iter_mut().zip(from).for_each(|(a, b)| *a -= f * b);
            }
        }
    }
    Some((0..n).map(|i| rows[i][n] / rows[i][i]).collect())
}

/// Half-width of the 80 % interval of a further shape: 1.28 standard deviations of the relative error, with the
/// fitted numbers taken off the count, and wider the fewer shapes there were.
fn spread(points: &[&Point], fit: &Fit) -> f64 {
    let n = points.len() as f64;
    let squares: f64 = points.iter().map(|p| (fit.line(&p.load) / p.ns - 1.0).powi(2)).sum();
    (DEVIATIONS * (squares / (n - 2.0).max(1.0)).sqrt() * (1.0 + 2.0 / n)).max(CLOSEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(floor_ns: f64, turns: f64, ns: f64) -> Point {
        Point {
            op: "o".into(),
            variant: "v".into(),
            shape: format!("n={floor_ns},turns={turns}"),
            load: Load { floor_ns, uneven_ns: 0.0, turns },
            place: Place::default(),
            kernels: Vec::new(),
            ns,
        }
    }
    fn fit(points: &[Point]) -> Fit {
        calibrate(points, "s", &BTreeMap::new()).fits.into_iter().find(|f| f.variant == "v").unwrap()
    }

    #[test]
    fn a_line_is_found_and_its_bounds_are_kept() {
        let of = |f: fn(f64) -> f64| fit(&[1e3, 1e4, 1e5].map(|x| point(x, 1.0, f(x))));
        let f = of(|x| 1_500.0 + x / 0.8);
        assert!((f.fixed_ns - 1_500.0).abs() < 1.0 && (f.efficiency - 0.8).abs() < 1e-3, "{f:?}");
        assert_eq!((f.spread, f.n), (0.05, 3));
        assert!(of(|x| x / 0.7 * if x > 1e4 { 1.1 } else { 1.0 }).fixed_ns >= 0.0);
        assert_eq!(of(|x| 800.0 + 0.99 * x).efficiency, 1.0);
    }

    #[test]
    fn blocks_in_turn_are_told_from_size() {
        let all: Vec<Point> = (1..=12)
            .map(|i| (f64::from(i % 4 + 1), 1e3 * f64::from(i)))
            .map(|(t, x)| point(x, t, 900.0 + x / 0.9 + 400.0 * t))
            .collect();
        let f = fit(&all);
        assert!((f.turn_ns - 400.0).abs() < 5.0 && (f.fixed_ns - 900.0).abs() < 10.0, "{f:?}");
        assert!((f.efficiency - 0.9).abs() < 1e-2, "{f:?}");
    }

    /// Where the built-in fits come from. After other runs: `workbench predict calibrate FILES --source SOURCE --json
    /// data/calibration-h200.json` with the `bench` rows of these folders; of a sealed sweep, those of its `calibration.jsonl`
    /// only, because its other rows are what predictions are tried on.
    const SOURCE: &str = "reports/h200/2026-11-30-bench, reports/h200/2026-11-30-sweep-final";

    #[test]
    fn the_data_file_is_what_the_committed_runs_give() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut all: Vec<Point> = Vec::new();
        for folder in SOURCE.split(", ") {
            let mut names: Vec<_> = std::fs::read_dir(root.join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
            names.retain(|p| p.extension().is_some_and(|e| e == "jsonl"));
            names.sort();
            if names.iter().any(|p| p.ends_with("sealed.jsonl")) {
                names.retain(|p| p.ends_with("calibration.jsonl"));
            }
            all.extend(names.iter().flat_map(|p| points("x", &std::fs::read_to_string(p).unwrap()).unwrap()));
        }
        // The search for the scales takes minutes without optimisation; all else is made again from them.
        let recorded = Calibration::default();
        let mut scales: BTreeMap<String, Scale> =
            recorded.nearby.iter().map(|n| (n.op.clone(), n.scale.clone())).collect();
        if !cfg!(debug_assertions) {
            scales.clear();
        }
        assert!(calibrate(&all, SOURCE, &scales) == recorded, "see SOURCE for how to make the file again");
        assert!(points("x", "{}").is_err());
    }
}
