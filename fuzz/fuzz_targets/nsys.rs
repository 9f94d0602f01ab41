//! Any bytes as a database of Nsight Systems. SQLite reads files, so each input becomes one in memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workbench::profile::{defects, import};

fuzz_target!(|data: &[u8]| {
    let file = std::env::temp_dir().join(format!("workbench-fuzz-{}.sqlite", std::process::id()));
    std::fs::write(&file, data).expect("room for the input");
    if let Ok(trace) = import::nsys::read(&file) {
        defects::audit(&trace);
    }
});
