//! NVTX looks for one injection library, and CUPTI is one. Which CUPTI is decided here, by the same search as for the
//! session, because a process's ranges and kernels must go to the same copy.

use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;

/// NVTX calls this on its first use, with the way to its export tables; 0 means that nobody listens.
///
/// # Safety
/// Called by NVTX alone; the pointer is passed on to CUPTI's function of the same name and contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get_export_table: *const c_void) -> c_int {
    // SAFETY: as this function's own contract.
    catch_unwind(|| unsafe { forward(get_export_table) }).ok().flatten().unwrap_or(0)
}

unsafe fn forward(get_export_table: *const c_void) -> Option<c_int> {
    std::env::var_os(crate::settings::OUT)?;
    let lib = cupti_sys::load().ok()?;
    // SAFETY: already loaded, so this only takes another reference, which is kept.
    let library = unsafe { libloading::os::unix::Library::open(Some(&lib.path), libc::RTLD_NOW) }.ok()?;
    // SAFETY: the signature that NVTX documents for injection libraries.
    let initialise =
        *unsafe { library.get::<unsafe extern "C" fn(*const c_void) -> c_int>(b"InitializeInjectionNvtx2\0").ok()? };
    std::mem::forget(library);
    // SAFETY: as above.
    Some(unsafe { initialise(get_export_table) })
}
