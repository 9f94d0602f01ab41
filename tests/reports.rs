//! Every committed run is accounted again: its trace holds the plan, its ledger closes to 0 ns, and the numbers that the
//! README states are the recording's.

use std::path::{Path, PathBuf};
use workbench::explain::occupancy::driver;
use workbench::explain::sealed::{self, Sealed};
use workbench::explain::step::account;
use workbench::profile::native;
use workbench::run::step::recording::Recording;

fn runs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200");
    let mut runs: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|e| e.unwrap().path()).filter(|p| p.join("step.json").exists()).collect();
    runs.sort();
    runs
}

#[test]
fn every_recorded_step_closes_again() {
    let runs = runs();
    assert!(runs.len() >= 7, "{runs:?}");
    for run in runs {
        let r = Recording::load(&run).unwrap();
        for mode in &r.modes {
            let trace = native::open(&run.join(&mode.trace)).unwrap().trace;
            let a = account(&r, mode, &trace).unwrap_or_else(|e| panic!("{} {}: {e}", run.display(), mode.mode));
            assert_eq!((a.ledger.residual_ns, a.waterfall.residual_ns), (0, 0));
            let sum: i64 = a.ledger.lines.iter().map(|l| l.ns).sum();
            assert_eq!(sum, a.ledger.window_ns);
            let floor: f64 = r.nodes.iter().map(|n| n.floor_ns).sum();
            assert!(mode.untraced.median_ns > floor, "{}: faster than its floor", run.display());
        }
    }
}

/// What a stated number may be: every recorded step's medians and floor, every PyTorch row, every measured ceiling, each
/// as text with its unit.
fn recorded() -> std::collections::BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200");
    let mut known = std::collections::BTreeMap::new();
    let mut ms = |ns: f64, source: String| known.insert(format!("{:.3} ms", ns / 1e6), source);
    for run in runs() {
        let r = Recording::load(&run).unwrap();
        let name = run.file_name().unwrap().to_string_lossy().into_owned();
        ms(r.nodes.iter().map(|n| n.floor_ns).sum(), format!("floor of {name}"));
        for mode in &r.modes {
            ms(mode.untraced.median_ns, format!("{} of {name}", mode.mode));
        }
    }
    for folder in std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().path()) {
        for file in
            ["decode_step.jsonl", "decode_step_batch.jsonl", "decode_step_4bit.jsonl"].map(|name| folder.join(name))
        {
            for line in std::fs::read_to_string(&file).unwrap_or_default().lines() {
                let row: serde_json::Value = serde_json::from_str(line).unwrap();
                if let Some(us) = row["us"].as_f64().or_else(|| row["ns"].as_f64().map(|ns| ns / 1e3)) {
                    ms(us * 1e3, format!("{} of {}", row["peer"], file.display()));
                }
            }
        }
    }
    for folder in std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().path()) {
        let Ok(text) = std::fs::read_to_string(folder.join("roofline.json")) else { continue };
        let run: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (key, value) in run["ceilings"].as_object().unwrap() {
            let (Some(value), source) = (value.as_f64(), format!("{key} of {}", folder.display())) else { continue };
            match key.rsplit('_').next() {
                Some("gbps") => known.insert(format!("{value:.0} GB/s"), source),
                Some("tflops") => known.insert(format!("{value:.0} TFLOP/s"), source),
                Some("ns") => known.insert(format!("{:.2} µs", value / 1e3), source),
                _ => None,
            };
        }
    }
    known
}

#[test]
fn every_time_and_rate_in_the_readme_was_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let known = recorded();
    let number = regex::Regex::new(r"[0-9][0-9,]*(?:\.[0-9]+)? (?:ms|µs|GB/s|TFLOP/s)").unwrap();
    let stated: Vec<String> = number.find_iter(&readme).map(|m| m.as_str().replace(',', "")).collect();
    assert!(stated.len() >= 12, "the README's table of results is gone: {stated:?}");
    for text in &stated {
        assert!(known.contains_key(text), "README states {text}, which no committed run says; they say {known:#?}");
    }
}

/// A number of a page with its unit, and how far from the recorded value its last digit allows it to be.
struct Stated {
    text: String,
    value: f64,
    unit: String,
    slack: f64,
}

/// Every time and rate of a text; of a range, both ends.
fn stated(text: &str) -> Vec<Stated> {
    let pattern = r"([0-9][0-9,]*(?:\.[0-9]+)?)(?: (?:to|and) ([0-9][0-9,]*(?:\.[0-9]+)?))? (ms|µs|GB/s|TFLOP/s)\b";
    let number = |digits: &str, unit: &str| {
        let digits = digits.replace(',', "");
        let decimals = digits.split_once('.').map_or(0, |(_, d)| d.len() as i32);
        let slack = 0.5 * 10f64.powi(-decimals) * (1.0 + 1e-9);
        Stated { text: format!("{digits} {unit}"), value: digits.parse().unwrap(), unit: unit.into(), slack }
    };
    regex::Regex::new(pattern)
        .unwrap()
        .captures_iter(text)
        .flat_map(|c| {
            [c.get(1), c.get(2)].into_iter().flatten().map(move |m| (m.as_str().to_string(), c[3].to_string()))
        })
        .map(|(digits, unit)| number(&digits, &unit))
        .collect()
}

/// Values with their unit that the lab notes' measurements and logs state.
fn noted(root: &Path) -> Vec<(f64, String)> {
    let folders = [root.join("lab_notes"), root.join("lab_notes/logs")];
    let files = folders.iter().flat_map(|f| std::fs::read_dir(f).unwrap()).map(|e| e.unwrap().path());
    let mut all = Vec::new();
    for file in files.filter(|f| f.is_file()) {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        // A note's hypothesis and arithmetic come before its measurement and prove nothing.
        let measured = match file.extension().is_some_and(|e| e == "md") {
            true => text.split_once("## 3. Measurement").map_or("", |(_, rest)| rest),
            false => &text,
        };
        all.extend(stated(measured).into_iter().map(|s| (s.value, s.unit)));
    }
    all
}

/// What a PyTorch profiler's session costs a graph launch, µs a node, in the committed loop.
fn kineto_cost_of_a_node(root: &Path) -> f64 {
    let t = workbench::profile::import::open(&root.join("tests/fixtures/loop/loop_graph.json.gz")).unwrap();
    let calls: Vec<f64> = t
        .calls
        .iter()
        .filter(|c| t.names.text(c.name) == "cudaGraphLaunch")
        .map(|c| (c.end - c.start) as f64 / 1e3)
        .collect();
    workbench::stats::median(&calls) * calls.len() as f64 / t.operations.len() as f64
}

/// Numbers of the docs that are no measurement of ours, each with its reason. One that is no longer stated must go.
const NOT_MEASURED: &[(&str, &str, &str)] = &[
    ("ledger.md", "10 µs", "a threshold of the ledger: Options::launch_ns"),
    ("ledger.md", "100 µs", "a threshold of the ledger: Options::plausible_ns"),
    ("notebook.md", "9.0 µs", "example of a command"),
    ("notebook.md", "0.2 µs", "example of a command"),
    ("notebook.md", "700 GB/s", "example of an arithmetic that is checked"),
    ("notebook.md", "18.4 ms", "example of an arithmetic that is checked"),
    ("prediction.md", "2 µs", "what is assumed of an op without a run"),
    ("prediction.md", "94 µs", "cited: gpt-fast's published steps on A100s, data/cited-decode.json"),
    ("prediction.md", "124 µs", "cited: gpt-fast's published steps on A100s, data/cited-decode.json"),
    ("tracing.md", "10 ms", "a setting of the collector: its earliest flush"),
];

/// The table is made by `predict cited`; its rows are published numbers with their sources in `data/`.
const GENERATED: &str = "cited-decode.md";

#[test]
fn every_time_and_rate_in_the_docs_was_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (known, noted, kineto) = (recorded(), noted(root), kineto_cost_of_a_node(root));
    let mut used = vec![0; NOT_MEASURED.len()];
    let (mut pages, mut numbers) = (0, 0);
    for file in std::fs::read_dir(root.join("docs")).unwrap().map(|e| e.unwrap().path()) {
        let page = file.file_name().unwrap().to_string_lossy().into_owned();
        if file.extension().is_none_or(|e| e != "md") || page == GENERATED {
            continue;
        }
        pages += 1;
        // Sentences run over lines.
        let text = std::fs::read_to_string(&file).unwrap().replace('\n', " ");
        for s in stated(&text) {
            numbers += 1;
            if let Some(i) = NOT_MEASURED.iter().position(|(p, t, _)| *p == page && *t == s.text) {
                used[i] += 1;
                continue;
            }
            let close = |value: f64| (value - s.value).abs() <= s.slack;
            let by_a_note = noted.iter().any(|(value, unit)| *unit == s.unit && close(*value));
            let by_a_fixture = s.unit == "µs" && close(kineto);
            assert!(
                known.contains_key(&s.text) || by_a_note || by_a_fixture,
                "docs/{page} states {}, which no committed run, note or log says",
                s.text
            );
        }
    }
    assert!(pages >= 6 && numbers >= 20, "{pages} pages, {numbers} numbers");
    for ((page, text, _), n) in NOT_MEASURED.iter().zip(used) {
        assert!(n > 0, "docs/{page} no longer states {text}: take it off the list");
    }
    // What the list says of the program's own settings.
    let options = workbench::profile::ledger::Options::default();
    assert_eq!((options.launch_ns, options.plausible_ns), (10_000, 100_000));
}

/// The last column of the README's table is the floor over the step, of the run whose numbers stand in the row.
#[test]
fn the_readmes_shares_of_the_floor_are_the_recordings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let table = readme.split_once("| Llama-3-8B |").expect("the table of results").1;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(2)
        .take_while(|l| l.starts_with('|'))
        .map(|l| l.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let names = ["bf16", "w4a16", "bf16-b8", "bf16-b32"];
    assert_eq!(rows.len(), names.len());
    for (row, name) in rows.iter().zip(names) {
        let r = Recording::load(&root.join("reports/h200").join(format!("2026-12-01-{name}"))).unwrap();
        let (step, floor) =
            (r.mode("graph").unwrap().untraced.median_ns, r.nodes.iter().map(|n| n.floor_ns).sum::<f64>());
        let share = format!("{:.0} %", 100.0 * floor / step);
        let ms = |ns: f64| format!("{:.3} ms", ns / 1e6);
        assert_eq!((row[1], row[4], row[5]), (ms(step).as_str(), ms(floor).as_str(), share.as_str()), "{row:?}");
    }
}

/// How near the step comes to transformers, as the run on the card printed it.
#[test]
fn the_readmes_logit_error_was_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let printed = std::fs::read_to_string(root.join("reports/h200/2026-12-01-gpu-tests/expect.txt")).unwrap();
    let errors: Vec<&str> =
        regex::Regex::new(r"[0-9]\.[0-9]+e-[0-9]+").unwrap().find_iter(&readme).map(|m| m.as_str()).collect();
    assert!(!errors.is_empty(), "the README's logit error is gone");
    for error in errors {
        assert!(printed.contains(&format!("logits within {error} of the fp32 run")), "{error}: {printed}");
    }
    let requests = printed.split_whitespace().next().unwrap();
    assert!(
        readme.contains(&format!("{requests} ragged requests and 32 greedy tokens"))
            && printed.contains("32 steps: 0 tokens")
    );
}

#[test]
fn the_readme_states_the_headline_steps() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for run in ["bf16", "w4a16", "bf16-b8", "bf16-b32"] {
        let r = Recording::load(&root.join("reports/h200").join(format!("2026-12-01-{run}"))).unwrap();
        let text = format!("{:.3} ms", r.mode("graph").unwrap().untraced.median_ns / 1e6);
        assert!(readme.contains(&text), "README does not state {text} of {run}");
    }
}

#[test]
fn every_recorded_row_is_whole_and_none_is_wrong() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200");
    let (mut rows, mut checked) = (0, 0);
    for folder in std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().path()) {
        for file in std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()) {
            if file.extension().is_none_or(|e| e != "jsonl") {
                continue;
            }
            for (i, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
                let at = || format!("{}:{}", file.display(), i + 1);
                let row: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: {e}", at()));
                assert_ne!(row["ok"], false, "{}", at());
                rows += 1;
                checked += usize::from(row["ok"] == true);
                // Memory's floor is beaten by no more than its own uncertainty; that of the tensor cores moves with the power
                // cap.
                let memory = row["bound"] == "memory";
                if let (true, Some(ns), Some(floor)) = (memory, row["ns"].as_f64(), row["floor_ns"].as_f64()) {
                    assert!(ns > 0.97 * floor, "{}: {ns} ns, floor {floor}", at());
                }
            }
        }
    }
    assert!(rows > 3000 && checked > 2000, "{rows} rows, {checked} checked");
}

#[test]
fn every_criterion_bench_ran_to_its_end() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200/2026-11-30-criterion");
    for bench in ["launch_overhead", "matmul", "paged_decode", "softmax_fusion", "w4a16_gemv"] {
        let text = std::fs::read_to_string(root.join(format!("{bench}.txt"))).unwrap();
        let at = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{bench} does not say `{needle}`"));
        // The prediction comes before any measurement, criterion's estimate after it, the environment last.
        assert!(at("predicted") < at("time:   ["), "{bench}");
        assert!(at("time:   [") < text.rfind("NVIDIA H200").unwrap(), "{bench} stopped before its end");
        assert!(!text.contains("panicked"), "{bench}");
    }
}

#[test]
fn shapes_beyond_31_bits_are_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200/2026-11-30-verify-large");
    let mut right = std::collections::BTreeMap::<String, u64>::new();
    for op in ["matmul", "paged_attention", "softmax"] {
        let text = std::fs::read_to_string(root.join(format!("{op}.csv"))).unwrap();
        let mut lines = text.lines();
        assert!(lines.next().unwrap().starts_with("variant,shapes,right,wrong,skipped"));
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let n = |i: usize| cells[i].parse::<u64>().unwrap();
            assert_eq!((n(1), n(3)), (n(2) + n(4), 0), "{line}");
            *right.entry(op.to_string()).or_default() += n(2);
        }
    }
    assert!(right["matmul"] >= 25 && right["paged_attention"] >= 9 && right["softmax"] >= 20, "{right:?}");
}

/// Committed runs that have a file; a test over none says so.
fn with(file: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200");
    let mut found: Vec<PathBuf> = std::fs::read_dir(root).unwrap().map(|e| e.unwrap().path().join(file)).collect();
    found.retain(|path| path.exists());
    found.sort();
    if found.is_empty() {
        eprintln!("SKIPPED: no committed run has a {file}");
    }
    found
}

/// Sweeps that missed the goal, with the misses that their README owns up to: shapes measured, median, worst.
const MISSED: &[(&str, usize, f64, f64)] = &[
    ("2026-11-30-sweep", 178, 0.063, 1.046),
    ("2026-11-30-sweep-rest", 52, 0.031, 0.366),
    ("2026-11-30-sweep-drawn", 260, 0.025, 0.720),
    ("2026-12-01-sweep-drawn", 260, 0.026, 0.597),
];

#[test]
fn sealed_predictions_hold_against_the_runs_that_followed() {
    let (mut measured, mut met) = (0, 0);
    for path in with("sealed.jsonl") {
        let read = |path: &Path| (path.display().to_string(), std::fs::read_to_string(path).unwrap());
        let (name, text) = read(&path);
        let sealed = Sealed::parse(&name, &text).unwrap();
        let runs = ["decode.jsonl", "sweep.jsonl"].map(|run| path.with_file_name(run));
        let run = runs.iter().find(|run| run.exists()).unwrap_or_else(|| panic!("{name} was never measured"));
        let checked = sealed::check(&sealed, &[read(run)]).unwrap();
        let score = sealed::score(&checked.outcomes).unwrap();
        measured += score.n;
        let folder = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        if let Some((_, n, median, worst)) = MISSED.iter().find(|m| m.0 == folder) {
            let near = |a: f64, b: f64| (a - b).abs() < 6e-4;
            assert!(score.n == *n && near(score.median, *median) && near(score.worst, *worst), "{name}: {score:?}");
            let owned = std::fs::read_to_string(path.with_file_name("README.md")).unwrap();
            for said in [format!("{:.1} %", 100.0 * median), format!("{:.1} %", 100.0 * worst)] {
                assert!(owned.contains(&said), "{name}: its README does not say {said}");
            }
            continue;
        }
        assert!(checked.unmeasured.is_empty(), "{name}: {:?}", checked.unmeasured);
        assert!(score.median <= 0.10 && score.worst <= 0.30, "{name}: {score:?}");
        met = met.max(score.n);
    }
    assert!(measured >= 170, "only {measured} sealed shapes were measured");
    assert!(met >= 200, "no sealed sweep of 200 shapes met the goal, only one of {met}");
}

#[test]
fn the_occupancy_arithmetic_is_the_drivers() {
    for path in with("occupancy.csv") {
        let name = path.display().to_string();
        let answers = driver::from_csv(&name, &std::fs::read_to_string(&path).unwrap()).unwrap();
        let differ = driver::differing(&answers).unwrap();
        assert!(differ.is_empty(), "{name}: {} of {} differ: {:?}", differ.len(), answers.len(), differ[0]);
        assert!(answers.len() >= 1000, "{name}: only {} configurations", answers.len());
    }
}

#[test]
fn every_op_was_right_at_two_thousand_random_shapes() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200/2026-11-30-verify-random/summary.csv");
    let mut shapes = std::collections::BTreeMap::<String, u64>::new();
    for line in std::fs::read_to_string(file).unwrap().lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let n = |i: usize| cells[i].parse::<u64>().unwrap();
        assert_eq!((n(1), n(3)), (n(2) + n(4), 0), "{line}");
        *shapes.entry(cells[0].split('/').next().unwrap().to_string()).or_default() += n(1);
    }
    for op in workbench::kernels::OPS {
        assert!(shapes.get(op.name()).is_some_and(|n| *n >= 2000), "{}: {shapes:?}", op.name());
    }
}

/// One process that drives two GPUs, and two processes with a GPU each: every device has its own ledger and its own steps.
#[test]
fn two_gpus_are_accounted_each() {
    use workbench::profile::ledger::{Accountant, Options};
    use workbench::profile::steps;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200/2026-11-30-two-gpus");
    for (file, processes, ranges) in [("one.wbt.gz", 1, 0), ("two.wbt.gz", 2, 30)] {
        let recording = native::open(&folder.join(file)).unwrap();
        assert!(recording.processes.iter().all(|p| p.dropped == 0), "{file}");
        assert_eq!(recording.processes.len(), processes, "{file}");
        let trace = &recording.trace;
        let mut devices: Vec<u32> = trace.operations.iter().map(|o| o.device).collect();
        devices.sort_unstable();
        devices.dedup();
        assert_eq!(devices, [0, 1], "{file}");
        for device in devices {
            let options = Options::default();
            let a = Accountant::new(trace, device, &options);
            let (t0, t1) = a.span().unwrap();
            let ledger = a.window(t0, t1).unwrap();
            assert_eq!((ledger.residual_ns, ledger.window_ns), (0, t1 - t0));
            if ranges > 0 {
                let reduced = ledger.lines.iter().any(|l| l.name.contains("AllReduce"));
                assert!(reduced, "{file}: no reduction on device {device}");
                let found = steps::find(trace, &a, &"range:^decode$".parse().unwrap()).unwrap();
                // One step a range; the last has no next one that would end it.
                assert!((ranges - 1..=ranges).contains(&found.windows.len()), "{}", found.windows.len());
            }
        }
    }
}
