//! Where a driver status becomes an error that a person can act on, and where the driver library is found or not.
//!
//! cudarc loads `libcuda` lazily and panics when it is absent, so [`load`] runs before any other driver call.

use crate::error::{Error, Kind, Result};
use cudarc::driver::sys::{self, CUresult};
use std::ffi::CStr;
use std::sync::OnceLock;

/// The oldest CUDA level whose driver we accept: the bindings are 13.0's.
pub const NEEDED: i32 = 13_000;

/// `13.0` for 13000.
pub fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Finds the driver, initialises it once and returns the CUDA level that it supports.
///
/// # Errors
/// [`Kind::NoDevice`] where there is no driver, it is too old, or it sees no GPU.
pub fn load() -> Result<i32> {
    static STATE: OnceLock<std::result::Result<i32, (String, String)>> = OnceLock::new();
    STATE.get_or_init(start).clone().map_err(|(what, next)| Error::no_device(what).try_next(next))
}

fn start() -> std::result::Result<i32, (String, String)> {
    const REPLAY: &str = "`workbench doctor`; without a GPU, `workbench step` replays a recorded run";
    // SAFETY: plain driver entry points with valid out pointers, called only once the library is known to load.
    unsafe {
        if !sys::is_culib_present() {
            return Err(("there is no NVIDIA driver here (libcuda.so.1 was not found)".into(), REPLAY.into()));
        }
        let mut version = 0;
        let _ = sys::cuDriverGetVersion(&mut version);
        if version > 0 && version < NEEDED {
            return Err((
                format!(
                    "the driver supports CUDA {}; the workbench needs {}",
                    version_text(version),
                    version_text(NEEDED)
                ),
                "install driver 580 or newer, then `workbench doctor`".into(),
            ));
        }
        match sys::cuInit(0) {
            CUresult::CUDA_SUCCESS => Ok(version),
            CUresult::CUDA_ERROR_NO_DEVICE => Err(("the driver sees no GPU".into(), REPLAY.into())),
            status => Err((
                format!("the driver does not start: {}", describe(status)),
                "`nvidia-smi`, then `workbench doctor`".into(),
            )),
        }
    }
}

/// `CUDA_ERROR_INVALID_VALUE (invalid argument)`.
pub fn describe(status: CUresult) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the driver writes a pointer to a static string, or leaves null for a status that it does not know.
    let known = unsafe { sys::cuGetErrorString(status, &mut text) } == CUresult::CUDA_SUCCESS && !text.is_null();
    if known {
        format!("{status:?} ({})", unsafe { CStr::from_ptr(text) }.to_string_lossy())
    } else {
        format!("{status:?}")
    }
}

/// Turns a status into a result; `doing` names the action and the kernel or size, and is built only on failure.
pub fn check(status: CUresult, doing: impl FnOnce() -> String) -> Result<()> {
    if status == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let error = |kind| Error::new(kind, format!("{}: {}", doing(), describe(status)));
    Err(match status {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            error(Kind::Usage).try_next("a smaller shape or batch; `workbench size` says what fits")
        }
        CUresult::CUDA_ERROR_NO_DEVICE
        | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
        | CUresult::CUDA_ERROR_SYSTEM_NOT_READY
        | CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => error(Kind::NoDevice).try_next("`workbench doctor`"),
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUresult::CUDA_ERROR_LAUNCH_FAILED => {
            error(Kind::Check).try_next("the same command under `compute-sanitizer` names the access")
        }
        _ => error(Kind::Check),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_is_an_error_and_no_panic() {
        match load() {
            Ok(version) => assert!(version >= NEEDED),
            Err(e) => {
                assert_eq!(e.kind, Kind::NoDevice);
                assert!(e.next.is_some());
            }
        }
        assert_eq!(version_text(12_040), "12.4");
    }
}
