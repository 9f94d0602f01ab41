//! CUPTI 13.0 for Rust: generated bindings, a loader that works without CUDA at build time, and a reader of activity
//! records that follows the loaded library's version instead of our headers'. See README.md.

#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code,
    clippy::all,
    unsafe_op_in_unsafe_fn,
    unnecessary_transmutes,
    improper_ctypes
)]
mod bindings;
mod error;
mod loader;
mod record;
mod version;

pub use bindings::*;
pub use error::{Error, result_name};
pub use loader::{Attempt, Library, LoadError, load, search_path};
pub use record::{Record, records};
pub use version::Version;

/// Calls a CUPTI function of a [`Library`]: `call!(lib, cuptiFinalize())` gives `Result<(), Error>`. A function that the
/// loaded library lacks is an error like any other.
///
/// # Safety
/// As for the C function; the macro must stand in an `unsafe` block.
#[macro_export]
macro_rules! call {
    ($lib:expr, $function:ident($($arg:expr),* $(,)?)) => {
        match &$lib.raw.$function {
            Ok(function) => $crate::Error::check(stringify!($function), function($($arg),*)),
            Err(_) => Err($crate::Error::missing(stringify!($function))),
        }
    };
}
