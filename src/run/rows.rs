//! Rows of measurements as text, JSON, CSV and Markdown: one place decides what a row says.

use super::peers::Recorded;
use super::sweep::{Refusal, Row};
use crate::error::{Error, Result};
use crate::launch::Environment;
use crate::op::{Check, Shape};
use crate::roofline::Floor;
use crate::roofline::ceilings::Bound;
use serde_json::{Value, json};

/// `memory` or `compute`.
pub fn bound(floor: &Floor) -> &'static str {
    match floor.bound() {
        Bound::Memory => "memory",
        Bound::Compute => "compute",
    }
}

/// Title of the columns of [`line()`].
pub fn header() -> String {
    format!(
        "{:<28} {:<46} {:>10} {:>9} {:>7} {:>15} {:>6} {:>8} {:>9} {:>9}",
        "kernel", "shape", "median µs", "p90", "n", "rate", "share", "floor", "×first", "error"
    )
}

fn rate(floor: &Floor, bytes: u64, flops: u64, ns: f64) -> String {
    match floor.bound() {
        Bound::Memory => format!("{:.0} GB/s", bytes as f64 / ns),
        Bound::Compute => format!("{:.1} TFLOP/s", flops as f64 / ns / 1e3),
    }
}

/// The largest error of a row's checks, with its verdict.
fn error(row: &Row) -> String {
    let worst = row.checks.iter().map(|c| c.error).fold(f64::NAN, f64::max);
    match (row.checks.is_empty(), row.ok()) {
        (true, _) => "unchecked".into(),
        (_, true) => format!("{worst:.1e}"),
        _ => "WRONG".into(),
    }
}

/// One row of the table.
pub fn line(row: &Row) -> String {
    let (t, p) = (&row.timing, &row.predicted);
    format!(
        "{:<28} {:<46} {:>10.2} {:>9.2} {:>7} {:>15} {:>5.1}% {:>8.2} {:>9} {:>9}",
        if row.peer { row.variant.clone() } else { format!("{}/{}", row.op, row.variant) },
        row.shape,
        t.ns / 1e3,
        t.p90 / 1e3,
        t.n,
        rate(&p.floor, p.cost.bytes(), p.cost.flops, t.ns),
        100.0 * row.share(),
        p.floor.ns / 1e3,
        row.ratio.map_or(String::new(), |(r, ..)| format!("{r:.3}")),
        error(row),
    )
}

/// A refusal as a row of the table.
pub fn refused_line(refusal: &Refusal) -> String {
    format!("{:<28} {:<46} refused: {}", format!("{}/{}", refusal.op, refusal.variant), refusal.shape, refusal.why)
}

/// The same as JSON: no time, and the reason under `refused`.
pub fn refused_json(refusal: &Refusal) -> Value {
    json!({"op": refusal.op, "variant": refusal.variant, "shape": refusal.shape.to_string(), "refused": refusal.why})
}

/// What is wrong with an output.
pub fn wrong(check: &Check) -> String {
    let mut text = format!("{}: error {:.3e}, allowed {:.1e}", check.output, check.error, check.tolerance);
    if let Some((i, got, want)) = check.worst {
        text += &format!("; worst at element {i}: {got}, expected {want}");
    }
    if let Some(broken) = &check.broken {
        text += &format!("; {broken}");
    }
    text
}

fn ns(value: f64) -> i64 {
    value.round() as i64
}

/// One row as a JSON object; the keys that scripts rely on, then ours.
pub fn json(row: &Row) -> Value {
    let (t, p) = (&row.timing, &row.predicted);
    let mut value = json!({
        "op": row.op,
        "variant": row.variant,
        "shape": row.shape.to_string(),
        "mode": t.mode.name(),
        "ns": ns(t.ns),
        "ns_p10": ns(t.p10),
        "ns_p90": ns(t.p90),
        "n": t.n,
        "bytes": p.cost.bytes(),
        "flops": p.cost.flops,
        "floor_ns": ns(p.floor.ns),
        "predicted_ns": ns(p.ns),
        "predicted_low_ns": ns(p.low),
        "predicted_high_ns": ns(p.high),
        "share_of_ceiling": row.share(),
        "bound": bound(&p.floor),
        "kernels": p.launches.len().max(usize::from(row.peer)),
        "launches": p.launches,
        "sets": row.sets,
        "mad_ns": t.mad,
        "median_ns": t.ns,
        "launches_per_sample": t.per_sample,
        "samples_ns": t.samples.iter().map(|v| (v * 10.0).round() / 10.0).collect::<Vec<_>>(),
        "warnings": t.warnings,
    });
    if row.peer {
        value["peer"] = json!(row.variant);
    }
    if !row.checks.is_empty() {
        value["ok"] = json!(row.ok());
        value["error"] = json!(row.checks.iter().map(|c| c.error).fold(0.0, f64::max));
    }
    if let Some((centre, low, high)) = row.ratio {
        value["times_first"] = json!({"ratio": centre, "low": low, "high": high});
    }
    value
}

/// A recorded row of another library, as a row of the table.
pub fn peer_line(peer: &Recorded, shape: &Shape, floor: &Floor) -> String {
    format!(
        "{:<28} {:<46} {:>10.2} {:>9.2} {:>7} {:>15} {:>5.1}% {:>8.2} {:>9} {:>9}",
        format!("{} by {}", peer.op, peer.name),
        shape,
        peer.ns / 1e3,
        peer.ns_p90 / 1e3,
        peer.n,
        rate(floor, peer.bytes, peer.flops, peer.ns),
        100.0 * floor.ns / peer.ns,
        floor.ns / 1e3,
        "",
        if peer.wrong { "WRONG" } else { "recorded" },
    )
}

/// The same as JSON.
pub fn peer_json(peer: &Recorded, shape: &Shape, floor: &Floor) -> Value {
    json!({
        "op": peer.op, "variant": peer.name, "peer": peer.name, "shape": shape.to_string(), "mode": peer.mode,
        "ns": ns(peer.ns), "ns_p90": ns(peer.ns_p90), "n": peer.n, "bytes": peer.bytes, "flops": peer.flops,
        "floor_ns": ns(floor.ns), "share_of_ceiling": floor.ns / peer.ns, "provenance": "recorded", "ok": !peer.wrong,
    })
}

/// All rows as CSV.
pub fn csv(rows: &[Row]) -> Result<String> {
    let failed = |e: &dyn std::fmt::Display| Error::usage(format!("cannot write CSV: {e}"));
    let keys = [
        "op",
        "variant",
        "shape",
        "mode",
        "ns",
        "ns_p10",
        "ns_p90",
        "n",
        "bytes",
        "flops",
        "floor_ns",
        "predicted_ns",
        "share_of_ceiling",
        "peer",
        "error",
        "ok",
    ];
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(keys).map_err(|e| failed(&e))?;
    for row in rows {
        let value = json(row);
        let cells = keys.map(|key| match &value[key] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        writer.write_record(cells).map_err(|e| failed(&e))?;
    }
    let bytes = writer.into_inner().map_err(|e| failed(&e))?;
    String::from_utf8(bytes).map_err(|e| failed(&e))
}

/// All rows as a Markdown table over the environment.
pub fn markdown(rows: &[Row], environment: &Environment) -> String {
    let mut text = String::from(
        "| kernel | shape | median µs | p90 | n | rate | share of ceiling | floor µs | error |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let (t, p) = (&row.timing, &row.predicted);
        text += &format!(
            "| {} | {} | {:.2} | {:.2} | {} | {} | {:.1} % | {:.2} | {} |\n",
            if row.peer { row.variant.clone() } else { format!("{}/{}", row.op, row.variant) },
            row.shape,
            t.ns / 1e3,
            t.p90 / 1e3,
            t.n,
            rate(&p.floor, p.cost.bytes(), p.cost.flops, t.ns),
            100.0 * row.share(),
            p.floor.ns / 1e3,
            error(row),
        );
    }
    text + "\n" + &environment.lines() + "\n"
}
