//! Traces and ledgers in other tools' formats.

pub mod perfetto;
