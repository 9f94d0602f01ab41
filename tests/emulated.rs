//! Every emulated variant of every op, on the host emulator: edge shapes and random ones, three thread orders that must
//! agree bit for bit; and kernels that are wrong on purpose, which the emulator must catch.
//!
//! The libraries come from `cargo xtask emulate`. Without them the tests say so and pass, unless
//! `WORKBENCH_REQUIRE_EMULATED=1`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use workbench::error::Kind;
use workbench::kernels::OPS;
use workbench::op::{Arg, Chip, DType, Init, Launch};
use workbench::run::verify::{Limits, Outcome, shapes, sweep};
use workbench::run::{Emulator, Executor, emulate, fill};

fn required() -> bool {
    std::env::var("WORKBENCH_REQUIRE_EMULATED").is_ok_and(|v| v == "1")
}

fn emulator() -> Option<Emulator> {
    match Emulator::new(Chip::H200) {
        Ok(e) => Some(e),
        Err(e) if required() => panic!("{e}"),
        Err(e) => {
            eprintln!("SKIPPED: {e}");
            None
        }
    }
}

/// Every how many-th configuration is run: all of them, but one in three under AddressSanitizer, which takes five times as
/// long and looks for stray accesses, which neighbours in a table share.
fn stride() -> usize {
    let sanitized = std::env::var("WORKBENCH_EMULATED_DIR").is_ok_and(|dir| dir.ends_with("emulated-asan"));
    if sanitized { 3 } else { 1 }
}

/// Checks every emulated variant of an op; the seed is printed with each failure.
fn verify(name: &str) {
    let Some(mut executor) = emulator() else { return };
    let op = *OPS.iter().find(|o| o.name() == name).expect("a registered op");
    let seed = std::env::var("WORKBENCH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(2026);
    let (list, too_large) = shapes(op, true, 12, seed, Limits::EMULATOR);
    let mut failures = Vec::new();
    for variant in op.variants().iter().filter(|v| v.emulated) {
        if let Err(e) = executor.can_run(name, variant) {
            assert!(!required(), "{e}");
            eprintln!("SKIPPED {name}/{}: {e}", variant.name);
            continue;
        }
        let summary = sweep(&mut executor, op, variant, (&list, too_large), seed, |case| {
            if let Outcome::Wrong(why) = &case.outcome {
                failures.push(format!("{name}/{} {} (seed {seed}): {why}", variant.name, case.shape));
            }
        });
        let summary = summary.unwrap_or_else(|e| panic!("{name}/{}: {e}", variant.name));
        let (right, skipped) = (summary.right(), summary.skipped());
        eprintln!("{name}/{}: {right} right, {skipped} not taken, {too_large} too large", variant.name);
        assert!(right + summary.wrong() > 0, "{name}/{} takes none of {} shapes", variant.name, list.len());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The ops are dealt to four tests so that cores share them; a new op needs no line here.
macro_rules! quarters {
    ($($name:ident = $quarter:expr),*) => {
        $(#[test]
        fn $name() {
            OPS.iter().skip($quarter).step_by(4).for_each(|op| verify(op.name()));
        })*
    };
}
quarters!(ops_first = 0, ops_second = 1, ops_third = 2, ops_fourth = 3);

/// Every cut of swap_ab, on a chip of five SMs so that blocks have several tiles, with every tail.
#[test]
fn every_cut_of_swap_ab() {
    use workbench::kernels::matmul::tables::SwapAb;
    use workbench::op::Shape;
    use workbench::run::verify::check;
    let chip = Chip { sms: 5, ..Chip::H200 };
    let Ok(mut executor) = Emulator::new(chip) else { return assert!(!required()) };
    let op = workbench::kernels::op("matmul").unwrap();
    let variant = op.variants().iter().find(|v| v.name == "swap_ab").unwrap();
    if let Err(e) = executor.can_run("matmul", variant) {
        return assert!(!required(), "{e}");
    }
    // Digits of `SwapAb::numbered`: width, operands; then depth, blocks that share k, blocks that share x, blocks of an SM,
    // and turn, once, early.
    let kernels = [11, 12, 14, 21, 22, 24, 31, 32, 34, 41, 42, 44, 51, 52, 53, 54, 62];
    let clusters = [11110, 22120, 14110, 11212, 12214, 41111, 32210, 11416, 12410, 18110, 11817, 42134, 11150];
    let (mut right, mut narrow) = (0, 0);
    // The widest take the longest here, and are told apart by the first.
    let few = |kernel: usize| if kernel < 50 { clusters.len() } else { 5 };
    let cfgs = kernels.iter().flat_map(|&k| clusters.iter().take(few(k)).map(move |c| k * 100_000 + c));
    for cfg in cfgs.step_by(stride()) {
        let Some(cut) = SwapAb::numbered(cfg) else {
            narrow += 1;
            continue;
        };
        for (post, n, k) in
            [("none", 333, 72), ("residual", 104, 520), ("silu_mul", 176, 264), ("none,pre=rmsnorm", 96, 520)]
        {
            // One row fewer than the tile holds; for narrow tiles two tiles of rows.
            let m = if cut.m < 32 { 2 * cut.m - 3 } else { cut.m - 1 };
            let text = format!("m={m},n={n},k={k},dtype=bf16,post={post},cfg={cfg}");
            match check(&mut executor, op, variant, &Shape::parse(&text).unwrap(), 7).unwrap() {
                Outcome::Wrong(why) => panic!("{text}: {cut:?}: {why}"),
                Outcome::Skipped(why) => assert!(why.contains("to fit") || why.contains("fold"), "{text}: {why}"),
                _ => right += 1,
            }
        }
    }
    // Fewer than eight rows of x to a block are no cut; silu_mul is left out where there is one operand.
    assert!(narrow <= 40 && right >= 300 / stride(), "{right}, {narrow}");
}

/// Every tile of wgmma_cluster, on a chip of four SMs so that clusters have several, with tails of rows, columns and k.
#[test]
fn every_tile_of_wgmma_cluster() {
    use workbench::kernels::matmul::tables::WGMMA_CLUSTER;
    use workbench::op::Shape;
    use workbench::run::verify::check;
    let Ok(mut executor) = Emulator::new(Chip { sms: 4, ..Chip::H200 }) else { return assert!(!required()) };
    let op = workbench::kernels::op("matmul").unwrap();
    let variant = op.variants().iter().find(|v| v.name == "wgmma_cluster").unwrap();
    if let Err(e) = executor.can_run("matmul", variant) {
        return assert!(!required(), "{e}");
    }
    for cfg in (0..WGMMA_CLUSTER.len()).step_by(stride()) {
        for (post, m, n, k) in
            [("none", 300, 808, 72), ("none", 130, 333, 136), ("residual", 256, 104, 264), ("silu_mul", 131, 444, 72)]
        {
            let text = format!("m={m},n={n},k={k},dtype=bf16,post={post},cfg={cfg}");
            let outcome = check(&mut executor, op, variant, &Shape::parse(&text).unwrap(), 7).unwrap();
            if let Outcome::Wrong(why) | Outcome::Skipped(why) = outcome {
                panic!("{text}: {why}");
            }
        }
    }
}

/// Every configuration of the warpgroup product with 4-bit weights, on a chip of three SMs so that blocks begin and end inside
/// row blocks, with and without a whole one between; clusters whose blocks have uneven parts of k, or none.
#[test]
fn every_configuration_of_w4a16_wgmma() {
    use workbench::kernels::w4a16::launch_wgmma::SPLITS;
    use workbench::op::Shape;
    use workbench::run::verify::check;
    let chip = Chip { sms: 3, ..Chip::H200 };
    let Ok(mut executor) = Emulator::new(chip) else { return assert!(!required()) };
    let op = workbench::kernels::op("w4a16").unwrap();
    let variant = op.variants().iter().find(|v| v.name == "wgmma").unwrap();
    if let Err(e) = executor.can_run("w4a16", variant) {
        return assert!(!required(), "{e}");
    }
    for cfg in (0..SPLITS.len()).step_by(stride()) {
        for rest in [
            "m=8,n=1270,k=640,post=residual",
            "m=13,n=1100,k=384,pre=rmsnorm",
            "m=30,n=1000,k=1152,pre=rmsnorm,zeros=asym",
            "m=50,n=1000,k=416,group=32,dtype=f16,zeros=asym,post=residual,out=f32",
            "m=7,n=1600,k=384,pre=rmsnorm,post=silu_mul",
            "m=70,n=300,k=1000,group=0,pre=rmsnorm",
        ] {
            let text = format!("{rest},cfg={cfg}");
            match check(&mut executor, op, variant, &Shape::parse(&text).unwrap(), 7).unwrap() {
                Outcome::Wrong(why) => panic!("{text}: {why}"),
                Outcome::Skipped(why) => panic!("{text}: {why}"),
                _ => {}
            }
        }
    }
}

/// Every configuration of the matrix-vector kernel with 4-bit weights, on a chip of three SMs so that warps' runs end inside
/// tiles and cross them, with one chunk left over, few tiles and many.
#[test]
fn every_configuration_of_gemv_fixed() {
    use workbench::kernels::w4a16::launch_fixed::FIXED;
    use workbench::op::Shape;
    use workbench::run::verify::check;
    let chip = Chip { sms: 3, ..Chip::H200 };
    let Ok(mut executor) = Emulator::new(chip) else { return assert!(!required()) };
    let op = workbench::kernels::op("w4a16").unwrap();
    let variant = op.variants().iter().find(|v| v.name == "gemv_fixed").unwrap();
    if let Err(e) = executor.can_run("w4a16", variant) {
        return assert!(!required(), "{e}");
    }
    for cfg in (0..FIXED.len()).step_by(stride()) {
        for rest in [
            "m=1,n=200,k=640,post=residual",
            "m=2,n=64,k=2176,group=64,zeros=asym,pre=rmsnorm",
            "m=1,n=352,k=384,pre=rmsnorm,post=silu_mul",
            "m=5,n=300,k=416,group=32,dtype=f16,zeros=asym,post=residual,out=f32",
            "m=8,n=96,k=1000,group=0,pre=rmsnorm",
        ] {
            let text = format!("{rest},cfg={cfg}");
            match check(&mut executor, op, variant, &Shape::parse(&text).unwrap(), 7).unwrap() {
                Outcome::Wrong(why) => panic!("{text}: {why}"),
                Outcome::Skipped(why) => panic!("{text}: {why}"),
                _ => {}
            }
        }
    }
}

/// The device's fills and the host's are one definition: every element the same bits.
#[test]
fn fills_are_the_same_on_host_and_device() {
    let Some(mut e) = emulator() else { return };
    let (len, key) = (1000u64, fill::key(7, "x"));
    for dtype in [DType::F32, DType::Bf16, DType::F16, DType::E4m3] {
        for (kind, init) in [(0, Init::Normal { std: 1.7 }), (1, Init::Uniform { lo: -3.0, hi: 5.0 })] {
            let (a, b) = match init {
                Init::Normal { std } => (std / fill::SUM_STD, 0.0),
                _ => (-3.0, 5.0),
            };
            let out = e.alloc(len * dtype.size()).unwrap();
            let launch = Launch::new("common/fill", format!("fill_{}", dtype.name()), [3, 1, 1], [256, 1, 1]);
            let launch = launch.ptr(out).i64(len as i64).arg(Arg::U64(key)).i32(kind).f32(a).f32(b);
            if let Err(why) = e.launch(&[launch]) {
                assert!(!required(), "{why}");
                eprintln!("SKIPPED: {why}");
                return;
            }
            let mut got = vec![0; (len * dtype.size()) as usize];
            e.read(out, &mut got).unwrap();
            assert_eq!(got, fill::bytes(&init, dtype, key, 0, len).unwrap(), "{init:?} {dtype:?}");
            e.free(out).unwrap();
        }
    }
}

/// The deliberately wrong kernels, compiled once, with the same compiler and flags as the others.
fn faulty() -> Option<Emulator> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(compile_faulty).clone()?;
    Some(Emulator::with_folder(Chip::H200, folder).expect("the folder was just made"))
}

fn compile_faulty() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faulty");
    std::fs::create_dir_all(&folder).expect("a folder for the faulty kernels");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
    let flags = "-x c++ -std=c++17 -O1 -g1 -fPIC -shared -fno-strict-aliasing -DWB_EMULATE -w";
    let mut command = Command::new(&compiler);
    command.args(flags.split(' '));
    if emulate::folder().ends_with("emulated-asan") {
        command.arg("-fsanitize=address");
    }
    // The compiler must not run under a sanitizer's runtime that is meant for this test.
    command.env_remove("LD_PRELOAD").arg("-o").arg(folder.join("faulty_kernels.so"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator/faulty.cu"));
    let output = match command.output() {
        Ok(output) => output,
        Err(e) if required() => panic!("cannot run {compiler}: {e}"),
        Err(e) => {
            eprintln!("SKIPPED: cannot run {compiler}: {e}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(folder)
}

const N: u64 = 256;

/// Runs a faulty kernel in every thread order: `Ok(output)` or what the emulator says.
fn run(executor: &mut Emulator, entry: &str) -> Vec<Result<Vec<u8>, String>> {
    let (x, out) = (executor.alloc(N * 4).unwrap(), executor.alloc(N * 4).unwrap());
    let values: Vec<u8> = (0..N).flat_map(|i| (i as f32).to_le_bytes()).collect();
    executor.write(x, &values).unwrap();
    let launch = Launch::new("faulty/kernels", entry, [2, 1, 1], [128, 1, 1]).shared(512).ptr(x).ptr(out).i32(N as i64);
    let mut results = Vec::new();
    for schedule in 0..executor.schedules() {
        executor.set_schedule(schedule);
        executor.fill(out, DType::F32, N, &Init::Poison, 0).unwrap();
        results.push(
            executor
                .launch(std::slice::from_ref(&launch))
                .map_err(|e| {
                    assert_eq!(e.kind, Kind::Check, "{e}");
                    e.what
                })
                .map(|()| {
                    let mut bytes = vec![0; (N * 4) as usize];
                    executor.read(out, &mut bytes).unwrap();
                    bytes
                }),
        );
    }
    executor.free(x).unwrap();
    executor.free(out).unwrap();
    results
}

#[test]
fn a_right_kernel_passes() {
    let Some(mut e) = faulty() else { return };
    let results = run(&mut e, "right");
    let want: Vec<u8> = (0..N).flat_map(|i| ((i ^ 127) as f32).to_le_bytes()).collect();
    for r in results {
        assert_eq!(r.as_ref(), Ok(&want));
    }
}

#[test]
fn a_missing_barrier_makes_the_orders_disagree() {
    let Some(mut e) = faulty() else { return };
    let results: Vec<_> = run(&mut e, "racy").into_iter().map(|r| r.expect("a race is no crash")).collect();
    assert!(results[0] != results[1] || results[0] != results[2], "three orders hid the race");
}

#[test]
fn a_missing_wait_for_a_copy_shows() {
    let Some(mut e) = faulty() else { return };
    let want: Vec<u8> = (0..N).flat_map(|i| (i as f32).to_le_bytes()).collect();
    for r in run(&mut e, "unwaited") {
        assert_ne!(r.expect("a stale read is no crash"), want);
    }
}

#[test]
fn a_stray_write_is_caught() {
    if emulate::folder().ends_with("emulated-asan") {
        return; // AddressSanitizer ends the process, which is its way of catching it.
    }
    let Some(mut e) = faulty() else { return };
    for entry in ["writes_behind", "writes_before", "writes_past_shared"] {
        for r in run(&mut e, entry) {
            let why = r.expect_err(entry);
            // 1024 bytes end at the guard page, which sees the store itself; the patterns around arrays see the others.
            assert!(why.contains("wrote") || why.contains("outside every array"), "{entry}: {why}");
        }
    }
    for r in run(&mut e, "reads_far") {
        let why = r.expect_err("reads_far");
        assert!(why.contains("outside every array"), "{why}");
    }
}

#[test]
fn what_hardware_would_hang_on_is_an_error() {
    let Some(mut e) = faulty() else { return };
    for (entry, words) in [
        ("divergent_barrier", "__syncthreads"),
        ("lost_barrier", "64 for a named barrier at"),
        ("half_warp_shuffle", "deadlock"),
        ("half_warp_fence", "for wgmma.fence"),
        ("lost_arrival", "128 for an mbarrier that lacks 1 of 5 arrivals and 0 bytes"),
        ("mixed_collectives", "different collectives"),
        ("misaligned", "not a multiple of 16"),
    ] {
        for r in run(&mut e, entry) {
            let why = r.expect_err(entry);
            assert!(why.contains(words), "{entry}: {why}");
        }
    }
}

#[test]
fn wrong_launches_are_refused() {
    let Some(mut e) = faulty() else { return };
    let x = e.alloc(N * 4).unwrap();
    let good = Launch::new("faulty/kernels", "right", [2, 1, 1], [128, 1, 1]).shared(512).ptr(x).ptr(x).i32(N as i64);
    let mut wide = good.clone();
    wide.block = [2048, 1, 1];
    let mut fewer = good.clone();
    fewer.args.pop();
    let typed = fewer.clone().i64(N as i64);
    let mut nameless = good.clone();
    nameless.entry = "nobody".into();
    let many = good.clone().shared(300_000);
    for (launch, words) in [
        (wide, "2048 threads"),
        (fewer, "takes 3 arguments"),
        (typed, "8 bytes, the kernel takes 4"),
        (nameless, "no kernel `nobody`"),
        (many, "300000 bytes of shared memory"),
    ] {
        let why = e.launch(&[launch]).expect_err(words).to_string();
        assert!(why.contains(words), "{why}");
    }
}
