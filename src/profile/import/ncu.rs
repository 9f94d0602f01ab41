//! Nsight Compute tables (`ncu --csv`, details or raw page): counters beside the kernels of a trace.
//!
//! A profiled kernel runs serialised, cold and at a fixed clock, so its duration is never taken; its counters say what the
//! kernel does, and they are shown as evidence next to what the trace measured.

use crate::error::{Error, Result};
use crate::profile::gaps::KernelRow;
use crate::profile::ledger::LineKind;
use serde::Serialize;
use std::io::Read;
use std::path::Path;

/// One profiled launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profiled {
    pub id: String,
    pub name: String,
    pub device: String,
    pub metrics: Vec<Metric>,
    pub rules: Vec<Rule>,
}

/// A counter in its base unit: ns, byte, hz, byte/s, or as written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    pub section: String,
    pub name: String,
    pub unit: String,
    pub value: f64,
}

/// What the tool itself advises.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rule {
    pub name: String,
    pub kind: String,
    pub text: String,
    /// Estimated speed-up, percent.
    pub speedup: Option<f64>,
}

/// Reads a table.
///
/// # Errors
/// `Usage` where there is no header with a kernel name.
pub fn read(path: &Path) -> Result<Vec<Profiled>> {
    let mut bytes = Vec::new();
    super::stream(path)?.read_to_end(&mut bytes).map_err(|e| Error::usage(e.to_string()).at(path.display()))?;
    parse(&bytes).map_err(|e| e.at(path.display()))
}

/// Reads a table from its text. Lines before the header (`==PROF==` and the program's own output) are skipped.
pub fn parse(bytes: &[u8]) -> Result<Vec<Profiled>> {
    let text = String::from_utf8_lossy(bytes);
    let is_header = |l: &str| l.trim_start_matches('\u{feff}').starts_with("\"ID\"") && l.contains("\"Kernel Name\"");
    let start = text.split_inclusive('\n').scan(0, |at, l| {
        *at += l.len();
        Some((*at - l.len(), l))
    });
    let Some((start, _)) = start.into_iter().find(|(_, l)| is_header(l)) else {
        return Err(Error::usage("there is no header line with \"ID\" and \"Kernel Name\"")
            .try_next("ncu --csv --page details -i REPORT.ncu-rep > FILE.csv"));
    };
    let body = text[start..].trim_start_matches('\u{feff}');
    let mut reader = csv::ReaderBuilder::new().flexible(true).has_headers(true).from_reader(body.as_bytes());
    let head: Vec<String> = match reader.headers() {
        Ok(h) => h.iter().map(str::to_string).collect(),
        Err(e) => return Err(Error::usage(format!("the header cannot be read: {e}"))),
    };
    let rows: Vec<csv::StringRecord> = reader
        .records()
        .filter_map(std::result::Result::ok)
        // Notes that the tool prints between the rows are no rows.
        .filter(|r| !r.get(0).is_some_and(|c| c.starts_with("==")))
        .collect();
    let column = |name: &str| head.iter().position(|h| h == name);
    match column("Metric Name") {
        Some(_) => Ok(details(&head, &rows)),
        None => Ok(raw(&head, &rows)),
    }
}

fn cell(row: &csv::StringRecord, column: Option<usize>) -> &str {
    column.and_then(|c| row.get(c)).unwrap_or("")
}

/// One row a metric or rule.
fn details(head: &[String], rows: &[csv::StringRecord]) -> Vec<Profiled> {
    let column = |name: &str| head.iter().position(|h| h == name);
    let [id, process, kernel, device] = ["ID", "Process ID", "Kernel Name", "Device"].map(column);
    let [section, metric, unit, value] = ["Section Name", "Metric Name", "Metric Unit", "Metric Value"].map(column);
    let [rule, kind, advice, gain] = ["Rule Name", "Rule Type", "Rule Description", "Estimated Speedup"].map(column);
    let comma = decimal_comma(rows.iter().map(|r| cell(r, value)));
    let mut out: Vec<(String, Profiled)> = Vec::new();
    for r in rows {
        let key = format!("{}/{}", cell(r, process), cell(r, id));
        if out.last().is_none_or(|(k, _)| *k != key) {
            let made = Profiled {
                id: cell(r, id).into(),
                name: cell(r, kernel).into(),
                device: cell(r, device).into(),
                ..Profiled::default()
            };
            out.push((key, made));
        }
        let Some((_, p)) = out.last_mut() else { continue };
        if let Some(v) = number(cell(r, value), comma) {
            p.metrics.push(based(cell(r, section), cell(r, metric), cell(r, unit), v));
        } else if !cell(r, rule).is_empty() {
            p.rules.push(Rule {
                name: cell(r, rule).into(),
                kind: cell(r, kind).into(),
                text: cell(r, advice).into(),
                speedup: number(cell(r, gain), comma),
            });
        }
    }
    out.into_iter().map(|(_, p)| p).collect()
}

/// One row a launch, one column a metric; the first row holds the units.
fn raw(head: &[String], rows: &[csv::StringRecord]) -> Vec<Profiled> {
    let column = |name: &str| head.iter().position(|h| h == name);
    let [id, kernel, device] = ["ID", "Kernel Name", "Device"].map(column);
    let (units, rows) = match rows.split_first() {
        Some((first, rest)) if cell(first, id).is_empty() => (Some(first), rest),
        _ => (None, rows),
    };
    // Everything after the launch's own columns is a metric.
    let first = ["CC", "Device", "Grid Size", "Block Size", "Kernel Name"].iter().filter_map(|n| column(n)).max();
    let metrics = first.map_or(0, |c| c + 1)..head.len();
    let comma = decimal_comma(rows.iter().flat_map(|r| metrics.clone().filter_map(|c| r.get(c))));
    rows.iter()
        .map(|r| Profiled {
            id: cell(r, id).into(),
            name: cell(r, kernel).into(),
            device: cell(r, device).into(),
            metrics: metrics
                .clone()
                .filter_map(|c| {
                    let unit = units.and_then(|u| u.get(c)).unwrap_or("");
                    Some(based("", &head[c], unit, number(r.get(c)?, comma)?))
                })
                .collect(),
            rules: Vec::new(),
        })
        .collect()
}

/// Whether the file writes `1.234,5` rather than `1,234.5`: told by the values that can mean only one of the two.
fn decimal_comma<'a>(values: impl Iterator<Item = &'a str>) -> bool {
    let mut votes = 0i64;
    for v in values {
        let (dots, commas) = (v.matches('.').count(), v.matches(',').count());
        // Digits after the last mark; three of them may be a group of thousands.
        let after = v.rfind(['.', ',']).map_or(0, |i| v.len() - i - 1);
        votes += match (dots, commas) {
            (1.., 1..) => {
                if v.rfind(',') > v.rfind('.') {
                    1
                } else {
                    -1
                }
            }
            (0, 1) if after != 3 => 1,
            (1, 0) if after != 3 => -1,
            (2.., 0) => 1,
            (0, 2..) => -1,
            _ => 0,
        };
    }
    votes > 0
}

/// A number with thousands marks; none for `n/a`, words and nothing.
fn number(text: &str, comma: bool) -> Option<f64> {
    let plain: String = text
        .trim()
        .chars()
        .filter_map(|c| match (c, comma) {
            (',', false) | ('.', true) | ('\u{a0}' | '\'' | ' ', _) => None,
            (',', true) => Some('.'),
            (c, _) => Some(c),
        })
        .collect();
    plain.parse::<f64>().ok().filter(|v| v.is_finite())
}

/// The metric in its base unit; unknown units stay as they are.
fn based(section: &str, name: &str, unit: &str, value: f64) -> Metric {
    let (factor, base) = match unit {
        "nsecond" | "nsec" | "ns" => (1.0, "ns"),
        "usecond" | "usec" | "us" | "µs" => (1e3, "ns"),
        "msecond" | "msec" | "ms" => (1e6, "ns"),
        "second" | "sec" | "s" => (1e9, "ns"),
        _ => {
            let (scale, rest) = match unit.chars().next() {
                Some('K' | 'k') => (1e3, &unit[1..]),
                Some('M') => (1e6, &unit[1..]),
                Some('G') => (1e9, &unit[1..]),
                Some('T') => (1e12, &unit[1..]),
                _ => (1.0, unit),
            };
            match rest {
                "byte" | "bytes" => (scale, "byte"),
                "byte/second" | "byte/s" => (scale, "byte/s"),
                "hz" | "Hz" => (scale, "hz"),
                "byte/block" => (scale, "byte/block"),
                _ => (1.0, unit),
            }
        }
    };
    Metric { section: section.into(), name: name.into(), unit: base.into(), value: value * factor }
}

/// Counters worth a place beside a kernel: name on the details page, name on the raw page, what the report calls it.
const SHOWN: [(&str, &str, &str); 5] = [
    ("DRAM Throughput", "dram__throughput.avg.pct_of_peak_sustained_elapsed", "DRAM"),
    ("Compute (SM) Throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "SM"),
    ("L2 Hit Rate", "lts__t_sector_hit_rate.pct", "L2 hit"),
    ("Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active", "occupancy"),
    ("Registers Per Thread", "launch__registers_per_thread", "registers"),
];

/// A kernel's bare function name: without return type, template arguments and parameters, which tools print differently.
pub fn stem(name: &str) -> &str {
    let name = name.strip_prefix("void ").unwrap_or(name);
    let end = name.find(['<', '(', '[']).unwrap_or(name.len());
    let bare = name[..end].trim();
    bare.rsplit("::").next().unwrap_or(bare)
}

/// Puts the counters beside the kernels of the same name, the whole name before the bare one; medians over the launches.
/// Returns how many profiled launches found no kernel.
pub fn join(rows: &mut [KernelRow], profiled: &[Profiled]) -> usize {
    let mut of: Vec<Vec<&Profiled>> = vec![Vec::new(); rows.len()];
    let mut strangers = 0;
    for p in profiled {
        let kernel = |r: &&KernelRow| r.kind == LineKind::Kernel;
        let exact = rows.iter().position(|r| kernel(&r) && r.name == p.name);
        let bare: Vec<usize> =
            (0..rows.len()).filter(|&i| kernel(&&rows[i]) && stem(&rows[i].name) == stem(&p.name)).collect();
        match (exact, bare.as_slice()) {
            (Some(i), _) => of[i].push(p),
            (None, &[i]) => of[i].push(p),
            // Several instances of one template cannot be told apart by their bare name.
            _ => strangers += 1,
        }
    }
    for (row, launches) in rows.iter_mut().zip(of) {
        for (details, raw, shown) in SHOWN {
            let values = launches.iter().filter_map(|p| p.metrics.iter().find(|m| m.name == details || m.name == raw));
            let found: Vec<&Metric> = values.collect();
            let numbers: Vec<f64> = found.iter().map(|m| m.value).collect();
            if let Some(m) = found.first() {
                row.counters.push((shown.to_string(), m.unit.clone(), crate::stats::median(&numbers)));
            }
        }
    }
    strangers
}

#[cfg(test)]
mod tests {
    use super::*;

    const DETAILS: &str = "==PROF== Connected to process 7\nhello from the program\n\
\"ID\",\"Process ID\",\"Kernel Name\",\"Device\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\",\"Rule Name\",\"Rule Type\",\"Rule Description\",\"Estimated Speedup Type\",\"Estimated Speedup\"\n\
\"0\",\"7\",\"void k<int>(int *)\",\"0\",\"SOL\",\"Duration\",\"usecond\",\"1,234.50\",\n\
\"0\",\"7\",\"void k<int>(int *)\",\"0\",\"SOL\",\"DRAM Throughput\",\"%\",\"61.84\",\n\
\"0\",\"7\",\"void k<int>(int *)\",\"0\",\"SOL\",\"\",\"\",\"\",\"Bottleneck\",\"OPT\",\"Look, here\",\"local\",\"12.5\"\n\
\"0\",\"7\",\"void k<int>(int *)\",\"0\",\"Mem\",\"Max Bandwidth\",\"Gbyte/second\",\"196.5\",\n\
\"1\",\"7\",\"j\",\"0\",\"SOL\",\"Elapsed Cycles\",\"cycle\",\"n/a\",\n";

    #[test]
    fn details_page_with_ragged_rows() {
        let p = parse(DETAILS.as_bytes()).unwrap();
        assert_eq!(p.len(), 2);
        let values: Vec<(&str, &str, f64)> =
            p[0].metrics.iter().map(|m| (m.name.as_str(), m.unit.as_str(), m.value)).collect();
        assert_eq!(
            values,
            [("Duration", "ns", 1_234_500.0), ("DRAM Throughput", "%", 61.84), ("Max Bandwidth", "byte/s", 196.5e9)]
        );
        assert_eq!((p[0].rules[0].name.as_str(), p[0].rules[0].speedup), ("Bottleneck", Some(12.5)));
        assert!(p[1].metrics.is_empty());
        assert!(parse(b"no table here").is_err());
    }

    #[test]
    fn european_numbers() {
        let text = DETAILS.replace("1,234.50", "1.234,50").replace("61.84", "61,84").replace("196.5", "196,5");
        let p = parse(text.as_bytes()).unwrap();
        assert_eq!(p[0].metrics[0].value, 1_234_500.0);
        assert_eq!(p[0].metrics[1].value, 61.84);
    }

    #[test]
    fn raw_page_with_a_row_of_units() {
        let text = "\"ID\",\"Process ID\",\"Kernel Name\",\"Device\",\"CC\",\"dram__throughput.avg.pct_of_peak_sustained_elapsed\",\"gpu__time_duration.sum\"\n\
\"\",\"\",\"\",\"\",\"\",\"%\",\"msecond\"\n\
\"0\",\"7\",\"k\",\"0\",\"9.0\",\"50.0\",\"2\"\n\"1\",\"7\",\"k\",\"0\",\"9.0\",\"70.0\",\"3\"\n";
        let p = parse(text.as_bytes()).unwrap();
        assert_eq!((p.len(), p[1].metrics[1].value, p[1].metrics[1].unit.as_str()), (2, 3e6, "ns"));
        let row = |name: &str| KernelRow {
            kind: LineKind::Kernel,
            name: name.into(),
            calls: 1,
            total_ns: 1,
            median_ns: 1,
            p99_ns: 1,
            min_ns: 1,
            max_ns: 1,
            bytes: None,
            floor_ns: None,
            predicted_ns: None,
            counters: Vec::new(),
        };
        let mut rows = [row("void k<float>(float*)"), row("other")];
        assert_eq!(join(&mut rows, &p), 0);
        assert_eq!(rows[0].counters, [("DRAM".to_string(), "%".to_string(), 60.0)]);
        assert!(rows[1].counters.is_empty());
        assert_eq!(join(&mut [row("other")], &p), 2);
    }

    #[test]
    fn bare_names() {
        assert_eq!(stem("void at::native::vectorized_elementwise_kernel<4, X>(int)"), "vectorized_elementwise_kernel");
        assert_eq!(stem("copy_blocked[v1,cw51](Array)"), "copy_blocked");
    }
}
