//! Tables for a terminal: plain text, numbers right-aligned, no colour, as wide as their contents.

use comfy_table::{CellAlignment, Table, presets};

/// A table whose first `left` columns are text and whose other columns are numbers.
pub fn table(header: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut t = Table::new();
    t.load_style(presets::NOTHING).set_header(header.to_vec());
    for row in rows {
        t.add_row(row);
    }
    for (i, column) in t.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if i >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    // A rule below the header, none between rows.
    let text = t.to_string();
    let width = text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
    let mut lines = text.lines().map(str::trim_end);
    let head = lines.next().unwrap_or_default();
    std::iter::once(head.to_string())
        .chain(std::iter::once("─".repeat(width)))
        .chain(lines.map(str::to_string))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Nanoseconds as microseconds with three decimals: nothing is rounded away.
pub fn us(ns: i64) -> String {
    format!("{:.3}", ns as f64 / 1e3)
}

/// A share in percent with one decimal.
pub fn percent(part: f64, whole: f64) -> String {
    if whole == 0.0 { "–".into() } else { format!("{:.1} %", 100.0 * part / whole) }
}
