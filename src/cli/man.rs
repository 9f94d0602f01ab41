//! `workbench man`.

use super::{Cli, OutputArgs};
use crate::error::Result;
use clap::CommandFactory;

#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_args: Args, _out: &OutputArgs) -> Result<()> {
    clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout())?;
    Ok(())
}
