//! `workbench completions SHELL`.

use super::{Cli, OutputArgs, write_output};
use crate::error::Result;
use clap::CommandFactory;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

pub fn run(args: Args, _out: &OutputArgs) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "workbench", &mut text);
    write_output("-".as_ref(), &String::from_utf8_lossy(&text))
}
