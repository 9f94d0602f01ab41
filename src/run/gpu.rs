//! The GPU as an [`Executor`]: plain allocations between guard zones, contents made on the device, launches in order.

use super::Executor;
use super::fill;
use crate::error::{Error, Result};
use crate::launch::{Device, Memory, Modules, Prepared, Stream};
use crate::op::{Arch, Arg, Chip, DType, Init, Launch, Variant};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes of the zone on each side of an allocation; a multiple of 256 keeps the alignment.
const GUARD: u64 = 1024;
/// What the zones hold. A store outside its array changes it and is reported by [`Executor::sync`].
const GUARD_BYTE: u8 = 0xa5;

/// Arrays up to this size share an allocation where no guards stand between them: a bench of many small input sets asks
/// for ten thousand arrays, and each allocation of the driver's would cost more than the time measured.
const SMALL: u64 = 1 << 20;
/// Bytes of such an allocation, and the multiple that arrays in it begin at.
const SLAB: u64 = 32 << 20;
const ALIGN: u64 = 512;

/// An array: its allocation, which it may share, and its bytes.
#[derive(Debug)]
struct Array {
    memory: Rc<Memory>,
    bytes: u64,
}

/// A GPU that holds arrays and runs launches.
#[derive(Debug)]
pub struct Gpu {
    device: Device,
    modules: Modules,
    stream: Stream,
    allocations: BTreeMap<u64, Array>,
    /// The allocation that small arrays are cut from, and how much of it is taken; it goes with its last array.
    slab: Option<(Rc<Memory>, u64)>,
    guards: bool,
    /// What was launched since the last wait, for the error that only the wait can see.
    pending: Vec<String>,
}

impl Gpu {
    /// Opens a GPU; `guards` puts checked zones around every allocation (`verify` wants them, `bench` does not).
    pub fn open(index: u32, guards: bool) -> Result<Self> {
        Self::on(&Device::open(index)?, guards)
    }
    /// The same on a device already open.
    pub fn on(device: &Device, guards: bool) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            modules: Modules::new(device),
            stream: Stream::new(device)?,
            allocations: BTreeMap::new(),
            slab: None,
            guards,
            pending: Vec::new(),
        })
    }
    pub fn device(&self) -> &Device {
        &self.device
    }
    pub fn modules(&self) -> &Modules {
        &self.modules
    }
    /// The stream that everything runs in.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
    /// Settles launches once, to be run or captured many times.
    pub fn prepare(&self, launches: &[Launch]) -> Result<Vec<Prepared>> {
        self.modules.prepare_all(launches)
    }

    fn guard(&self) -> u64 {
        if self.guards { GUARD } else { 0 }
    }
    fn doing(pending: &mut Vec<String>) -> String {
        let list = std::mem::take(pending);
        let from = list.len().saturating_sub(4);
        match list.len() {
            0 => "waiting for the GPU".into(),
            n => format!("running {}{}", if n > 4 { "… " } else { "" }, list[from..].join(", ")),
        }
    }
    /// The allocation that holds `address .. address + bytes`, and the offset in it.
    fn find(&self, address: u64, bytes: u64) -> Result<(&Memory, u64)> {
        let (_, array) = self
            .allocations
            .range(..=address)
            .next_back()
            .filter(|(base, array)| address + bytes <= *base + array.bytes)
            .ok_or_else(|| Error::usage(format!("{bytes} bytes at {address:#x} lie in no allocation")))?;
        Ok((&array.memory, address - array.memory.address()))
    }
    fn wait(&mut self) -> Result<()> {
        let pending = &mut self.pending;
        let waited = self.stream.synchronize(|| Self::doing(pending));
        self.pending.clear();
        waited
    }
    fn check_guards(&self) -> Result<()> {
        if !self.guards {
            return Ok(());
        }
        let mut zone = [0u8; GUARD as usize];
        for (base, Array { memory, bytes: size }) in &self.allocations {
            for (offset, side) in [(0, "before"), (GUARD + *size, "after")] {
                memory.read(offset, &mut zone)?;
                if let Some(i) = zone.iter().position(|b| *b != GUARD_BYTE) {
                    let at = if offset == 0 { GUARD - i as u64 } else { i as u64 };
                    return Err(Error::check(format!(
                        "a kernel wrote {at} bytes {side} the {size}-byte array at {base:#x}"
                    )));
                }
            }
        }
        Ok(())
    }
    fn alloc_small(&mut self, bytes: u64) -> Result<u64> {
        let (memory, taken) = match self.slab.take() {
            Some((memory, taken)) if taken + bytes.max(1) <= SLAB => (memory, taken),
            _ => (Rc::new(Memory::new(&self.device, SLAB)?), 0),
        };
        let address = memory.address() + taken;
        self.allocations.insert(address, Array { memory: memory.clone(), bytes });
        self.slab = Some((memory, (taken + bytes.max(1)).next_multiple_of(ALIGN)));
        Ok(address)
    }
    fn fill_on_device(&mut self, address: u64, dtype: DType, len: u64, init: &Init, key: u64) -> Result<()> {
        let (kind, a, b) = match init {
            Init::Normal { std } => {
                if matches!(dtype, DType::U8 | DType::I32 | DType::U32 | DType::I64) {
                    return Err(Error::usage(format!("a buffer of {} cannot begin normal", dtype.name())));
                }
                (0, std / fill::SUM_STD, 0.0)
            }
            Init::Uniform { lo, hi } => (1, *lo, *hi),
            _ => (2, 0.0, 0.0),
        };
        let (entry, len) = match kind {
            2 => ("fill_bits".to_string(), len * dtype.size()),
            _ => (format!("fill_{}", dtype.name()), len),
        };
        let blocks = len.div_ceil(256).min(u64::from(self.chip().sms) * 32) as u32;
        let launch = Launch::new("common/fill", entry, [blocks, 1, 1], [256, 1, 1])
            .ptr(address)
            .i64(len as i64)
            .arg(Arg::U64(key))
            .i32(kind)
            .f32(a)
            .f32(b);
        self.launch(&[launch])
    }
}

impl Executor for Gpu {
    fn chip(&self) -> Chip {
        self.device.chip()
    }
    fn describe(&self) -> String {
        let info = self.device.info();
        format!("{} (…{})", info.name, info.uuid_tail())
    }
    fn alloc(&mut self, bytes: u64) -> Result<u64> {
        let guard = self.guard();
        if !self.guards && bytes <= SMALL {
            return self.alloc_small(bytes);
        }
        let memory = Memory::new(&self.device, bytes + 2 * guard)?;
        memory.set(0, guard, GUARD_BYTE, &self.stream)?;
        memory.set(guard + bytes, guard, GUARD_BYTE, &self.stream)?;
        let address = memory.address() + guard;
        self.allocations.insert(address, Array { memory: Rc::new(memory), bytes });
        Ok(address)
    }
    fn free(&mut self, address: u64) -> Result<()> {
        let array = self.allocations.get(&address);
        let array = array.ok_or_else(|| Error::usage(format!("{address:#x} is no allocation")))?;
        // Memory that others still use is neither given back nor given out again.
        if Rc::strong_count(&array.memory) == 1 {
            self.wait()?;
        }
        self.allocations.remove(&address);
        Ok(())
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        self.wait()?;
        let (memory, offset) = self.find(address, bytes.len() as u64)?;
        memory.write(offset, bytes)
    }
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.wait()?;
        let (memory, offset) = self.find(address, bytes.len() as u64)?;
        memory.read(offset, bytes)
    }
    fn fill(&mut self, address: u64, dtype: DType, len: u64, init: &Init, key: u64) -> Result<()> {
        let bytes = len * dtype.size();
        if len == 0 {
            return Ok(());
        }
        match init {
            Init::Zero | Init::Poison => {
                let (memory, offset) = self.find(address, bytes)?;
                memory.set(offset, bytes, if *init == Init::Zero { 0 } else { 0xff }, &self.stream)
            }
            Init::Bytes(data) if data.len() as u64 != bytes => {
                Err(Error::usage(format!("{} bytes of initial contents for an array of {bytes}", data.len())))
            }
            Init::Bytes(data) => self.write(address, data),
            _ => {
                self.find(address, bytes).map(|_| ()).and_then(|()| self.fill_on_device(address, dtype, len, init, key))
            }
        }
    }
    fn launch(&mut self, launches: &[Launch]) -> Result<()> {
        for launch in launches {
            self.modules.prepare(launch)?.launch(&self.stream)?;
            self.pending.push(format!("{} ({})", launch.image, launch.entry));
        }
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        self.wait()?;
        self.check_guards()
    }
    fn can_run(&self, op: &str, variant: &Variant) -> Result<()> {
        let sm = self.chip().sm;
        let fits = |arch: &Arch| match arch {
            // Architecture-specific code runs on that chip only; plain code on newer ones too, through its PTX.
            Arch::Sm90a => sm == 90,
            _ => arch.number() <= sm,
        };
        if variant.archs.iter().any(fits) {
            return Ok(());
        }
        let archs: Vec<_> = variant.archs.iter().map(|a| a.name()).collect();
        Err(Error::usage(format!("{op}/{} is for {}; this GPU is sm_{sm}", variant.name, archs.join(", "))))
    }
}
