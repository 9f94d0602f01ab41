//! Any bytes as a recording of our own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workbench::profile::ledger::{Accountant, Options};
use workbench::profile::{defects, native};

fuzz_target!(|data: &[u8]| {
    let Ok(recording) = native::read(data) else { return };
    let trace = &recording.trace;
    let audit = defects::audit(trace);
    let Some(device) = trace.operations.first().map(|o| o.device) else { return };
    let options = Options { clock_ns: Some(audit.clock_error_ns), ..Options::default() };
    let accountant = Accountant::new(trace, device, &options);
    let Some((t0, t1)) = accountant.span() else { return };
    match accountant.window(t0, t1) {
        Ok(ledger) => assert_eq!(ledger.residual_ns, 0),
        Err(_) => assert!(t1.checked_sub(t0).is_none()),
    }
});
