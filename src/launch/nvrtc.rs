//! Kernels compiled at run time, for a program that was built without nvcc or for another architecture.

use super::image::Image;
use super::libs;
use crate::error::{Error, Result};
use crate::toolchain;
use cudarc::nvrtc::sys::{self, nvrtcResult};
use std::ffi::{CString, c_char};

/// Whether NVRTC can be loaded, from the loader's path or from an installation in a usual place.
pub fn present() -> bool {
    // SAFETY: only tries to load the library.
    libs::available("nvrtc", || unsafe { sys::is_culib_present() })
}

/// Version of NVRTC as `major.minor`.
pub fn version() -> Option<String> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is present; valid out pointers.
    (present() && unsafe { sys::nvrtcVersion(&mut major, &mut minor) } == nvrtcResult::NVRTC_SUCCESS)
        .then(|| format!("{major}.{minor}"))
}

/// Compiles an image's embedded source to machine code for a compute capability (90 for 9.0, taken as `sm_90a`).
///
/// # Errors
/// [`crate::error::Kind::NoDevice`] without NVRTC; [`crate::error::Kind::Check`] with the compiler's log.
pub fn compile(image: &Image, sm: u32) -> Result<Vec<u8>> {
    if !present() {
        return Err(Error::no_device(format!(
            "{} has no machine code for sm_{sm} in this program, and NVRTC is not here to compile it",
            image.name
        ))
        .try_next("`cargo xtask toolchain` and build again, or set CUDA_HOME to a toolkit with libnvrtc"));
    }
    let text =
        |s: &str| CString::new(s).map_err(|_| Error::usage(format!("a zero byte in the source of {}", image.name)));
    let (source, name) = (text(image.source)?, text(image.file)?);
    let header_texts = image.headers.iter().map(|h| text(h.text)).collect::<Result<Vec<_>>>()?;
    let header_names = image.headers.iter().map(|h| text(h.include)).collect::<Result<Vec<_>>>()?;
    let texts: Vec<*const c_char> = header_texts.iter().map(|h| h.as_ptr()).collect();
    let names: Vec<*const c_char> = header_names.iter().map(|h| h.as_ptr()).collect();
    let mut options = vec![
        format!("--gpu-architecture=sm_{sm}{}", if sm == 90 { "a" } else { "" }),
        "--std=c++17".into(),
        "--extra-device-vectorization".into(),
        "-lineinfo".into(),
    ];
    let toolkits = toolchain::candidates(std::path::Path::new("."));
    let includes = toolkits.iter().flat_map(toolchain::Toolkit::includes);
    options.extend(includes.map(|dir| format!("--include-path={}", dir.display())));
    let options = options.iter().map(|o| text(o)).collect::<Result<Vec<_>>>()?;
    let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();

    let mut program = Program(std::ptr::null_mut());
    let failed = |status: nvrtcResult, doing: &str| match status {
        nvrtcResult::NVRTC_SUCCESS => Ok(()),
        _ => Err(Error::check(format!("NVRTC, {doing} {}: {status:?}", image.name))),
    };
    // SAFETY: every string outlives the program; sizes come from the library.
    unsafe {
        failed(
            sys::nvrtcCreateProgram(
                &mut program.0,
                source.as_ptr(),
                name.as_ptr(),
                texts.len() as i32,
                texts.as_ptr(),
                names.as_ptr(),
            ),
            "reading",
        )?;
        let status = sys::nvrtcCompileProgram(program.0, options.len() as i32, options.as_ptr());
        if status != nvrtcResult::NVRTC_SUCCESS {
            let mut size = 0;
            let _ = sys::nvrtcGetProgramLogSize(program.0, &mut size);
            let mut log = vec![0u8; size.max(1)];
            let _ = sys::nvrtcGetProgramLog(program.0, log.as_mut_ptr().cast());
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_string();
            return Err(Error::check(format!("NVRTC cannot compile {} for sm_{sm}:\n{log}", image.name)));
        }
        let mut size = 0;
        failed(sys::nvrtcGetCUBINSize(program.0, &mut size), "sizing")?;
        let mut code = vec![0u8; size];
        failed(sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()), "fetching")?;
        Ok(code)
    }
}

struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: created by nvrtcCreateProgram and not yet destroyed.
            unsafe {
                let _ = sys::nvrtcDestroyProgram(&mut self.0);
            }
        }
    }
}
