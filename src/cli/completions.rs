//! `workbench completions SHELL`.

use super::{Cli, OutputArgs};
use crate::error::Result;
use clap::CommandFactory;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

pub fn run(args: Args, _out: &OutputArgs) -> Result<()> {
    clap_complete::generate(args.shell, &mut Cli::command(), "workbench", &mut std::io::stdout());
    Ok(())
}
