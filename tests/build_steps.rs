//! The parts of `build.rs` that can be wrong quietly: reading the assembler's report, holding the registry against the
//! files, finding headers, keys.

use workbench::{kernels, op};

#[path = "../build/hash.rs"]
mod hash;
#[path = "../build/ptxas.rs"]
mod ptxas;
#[allow(dead_code)]
#[path = "../build/sources.rs"]
mod sources;

use std::fs;
use std::path::Path;

const LOG: &str = "\
ptxas info    : 0 bytes gmem, 24 bytes cmem[4]
ptxas info    : Compiling entry function 'softmax_online_bf16' for 'sm_90a'
ptxas info    : Function properties for softmax_online_bf16
    48 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 48 bytes cumulative stack size, 1040 bytes smem, 48 bytes cmem[2]
ptxas info    : Compile time = 7.208 ms
ptxas info    : Compiling entry function 'plain' for 'sm_80'
ptxas info    : Function properties for helper
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers, 400 bytes cmem[0]
";

#[test]
fn the_assemblers_report_is_read() {
    let found = ptxas::parse(LOG);
    assert_eq!(found.len(), 2);
    let first = ptxas::Resources {
        entry: "softmax_online_bf16".into(),
        arch: "sm_90a".into(),
        registers: 168,
        spill_stores: 12,
        spill_loads: 16,
        stack: 48,
        shared: 1040,
    };
    assert_eq!(found[0], first);
    assert_eq!((found[1].entry.as_str(), found[1].registers, found[1].stack, found[1].shared), ("plain", 12, 0, 0));
}

#[test]
fn serialised_wgmma_fails_the_build() {
    let line = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized";
    assert_eq!(ptxas::fatal(&format!("{LOG}{line}\n")), Some(line));
    for code in ["C7508", "C7510", "C7511", "C7512", "C7513", "C7514", "C7515"] {
        assert!(
            ptxas::fatal(&format!("ptxas info : ({code}) Potential Performance Loss: wgmma\n")).is_some(),
            "{code}"
        );
    }
    assert_eq!(ptxas::fatal(LOG), None);
    assert_eq!(ptxas::warnings("a.cu(2): warning #177-D: unused\nRemark: The warnings can be…\n").len(), 1);
}

/// Copies `kernels/` so that a test may spoil it.
fn copy_of_kernels() -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(|e| e.unwrap().path()) {
            let target = to.join(entry.file_name().unwrap());
            if entry.is_dir() { copy(&entry, &target) } else { fs::copy(&entry, &target).map(|_| ()).unwrap() }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels"), dir.path());
    dir
}

#[test]
fn a_file_without_an_entry_and_an_entry_without_a_file_are_told() {
    let dir = copy_of_kernels();
    let units = sources::units(dir.path()).unwrap();
    let first = units.first().expect("the registry lists variants");
    fs::write(dir.path().join("common/stray.cu"), "").unwrap();
    fs::remove_file(dir.path().join(&first.file)).unwrap();
    let fault = sources::units(dir.path()).err().expect("two faults");
    assert!(fault.contains("kernels/common/stray.cu has no Variant entry"), "{fault}");
    assert!(fault.contains(&format!("but there is no kernels/{}", first.file)), "{fault}");
}

#[test]
fn headers_are_found_through_headers() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["common", "op"] {
        fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    let write = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
    write("op/a.cu", "#include \"../common/wb.cuh\"\n  # include \"own.cuh\"\n#include <cuda_fp16.h>\n");
    write("op/own.cuh", "#include \"../common/wb.cuh\"\n");
    write("common/wb.cuh", "#include \"deep.cuh\"\n#include \"not_there.h\"\n");
    write("common/deep.cuh", "");
    let found = sources::headers(dir.path(), "op/a.cu").unwrap();
    let found: Vec<_> = found.iter().map(|h| (h.include.as_str(), h.path.as_str())).collect();
    let expected = [("../common/wb.cuh", "common/wb.cuh"), ("deep.cuh", "common/deep.cuh"), ("own.cuh", "op/own.cuh")];
    assert_eq!(found, expected);
    write("common/own.cuh", "");
    write("common/wb.cuh", "#include \"own.cuh\"\n");
    assert!(sources::headers(dir.path(), "op/a.cu").unwrap_err().contains("rename one"));
}

#[test]
fn keys_keep_fields_apart() {
    let key = |fields: &[&str]| fields.iter().fold(hash::Hash::new(), |h, f| h.field(f)).hex();
    assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
    assert_eq!(key(&["a"]), key(&["a"]));
    assert_eq!(key(&[]).len(), 32);
}
