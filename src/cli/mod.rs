//! The command line: one file per subcommand, each with its `Args` and a `run`.

use crate::error::{Error, Result};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

mod deployment;
mod doctor_file;
pub mod table;

macro_rules! commands {
    ($($(#[$doc:meta])* $variant:ident = $module:ident),* $(,)?) => {
        $(mod $module;)*
        /// What the workbench does.
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[$doc])* $variant($module::Args),)*
        }
        fn dispatch(command: Command, out: &OutputArgs) -> Result<()> {
            match command {
                $(Command::$variant(args) => $module::run(args, out),)*
            }
        }
    };
}

commands! {
    /// Check driver, GPU, CUPTI, counters and toolchain; or a trace file for known defects
    Doctor = doctor,
    /// List ops, variants and their resources
    List = list,
    /// Show a variant's source, PTX, SASS or resources
    Show = show,
    /// Check every variant against its f64 reference
    Verify = verify,
    /// Time an op's variants over shapes, each beside its prediction
    Bench = bench,
    /// Measure a card's ceilings and draw its roofline
    Roofline = roofline,
    /// Predict, run and account one LLM decode step
    Step = step,
    /// Trace any CUDA process
    Trace = trace,
    /// Measure what a launch costs in this process
    #[command(hide = true)]
    LaunchProbe = launch_probe,
    /// Account every nanosecond of a trace
    Gaps = gaps,
    /// Compare two traces or runs, line by line
    Compare = compare,
    /// Compute theoretical occupancy and its limits
    Occupancy = occupancy,
    /// Predict a decode step or a kernel
    Predict = predict,
    /// Say what fits on a card
    Size = size,
    /// Set an engine's start-up log beside the model's arithmetic
    Reconcile = reconcile,
    /// Keep the lab notebook
    Note = note,
    /// Make a report from a recorded run
    Report = report,
    /// Print a shell's completions
    Completions = completions,
    /// Print the manual page
    Man = man,
}

/// Where results go besides the table on standard output.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OutputArgs {
    /// Write JSON to FILE, or to standard output with `-`
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write CSV to FILE, or to standard output with `-`
    #[arg(long, global = true, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write Markdown to FILE, or to standard output with `-`
    #[arg(long, global = true, value_name = "FILE")]
    pub md: Option<PathBuf>,
    /// Write a self-contained HTML page to FILE
    #[arg(long, global = true, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl OutputArgs {
    /// Whether one of the formats takes standard output, so that the table must not.
    pub fn takes_stdout(&self) -> bool {
        [&self.json, &self.csv, &self.md].iter().any(|f| f.as_deref() == Some("-".as_ref()))
    }
}

/// Writes text to a file, whole or not at all, or to standard output for `-`.
pub fn write_output(file: &std::path::Path, text: &str) -> Result<()> {
    use std::io::Write;
    if file == std::path::Path::new("-") {
        return match std::io::stdout().lock().write_all(text.as_bytes()) {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(Error::from),
        };
    }
    let part = file.with_extension(match file.extension() {
        Some(e) => format!("{}.part", e.to_string_lossy()),
        None => "part".into(),
    });
    std::fs::write(&part, text)
        .and_then(|()| std::fs::rename(&part, file))
        .map_err(|e| Error::usage(format!("cannot write {}: {e}", file.display())))
}

/// Predict the number, measure the number, explain the gap.
#[derive(Debug, Parser)]
#[command(name = "workbench", version, about, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    out: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

/// Runs the command line and returns the exit code: 0 ok, 1 a check failed, 2 usage, 3 no GPU, driver or CUPTI,
/// 4 the measurement cannot be trusted, 5 a check found nothing wrong but something still to be done.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    match dispatch(cli.command, &cli.out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("workbench: {e}");
            e.exit_code()
        }
    }
}
