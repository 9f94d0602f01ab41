//! Any bytes as an Nsight Compute table.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workbench::profile::import::ncu;
use workbench::profile::trace::Names;

fuzz_target!(|data: &[u8]| {
    if let Ok(profiled) = ncu::parse(data) {
        ncu::join(&mut [], &[], &Names::default(), &profiled);
    }
});
