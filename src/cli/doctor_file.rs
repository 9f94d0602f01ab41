//! `workbench doctor FILE`: which known defects a trace has, before any number of it is believed.

use super::table::{Sheet, grouped};
use super::{OutputArgs, write_output};
use crate::error::{Error, Result};
use crate::profile::defects::{self, Severity, severity};
use crate::profile::import;
use serde_json::json;
use std::path::Path;

/// Checks one file. A file that can carry no account is an error with exit code 4.
pub fn run(file: &Path, out: &OutputArgs) -> Result<()> {
    let trace = import::open(file)?;
    let audit = defects::audit(&trace);
    let status = |d: &str| match severity(d) {
        Severity::Note => "ok",
        Severity::Warn => "warn",
        Severity::Fail => "fail",
    };
    let mut checks = vec![json!({
        "name": "readable", "status": "ok",
        "detail": format!(
            "{}: {} operations, {} API calls, {} synchronisations, {} overhead records, {} ranges",
            trace.format, trace.operations.len(), trace.calls.len(), trace.syncs.len(), trace.overheads.len(),
            trace.markers.len()
        ),
    })];
    for d in &audit.defects {
        checks.push(json!({
            "name": d.defect, "status": status(&d.defect), "detail": d.detail, "count": d.count,
            "first_offset": d.first_offset, "place": d.place,
        }));
    }
    if let Some(to) = &out.json {
        let all = json!({
            "schema": 1, "file": file.display().to_string(), "format": trace.format,
            "clock_error_ns": audit.clock_error_ns, "resolution_ns": trace.resolution_ns, "checks": checks,
            "defects": audit.defects,
        });
        write_output(to, &format!("{all:#}\n"))?;
    }
    let title = format!("{} {}", file.display(), checks[0]["detail"].as_str().unwrap_or_default());
    let mut sheet = Sheet::new(title, &["", "defect", ">count", ">first at", "meaning"]);
    for d in &audit.defects {
        sheet.row([status(&d.defect).into(), d.defect.clone(), grouped(d.count), d.first(), d.detail.clone()]);
    }
    if sheet.is_empty() {
        sheet.row(["ok", "no known defect", "", "", ""].map(String::from));
    }
    if let Some(to) = &out.md {
        write_output(to, &sheet.markdown())?;
    }
    if !out.takes_stdout() {
        write_output(Path::new("-"), &sheet.terminal())?;
    }
    match audit.worst() {
        Some(Severity::Fail) => {
            Err(Error::untrusted(format!("{} cannot carry an account of its time", file.display()))
                .try_next("record it again: `workbench trace -- CMD`"))
        }
        _ => Ok(()),
    }
}
