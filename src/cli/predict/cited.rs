//! Published rows: the table, and what another engine would take.

use crate::cli::OutputArgs;
use crate::cli::table::{Sheet, emit, percent};
use crate::error::{Error, Result};
use crate::op::nearest;
use crate::roofline::cited::{Estimate, ROWS, Row, estimate};
use crate::stats;
use serde_json::json;

/// Every row with its floor and the estimate from the others; the same table is in `docs/cited-decode.md`.
pub fn table(out: &OutputArgs) -> Result<()> {
    let heads =
        ["row", "model", "engine", "GPU", ">batch", ">context", ">tokens/s", ">floor ms", ">estimate ms", ">published ms", ">off", "estimated from"];
    let mut sheet = Sheet::new("Published decode steps, each estimated without its own row", &heads);
    let (mut misses, mut rows) = (Vec::new(), Vec::new());
    for r in ROWS.iter() {
        let e = estimate(r)?;
        let off = r.step_ns() / e.ns;
        misses.push(off.ln().abs());
        let cards = if r.cards > 1 { format!("{} × {}", r.cards, r.gpu) } else { r.gpu.clone() };
        sheet.row([
            r.id.clone(),
            format!("{} {}", r.model, r.quant),
            format!("{} {}", r.engine, r.version),
            cards,
            r.batch.to_string(),
            r.ctx.to_string(),
            format!("{}", r.tokens_per_s),
            format!("{:.2}", e.floor_ns / 1e6),
            format!("{:.2}", e.ns / 1e6),
            format!("{:.2}", r.step_ns() / 1e6),
            format!("{:+.0} %", 100.0 * (off - 1.0)),
            format!("{}: {}", e.overhead.circle, e.overhead.rows.join(" ")),
        ]);
        rows.push(json!({"row": r, "floor_ns": e.floor_ns, "estimate_ns": e.ns, "published_ns": r.step_ns(), "overhead": e.overhead}));
    }
    let median = stats::median(&misses).exp() - 1.0;
    let worst = misses.iter().copied().fold(0.0, f64::max).exp() - 1.0;
    let tail = format!(
        "\nmedian |ln(published / estimate)| is that of {}, the worst of {}; no row is faster than its floor\n",
        percent(median),
        percent(worst)
    );
    emit(out, &[sheet], &tail, &json!({"schema": 1, "provenance": "cited", "rows": rows, "median_miss": median, "worst_miss": worst}))
}

/// One step of an engine that has published rows.
pub fn step(engine: &str, model: &str, gpu: &str, weights: &str, (batch, ctx, cards): (u64, u64, u64), out: &OutputArgs) -> Result<()> {
    let mut engines: Vec<&str> = ROWS.iter().map(|r| r.engine.as_str()).collect();
    engines.sort();
    engines.dedup();
    if !engines.contains(&engine) {
        let near = nearest(engine, engines.iter().copied()).map_or(String::new(), |n| format!("`{n}`; or "));
        return Err(Error::usage(format!("no published row of `{engine}` is known here"))
            .try_next(format!("{near}one of {}", engines.join(", "))));
    }
    let row = Row {
        id: String::new(),
        model: model.into(),
        quant: if weights == "fp8" { "int8".into() } else { weights.into() },
        gpu: gpu.into(),
        cards,
        batch,
        ctx,
        tokens_per_s: 1.0,
        engine: engine.into(),
        version: String::new(),
        read_bytes: None,
        source: String::new(),
    };
    let e: Estimate = estimate(&row)?;
    let layers = ((e.ns - e.floor_ns) / e.overhead.per_layer_ns).round();
    // As far off as four of five published rows are from their own estimates.
    let misses = ROWS.iter().map(|r| Ok((r.step_ns() / estimate(r)?.ns).ln().abs())).collect::<Result<Vec<f64>>>()?;
    let by = stats::quantile(&misses, 0.8).exp();
    let (low, high) = ((e.ns / by).max(e.floor_ns), e.ns * by);
    let o = &e.overhead;
    let title = format!("{model} {weights} batch {batch} context {ctx} by {engine} on {gpu}");
    let mut sheet = Sheet::new(title.clone(), &["term", ">ms", "provenance"]);
    sheet.row(["bytes / datasheet bandwidth (the floor)".into(), format!("{:.3}", e.floor_ns / 1e6), "cited".into()]);
    let layer = format!("{layers} layers × {:.1} µs", o.per_layer_ns / 1e3);
    sheet.row([layer, format!("{:.3}", (e.ns - e.floor_ns) / 1e6), format!("cited, {}: {}", o.circle, o.rows.join(" "))]);
    let tail = format!(
        "predicted {:.3} ms ({:.3} to {:.3}: 80 % of the published rows lie so near), {:.0} tokens/s\n",
        e.ns / 1e6,
        low / 1e6,
        high / 1e6,
        batch as f64 * 1e9 / e.ns
    );
    let json = json!({
        "schema": 1, "title": title, "provenance": "cited", "floor_ns": e.floor_ns.round(), "predicted_ns": e.ns.round(),
        "low_ns": low.round(), "high_ns": high.round(), "overhead": o,
    });
    emit(out, &[sheet], &tail, &json)
}
