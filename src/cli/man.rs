//! `workbench man`.

use super::{Cli, OutputArgs, write_output};
use crate::error::Result;
use clap::CommandFactory;

#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_args: Args, _out: &OutputArgs) -> Result<()> {
    let mut text = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut text)?;
    write_output("-".as_ref(), &String::from_utf8_lossy(&text))
}
