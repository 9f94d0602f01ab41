//! Holds the dependency rules of docs/architecture.md: which module may use which. It reads the sources, so a rule is
//! broken by the first `crate::…` path that should not be there, and a new module has to take a rule.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A module and all that it may use of the crate. Itself is always allowed.
const ALLOWED: &[(&str, &[&str])] = &[
    ("op", &[]),
    ("units", &[]),
    ("stats", &["op"]),
    ("toolchain", &[]),
    ("files", &[]),
    ("error", &["op"]),
    ("kernels", &["op", "op_error", "units"]),
    ("plan", &["error", "kernels", "op", "op_error", "units"]),
    ("launch", &["error", "op", "stats", "toolchain", "units"]),
    ("profile", &["error", "files", "launch", "op", "stats", "units"]),
    ("roofline", &["error", "files", "kernels", "op", "plan", "stats", "units"]),
    ("notebook", &["error", "stats", "units"]),
    (
        "run",
        &["error", "kernels", "launch", "op", "op_error", "plan", "profile", "roofline", "stats", "toolchain", "units"],
    ),
    ("explain", &["error", "kernels", "launch", "op", "plan", "profile", "roofline", "run", "stats", "units"]),
    (
        "report",
        &["error", "explain", "launch", "notebook", "op", "plan", "profile", "roofline", "run", "stats", "units"],
    ),
];

/// Modules that work anywhere: nothing in them may name a crate that talks to a GPU.
const PURE: &[&str] = &[
    "src/op.rs",
    "src/units.rs",
    "src/stats.rs",
    "src/files.rs",
    "src/plan",
    "src/roofline",
    "src/notebook",
    "src/toolchain.rs",
    "src/launch/image.rs",
    "src/profile/trace.rs",
    "src/profile/ledger",
    "src/profile/ledger.rs",
    "src/profile/steps",
    "src/profile/steps.rs",
    "src/profile/import",
    "src/profile/native",
    "src/profile/export",
    "kernels",
];
const GPU_CRATES: &[&str] = &["cudarc::", "cupti_sys::", "nvml_wrapper::", "cust::"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a folder (or the file itself) that ends in one of `endings`.
fn files(path: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut open = vec![path.to_path_buf()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if path.to_str().is_some_and(|p| endings.iter().any(|e| p.ends_with(e))) {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// A file's code: no comment lines, and nothing of its unit tests, which may use what they like.
fn code(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    text.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The first names after `crate::`, those inside braces included: `crate::{op::Op, units}` gives `op` and `units`.
fn used(code: &str) -> BTreeSet<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if code[..at].ends_with('$') {
            continue;
        }
        let Some(list) = rest.strip_prefix('{') else {
            found.insert(name(rest));
            continue;
        };
        let (mut depth, mut start) = (0, true);
        for (i, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if start && !c.is_whitespace() => {
                    found.insert(name(&list[i..]));
                    start = false;
                }
                _ => {}
            }
        }
    }
    found
}

/// The top-level module that a file belongs to.
fn module(file: &Path) -> String {
    let relative = file.strip_prefix(root()).unwrap();
    let mut parts = relative.iter().map(|p| p.to_str().unwrap());
    match (parts.next().unwrap(), parts.next()) {
        ("kernels", _) => "kernels".into(),
        (_, Some(name)) => name.trim_end_matches(".rs").into(),
        (name, None) => name.into(),
    }
}

#[test]
fn modules_use_only_what_they_may() {
    let mut faults = Vec::new();
    for file in files(&root().join("src"), &[".rs"]).into_iter().chain(files(&root().join("kernels"), &[".rs"])) {
        let module = module(&file);
        let shown = file.strip_prefix(root()).unwrap().display().to_string();
        if matches!(module.as_str(), "cli" | "main" | "lib") {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(m, _)| *m == module) else {
            faults.push(format!("{shown}: module `{module}` has no rule in tests/architecture.rs"));
            continue;
        };
        for name in used(&code(&file)) {
            if name != module && !allowed.contains(&name.as_str()) {
                faults.push(format!("{shown} uses crate::{name}, which `{module}` may not"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn pure_modules_name_no_gpu_crate() {
    let mut faults = Vec::new();
    for file in PURE.iter().map(|p| root().join(p)).filter(|p| p.exists()).flat_map(|p| files(&p, &[".rs"])) {
        for name in GPU_CRATES {
            if code(&file).contains(name) {
                faults.push(format!("{} names {name}", file.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn inline_assembly_has_one_home() {
    let kernels = root().join("kernels");
    for file in files(&kernels, &[".cu", ".cuh", ".h"]) {
        let shown = file.strip_prefix(&kernels).unwrap().display().to_string();
        if !shown.starts_with("common/ptx") && !shown.starts_with("common/emu") {
            let code = code(&file);
            let asm = code.lines().find(|l| l.contains("asm volatile") || l.contains("asm(") || l.contains("__asm"));
            assert!(asm.is_none(), "kernels/{shown} has inline assembly, which belongs in common/ptx*.cuh: {asm:?}");
        }
    }
}

#[test]
fn the_scanner_sees_every_form() {
    let code = "use crate::op::{Op, Shape};\nuse crate::{\n    units::{Nanos, Bytes},\n    cli, plan::Plan };\nlet x = crate::launch::f();\n$crate::no!()";
    let found: Vec<String> = used(code).into_iter().collect();
    assert_eq!(found, ["cli", "launch", "op", "plan", "units"]);
}
