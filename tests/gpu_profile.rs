//! Tracing on a real GPU: our own session, and a process that we did not write. Without a GPU it says so and passes.

use std::collections::HashMap;
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

/// However the guest ends, its exit code is its own and what was flushed is kept.
#[test]
fn a_guest_ends_as_it_would_have() {
    use std::os::unix::process::ExitStatusExt;
    if device().is_none() {
        return;
    }
    for how in ["return", "_exit", "fork", "interrupt", "kill", "abort", "segv"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.wbt");
        let guest = |mut command: Command| {
            command
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", "guest_that_ends", "--include-ignored", "--nocapture", "--test-threads=1"])
                .env("GUEST_ENDS_BY", how)
                .output()
                .unwrap()
        };
        let mut env = Command::new("env");
        env.arg("--");
        let plain = guest(env);
        let mut trace = Command::new(workbench());
        trace.args(["trace", "--no-cost", "-o", file.to_str().unwrap(), "--"]);
        let traced = guest(trace);
        let code = plain.status.code().unwrap_or_else(|| 128 + plain.status.signal().unwrap());
        let expected = HashMap::from([
            ("_exit", 7),
            ("interrupt", 128 + libc::SIGINT),
            ("kill", 128 + libc::SIGKILL),
            ("abort", 128 + libc::SIGABRT),
            ("segv", 128 + libc::SIGSEGV),
        ]);
        assert_eq!(code, expected.get(how).copied().unwrap_or(0), "{how}: the guest itself");
        assert_eq!(traced.status.code(), Some(code), "{how}");
        let recording = native::open(&file).unwrap();
        let p = &recording.processes[0];
        println!("{how}: exit {code}, {} operations, closed {}", p.operations, p.ended);
        assert!(p.operations >= 100 && p.dropped == 0, "{how}: {p:?}");
        assert_eq!(p.ended, ["return", "fork"].contains(&how), "{how}");
    }
}

#[test]
#[ignore = "the guest of the test above"]
fn guest_that_ends() {
    let Ok(how) = std::env::var("GUEST_ENDS_BY") else { return };
    guest_that_launches();
    if how != "return" {
        // Several of the periods after which finished records of so young a process are on the disk.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // SAFETY: each ends this process, as is wanted, or acts on a child of ours that touches nothing.
    unsafe {
        match how.as_str() {
            "_exit" => libc::_exit(7),
            "fork" => {
                let child = libc::fork();
                if child == 0 {
                    libc::exit(5);
                }
                let mut status = 0;
                libc::waitpid(child, &mut status, 0);
                assert_eq!(libc::WEXITSTATUS(status), 5);
            }
            "interrupt" => drop(libc::raise(libc::SIGINT)),
            "kill" => drop(libc::raise(libc::SIGKILL)),
            "abort" => libc::abort(),
            // Rust's own handler, for stack overflows, would return from a signal that no access caused.
            "segv" => {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                libc::raise(libc::SIGSEGV);
            }
            _ => {}
        }
    }
}
