//! `bench` and `roofline` against a fake driver: how work is set up, timed, judged and reported, and what each failure
//! exits with. Needs a C compiler; the parts that launch need kernels compiled into the program, and say so otherwise.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use workbench::launch::image::TOOLCHAIN;

/// The folder with the fake `libcuda.so.1`, compiled once.
fn driver() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake_driver");
        std::fs::create_dir_all(&folder).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_driver/driver.c");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-w", "-o"])
            .arg(folder.join("libcuda.so.1"))
            .arg(source)
            .status()
            .expect("a C compiler");
        assert!(status.success());
        folder
    })
}

fn workbench(args: &[&str], settings: &[(&str, &str)]) -> Output {
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join("data");
    Command::new(env!("CARGO_BIN_EXE_workbench"))
        .args(args)
        .env("LD_LIBRARY_PATH", driver())
        .env("XDG_DATA_HOME", data)
        .envs(settings.iter().copied())
        .output()
        .unwrap()
}

fn bench(shape: &str, more: &[&str], settings: &[(&str, &str)]) -> Output {
    let args = ["bench", "matmul", "--shape", shape, "--no-check", "--no-library", "--timeout", "1", "--json", "-"];
    workbench(&[&args, more].concat(), settings)
}

fn rows(output: &Output) -> Vec<Value> {
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn compiled() -> bool {
    if TOOLCHAIN.nvcc.is_none() {
        eprintln!("SKIPPED: this program was built without nvcc");
    }
    TOOLCHAIN.nvcc.is_some()
}

#[test]
fn a_row_has_the_keys_that_scripts_rely_on() {
    if !compiled() {
        return;
    }
    // A note that is not sealed stops the run before it starts; the sealed one is recorded with it.
    let notes = tempfile::tempdir().unwrap();
    let dir = notes.path().to_str().unwrap();
    let note = |args: &[&str]| {
        let output = workbench(&[&["note"], args, &["--dir", dir]].concat(), &[]);
        assert!(output.status.success(), "{args:?}: {}", error(&output));
    };
    note(&["new", "n1", "--title", "T", "--hardware", "H200", "--sprint", "1", "--file", "none"]);
    let shape = "m=1,n=4096,k=4096,dtype=bf16";
    let refused = bench(shape, &["--note", "n1", "--notes", dir], &[]);
    assert_eq!(refused.status.code(), Some(1), "{}", error(&refused));
    assert!(error(&refused).contains("not sealed"), "{}", error(&refused));
    let file = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).find(|p| p.to_str().unwrap().contains("n1"));
    let file = file.unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text
        .replace("> If I change …, then … falls from … to …, so I expect …", "> A fake card takes 100 µs a kernel.");
    let text = text.replace("- Show every number and where it comes from, bytes and seconds.", "- 2 × 50 µs = 100 µs");
    std::fs::write(&file, text).unwrap();
    note(&["predict", "n1", "--value", "100 µs", "--regime", "bandwidth"]);
    let output = bench(shape, &["--note", "n1", "--notes", dir], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let rows = rows(&output);
    assert_eq!((&rows[0]["schema"], &rows[0]["note"]), (&1.into(), &"n1".into()));
    assert_eq!(rows[0]["environment"]["gpu"], "NVIDIA H200");
    let row = &rows[1];
    // The fake card takes 100 µs a kernel, in a graph of as many as fill a millisecond.
    assert_eq!(row["ns"], 100_000, "{row}");
    assert_eq!((&row["op"], &row["mode"], &row["flops"]), (&"matmul".into(), &"graph".into(), &33_554_432.into()));
    for key in ["variant", "shape", "ns_p10", "ns_p90", "n", "bytes", "floor_ns", "predicted_ns", "share_of_ceiling"] {
        assert!(!row[key].is_null(), "{key} in {row}");
    }
    let share = row["floor_ns"].as_f64().unwrap() / row["ns"].as_f64().unwrap();
    assert!((share - row["share_of_ceiling"].as_f64().unwrap()).abs() < 1e-3);
}

#[test]
fn faster_than_physics_is_no_result() {
    if !compiled() {
        return;
    }
    let output = bench("m=1,n=28672,k=4096", &[], &[("FAKE_KERNEL_NS", "1000")]);
    assert_eq!(output.status.code(), Some(4), "{}", error(&output));
    assert!(error(&output).contains("under the floor"), "{}", error(&output));
    assert_eq!(rows(&output).len(), 2, "the row is written all the same");
}

#[test]
fn noise_is_told_with_its_size() {
    if !compiled() {
        return;
    }
    let output = bench("m=1,n=4096,k=4096", &[], &[("FAKE_NOISE", "0.002")]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    assert!(error(&output).contains("of the median, above 0.50 %"), "{}", error(&output));
}

#[test]
fn variants_are_timed_in_alternation_on_the_same_buffers() {
    if !compiled() {
        return;
    }
    let output = bench("m=1,n=512,k=512", &["--variant", "naive", "--variant", "tile", "--mode", "hot"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let rows = rows(&output);
    let names: Vec<_> = rows[1..].iter().map(|r| r["variant"].as_str().unwrap()).collect();
    assert_eq!(names, ["naive", "tile"]);
    assert!(rows[1]["times_first"].is_null() && rows[2]["times_first"]["ratio"].as_f64().is_some());
    assert!(error(&output).contains("the cache's speed"), "{}", error(&output));
}

#[test]
fn a_refused_shape_is_a_row_and_the_others_are_measured() {
    if !compiled() {
        return;
    }
    // 500 is no multiple of what wgmma's tiles ask for; naive takes everything.
    let (odd, even) = ("m=64,n=500,k=500", "m=128,n=512,k=512");
    let output = bench(odd, &["--shape", even, "--variant", "wgmma"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let all = rows(&output);
    let of = |shape: &str| all[1..].iter().find(|r| r["shape"].as_str().unwrap().starts_with(shape)).unwrap();
    assert!(of(odd)["refused"].as_str().is_some_and(|why| !why.is_empty()), "{}", of(odd));
    assert!(of(odd)["ns"].is_null() && of(even)["ns"].as_u64().is_some() && of(even)["refused"].is_null());
    // The refusal stands in the table too, and another variant of the same shape is timed beside it.
    let args = ["bench", "matmul", "--shape", odd, "--no-check", "--no-library", "--timeout", "1"];
    let output = workbench(&[&args[..], &["--variant", "wgmma", "--variant", "naive"]].concat(), &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    assert!(text.lines().any(|l| l.starts_with("matmul/wgmma ") && l.contains("refused: ")), "{text}");
    assert!(text.lines().any(|l| l.starts_with("matmul/naive ") && l.contains("GB/s")), "{text}");
    // No row at all is no success, with a GPU or without.
    for more in [&["--variant", "wgmma"][..], &["--variant", "wgmma", "--dry-run"]] {
        let output = bench(odd, more, &[]);
        assert_eq!(output.status.code(), Some(2), "{}", error(&output));
        assert!(error(&output).contains("no row at all"), "{}", error(&output));
    }
    assert_eq!(bench(odd, &["--variant", "wgmmma"], &[]).status.code(), Some(2), "a name that is none stops it");
}

#[test]
fn too_little_memory_says_what_was_asked_and_what_was_free() {
    if !compiled() {
        return;
    }
    let output = bench("m=1,n=28672,k=4096", &[], &[("FAKE_MEMORY_MIB", "64")]);
    assert!(
        error(&output).contains("left out: ") && error(&output).contains("allocating 234.88 MB"),
        "{}",
        error(&output)
    );
    assert_eq!(output.status.code(), Some(2), "nothing was measured");
}

#[test]
fn missing_gpus_and_old_drivers_exit_with_3() {
    for (settings, args, says) in [
        (&[("FAKE_GPUS", "2")][..], &["--gpu", "5"][..], "there is no GPU 5; there are: 0 NVIDIA H200, 1 NVIDIA H200"),
        (&[("FAKE_CUDA", "12040")], &[], "supports CUDA 12.4; the workbench needs 13.0"),
    ] {
        let output = bench("m=1,n=512,k=512", args, settings);
        assert_eq!(output.status.code(), Some(3), "{}", error(&output));
        assert!(error(&output).contains(says) && error(&output).contains("try:"), "{}", error(&output));
    }
}

#[test]
fn the_drivers_occupancy_is_asked_for_and_recorded() {
    if !compiled() {
        return;
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("occupancy.csv");
    let ask = |settings: &[(&str, &str)]| {
        workbench(&["occupancy", "--check-driver", "--record", file.to_str().unwrap()], settings)
    };
    let agreed = ask(&[]);
    assert_eq!(agreed.status.code(), Some(0), "{}", error(&agreed));
    assert!(std::fs::read_to_string(&file).unwrap().lines().count() > 50);
    let again = || workbench(&["occupancy", "--recorded", file.to_str().unwrap()], &[]);
    assert_eq!(again().status.code(), Some(0));
    let differs = ask(&[("FAKE_OCCUPANCY", "1")]);
    assert_eq!(differs.status.code(), Some(1), "{}", error(&differs));
    assert!(error(&differs).contains("the driver says"), "{}", error(&differs));
    assert_eq!(again().status.code(), Some(1), "what was recorded differs without a GPU too");
}

#[test]
fn probes_that_compute_nothing_are_not_believed() {
    if !compiled() {
        return;
    }
    let output = workbench(&["roofline", "--ceilings-only"], &[]);
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    assert!(error(&output).contains("the read probe computed something wrong"), "{}", error(&output));
}

#[test]
fn a_machine_is_drawn_without_a_gpu() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (png, json) = (folder.join("machine.png"), folder.join("machine.json"));
    let output = workbench(
        &["roofline", "--machine", "h100", "--plot", png.to_str().unwrap(), "--json", json.to_str().unwrap()],
        &[],
    );
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let drawn: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&drawn["provenance"], &drawn["ceilings"]["read_gbps"]), (&"cited".into(), &3350.0.into()));
    assert_eq!(std::fs::read(&png).unwrap()[1..4], *b"PNG");
    // What was written is a recording that can be drawn again.
    let again = workbench(&["roofline", "--from", json.to_str().unwrap()], &[]);
    assert_eq!(again.stdout, output.stdout);
    let unknown = workbench(&["roofline", "--machine", "abacus"], &[]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(error(&unknown).contains("h200"));
}

#[test]
fn the_doctor_holds_the_card_against_the_table() {
    let check = |settings: &[(&str, &str)]| -> Value {
        let out = workbench(&["doctor", "--json", "-"], settings);
        let json: Value = serde_json::from_slice(&out.stdout).unwrap();
        json["checks"].as_array().unwrap().iter().find(|c| c["name"] == "machine table").unwrap().clone()
    };
    let right = [("FAKE_L2_MIB", "60"), ("FAKE_MEMORY_MIB", "143155")];
    assert_eq!(check(&right)["status"], "ok");
    let wrong = check(&[("FAKE_L2_MIB", "50"), ("FAKE_MEMORY_MIB", "143155"), ("FAKE_SMS", "114")]);
    let detail = wrong["detail"].as_str().unwrap();
    assert_eq!(wrong["status"], "warn");
    assert!(
        detail.contains("L2 is 50 MiB here, 60 MiB in the table (device: ") && detail.contains("114 here"),
        "{wrong}"
    );
    assert!(!detail.contains("memory is"), "{wrong}");
}
