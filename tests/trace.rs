//! Tracing a foreign process, end to end, on the CUDA that is not there (`tests/fake_cuda`): what the guest may notice
//! (nothing), and what is left of its recording however it ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use workbench::profile::native::{self, Recording};

/// Compiles the fake driver, CUPTI and program once.
fn fake() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_cuda");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake_cuda");
        std::fs::create_dir_all(&out).unwrap();
        let cc = |args: &[&str]| {
            let status = Command::new("cc").current_dir(&source).args(["-Wall", "-O1"]).args(args).status().unwrap();
            assert!(status.success(), "cc {args:?}");
        };
        let at = |name: &str| out.join(name).to_str().unwrap().to_string();
        let (folder, rpath) = (format!("-L{}", out.display()), format!("-Wl,-rpath,{}", out.display()));
        let soname = "-Wl,-soname,libcuda.so.1";
        cc(&["-shared", "-fPIC", soname, "-o", &at("libcuda.so.1"), "libcuda.c", "-ldl"]);
        cc(&["-shared", "-fPIC", "-o", &at("libcupti.so.13"), "libcupti.c", "-ldl", "-lpthread"]);
        cc(&["-o", &at("program"), "program.c", &folder, "-l:libcuda.so.1", &rpath]);
        out
    })
}

/// `workbench trace ARGS -- program HOW…`, with the recording kept.
fn trace(args: &[&str], how: &[&str], env: &[(&str, &str)]) -> (Output, Option<Recording>) {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("out.wbt");
    let output = Command::new(env!("CARGO_BIN_EXE_workbench"))
        .args(["trace", "-o", file.to_str().unwrap()])
        .args(args)
        .arg("--")
        .arg(fake().join("program"))
        .args(how)
        .env("WORKBENCH_CUPTI", fake().join("libcupti.so.13"))
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|n| n == "out.wbt"), "left behind: {left:?}");
    (output, file.exists().then(|| native::open(&file).unwrap()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_that_returns() {
    let (output, recording) = trace(&[], &["return", "1000"], &[]);
    assert_eq!(text(&output.stdout), "hello from the program\n", "its output is its own");
    assert_eq!(output.status.code(), Some(3), "so is its exit code");
    let r = recording.unwrap();
    let p = &r.processes[0];
    assert_eq!((p.operations, p.calls, p.dropped, p.ended), (1000, 1001, 0, true));
    assert!(p.command.ends_with("program return 1000"));
    assert_eq!(r.trace.devices[0].name, "Fake GPU 0");
    assert!(r.trace.operations.iter().any(|o| r.trace.names.text(o.name) == "void foo<4>(float*)"));
    assert!(r.trace.calls.iter().all(|c| r.trace.names.text(c.name) != "cuDeviceGetAttribute"), "our own calls");
    assert!(r.trace.defects.is_empty(), "{:?}", r.trace.defects);
    let report = text(&output.stderr);
    assert!(report.contains("residual 0 ns") && report.contains("Why the device idled"), "{report}");
}

/// What leaves no time for exit handlers still leaves what was flushed.
#[test]
fn programs_that_leave_at_once() {
    for (how, code) in [("_exit", 4), ("abort", 128 + 6), ("destroy-then-_exit", 4)] {
        let (output, recording) = trace(&[], &[how, "500"], &[]);
        assert_eq!(output.status.code(), Some(code), "{how}");
        let r = recording.unwrap();
        assert_eq!((r.processes[0].operations, r.processes[0].ended), (500, false), "{how}");
        assert_eq!(r.trace.defects[0].defect, "unfinished");
        assert!(text(&output.stderr).contains("without running exit handlers"));
    }
}

#[test]
fn an_interrupt_is_the_programs_own() {
    let (output, recording) = trace(&[], &["interrupt", "50"], &[]);
    assert_eq!(text(&output.stdout), "hello from the program\ninterrupted\n");
    assert_eq!(output.status.code(), Some(7));
    assert!(recording.unwrap().processes[0].ended);
}

#[test]
fn children_have_files_of_their_own() {
    let (output, recording) = trace(&[], &["fork-then-cuda", "100"], &[]);
    assert_eq!(output.status.code(), Some(0));
    let r = recording.unwrap();
    assert_eq!(r.processes.iter().map(|p| p.operations).collect::<Vec<_>>(), [100, 100]);
    assert_ne!(r.processes[0].pid, r.processes[1].pid);
    assert_eq!(r.processes[0].parent, r.processes[1].parent);
    assert_eq!(r.trace.devices.len(), 1, "one card, by its UUID");
}

/// Two cards in one process: each has its name, its operations and an account of its own that closes.
#[test]
fn a_program_on_two_cards() {
    let scratch = tempfile::tempdir().unwrap();
    let (json, kept) = (scratch.path().join("x.json"), scratch.path().join("kept.wbt"));
    let output = Command::new(env!("CARGO_BIN_EXE_workbench"))
        .args(["trace", "--no-cost", "--json", json.to_str().unwrap(), "-o", kept.to_str().unwrap(), "--"])
        .arg(fake().join("program"))
        .args(["two-gpus", "100"])
        .env("WORKBENCH_CUPTI", fake().join("libcupti.so.13"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let r = native::open(&kept).unwrap();
    let cards: Vec<_> = r.trace.devices.iter().map(|d| (d.id, d.name.as_str())).collect();
    assert_eq!(cards, [(0, "Fake GPU 0"), (1, "Fake GPU 1")]);
    assert_ne!(r.uuids[0], r.uuids[1]);
    assert!(r.trace.defects.is_empty(), "{:?}", r.trace.defects);
    for (device, name, count) in [(0, "first", 100), (1, "second", 150)] {
        let of: Vec<_> = r.trace.operations.iter().filter(|o| o.device == device).collect();
        assert_eq!(of.len(), count);
        assert!(of.iter().all(|o| r.trace.names.text(o.name) == name), "a kernel on the wrong card");
        assert!(said.contains(&format!("device {device} Fake GPU {device}")), "{said}");
    }
    let closes = |report: &serde_json::Value, device: u64, count: u64| {
        assert_eq!((report["device"].as_u64(), report["operations"].as_u64()), (Some(device), Some(count)));
        assert_eq!((report["residual_ns"].as_i64(), report["busy_ns"].as_u64()), (Some(0), Some(2000 * count)));
        let sum: i64 = report["lines"].as_array().unwrap().iter().map(|l| l["ns"].as_i64().unwrap()).sum();
        assert_eq!(Some(sum), report["window_ns"].as_i64());
    };
    let traced: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    closes(&traced, 1, 150);
    for (i, count) in [(0, 100), (1, 150)] {
        closes(&traced["devices"][i], i as u64, count);
    }
    // Accounted again from the file: both, or the one that is asked for.
    let gaps = |more: &[&str]| -> Vec<serde_json::Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workbench"));
        let output = command.args(["gaps", kept.to_str().unwrap(), "--json", "-"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::Deserializer::from_slice(&output.stdout).into_iter().collect::<Result<_, _>>().unwrap()
    };
    let both = gaps(&[]);
    assert_eq!(both.len(), 2);
    closes(&both[0], 0, 100);
    let one = gaps(&["--device", "1"]);
    assert_eq!(one.len(), 1);
    closes(&one[0], 1, 150);
}

/// The child runs the parent's exit handlers, in which it must not touch the parent's recording.
#[test]
fn a_fork_after_cuda_leaves_the_recording_alone() {
    let (_, recording) = trace(&[], &["cuda-then-fork", "100"], &[]);
    let r = recording.unwrap();
    assert_eq!(r.processes.len(), 1);
    assert_eq!((r.processes[0].operations, r.processes[0].ended), (200, true));
}

#[test]
fn a_program_that_becomes_another() {
    let (output, recording) = trace(&[], &["exec", "40"], &[]);
    assert_eq!(output.status.code(), Some(3));
    let r = recording.unwrap();
    assert_eq!(r.processes.len(), 2);
    assert_eq!(r.processes[0].pid, r.processes[1].pid);
    assert!(r.processes.iter().any(|p| p.operations == 20 && p.ended));
}

#[test]
fn recording_for_a_while() {
    let (output, recording) = trace(&["--after", "200ms", "--for", "300ms"], &["busy", "10"], &[]);
    assert_eq!(output.status.code(), Some(0));
    let r = recording.unwrap();
    let p = &r.processes[0];
    let (first, last) = p.span.unwrap();
    // 100 rounds of 20 ms and more; only about 300 ms of them are recorded.
    assert!((20..400).contains(&p.operations), "{} operations", p.operations);
    assert!(p.ended && (last - first) < 600_000_000, "{} ns", last - first);
    assert!(text(&output.stderr).contains("the command runs on"));
}

#[test]
fn dropped_records_are_counted_and_placed() {
    let (output, recording) = trace(&[], &["busy", "10"], &[("FAKE_CUPTI_DROPS", "50")]);
    let p = &recording.unwrap().processes[0];
    assert_eq!(p.dropped, 50);
    let ((first, last), (from, to)) = (p.span.unwrap(), p.dropped_between.unwrap());
    // Found out at the flush after it happened: the window holds that moment, and not the whole run.
    assert!(first - 1_000_000_000 < from && from < to && to <= last + 1_000_000_000, "{p:?}");
    assert!(to - from < 1_500_000_000, "{} ns", to - from);
    assert!(text(&output.stderr).contains("dropped 50 records between "), "{}", text(&output.stderr));
}

#[test]
fn every_obstacle_of_cupti_is_named() {
    // CUPTI's own numbers: what it answers where something stands in the way.
    for (code, name, words) in [
        ("35", "not_permitted", "does not permit profiling"),
        ("39", "another_subscriber", "another profiler is attached"),
        ("26", "hardware_busy", "DCGM"),
        ("40", "virtualized", "virtual GPU"),
        ("45", "wsl", "WSL"),
        ("43", "mig", "MIG"),
    ] {
        let (output, recording) = trace(&[], &["return", "5"], &[("FAKE_CUPTI_REFUSES", code)]);
        assert_eq!(output.status.code(), Some(3), "the program's own code: {name}");
        let said = text(&output.stderr);
        assert!(said.contains(words) && said.contains("try: "), "{name}: {said}");
        assert_eq!(recording.unwrap().processes[0].problem.as_ref().unwrap().0, name);
    }
}

#[test]
fn obstacles_have_names() {
    let (output, recording) = trace(&[], &["fork-then-cuda"], &[("FAKE_CUPTI_REFUSES", "39")]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("another profiler is attached: Fake Systems"));
    assert_eq!(recording.unwrap().processes[0].problem.as_ref().unwrap().0, "another_subscriber");

    let (output, _) = trace(&[], &["fork-then-cuda"], &[("FAKE_CUPTI_REFUSES", "35")]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("does not permit profiling"));

    let (output, recording) = trace(&[], &["no-cuda"], &[]);
    assert_eq!(output.status.code(), Some(5), "the program's own code comes first");
    assert!(recording.is_none());
    assert!(text(&output.stderr).contains("the command never initialised CUDA"));

    let (output, _) = trace(&[], &["return"], &[("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so")]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("another tool already traces"));
    assert!(output.stdout.is_empty(), "the command must not run half traced");
}

#[test]
fn a_command_that_does_not_exist() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_workbench")).args(["trace", "--", "/no/such/command"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cannot run /no/such/command"));
}

/// The JSON of a traced run has the keys that scripts rely on, and standard output carries nothing else of ours.
#[test]
fn json_has_the_agreed_keys() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trace.json");
    let (output, _) = trace(&["--mode", "kernels", "--json", file.to_str().unwrap()], &["return", "10"], &[]);
    assert_eq!(text(&output.stdout), "hello from the program\n");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
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
        assert!(!json[key].is_null(), "{key}");
    }
    let sum: i64 = json["lines"].as_array().unwrap().iter().map(|l| l["ns"].as_i64().unwrap()).sum();
    assert_eq!(Some(sum), json["window_ns"].as_i64());
    assert_eq!(json["exit_code"], 3);
}

#[test]
fn the_cost_is_measured() {
    let (output, recording) = trace(&["--ab", "1"], &["return", "100"], &[]);
    assert_eq!(text(&output.stdout), "hello from the program\n".repeat(3), "untraced, traced, untraced");
    assert!(text(&output.stderr).contains("tracing cost, whole command: untraced"));
    assert_eq!(recording.unwrap().processes.len(), 1);
}

/// A number of the program's own in place of its whole run; what it prints still comes out as it was.
#[test]
fn the_cost_by_the_programs_own_number() {
    let how = ["return", "100"];
    let (output, recording) = trace(&["--ab", "1", "--metric", "hello from the (program)"], &how, &[]);
    assert_eq!((output.status.code(), recording.is_some()), (Some(2), false), "no number, and so an error of ours");
    assert_eq!(text(&output.stdout), "hello from the program\n");
    assert!(text(&output.stderr).contains("`program`, which is no number"));
    let script = format!("{} return 100; echo step_ns 250; exit 6", fake().join("program").display());
    let scratch = tempfile::tempdir().unwrap();
    let json = scratch.path().join("x.json");
    let output = Command::new(env!("CARGO_BIN_EXE_workbench"))
        .args(["trace", "--ab", "2", "--metric", "step_ns ([0-9]+)", "--json", json.to_str().unwrap()])
        .args(["--", "sh", "-c", &script])
        .env("WORKBENCH_CUPTI", fake().join("libcupti.so.13"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(text(&output.stdout), "hello from the program\nstep_ns 250\n".repeat(5));
    assert!(text(&output.stderr).contains("untraced 250 (n=3), traced 250 (n=2): +0.00 %"), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(json["overhead"]["traced"], serde_json::json!([250.0, 250.0]));
}
