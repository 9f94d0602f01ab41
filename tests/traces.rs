//! The importers and the ledger on public traces, against values that an independent script found.
//!
//! The files lie beside a development checkout in `../shared/traces`; elsewhere each test says that it is skipped.

use std::path::PathBuf;
use workbench::profile::import;
use workbench::profile::ledger::{Accountant, Ledger, Options};
use workbench::profile::trace::{Trace, Work};

fn file(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let found = root.ancestors().skip(1).map(|d| d.join("shared/traces").join(name)).find(|p| p.exists());
    if found.is_none() {
        eprintln!("skipped: {name} is not in ../shared/traces");
    }
    found
}

fn trace(name: &str) -> Option<Trace> {
    file(name).map(|path| import::open(&path).unwrap())
}

/// Microseconds as the reference table prints them, to one decimal.
fn tenths(ns: i64) -> i64 {
    (ns + 50) / 100
}

/// One row of the reference table; times in tenths of µs.
struct Reference {
    file: &'static str,
    operations: u64,
    sum: i64,
    busy: i64,
    span: i64,
    gaps: usize,
    /// Gap time in gaps of at most 2 µs, of 2 to 30 µs, longer.
    by_length: [i64; 3],
}

const REFERENCES: [Reference; 3] = [
    Reference {
        file: "vllm_decode_graph_mi300.json.gz",
        operations: 434,
        sum: 107_177,
        busy: 107_177,
        span: 107_432,
        // The reference table says 391: its script added floats, and 42 of the 430 gaps of exactly 1 ns vanished.
        gaps: 433,
        by_length: [4, 250, 0],
    },
    Reference {
        file: "qwen_0p5b_h100_orphans.json.gz",
        operations: 1_707,
        sum: 456_473,
        busy: 456_473,
        span: 496_528,
        gaps: 1_706,
        by_length: [20_610, 6_182, 13_263],
    },
    Reference {
        file: "a100_graph_launches.json.gz",
        operations: 7_747,
        sum: 4_497_630,
        busy: 4_384_240,
        span: 12_314_610,
        gaps: 7_075,
        by_length: [23_390, 208_270, 7_698_710],
    },
];

#[test]
fn reference_values_are_met_exactly() {
    for r in REFERENCES {
        let Some(t) = trace(r.file) else { continue };
        let device = t.operations[0].device;
        assert!(t.operations.iter().all(|o| o.device == device));
        let options = Options::default();
        let accountant = Accountant::new(&t, device, &options);
        let (t0, t1) = accountant.span().unwrap();
        let l = accountant.window(t0, t1).unwrap();
        assert_eq!(l.residual_ns, 0, "{}", r.file);
        assert_eq!(l.operations, r.operations, "{}", r.file);
        assert_eq!(tenths(l.duration_ns), r.sum, "{}", r.file);
        assert_eq!(tenths(l.busy_ns), r.busy, "{}", r.file);
        assert_eq!(tenths(l.window_ns), r.span, "{}", r.file);
        // Gaps whole: pieces that touch belong to one.
        let mut gaps: Vec<(i64, i64)> = Vec::new();
        for p in &l.pieces {
            match gaps.last_mut() {
                Some(last) if last.1 == p.start => last.1 = p.end,
                _ => gaps.push((p.start, p.end)),
            }
        }
        assert_eq!(gaps.len(), r.gaps, "{}", r.file);
        let mut by_length = [0; 3];
        for (a, b) in gaps {
            by_length[usize::from(b - a > 2_000) + usize::from(b - a > 30_000)] += b - a;
        }
        assert_eq!(by_length.map(tenths), r.by_length, "{}", r.file);
    }
}

#[test]
fn nsys_sqlite_and_its_chrome_twin_agree() {
    let (Some(mut sql), Some(json)) =
        (trace("nsys_power_iteration_t4.sqlite"), trace("nsys_power_iteration_t4.json.gz"))
    else {
        return;
    };
    assert_eq!(sql.calls.len(), json.calls.len());
    // The Chrome file was made without the copies: only then is the comparison of like with like.
    assert_eq!(sql.operations.len() - json.operations.len(), 89);
    sql.operations.retain(|o| matches!(o.work, Work::Kernel));
    assert_eq!(sql.operations.len(), json.operations.len());
    let options = Options::default();
    let (a, b) = (Accountant::new(&sql, 0, &options), Accountant::new(&json, 0, &options));
    assert_eq!(a.span(), b.span());
    let (t0, t1) = a.span().unwrap();
    let (a, b) = (a.window(t0, t1).unwrap(), b.window(t0, t1).unwrap());
    assert_eq!((a.busy_ns, a.window_ns, a.operations), (b.busy_ns, b.window_ns, b.operations));
    // Not only what ran: every line, idle time by cause included, and every segment of the time line.
    let lines = |l: &Ledger| l.lines.iter().map(|x| (x.kind, x.name.clone(), x.count, x.ns)).collect::<Vec<_>>();
    let short = |l: &Ledger| lines(l).into_iter().filter(|x| !x.0.is_busy()).collect::<Vec<_>>();
    assert_eq!(short(&a), short(&b));
    let segments =
        |l: &Ledger| l.segments.iter().map(|s| (s.start, s.end, l.lines[s.line as usize].cause)).collect::<Vec<_>>();
    assert_eq!(segments(&a), segments(&b));
    // The Chrome file has short kernel names, so templates share a line there; the time is the same.
    let busy = |l: &Ledger| lines(l).iter().filter(|x| x.0.is_busy()).map(|x| x.3).sum::<i64>();
    assert_eq!(busy(&a), busy(&b));
}

#[test]
fn nsight_compute_details_are_read_whole() {
    let Some(path) = file("ncu_details_copy_blocked_t4.csv") else { return };
    let profiled = import::ncu::read(&path).unwrap();
    assert_eq!(profiled.len(), 1);
    let p = &profiled[0];
    assert!(p.name.starts_with("copy_blocked["));
    let value = |name: &str| p.metrics.iter().find(|m| m.name == name).map(|m| (m.value, m.unit.as_str()));
    assert_eq!(value("Duration"), Some((21_058_944.0, "ns")));
    assert_eq!(value("DRAM Frequency"), Some((4_963_609_951.19, "hz")));
    assert_eq!(value("DRAM Throughput"), Some((61.84, "%")));
    // 72 metric rows, one of them a word, and 11 rows of rules.
    assert_eq!((p.metrics.len(), p.rules.len()), (71, 11));
    assert_eq!(p.rules.iter().filter_map(|r| r.speedup).fold(0.0, f64::max), 98.86);
}

#[test]
fn the_example_in_the_docs_is_what_the_program_says() {
    let Some(t) = trace("event_sync_3streams_a100.json.gz") else { return };
    let options = Options::default();
    let a = Accountant::new(&t, 0, &options);
    let (t0, t1) = a.span().unwrap();
    let l = a.window(t0, t1).unwrap();
    let said: Vec<(String, u64, i64)> = l
        .lines
        .iter()
        .map(|x| (format!("{} {}", format!("{:?}", x.kind).to_lowercase(), x.name), x.count, x.ns / 1_000))
        .collect();
    let docs = std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/ledger.md")).unwrap();
    let table = docs.split("| line | pieces | µs |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|r| r.starts_with('|'));
    let cells = rows.map(|r| r.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let (mut written, mut sum) = (Vec::new(), 0);
    for c in cells {
        match c[0] {
            "sum" => sum = c[2].parse::<i64>().unwrap(),
            name => written.push((name.to_string(), c[1].parse().unwrap(), c[2].parse().unwrap())),
        }
    }
    let sorted = |mut v: Vec<(String, u64, i64)>| {
        v.sort();
        v
    };
    assert_eq!(sorted(said), sorted(written));
    assert_eq!(sum, l.window_ns / 1_000);
}
