//! The pages of `docs/examples` are what the commands in its README write, from committed recordings.

use std::path::Path;
use std::process::Command;
use workbench::run::step::recording::Recording;

/// Page and arguments of each row of the table.
fn listed(root: &Path) -> Vec<(String, Vec<String>)> {
    let readme = std::fs::read_to_string(root.join("docs/examples/README.md")).unwrap();
    let row = regex::Regex::new(r"(?m)^\| \[[^\]]+\]\(([^)]+)\).*\| `workbench ([^`]+)` \|$").unwrap();
    row.captures_iter(&readme).map(|c| (c[1].to_string(), c[2].split(' ').map(String::from).collect())).collect()
}

#[test]
fn the_examples_are_what_the_program_writes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("docs/examples");
    let scratch = tempfile::tempdir().unwrap();
    let pages = listed(root);
    assert!(pages.len() >= 7, "{pages:?}");
    let committed = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    for name in committed.filter(|n| n != "README.md") {
        assert!(pages.iter().any(|(page, _)| *page == name), "docs/examples/README.md does not list {name}");
    }
    for (page, args) in pages {
        let file = scratch.path().join(&page);
        let output = Command::new(env!("CARGO_BIN_EXE_workbench"))
            .args(&args)
            .arg(&file)
            .current_dir(root)
            // Ceilings that somebody has measured on this machine are not the committed ones.
            .env("XDG_DATA_HOME", scratch.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        let made = std::fs::read_to_string(&file).unwrap();
        let kept = folder.join(&page);
        if std::env::var_os("WORKBENCH_UPDATE_EXAMPLES").is_some() {
            std::fs::write(&kept, &made).unwrap();
        }
        let have = std::fs::read_to_string(&kept).unwrap_or_else(|e| panic!("{}: {e}", kept.display()));
        if page.ends_with(".html") {
            // Its scripts and styles are another test's business (tests/browser.rs); its numbers are the Markdown's.
            let recorded = Recording::load(&root.join("reports/h200/2026-11-30-step-bf16")).unwrap();
            let number = format!("{:.3}", recorded.mode("graph").unwrap().untraced.median_ns / 1e6);
            assert!(have.contains(&number) && made.contains(&number) && have.len() < 600_000, "{page}: {number}");
            continue;
        }
        let differs = made.lines().zip(have.lines()).find(|(a, b)| a != b);
        assert!(
            made == have,
            "{page} is no longer what `workbench {}` writes (first difference: {differs:?}); if that is right: \
             WORKBENCH_UPDATE_EXAMPLES=1 cargo test --test examples",
            args.join(" ")
        );
    }
}

#[test]
fn the_readme_leads_to_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(std::fs::read_to_string(root.join("README.md")).unwrap().contains("(docs/examples/README.md)"));
}
