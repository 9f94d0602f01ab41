//! The whole decode step on the host emulator against PyTorch transformers' logits: ragged batch, growing lengths,
//! page boundaries, 32 greedy tokens; folded and unfolded plans. Skips aloud without the emulated kernels
//! (`cargo xtask emulate`), unless WORKBENCH_REQUIRE_EMULATED is set.

use std::path::Path;
use workbench::op::Chip;
use workbench::run::Emulator;
use workbench::run::step::expect;

fn check(chip: Chip, page: u64, fuse: bool) {
    let mut exec = match Emulator::new(chip) {
        Ok(exec) => exec,
        Err(e) if std::env::var_os("WORKBENCH_REQUIRE_EMULATED").is_none() => {
            eprintln!("SKIPPED: {e}");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny-llama");
    let outcome = expect::check(&mut exec, &folder, page, fuse).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((outcome.requests, outcome.steps), (3, 32));
    assert!(outcome.ok(), "{outcome:?}");
    // A logit error far below the peer's own would mean that nothing was compared.
    assert!(outcome.logit_error > 0.0, "{outcome:?}");
}

#[test]
fn folded_plan_pages_of_16() {
    check(Chip::H200, 16, true);
}

#[test]
fn folded_plan_pages_of_3() {
    check(Chip::H200, 3, true);
}

#[test]
fn every_op_a_kernel_of_its_own() {
    check(Chip::H200, 16, false);
}

#[test]
fn the_sm_80_choice_of_variants() {
    check(Chip { sm: 80, sms: 108, l2_bytes: 40 << 20, shared_optin: 166_912 }, 16, true);
}
