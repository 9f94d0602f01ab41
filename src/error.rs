//! One error type at the edge: what happened, where, what to try next, and the exit code that a script sees.

use std::fmt;
use std::process::ExitCode;

/// What kind of failure it is; decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A check failed: a wrong result, a regression, a budget exceeded. Exit code 1.
    Check,
    /// The command line, a file or a configuration is wrong. Exit code 2.
    Usage,
    /// No GPU, driver or CUPTI. Exit code 3.
    NoDevice,
    /// The measurement cannot be trusted. Exit code 4.
    Untrusted,
    /// Nothing is wrong, but something is still to be done. Exit code 5.
    Incomplete,
}

/// An error that a person can act on.
#[derive(Debug)]
pub struct Error {
    pub kind: Kind,
    /// What happened and where, one sentence without a full stop.
    pub what: String,
    /// What to try next: a command or a change.
    pub next: Option<String>,
}

/// The result of everything that a command does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), next: None }
    }
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Kind::Usage, what)
    }
    pub fn check(what: impl Into<String>) -> Self {
        Self::new(Kind::Check, what)
    }
    pub fn no_device(what: impl Into<String>) -> Self {
        Self::new(Kind::NoDevice, what)
    }
    pub fn incomplete(what: impl Into<String>) -> Self {
        Self::new(Kind::Incomplete, what)
    }
    pub fn untrusted(what: impl Into<String>) -> Self {
        Self::new(Kind::Untrusted, what)
    }
    /// Adds the next thing to try.
    pub fn try_next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
    /// Puts the place in front of the message: `PLACE: what`.
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.what = format!("{place}: {}", self.what);
        self
    }
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.kind {
            Kind::Check => 1,
            Kind::Usage => 2,
            Kind::NoDevice => 3,
            Kind::Untrusted => 4,
            Kind::Incomplete => 5,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if let Some(next) = &self.next {
            write!(f, "\n  try: {next}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Self::usage(e.to_string())
    }
}

impl From<crate::op::OpError> for Error {
    fn from(e: crate::op::OpError) -> Self {
        Self::usage(e.to_string())
    }
}
