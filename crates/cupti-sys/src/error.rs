//! What a failed call says: the function, the code and its name. What to do about it is the caller's to say.

use crate::bindings::CUptiResult;
use std::fmt;

/// A CUPTI call that failed, or that the loaded library does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    pub function: &'static str,
    /// None where the loaded library lacks the function.
    pub code: Option<CUptiResult>,
}

impl Error {
    pub fn check(function: &'static str, code: CUptiResult) -> Result<(), Self> {
        if code == CUptiResult::CUPTI_SUCCESS { Ok(()) } else { Err(Self { function, code: Some(code) }) }
    }
    pub fn missing(function: &'static str) -> Self {
        Self { function, code: None }
    }
    pub fn is(&self, code: CUptiResult) -> bool {
        self.code == Some(code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "{} failed: {} ({})", self.function, result_name(code), code.0),
            None => write!(f, "the loaded CUPTI has no {}", self.function),
        }
    }
}

impl std::error::Error for Error {}

/// The name of a result code, as in `cupti_result.h`; `CUPTI_ERROR` for one that 13.0 does not know.
pub fn result_name(code: CUptiResult) -> &'static str {
    macro_rules! names {
        ($($name:ident)*) => {
            match code { $(CUptiResult::$name => stringify!($name),)* _ => "CUPTI_ERROR" }
        };
    }
    names! {
        CUPTI_SUCCESS CUPTI_ERROR_INVALID_PARAMETER CUPTI_ERROR_INVALID_DEVICE CUPTI_ERROR_INVALID_CONTEXT
        CUPTI_ERROR_INVALID_OPERATION CUPTI_ERROR_OUT_OF_MEMORY CUPTI_ERROR_HARDWARE
        CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT CUPTI_ERROR_API_NOT_IMPLEMENTED CUPTI_ERROR_MAX_LIMIT_REACHED
        CUPTI_ERROR_NOT_READY CUPTI_ERROR_NOT_COMPATIBLE CUPTI_ERROR_NOT_INITIALIZED CUPTI_ERROR_QUEUE_EMPTY
        CUPTI_ERROR_INVALID_HANDLE CUPTI_ERROR_INVALID_STREAM CUPTI_ERROR_INVALID_KIND CUPTI_ERROR_DISABLED
        CUPTI_ERROR_INVALID_MODULE CUPTI_ERROR_HARDWARE_BUSY CUPTI_ERROR_NOT_SUPPORTED
        CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED
        CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
        CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED
        CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES
        CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED
        CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED
        CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED CUPTI_ERROR_INVALID_CHIP_NAME CUPTI_ERROR_UNKNOWN
    }
}
