//! Images become modules, launches become prepared calls: everything slow about a launch happens here, once.

use super::driver::check;
use super::image::{self, Image};
use super::{Device, Prepared, nvrtc};
use crate::error::{Error, Result};
use crate::op::Launch;
use cudarc::driver::sys::{self, CUfunction_attribute_enum as Attr, CUjit_option_enum as Jit, CUresult};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::rc::Rc;

/// How a module's machine code came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Compiled by nvcc when this program was built.
    Embedded,
    /// Compiled now by NVRTC.
    Nvrtc,
    /// Hand-written PTX compiled now by the driver.
    DriverJit,
}

/// A loaded image.
#[derive(Debug)]
pub struct Module {
    name: String,
    raw: sys::CUmodule,
    pub origin: Origin,
    functions: RefCell<HashMap<String, Rc<Function>>>,
    _device: Device,
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded once; the functions taken from it hold no driver resources.
        unsafe {
            let _ = sys::cuModuleUnload(self.raw);
        }
    }
}

/// One kernel of a module, with the facts that decide whether a launch can work.
#[derive(Debug)]
pub struct Function {
    pub(super) raw: sys::CUfunction,
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block, bytes.
    pub static_shared: u32,
    /// Local memory of a thread (spills and stack), bytes.
    pub local: u32,
    /// Most threads that a block of this kernel can have.
    pub max_threads: u32,
    dynamic_limit: Cell<u32>,
}

impl Function {
    pub fn raw(&self) -> sys::CUfunction {
        self.raw
    }
    fn attribute(raw: sys::CUfunction, attribute: Attr) -> Result<u32> {
        let mut value = 0;
        // SAFETY: a live function, valid out pointer.
        check(unsafe { sys::cuFuncGetAttribute(&mut value, attribute, raw) }, || format!("reading {attribute:?}"))?;
        Ok(value as u32)
    }
    fn set(&self, attribute: Attr, value: u32, what: &str) -> Result<()> {
        // SAFETY: a live function.
        check(unsafe { sys::cuFuncSetAttribute(self.raw, attribute, value as i32) }, || {
            format!("setting {attribute:?} = {value} for {what}")
        })
    }
    /// Raises the dynamic shared memory that launches of this kernel may ask for.
    pub(super) fn allow_shared(&self, dynamic: u32, limit: u32, what: &str) -> Result<()> {
        let total = self.static_shared + dynamic;
        if total > limit {
            return Err(Error::usage(format!(
                "{what} needs {total} bytes of shared memory a block ({} static + {dynamic} dynamic); the GPU has {limit}",
                self.static_shared
            ))
            .try_next("another variant or a smaller shape; `workbench list` shows what each variant needs"));
        }
        if total > 48 << 10 && dynamic > self.dynamic_limit.get() {
            self.set(Attr::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic, what)?;
            self.dynamic_limit.set(dynamic);
        }
        Ok(())
    }
    /// Allows clusters of more than eight blocks, which not every chip can schedule.
    pub(super) fn allow_large_cluster(&self, what: &str) -> Result<()> {
        self.set(Attr::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, what)
    }
}

/// Loads images on first use and keeps them.
#[derive(Clone, Debug)]
pub struct Modules {
    device: Device,
    loaded: Rc<RefCell<HashMap<String, Rc<Module>>>>,
}

impl Modules {
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), loaded: Rc::default() }
    }
    pub fn device(&self) -> &Device {
        &self.device
    }
    /// The module of `op/variant`.
    ///
    /// # Errors
    /// An unknown image; machine code that does not fit the GPU where neither NVRTC nor the driver can make some.
    pub fn module(&self, name: &str) -> Result<Rc<Module>> {
        if let Some(module) = self.loaded.borrow().get(name) {
            return Ok(module.clone());
        }
        let image = image::find(name)
            .ok_or_else(|| Error::usage(format!("there is no kernel image `{name}`")).try_next("`workbench list`"))?;
        let module = Rc::new(self.load(image)?);
        self.loaded.borrow_mut().insert(name.to_string(), module.clone());
        Ok(module)
    }
    /// The kernel `entry` of an image.
    pub fn function(&self, image: &str, entry: &str) -> Result<(Rc<Module>, Rc<Function>)> {
        let module = self.module(image)?;
        let function = module.function(entry)?;
        Ok((module, function))
    }
    /// Settles a launch: module, function, limits, packed arguments, attributes. Launching it is then one driver call.
    pub fn prepare(&self, launch: &Launch) -> Result<Prepared> {
        Prepared::new(self, launch)
    }
    /// Settles a list of launches.
    pub fn prepare_all(&self, launches: &[Launch]) -> Result<Vec<Prepared>> {
        launches.iter().map(|launch| self.prepare(launch)).collect()
    }

    fn load(&self, image: &'static Image) -> Result<Module> {
        let sm = self.device.chip().sm;
        let done = |raw, origin| {
            Ok(Module {
                name: image.name.into(),
                raw,
                origin,
                functions: RefCell::default(),
                _device: self.device.clone(),
            })
        };
        if let Some(fatbin) = image.fatbin()? {
            match load_data(fatbin) {
                (CUresult::CUDA_SUCCESS, raw, _) => return done(raw, Origin::Embedded),
                // Nothing in it for this GPU, or PTX newer than the driver: compile the source instead.
                (
                    CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
                    | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                    | CUresult::CUDA_ERROR_INVALID_PTX,
                    ..,
                ) => {}
                (status, _, log) => check(status, || format!("loading {} {log}", image.name))?,
            }
        }
        if image.is_ptx {
            let text = CString::new(image.source)
                .map_err(|_| Error::usage(format!("a zero byte in the source of {}", image.name)))?;
            let (status, raw, log) = load_data(text.as_bytes_with_nul());
            check(status, || format!("the driver cannot compile {} for sm_{sm}\n{log}\n", image.name))?;
            return done(raw, Origin::DriverJit);
        }
        let code = nvrtc::compile(image, sm)?;
        let (status, raw, log) = load_data(&code);
        check(status, || format!("loading {} from NVRTC {log}", image.name))?;
        done(raw, Origin::Nvrtc)
    }
}

/// Loads a fatbin, cubin or zero-terminated PTX; returns the driver's status, the module and its error log.
fn load_data(data: &[u8]) -> (CUresult, sys::CUmodule, String) {
    let mut raw = std::ptr::null_mut();
    let mut log = vec![0u8; 8 << 10];
    let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
    // SAFETY: the log buffer and both arrays outlive the call; the data is whole.
    let status = unsafe {
        sys::cuModuleLoadDataEx(&mut raw, data.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
    };
    let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
    (status, raw, String::from_utf8_lossy(&log[..end]).trim().to_string())
}

impl Module {
    /// A kernel by its `extern "C"` name.
    pub fn function(&self, entry: &str) -> Result<Rc<Function>> {
        if let Some(function) = self.functions.borrow().get(entry) {
            return Ok(function.clone());
        }
        let name = CString::new(entry).map_err(|_| Error::usage(format!("`{entry}` is no kernel name")))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live module, a terminated name, a valid out pointer.
        check(unsafe { sys::cuModuleGetFunction(&mut raw, self.raw, name.as_ptr()) }, || {
            format!("finding kernel {entry} in {}", self.name)
        })?;
        let get = |attribute| Function::attribute(raw, attribute);
        let function = Rc::new(Function {
            raw,
            registers: get(Attr::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            static_shared: get(Attr::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local: get(Attr::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            max_threads: get(Attr::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            dynamic_limit: Cell::new(0),
        });
        self.functions.borrow_mut().insert(entry.to_string(), function.clone());
        Ok(function)
    }
}
