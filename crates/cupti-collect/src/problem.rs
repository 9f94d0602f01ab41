//! Why a capture cannot be made, by name, with what to do. A bare CUPTI code tells a user nothing.

use cupti_sys::{CUptiResult, Error, LoadError};
use std::fmt;

/// A named obstacle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    CuptiMissing(String),
    /// Another profiler holds CUPTI; its name where CUPTI tells.
    AnotherSubscriber(Option<String>),
    NotPermitted,
    Wsl,
    Mig,
    Virtualized,
    ConfidentialComputing,
    /// The counters or the hardware are held, mostly by DCGM.
    HardwareBusy,
    /// CUPTI and driver do not go together.
    NotCompatible(String),
    /// CUDA could not be initialised: no driver or no GPU.
    NoDevice(String),
    AlreadyActive,
    Other(String),
}

impl Problem {
    /// A stable name for scripts and recordings.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CuptiMissing(_) => "cupti_missing",
            Self::AnotherSubscriber(_) => "another_subscriber",
            Self::NotPermitted => "not_permitted",
            Self::Wsl => "wsl",
            Self::Mig => "mig",
            Self::Virtualized => "virtualized",
            Self::ConfidentialComputing => "confidential_computing",
            Self::HardwareBusy => "hardware_busy",
            Self::NotCompatible(_) => "not_compatible",
            Self::NoDevice(_) => "no_device",
            Self::AlreadyActive => "already_active",
            Self::Other(_) => "other",
        }
    }

    /// What to do about it.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::CuptiMissing(_) => {
                "install it (`pip install nvidia-cuda-cupti==13.0.85`, or the CUDA toolkit's extras/CUPTI), or set \
                 WORKBENCH_CUPTI=/path/to/libcupti.so.13"
            }
            Self::AnotherSubscriber(_) => {
                "run without the other profiler (nsys, ncu, compute-sanitizer, cuda-gdb, a framework's own profiler); \
                 CUPTI before 13.2 serves one at a time"
            }
            Self::NotPermitted => {
                "allow profiling for all users (driver option NVreg_RestrictProfilingToAdminUsers=0, then reload the \
                 driver), or run as root or with CAP_SYS_ADMIN"
            }
            Self::Wsl => {
                "trace on a native Linux host; under WSL CUPTI needs a recent Windows driver with profiling allowed in the NVIDIA control panel"
            }
            Self::Mig => "trace on a whole GPU, or use a driver and CUPTI that support tracing in this MIG profile",
            Self::Virtualized => "enable profiling for this vGPU in the hypervisor (enable_profiling=1)",
            Self::ConfidentialComputing => "trace on a machine with confidential computing off or in devtools mode",
            Self::HardwareBusy => {
                "stop whatever holds the counters: `dcgmi profile --pause` for DCGM, or the other profiler"
            }
            Self::NotCompatible(_) => "use the CUPTI of the driver's CUDA version (`workbench doctor` shows both)",
            Self::NoDevice(_) => {
                "run on a machine with an NVIDIA GPU and driver (`workbench doctor` says what is missing)"
            }
            Self::AlreadyActive => "finish the first session before the next one",
            Self::Other(_) => "`workbench doctor` checks driver, CUPTI and permissions",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CuptiMissing(e) => write!(f, "CUPTI cannot be loaded: {e}"),
            Self::AnotherSubscriber(Some(name)) => write!(f, "another profiler is attached: {name}"),
            Self::AnotherSubscriber(None) => write!(f, "another profiler is attached to this process"),
            Self::NotPermitted => write!(f, "the driver does not permit profiling for this user"),
            Self::Wsl => write!(f, "CUPTI does not support this device under WSL"),
            Self::Mig => write!(f, "CUPTI does not support this MIG device"),
            Self::Virtualized => write!(f, "CUPTI does not support this virtual GPU, or profiling is off for it"),
            Self::ConfidentialComputing => write!(f, "the GPU runs in confidential-computing mode"),
            Self::HardwareBusy => write!(f, "another tool (often DCGM) holds the profiling hardware"),
            Self::NotCompatible(e) => write!(f, "CUPTI does not fit the driver: {e}"),
            Self::NoDevice(e) => write!(f, "CUDA cannot be initialised: {e}"),
            Self::AlreadyActive => write!(f, "a capture is already running in this process"),
            Self::Other(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for Problem {}

impl From<LoadError> for Problem {
    fn from(e: LoadError) -> Self {
        Self::CuptiMissing(e.to_string())
    }
}

impl From<Error> for Problem {
    fn from(e: Error) -> Self {
        let Some(code) = e.code else { return Self::NotCompatible(e.to_string()) };
        match code {
            CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => Self::AnotherSubscriber(None),
            CUptiResult::CUPTI_ERROR_INSUFFICIENT_PRIVILEGES => Self::NotPermitted,
            CUptiResult::CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED => Self::Wsl,
            CUptiResult::CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED => Self::Mig,
            CUptiResult::CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED
            | CUptiResult::CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES => Self::Virtualized,
            CUptiResult::CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED => Self::ConfidentialComputing,
            CUptiResult::CUPTI_ERROR_HARDWARE_BUSY => Self::HardwareBusy,
            CUptiResult::CUPTI_ERROR_NOT_COMPATIBLE
            | CUptiResult::CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE
            | CUptiResult::CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED
            | CUptiResult::CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED => Self::NotCompatible(e.to_string()),
            // 999 is what CUPTI answers where libcuda is missing or cuInit fails.
            CUptiResult::CUPTI_ERROR_NOT_INITIALIZED
            | CUptiResult::CUPTI_ERROR_INVALID_DEVICE
            | CUptiResult::CUPTI_ERROR_UNKNOWN => Self::NoDevice(e.to_string()),
            _ => Self::Other(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_names_with_a_fix() {
        for (code, name) in [
            (CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "another_subscriber"),
            (CUptiResult::CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "not_permitted"),
            (CUptiResult::CUPTI_ERROR_UNKNOWN, "no_device"),
            (CUptiResult::CUPTI_ERROR_HARDWARE_BUSY, "hardware_busy"),
            (CUptiResult(12345), "other"),
        ] {
            let p = Problem::from(Error { function: "cuptiActivityEnable", code: Some(code) });
            assert_eq!(p.name(), name);
            assert!(!p.fix().is_empty() && !p.to_string().is_empty());
        }
    }
}
