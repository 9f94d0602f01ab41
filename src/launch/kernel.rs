//! A launch with everything settled, and the one driver call that makes it.

use super::driver::check;
use super::module::{Function, Module};
use super::{Modules, Stream, tensor_map};
use crate::error::{Error, Result};
use crate::op::{Arg, Launch};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::rc::Rc;

/// A launch ready to go. Its arguments live in it, so it may be launched and captured any number of times.
pub struct Prepared {
    launch: Launch,
    function: Rc<Function>,
    _module: Rc<Module>,
    attributes: Vec<sys::CUlaunchAttribute>,
    /// Storage that `pointers` point into: scalars in eight-byte slots, tensor maps in their aligned type.
    _scalars: Box<[u64]>,
    _maps: Box<[sys::CUtensorMap]>,
    pointers: Box<[*mut c_void]>,
}

impl Prepared {
    pub(super) fn new(modules: &Modules, launch: &Launch) -> Result<Self> {
        let what = || format!("{} ({})", launch.image, launch.entry);
        let chip = modules.device().chip();
        let (module, function) = modules.function(&launch.image, &launch.entry)?;
        let threads = launch.block.iter().map(|d| u64::from(*d)).product::<u64>();
        if threads == 0 || launch.grid.contains(&0) {
            return Err(Error::usage(format!("{}: grid {:?}, block {:?} is empty", what(), launch.grid, launch.block)));
        }
        if threads > u64::from(function.max_threads) {
            return Err(Error::usage(format!(
                "{}: {threads} threads a block; with {} registers it can have {}",
                what(),
                function.registers,
                function.max_threads
            )));
        }
        function.allow_shared(launch.shared, chip.shared_optin, &what())?;

        let mut attributes = Vec::new();
        if launch.programmatic && chip.sm >= 90 {
            attributes.push(attribute(
                sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                |v| {
                    v.programmaticStreamSerializationAllowed = 1;
                },
            ));
        }
        if launch.cluster != [1; 3] {
            if chip.sm < 90 {
                return Err(Error::usage(format!("{}: clusters need compute capability 9.0", what())));
            }
            if launch.cluster.iter().product::<u32>() > 8 {
                function.allow_large_cluster(&what())?;
            }
            let [x, y, z] = launch.cluster;
            attributes.push(attribute(sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, |v| {
                v.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            }));
        }

        let mut scalars = vec![0u64; launch.args.len()].into_boxed_slice();
        let mut maps = Vec::new();
        for (slot, arg) in scalars.iter_mut().zip(&launch.args) {
            *slot = match arg {
                Arg::Ptr(v) | Arg::U64(v) => *v,
                Arg::I64(v) => *v as u64,
                // Little-endian: the low bytes of the slot are the value.
                Arg::I32(v) => u64::from(*v as u32),
                Arg::U32(v) => u64::from(*v),
                Arg::F32(v) => u64::from(v.to_bits()),
                Arg::TensorMap(map) => {
                    maps.push(tensor_map::encode(map).map_err(|e| e.at(what()))?);
                    0
                }
            };
        }
        let mut maps = maps.into_boxed_slice();
        let mut next_map = maps.iter_mut();
        let pointers = scalars
            .iter_mut()
            .zip(&launch.args)
            .map(|(slot, arg)| match arg {
                Arg::TensorMap(_) => {
                    std::ptr::from_mut(next_map.next().expect("one map for each such argument")).cast()
                }
                _ => std::ptr::from_mut(slot).cast(),
            })
            .collect();
        Ok(Self {
            launch: launch.clone(),
            function,
            _module: module,
            attributes,
            _scalars: scalars,
            _maps: maps,
            pointers,
        })
    }
    /// The launch that this was made from.
    pub fn launch_data(&self) -> &Launch {
        &self.launch
    }
    pub fn function(&self) -> &Function {
        &self.function
    }
    /// Enqueues the kernel; inside a capture it becomes a node instead.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let ([gx, gy, gz], [bx, by, bz]) = (self.launch.grid, self.launch.block);
        let config = sys::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: self.launch.shared,
            hStream: stream.raw(),
            attrs: self.attributes.as_ptr().cast_mut(),
            numAttrs: self.attributes.len() as u32,
        };
        // SAFETY: the function is live, each pointer leads to an argument of the kernel's parameter size or larger, and
        // the driver copies arguments and attributes before it returns; it writes to neither.
        let status = unsafe {
            sys::cuLaunchKernelEx(&config, self.function.raw, self.pointers.as_ptr().cast_mut(), std::ptr::null_mut())
        };
        check(status, || self.describe())
    }
    /// The launch in words, for errors.
    pub fn describe(&self) -> String {
        format!(
            "launching {} ({}) with grid {:?}, block {:?}, {} bytes of dynamic shared memory",
            self.launch.image, self.launch.entry, self.launch.grid, self.launch.block, self.launch.shared
        )
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("launch", &self.launch).finish_non_exhaustive()
    }
}

fn attribute(
    id: sys::CUlaunchAttributeID,
    set: impl FnOnce(&mut sys::CUlaunchAttributeValue),
) -> sys::CUlaunchAttribute {
    // SAFETY: the type is plain bytes; the union's other members stay zero.
    let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
    attribute.id = id;
    set(&mut attribute.value);
    attribute
}
