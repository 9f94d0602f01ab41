//! Every committed run is accounted again: its trace holds the plan, its ledger closes to 0 ns, and the numbers that the
//! README states are the recording's.

use std::path::{Path, PathBuf};
use workbench::explain::step::account;
use workbench::profile::native;
use workbench::run::step::recording::Recording;

fn runs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/h200");
    let mut runs: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|e| e.unwrap().path()).filter(|p| p.join("step.json").exists()).collect();
    runs.sort();
    runs
}

#[test]
fn every_recorded_step_closes_again() {
    let runs = runs();
    assert!(runs.len() >= 7, "{runs:?}");
    for run in runs {
        let r = Recording::load(&run).unwrap();
        for mode in &r.modes {
            let trace = native::open(&run.join(&mode.trace)).unwrap().trace;
            let a = account(&r, mode, &trace).unwrap_or_else(|e| panic!("{} {}: {e}", run.display(), mode.mode));
            assert_eq!((a.ledger.residual_ns, a.waterfall.residual_ns), (0, 0));
            let sum: i64 = a.ledger.lines.iter().map(|l| l.ns).sum();
            assert_eq!(sum, a.ledger.window_ns);
            let floor: f64 = r.nodes.iter().map(|n| n.floor_ns).sum();
            assert!(mode.untraced.median_ns > floor, "{}: faster than its floor", run.display());
        }
    }
}

#[test]
fn the_readme_states_what_was_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for (run, digits) in [("step-bf16", 3), ("step-w4a16", 3)] {
        let r = Recording::load(&root.join("reports/h200").join(format!("2026-11-30-{run}"))).unwrap();
        let ms = r.mode("graph").unwrap().untraced.median_ns / 1e6;
        let text = format!("{ms:.digits$} ms");
        assert!(readme.contains(&text), "README does not state {text} of {run}");
    }
}
