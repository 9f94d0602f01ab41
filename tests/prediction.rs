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

/// A run of `bench` over a sealed file's shapes, each `factor` times its prediction.
fn measured(sealed: &str, factor: f64) -> String {
    let mut text = String::from("{\"environment\":{\"started\":\"2999-01-01T00:00:00Z\"}}\n");
    for line in sealed.lines().skip(1).filter(|l| !l.contains("\"seal\"")) {
        let mut row: Value = serde_json::from_str(line).unwrap();
        row["ns"] = ((row["predicted_ns"].as_f64().unwrap() * factor).round() as i64).into();
        text += &format!("{row}\n");
    }
    text
}

#[test]
fn a_sweep_is_sealed_and_checked_against_a_later_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (list, sealed, run) = (path("list.txt"), path("sealed.jsonl"), path("run.jsonl"));
    std::fs::write(&list, "# two\nmatmul m=2,n=5120,k=5120\nargmax m=3,v=50304\n").unwrap();
    let made = json(&["predict", "sweep", &list, "--seal", &sealed]);
    assert_eq!(made["rows"].as_array().unwrap().len(), 2);
    let text = std::fs::read_to_string(&sealed).unwrap();

    std::fs::write(&run, measured(&text, 1.05)).unwrap();
    let checked = json(&["predict", "check", &sealed, &run]);
    assert!((checked["score"]["worst"].as_f64().unwrap() - 0.05 / 1.05).abs() < 2e-3, "{checked}");
    std::fs::write(&run, measured(&text, 2.0)).unwrap();
    let code = |args: &[&str]| workbench(args).status.code();
    assert_eq!(code(&["predict", "check", &sealed, &run]), Some(1));
    assert_eq!(code(&["predict", "check", &sealed, &run, "--median", "0.6", "--worst", "0.6"]), Some(0));
    let half: String = measured(&text, 1.0).lines().take(2).map(|l| format!("{l}\n")).collect();
    std::fs::write(&run, half).unwrap();
    assert_eq!(code(&["predict", "check", &sealed, &run]), Some(5), "a shape is missing");
    std::fs::write(&sealed, text.replace("m=2,n=5120", "m=4,n=5120")).unwrap();
    let out = workbench(&["predict", "check", &sealed, &run]);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("changed after it was sealed"));
    assert!(refused(&["predict", "sweep", "no_such_list"]).contains("built-in list"));
}

#[test]
fn a_kernel_is_predicted_with_its_launch_plan() {
    let v = json(&["predict", "kernel", "rmsnorm", "m=64,k=4096"]);
    let sum: i64 = v["terms"].as_array().unwrap().iter().map(|t| t["ns"].as_i64().unwrap()).sum();
    assert!((sum - v["predicted_ns"].as_i64().unwrap()).abs() < 10, "{v}");
    if workbench::launch::image::TOOLCHAIN.nvcc.is_some() {
        let kernel = &v["launches"]["kernels"][0];
        assert!(kernel["waves"].as_f64().unwrap() > 0.0 && kernel["occupancy"]["blocks"].as_u64().unwrap() > 0, "{v}");
        let text = String::from_utf8(workbench(&["predict", "kernel", "rmsnorm", "m=64,k=4096"]).stdout).unwrap();
        for word in ["occupancy", "waves", "balance", "launch", "tiles"] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }
    assert!(refused(&["predict", "kernel", "matmul", "m=1,n=8,k=8", "--variant", "gemw"]).contains("no variant"));
}
