//! The `workbench` command. Everything is in the library; here only the exit code is settled.

use std::process::ExitCode;

fn main() -> ExitCode {
    workbench::cli::main(std::env::args_os())
}
