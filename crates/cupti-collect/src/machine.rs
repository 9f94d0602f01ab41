//! What driver and devices there are, asked of the libcuda that the process has loaded. No context is made.

use std::ffi::{CStr, c_char, c_int};

/// A device of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineDevice {
    pub name: String,
    /// Compute capability as one number: 90.
    pub sm: u32,
    pub sms: u32,
    /// Hexadecimal, empty where the driver does not tell.
    pub uuid: String,
}

fn libcuda() -> Option<libloading::os::unix::Library> {
    // RTLD_NOLOAD: only where the program uses CUDA already.
    // SAFETY: nothing is loaded, so no initialiser runs.
    unsafe { libloading::os::unix::Library::open(Some("libcuda.so.1"), libc::RTLD_NOW | 0x4) }.ok()
}

/// `cuDriverGetVersion`: 13000 for CUDA 13.0. None where libcuda is not loaded.
pub fn driver_version() -> Option<u32> {
    let lib = libcuda()?;
    let mut version: c_int = 0;
    // SAFETY: the driver API's own signature; it may be called before cuInit.
    let code =
        unsafe { lib.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion\0").ok()?(&mut version) };
    (code == 0).then_some(version as u32)
}

impl MachineDevice {
    /// The device that CUDA numbers `id`, once CUDA is initialised.
    pub fn query(id: u32) -> Option<Self> {
        let lib = libcuda()?;
        type Get = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
        type Name = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
        type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
        // SAFETY: the driver API's own signatures, and buffers of the sizes given.
        unsafe {
            let (mut device, mut name) = (0, [0 as c_char; 256]);
            if lib.get::<Get>(b"cuDeviceGet\0").ok()?(&mut device, id as c_int) != 0
                || lib.get::<Name>(b"cuDeviceGetName\0").ok()?(name.as_mut_ptr(), 255, device) != 0
            {
                return None;
            }
            let get = lib.get::<Attribute>(b"cuDeviceGetAttribute\0").ok()?;
            let attribute = |which: c_int| {
                let mut v = 0;
                if get(&mut v, which, device) == 0 { v as u32 } else { 0 }
            };
            // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR and _MULTIPROCESSOR_COUNT.
            let (major, minor, sms) = (attribute(75), attribute(76), attribute(16));
            let name = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
            let mut uuid = [0u8; 16];
            type Uuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int;
            let told = lib.get::<Uuid>(b"cuDeviceGetUuid_v2\0").is_ok_and(|get| get(&mut uuid, device) == 0);
            let uuid = if told { uuid.iter().map(|b| format!("{b:02x}")).collect() } else { String::new() };
            Some(Self { name, sm: major * 10 + minor, sms, uuid })
        }
    }
}
