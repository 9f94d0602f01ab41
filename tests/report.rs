//! The step's report from a made-up recording whose every number is known: closed, escaped, and complete in itself.

use workbench::explain::step::{ModeAccount, account};
use workbench::launch::env::Environment;
use workbench::profile::trace::{Operation, Trace};
use workbench::report::{step_files, step_page};
use workbench::roofline::{Calibration, Ceilings};
use workbench::run::step::recording::{ModeRecord, NodeRecord, Recording, SCHEMA, Times};

const HOSTILE: &str = "k<int>(</script><img src=x>&\"'";

fn node(label: &str, kernel: &str, floor_ns: f64) -> NodeRecord {
    NodeRecord {
        label: label.into(),
        class: format!("class of {label}"),
        op: "matmul".into(),
        variant: "gemv".into(),
        shape: "m=1,n=8,k=8".into(),
        kernels: vec![kernel.into()],
        programmatic: vec![false],
        bytes: 4_000,
        flops: 128,
        floor_ns,
        predicted_ns: floor_ns + 10.0,
        low_ns: floor_ns,
        high_ns: floor_ns + 20.0,
    }
}

/// Two kernels a step, the second begins 20 ns after the first ends; the period is 1 000 ns.
fn recording() -> (Recording, Trace) {
    let mut trace = Trace { resolution_ns: 1, ..Trace::default() };
    for step in 0..5 {
        for (name, start, end) in [("first", 0, 400), (HOSTILE, 420, 900)] {
            let (name, zero) = (trace.names.intern(name), 10_000 + 1_000 * step);
            let at = (zero + start, zero + end);
            trace.operations.push(Operation { name, start: at.0, end: at.1, stream: 7, ..Operation::default() });
        }
    }
    let times = || Times::of(vec![990.0, 1_000.0, 1_010.0]);
    let recording = Recording {
        schema: SCHEMA,
        kind: "step".into(),
        title: "tiny <b>model</b>".into(),
        model: "tiny".into(),
        weights: "bf16".into(),
        batch: 1,
        context: 16,
        environment: Environment {
            gpu: "Card".into(),
            commit: Some("0123456789abcdef".into()),
            started: "2026-11-30T04:26:23.7Z".into(),
            ..Environment::default()
        },
        ceilings: Ceilings::h200(),
        calibration: Calibration::default(),
        note: None,
        nodes: vec![node("A", "first", 300.0), node("B", HOSTILE, 500.0)],
        modes: vec![ModeRecord {
            mode: "stream".into(),
            untraced: times(),
            traced: times(),
            untraced_after: times(),
            trace: "stream.wbt.gz".into(),
            replays: 5,
            dropped: 0,
        }],
        weight_bytes: 0,
        kv_bytes: 0,
    };
    (recording, trace)
}

fn accounted() -> (Recording, Vec<ModeAccount>) {
    let (r, trace) = recording();
    let a = account(&r, &r.modes[0], &trace).unwrap();
    (r, vec![a])
}

#[test]
fn the_page_is_complete_in_itself_and_escaped() {
    let (r, accounts) = accounted();
    let html = step_page::page(&r, &accounts, "recorded").unwrap().render().unwrap();
    for outside in ["http://", "https://", "url(", "@import", "<link", "<img", "src="] {
        let hostile = outside == "src=" && html.matches("src=x").count() == html.matches("src=").count();
        assert!(hostile || !html.contains(outside), "{outside}");
    }
    assert!(!html.contains("<b>model</b>") && html.contains("tiny &lt;b&gt;model"));
    // The hostile kernel is there, and neither markup nor script ends because of it.
    assert_eq!(html.matches("<script").count(), html.matches("</script>").count());
    assert_eq!(html.matches("</script>").count(), 2, "one timeline's data and the page's own script");
    assert!(html.contains("k\\u003cint\\u003e(\\u003c/script"));
    assert!(
        html.contains("residual 0 ns") && html.contains("commit 0123456789,") | html.contains("commit 0123456789<")
    );
    assert!(html.contains("2026-11-30 04:26:23 UTC"));
}

#[test]
fn the_timeline_tiles_the_step_and_names_its_nodes() {
    let (r, accounts) = accounted();
    let page = step_page::page(&r, &accounts, "measured").unwrap();
    let data: serde_json::Value = serde_json::from_str(&page.sections[0].timelines[0].data).unwrap();
    let segments = data["segments"].as_array().unwrap();
    let mut at = 0;
    for s in segments {
        assert_eq!(s[0].as_i64().unwrap(), at);
        at += s[1].as_i64().unwrap();
    }
    assert_eq!(at, 1_000);
    let name = |s: &serde_json::Value| data["names"][s[2].as_u64().unwrap() as usize].as_str().unwrap().to_string();
    assert_eq!(name(&segments[0]), "A: first");
    assert!(segments.iter().any(|s| name(s) == format!("B: {HOSTILE}")));
    let gap = segments.iter().find(|s| s[0] == 400).unwrap();
    let evidence = &data["evidence"][gap[3].as_u64().unwrap() as usize];
    // Records, runner-up, why it lost, whether the clock can tell.
    assert_eq!((gap[1].as_i64(), evidence[3].as_i64()), (Some(20), Some(0)));
    assert!(data["texts"][evidence[1].as_u64().unwrap() as usize].is_string() && evidence[2].is_string());
    assert_eq!(data["groups"].as_array().unwrap().len(), 2);
}

#[test]
fn waterfall_and_ledger_reach_the_measured_step() {
    let (r, accounts) = accounted();
    let page = step_page::page(&r, &accounts, "measured").unwrap();
    let bars = &page.sections[0].waterfall.as_ref().unwrap().bars;
    let (last, rest) = bars.split_last().unwrap();
    assert_eq!((last.value.as_str(), rest[0].value.as_str()), ("1.000", "0.800"));
    assert!((rest.last().unwrap().end - last.end).abs() < 0.011);
    let csv = step_files::csv(&r, &accounts).unwrap();
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let mut sums = std::collections::HashMap::<String, i64>::new();
    for row in reader.records() {
        let row = row.unwrap();
        *sums.entry(row[1].to_string()).or_default() += row[5].parse::<i64>().unwrap();
    }
    assert_eq!((sums["ledger"], sums["waterfall"], sums["node"], sums["class"]), (1_000, 1_000, 880, 880));
    let md = step_files::markdown(&page);
    assert!(md.contains("| residual |  | 0 ns |") && !md.contains("<b>"));
}
