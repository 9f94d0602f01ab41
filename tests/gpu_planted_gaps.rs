//! The test that causes are true: a program with gaps that we made, of a kind and size that we know, traced and accounted.
//! Each planted cause must be found, with its size within 5 % (or 20 µs, for what the host's scheduler adds).
//!
//! Without a GPU it says so and passes.

use cudarc::driver::sys;
use std::ffi::c_void;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use workbench::launch::driver::check;
use workbench::launch::{Device, Stream};
use workbench::profile::ledger::{self, Cause, Ledger};
use workbench::profile::probe::Spin;
use workbench::profile::session::{Options, Session};
use workbench::profile::trace::{Trace, Work};

/// About 20 µs on a GPU of today.
const KERNEL: u64 = 35_000;

/// What was planted between two labelled kernels.
struct Plant {
    name: &'static str,
    cause: Cause,
    /// Labels of the kernels before and after.
    before: u64,
    after: u64,
    /// Host time at which the cause began and ended; it counts from the end of the kernel before, if that is later.
    from: i64,
    to: i64,
}

/// The host's clock, which is CUPTI's on Linux; a host function may ask it without calling CUDA.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// Runs on the driver's thread, in stream order; the work after it waits.
unsafe extern "C" fn dawdle(ended: *mut c_void) {
    std::thread::sleep(Duration::from_micros(600));
    // SAFETY: a box of the test's own, alive until the stream has been synchronised.
    unsafe { *ended.cast::<i64>() = now() };
}

fn busy(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn each_planted_cause_is_found_with_its_size() {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(e) => {
            println!("no GPU here: {e}");
            return;
        }
    };
    let kernel = Spin::load().unwrap();
    let (a, b) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    kernel.launch(&a, 0).unwrap();
    kernel.launch(&b, 0).unwrap();
    device.synchronize(|| "warming up".into()).unwrap();
    let session = Session::start(&Options::default()).unwrap();
    let launch = |stream: &Stream, label: u64| {
        let _label = session.label(label);
        kernel.launch(stream, KERNEL).unwrap();
    };
    let settle = || {
        device.synchronize(|| "between two plants".into()).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    };
    let mut plants = Vec::new();

    // The host computes for 200 µs while the device has nothing to do.
    for (i, us) in [200u64, 1000].into_iter().enumerate() {
        let before = 1 + 2 * i as u64;
        settle();
        launch(&a, before);
        let from = now();
        busy(Duration::from_micros(us));
        let to = now();
        launch(&a, before + 1);
        let name = if us == 200 { "host code 200 µs" } else { "late launch 1 ms" };
        plants.push(Plant { name, cause: Cause::HostCode, before, after: before + 1, from, to });
    }

    // The host waits in a synchronising call for something that is no device work.
    settle();
    let mut ended = Box::new(0i64);
    launch(&a, 11);
    host_function(&a, &mut ended);
    a.synchronize(|| "the planted wait".into()).unwrap();
    launch(&a, 12);
    plants.push(Plant {
        name: "blocked in a synchronising call",
        cause: Cause::HostBlockedInSync,
        before: 11,
        after: 12,
        from: 0,
        to: *ended,
    });

    // Another stream waits for an event that comes late; its kernel was launched long before.
    settle();
    let mut ended = Box::new(0i64);
    let mut event = std::ptr::null_mut();
    // SAFETY: valid out pointer; the event is destroyed below.
    check(unsafe { sys::cuEventCreate(&mut event, 0) }, || "an event".into()).unwrap();
    launch(&a, 21);
    host_function(&a, &mut ended);
    // SAFETY: live event and streams.
    unsafe {
        check(sys::cuEventRecord(event, a.raw()), || "recording".into()).unwrap();
        check(sys::cuStreamWaitEvent(b.raw(), event, 0), || "waiting".into()).unwrap();
    }
    launch(&b, 22);
    device.synchronize(|| "the planted event".into()).unwrap();
    // SAFETY: made above; nothing waits for it any more.
    unsafe { check(sys::cuEventDestroy_v2(event), || "destroying".into()).unwrap() };
    plants.push(Plant { name: "event wait", cause: Cause::EventWait, before: 21, after: 22, from: 0, to: *ended });

    // The host loads a module, which the driver has to compile.
    settle();
    launch(&a, 31);
    let from = now();
    let second = Spin::load().unwrap();
    let to = now();
    launch(&a, 32);
    plants.push(Plant { name: "module load", cause: Cause::HostInApi, before: 31, after: 32, from, to });

    // A copy to pageable memory, which the host waits for.
    settle();
    let bytes = copy_back(&device);
    settle();
    drop(second);
    let captured = session.finish().unwrap();
    let trace = &captured.recording.trace;
    assert_eq!(captured.dropped, 0);

    let mut failures = Vec::new();
    for plant in &plants {
        match found(trace, plant) {
            Ok((got, want)) => {
                let error = (got - want).abs();
                let ok = error <= (want / 20).max(20_000);
                println!(
                    "{:32} planted {:>9} ns, found {:>9} ns  {}",
                    plant.name,
                    want,
                    got,
                    if ok { "ok" } else { "NO" }
                );
                if !ok {
                    failures.push(plant.name);
                }
            }
            Err(e) => {
                println!("{:32} {e}", plant.name);
                failures.push(plant.name);
            }
        }
    }
    let copy = trace.operations.iter().find(|o| matches!(o.work, Work::Memcpy(_)) && o.bytes == bytes);
    println!("synchronising copy: {:?}", copy.map(|o| (trace.names.text(o.name), o.end - o.start)));
    if copy.is_none() {
        failures.push("synchronising copy");
    }
    assert!(failures.is_empty(), "not found as planted: {failures:?}");
}

/// Nanoseconds of the plant's cause that the ledger found between its kernels, and that were planted.
fn found(trace: &Trace, plant: &Plant) -> Result<(i64, i64), String> {
    let kernel = |label| {
        trace.operations.iter().find(|o| o.external == label).ok_or_else(|| format!("no kernel has label {label}"))
    };
    let (first, second) = (kernel(plant.before)?, kernel(plant.after)?);
    let options = ledger::Options::default();
    let ledger: Ledger =
        ledger::account(trace, first.device, first.start, second.end, &options).map_err(|e| e.to_string())?;
    let got = ledger.lines.iter().filter(|l| l.cause == Some(plant.cause)).map(|l| l.ns).sum();
    if got == 0 {
        let lines: Vec<_> = ledger.lines.iter().map(|l| format!("{} {} ns", l.name, l.ns)).collect();
        return Err(format!("not found; the ledger has {}", lines.join(", ")));
    }
    Ok((got, plant.to - plant.from.max(first.end)))
}

fn host_function(stream: &Stream, ended: &mut i64) {
    // SAFETY: a live stream; the callback only writes to `ended`, which outlives the synchronisation that follows.
    let status = unsafe { sys::cuLaunchHostFunc(stream.raw(), Some(dawdle), (&raw mut *ended).cast()) };
    check(status, || "a host function".into()).unwrap();
}

/// Copies 8 MiB to pageable host memory; how many bytes that is.
fn copy_back(_device: &Device) -> u64 {
    let bytes = 8 << 20;
    let mut host = vec![0u8; bytes];
    let mut address = 0;
    // SAFETY: as many bytes on both sides; freed after the copy, which is synchronous.
    unsafe {
        check(sys::cuMemAlloc_v2(&mut address, bytes), || "allocating".into()).unwrap();
        check(sys::cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), address, bytes), || "copying".into()).unwrap();
        check(sys::cuMemFree_v2(address), || "freeing".into()).unwrap();
    }
    bytes as u64
}
