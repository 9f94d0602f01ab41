//! Ours beside other libraries' rows, without a GPU; and the scripts in peers/ against the ops that they are held beside.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use workbench::kernels;
use workbench::op::{Chip, Shape};

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/peers/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_workbench")).arg("bench").args(args).output().unwrap()
}

fn says(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn recorded_rows_stand_side_by_side() {
    let (ours, theirs) = (fixture("ours.jsonl"), fixture("theirs.jsonl"));
    let output = bench(&["--from", &ours, "--peers", &theirs]);
    let (table, notes) = says(&output);
    assert_eq!(output.status.code(), Some(0), "{notes}");
    assert!(table.contains("ours is the fastest of 2 of 3 shapes"), "{table}");
    assert!(table.contains("wrong result"), "{table}");
    assert!(notes.contains("two boards of one kind") && notes.contains("SM clock: 1980 MHz"), "{notes}");
    assert!(
        notes.contains("not measured: paged_attention by flashinfer-tc batch=1,ctx=2048: ModuleNotFound"),
        "{notes}"
    );

    let output = bench(&["matmul", "--from", &ours, "--peers", &theirs, "--json", "-"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let contests = value["contests"].as_array().unwrap();
    assert_eq!(contests.len(), 2);
    // Of one token both spellings of cuBLAS are beaten, and the library of our own run counts as a peer.
    assert_eq!((&contests[0]["best"], contests[0]["peers"].as_array().unwrap().len()), (&"ours".into(), 2));
    assert!((contests[0]["ratio"].as_f64().unwrap() - 11_420.0 / 12_560.0).abs() < 1e-9);
    // A wrong result wins nothing, however fast.
    assert_eq!((&contests[1]["best"], &contests[1]["ours"]["name"]), (&"cublas".into(), &"swap_ab".into()));
    assert_eq!(value["doubts"].as_array().unwrap().len(), 2, "{}", value["doubts"]);
}

#[test]
fn committed_runs_are_compared_too() {
    let run = format!("{}/reports/h200/2026-11-30-bench-late/matmul_decode.jsonl", env!("CARGO_MANIFEST_DIR"));
    let output = bench(&["matmul", "--from", &run, "--peers", &run, "--json", "-"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(value["contests"].as_array().unwrap().len() >= 40, "{}", says(&output).1);
    assert_eq!(value["doubts"], serde_json::json!([]), "one run is one card");
}

#[test]
fn nothing_in_common_is_said() {
    let output = bench(&["softmax", "--from", &fixture("ours.jsonl"), "--peers", &fixture("theirs.jsonl")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(says(&output).1.contains("no shape of ours is one of theirs"));
    for args in [&["--from", "nowhere"][..], &["--from", "nowhere", "--peers", "nowhere"], &["--peers", "nowhere"]] {
        assert_eq!(bench(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn the_scripts_measure_shapes_that_ours_can_run() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/run.py");
    let Ok(output) = Command::new("python3").arg("-B").arg(script).arg("--dry-run").output() else {
        eprintln!("SKIPPED: there is no python3");
        return;
    };
    let (text, notes) = says(&output);
    assert!(output.status.success(), "{notes}");
    let mut counts = std::collections::BTreeMap::new();
    for line in text.lines() {
        let (case, peers) = line.split_once(": ").unwrap();
        let (op, shape) = case.split_once(' ').unwrap();
        *counts.entry(op.to_string()).or_insert(0) += 1;
        assert!(peers.split(", ").count() >= 2, "{line}");
        // The decode step is no op: `workbench step` runs ours.
        if op == "step" {
            continue;
        }
        let (op, shape) = (kernels::op(op).unwrap(), Shape::parse(shape).unwrap());
        op.supports(op.choose(&shape, &Chip::H200), &shape, &Chip::H200).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
    for (op, least) in [("matmul", 48), ("softmax", 12), ("paged_attention", 7), ("w4a16", 42), ("step", 3)] {
        assert!(counts[op] >= least, "{counts:?}");
    }
}

/// Copied out of the repository, the scripts name the bundle's commit, and none that merely surrounds them.
#[test]
fn rows_name_the_commit_of_the_scripts() {
    let folder = tempfile::tempdir().unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/common.py");
    std::fs::copy(scripts, folder.path().join("common.py")).unwrap();
    let ask = || {
        let mut python = Command::new("python3");
        python.current_dir(&folder).args(["-B", "-c", "import common; print(*common.commit())"]);
        python.output().map(|o| says(&o)).ok()
    };
    let Some((text, notes)) = ask() else {
        eprintln!("SKIPPED: there is no python3");
        return;
    };
    assert_eq!(text.trim(), "None False", "{notes}");
    std::fs::write(folder.path().join("COMMIT"), "0123abc dirty\n").unwrap();
    assert_eq!(ask().unwrap().0.trim(), "0123abc True");
}
