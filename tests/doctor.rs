//! `workbench doctor` on whatever machine this is: it must end well, say something about each thing, and offer a fix for
//! each flaw.

use serde_json::Value;
use std::process::Command;

#[test]
fn each_check_has_a_status_and_each_flaw_a_fix() {
    let output = Command::new(env!("CARGO_BIN_EXE_workbench")).args(["doctor", "--json", "-"]).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    let checks = json["checks"].as_array().unwrap();
    for name in ["system", "driver", "nvcc", "images", "cupti", "other profiler", "injection", "counters"] {
        assert!(checks.iter().any(|c| c["name"] == name), "no check of {name}");
    }
    for c in checks {
        assert!(!c["detail"].as_str().unwrap().is_empty(), "{c}");
        match c["status"].as_str().unwrap() {
            "ok" => {}
            "warn" | "fail" => assert!(c["fix"].as_str().is_some_and(|f| !f.is_empty()), "{c}"),
            other => panic!("unknown status {other}"),
        }
    }
    let failed = checks.iter().any(|c| c["status"] == "fail");
    let driver = checks.iter().find(|c| c["name"] == "driver").unwrap();
    let expected = match (driver["status"] == "fail", failed) {
        (true, _) => 3,
        (false, true) => 1,
        (false, false) => 0,
    };
    assert_eq!(output.status.code(), Some(expected), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The library that `trace` needs is built with the program, so the check of it holds wherever the tests run.
#[test]
fn the_injection_library_is_where_the_program_looks() {
    let output = Command::new(env!("CARGO_BIN_EXE_workbench")).args(["doctor", "--json", "-"]).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let injection = json["checks"].as_array().unwrap().iter().find(|c| c["name"] == "injection").unwrap();
    assert_eq!(injection["status"], "ok", "{injection}");
}

#[test]
fn a_gpu_that_is_not_there() {
    let output = Command::new(env!("CARGO_BIN_EXE_workbench")).args(["doctor", "--gpu", "4096"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}
