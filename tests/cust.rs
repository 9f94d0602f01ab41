//! The `cust` backend against the fake driver of `tests/fake_driver`: what it launches, that it waits, what it says where a
//! call fails. `cargo test --features cust --test cust`; needs a C compiler and a build with nvcc.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use workbench::launch::backend::cust::Cust;
use workbench::launch::backend::{Backend, Kernel};
use workbench::launch::image::TOOLCHAIN;
use workbench::launch::{Device, Event, Stream};

/// The folder with the fake `libcuda.so.1`, compiled once.
fn driver() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake_driver_cust");
        std::fs::create_dir_all(&folder).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_driver/driver.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-w", "-o"]).arg(folder.join("libcuda.so.1")).arg(source);
        assert!(cc.status().expect("a C compiler").success());
        folder
    })
}

/// Runs an ignored test of this file in a process of its own, which finds the fake driver.
fn on_the_fake_driver(test: &str, settings: &[(&str, &str)]) -> Output {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", driver())
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("running 1 test"), "{said}");
    output
}

fn compiled() -> bool {
    if TOOLCHAIN.nvcc.is_none() {
        eprintln!("SKIPPED: this program was built without nvcc");
    }
    TOOLCHAIN.nvcc.is_some()
}

fn passes(test: &str, settings: &[(&str, &str)]) {
    if compiled() {
        let output = on_the_fake_driver(test, settings);
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn launches_reach_the_device_and_are_waited_for() {
    passes("child_launches", &[("FAKE_KERNEL_NS", "1000000")]);
}

#[test]
#[ignore = "run by the test above"]
fn child_launches() {
    let device = Device::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let (before, after) = (Event::new(&device).unwrap(), Event::new(&device).unwrap());
    for kernel in [Kernel::Empty, Kernel::EightArguments] {
        let mut cust = Cust::new(&device, kernel).unwrap();
        assert_eq!(cust.name(), "cust");
        before.record(&stream).unwrap();
        cust.submit(7).unwrap();
        cust.wait().unwrap();
        after.record(&stream).unwrap();
        // The fake driver's clock goes on by 1 ms a launch.
        assert_eq!(after.since(&before).unwrap(), 7e6);
    }
}

#[test]
fn a_failed_launch_is_named() {
    passes("child_cannot_launch", &[("FAKE_LAUNCH_FAILS", "719")]);
}

#[test]
#[ignore = "run by the test above"]
fn child_cannot_launch() {
    let mut cust = Cust::new(&Device::open(0).unwrap(), Kernel::Empty).unwrap();
    assert_eq!(cust.submit(1).unwrap_err().what, "cust: LaunchFailed");
}

#[test]
fn a_failed_wait_is_named() {
    passes("child_cannot_wait", &[("FAKE_SYNC_FAILS", "700")]);
}

#[test]
#[ignore = "run by the test above"]
fn child_cannot_wait() {
    let mut cust = Cust::new(&Device::open(0).unwrap(), Kernel::Empty).unwrap();
    cust.submit(3).unwrap();
    assert_eq!(cust.wait().unwrap_err().what, "cust: IllegalAddress");
}
