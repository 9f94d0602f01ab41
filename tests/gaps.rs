//! `gaps`, `doctor FILE` and `compare` from the command line, on made-up captures.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use workbench::profile::synth;

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_workbench")).args(args).output().unwrap()
}

fn json(args: &[&str]) -> Value {
    let out = run(&[args, &["--json", "-"]].concat());
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// A decode loop of five steps in a file of its own.
fn capture(folder: &Path, name: &str, layers: u64, seed: u64) -> PathBuf {
    let mut text = Vec::new();
    synth::kineto(5, layers, seed, &mut text).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_json_has_the_keys_that_scripts_rely_on() {
    let folder = tempfile::tempdir().unwrap();
    let v = json(&["gaps", text(&capture(folder.path(), "a.json", 4, 1))]);
    for key in [
        "schema",
        "provenance",
        "environment",
        "device",
        "window_ns",
        "residual_ns",
        "operations",
        "busy_ns",
        "lines",
        "steps",
        "defects",
    ] {
        assert!(!v[key].is_null(), "{key}");
    }
    assert_eq!((v["residual_ns"].as_i64(), v["operations"].as_i64()), (Some(0), Some(100)));
    let lines = v["lines"].as_array().unwrap();
    let sum: i64 = lines.iter().map(|l| l["ns"].as_i64().unwrap()).sum();
    assert_eq!(Some(sum), v["window_ns"].as_i64());
    for l in lines {
        let kind = l["kind"].as_str().unwrap();
        assert!(["kernel", "overlap", "memcpy", "memset", "gap", "head", "tail", "unknown"].contains(&kind));
        assert!(l["name"].is_string() && l["count"].is_u64());
    }
    assert_eq!(v["steps"].as_array().unwrap().len(), 5);
    assert_eq!(v["step_report"]["n"], 4);
    for s in v["steps"].as_array().unwrap() {
        let sum: i64 = s["lines"].as_array().unwrap().iter().map(|l| l["ns"].as_i64().unwrap()).sum();
        assert_eq!(Some(sum), s["window_ns"].as_i64());
    }
    assert!(v["segments"].is_null(), "segments come only when asked for");
}

#[test]
fn compressed_files_and_repetition_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let plain = capture(folder.path(), "a.json", 4, 1);
    let bytes = std::fs::read(&plain).unwrap();
    // The names say nothing: formats are told by content.
    let gz = folder.path().join("b.bin");
    let mut w = flate2::write::GzEncoder::new(std::fs::File::create(&gz).unwrap(), flate2::Compression::fast());
    std::io::Write::write_all(&mut w, &bytes).unwrap();
    w.finish().unwrap();
    let zst = folder.path().join("c.bin");
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    std::fs::write(&zst, ruzstd::encoding::compress_to_vec(bytes.as_slice(), level)).unwrap();
    let lines = |p: &Path| json(&["gaps", text(p)])["lines"].clone();
    assert_eq!(lines(&plain), lines(&gz));
    assert_eq!(lines(&plain), lines(&zst));
    let steps = |how: &str| {
        let v = json(&["gaps", text(&plain), "--step", how]);
        v["steps"].as_array().unwrap().iter().map(|s| s["start_ns"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(steps("profiler"), steps("range:^ProfilerStep"));
    assert_eq!(steps("whole").len(), 1);
    assert_eq!(run(&["gaps", text(&plain), "--step", "graph"]).status.code(), Some(2));
}

#[test]
fn every_form_of_the_report_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let a = capture(folder.path(), "a.json", 4, 1);
    let out = |name: &str| folder.path().join(name);
    let (csv, md, perfetto) = (out("a.csv"), out("a.md"), out("a.perfetto.json"));
    let o = run(&["gaps", text(&a), "--csv", text(&csv), "--md", text(&md), "--perfetto", text(&perfetto)]);
    assert!(o.status.success());
    let table = String::from_utf8(o.stdout).unwrap();
    for part in
        ["Ledger: every nanosecond", "Why the device idled", "residual", "Not launch latency", "ProfilerStep ranges"]
    {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
    let rows = std::fs::read_to_string(csv).unwrap();
    assert!(rows.starts_with("file,device,kind,name,count,ns,floor_ns,predicted_ns\n"));
    assert!(std::fs::read_to_string(md).unwrap().contains("| kind | name |"));
    // The page holds its timelines and asks nothing of a network; no kernel's angle bracket is left as markup.
    let html = out("a.html");
    assert!(run(&["gaps", text(&a), "--html", text(&html)]).status.success());
    let page = std::fs::read_to_string(html).unwrap();
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<__nv_bfloat16"));
    assert!(page.contains("rows&lt;__nv_bfloat16") && page.contains("rows\\u003c__nv_bfloat16"));
    assert!(page.contains("residual 0 ns") && page.contains("id=\"timeline-0-p99\""));
    let trace: Value = serde_json::from_slice(&std::fs::read(perfetto).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 200);
}

#[test]
fn doctor_says_what_a_file_is_worth() {
    let folder = tempfile::tempdir().unwrap();
    let good = capture(folder.path(), "a.json", 4, 1);
    assert_eq!(json(&["doctor", text(&good)])["defects"].as_array().unwrap().len(), 0);
    let cut = folder.path().join("cut.json");
    let bytes = std::fs::read(&good).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let v = json(&["doctor", text(&cut)]);
    let truncated = v["defects"].as_array().unwrap().iter().find(|d| d["defect"] == "truncated").unwrap();
    assert!(truncated["first_offset"].as_u64().unwrap() <= bytes.len() as u64 / 2);
    assert!(run(&["gaps", text(&cut)]).status.success());
    let bare = folder.path().join("bare.json");
    std::fs::write(&bare, r#"{"schemaVersion": 1, "traceEvents": []}"#).unwrap();
    assert_eq!(run(&["doctor", text(&bare)]).status.code(), Some(4));
    assert_eq!(run(&["gaps", text(&bare)]).status.code(), Some(4));
    let other = folder.path().join("other.txt");
    std::fs::write(&other, "hello\n").unwrap();
    for bad in [text(&other), "no/such/file"] {
        let o = run(&["gaps", bad]);
        assert_eq!(o.status.code(), Some(2));
        assert!(!o.stderr.is_empty() && o.stdout.is_empty());
    }
}

#[test]
fn compare_explains_the_difference_and_gates() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (capture(folder.path(), "a.json", 4, 1), capture(folder.path(), "b.json", 5, 1));
    let v = json(&["compare", text(&a), text(&b)]);
    assert_eq!((v["residual_ns"].as_i64(), v["verdict"].as_str()), (Some(0), Some("slower")));
    let sum: i64 = v["lines"].as_array().unwrap().iter().map(|l| l["delta_ns"].as_i64().unwrap()).sum();
    assert_eq!(Some(sum), v["wall_delta_ns"].as_i64());
    assert_eq!(v["sequences"]["distance"], 5);
    let gate = |a: &Path, b: &Path| run(&["compare", text(a), text(b), "--max-regression", "5%"]).status.code();
    assert_eq!(gate(&a, &b), Some(1));
    assert_eq!(gate(&b, &a), Some(0));
    assert_eq!(json(&["compare", text(&a), text(&a)])["verdict"], "same");
    // A report of ours in JSON stands for its trace.
    let report = folder.path().join("report.json");
    assert!(run(&["gaps", text(&a), "--json", text(&report)]).status.success());
    let v = json(&["compare", text(&report), text(&report)]);
    assert_eq!((v["wall_delta_ns"].as_i64(), v["verdict"].as_str()), (Some(0), Some("same")));
    assert_eq!(run(&["compare", text(&a), text(&b), "--max-regression", "x"]).status.code(), Some(2));
}

/// A trace that `step --out` wrote has its plan beside it: each kernel stands under its node's class, with floor and
/// prediction, and the median step is the one that `step` prints.
#[test]
fn a_recorded_steps_trace_is_accounted_by_plan_node() {
    let run_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200/2026-11-30-step-bf16");
    let trace = run_folder.join("graph.wbt.gz");
    let gaps = json(&["gaps", text(&trace)]);
    let step = json(&["step", "--from", text(&run_folder)]);
    let kernels = |v: &Value| -> Vec<Value> {
        v["lines"].as_array().unwrap().iter().filter(|l| l["kind"] == "kernel").cloned().collect()
    };
    let names = |v: &Value| {
        let mut names: Vec<String> = kernels(v).iter().map(|l| l["name"].as_str().unwrap().to_string()).collect();
        names.sort();
        names
    };
    let classes: Vec<&str> =
        step["steps"][0]["classes"].as_array().unwrap().iter().map(|c| c["class"].as_str().unwrap()).collect();
    assert!(names(&gaps).len() >= 5 && names(&step).iter().all(|n| names(&gaps).contains(n)), "{:?}", names(&gaps));
    for l in kernels(&gaps).iter().chain(gaps["kernels"].as_array().unwrap()).filter(|l| l["kind"] == "kernel") {
        assert!(classes.contains(&l["name"].as_str().unwrap()), "{l}");
        assert!(l["floor_ns"].as_i64() > Some(0) && l["predicted_ns"].is_i64(), "{l}");
    }
    assert!(gaps["plan"].as_str().unwrap().starts_with("llama-3-8b bf16"), "{}", gaps["plan"]);
    assert_eq!(gaps["residual_ns"], 0);
    // Moved away from its plan it has the kernels' own names; with a plan of another step it says so and goes on.
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("graph.wbt.gz");
    std::fs::copy(&trace, &alone).unwrap();
    let bare = json(&["gaps", text(&alone)]);
    assert!(bare["plan"].is_null() && kernels(&bare).iter().all(|l| l["floor_ns"].is_null()));
    assert_eq!(bare["window_ns"], gaps["window_ns"]);
    std::fs::copy(
        run_folder.with_file_name("2026-11-30-step-w4a16").join("step.json"),
        folder.path().join("step.json"),
    )
    .unwrap();
    let o = run(&["gaps", text(&alone), "--json", "-"]);
    assert!(o.status.success());
    assert!(String::from_utf8_lossy(&o.stderr).contains("step.json does not fit"));
}

/// `compare` takes what `step --out` leaves: the folder, its step.json, or one of its traces.
#[test]
fn compare_takes_recorded_steps() {
    let reports = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200");
    let (bf16, w4a16) = (reports.join("2026-11-30-step-bf16"), reports.join("2026-11-30-step-w4a16"));
    let v = json(&["compare", text(&bf16), text(&w4a16)]);
    assert_eq!((v["residual_ns"].as_i64(), v["verdict"].as_str()), (Some(0), Some("faster")));
    let [a, b] = [&bf16, &w4a16].map(|run| json(&["step", "--from", text(run)])["window_ns"].as_i64().unwrap());
    assert_eq!((v["a_window_ns"].as_i64(), v["b_window_ns"].as_i64()), (Some(a), Some(b)));
    assert_eq!(v["wall_delta_ns"].as_i64(), Some(b - a));
    // By class, so that kernels of other names stand on one line.
    let row = v["lines"].as_array().unwrap().iter().find(|l| l["kind"] == "kernel" && l["name"] == "gate_up").unwrap();
    assert!(row["a_count"].as_u64() > Some(0) && row["b_count"].as_u64() > Some(0), "{row}");
    let other = json(&["compare", text(&bf16.join("step.json")), text(&w4a16.join("graph.wbt.gz"))]);
    assert_eq!((&other["lines"], &other["verdict"]), (&v["lines"], &v["verdict"]));
    // The other mode, by its trace; and a run against a plain trace.
    let stream = json(&["compare", text(&bf16), text(&bf16.join("stream.wbt.gz"))]);
    assert_eq!(stream["a_window_ns"].as_i64(), Some(a));
    assert_ne!(stream["b_window_ns"], stream["a_window_ns"]);
    let folder = tempfile::tempdir().unwrap();
    let plain = capture(folder.path(), "a.json", 4, 1);
    assert_eq!(json(&["compare", text(&bf16), text(&plain)])["residual_ns"], 0);
    for (args, words) in [
        (vec![text(folder.path()), text(&bf16)], "a folder without step.json"),
        (vec![text(&bf16), text(&bf16), "--step", "graph"], "has its own"),
    ] {
        let o = run(&[&["compare"], args.as_slice()].concat());
        assert_eq!(o.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&o.stderr).contains(words), "{}", String::from_utf8_lossy(&o.stderr));
    }
}

/// A recording that was cut, as a full disk or a broken download leaves it, is accounted up to the cut.
#[test]
fn a_cut_recording_is_accounted_up_to_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/loop/loop_eager.wbt.gz");
    let bytes = std::fs::read(&whole).unwrap();
    let cut = folder.path().join("graph.wbt.gz");
    std::fs::write(&cut, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let v = json(&["doctor", text(&cut)]);
    let truncated = v["defects"].as_array().unwrap().iter().find(|d| d["defect"] == "truncated").unwrap();
    assert!(
        truncated["count"] == 1 && truncated["first_offset"].as_u64() > Some(bytes.len() as u64 / 3),
        "{truncated}"
    );
    let (part, all) = (json(&["gaps", text(&cut)]), json(&["gaps", text(&whole)]));
    let operations = |v: &Value| v["operations"].as_u64().unwrap();
    assert!(operations(&part) > operations(&all) / 3 && operations(&part) < operations(&all));
    assert_eq!(part["residual_ns"], 0);
    assert!(part["defects"].as_array().unwrap().iter().any(|d| d["defect"] == "truncated"));
}

/// Counters of Nsight Compute stand beside the kernels, by name and, where the name is several kernels', by order.
#[test]
fn counters_are_put_beside_the_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let trace = capture(folder.path(), "a.json", 2, 1);
    let csv = folder.path().join("ncu.csv");
    let head = r#""ID","Process ID","Kernel Name","Grid Size","Block Size","Metric Name","Metric Unit","Metric Value""#;
    // A step's five kernels of a layer, as `--kernel-name-base function` names them: two are instances of one template.
    let layer = ["rmsnorm_kernel", "gemv_rows", "paged_attention_split", "paged_attention_combine", "gemv_rows"];
    let row = |i: usize| {
        format!(
            r#""{i}","7","{}","(132, 1, 1)","(256, 1, 1)","DRAM Throughput","%","{},5""#,
            layer[i % 5],
            10 * (i % 5 + 1)
        )
    };
    let rows: Vec<String> = (0..10).map(row).collect();
    std::fs::write(&csv, format!("{head}\n{}\n", rows.join("\n"))).unwrap();
    let o = run(&["gaps", text(&trace), "--ncu", text(&csv), "--json", "-"]);
    assert!(String::from_utf8_lossy(&o.stderr).contains("4 of 10 profiled launches joined by grid, block and order"));
    let v: Value = serde_json::from_slice(&o.stdout).unwrap();
    let dram = |part: &str| {
        let row = v["kernels"].as_array().unwrap().iter().find(|k| k["name"].as_str().unwrap().contains(part)).unwrap();
        row["counters"][0][2].as_f64()
    };
    for (part, value) in [("rmsnorm", 10.5), ("bfloat16, 4, 256", 20.5), ("split", 30.5), ("bfloat16, 8, 256", 50.5)] {
        assert_eq!(dram(part), Some(value), "{part}");
    }
}

/// Every gap of the capture is on the page: where it has several steps, in a timeline of the whole.
#[test]
fn the_page_has_every_gap() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, page) = (capture(folder.path(), "a.json", 4, 1), folder.path().join("a.html"));
    let json = json(&["gaps", text(&trace), "--timeline"]);
    assert!(run(&["gaps", text(&trace), "--html", text(&page)]).status.success());
    let page = std::fs::read_to_string(page).unwrap();
    let data = page.split("id=\"timeline-0-whole\">").nth(1).unwrap().split("</script>").next().unwrap();
    let whole: Value = serde_json::from_str(data).unwrap();
    assert_eq!(whole["window_ns"], json["window_ns"]);
    assert_eq!(whole["segments"].as_array().unwrap().len(), json["segments"].as_array().unwrap().len());
    assert_eq!(whole["evidence"].as_array().unwrap().len(), json["pieces"].as_array().unwrap().len());
    assert!(json["pieces"].as_array().unwrap().len() > 50);
}

#[test]
fn a_pipe_is_refused_by_name() {
    for command in ["gaps", "doctor"] {
        let out = Command::new(env!("CARGO_BIN_EXE_workbench"))
            .args([command, "/dev/stdin"])
            .stdin(std::process::Stdio::piped())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains("/dev/stdin is a pipe") && said.contains("write it to a file first"), "{said}");
    }
}
