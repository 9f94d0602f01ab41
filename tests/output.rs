//! What every command promises of its output: a form that is asked for is written or refused, never ignored; and a reader
//! who has seen enough (`| head`) ends the program quietly.

use std::path::Path;
use std::process::{Command, Stdio};

const RUN: &str = "reports/h200/2026-11-30-step-1b";
const TRACE: &str = "tests/fixtures/loop/loop_graph.wbt.gz";
const OTHER: &str = "tests/fixtures/loop/loop_graph.json.gz";

fn workbench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_workbench"));
    command.args(args).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    command
}

/// Command lines that need no GPU, and the forms that each writes.
const COMMANDS: &[(&[&str], &[&str])] = &[
    (&["doctor", TRACE], &["json", "md"]),
    (&["list", "softmax"], &["json", "csv", "md"]),
    (&["show", "softmax/online"], &["json"]),
    (&["bench", "softmax", "--dry-run"], &["json", "csv", "md"]),
    (&["roofline", "--machine", "h200"], &["json", "csv", "md"]),
    (&["roofline", "--from", "reports/h200/2026-11-30-roofline/roofline.json"], &["json", "csv", "md"]),
    (&["step", "--dry-run"], &["json", "csv", "md"]),
    (&["step", "--from", RUN], &["json", "csv", "md", "html"]),
    (&["report", RUN], &["json", "csv", "md", "html"]),
    (&["gaps", TRACE], &["json", "csv", "md", "html"]),
    (&["compare", TRACE, OTHER], &["json", "csv", "md"]),
    (&["occupancy", "softmax/online"], &["json", "csv", "md"]),
    (&["predict", "step"], &["json", "csv", "md"]),
    (&["size", "--model", "llama-3-8b"], &["json", "csv", "md"]),
    (&["note", "surprises"], &["json", "csv", "md"]),
    (&["note", "close", "no_such_note", "--lesson", "x", "--follow-up", "x"], &[]),
    (&["completions", "bash"], &[]),
    (&["man"], &[]),
];

/// Of commands that would need a GPU: refused before anything runs.
const REFUSED: &[(&[&str], &[&str])] = &[
    (&["verify"], &["html"]),
    (&["bench", "softmax"], &["html"]),
    (&["roofline"], &["html"]),
    (&["step", "--expect", "no/such/folder"], &["csv", "md", "html"]),
    (&["trace"], &["csv", "md", "html"]),
    (&["note", "measure", "x"], &["json", "csv", "md", "html"]),
];

#[test]
fn a_form_is_written_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let all = ["json", "csv", "md", "html"];
    let cases = COMMANDS.iter().flat_map(|(line, forms)| all.map(|form| (*line, form, forms.contains(&form))));
    let refused = REFUSED.iter().flat_map(|(line, forms)| forms.iter().map(|form| (*line, *form, false)));
    for (i, (line, form, writes)) in cases.chain(refused).enumerate() {
        let file = folder.path().join(format!("{i}.{form}"));
        let option = format!("--{form}={}", file.display());
        let mut args = line.to_vec();
        args.insert(1, &option);
        if line[0] == "trace" {
            args.extend(["--", "true"]);
        }
        let out = workbench(&args).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        if writes {
            assert_eq!(out.status.code(), Some(0), "{args:?}: {said}");
            let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{args:?}: {e}"));
            let first = text.lines().next().unwrap_or_default();
            match form {
                "json" => {
                    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
                    let head = values.next().unwrap().unwrap();
                    assert_eq!(head["schema"], 1, "{args:?}");
                    assert!(values.all(|v| v.is_ok()), "{args:?}");
                }
                "csv" => assert!(first.split(',').count() >= 3, "{args:?}: {first}"),
                "md" => {
                    assert!(text.contains("| --- |") || text.contains("---: |") || first == "```", "{args:?}: {text}")
                }
                _ => assert!(text.contains("</html>"), "{args:?}"),
            }
        } else {
            assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
            assert!(said.contains("writes no") && said.contains("try: "), "{args:?}: {said}");
            assert!(!file.exists() && out.stdout.is_empty(), "{args:?}");
        }
    }
}

/// `-` puts a form on standard output, alone.
#[test]
fn predictions_on_standard_output_are_whole() {
    let lines = |args: &[&str]| -> Vec<serde_json::Value> {
        let out = workbench(args).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::Deserializer::from_slice(&out.stdout).into_iter().collect::<Result<_, _>>().unwrap()
    };
    let bench = lines(&["bench", "matmul", "--dry-run", "--shape", "m=1,n=4096,k=4096,dtype=bf16", "--json", "-"]);
    assert_eq!(bench.len(), 2);
    let (row, read) = (&bench[1], bench[0]["ceilings"]["read_gbps"].as_f64().unwrap());
    // 4096 x 4096 bf16 weights, one row in, one row out.
    assert_eq!(row["bytes"], 2 * (4096 * 4096 + 2 * 4096));
    let floor = row["floor_ns"].as_f64().unwrap();
    assert!((floor * read / row["bytes"].as_f64().unwrap() - 1.0).abs() < 0.01, "{row}");
    assert!(row["predicted_ns"].as_f64() >= Some(floor));
    let step = lines(&["step", "--dry-run", "--json", "-"]);
    let nodes = step[0]["nodes"].as_array().unwrap();
    let sum: f64 = nodes.iter().map(|n| n["predicted_ns"].as_f64().unwrap()).sum();
    assert!((sum - step[0]["predicted_ns"].as_f64().unwrap()).abs() <= 0.5, "{sum}");
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    use std::os::unix::process::ExitStatusExt;
    const SIGPIPE: i32 = 13;
    let lines: &[&[&str]] = &[
        &["completions", "bash"],
        &["man"],
        &["list"],
        &["report", RUN],
        &["step", "--dry-run"],
        &["step", "--gpu", "5"],
        &["roofline", "--machine", "h200"],
        &["bench", "softmax", "--dry-run"],
        &["gaps", TRACE],
        &["compare", TRACE, OTHER],
        &["predict", "step"],
        &["note", "surprises"],
    ];
    for line in lines {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let out = workbench(line).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() || out.status.signal() == Some(SIGPIPE), "{line:?}: {:?} {said}", out.status);
        assert!(!said.contains("panicked") && !said.contains("os error"), "{line:?}: {said}");
    }
    // Standard error too, where the errors go.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = workbench(&["gaps", "no/such/file"]).stderr(writer).stdout(Stdio::null()).status().unwrap();
    assert_ne!(status.code(), Some(101));
}

/// The README's sentence about forms is the program's.
#[test]
fn the_readme_says_who_writes_what() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let readme = readme.replace('\n', " ");
    let only = |forms: &[&str]| -> Vec<&str> {
        let mut names: Vec<&str> = COMMANDS.iter().filter(|(_, f)| *f == forms).map(|(line, _)| line[0]).collect();
        names.dedup();
        names
    };
    assert_eq!(only(&["json", "csv", "md", "html"]), ["step", "report", "gaps"]);
    assert!(readme.contains("`--html FILE` a page (`step`, `report`, `gaps`)"));
    assert_eq!((only(&["json", "md"]), only(&["json"])), (vec!["doctor"], vec!["show"]));
    assert!(readme.contains("`doctor` has no CSV, `show` and `trace` JSON only"));
    assert_eq!(only(&[]), ["note", "completions", "man"]);
    assert!(readme.contains("`man` and `completions` none; what a command does not write it refuses"));
}

/// `show` holds what it is asked for against what there is, and names what it needs where that is missing.
#[test]
fn show_explains_what_it_cannot_show() {
    use workbench::launch::image::{self, TOOLCHAIN};
    let refused = |args: &[&str]| {
        let out = workbench(args).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let said = refused(&["show", "softmax/online", "--arch", "sm_90"]);
    assert!(said.contains("--sass or --resources"), "{said}");
    if TOOLCHAIN.nvcc.is_none() {
        eprintln!("SKIPPED: this program was built without nvcc");
        return;
    }
    let image = image::find("softmax/online").unwrap();
    for what in ["--sass", "--resources"] {
        let said = refused(&["show", "softmax/online", what, "--arch", "sm_12"]);
        assert!(said.contains("no machine code for `sm_12`; it has sm_80"), "{said}");
        let said = refused(&["show", "softmax/online", what, "--kernel", "nonsense"]);
        assert!(said.contains("no kernel `nonsense`") && said.contains(image.resources[0].entry), "{said}");
        assert!(!said.contains("cuobjdump"), "{said}");
    }
    // Elsewhere, with no toolkit to be found, the fix is one that works there.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut show = workbench(&["show", "softmax/online", "--sass"]);
    for name in ["WORKBENCH_NVCC", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"] {
        show.env_remove(name);
    }
    let out = show.current_dir(&elsewhere).env("PATH", elsewhere.path()).output().unwrap();
    if !Path::new("/usr/local/cuda/bin/cuobjdump").is_file() {
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains("try: CUDA_HOME=DIR") && !said.contains("xtask"), "{said}");
    }
    // A cuobjdump that fails is quoted in one line.
    let bin = elsewhere.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("cuobjdump"), "#!/bin/sh\necho cuobjdump fatal : no good >&2\necho more >&2\nexit 1\n")
        .unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(bin.join("cuobjdump"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut show = workbench(&["show", "softmax/online", "--sass"]);
        let out = show.env_remove("WORKBENCH_NVCC").env("CUDA_HOME", elsewhere.path()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("cannot read the machine code of softmax/online: cuobjdump fatal : no good"), "{said}");
        assert!(!said.contains("more"), "{said}");
    }
}
