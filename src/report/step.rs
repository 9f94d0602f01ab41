//! The decode step's report as text: headline, tracing cost, waterfall, classes, ledger.

use super::text::{percent, table, us};
use crate::explain::step::ModeAccount;
use crate::profile::ledger::Ledger;
use crate::run::step::recording::{ModeRecord, NodeRecord, Recording};
use crate::units::Bytes;
use std::fmt::Write;

/// The prediction: what each class should cost, before anything ran.
pub fn prediction(nodes: &[NodeRecord], batch: u64) -> String {
    let mut classes: Vec<(&str, u64, f64, f64, u64)> = Vec::new();
    for n in nodes {
        match classes.iter_mut().find(|c| c.0 == n.class) {
            Some(c) => {
                c.1 += 1;
                c.2 += n.floor_ns;
                c.3 += n.predicted_ns;
                c.4 += n.bytes;
            }
            None => classes.push((&n.class, 1, n.floor_ns, n.predicted_ns, n.bytes)),
        }
    }
    classes.sort_by(|a, b| b.3.total_cmp(&a.3));
    let total = |f: fn(&NodeRecord) -> f64| nodes.iter().map(f).sum::<f64>();
    let (floor, predicted) = (total(|n| n.floor_ns), total(|n| n.predicted_ns));
    let (low, high) = (total(|n| n.low_ns), total(|n| n.high_ns));
    let mut rows: Vec<Vec<String>> = classes
        .iter()
        .map(|c| {
            vec![c.0.into(), c.1.to_string(), Bytes(c.4).to_string(), us(c.2.round() as i64), us(c.3.round() as i64)]
        })
        .collect();
    let bytes: u64 = nodes.iter().map(|n| n.bytes).sum();
    rows.push(vec![
        "sum".into(),
        nodes.len().to_string(),
        Bytes(bytes).to_string(),
        us(floor.round() as i64),
        us(predicted.round() as i64),
    ]);
    let mut out = String::from("Predicted, node by node, before the run\n");
    out += &table(&["class", "nodes", "bytes", "floor µs", "predicted µs"], 1, rows);
    let _ = write!(
        out,
        "\npredicted {:.3} ms ({:.3} to {:.3}), {:.0} tokens/s; floor {:.3} ms\n",
        predicted / 1e6,
        low / 1e6,
        high / 1e6,
        batch as f64 * 1e9 / predicted,
        floor / 1e6
    );
    out
}

/// Headline of one mode: untraced first, what tracing cost, whether speed came back.
pub fn headline(r: &Recording, m: &ModeRecord) -> String {
    let floor: f64 = r.nodes.iter().map(|n| n.floor_ns).sum();
    let predicted: f64 = r.nodes.iter().map(|n| n.predicted_ns).sum();
    let t = &m.untraced;
    let cost = 100.0 * (m.traced.median_ns / t.median_ns - 1.0);
    let back = 100.0 * (m.untraced_after.median_ns / t.median_ns - 1.0);
    let dropped = match m.dropped {
        0 => String::new(),
        n => format!("  CUPTI dropped {n} records of this trace; every kernel of the accounted steps is there\n"),
    };
    format!(
        "{}: {:.3} ms untraced (median of {}, p10 {:.3}, p90 {:.3}), {:.0} tokens/s, {} of the floor's speed; predicted \
         {:.3} ms ({:+.1} %)\n  traced {:.3} ms ({cost:+.1} %), untraced again {:.3} ms ({back:+.1} %)\n{dropped}",
        m.mode,
        t.median_ns / 1e6,
        t.n,
        t.p10_ns / 1e6,
        t.p90_ns / 1e6,
        r.batch as f64 * 1e9 / t.median_ns,
        percent(floor, t.median_ns),
        predicted / 1e6,
        100.0 * (t.median_ns / predicted - 1.0),
        m.traced.median_ns / 1e6,
        m.untraced_after.median_ns / 1e6,
    )
}

/// The waterfall, the classes and the ledger of one mode.
pub fn account(a: &ModeAccount) -> String {
    let wall = a.waterfall.wall_ns as f64;
    let mut out = format!(
        "Step {} of {} ({}), of median length; residual {} ns\n",
        a.step + 1,
        a.steps,
        a.mode,
        a.waterfall.residual_ns
    );
    let mut rows: Vec<Vec<String>> =
        a.waterfall.bars.iter().map(|b| vec![b.name.clone(), us(b.ns), percent(b.ns as f64, wall)]).collect();
    rows.push(vec!["step".into(), us(a.waterfall.wall_ns), "100.0 %".into()]);
    out += &table(&["from the floor to the measured step", "µs", "share"], 1, rows);
    out += "\n\nKernels by class; time shared by overlapping kernels belongs to the one that began first\n";
    out += &table(
        &["class", "nodes", "µs", "floor µs", "predicted µs", "GB/s", "of floor", "median µs", "p99 µs"],
        1,
        a.classes.iter().map(|c| {
            vec![
                c.class.clone(),
                c.count.to_string(),
                us(c.ns),
                us(c.floor_ns),
                us(c.predicted_ns),
                format!("{:.0}", c.bytes as f64 / c.ns.max(1) as f64),
                percent(c.floor_ns as f64, c.ns as f64),
                us(c.median_ns.round() as i64),
                us(c.p99_ns.round() as i64),
            ]
        }),
    );
    out += "\n\n";
    out += &ledger(&a.ledger);
    out
}

/// A ledger's lines; they add up to the window.
pub fn ledger(l: &Ledger) -> String {
    let mut rows: Vec<Vec<String>> = l
        .lines
        .iter()
        .map(|line| {
            let opt = |v: Option<i64>| v.map_or(String::new(), us);
            let kind = format!("{:?}", line.kind).to_lowercase();
            let name = if line.name.starts_with(&kind) { line.name.clone() } else { format!("{kind} {}", line.name) };
            vec![
                name,
                line.count.to_string(),
                us(line.ns),
                percent(line.ns as f64, l.window_ns as f64),
                opt(line.floor_ns),
                opt(line.predicted_ns),
            ]
        })
        .collect();
    rows.push(vec!["sum".into(), String::new(), us(l.lines.iter().map(|x| x.ns).sum()), "100.0 %".into()]);
    rows.push(vec!["window".into(), String::new(), us(l.window_ns)]);
    rows.push(vec!["residual".into(), String::new(), format!("{} ns", l.residual_ns)]);
    for r in &mut rows {
        r.resize(6, String::new());
    }
    let mut out = String::from("Ledger\n");
    out += &table(&["line", "count", "µs", "share", "floor µs", "predicted µs"], 1, rows);
    out.push('\n');
    for n in &l.notes {
        let _ = writeln!(out, "note: {n}");
    }
    out
}
