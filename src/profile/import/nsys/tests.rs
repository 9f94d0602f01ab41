use super::*;
use crate::profile::ledger::{LineKind, Options, account};
use rusqlite::Connection;
use std::path::PathBuf;

/// Serialised id of a thread of a process, as Nsight Systems makes them.
fn global(pid: i64, tid: i64) -> i64 {
    (1 << 48) | (pid << 24) | tid
}

fn database(folder: &tempfile::TempDir, sql: &str) -> PathBuf {
    let path = folder.path().join("x.sqlite");
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    path
}

/// Columns of the schema of 2020: fewer tables, fewer columns, version suffixes in names.
fn old_schema() -> String {
    let (p, q) = (global(10, 0), global(20, 0));
    let (pt, qt) = (global(10, 11), global(20, 21));
    format!(
        "CREATE TABLE StringIds (id INTEGER, value TEXT);
         INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'void k<int>(int*)'), (3, 'k'), (4, 'cudaStreamSynchronize_v3020');
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER,
             correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER,
             gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
             staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
             (1000, 2000, 0, 1, 7, 5, {p}, 2, 3, 32, 4, 1, 1, 128, 1, 1, 1024, 2048),
             (5000, 6000, 0, 1, 7, 5, {q}, 2, 3, 32, 4, 1, 1, 128, 1, 1, 0, 0);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (500, 700, {pt}, 5, 1), (4500, 4700, {qt}, 5, 1), (2100, 4400, {qt}, 6, 4);"
    )
}

#[test]
fn an_old_schema_and_two_processes_with_one_correlation() {
    let folder = tempfile::tempdir().unwrap();
    let t = read(&database(&folder, &old_schema())).unwrap();
    let ops: Vec<_> = t.operations.iter().map(|o| (o.process, o.start, o.correlation, o.shared)).collect();
    assert_eq!(ops, [(10, 1000, 5, 3072), (20, 5000, 5, 0)]);
    assert_eq!(t.names.text(t.operations[0].name), "void k<int>(int*)");
    assert_eq!(t.names.text(t.calls[0].name), "cudaLaunchKernel");
    assert_eq!((t.calls[2].kind, t.calls[2].thread), (CallKind::Sync, 21));
    assert!(!t.calls[0].driver);
    // The second kernel's gap belongs to its own process's thread, not to the one that has the same correlation id.
    let options = Options { clock_ns: Some(0), ..Options::default() };
    let l = account(&t, 0, 1_000, 6_000, &options).unwrap();
    let ns = |name: &str| l.lines.iter().find(|x| x.kind == LineKind::Gap && x.name == name).map(|x| x.ns);
    assert_eq!(ns("host blocked in sync cudaStreamSynchronize"), Some(2_300));
    assert_eq!(ns("launch call"), Some(200));
    assert_eq!(ns("launch latency"), Some(300));
    assert_eq!(ns("host code"), Some(200));
}

#[test]
fn graphs_events_copies_and_ranges_of_a_new_schema() {
    let folder = tempfile::tempdir().unwrap();
    let (p, pt) = (global(10, 0), global(10, 11));
    let sql = format!(
        "{}
         ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN graphNodeId INTEGER;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphNodeId = (5 << 32) + 77 WHERE start = 1000;
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
             correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (7000, 7100, 0, 8, 9, {p}, 4096, 2), (7200, 7300, 0, 8, 10, {p}, 1, 11);
         CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, name TEXT, label TEXT);
         INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (11, 'CUDA_MEMCPY_KIND_UVM_HTOD', 'Unified Host-to-Device');
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
             correlationId INTEGER, globalPid INTEGER, bytes INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (8000, 8001, 0, 8, 11, {p}, 512);
         CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, graphId INTEGER,
             streamId INTEGER, correlationId INTEGER, globalPid INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (9000, 9900, 0, 3, 8, 12, {p});
         CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (streamId INTEGER, correlationId INTEGER, globalPid INTEGER, eventSyncId INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (7, 55, {p}, 100);
         CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
             correlationId INTEGER, globalPid INTEGER, syncType INTEGER, eventId INTEGER, eventSyncId INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (6500, 6510, 0, 8, 56, {p}, 2, 4, 100),
             (6600, 6700, 0, 4294967295, 57, {p}, 4, 4294967295, 4294967295);
         CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
         INSERT INTO NVTX_EVENTS VALUES (400, 6000, 59, 'step', NULL, {pt}), (400, NULL, 75, 'domain', NULL, {pt}), (1, 2, 60, NULL, 3, {pt});
         CREATE TABLE PROFILER_OVERHEAD (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);
         INSERT INTO PROFILER_OVERHEAD VALUES (100, 200, {pt}, 3);
         CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER);
         INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA X', 132, 9, 0);
         CREATE TABLE DIAGNOSTIC_EVENT (severity INTEGER, text TEXT);
         INSERT INTO DIAGNOSTIC_EVENT VALUES (3, 'Some CUDA events were lost.'), (2, 'beware');",
        old_schema()
    );
    let t = read(&database(&folder, &sql)).unwrap();
    assert_eq!((t.operations[0].graph_node, t.operations[1].graph_node), ((5 << 32) | 77, 0));
    assert_eq!((t.operations[0].graph, t.operations[1].graph), (5, 0), "a node's id tells its graph");
    let works: Vec<Work> = t.operations.iter().map(|o| o.work).collect();
    assert_eq!(works[2..], [Work::Memcpy(CopyKind::DtoH), Work::Memcpy(CopyKind::HtoD), Work::Memset, Work::Graph]);
    assert_eq!((t.operations[2].bytes, t.operations[5].graph), (4_096, 3));
    assert_eq!((t.syncs[0].event_stream, t.syncs[0].event_correlation), (Some(7), Some(55)));
    assert_eq!((t.syncs[1].stream, t.syncs[1].kind), (u64::MAX, SyncKind::Context));
    let names: Vec<&str> = t.markers.iter().map(|m| t.names.text(m.name)).collect();
    assert_eq!(names, ["step", "k"]);
    assert_eq!((t.overheads.len(), t.devices[0].sm, t.devices[0].sms), (1, 90, 132));
    assert_eq!(t.defects[0].defect, "dropped_records");
    assert!(t.facts.contains(&("Nsight Systems warns".into(), "beware".into())));
}

#[test]
fn what_is_no_export_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(read(&database(&folder, "CREATE TABLE t (x INTEGER)")).unwrap_err().to_string().contains("StringIds"));
    let text = folder.path().join("text.sqlite");
    std::fs::write(&text, "SQLite format 3\0 but not really").unwrap();
    assert!(read(&text).is_err());
    // A file that was cut: an error or a shorter trace, never a panic.
    let whole = std::fs::read(database(&tempfile::tempdir().unwrap(), &old_schema())).unwrap();
    for part in 1..10 {
        std::fs::write(&text, &whole[..whole.len() * part / 10]).unwrap();
        let _ = read(&text);
    }
}
