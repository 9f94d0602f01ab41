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
    let all = ["--weights", "w4a16", "--group", "64", "--asymmetric", "--page", "32", "--no-fuse"];
    let out = workbench(&[&["predict", "step"][..], &all].concat());
    let text = String::from_utf8(out.stdout).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("verify: workbench ")).unwrap();
    assert!(line.ends_with(&all.join(" ")), "{line}");
    // What it names is understood, and predicts the same sum.
    let out = workbench(&[&line.split(' ').collect::<Vec<_>>()[..], &["--dry-run"]].concat());
    let dry = String::from_utf8(out.stdout).unwrap();
    let sum = text.lines().find_map(|l| l.strip_prefix("predicted ")).unwrap().split(' ').next().unwrap();
    assert!(dry.contains(&sum.replace(',', "")), "{sum} in {dry}");
    let out = workbench(&["predict", "step", "--model", "gpt-oss-20b"]);
    assert!(String::from_utf8(out.stdout).unwrap().contains("`step` cannot run this yet"));
}

/// The sum of an arithmetic line such as `2 × (6 MB / 4283 GB/s / 0.95 + 1.56 µs) × 1.02`, in ms: MB over GB/s, and
/// GFLOP over TFLOP/s, are ms.
fn redone(text: &str) -> f64 {
    let mut words: Vec<String> = Vec::new();
    for word in text.replace('(', "( ").replace(')', " )").split_whitespace() {
        match word {
            "MB" | "GB/s" | "GFLOP" | "TFLOP/s" => {}
            "µs" => {
                let last: f64 = words.pop().unwrap().parse().unwrap();
                words.push((last / 1e3).to_string());
            }
            word => words.push(word.into()),
        }
    }
    fn sum(words: &[String], at: &mut usize) -> f64 {
        let mut total = product(words, at);
        while words.get(*at).is_some_and(|w| w == "+") {
            *at += 1;
            total += product(words, at);
        }
        total
    }
    fn product(words: &[String], at: &mut usize) -> f64 {
        let mut total = atom(words, at);
        while let Some(op) = words.get(*at).filter(|w| ["×", "/"].contains(&w.as_str())) {
            *at += 1;
            let next = atom(words, at);
            total = if op == "×" { total * next } else { total / next };
        }
        total
    }
    fn atom(words: &[String], at: &mut usize) -> f64 {
        let word = &words[*at];
        *at += 1;
        if word != "(" {
            return word.parse().unwrap_or_else(|_| panic!("{word} in {words:?}"));
        }
        let total = sum(words, at);
        assert_eq!(words[*at], ")");
        *at += 1;
        total
    }
    let mut at = 0;
    let total = sum(&words, &mut at);
    assert_eq!(at, words.len(), "{text}");
    total
}

#[test]
fn every_sum_can_be_redone_and_says_what_bounds_it() {
    let steps: [&[&str]; 5] = [
        &["--batch", "4", "--ctx", "4k"],
        &["--batch", "256", "--weights", "w4a16", "--gpu", "rtx4090"],
        &["--model", "gpt-oss-20b", "--tp", "4"],
        &["--model", "deepseek-v3", "--tp", "8", "--batch", "2048"],
        &["--no-fuse"],
    ];
    let mut bounds = std::collections::BTreeSet::new();
    for args in steps {
        let v = json(&[&["predict", "step"][..], args].concat());
        for term in v["terms"].as_array().unwrap() {
            let (line, sum) = term["arithmetic"].as_str().unwrap().rsplit_once(" = ").unwrap();
            let ns = term["ns"].as_f64().unwrap();
            let said: f64 = sum.strip_suffix(" µs").unwrap().parse().unwrap();
            let digits = sum.chars().filter(char::is_ascii_digit).count().max(3) as i32;
            assert!((said * 1e3 - ns).abs() <= 1.0 + ns * 10f64.powi(1 - digits), "{term}");
            assert!((redone(line) * 1e3 - said).abs() <= 1e-4 * said, "{line} gives {}, not {sum}", redone(line) * 1e3);
            bounds.insert(term["bound"].as_str().unwrap().to_string());
        }
    }
    assert!(["memory", "compute", "launch", "link"].iter().all(|b| bounds.contains(*b)), "{bounds:?}");
    let v = json(&["predict", "kernel", "matmul", "m=1,n=4096,k=4096"]);
    let (line, _) = v["arithmetic"].as_str().unwrap().rsplit_once(" = ").unwrap();
    assert!((redone(line) * 1e6 / v["predicted_ns"].as_f64().unwrap() - 1.0).abs() < 1e-3, "{v}");
}

#[test]
fn a_variant_that_is_not_there_is_refused_before_anything_runs() {
    let said = refused(&["step", "--use", "qkv=foo", "--dry-run"]);
    assert!(said.contains("no variant `foo`") && said.contains("gemv"), "{said}");
    let said = refused(&["step", "--use", "qkv_proj=gemv", "--dry-run"]);
    assert!(said.contains("`qkv`"), "{said}");
    assert!(workbench(&["step", "--use", "qkv=gemv", "--dry-run"]).status.success());
}

#[test]
fn floors_of_runnable_steps_never_fall_and_no_estimate_is_below_its_own() {
    for weights in ["bf16", "w4a16"] {
        let mut rows = Vec::new();
        for (batch, ctx) in
            [("1", "512"), ("1", "2k"), ("3", "2k"), ("4", "2k"), ("5", "2k"), ("65", "2k"), ("65", "8k")]
        {
            let v = json(&["predict", "step", "--weights", weights, "--batch", batch, "--ctx", ctx]);
            let [floor, low, ns, high] =
                ["floor_ns", "low_ns", "predicted_ns", "high_ns"].map(|key| v[key].as_i64().unwrap());
            assert!(floor <= low && low <= ns && ns <= high, "{weights} {batch} {ctx}: {floor} {low} {ns} {high}");
            rows.push(floor);
        }
        assert!(rows.is_sorted_by(|a, b| a < b), "{weights}: {rows:?}");
    }
}

#[test]
fn a_model_that_no_card_holds_is_predicted_and_said_not_to_fit() {
    let said = |args: &[&str]| String::from_utf8(workbench(&[&["predict", "step"][..], args].concat()).stdout).unwrap();
    let large = said(&["--model", "llama-3-70b", "--gpu", "rtx3090"]);
    assert!(
        large.contains("does not fit: 141.107 GB of weights") && large.contains("workbench size --model"),
        "{large}"
    );
    assert!(said(&["--batch", "256", "--ctx", "8k", "--kv", "fp8"]).contains("does not fit"), "too many caches");
    assert!(!said(&["--batch", "64", "--ctx", "8k"]).contains("does not fit"));
    assert!(!said(&["--model", "llama-3-70b", "--gpu", "h200"]).contains("does not fit"));
    assert!(refused(&["size", "--memory", "0"]).contains("holds nothing"));
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
    assert!(refused(&["size", "--gpu", "a100"]).contains("try: `a100-40`"));
    assert!(refused(&["size", "--model", "lama3"]).contains("`llama-3-8b`"));
    assert!(refused(&["predict", "step", "--tp", "0"]).contains("--tp 0"));
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
    let v = json(&["reconcile", path, "--model", "llama-3.1-8b", "--gpu", "a100-40"]);
    assert_eq!((&v["engine"], &v["disagrees"]), (&"vllm".into(), &serde_json::json!([])));
    assert!(v["rows"].as_array().unwrap().iter().any(|r| r["quantity"] == "tokens"), "{v}");
    // No pool is printed; the tokens are those of a far smaller card.
    let out = workbench(&["reconcile", path, "--model", "llama-3.1-8b", "--gpu", "h200"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.code() == Some(1) && said.contains("a card of 39.9 GiB"), "{said}");
    let v = json(&["reconcile", path, "--model", "llama-3.1-8b"]);
    assert!(v["not_compared"][0].as_str().unwrap().contains("--gpu"), "{v}");
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
        for word in
            ["occupancy", "waves", "balance", "launch", "tiles", "verify: workbench bench rmsnorm --shape m=64,k=4096"]
        {
            assert!(text.contains(word), "{word} in {text}");
        }
    }
    assert!(refused(&["predict", "kernel", "matmul", "m=1,n=8,k=8", "--variant", "gemw"]).contains("no variant"));
}

#[test]
fn every_wrong_name_gets_a_next_command() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing").display().to_string();
    let reports =
        |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200").join(name).display().to_string();
    let (verify, roofline) = (reports("2026-11-30-verify"), reports("2026-11-30-roofline"));
    let bench = reports("2026-11-30-bench");
    let step = reports("2026-11-30-step-bf16");
    let empty = folder.path().display().to_string();
    for (args, what, next) in [
        (&["report", nothing.as_str()][..], "cannot be read", "workbench step --out"),
        (&["step", "--from", nothing.as_str()], "cannot be read", "workbench step --out"),
        (&["report", empty.as_str()], "no step.json", "workbench step --out"),
        (&["report", verify.as_str()], "rows of `verify`", "workbench verify"),
        (&["report", bench.as_str()], "rows of `bench`", "workbench bench --from"),
        (&["report", roofline.as_str()], "recording of `roofline`", "roofline --from"),
        (&["compare", "a", "b"], "cannot open a", "workbench trace"),
        (&["gaps", "nope.json"], "cannot open nope.json", "workbench trace"),
        (&["gaps", step.as_str()], "folder of a recorded step", "workbench report"),
        (&["bench", "nope"], "no op `nope`", "workbench list"),
        (&["bench", "matmull"], "no op `matmull`", "`matmul`"),
        (&["list", "foo"], "no op `foo`", "workbench list"),
        (&["bench", "matmul", "--max-noise", "0"], "above 0", "workbench bench --help"),
    ] {
        let said = refused(args);
        let (error, advice) = said.split_once("\n  try: ").unwrap_or_else(|| panic!("{args:?} has no advice: {said}"));
        assert!(error.contains(what) && advice.contains(next), "{args:?}: {said}");
    }
    // The command that an error names works.
    let file = Path::new(&roofline).join("roofline.json").display().to_string();
    assert!(workbench(&["roofline", "--from", &file]).status.success());
}

#[test]
fn a_usage_error_of_bench_comes_before_any_table() {
    for args in [&["--shape", "m=1"][..], &["--variant", "foo"]] {
        let out = workbench(&[&["bench", "matmul", "--dry-run"][..], args].concat());
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(out.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&out.stdout));
        assert!(String::from_utf8_lossy(&out.stderr).contains("try: "), "{args:?}");
    }
}
