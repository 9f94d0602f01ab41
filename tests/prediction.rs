//! Prediction, sizing and reconciling from the command line: what a user sees without a GPU.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn workbench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_workbench")).args(args).output().unwrap()
}

fn json(args: &[&str]) -> Value {
    let out = workbench(&[args, &["--json", "-"]].concat());
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn refused(args: &[&str]) -> String {
    let out = workbench(args);
    assert_eq!(out.status.code(), Some(2), "{args:?}");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn the_table_of_the_docs_is_what_the_command_prints() {
    let out = workbench(&["predict", "cited", "--md", "-"]);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cited-decode.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    assert_eq!(String::from_utf8(out.stdout).unwrap(), docs, "workbench predict cited --md docs/cited-decode.md");
}

#[test]
fn every_model_predicts_and_sizes_on_every_card() {
    for model in ["llama-3-70b", "gemma-2-27b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-120b", "qwen2.5-7b"] {
        for gpu in ["rtx3090", "h100-nvl", "gb200", "rtx-pro-6000"] {
            let p = json(&["predict", "step", "--model", model, "--gpu", gpu, "--tp", "4", "--weights", "fp8"]);
            let ns = |key: &str| p[key].as_f64().unwrap();
            assert!(ns("floor_ns") <= ns("low_ns") && ns("low_ns") <= ns("predicted_ns"), "{model} {gpu}");
            let sum: f64 = p["terms"].as_array().unwrap().iter().map(|t| t["ns"].as_f64().unwrap()).sum();
            assert!((sum - ns("predicted_ns")).abs() < 10.0, "the terms add up");
            assert!(json(&["size", "--model", model, "--gpu", gpu, "--tp", "4"])["weight_bytes"].as_u64().unwrap() > 0);
        }
    }
}

#[test]
fn a_runnable_step_names_the_command_that_verifies_it() {
    let out = workbench(&["predict", "step", "--batch", "4", "--ctx", "1k"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("verify: workbench step --model llama-3-8b --batch 4 --ctx 1k --weights bf16"), "{text}");
    let out = workbench(&["predict", "step", "--model", "gpt-oss-20b"]);
    assert!(String::from_utf8(out.stdout).unwrap().contains("`step` cannot run this yet"));
}

#[test]
fn serving_in_numbers() {
    let v = json(&["predict", "serve", "--gpu", "h100", "--prompt", "1200", "--prefix", "1000", "--concurrency", "8"]);
    assert!((v["hit_rate"].as_f64().unwrap() - 0.81375).abs() < 1e-9);
    assert!((v["accepted"].as_f64().unwrap() - 2.533).abs() < 1e-9);
    assert!(v["levels"][0]["tpot_ns"].as_f64().unwrap() > 4e6, "{v}");
    let more = json(&["predict", "serve", "--gpu", "h100", "--prompt", "6k", "--chunk", "512"]);
    assert!(more["gap_chunked_ns"].as_f64().unwrap() < more["gap_whole_ns"].as_f64().unwrap() / 3.0);
}

#[test]
fn wrong_names_get_the_nearest_right_one() {
    assert!(refused(&["predict", "step", "--model", "qwen3-32"]).contains("`qwen3-32b`"));
    assert!(refused(&["size", "--gpu", "l40"]).contains("`l40s`"));
    assert!(refused(&["predict", "step", "--engine", "lama.cpp"]).contains("`llama.cpp`"));
    assert!(refused(&["predict", "step", "--tp", "5"]).contains("32 query heads cannot be shared by 5 cards"));
    assert!(refused(&["predict", "serve", "--accept", "2"]).contains("shares from 0 to 1"));
}

#[test]
fn a_log_is_reconciled_by_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("engine.log");
    let text = "(EngineCore_0 pid=1) INFO Model loading took 14.9889 GiB and 3.6 seconds\n\
        (EngineCore_0 pid=1) INFO GPU KV cache size: 158,656 tokens\n\
        (EngineCore_0 pid=1) INFO Maximum concurrency for 32,768 tokens per request: 4.84x\n";
    std::fs::write(&log, text).unwrap();
    let path = log.to_str().unwrap();
    let v = json(&["reconcile", path, "--model", "llama-3.1-8b"]);
    assert_eq!((&v["engine"], &v["disagrees"]), (&"vllm".into(), &serde_json::json!([])));
    let out = workbench(&["reconcile", path, "--model", "llama-3.1-8b", "--weights", "fp8"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.code() == Some(1) && said.contains("--weights bf16"), "{said}");
}
