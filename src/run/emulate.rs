//! The host emulator as an [`Executor`]: each variant's `.cu` text, compiled by g++, runs on fibers (kernels/common/emu.h).

use super::{Executor, fill, guarded::Guarded};
use crate::error::{Error, Result};
use crate::op::{Arg, Chip, DType, Init, Launch, TensorMap, Variant};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};

type LaunchFn = unsafe extern "C" fn(
    entry: *const c_char,
    grid: *const u32,
    block: *const u32,
    cluster: *const u32,
    shared: u32,
    args: *mut *mut c_void,
    sizes: *const u32,
    count: u32,
    order: i32,
    error: *mut c_char,
    capacity: usize,
) -> i32;

/// Runs kernels on the host: slow, but it sees races, deadlocks and stray accesses, and needs no GPU.
#[derive(Debug)]
pub struct Emulator {
    chip: Chip,
    folder: PathBuf,
    libraries: HashMap<String, libloading::Library>,
    arrays: BTreeMap<u64, Guarded>,
    order: i32,
    float_atomics: bool,
}

/// The folder of compiled kernels: `WORKBENCH_EMULATED_DIR`, or `target/emulated` of the project or the working folder.
pub fn folder() -> PathBuf {
    if let Some(dir) = std::env::var_os("WORKBENCH_EMULATED_DIR") {
        return dir.into();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let here = target.join("emulated");
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/emulated");
    if !here.is_dir() && built.is_dir() { built } else { here }
}

impl Emulator {
    /// An emulator of a chip, with kernels from [`folder`].
    pub fn new(chip: Chip) -> Result<Self> {
        Self::with_folder(chip, folder())
    }
    /// The same with kernels from another folder of `OP_VARIANT.so` files.
    pub fn with_folder(chip: Chip, folder: PathBuf) -> Result<Self> {
        if !folder.is_dir() {
            return Err(Error::usage(format!("there are no emulated kernels in {}", folder.display()))
                .try_next("cargo xtask emulate"));
        }
        let (libraries, arrays) = (HashMap::new(), BTreeMap::new());
        Ok(Self { chip, folder, libraries, arrays, order: 0, float_atomics: false })
    }
    fn file(&self, image: &str) -> PathBuf {
        self.folder.join(format!("{}.so", image.replace('/', "_")))
    }
    fn library(&mut self, image: &str) -> Result<&libloading::Library> {
        if !self.libraries.contains_key(image) {
            let file = self.file(image);
            // SAFETY: our own kernels, compiled from this project's sources.
            let library = unsafe { libloading::Library::new(&file) }.map_err(|e| {
                Error::usage(format!("cannot load the emulated kernel {}: {e}", file.display()))
                    .try_next("cargo xtask emulate")
            })?;
            self.libraries.insert(image.to_string(), library);
        }
        Ok(&self.libraries[image])
    }
    /// The array that holds `address .. address + bytes`, and the offset in it.
    fn find(&mut self, address: u64, bytes: u64) -> Result<(&mut Guarded, usize)> {
        let found = self
            .arrays
            .range_mut(..=address)
            .next_back()
            .filter(|(base, array)| address.checked_add(bytes).is_some_and(|end| end <= **base + array.bytes()));
        match found {
            Some((base, array)) => Ok((array, (address - base) as usize)),
            None => Err(Error::usage(format!("{bytes} bytes at {address:#x} lie in no allocation"))),
        }
    }
    fn run(&mut self, launch: &Launch) -> Result<()> {
        let place = format!("{} {}", launch.image, launch.entry);
        if launch.cluster != [1; 3] && self.chip.sm < 90 {
            return Err(Error::usage(format!("{place}: clusters need sm_90, this is sm_{}", self.chip.sm)));
        }
        if launch.shared > self.chip.shared_optin {
            let (want, have) = (launch.shared, self.chip.shared_optin);
            return Err(Error::usage(format!(
                "{place}: {want} bytes of shared memory, sm_{} has {have}",
                self.chip.sm
            )));
        }
        let mut values: Vec<([u64; 16], u32)> = Vec::with_capacity(launch.args.len());
        let one = |v: u64| [v, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for arg in &launch.args {
            values.push(match arg {
                Arg::Ptr(v) | Arg::U64(v) => (one(*v), 8),
                Arg::I64(v) => (one(*v as u64), 8),
                Arg::U32(v) => (one(u64::from(*v)), 4),
                Arg::I32(v) => (one(u64::from(*v as u32)), 4),
                Arg::F32(v) => (one(u64::from(v.to_bits())), 4),
                Arg::TensorMap(map) => (tensor_words(map).map_err(|e| Error::usage(format!("{place}: {e}")))?, 128),
            });
        }
        let sizes: Vec<u32> = values.iter().map(|v| v.1).collect();
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| (&raw mut v.0).cast()).collect();
        let entry = CString::new(launch.entry.as_str()).map_err(|e| Error::usage(format!("{place}: {e}")))?;
        let mut text = [0u8; 768];
        let order = self.order;
        let library = self.library(&launch.image)?;
        // SAFETY: the symbol has this type in kernels/common/emu_launch.h; all pointers outlive the call.
        let result = unsafe {
            let call =
                library.get::<LaunchFn>(b"wb_emu_launch\0").map_err(|e| Error::usage(format!("{place}: {e}")))?;
            call(
                entry.as_ptr(),
                launch.grid.as_ptr(),
                launch.block.as_ptr(),
                launch.cluster.as_ptr(),
                launch.shared,
                pointers.as_mut_ptr(),
                sizes.as_ptr(),
                sizes.len() as u32,
                order,
                text.as_mut_ptr().cast(),
                text.len(),
            )
        };
        match result {
            0 => {}
            2 => self.float_atomics = true,
            _ => {
                let why = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy).unwrap_or_default();
                return Err(Error::check(format!("{place}: {why}")));
            }
        }
        for (base, array) in &self.arrays {
            if let Some(at) = array.damage() {
                let (n, side) = (at.unsigned_abs(), if at < 0 { "before" } else { "behind" });
                let bytes = array.bytes();
                return Err(Error::check(format!(
                    "{place}: wrote {n} bytes {side} the {bytes}-byte array at {base:#x}"
                )));
            }
        }
        Ok(())
    }
}

/// A tensor map as kernels/common/emu_tensor.h reads it.
fn tensor_words(map: &TensorMap) -> std::result::Result<[u64; 16], String> {
    if map.swizzle != 128 || map.dtype.size() != 2 {
        return Err("the emulator copies tensors of 16-bit elements with the 128-byte swizzle only".into());
    }
    let mut words = [0; 16];
    words[0] = map.address;
    words[1] = map.dims.len() as u64;
    for (at, list) in [(2, &map.dims), (7, &map.strides)] {
        words[at..at + list.len()].copy_from_slice(list);
    }
    for (d, size) in map.box_dims.iter().enumerate() {
        words[11 + d] = u64::from(*size);
    }
    Ok(words)
}

impl Executor for Emulator {
    fn chip(&self) -> Chip {
        self.chip
    }
    fn describe(&self) -> String {
        format!("host emulator, sm_{}", self.chip.sm)
    }
    fn alloc(&mut self, bytes: u64) -> Result<u64> {
        let array = Guarded::new(bytes)?;
        let address = array.address();
        self.arrays.insert(address, array);
        Ok(address)
    }
    fn free(&mut self, address: u64) -> Result<()> {
        let freed = self.arrays.remove(&address);
        freed.map(drop).ok_or_else(|| Error::usage(format!("{address:#x} is no allocation to free")))
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let (array, offset) = self.find(address, bytes.len() as u64)?;
        array.slice()[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let (array, offset) = self.find(address, bytes.len() as u64)?;
        bytes.copy_from_slice(&array.slice()[offset..offset + bytes.len()]);
        Ok(())
    }
    fn fill(&mut self, address: u64, dtype: DType, len: u64, init: &Init, key: u64) -> Result<()> {
        if let Init::Bytes(data) = init
            && data.len() as u64 != len * dtype.size()
        {
            let (have, want) = (data.len(), len * dtype.size());
            return Err(Error::usage(format!("initial contents of {have} bytes for an array of {want}")));
        }
        let bytes = fill::bytes(init, dtype, key, 0, len)?;
        self.write(address, &bytes)
    }
    fn launch(&mut self, launches: &[Launch]) -> Result<()> {
        launches.iter().try_for_each(|launch| self.run(launch))
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn can_run(&self, op: &str, variant: &Variant) -> Result<()> {
        let name = format!("{op}/{}", variant.name);
        if !variant.emulated {
            return Err(Error::usage(format!("{name} uses instructions that only a GPU has")));
        }
        if !variant.archs.iter().any(|a| a.number() <= self.chip.sm) {
            return Err(Error::usage(format!("{name} is not compiled for sm_{}", self.chip.sm)));
        }
        let file = self.file(&name);
        if !file.is_file() {
            return Err(Error::usage(format!("{} is missing", file.display())).try_next("cargo xtask emulate"));
        }
        Ok(())
    }
    fn schedules(&self) -> u32 {
        3
    }
    fn set_schedule(&mut self, schedule: u32) {
        self.order = schedule as i32;
    }
    fn take_float_atomics(&mut self) -> bool {
        std::mem::take(&mut self.float_atomics)
    }
}
