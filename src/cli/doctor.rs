//! `workbench doctor`: what this machine, or a trace file, can be trusted with, and what to do where it cannot.

mod capture;
mod machine;

use super::{OutputArgs, write_output};
use crate::error::{Error, Result};
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A trace file to audit instead of the machine
    file: Option<PathBuf>,
    /// The GPU to check
    #[arg(long, default_value_t = 0)]
    gpu: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

/// One line of the examination.
#[derive(Clone, Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, detail: detail.into(), fix: None }
    }
    fn warn(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, detail: detail.into(), fix: Some(fix.into()) }
    }
    fn fail(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Status::Fail, detail: detail.into(), fix: Some(fix.into()) }
    }
    /// An error as a failed check, with its own advice.
    fn error(name: &'static str, e: &Error) -> Self {
        Self { name, status: Status::Fail, detail: e.what.clone(), fix: e.next.clone() }
    }
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    if let Some(path) = &args.file {
        return super::doctor_file::run(path, out);
    }
    let (mut checks, device) = machine::checks(args.gpu);
    checks.extend(capture::checks(device.as_ref()));
    report(&checks, out)?;
    let failed: Vec<_> = checks.iter().filter(|c| c.status == Status::Fail).map(|c| c.name).collect();
    match device {
        None => Err(Error::no_device("no GPU can be used here")
            .try_next("without one, `workbench step` replays a recorded run and `workbench predict` needs none")),
        Some(_) if !failed.is_empty() => Err(Error::check(format!("failed: {}", failed.join(", ")))),
        Some(_) => Ok(()),
    }
}

fn report(checks: &[Check], out: &OutputArgs) -> Result<()> {
    if let Some(path) = &out.json {
        write_output(path, &format!("{:#}\n", json!({"schema": 1, "checks": checks})))?;
    }
    if let Some(path) = &out.md {
        let mut text = String::from("| check | status | detail | fix |\n| --- | --- | --- | --- |\n");
        for c in checks {
            let cell = |t: &str| t.replace('|', "\\|").replace('\n', " ");
            let fix = cell(c.fix.as_deref().unwrap_or(""));
            text += &format!("| {} | {} | {} | {fix} |\n", c.name, word(c.status), cell(&c.detail));
        }
        write_output(path, &text)?;
    }
    if !out.takes_stdout() {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        for c in checks {
            let fix = c.fix.as_ref().map_or(String::new(), |f| format!("\n→ {f}"));
            table.add_row([word(c.status).to_string(), c.name.to_string(), format!("{}{fix}", c.detail)]);
        }
        write_output("-".as_ref(), &format!("{}\n", table.trim_fmt()))?;
    }
    Ok(())
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Warn => "warn",
        Status::Fail => "FAIL",
    }
}
