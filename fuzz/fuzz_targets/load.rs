//! Any bytes as a file whose format its content tells: compressed streams above all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workbench::profile::{defects, import};

fuzz_target!(|data: &[u8]| {
    let file = std::env::temp_dir().join(format!("workbench-fuzz-load-{}", std::process::id()));
    std::fs::write(&file, data).expect("room for the input");
    if let Ok(loaded) = import::load(&file) {
        defects::audit(&loaded.trace);
    }
});
