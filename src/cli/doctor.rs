//! `workbench doctor`.

use super::OutputArgs;
use crate::error::{Error, Result};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Check this trace for known defects instead of the machine
    file: Option<PathBuf>,
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    if let Some(file) = &args.file {
        return super::doctor_file::run(file, out);
    }
    Err(Error::usage("`doctor` without a file is not built yet"))
}
