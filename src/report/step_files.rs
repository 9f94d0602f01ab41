//! The decode step's report for other programs: Markdown for a document, CSV for a spreadsheet.

use super::html::{Page, Table};
use crate::error::{Error, Result};
use crate::explain::step::ModeAccount;
use crate::run::step::recording::Recording;
use std::fmt::Write;

/// The page's text and tables without its pictures; the waterfall becomes a table.
pub fn markdown(page: &Page) -> String {
    let mut out = format!("# {}\n\n{}\n\n", cell(&page.title), cell(&page.subtitle));
    for c in &page.cards {
        let _ = writeln!(out, "- {}: **{}**{} ({})", cell(&c.what), c.number, space(&c.unit), cell(&c.note));
    }
    out.push('\n');
    out.extend(page.tables.iter().map(table));
    out += "## Environment\n\n";
    for (k, v) in &page.facts {
        let _ = writeln!(out, "- {}: {}", cell(k), cell(v));
    }
    for s in &page.sections {
        let _ = write!(out, "\n## {}\n\n", cell(&s.title));
        for n in &s.notes {
            let _ = write!(out, "{}\n\n", cell(n));
        }
        if let Some(w) = &s.waterfall {
            let mut t = Table::new(w.title.clone(), &["from the floor to the measured step", ">µs", ">share"]);
            for b in &w.bars {
                t.row([b.name.clone(), b.value.clone(), b.share.clone()]);
            }
            out += &table(&t);
        }
        for t in &s.tables {
            out += &table(t);
        }
    }
    out
}

fn space(unit: &str) -> String {
    if unit.is_empty() { String::new() } else { format!(" {unit}") }
}

/// A text that stays in its cell and is no markup.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

fn table(t: &Table) -> String {
    let title = t.folded.as_ref().unwrap_or(&t.title);
    let columns = t.head.len() - usize::from(t.rows.iter().any(|r| r.meter.is_some()));
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = format!("### {}\n\n", cell(title));
    let head = &t.head[..columns];
    out += &line(head.iter().map(|h| cell(&h.text)).collect());
    out += &line(head.iter().map(|h| if h.number { "---:" } else { "---" }.into()).collect());
    for r in &t.rows {
        out += &line((0..columns).map(|i| r.cells.get(i).map_or(String::new(), |c| cell(c))).collect());
    }
    out.push('\n');
    out
}

/// Every number of the account, unformatted: one row each for bars, classes, nodes and ledger lines.
pub fn csv(r: &Recording, accounts: &[ModeAccount]) -> Result<String> {
    let bad = |e: csv::Error| Error::usage(format!("cannot write CSV: {e}"));
    let mut w = csv::Writer::from_writer(Vec::new());
    w.write_record([
        "mode",
        "table",
        "kind",
        "name",
        "count",
        "ns",
        "floor_ns",
        "predicted_ns",
        "bytes",
        "untraced_ns",
    ])
    .map_err(bad)?;
    let text = |v: Option<i64>| v.map_or(String::new(), |v| v.to_string());
    for (a, m) in accounts.iter().zip(&r.modes) {
        let mut rows: Vec<[String; 8]> = Vec::new();
        let none = String::new;
        for b in &a.waterfall.bars {
            let ns = b.ns.to_string();
            rows.push(["waterfall".into(), b.kind.clone(), b.name.clone(), none(), ns, none(), none(), none()]);
        }
        for c in &a.classes {
            let [count, ns] = [c.count.to_string(), c.ns.to_string()];
            let [floor, predicted, bytes] = [c.floor_ns.to_string(), c.predicted_ns.to_string(), c.bytes.to_string()];
            rows.push(["class".into(), "kernel".into(), c.class.clone(), count, ns, floor, predicted, bytes]);
        }
        for n in &a.rows {
            let [floor, predicted, bytes] = [n.floor_ns.to_string(), n.predicted_ns.to_string(), n.bytes.to_string()];
            let ns = n.ns.to_string();
            rows.push(["node".into(), n.class.clone(), n.label.clone(), "1".into(), ns, floor, predicted, bytes]);
        }
        for l in &a.ledger.lines {
            let kind = format!("{:?}", l.kind).to_lowercase();
            let [count, ns] = [l.count.to_string(), l.ns.to_string()];
            let [floor, predicted] = [text(l.floor_ns), text(l.predicted_ns)];
            rows.push(["ledger".into(), kind, l.name.clone(), count, ns, floor, predicted, none()]);
        }
        let untraced = format!("{:.0}", m.untraced.median_ns);
        for row in rows {
            let cells = std::iter::once(a.mode.as_str()).chain(row.iter().map(String::as_str));
            w.write_record(cells.chain([untraced.as_str()])).map_err(bad)?;
        }
    }
    let bytes = w.into_inner().map_err(|e| Error::usage(format!("cannot write CSV: {e}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
