//! A GPU: which one, what it is, and its primary context made current.

use super::driver::{self, check};
use crate::error::{Error, Result};
use crate::op::Chip;
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attr};
use std::rc::Rc;

/// What the driver says of a GPU without opening it.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    pub index: u32,
    pub name: String,
    /// `GPU-xxxxxxxx-…`.
    pub uuid: String,
    pub memory_bytes: u64,
    pub chip: Chip,
}

impl Info {
    /// The last part of the UUID: enough to tell cards apart, too little to track one.
    pub fn uuid_tail(&self) -> &str {
        self.uuid.rsplit('-').next().unwrap_or("")
    }
}

/// An open GPU. Clones share one retained primary context, which everything made on the device keeps alive; all of it
/// belongs to the thread that opened it.
#[derive(Clone)]
pub struct Device(Rc<Inner>);

struct Inner {
    info: Info,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    driver: i32,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained in `open`; nothing else of this device is left.
        unsafe {
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.handle);
        }
    }
}

/// Lists the GPUs that the driver sees.
///
/// # Errors
/// [`crate::error::Kind::NoDevice`] without a driver.
pub fn list() -> Result<Vec<Info>> {
    driver::load()?;
    let mut count = 0;
    // SAFETY: valid out pointer.
    check(unsafe { sys::cuDeviceGetCount(&mut count) }, || "counting the GPUs".into())?;
    (0..count).map(|i| info(i).map(|(info, _)| info)).collect()
}

fn info(index: i32) -> Result<(Info, sys::CUdevice)> {
    let doing = || format!("reading GPU {index}");
    let (mut handle, mut bytes, mut name) = (0, 0usize, [0; 256]);
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: valid out pointers; the name buffer's length is given.
    unsafe {
        check(sys::cuDeviceGet(&mut handle, index), doing)?;
        check(sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32 - 1, handle), doing)?;
        check(sys::cuDeviceGetUuid_v2(&mut uuid, handle), doing)?;
        check(sys::cuDeviceTotalMem_v2(&mut bytes, handle), doing)?;
    }
    let get = |attribute| attribute_of(handle, attribute);
    let name: Vec<u8> = name.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    let hex: String = uuid.bytes.iter().map(|b| format!("{:02x}", *b as u8)).collect();
    let chip = Chip {
        sm: (get(Attr::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? * 10
            + get(Attr::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?) as u32,
        sms: get(Attr::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        l2_bytes: get(Attr::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as u64,
        shared_optin: get(Attr::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as u32,
    };
    let info = Info {
        index: index as u32,
        name: String::from_utf8_lossy(&name).into_owned(),
        uuid: format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]),
        memory_bytes: bytes as u64,
        chip,
    };
    Ok((info, handle))
}

fn attribute_of(handle: sys::CUdevice, attribute: Attr) -> Result<i32> {
    let mut value = 0;
    // SAFETY: valid out pointer and a device that the driver gave.
    check(unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, handle) }, || format!("reading {attribute:?}"))?;
    Ok(value)
}

impl Device {
    /// Opens a GPU by its index and makes its primary context current on this thread.
    ///
    /// # Errors
    /// [`crate::error::Kind::NoDevice`] without a driver, or with the list of GPUs where the index names none.
    pub fn open(index: u32) -> Result<Self> {
        let driver = driver::load()?;
        let gpus = list()?;
        if gpus.get(index as usize).is_none() {
            let names: Vec<_> = gpus.iter().map(|g| format!("{} {}", g.index, g.name)).collect();
            return Err(Error::no_device(format!("there is no GPU {index}; there are: {}", names.join(", ")))
                .try_next("`--gpu` with one of these numbers"));
        }
        let (info, handle) = info(index as i32)?;
        let mut context = std::ptr::null_mut();
        let doing = || format!("opening GPU {index} ({})", info.name);
        // SAFETY: a valid device; the context is released when the last clone goes.
        unsafe {
            check(sys::cuDevicePrimaryCtxRetain(&mut context, handle), doing)?;
            let device = Self(Rc::new(Inner { info: info.clone(), handle, context, driver }));
            check(sys::cuCtxSetCurrent(context), doing)?;
            Ok(device)
        }
    }
    pub fn info(&self) -> &Info {
        &self.0.info
    }
    pub fn chip(&self) -> Chip {
        self.0.info.chip
    }
    /// The CUDA level that the driver supports: 13000 for 13.0.
    pub fn driver(&self) -> i32 {
        self.0.driver
    }
    /// Any attribute of the device.
    pub fn attribute(&self, attribute: Attr) -> Result<i32> {
        attribute_of(self.0.handle, attribute)
    }
    /// The primary context, for libraries that take one.
    pub fn context(&self) -> sys::CUcontext {
        self.0.context
    }
    /// Makes the primary context current again, after a library may have changed it.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained.
        check(unsafe { sys::cuCtxSetCurrent(self.0.context) }, || "making the context current".into())
    }
    /// Free and total device memory in bytes.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: valid out pointers; the context is current.
        check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }, || "asking for free memory".into())?;
        Ok((free as u64, total as u64))
    }
    /// Waits for everything on the device; errors of earlier asynchronous work appear here.
    pub fn synchronize(&self, doing: impl FnOnce() -> String) -> Result<()> {
        // SAFETY: the context is current.
        check(unsafe { sys::cuCtxSynchronize() }, doing)
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({} {})", self.0.info.index, self.0.info.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_gpu_names_those_that_are_there() {
        let e = Device::open(4096).unwrap_err();
        assert_eq!(e.kind, crate::error::Kind::NoDevice);
        assert!(e.what.contains("4096") || driver::load().is_err(), "{e}");
    }
}
