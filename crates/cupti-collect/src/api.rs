//! Which API calls matter to an account of device time, chosen by name, so that the choice holds for every CUPTI release.

use cupti_sys::{CUpti_CallbackDomain, Library, call};
use std::ffi::CStr;

/// Callback ids grow with each release; none has come near this.
const IDS: u32 = 2048;

/// Whether a call can put work on the device, wait for it, or hold the host for long: what a gap can be blamed on. The rest
/// (`cudaGetDevice`, `cudaEventQuery`, …) is frequent and explains nothing that its absence would not.
pub fn essential(name: &str) -> bool {
    const PARTS: [&str; 18] = [
        "Launch",
        "Memcpy",
        "Memset",
        "Synchronize",
        "WaitEvent",
        "EventRecord",
        "GraphInstantiate",
        "GraphExecUpdate",
        "GraphUpload",
        "ModuleLoad",
        "LibraryLoad",
        "Malloc",
        "MemAlloc",
        "Free",
        "MemPrefetch",
        "WaitValue",
        "BeginCapture",
        "EndCapture",
    ];
    // Building a graph node by hand is not a launch, nor is reading its parameters.
    PARTS.iter().any(|p| name.contains(p)) && !name.contains("Node") && !name.contains("Attribute")
}

/// Calls that read a property in well under a microsecond and that frameworks make by the hundred a step (870 of 1,500 in
/// one step of a PyTorch loop were `cudaGetDevice`): recorded, they cost more than they last.
const SMALL: [&str; 24] = [
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxGetLimit",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDevicePrimaryCtxGetState",
    "cuDriverGetVersion",
    "cuFuncGetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuKernelGetAttribute",
    "cuKernelGetName",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
    "cuStreamGetCaptureInfo",
    "cuStreamIsCapturing",
    "cudaGetDevice",
    "cudaGetErrorString",
    "cudaGetLastError",
    "cudaPeekAtLastError",
    "cudaStreamGetCaptureInfo",
    "cudaStreamIsCapturing",
];

/// Whether the call is one of those, whatever release's or stream's variant of it.
pub fn small(name: &str) -> bool {
    let end = ["_v", "_ptsz", "_ptds"].iter().filter_map(|s| name.find(s)).min().unwrap_or(name.len());
    SMALL.contains(&&name[..end])
}

/// The name of a driver or runtime function; None for a number that this CUPTI does not know.
pub fn name(lib: &Library, driver: bool, cbid: u32) -> Option<String> {
    let domain = match driver {
        true => CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API,
        false => CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RUNTIME_API,
    };
    let mut text = std::ptr::null();
    // SAFETY: writes one pointer to a constant string of the library.
    unsafe { call!(lib, cuptiGetCallbackName(domain, cbid, &mut text)) }.ok()?;
    // SAFETY: NUL-terminated and constant, if it is there.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Turns the recording of the calls whose names are `chosen` on or off, beside what the kinds RUNTIME and DRIVER say; how
/// many there are. None before 12.6, where there is no choice.
pub fn enable(lib: &Library, chosen: fn(&str) -> bool, on: bool) -> usize {
    let ids = (1..IDS).flat_map(|id| [(true, id), (false, id)]);
    let chosen = ids.filter(|&(driver, id)| name(lib, driver, id).is_some_and(|n| chosen(&n)));
    chosen
        .filter(|&(driver, id)| {
            // SAFETY: take two numbers.
            unsafe {
                match driver {
                    true => call!(lib, cuptiActivityEnableDriverApi(id, on.into())),
                    false => call!(lib, cuptiActivityEnableRuntimeApi(id, on.into())),
                }
            }
            .is_ok()
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_and_waits_are_essential() {
        for n in [
            "cudaLaunchKernel_v7000",
            "cuLaunchKernelEx",
            "cudaGraphLaunch_v10000",
            "cuGraphLaunch_ptsz",
            "cudaMemcpyAsync_v3020",
            "cuMemsetD8Async",
            "cudaStreamSynchronize_v3020",
            "cuStreamWaitEvent",
            "cudaDeviceSynchronize_v3020",
            "cuMemAlloc_v2",
            "cudaFree_v3020",
            "cuModuleLoadData",
        ] {
            assert!(essential(n), "{n}");
        }
        for n in [
            "cudaGetDevice_v3020",
            "cudaEventQuery_v3020",
            "cudaGetLastError_v3020",
            "cuGraphAddKernelNode_v2",
            "cudaStreamIsCapturing_v10000",
            "cuPointerGetAttribute",
            "cudaGraphMemcpyNodeGetParams_v10000",
        ] {
            assert!(!essential(n), "{n}");
        }
    }

    #[test]
    fn what_only_reads_is_small() {
        for n in ["cudaGetDevice_v3020", "cuStreamGetCaptureInfo_v2_ptsz", "cuKernelGetName", "cuCtxPushCurrent_v2"] {
            assert!(small(n) && !essential(n), "{n}");
        }
        // Each may initialise or load something.
        for n in [
            "cudaGetDeviceCount_v3020",
            "cudaGetSymbolAddress_v3020",
            "cudaFuncGetAttributes_v3020",
            "cudaSetDevice_v3020",
        ] {
            assert!(!small(n), "{n}");
        }
    }

    #[test]
    fn the_real_library_names_its_calls() {
        let Ok(lib) = cupti_sys::load() else { return };
        let all = |driver| (1..IDS).filter_map(move |id| name(lib, driver, id)).collect::<Vec<_>>();
        assert!(all(true).iter().any(|n| n == "cuLaunchKernel"));
        assert!(all(false).iter().any(|n| n.starts_with("cudaGraphLaunch")));
        let essential = all(true).iter().chain(&all(false)).filter(|n| super::essential(n)).count();
        assert!((50..400).contains(&essential), "{essential} essential calls");
    }
}
