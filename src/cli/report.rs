//! `workbench report`: account a recorded step again and write it in any form.

use super::OutputArgs;
use crate::error::Result;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder that `workbench step --out` wrote: step.json and its raw traces
    dir: PathBuf,
    /// Write the first mode's trace for Perfetto, every gap a slice with its cause
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    super::step::show(&args.dir, true, args.perfetto.as_deref(), out)
}
