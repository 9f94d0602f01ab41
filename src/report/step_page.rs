//! The decode step's report as one page.

use super::html::{Bar, Card, Meter, Page, Section, Table, Waterfall};
use super::text::{percent, us};
use super::timeline;
use crate::error::Result;
use crate::explain::step::ModeAccount;
use crate::launch::env::Environment;
use crate::run::step::recording::{ModeRecord, Recording};
use crate::units::Bytes;

/// The whole report; `accounts` belong to the recording's modes in order.
pub fn page(r: &Recording, accounts: &[ModeAccount], provenance: &str) -> Result<Page> {
    let e = &r.environment;
    let commit = e.commit.as_deref().map_or("no commit", |c| &c[..c.len().min(10)]);
    let mut sections = Vec::new();
    for (m, a) in r.modes.iter().zip(accounts) {
        sections.push(section(r, m, a)?);
    }
    Ok(Page {
        title: r.title.clone(),
        provenance: provenance.into(),
        subtitle: format!("One decode step, {provenance} on {} at {}, commit {commit}", e.gpu, day(&e.started)),
        cards: r.modes.first().map(|m| cards(r, m)).unwrap_or_default(),
        tables: vec![modes(r)],
        facts: facts(e),
        sections,
    })
}

/// RFC 3339 without the fraction of a second.
fn day(started: &str) -> String {
    let seconds = started.split('.').next().unwrap_or(started);
    format!("{} UTC", seconds.trim_end_matches('Z').replace('T', " "))
}

fn ms(ns: f64) -> String {
    format!("{:.3}", ns / 1e6)
}

/// How far `a` lies above `b`, percent.
fn above(a: f64, b: f64) -> String {
    if b <= 0.0 {
        return "–".into();
    }
    // Rounded first: no "-0.0 %".
    let tenths = (1000.0 * (a / b - 1.0)).round() + 0.0;
    format!("{:+.1} %", tenths / 10.0)
}

fn cards(r: &Recording, m: &ModeRecord) -> Vec<Card> {
    let sum = |f: fn(&crate::run::step::recording::NodeRecord) -> f64| r.nodes.iter().map(f).sum::<f64>();
    let (floor, predicted) = (sum(|n| n.floor_ns), sum(|n| n.predicted_ns));
    let (low, high) = (sum(|n| n.low_ns), sum(|n| n.high_ns));
    let t = &m.untraced;
    let card = |what: &str, number: String, unit: &str, note: String| Card {
        what: what.into(),
        number,
        unit: unit.into(),
        note,
    };
    let rate = r.batch as f64 * 1e9 / t.median_ns;
    vec![
        card(
            &format!("Step ({}), untraced", m.mode),
            ms(t.median_ns),
            "ms",
            format!("median of {}; p10 {}, p90 {}", t.n, ms(t.p10_ns), ms(t.p90_ns)),
        ),
        card("Throughput", format!("{rate:.1}"), "tokens/s", format!("batch {}, context {}", r.batch, r.context)),
        card(
            "Predicted",
            ms(predicted),
            "ms",
            format!("{} to {}; measured {}", ms(low), ms(high), above(t.median_ns, predicted)),
        ),
        card("Floor", ms(floor), "ms", format!("the step runs at {} of its speed", percent(floor, t.median_ns))),
        card(
            "Cost of tracing",
            above(m.traced.median_ns, t.median_ns),
            "",
            format!("untraced again: {}", above(m.untraced_after.median_ns, t.median_ns)),
        ),
    ]
}

/// The environment as pairs, absent values left out.
fn facts(e: &Environment) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    let mut add = |k: &str, v: Option<String>| out.extend(v.map(|v| (k.to_string(), v)));
    add("GPU", Some(format!("{} …{}", e.gpu, e.uuid_tail)));
    add("compute capability", Some(format!("{}, {} SMs", e.compute_capability, e.sms)));
    add("memory", Some(format!("{}, L2 {}", Bytes(e.memory_bytes), Bytes(e.l2_bytes))));
    add("power limit", e.power_limit_w.map(|w| format!("{w:.0} W")));
    add("driver", e.driver.clone());
    add("CUDA", Some(e.cuda.clone()));
    add("CUPTI", e.cupti.clone());
    add("nvcc", e.nvcc.clone());
    let dirty = if e.dirty { " with changes" } else { "" };
    add("workbench", Some(format!("{} {}{dirty}", e.workbench, e.commit.as_deref().unwrap_or("no commit"))));
    add("started", Some(day(&e.started)));
    for (when, x) in [("before", &e.before), ("after", &e.after)] {
        let held = if x.throttle.is_empty() { String::new() } else { format!(", held by {}", x.throttle.join(", ")) };
        let reading = [
            x.sm_mhz.map(|v| format!("SM {v} MHz")),
            x.memory_mhz.map(|v| format!("memory {v} MHz")),
            x.power_w.map(|v| format!("{v:.0} W")),
            x.temperature_c.map(|v| format!("{v} °C")),
        ];
        let text = reading.into_iter().flatten().collect::<Vec<_>>().join(", ");
        add(when, (!text.is_empty()).then_some(text + &held));
    }
    add("command", Some(e.command.clone()));
    out
}

fn modes(r: &Recording) -> Table {
    let mut t = Table::new(
        "How it was run",
        &[
            "mode",
            ">median ms",
            ">p10",
            ">p90",
            ">95 % interval",
            ">n",
            ">tokens/s",
            ">traced ms",
            ">cost",
            ">untraced again ms",
            ">change",
        ],
    );
    for m in &r.modes {
        let u = &m.untraced;
        t.row([
            m.mode.clone(),
            ms(u.median_ns),
            ms(u.p10_ns),
            ms(u.p90_ns),
            format!("{} to {}", ms(u.low_ns), ms(u.high_ns)),
            u.n.to_string(),
            format!("{:.1}", r.batch as f64 * 1e9 / u.median_ns),
            ms(m.traced.median_ns),
            above(m.traced.median_ns, u.median_ns),
            ms(m.untraced_after.median_ns),
            above(m.untraced_after.median_ns, u.median_ns),
        ]);
    }
    t
}

fn section(r: &Recording, m: &ModeRecord, a: &ModeAccount) -> Result<Section> {
    let mut notes = vec![format!(
        "Step {} of {} traced ones, the one of median length: {} µs on the device's clock, {} operations, residual {} ns.",
        a.step + 1,
        a.steps,
        us(a.ledger.window_ns),
        a.ledger.operations,
        a.ledger.residual_ns
    )];
    if m.dropped > 0 {
        notes.push(format!("CUPTI dropped {} records; every kernel of the accounted step is there.", m.dropped));
    }
    notes.extend(a.ledger.notes.iter().cloned());
    let group = |name: &str| a.class_of.get(name).cloned().unwrap_or_else(|| name.to_string());
    let title = format!("Every nanosecond of the step ({})", m.mode);
    Ok(Section {
        id: format!("mode-{}", m.mode),
        title: match m.mode.as_str() {
            "graph" => "As one CUDA graph".into(),
            "stream" => "As a stream of launches".into(),
            other => other.into(),
        },
        notes,
        waterfall: Some(waterfall(a)),
        timelines: vec![timeline::picture(&format!("timeline-{}", m.mode), &title, &a.timeline, group)?],
        tables: vec![classes(a), ledger(a), nodes(r, a)],
        evidence: Vec::new(),
    })
}

/// Bars that each begin where the last one ended.
fn waterfall(a: &ModeAccount) -> Waterfall {
    let (left, right, row) = (320.0, 940.0, 25.0);
    let w = &a.waterfall;
    let (mut at, mut peak) = (0, w.wall_ns.max(1));
    for b in &w.bars {
        at += b.ns;
        peak = peak.max(at);
    }
    let x = |ns: i64| left + (right - left) * ns as f64 / peak as f64;
    let round = |v: f64| (v * 100.0).round() / 100.0;
    let mut bars = Vec::new();
    at = 0;
    let whole = crate::explain::waterfall::Bar { kind: "step".into(), name: "measured step".into(), ns: w.wall_ns };
    for (i, b) in w.bars.iter().chain([&whole]).enumerate() {
        let from = if b.kind == "step" { 0 } else { at };
        at = from + b.ns;
        let short =
            if b.name.chars().count() > 44 { b.name.chars().take(43).chain(['…']).collect() } else { b.name.clone() };
        bars.push(Bar {
            name: b.name.clone(),
            short,
            value: us(b.ns),
            share: percent(b.ns as f64, w.wall_ns as f64),
            fill: match b.kind.as_str() {
                "step" => "#1b1f27",
                "floor" => "#1f5fbf",
                "kernel" if b.ns < 0 => "#2f855a",
                "kernel" => "#9dbbe6",
                "unknown" => "#9aa0aa",
                "head" | "tail" => "#f08a5d",
                _ => "#e4572e",
            },
            x: round(x(from.min(at))),
            width: round((x(from.max(at)) - x(from.min(at))).max(1.0)),
            end: round(x(at)),
            y: row * i as f64,
        });
    }
    Waterfall { title: "From the floor to the measured step, µs".into(), height: row * bars.len() as f64 + 4.0, bars }
}

fn meter(floor: i64, ns: i64, predicted: i64, most: i64) -> Option<Meter> {
    let part = |v: i64| (10_000.0 * v as f64 / most.max(1) as f64).round() / 100.0;
    Some(Meter { floor: part(floor), ns: part(ns), predicted: part(predicted).min(99.0) })
}

fn rate(bytes: u64, ns: i64) -> String {
    if ns > 0 { format!("{:.0}", bytes as f64 / ns as f64) } else { "–".into() }
}

fn classes(a: &ModeAccount) -> Table {
    let mut t = Table::new(
        "Kernels by class (time that overlapping kernels share belongs to the one that began first)",
        &[
            "class",
            ">nodes",
            ">µs",
            ">floor µs",
            ">predicted µs",
            ">GB/s",
            ">of floor",
            ">one node: median µs",
            ">p99 µs",
            "floor, measured, predicted",
        ],
    );
    let most = a.classes.iter().map(|c| c.ns.max(c.predicted_ns)).max().unwrap_or(1);
    for c in &a.classes {
        t.row([
            c.class.clone(),
            c.count.to_string(),
            us(c.ns),
            us(c.floor_ns),
            us(c.predicted_ns),
            rate(c.bytes, c.ns),
            percent(c.floor_ns as f64, c.ns as f64),
            us(c.median_ns.round() as i64),
            us(c.p99_ns.round() as i64),
        ])
        .meter = meter(c.floor_ns, c.ns, c.predicted_ns, most);
    }
    t
}

fn ledger(a: &ModeAccount) -> Table {
    let l = &a.ledger;
    let optional = |v: Option<i64>| v.map_or(String::new(), us);
    let mut t = Table::new(
        "Ledger: every nanosecond on exactly one line",
        &["kind", "line", ">count", ">µs", ">share", ">floor µs", ">predicted µs"],
    );
    for line in &l.lines {
        t.row([
            format!("{:?}", line.kind).to_lowercase(),
            line.name.clone(),
            line.count.to_string(),
            us(line.ns),
            percent(line.ns as f64, l.window_ns as f64),
            optional(line.floor_ns),
            optional(line.predicted_ns),
        ]);
    }
    let sum: i64 = l.lines.iter().map(|x| x.ns).sum();
    for (name, value) in [("sum", us(sum)), ("window", us(l.window_ns)), ("residual", format!("{} ns", l.residual_ns))]
    {
        t.row([String::new(), name.into(), String::new(), value]).total = true;
    }
    t
}

fn nodes(r: &Recording, a: &ModeAccount) -> Table {
    let mut t = Table::new(
        "",
        &[
            "node",
            "variant",
            "shape",
            ">bytes",
            ">µs",
            ">floor µs",
            ">predicted µs",
            ">off by",
            ">GB/s",
            "floor, measured, predicted",
        ],
    );
    t.folded = Some(format!("All {} nodes, in order", a.rows.len()));
    let most = a.rows.iter().map(|n| n.ns.max(n.predicted_ns)).max().unwrap_or(1);
    for (n, of) in a.rows.iter().zip(&r.nodes) {
        t.row([
            n.label.clone(),
            format!("{} {}", of.op, of.variant),
            of.shape.replace(',', ", "),
            Bytes(n.bytes).to_string(),
            us(n.ns),
            us(n.floor_ns),
            us(n.predicted_ns),
            above(n.ns as f64, n.predicted_ns as f64),
            rate(n.bytes, n.ns),
        ])
        .meter = meter(n.floor_ns, n.ns, n.predicted_ns, most);
    }
    t
}
