//! Any bytes as a Chrome trace: read, audited, accounted and exported without a panic, and the ledger closes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use workbench::profile::export::perfetto;
use workbench::profile::ledger::{Accountant, Options};
use workbench::profile::steps::{self, Selector};
use workbench::profile::{defects, import};

fuzz_target!(|data: &[u8]| {
    let Ok(trace) = import::kineto::read(Box::new(Cursor::new(data.to_vec()))) else { return };
    let audit = defects::audit(&trace);
    let Some(device) = trace.operations.first().map(|o| o.device) else { return };
    let options = Options { clock_ns: Some(audit.clock_error_ns), ..Options::default() };
    let accountant = Accountant::new(&trace, device, &options);
    let Some((t0, t1)) = accountant.span() else { return };
    // A window longer than the clock can count is a usage error; any other closes.
    let Ok(ledger) = accountant.window(t0, t1) else {
        assert!(t1.checked_sub(t0).is_none());
        return;
    };
    assert_eq!(ledger.residual_ns, 0);
    if let Ok(found) = steps::find(&trace, &accountant, &Selector::Auto) {
        let _ = steps::report(&accountant, &found);
    }
    perfetto::write(&trace, &[&ledger], &mut std::io::sink()).expect("a sink takes everything");
});
