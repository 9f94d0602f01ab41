//! The command line: one file per subcommand, each with its `Args` and a `run`.

use crate::error::{Error, Kind, Result};
use crate::kernels;
use crate::op::{Op, nearest};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

mod deployment;
mod doctor_file;
pub mod table;

/// One registry: a command's name, module, the forms of `--json`, `--csv`, `--md`, `--html` that it writes (any other is
/// refused before it runs, never ignored), and what to do instead.
macro_rules! commands {
    ($($(#[$doc:meta])* $variant:ident = $module:ident [$($form:ident)*] $($instead:literal)?),* $(,)?) => {
        $(mod $module;)*
        /// What the workbench does.
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[$doc])* $variant($module::Args),)*
        }
        fn dispatch(command: Command, out: &OutputArgs) -> Result<()> {
            match command {
                $(Command::$variant(args) => {
                    out.only(stringify!($module), &[$(Form::$form),*], &[$($instead),*])?;
                    $module::run(args, out)
                })*
            }
        }
    };
}

commands! {
    /// Check driver, GPU, CUPTI, counters and toolchain; or a trace file for known defects
    Doctor = doctor [Json Md],
    /// List ops, variants and their resources
    List = list [Json Csv Md],
    /// Show a variant's source, PTX, SASS, resources or launches
    Show = show [Json],
    /// Check every variant against its f64 reference
    Verify = verify [Json Csv Md],
    /// Time an op's variants over shapes, each beside its prediction
    Bench = bench [Json Csv Md],
    /// Measure a card's ceilings and draw its roofline
    Roofline = roofline [Json Csv Md],
    /// Predict, run and account one LLM decode step
    Step = step [Json Csv Md Html],
    /// Trace any CUDA process
    Trace = trace [Json]
        "workbench trace -o FILE -- CMD, then `workbench gaps FILE` with the form that you want",
    /// Measure what a launch costs in this process
    #[command(hide = true)]
    LaunchProbe = launch_probe [],
    /// Account every nanosecond of a trace
    Gaps = gaps [Json Csv Md Html],
    /// Compare two traces or runs, line by line
    Compare = compare [Json Csv Md],
    /// Compute theoretical occupancy and its limits
    Occupancy = occupancy [Json Csv Md],
    /// Predict a decode step or a kernel
    Predict = predict [Json Csv Md],
    /// Say what fits on a card
    Size = size [Json Csv Md],
    /// Set an engine's start-up log beside the model's arithmetic
    Reconcile = reconcile [Json Csv Md],
    /// Keep the lab notebook
    Note = note [Json Csv Md],
    /// Make a report from a recorded run
    Report = report [Json Csv Md Html],
    /// Print a shell's completions
    Completions = completions [],
    /// Print the manual page
    Man = man [],
}

/// A form of output besides the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Csv,
    Md,
    Html,
}

/// Where results go besides the table on standard output; a command refuses a form that it does not write.
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
    /// Write a self-contained HTML page to FILE (`step`, `report`, `gaps`)
    #[arg(long, global = true, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl OutputArgs {
    /// Refuses every form that was asked for and is none of `writes`.
    fn only(&self, command: &str, writes: &[Form], instead: &[&str]) -> Result<()> {
        let asked = [(&self.json, Form::Json), (&self.csv, Form::Csv), (&self.md, Form::Md), (&self.html, Form::Html)];
        let option = |form: Form| format!("--{}", format!("{form:?}").to_lowercase());
        let Some(form) = asked.into_iter().find(|(file, form)| file.is_some() && !writes.contains(form)) else {
            return Ok(());
        };
        let command = command.replace('_', "-");
        let what = match form.1 {
            Form::Json => "JSON",
            Form::Csv => "CSV",
            Form::Md => "Markdown",
            Form::Html => "HTML",
        };
        let next = match (instead.first(), writes) {
            (Some(text), _) => text.to_string(),
            (None, []) => format!("without {}: it writes to standard output", option(form.1)),
            (None, _) => writes.iter().map(|f| format!("{} FILE", option(*f))).collect::<Vec<_>>().join(" or "),
        };
        Err(Error::usage(format!("`{command}` writes no {what}")).try_next(next))
    }

    /// Whether one of the formats takes standard output, so that the table must not.
    pub fn takes_stdout(&self) -> bool {
        [&self.json, &self.csv, &self.md].iter().any(|f| f.as_deref() == Some("-".as_ref()))
    }
}

/// An op by its registry name; the error names the nearest one.
pub fn op(name: &str) -> Result<&'static dyn Op> {
    kernels::op(name).map_err(|e| {
        let near = nearest(name, kernels::OPS.iter().map(|o| o.name()));
        let near = near.map_or(String::new(), |n| format!("`{n}`; or "));
        Error::from(e).try_next(format!("{near}`workbench list` shows what there is"))
    })
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
    crate::files::write(file, text.as_bytes())
        .map_err(|e| Error::usage(format!("cannot write {}: {e}", file.display())))
}

/// Lets a closed pipe (`| head`) end the program, as it ends others: Rust ignores the signal at start, and each print would
/// then panic.
fn end_on_closed_pipe() {
    #[cfg(unix)]
    // SAFETY: sets a signal's action to its default; no handler of ours is involved.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
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
    let args: Vec<OsString> = args.into_iter().collect();
    // The subcommand as it was written, for the advice of last resort.
    let command = args.get(1).map(|a| a.to_string_lossy().into_owned()).filter(|a| !a.starts_with('-'));
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    // `trace` first brings its guest's recording home.
    if !matches!(cli.command, Command::Trace(_)) {
        end_on_closed_pipe();
    }
    match dispatch(cli.command, &cli.out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(mut e) => {
            if e.kind == Kind::Usage && e.next.is_none() {
                e.next = command.map(|c| format!("workbench {c} --help"));
            }
            eprintln!("workbench: {e}");
            e.exit_code()
        }
    }
}
