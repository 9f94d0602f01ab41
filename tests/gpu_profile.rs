//! Tracing on a real GPU: our own session, and a process that we did not write. Without a GPU it says so and passes.

use std::process::Command;
use workbench::launch::Device;
use workbench::profile::{native, probe};

fn device() -> Option<Device> {
    Device::open(0).inspect_err(|e| println!("no GPU here: {e}")).ok()
}

/// Kernels, graph nodes, labels, durations and clock of a session; three times, for detaching must leave the next one whole.
#[test]
fn a_session_sees_what_was_launched() {
    let Some(device) = device() else { return };
    for _ in 0..3 {
        let probe = probe::verify(&device).unwrap();
        println!("{probe:?}");
        assert!(probe.calls > 0);
    }
}

/// The program: beside the tests' folder in a bundle, else where cargo built it.
fn workbench() -> std::path::PathBuf {
    let test = std::env::current_exe().unwrap();
    let bundled = test.parent().and_then(|p| p.parent()).map(|p| p.join("workbench")).filter(|p| p.is_file());
    bundled.unwrap_or_else(|| env!("CARGO_BIN_EXE_workbench").into())
}

/// This test program again, as a guest.
#[test]
fn a_traced_process_is_one_that_we_did_not_write() {
    if device().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.wbt");
    let output = Command::new(workbench())
        .args(["trace", "-o", file.to_str().unwrap(), "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "guest_that_launches", "--include-ignored", "--nocapture"])
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    let recording = native::open(&file).unwrap();
    let p = &recording.processes[0];
    assert!(p.ended && p.dropped == 0, "{p:?}");
    let ours = recording.trace.operations.iter().filter(|o| recording.trace.names.text(o.name) == probe::Spin::NAME);
    assert_eq!(ours.filter(|o| o.end > o.start).count(), 100);
}

#[test]
#[ignore = "the guest of the test above"]
fn guest_that_launches() {
    let Some(device) = device() else { return };
    let kernel = probe::Spin::load().unwrap();
    let stream = workbench::launch::Stream::new(&device).unwrap();
    (0..100).for_each(|_| kernel.launch(&stream, 10_000).unwrap());
    stream.synchronize(|| "the guest".into()).unwrap();
}
