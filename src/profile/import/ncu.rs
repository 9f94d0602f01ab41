//! Nsight Compute tables (`ncu --csv`, details or raw page): counters beside the kernels of a trace.
//!
//! A profiled kernel runs serialised, cold and at a fixed clock, so its duration is never taken; its counters say what the
//! kernel does, and they are shown as evidence next to what the trace measured.

mod join;

use crate::error::{Error, Result};
use crate::profile::trace::Operation;
pub use join::{Joined, Launched, join};
use serde::Serialize;
use std::io::Read;
use std::path::Path;

/// One profiled launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profiled {
    pub id: String,
    pub name: String,
    pub device: String,
    /// Blocks of the grid and threads of a block; none in the tables of old releases.
    pub grid: Option<[u32; 3]>,
    pub block: Option<[u32; 3]>,
    pub metrics: Vec<Metric>,
    pub rules: Vec<Rule>,
}

impl Profiled {
    /// Whether an operation has the grid and block of this launch, where they are known.
    fn fits(&self, o: &Operation) -> bool {
        let alike = |mine: Option<[u32; 3]>, its: [u32; 3]| mine.is_none_or(|m| its == [0; 3] || m == its);
        alike(self.grid, o.grid) && alike(self.block, o.block)
    }
}

/// `(132, 1, 1)`.
fn triple(text: &str) -> Option<[u32; 3]> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|t| !t.is_empty()).map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some([next()?, next()?, next()?])
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
    let [grid, block] = ["Grid Size", "Block Size"].map(column);
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
                grid: triple(cell(r, grid)),
                block: triple(cell(r, block)),
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
    let [grid, block] = ["Grid Size", "Block Size"].map(column);
    let (units, rows) = match rows.split_first() {
        Some((first, rest)) if cell(first, id).is_empty() => (Some(first), rest),
        _ => (None, rows),
    };
    // Everything after the launch's own columns is a metric.
    let own = ["CC", "Device", "Grid Size", "Block Size", "Kernel Name", "Kernel Time", "Context", "Stream"];
    let first = own.iter().filter_map(|n| column(n)).max();
    let metrics = first.map_or(0, |c| c + 1)..head.len();
    let comma = decimal_comma(rows.iter().flat_map(|r| metrics.clone().filter_map(|c| r.get(c))));
    rows.iter()
        .map(|r| Profiled {
            id: cell(r, id).into(),
            name: cell(r, kernel).into(),
            device: cell(r, device).into(),
            grid: triple(cell(r, grid)),
            block: triple(cell(r, block)),
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
        // Clock rates of releases before 2020.3, by size.
        "cycle/nsecond" => (1e9, "hz"),
        "cycle/usecond" => (1e6, "hz"),
        "cycle/msecond" => (1e3, "hz"),
        "cycle/second" => (1.0, "hz"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::gaps::KernelRow;
    use crate::profile::ledger::LineKind;
    use crate::profile::trace::Names;

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
    }

    #[test]
    fn rates_have_one_unit() {
        let hz = |unit: &str, value| based("", "SM Frequency", unit, value);
        for (unit, value) in [("cycle/nsecond", 1.755), ("cycle/usecond", 1755.0), ("Ghz", 1.755), ("Mhz", 1755.0)] {
            let m = hz(unit, value);
            assert!(m.unit == "hz" && (m.value - 1.755e9).abs() < 1.0, "{unit}: {m:?}");
        }
    }

    /// Rows by name, and the operations that are summed on them.
    struct Kernels {
        rows: Vec<KernelRow>,
        names: Names,
        operations: Vec<(Operation, usize)>,
    }

    impl Kernels {
        fn new(rows: usize) -> Self {
            let row = |i: usize| KernelRow { kind: LineKind::Kernel, name: format!("row {i}"), ..KernelRow::default() };
            Self { rows: (0..rows).map(row).collect(), names: Names::default(), operations: Vec::new() }
        }
        fn ran(&mut self, name: &str, grid: u32, row: usize) {
            let name = self.names.intern(name);
            self.operations
                .push((Operation { name, grid: [grid, 1, 1], block: [128, 1, 1], ..Operation::default() }, row));
        }
        /// By row, the values of the one counter.
        fn join(&mut self, profiled: &[Profiled]) -> (Joined, Vec<Option<f64>>) {
            let launched: Vec<_> =
                self.operations.iter().map(|(o, row)| Launched { operation: o, row: *row }).collect();
            self.rows.iter_mut().for_each(|r| r.counters.clear());
            let found = join(&mut self.rows, &launched, &self.names, profiled);
            (found, self.rows.iter().map(|r| r.counters.first().map(|c| c.2)).collect())
        }
    }

    fn profiled(name: &str, grid: Option<u32>, dram: f64) -> Profiled {
        let metrics = vec![based("", "DRAM Throughput", "%", dram)];
        let block = grid.map(|_| [128, 1, 1]);
        Profiled { name: name.into(), grid: grid.map(|x| [x, 1, 1]), block, metrics, ..Profiled::default() }
    }

    #[test]
    fn counters_are_joined_by_name_in_any_spelling() {
        let mut k = Kernels::new(2);
        k.ran("void k<(int)4, (bool)1>(float*)", 1, 0);
        k.ran("void k<(int)8, (bool)1>(float*)", 1, 1);
        let all = [profiled("void k<4, true>(float *)", None, 50.0), profiled("void k<4, true>(float *)", None, 70.0)];
        assert_eq!(k.join(&all), (Joined { by_name: 2, ..Joined::default() }, vec![Some(60.0), None]));
        assert_eq!(k.join(&[profiled("other", None, 1.0)]).0.strangers, 1);
    }

    #[test]
    fn where_the_name_is_not_enough_grid_and_order_tell() {
        // Two steps of four kernels that `ncu --kernel-name-base function` calls by one name, and another between them.
        let mut k = Kernels::new(4);
        for _ in 0..2 {
            k.ran("void gemv<2>(float*)", 32, 0);
            k.ran("norm", 1, 3);
            k.ran("void gemv<4>(float*)", 64, 1);
            k.ran("void gemv<2>(float*)", 32, 0);
            k.ran("void gemv<8>(float*)", 32, 2);
        }
        // The grid is one instance's alone.
        assert_eq!(k.join(&[profiled("gemv", Some(64), 9.0)]).1[..3], [None, Some(9.0), None]);
        // By the order of a whole step, the kernels that were not profiled left out.
        let step: Vec<_> =
            [(32, 1.0), (64, 2.0), (32, 3.0), (32, 4.0)].map(|(g, v)| profiled("gemv", Some(g), v)).into();
        let (joined, values) = k.join(&step);
        assert_eq!(values[..3], [Some(2.0), Some(2.0), Some(4.0)]);
        assert_eq!(joined, Joined { by_order: 4, ..Joined::default() });
        // Without launch configurations by order alone; a single launch that could be any is none.
        let bare: Vec<_> = step.iter().map(|p| profiled("gemv", None, p.metrics[0].value)).collect();
        assert_eq!(k.join(&bare[1..]).0.strangers, 3, "it stands at several places, whose rows differ");
        assert_eq!(k.join(&[bare.clone(), bare].concat()).0.by_order, 8);
        assert_eq!(k.join(&[profiled("gemv", None, 1.0)]).0.strangers, 1);
    }

    #[test]
    fn bare_names() {
        assert_eq!(stem("void at::native::vectorized_elementwise_kernel<4, X>(int)"), "vectorized_elementwise_kernel");
        assert_eq!(stem("copy_blocked[v1,cw51](Array)"), "copy_blocked");
    }
}
