//! Nsight Systems exports (`nsys export --type sqlite`), schemas 2.x to 3.x, told by the tables and columns that exist.
//!
//! Several processes share one file and reuse correlation ids, so everything is keyed by process too.

use super::{call_kind, copy_kind, unversioned};
use crate::error::{Error, Result};
use crate::profile::trace::{
    Call, CallKind, CopyKind, Defect, DeviceInfo, Marker, Name, Operation, Overhead, Sync, SyncKind, Trace, Work,
};
use rusqlite::{Connection, OpenFlags, Row};
use std::collections::HashMap;
use std::path::Path;

/// Ranges in `NVTX_EVENTS`: push/pop and start/end; other event types are marks, domains and categories.
const NVTX_RANGES: [i64; 2] = [59, 60];

/// Reads an export.
///
/// # Errors
/// `Usage` where the file is no database, or none of Nsight Systems.
pub fn read(path: &Path) -> Result<Trace> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(failed)?;
    let mut reader = Reader { db, trace: Trace::default(), strings: HashMap::new(), names: HashMap::new() };
    reader.trace.format = "nsys".into();
    reader.trace.resolution_ns = 1;
    reader.trace.names.intern("");
    if reader.columns("StringIds")?.is_empty() {
        return Err(Error::usage("the database has no table StringIds, so it is no export of Nsight Systems")
            .try_next("nsys export --type sqlite FILE.nsys-rep"));
    }
    reader.strings()?;
    reader.facts()?;
    reader.operations()?;
    reader.calls()?;
    reader.syncs()?;
    reader.overheads()?;
    reader.ranges()?;
    reader.diagnostics()?;
    Ok(reader.trace)
}

fn failed(e: rusqlite::Error) -> Error {
    Error::usage(format!("the database cannot be read: {e}"))
        .try_next("export it again: nsys export --type sqlite --force-overwrite true FILE.nsys-rep")
}

struct Reader {
    db: Connection,
    trace: Trace,
    strings: HashMap<i64, String>,
    names: HashMap<i64, Name>,
}

/// One row of wanted columns; those that the table lacks are none.
struct Cells<'a>(&'a Row<'a>);

impl Cells<'_> {
    fn int(&self, column: usize) -> Option<i64> {
        self.0.get::<_, Option<i64>>(column).ok().flatten()
    }
    fn text(&self, column: usize) -> Option<String> {
        self.0.get::<_, Option<String>>(column).ok().flatten()
    }
    fn u32(&self, column: usize) -> u32 {
        self.int(column).and_then(|v| u32::try_from(v).ok()).unwrap_or(0)
    }
    fn u64(&self, column: usize) -> u64 {
        self.int(column).unwrap_or(0) as u64
    }
}

/// Process key of a serialised id: the process number, with the virtual machine above it where there is more than one.
fn process(global: Option<i64>) -> u32 {
    let id = global.unwrap_or(0) as u64;
    let machine = ((id >> 48) & 0xff).saturating_sub(1) as u32;
    (machine << 24) | (id >> 24 & 0xff_ffff) as u32
}

impl Reader {
    /// Columns of a plain table. A view or virtual table is nobody's export: its rows are computed, perhaps without end.
    fn columns(&self, table: &str) -> Result<Vec<String>> {
        let plain = "SELECT name FROM pragma_table_info(?1) WHERE EXISTS
            (SELECT 1 FROM sqlite_schema WHERE name = ?1 AND type = 'table' AND rootpage > 0)";
        let mut s = self.db.prepare(plain).map_err(failed)?;
        let rows = s.query_map([table], |r| r.get(0)).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    /// Gives each row of a table to `each`; a table that is not there has no rows.
    fn rows(
        &mut self,
        table: &str,
        wanted: &[&str],
        mut each: impl FnMut(&mut Trace, &mut Lookup<'_>, &Cells<'_>),
    ) -> Result<()> {
        let have = self.columns(table)?;
        if have.is_empty() {
            return Ok(());
        }
        let columns: Vec<String> = wanted
            .iter()
            .map(|w| if have.iter().any(|h| h == w) { format!("\"{w}\"") } else { "NULL".into() })
            .collect();
        let sql = format!("SELECT {} FROM \"{table}\"", columns.join(", "));
        let mut statement = self.db.prepare(&sql).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        let mut lookup = Lookup { strings: &self.strings, names: &mut self.names };
        loop {
            match rows.next() {
                Ok(Some(row)) => each(&mut self.trace, &mut lookup, &Cells(row)),
                Ok(None) => return Ok(()),
                Err(e) => {
                    // A damaged page: what came before it stands.
                    let detail = format!("table {table} is damaged ({e}); its rows up to there were read");
                    self.trace.defects.push(Defect {
                        defect: "truncated".into(),
                        count: 1,
                        detail,
                        ..Defect::default()
                    });
                    return Ok(());
                }
            }
        }
    }

    fn strings(&mut self) -> Result<()> {
        let mut found = HashMap::new();
        self.rows("StringIds", &["id", "value"], |_, _, r| {
            if let (Some(id), Some(text)) = (r.int(0), r.text(1)) {
                found.insert(id, text);
            }
        })?;
        self.strings = found;
        Ok(())
    }

    fn facts(&mut self) -> Result<()> {
        self.rows("META_DATA_EXPORT", &["name", "value"], |t, _, r| {
            if let (Some(name), Some(value)) = (r.text(0), r.text(1))
                && ["EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"].contains(&name.as_str())
            {
                t.facts.push((name, value));
            }
        })?;
        self.rows("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |t, _, r| t.base_unix_ns = r.int(0))?;
        let gpu = ["id", "name", "smCount", "computeMajor", "computeMinor", "cuDevice"];
        self.rows("TARGET_INFO_GPU", &gpu, |t, _, r| {
            t.devices.push(DeviceInfo {
                id: r.int(5).map_or(r.u32(0), |v| v.max(0) as u32),
                name: r.text(1).unwrap_or_default(),
                sm: r.u32(3) * 10 + r.u32(4),
                sms: r.u32(2),
            });
        })
    }

    fn operations(&mut self) -> Result<()> {
        const COMMON: [&str; 8] =
            ["start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId", "graphId"];
        fn common(work: Work, name: Name, r: &Cells<'_>) -> Operation {
            Operation {
                work,
                name,
                process: process(r.int(5)),
                device: r.u32(2),
                stream: r.u64(3),
                start: r.int(0).unwrap_or(0),
                end: r.int(1).unwrap_or(0),
                correlation: r.u64(4),
                graph_node: r.u64(6),
                // CUPTI's node ids have the graph's in their upper half.
                graph: if r.u32(7) != 0 { r.u32(7) } else { (r.u64(6) >> 32) as u32 },
                ..Operation::default()
            }
        }
        let with = |more: &[&'static str]| [&COMMON[..], more].concat();
        let kernel = with(&[
            "demangledName",
            "shortName",
            "registersPerThread",
            "staticSharedMemory",
            "dynamicSharedMemory",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
        ]);
        self.rows("CUPTI_ACTIVITY_KIND_KERNEL", &kernel, |t, l, r| {
            let name = l.name(t, r.int(8).or(r.int(9)));
            t.operations.push(Operation {
                registers: r.u32(10),
                shared: r.u32(11).saturating_add(r.u32(12)),
                grid: [r.u32(13), r.u32(14), r.u32(15)],
                block: [r.u32(16), r.u32(17), r.u32(18)],
                ..common(Work::Kernel, name, r)
            });
        })?;
        let mut kinds = HashMap::new();
        self.rows("ENUM_CUDA_MEMCPY_OPER", &["id", "name", "label"], |_, _, r| {
            let text = format!("{} {}", r.text(1).unwrap_or_default(), r.text(2).unwrap_or_default());
            kinds.insert(
                r.int(0),
                copy_kind(&text.replace("HTOD", "HtoD").replace("DTOH", "DtoH").replace("DTOD", "DtoD")),
            );
        })?;
        self.rows("CUPTI_ACTIVITY_KIND_MEMCPY", &with(&["bytes", "copyKind"]), |t, _, r| {
            let kind = match r.int(9) {
                Some(1) => CopyKind::HtoD,
                Some(2) => CopyKind::DtoH,
                Some(8) => CopyKind::DtoD,
                Some(9) => CopyKind::HtoH,
                Some(10) => CopyKind::PtoP,
                other => kinds.get(&other).copied().unwrap_or(CopyKind::Other),
            };
            let name = t.names.intern(&format!("Memcpy {kind:?}"));
            t.operations.push(Operation { bytes: r.u64(8), ..common(Work::Memcpy(kind), name, r) });
        })?;
        self.rows("CUPTI_ACTIVITY_KIND_MEMSET", &with(&["bytes"]), |t, _, r| {
            let name = t.names.intern("Memset");
            t.operations.push(Operation { bytes: r.u64(8), ..common(Work::Memset, name, r) });
        })?;
        self.rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &COMMON, |t, _, r| {
            let name = t.names.intern(&format!("graph {}", r.u32(7)));
            t.operations.push(common(Work::Graph, name, r));
        })
    }

    fn calls(&mut self) -> Result<()> {
        let columns = ["start", "end", "globalTid", "correlationId", "nameId"];
        for table in ["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"] {
            let mut kinds: HashMap<Name, (CallKind, bool)> = HashMap::new();
            self.rows(table, &columns, |t, l, r| {
                let name = l.name(t, r.int(4));
                let names = &t.names;
                let (kind, driver) = *kinds.entry(name).or_insert_with(|| {
                    let text = names.text(name);
                    (call_kind(text), text.starts_with("cu") && !text.starts_with("cuda"))
                });
                t.calls.push(Call {
                    kind,
                    name,
                    process: process(r.int(2)),
                    thread: r.u64(2) & 0xff_ffff,
                    start: r.int(0).unwrap_or(0),
                    end: r.int(1).unwrap_or(0),
                    correlation: r.u64(3),
                    driver,
                });
            })?;
        }
        Ok(())
    }

    fn syncs(&mut self) -> Result<()> {
        // Event handles are reused; only the synchronisation id names one recording of an event.
        let mut records: HashMap<(u32, i64), (u64, u64)> = HashMap::new();
        let columns = ["globalPid", "eventSyncId", "streamId", "correlationId"];
        self.rows("CUPTI_ACTIVITY_KIND_CUDA_EVENT", &columns, |_, _, r| {
            if let Some(id) = r.int(1) {
                records.insert((process(r.int(0)), id), (r.u64(2), r.u64(3)));
            }
        })?;
        let columns = [
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "syncType",
            "deprecatedSyncType",
            "eventId",
            "eventSyncId",
        ];
        self.rows("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", &columns, |t, _, r| {
            let process = process(r.int(5));
            let kind = match r.int(6).or(r.int(7)) {
                Some(1) => SyncKind::Event,
                Some(2) => SyncKind::StreamWaitEvent,
                Some(3) => SyncKind::Stream,
                Some(4) => SyncKind::Context,
                _ => SyncKind::Unknown,
            };
            let record = r.int(9).and_then(|id| records.get(&(process, id)));
            t.syncs.push(Sync {
                kind,
                process,
                device: r.u32(2),
                stream: r.int(3).filter(|v| *v != i64::from(u32::MAX)).map_or(u64::MAX, |v| v as u64),
                start: r.int(0).unwrap_or(0),
                end: r.int(1).unwrap_or(0),
                correlation: r.u64(4),
                event_stream: record.map(|r| r.0),
                event_correlation: record.map(|r| r.1),
                event: r.u64(8),
            });
        })
    }

    fn overheads(&mut self) -> Result<()> {
        self.rows("PROFILER_OVERHEAD", &["start", "end", "globalTid", "nameId"], |t, l, r| {
            let name = l.name(t, r.int(3));
            t.overheads.push(Overhead {
                name,
                process: process(r.int(2)),
                thread: r.u64(2) & 0xff_ffff,
                start: r.int(0).unwrap_or(0),
                end: r.int(1).unwrap_or(0),
            });
        })
    }

    fn ranges(&mut self) -> Result<()> {
        let category = self.trace.names.intern("nvtx");
        let columns = ["start", "end", "eventType", "text", "textId", "globalTid"];
        self.rows("NVTX_EVENTS", &columns, |t, l, r| {
            let (Some(start), Some(end)) = (r.int(0), r.int(1)) else { return };
            if !r.int(2).is_some_and(|k| NVTX_RANGES.contains(&k)) {
                return;
            }
            let name = match r.text(3) {
                Some(text) => t.names.intern(&text),
                None => l.name(t, r.int(4)),
            };
            let (process, thread) = (process(r.int(5)), r.u64(5) & 0xff_ffff);
            t.markers.push(Marker { name, category, process, thread, start, end });
        })
    }

    /// What Nsight Systems itself found wrong, as facts; lost records as a defect.
    fn diagnostics(&mut self) -> Result<()> {
        self.rows("DIAGNOSTIC_EVENT", &["severity", "text"], |t, _, r| {
            let (Some(severity), Some(text)) = (r.int(0), r.text(1)) else { return };
            let lower = text.to_lowercase();
            if lower.contains("lost") || lower.contains("dropped") {
                t.defects.push(Defect {
                    defect: "dropped_records".into(),
                    count: 1,
                    detail: format!("Nsight Systems says: {text}"),
                    ..Defect::default()
                });
            } else if severity >= 2 && t.facts.len() < 12 {
                t.facts.push(("Nsight Systems warns".into(), text));
            }
        })
    }
}

/// String ids of the file to names of the trace.
struct Lookup<'a> {
    strings: &'a HashMap<i64, String>,
    names: &'a mut HashMap<i64, Name>,
}

impl Lookup<'_> {
    fn name(&mut self, trace: &mut Trace, id: Option<i64>) -> Name {
        let Some(id) = id else { return Name(0) };
        *self
            .names
            .entry(id)
            .or_insert_with(|| trace.names.intern(self.strings.get(&id).map_or("", |s| unversioned(s))))
    }
}

#[cfg(test)]
mod tests;
