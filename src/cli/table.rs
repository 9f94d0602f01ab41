//! One table, four forms: aligned text, Markdown, CSV rows, and the numbers' formats.

use crate::error::{Error, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A titled table of text cells.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    pub title: String,
    /// Column heads; one that begins with `>` is aligned right.
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Sheet {
    pub fn new(title: impl Into<String>, head: &[&'static str]) -> Self {
        Self { title: title.into(), head: head.to_vec(), rows: Vec::new() }
    }
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    fn heads(&self) -> impl Iterator<Item = &'static str> {
        self.head.iter().map(|h| h.trim_start_matches('>'))
    }

    /// Aligned text, as wide as it needs, title first.
    pub fn terminal(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.heads());
        for row in &self.rows {
            table.add_row(row);
        }
        for (i, head) in self.head.iter().enumerate() {
            if let (true, Some(column)) = (head.starts_with('>'), table.column_mut(i)) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let body = table.trim_fmt();
        match self.title.as_str() {
            "" => format!("{body}\n"),
            title => format!("{title}\n{body}\n"),
        }
    }

    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = if self.title.is_empty() { String::new() } else { format!("### {}\n\n", self.title) };
        text += &line(self.heads().map(str::to_string).collect());
        text += &line(self.head.iter().map(|h| if h.starts_with('>') { "---:" } else { "---" }.to_string()).collect());
        for row in &self.rows {
            text += &line(row.iter().map(|c| c.replace('|', "\\|")).collect());
        }
        text
    }

    /// The table of a page.
    pub fn html(&self) -> crate::report::html::Table {
        let mut table = crate::report::html::Table::new(self.title.clone(), &self.head);
        for row in &self.rows {
            table.row(row.iter().cloned());
        }
        table
    }

    pub fn csv(&self) -> Result<String> {
        csv(&self.heads().collect::<Vec<_>>(), self.rows.iter())
    }
}

/// Writes a command's result in every form that was asked for, and as text where standard output is free.
pub fn emit(out: &super::OutputArgs, sheets: &[Sheet], tail: &str, json: &serde_json::Value) -> Result<()> {
    if let Some(file) = &out.json {
        super::write_output(file, &format!("{json:#}\n"))?;
    }
    if let Some(file) = &out.csv {
        let text = sheets.iter().map(Sheet::csv).collect::<Result<Vec<_>>>()?.join("\n");
        super::write_output(file, &text)?;
    }
    if let Some(file) = &out.md {
        let text: Vec<String> = sheets.iter().map(Sheet::markdown).collect();
        super::write_output(file, &format!("{}\n{tail}", text.join("\n")))?;
    }
    if !out.takes_stdout() {
        let text: Vec<String> = sheets.iter().map(Sheet::terminal).collect();
        super::write_output("-".as_ref(), &format!("{}\n{tail}", text.join("\n")))?;
    }
    Ok(())
}

/// CSV text of rows of cells.
pub fn csv<'a>(head: &[&str], rows: impl Iterator<Item = &'a Vec<String>>) -> Result<String> {
    let failed = |e: csv::Error| Error::usage(format!("cannot write CSV: {e}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(head).map_err(failed)?;
    for row in rows {
        writer.write_record(row).map_err(failed)?;
    }
    let bytes = writer.into_inner().map_err(|e| Error::usage(format!("cannot write CSV: {e}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Thousands separated by commas.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Microseconds with every nanosecond: `1,234.567`.
pub fn us(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let abs = ns.unsigned_abs();
    format!("{sign}{}.{:03}", grouped(abs / 1_000), abs % 1_000)
}

/// Microseconds with a sign always, for differences.
pub fn delta_us(ns: i64) -> String {
    if ns > 0 { format!("+{}", us(ns)) } else { us(ns) }
}

/// A share in percent, one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A long name cut in its middle, where C++ names repeat themselves.
pub fn short(name: &str, width: usize) -> String {
    let n = name.chars().count();
    if n <= width || width < 8 {
        return name.to_string();
    }
    let tail = width / 4;
    let head: String = name.chars().take(width - tail - 1).collect();
    let end: String = name.chars().skip(n - tail).collect();
    format!("{head}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_every_nanosecond() {
        assert_eq!(us(1_234_567), "1,234.567");
        assert_eq!(us(-5), "-0.005");
        assert_eq!(delta_us(5), "+0.005");
        assert_eq!(grouped(1_000_000), "1,000,000");
        assert_eq!(short("abcdefghijklmnop", 9), "abcdef…op");
        assert_eq!(short("abc", 9), "abc");
    }

    #[test]
    fn a_sheet_has_three_forms() {
        let mut s = Sheet::new("T", &["name", ">ns"]);
        s.row(["a|b".to_string(), "12".to_string()]);
        assert_eq!(s.markdown(), "### T\n\n| name | ns |\n| --- | ---: |\n| a\\|b | 12 |\n");
        assert_eq!(s.csv().unwrap(), "name,ns\na|b,12\n");
        assert!(s.terminal().starts_with("T\n"));
    }
}
