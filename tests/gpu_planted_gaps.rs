//! The test that causes are true: a program with gaps that we made, of a kind and size that we know, traced and accounted.
//! Each planted cause must be found, with its size within 5 % (or 20 µs, for what the host's scheduler adds). What the
//! profiler says that it took itself in between is on lines of its own, and was not planted.
//!
//! Without a GPU it says so and passes.

use cudarc::driver::sys;
use std::ffi::c_void;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use workbench::launch::driver::check;
use workbench::launch::{Device, Memory, Stream};
use workbench::profile::ledger::{self, Cause, Ledger, Line, LineKind};
use workbench::profile::probe::Spin;
use workbench::profile::session::{Options, Session};
use workbench::profile::trace::Trace;

/// About 20 µs on a GPU of today.
const KERNEL: u64 = 35_000;
/// About 200 µs: longer than the host needs for the calls that follow.
const LONG: u64 = 10 * KERNEL;
/// Of PTX that any GPU since Volta compiles.
const HEADER: &str = ".version 7.0\n.target sm_70\n.address_size 64\n";

/// What was planted between two labelled kernels.
struct Plant {
    name: &'static str,
    /// The lines that hold it.
    counts: fn(&Line) -> bool,
    /// Labels of the kernels before and after.
    before: u64,
    after: u64,
    /// Host time at which the cause began and ended; it counts from the end of the kernel before, if that is later.
    /// Where `from` is the least integer, `to` is the size.
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
    let launch_for = |stream: &Stream, label: u64, cycles: u64| {
        let _label = session.label(label);
        kernel.launch(stream, cycles).unwrap();
    };
    let launch = |stream: &Stream, label: u64| launch_for(stream, label, KERNEL);
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
        plants.push(Plant { name, counts: |l| l.cause == Some(Cause::HostCode), before, after: before + 1, from, to });
    }

    // The host waits in a synchronising call for something that is no device work. The first host function of a process
    // makes the driver's thread for it, so one is run in vain; and the kernel is long enough for the host to be waiting by
    // its end.
    let mut ended = Box::new(0i64);
    host_function(&a, &mut ended);
    settle();
    launch_for(&a, 11, LONG);
    host_function(&a, &mut ended);
    let from = now();
    a.synchronize(|| "the planted wait".into()).unwrap();
    launch(&a, 12);
    plants.push(Plant {
        name: "blocked in a synchronising call",
        counts: |l| l.cause == Some(Cause::HostBlockedInSync),
        before: 11,
        after: 12,
        from,
        to: *ended,
    });

    // Another stream waits for an event that comes late; its kernel was launched long before.
    settle();
    let mut ended = Box::new(0i64);
    let mut event = std::ptr::null_mut();
    // SAFETY: valid out pointer; the event is destroyed below.
    check(unsafe { sys::cuEventCreate(&mut event, 0) }, || "an event".into()).unwrap();
    launch_for(&a, 21, LONG);
    host_function(&a, &mut ended);
    // SAFETY: live event and streams.
    unsafe {
        check(sys::cuEventRecord(event, a.raw()), || "recording".into()).unwrap();
        check(sys::cuStreamWaitEvent(b.raw(), event, 0), || "waiting".into()).unwrap();
    }
    launch(&b, 22);
    let from = now();
    device.synchronize(|| "the planted event".into()).unwrap();
    // SAFETY: made above; nothing waits for it any more.
    unsafe { check(sys::cuEventDestroy_v2(event), || "destroying".into()).unwrap() };
    plants.push(Plant {
        name: "event wait",
        counts: |l| l.cause == Some(Cause::EventWait),
        before: 21,
        after: 22,
        from,
        to: *ended,
    });

    // The host loads a module, which the driver has to compile, for no cache has seen it.
    settle();
    let ptx = format!("{HEADER}.visible .entry planted_{}()\n{{\n    ret;\n}}\n\0", now());
    let mut second = std::ptr::null_mut();
    launch(&a, 31);
    let from = now();
    // SAFETY: NUL-terminated PTX; valid out pointer. Unloaded below.
    let loaded = unsafe { sys::cuModuleLoadData(&mut second, ptx.as_ptr().cast()) };
    let to = now();
    check(loaded, || "loading a module".into()).unwrap();
    launch(&a, 32);
    plants.push(Plant {
        name: "module load",
        counts: |l| matches!(l.cause, Some(Cause::HostInApi | Cause::Driver)),
        before: 31,
        after: 32,
        from,
        to,
    });

    // A copy to pageable memory, which the host waits for: the copy itself, and the call around it.
    let bytes = 8 << 20;
    let memory = Memory::new(&device, bytes).unwrap();
    let mut host = vec![0u8; bytes as usize];
    settle();
    launch(&a, 41);
    let from = now();
    memory.read(0, &mut host).unwrap();
    let to = now();
    launch(&a, 42);
    plants.push(Plant {
        name: "synchronising copy",
        counts: |l| l.kind == LineKind::Memcpy || matches!(l.cause, Some(Cause::LaunchCall | Cause::HostBlockedInSync)),
        before: 41,
        after: 42,
        from,
        to,
    });

    // A kernel that is let in before the one ahead of it has ended.
    if device.chip().sm >= 90 {
        let pair = Pair::load(&device);
        // Once in vain: the driver loads a function at its first launch, and the second kernel would come too late.
        pair.launch(&session, &a, 61, 62);
        settle();
        let (early, late) = pair.launch(&session, &a, 51, 52);
        plants.push(Plant {
            name: "programmatic overlap",
            counts: |l| l.kind == LineKind::Overlap,
            before: 51,
            after: 52,
            from: i64::MIN,
            to: late - early,
        });
    }
    settle();
    // SAFETY: loaded above, never launched.
    unsafe { check(sys::cuModuleUnload(second), || "unloading a module".into()).unwrap() };
    let captured = session.finish().unwrap();
    let trace = &captured.recording.trace;
    assert_eq!(captured.dropped, 0);

    let mut failures = Vec::new();
    for plant in &plants {
        match found(trace, plant) {
            Ok((got, want, lines)) => {
                let error = (got - want).abs();
                let ok = error <= (want / 20).max(20_000);
                println!(
                    "{:32} planted {:>9} ns, found {:>9} ns  {}",
                    plant.name,
                    want,
                    got,
                    if ok { "ok" } else { "NO" }
                );
                println!("    {lines}");
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
    assert!(failures.is_empty(), "not found as planted: {failures:?}");
}

/// Nanoseconds of the plant's cause that the ledger found between its kernels, nanoseconds that were planted, and the ledger
/// in a line.
fn found(trace: &Trace, plant: &Plant) -> Result<(i64, i64, String), String> {
    let kernel = |label| {
        trace.operations.iter().find(|o| o.external == label).ok_or_else(|| format!("no kernel has label {label}"))
    };
    let (first, second) = (kernel(plant.before)?, kernel(plant.after)?);
    let options = ledger::Options::default();
    let ledger: Ledger =
        ledger::account(trace, first.device, first.start, second.end, &options).map_err(|e| e.to_string())?;
    let sum = |of: &dyn Fn(&Line) -> bool| ledger.lines.iter().filter(|l| of(l)).map(|l| l.ns).sum::<i64>();
    let got = sum(&plant.counts);
    let lines: Vec<_> = ledger.lines.iter().map(|l| format!("{} {} ns", l.name, l.ns)).collect();
    let lines = lines.join(", ");
    if got == 0 {
        return Err(format!("not found; the ledger has {lines}"));
    }
    let want = match plant.from {
        i64::MIN => plant.to,
        from => plant.to - from.max(first.end) - sum(&|l| l.cause == Some(Cause::Profiler)),
    };
    Ok((got, want, lines))
}

fn host_function(stream: &Stream, ended: &mut i64) {
    // SAFETY: a live stream; the callback only writes to `ended`, which outlives the synchronisation that follows.
    let status = unsafe { sys::cuLaunchHostFunc(stream.raw(), Some(dawdle), (&raw mut *ended).cast()) };
    check(status, || "a host function".into()).unwrap();
}

/// Two kernels of one thread: the first lets its successor in at once and runs on, the second begins before it may wait.
/// Each notes the GPU's own clock, the first at its end, the second at its start.
const PAIR: &str = "
.version 7.8
.target sm_90
.address_size 64
.visible .entry planted_early(.param .u64 cycles, .param .u64 out)
{
    .reg .pred %p;
    .reg .b64 %r<7>;
    griddepcontrol.launch_dependents;
    ld.param.u64 %r1, [cycles];
    ld.param.u64 %r5, [out];
    mov.u64 %r2, %clock64;
LOOP:
    mov.u64 %r3, %clock64;
    sub.u64 %r4, %r3, %r2;
    setp.lt.u64 %p, %r4, %r1;
    @%p bra LOOP;
    mov.u64 %r6, %globaltimer;
    st.global.u64 [%r5], %r6;
    ret;
}
.visible .entry planted_late(.param .u64 cycles, .param .u64 out)
{
    .reg .pred %p;
    .reg .b64 %r<7>;
    mov.u64 %r6, %globaltimer;
    ld.param.u64 %r1, [cycles];
    ld.param.u64 %r5, [out];
    st.global.u64 [%r5+8], %r6;
    griddepcontrol.wait;
    mov.u64 %r2, %clock64;
LOOP:
    mov.u64 %r3, %clock64;
    sub.u64 %r4, %r3, %r2;
    setp.lt.u64 %p, %r4, %r1;
    @%p bra LOOP;
    ret;
}
\0";

struct Pair {
    module: sys::CUmodule,
    functions: [sys::CUfunction; 2],
    out: Memory,
}

impl Pair {
    fn load(device: &Device) -> Self {
        let (mut module, mut functions) = (std::ptr::null_mut(), [std::ptr::null_mut(); 2]);
        // SAFETY: NUL-terminated PTX and names; valid out pointers.
        unsafe {
            check(sys::cuModuleLoadData(&mut module, PAIR.as_ptr().cast()), || "loading two kernels".into()).unwrap();
            for (f, name) in functions.iter_mut().zip([c"planted_early", c"planted_late"]) {
                check(sys::cuModuleGetFunction(f, module, name.as_ptr()), || "finding a kernel".into()).unwrap();
            }
        }
        Self { module, functions, out: Memory::new(device, 16).unwrap() }
    }

    /// Launches both, the second with a programmatic edge, and waits. The GPU's clock, ns, when the second had begun and
    /// when the first ended.
    fn launch(&self, session: &Session, stream: &Stream, first: u64, second: u64) -> (i64, i64) {
        // SAFETY: plain bytes; the union's other members stay zero.
        let mut edge: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
        edge.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        edge.value.programmaticStreamSerializationAllowed = 1;
        let (mut cycles, mut out) = (10 * KERNEL, self.out.address());
        let mut args = [(&raw mut cycles).cast::<c_void>(), (&raw mut out).cast()];
        for (i, label) in [first, second].into_iter().enumerate() {
            let _label = session.label(label);
            let config = sys::CUlaunchConfig {
                gridDimX: 1,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: 1,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: stream.raw(),
                attrs: &raw mut edge,
                numAttrs: i as u32,
            };
            // SAFETY: live functions of two 64-bit arguments, which the driver copies before it returns.
            let status =
                unsafe { sys::cuLaunchKernelEx(&config, self.functions[i], args.as_mut_ptr(), std::ptr::null_mut()) };
            check(status, || "launching two kernels".into()).unwrap();
        }
        stream.synchronize(|| "two kernels".into()).unwrap();
        let mut words = [0u8; 16];
        self.out.read(0, &mut words).unwrap();
        let word = |i: usize| i64::from_le_bytes(words[i..i + 8].try_into().unwrap());
        (word(8), word(0))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: loaded in `load`; its kernels have ended.
        unsafe {
            let _ = sys::cuModuleUnload(self.module);
        }
    }
}
