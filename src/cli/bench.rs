//! `workbench bench`.

use super::OutputArgs;
use crate::error::{Error, Result};

#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_args: Args, _out: &OutputArgs) -> Result<()> {
    Err(Error::usage("`bench` is not built yet"))
}
