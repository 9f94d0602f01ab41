//! Small files of every kind that the importers meet, sound, cut and hostile, in `fuzz/corpus`: seeds of the fuzzers, and
//! each is read here by every importer. Nothing may panic or hang, and every ledger that comes of them closes, whole and
//! in halves.
//!
//! The files are made here; `WORKBENCH_WRITE_CORPUS=1 cargo test --test corpus` writes them anew. What a fuzzer adds is
//! kept beside them under its hash.

use std::io::{Cursor, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use workbench::profile::export::perfetto;
use workbench::profile::ledger::{Accountant, Options};
use workbench::profile::steps::{self, Selector};
use workbench::profile::trace::{Names, Trace};
use workbench::profile::{defects, import, native, synth};

/// No file of the corpus is larger.
const LARGEST: u64 = 80 << 10;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

/// Names and contents.
type Files = Vec<(&'static str, Vec<u8>)>;

/// Two kernels, a copy and a graph of two nodes as PyTorch 2.x writes them.
const EVENTS: &str = r#"
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 9, "tid": 9, "ts": 100.000, "dur": 90.000, "args": {}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 101.250, "dur": 4.125, "args": {"External id": 1, "correlation": 11}},
  {"ph": "X", "cat": "kernel", "name": "void gemm<float, 4>(float const*, float*)", "pid": 0, "tid": 7, "ts": 108.001, "dur": 10.999, "args": {"device": 0, "context": 1, "stream": 7, "correlation": 11, "grid": [4, 1, 1], "block": [128, 1, 1], "registers per thread": 64}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 9, "tid": 9, "ts": 107.000, "dur": 2.000, "args": {"correlation": 12}},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": 0, "tid": 7, "ts": 120.500, "dur": 1.250, "args": {"device": 0, "stream": 7, "correlation": 12, "bytes": 4096}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 9, "tid": 9, "ts": 110.000, "dur": 12.500, "args": {"correlation": 13}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 9, "tid": 9, "ts": 130.000, "dur": 8.000, "args": {"correlation": 14}},
  {"ph": "X", "cat": "kernel", "name": "node_a", "pid": 0, "tid": 7, "ts": 141.000, "dur": 3.000, "args": {"device": 0, "stream": 7, "correlation": 14, "graph id": 3, "graph node id": 12884901889}},
  {"ph": "X", "cat": "kernel", "name": "node_b", "pid": 0, "tid": 7, "ts": 144.700, "dur": 3.300, "args": {"device": 0, "stream": 7, "correlation": 14, "graph id": 3, "graph node id": 12884901890}},
  {"ph": "s", "id": 11, "pid": 9, "tid": 9, "ts": 101.250, "cat": "ac2g", "name": "ac2g"}
"#;

fn whole(events: &str) -> String {
    format!(
        "{{\"schemaVersion\": 1, \"deviceProperties\": [{{\"id\": 0, \"name\": \"Card\", \"computeMajor\": 9, \"computeMinor\": 0, \
         \"numSms\": 132}}], \"baseTimeNanoseconds\": 1700000000000000000, \"traceEvents\": [{events}]}}"
    )
}

fn chrome() -> Files {
    let sound = whole(EVENTS);
    let mut decode = Vec::new();
    synth::kineto(2, 1, 1, &mut decode).unwrap();
    let replaced = |a: &str, b: &str| {
        assert!(EVENTS.contains(a), "{a}");
        whole(&EVENTS.replacen(a, b, 1)).into_bytes()
    };
    let mut bad_utf8 = sound.clone().into_bytes();
    let at = sound.find("gemm").unwrap();
    bad_utf8[at..at + 2].copy_from_slice(&[0xff, 0xc0]);
    let base_last = format!("{{\"traceEvents\": [{EVENTS}], \"baseTimeNanoseconds\": 1700000000000000000}}");
    let nested = format!("{{\"traceEvents\": [{{\"args\": {}", "[".repeat(20_000));
    let quoted = EVENTS.replace("\"ts\": 108.001, \"dur\": 10.999", "\"ts\": \"108.001\", \"dur\": \"10.999\"");
    let quoted = quoted.replace("\"correlation\": 11", "\"correlation\": \"11\"");
    let old = r#"[
{"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": "9", "ts": 1000001, "dur": 5, "args": {"correlation": 1}},
{"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": "stream 7", "ts": 1000010, "dur": 3, "args": {"device": 0, "stream": 7, "correlation": 1}},
{"ph": "X", "cat": "Memset", "name": "Memset (Device)", "pid": 0, "tid": "stream 7", "ts": 1000020, "dur": 0, "args": {"device": 0, "stream": 7, "correlation": 2}}
"#;
    vec![
        ("sound_new_schema.json", sound.clone().into_bytes()),
        ("sound_decode.json", decode),
        ("sound_old_schema_open_array.json", old.into()),
        ("sound_base_after_events.json", base_last.into()),
        ("sound_numbers_as_text.json", whole(&quoted).into()),
        ("sound_empty.json", whole("").into()),
        ("sound_byte_order_mark.json", [b"\xef\xbb\xbf".as_slice(), sound.as_bytes()].concat()),
        ("cut_in_a_string.json", sound.as_bytes()[..sound.find("node_b").unwrap() + 3].to_vec()),
        ("cut_in_a_number.json", sound.as_bytes()[..sound.find("144.700").unwrap() + 4].to_vec()),
        ("cut_after_a_comma.json", sound.as_bytes()[..sound.find("{\"ph\": \"s\"").unwrap()].to_vec()),
        ("hostile_unescaped_quotes.json", replaced("void gemm<float, 4>", "void \"gemm\"<float, \"4\">")),
        (
            "hostile_bare_inf_nan.json",
            replaced("\"registers per thread\": 64", "\"a\": inf, \"b\": -nan, \"c\": Infinity"),
        ),
        ("hostile_invalid_utf8.json", bad_utf8),
        ("hostile_negative_duration.json", replaced("\"dur\": 10.999", "\"dur\": -10.999")),
        (
            "hostile_end_of_the_clock.json",
            replaced("\"ts\": 108.001, \"dur\": 10.999", "\"ts\": 9223372036854775.807, \"dur\": 9e18"),
        ),
        (
            "hostile_huge_numbers.json",
            replaced(
                "\"correlation\": 12, \"bytes\": 4096",
                "\"correlation\": 99999999999999999999999, \"bytes\": 1e400",
            ),
        ),
        ("hostile_kernel_before_launch.json", replaced("\"ts\": 108.001", "\"ts\": 8.001")),
        ("hostile_no_times.json", replaced("\"ts\": 108.001, \"dur\": 10.999", "\"ts\": 0, \"dur\": 0")),
        ("hostile_twice.json", whole(&format!("{EVENTS}, {EVENTS}")).into()),
        ("hostile_deep.json", nested.into()),
        ("hostile_brackets.json", "[{".repeat(5_000).into()),
        ("hostile_no_separators.json", format!("{{\"traceEvents\": [{}", "{\"ph\": \"X\" ".repeat(800)).into()),
        ("hostile_escapes.json", replaced("void gemm<float, 4>", "\\u0000\\ud800\\\"\\q<!-- </script>")),
        (
            "hostile_devices.json",
            b"{\"deviceProperties\": [{\"id\": -1}, 7, null, {\"id\": 1e99, \"name\": 3}], \"traceEvents\": [".to_vec(),
        ),
        ("hostile_nothing.json", b"{".to_vec()),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn compressed() -> Files {
    let sound = whole(EVENTS).into_bytes();
    let gz = gzip(&sound);
    let mut flipped = gz.clone();
    flipped[gz.len() / 2] ^= 0x10;
    let zst = ruzstd::encoding::compress_to_vec(sound.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    // Sixteen MiB of white space in sixteen KiB.
    let bomb = gzip(&[b"{\"traceEvents\": [".to_vec(), vec![b' '; 16 << 20]].concat());
    vec![
        ("sound_gzip.json.gz", gz.clone()),
        ("sound_gzip_twice.json.gz", gzip(&gz)),
        ("sound_zstd.json.zst", zst.clone()),
        ("cut_gzip.json.gz", gz[..gz.len() * 2 / 3].to_vec()),
        ("cut_zstd.json.zst", zst[..zst.len() * 2 / 3].to_vec()),
        ("hostile_gzip_flipped.json.gz", flipped),
        ("hostile_gzip_bomb.json.gz", bomb),
        ("hostile_gzip_header.json.gz", gz[..10].to_vec()),
    ]
}

fn tables() -> Files {
    let details = "==PROF== Connected to process 7\n\
        \"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\",\"Rule Name\",\"Rule Type\",\"Rule Description\",\"Estimated Speedup\"\n\
        \"0\",\"7\",\"a.out\",\"127.0.0.1\",\"gemm\",\"1\",\"7\",\"(128, 1, 1)\",\"(4, 1, 1)\",\"0\",\"9.0\",\"GPU Speed Of Light Throughput\",\"DRAM Throughput\",\"%\",\"61.84\",\n\
        \"0\",\"7\",\"a.out\",\"127.0.0.1\",\"gemm\",\"1\",\"7\",\"(128, 1, 1)\",\"(4, 1, 1)\",\"0\",\"9.0\",\"GPU Speed Of Light Throughput\",\"Duration\",\"us\",\"21,058.94\",\n\
        \"0\",\"7\",\"a.out\",\"127.0.0.1\",\"gemm\",\"1\",\"7\",\"(128, 1, 1)\",\"(4, 1, 1)\",\"0\",\"9.0\",\"SpeedOfLight\",\"\",\"\",\"\",\"SOLBottleneck\",\"OPT\",\"Memory, say the tables.\",\"38.2\"\n";
    let raw = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"dram__bytes_read.sum\",\"gpu__time_duration.sum\"\n\
        \"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"Mbyte\",\"usecond\"\n\
        \"0\",\"7\",\"a.out\",\"127.0.0.1\",\"gemm\",\"1\",\"7\",\"(128, 1, 1)\",\"(4, 1, 1)\",\"0\",\"9.0\",\"1.234,56\",\"10,24\"\n\
        \"1\",\"7\",\"a.out\",\"127.0.0.1\",\"gemm\",\"1\",\"7\",\"(128, 1, 1)\",\"(4, 1, 1)\",\"0\",\"9.0\",\"n/a\",\"11,5\"\n";
    vec![
        ("sound_details.csv", details.into()),
        ("sound_raw_decimal_comma.csv", raw.into()),
        ("cut_details.csv", details.as_bytes()[..details.len() - 140].to_vec()),
        ("cut_in_the_header.csv", details.as_bytes()[..150].to_vec()),
        ("hostile_open_quote.csv", details.replace("\"61.84\"", "\"61.84").into()),
        ("hostile_numbers.csv", details.replace("61.84", "1e999").replace("21,058.94", ",,,.,.-").into()),
        ("hostile_no_columns.csv", "\"ID\",\"Kernel Name\"\n\"0\"\n,,,,,,,,,\n\"\n".into()),
        ("hostile_nul_bytes.csv", details.replace("gemm", "g\0\0m").into()),
    ]
}

/// Tables of Nsight Systems, in the least that is one.
const NSYS: &str = "PRAGMA page_size = 512;
    CREATE TABLE StringIds (id INTEGER, value TEXT);
    INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'void k<int>(int*)'), (4, 'cudaStreamSynchronize_v3020');
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (500, 700, 281475144482827, 5, 1), (2100, 4400, 281475144482827, 6, 4);";
const NSYS_KERNELS: &str = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 2000, 0, 7, 5, 281475144482816, 2), (5000, 6000, 0, 7, 8, 281475144482816, 2);";

fn databases() -> Files {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("x.sqlite");
    let make = |sql: &str| {
        let _ = std::fs::remove_file(&path);
        rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        std::fs::read(&path).unwrap()
    };
    let sound = make(&format!("{NSYS}{NSYS_KERNELS}"));
    let mut torn = sound.clone();
    let last = torn.len() - 512;
    torn[last..].iter_mut().step_by(3).for_each(|b| *b ^= 0xa5);
    let types = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, demangledName);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('x', x'00ff', 1e300, NULL, -1, 'p', 99), (-9223372036854775808, 9223372036854775807, -1, -1, -1, -1, -1);";
    let endless = "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
        SELECT i AS start, i + 1 AS end, 0 AS deviceId, 7 AS streamId, i AS correlationId, 0 AS globalPid, 2 AS demangledName FROM n;";
    vec![
        ("sound_nsys.sqlite", sound.clone()),
        ("sound_no_kernels.sqlite", make(NSYS)),
        ("cut_nsys.sqlite", sound[..sound.len() - 700].to_vec()),
        ("cut_header.sqlite", sound[..100].to_vec()),
        ("hostile_torn_page.sqlite", torn),
        ("hostile_types.sqlite", make(&format!("{NSYS}{types}"))),
        ("hostile_endless_view.sqlite", make(&format!("{NSYS}{endless}"))),
        ("hostile_no_strings.sqlite", make("CREATE TABLE t (x);")),
    ]
}

/// A recording of our own: two kernels in three calls.
fn recording() -> Vec<u8> {
    use wbtrace::{Call, Operation, Record, Writer};
    let mut w = Writer::new(Vec::new()).unwrap();
    let process = Record::Process { pid: 9, parent: 1, command: "made by tests/corpus.rs".into() };
    let device = Record::Device { id: 0, sm: 90, sms: 132, name: "Card".into(), uuid: "00".into() };
    let clock = Record::Clock { capture: 1_000, realtime: 1_000, monotonic: 10 };
    [process, device, clock].iter().for_each(|r| w.record(r).unwrap());
    let (launch, wait, kernel) =
        (w.name("cudaLaunchKernel").unwrap(), w.name("cudaDeviceSynchronize").unwrap(), w.name("_Z1kPf").unwrap());
    for (i, at) in [2_000u64, 9_000].into_iter().enumerate() {
        let correlation = i as u32 + 1;
        let call = Call { name: launch, thread: 9, start: at, end: at + 500, correlation, ..Call::default() };
        w.record(&Record::Call(call)).unwrap();
        w.operation(&Operation {
            name: kernel,
            stream: 7,
            start: at + 900,
            end: at + 2_900,
            correlation,
            grid: [4, 1, 1],
            block: [128, 1, 1],
            ..Operation::default()
        })
        .unwrap();
    }
    // What follows is in a chunk of its own, so that a cut loses that alone.
    w.flush().unwrap();
    let sync = Call { name: wait, thread: 9, start: 3_000, end: 5_000, correlation: 3, ..Call::default() };
    w.record(&Record::Call(sync)).unwrap();
    w.record(&Record::End { time: 13_000 }).unwrap();
    w.into_inner().unwrap()
}

fn recordings() -> Files {
    let sound = recording();
    let mut flipped = sound.clone();
    let middle = sound.len() / 2;
    flipped[middle] ^= 1;
    let mut long = sound[..16].to_vec();
    long.extend_from_slice(&[0xff; 64]);
    vec![
        ("sound_recording.wbt", sound.clone()),
        ("sound_two_in_one.wbt", [sound.clone(), sound.clone()].concat()),
        ("cut_recording.wbt", sound[..sound.len() - 7].to_vec()),
        ("cut_header.wbt", sound[..9].to_vec()),
        ("hostile_flipped.wbt", flipped),
        ("hostile_lengths.wbt", long),
    ]
}

/// Folder, and the files that belong there.
fn made() -> Vec<(&'static str, Files)> {
    vec![
        ("kineto", chrome()),
        ("load", compressed()),
        ("ncu", tables()),
        ("nsys", databases()),
        ("native", recordings()),
    ]
}

/// Texts must be what is made here; compressed files and databases change with the libraries that write them.
#[test]
fn the_corpus_is_what_it_is_made_of() {
    let write = std::env::var_os("WORKBENCH_WRITE_CORPUS").is_some();
    for (kind, files) in made() {
        std::fs::create_dir_all(folder().join(kind)).unwrap();
        for (name, bytes) in files {
            let path = folder().join(kind).join(name);
            if write {
                std::fs::write(&path, &bytes).unwrap();
            }
            let have = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let text = ["kineto", "ncu", "native"].contains(&kind);
            assert!(!text || have == bytes, "{kind}/{name} is not what it is made of; WORKBENCH_WRITE_CORPUS=1");
        }
    }
}

/// Profilers write events buffer by buffer and thread by thread: no order may be relied upon.
#[test]
fn the_order_of_events_in_a_file_does_not_matter() {
    let mut text = Vec::new();
    synth::kineto(4, 3, 1, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let (head, rest) = text.split_once("[\n").map(|(h, r)| (format!("{h}[\n"), r)).unwrap();
    let (body, tail) = rest.rsplit_once("\n]").unwrap();
    let mut events: Vec<&str> = body.split(",\n").collect();
    let lines = |text: String| {
        let trace = import::kineto::read(Box::new(Cursor::new(text.into_bytes()))).unwrap();
        assert!(trace.defects.is_empty(), "{:?}", trace.defects);
        let options = Options::default();
        let a = Accountant::new(&trace, 0, &options);
        let (t0, t1) = a.span().unwrap();
        let ledger = a.window(t0, t1).unwrap();
        let found = steps::find(&trace, &a, &Selector::Profiler).unwrap();
        let windows: Vec<_> = found.windows.iter().map(|w| (w.name.clone(), w.ns())).collect();
        (ledger.lines.iter().map(|l| (l.kind, l.name.clone(), l.count, l.ns)).collect::<Vec<_>>(), windows)
    };
    let whole = lines(text.clone());
    assert_eq!((events.len(), whole.1.len()), (4 + 60 * 6, 4));
    let mut rng = workbench::op::Rng(7);
    for _ in 0..20 {
        for i in (1..events.len()).rev() {
            events.swap(i, rng.range(0, i as u64) as usize);
        }
        assert_eq!(lines(format!("{head}{}\n]{tail}", events.join(",\n"))), whole);
    }
}

/// Everything below the corpus, with the path from there.
fn corpus() -> Vec<(String, PathBuf)> {
    let mut all = Vec::new();
    for kind in std::fs::read_dir(folder()).unwrap().flatten().filter(|e| e.path().is_dir()) {
        for file in std::fs::read_dir(kind.path()).unwrap().flatten() {
            let name = format!("{}/{}", kind.file_name().to_string_lossy(), file.file_name().to_string_lossy());
            all.push((name, file.path()));
        }
    }
    all.sort();
    all
}

/// Audited, accounted whole and in two, cut into steps, exported.
fn account(trace: &Trace) {
    let audit = defects::audit(trace);
    let mut devices: Vec<u32> = trace.operations.iter().map(|o| o.device).collect();
    devices.sort_unstable();
    devices.dedup();
    for device in devices.into_iter().take(4) {
        let options = Options { clock_ns: Some(audit.clock_error_ns), ..Options::default() };
        let a = Accountant::new(trace, device, &options);
        let Some((t0, t1)) = a.span() else { continue };
        let Ok(whole) = a.window(t0, t1) else {
            assert!(t1.checked_sub(t0).is_none(), "only a window that the clock cannot count may fail");
            continue;
        };
        assert_eq!(whole.residual_ns, 0);
        assert_eq!(whole.lines.iter().map(|l| l.ns).sum::<i64>(), t1 - t0);
        let middle = t0 + (t1 - t0) / 2;
        let (left, right) = (a.window(t0, middle).unwrap(), a.window(middle, t1).unwrap());
        assert_eq!(whole.busy_ns, left.busy_ns + right.busy_ns);
        assert_eq!(whole.operations, left.operations + right.operations);
        if let Ok(found) = steps::find(trace, &a, &Selector::Auto) {
            let _ = steps::report(&a, &found);
        }
        perfetto::write(trace, &[&whole], &mut std::io::sink()).unwrap();
    }
}

#[test]
fn every_file_meets_every_importer() {
    let files = corpus();
    assert!(files.len() >= 50, "{} files", files.len());
    let scratch = tempfile::tempdir().unwrap();
    for (name, path) in &files {
        let bytes = std::fs::read(path).unwrap();
        assert!(bytes.len() as u64 <= LARGEST, "{name}: {} bytes", bytes.len());
        let began = Instant::now();
        let tried = catch_unwind(AssertUnwindSafe(|| {
            // By its content, as the command line does.
            let loaded = import::load(path).map(|l| l.trace);
            if let Ok(trace) = &loaded {
                account(trace);
            }
            // And by each importer in turn, whatever it is.
            if let Ok(trace) = import::kineto::read(Box::new(Cursor::new(bytes.clone()))) {
                account(&trace);
            }
            if let Ok(recording) = native::read(&bytes[..]) {
                account(&recording.trace);
            }
            let copy = scratch.path().join("copy.sqlite");
            std::fs::write(&copy, &bytes).unwrap();
            if let Ok(trace) = import::nsys::read(&copy) {
                account(&trace);
            }
            if let Ok(profiled) = import::ncu::parse(&bytes) {
                import::ncu::join(&mut [], &[], &Names::default(), &profiled);
            }
            loaded
        }));
        let Ok(loaded) = tried else { panic!("{name}: see the panic above") };
        assert!(began.elapsed() < Duration::from_secs(20), "{name} took {:?}", began.elapsed());
        expected(name, loaded, &bytes);
    }
}

/// Sound files are read whole, cut ones as far as they go and say so.
fn expected(name: &str, loaded: workbench::error::Result<Trace>, bytes: &[u8]) {
    let (kind, file) = name.split_once('/').unwrap();
    let empty = file.contains("empty") || file.contains("no_kernels") || file.contains("header");
    let defects = |t: &Trace| t.defects.iter().map(|d| d.defect.clone()).collect::<Vec<_>>();
    match (kind, loaded) {
        ("ncu", _) if file.starts_with("sound") => {
            let profiled = import::ncu::parse(bytes).unwrap();
            assert!(profiled.iter().all(|p| p.name == "gemm" && !p.metrics.is_empty()), "{name}");
        }
        (_, Ok(t)) if file.starts_with("sound") => {
            assert_eq!(t.operations.is_empty(), empty, "{name}");
            assert!(defects(&t).iter().all(|d| d == "quoted_number"), "{name}: {:?}", defects(&t));
        }
        (_, Err(e)) if file.starts_with("sound") => panic!("{name}: {e}"),
        ("kineto" | "load" | "native", Ok(t)) if file.starts_with("cut") && !empty => {
            assert!(!t.operations.is_empty(), "{name}: what came before the cut is kept");
            assert!(
                defects(&t).iter().any(|d| ["truncated", "unfinished"].contains(&d.as_str())),
                "{name}: {:?}",
                defects(&t)
            );
        }
        // A block of zstd is all or nothing, and this file has one.
        ("kineto" | "load", Err(e)) if file.starts_with("cut") && !file.ends_with(".zst") => panic!("{name}: {e}"),
        _ => {}
    }
}
