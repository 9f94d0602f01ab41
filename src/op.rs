//! What an operation is, with no CUDA in it: shapes, least cost, buffers, launches as data, and the check of a result.
//!
//! A launch is a value ([`Launch`]): the GPU runs it through `cuLaunchKernelEx`, the host emulator runs it on fibers,
//! and a decode step is nothing but a list of them. So one description serves `verify`, `bench`, `step` and CI.
//! `build.rs` compiles this file too (the registry is its build list), hence std and `half` only.

use std::fmt;

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    F32,
    Bf16,
    F16,
    /// 8-bit float, 4 exponent and 3 mantissa bits, no infinities (OCP E4M3).
    E4m3,
    U8,
    I32,
    U32,
    I64,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            Self::E4m3 | Self::U8 => 1,
            Self::Bf16 | Self::F16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::I64 => 8,
        }
    }
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::E4m3 => "e4m3",
            Self::U8 => "u8",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
        }
    }
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "f32" | "fp32" => Self::F32,
            "bf16" => Self::Bf16,
            "f16" | "fp16" => Self::F16,
            "e4m3" | "fp8" => Self::E4m3,
            "u8" => Self::U8,
            "i32" => Self::I32,
            "u32" => Self::U32,
            "i64" => Self::I64,
            _ => return None,
        })
    }
    /// Unit roundoff of a floating type; 0 for integers.
    pub const fn epsilon(self) -> f64 {
        match self {
            Self::F32 => 5.960_464_477_539_063e-8,
            Self::Bf16 => 3.906_25e-3,
            Self::F16 => 4.882_812_5e-4,
            Self::E4m3 => 6.25e-2,
            _ => 0.0,
        }
    }
}

/// A shape that an op cannot take, or a word that names nothing; the text says the rule and the numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpError(pub String);

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for OpError {}

/// Shorthand for the result of a shape check.
pub type OpResult<T> = Result<T, OpError>;

/// Builds an [`OpError`] from a format string.
#[macro_export]
macro_rules! op_error {
    ($($arg:tt)*) => { $crate::op::OpError(format!($($arg)*)) };
}

/// A concrete problem size: ordered `key=value` pairs, such as `m=1,n=4096,k=4096,dtype=bf16`.
///
/// The text form is the command line's, the JSON's and the notebook's, so there is one spelling of a shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape(Vec<(String, String)>);

impl Shape {
    pub fn new() -> Self {
        Self::default()
    }
    /// Reads `key=value,key=value`; sizes may end in `k`, `m` or `g` (powers of 1024).
    pub fn parse(text: &str) -> OpResult<Self> {
        let mut shape = Self::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| OpError(format!("`{part}` in shape `{text}` is not key=value")))?;
            if shape.word(key.trim()).is_some() {
                return Err(OpError(format!("shape `{text}` gives `{}` twice", key.trim())));
            }
            shape.set(key.trim(), value.trim());
        }
        Ok(shape)
    }
    /// The same shape with one dimension set.
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.set(key, value);
        self
    }
    pub fn set(&mut self, key: &str, value: impl fmt::Display) {
        let value = value.to_string();
        match self.0.iter_mut().find(|(k, _)| k == key) {
            Some(slot) => slot.1 = value,
            None => self.0.push((key.to_string(), value)),
        }
    }
    pub fn word(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
    /// A size, or `default` where the key is absent.
    pub fn int_or(&self, key: &str, default: u64) -> OpResult<u64> {
        let Some(text) = self.word(key) else { return Ok(default) };
        let (digits, scale) = match text.as_bytes().last() {
            Some(b'k') => (&text[..text.len() - 1], 1u64 << 10),
            Some(b'm') => (&text[..text.len() - 1], 1 << 20),
            Some(b'g') => (&text[..text.len() - 1], 1 << 30),
            _ => (text, 1),
        };
        digits
            .parse::<u64>()
            .ok()
            .and_then(|v| v.checked_mul(scale))
            .ok_or_else(|| OpError(format!("{key}={text} is not a size (digits, then optionally k, m or g)")))
    }
    /// A size that must be given.
    pub fn int(&self, key: &str) -> OpResult<u64> {
        if self.word(key).is_none() {
            return Err(OpError(format!("shape `{self}` lacks `{key}`")));
        }
        self.int_or(key, 0)
    }
    /// A floating-point value, or `default`.
    pub fn float_or(&self, key: &str, default: f64) -> OpResult<f64> {
        match self.word(key) {
            None => Ok(default),
            Some(t) => t.parse().map_err(|_| OpError(format!("{key}={t} is not a number"))),
        }
    }
    /// The element type under `dtype`, or bf16.
    pub fn dtype(&self) -> OpResult<DType> {
        self.dtype_or("dtype", DType::Bf16)
    }
    pub fn dtype_or(&self, key: &str, default: DType) -> OpResult<DType> {
        match self.word(key) {
            None => Ok(default),
            Some(t) => DType::parse(t).ok_or_else(|| OpError(format!("{key}={t} is no element type"))),
        }
    }
    /// One of the given words, or the first of them where the key is absent.
    pub fn choice(&self, key: &str, words: &[&'static str]) -> OpResult<&'static str> {
        let Some(text) = self.word(key) else { return Ok(words[0]) };
        words
            .iter()
            .find(|w| **w == text)
            .copied()
            .ok_or_else(|| OpError(format!("{key}={text} is none of {}", words.join(", "))))
    }
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(k, _)| k.as_str())
    }
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: Vec<String> = self.0.iter().map(|(k, v)| format!("{k}={v}")).collect();
        f.pad(&text.join(","))
    }
}

/// Direction of memory traffic; reads and writes have different ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    Read,
    Write,
}

/// One named part of the least traffic: `weights`, `scales`, `kv`, `out`, …
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub name: &'static str,
    pub traffic: Traffic,
    pub bytes: u64,
}

/// The unit whose rate bounds the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// fp32 fused multiply-add outside the tensor cores.
    Fp32,
    /// Tensor cores, bf16 or fp16 operands with fp32 accumulation.
    Tensor16,
    /// Tensor cores, 8-bit float operands.
    Tensor8,
}

/// The least that physics asks for: each input read once, each output written once, and the arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    pub terms: Vec<Term>,
    pub flops: u64,
    pub unit: Unit,
}

impl Cost {
    pub fn new(unit: Unit, flops: u64) -> Self {
        Self { terms: Vec::new(), flops, unit }
    }
    pub fn read(mut self, name: &'static str, bytes: u64) -> Self {
        if bytes > 0 {
            self.terms.push(Term { name, traffic: Traffic::Read, bytes });
        }
        self
    }
    pub fn write(mut self, name: &'static str, bytes: u64) -> Self {
        if bytes > 0 {
            self.terms.push(Term { name, traffic: Traffic::Write, bytes });
        }
        self
    }
    pub fn bytes(&self) -> u64 {
        self.terms.iter().map(|t| t.bytes).sum()
    }
    pub fn bytes_of(&self, traffic: Traffic) -> u64 {
        self.terms.iter().filter(|t| t.traffic == traffic).map(|t| t.bytes).sum()
    }
}

/// Targets a variant is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    Sm80,
    Sm86,
    Sm89,
    Sm90,
    /// sm_90 with its architecture-specific instructions (wgmma, setmaxnreg); runs on 9.0 only.
    Sm90a,
}

impl Arch {
    /// Everything that has bf16 tensor cores, without 9.0's own instructions.
    pub const ALL: &'static [Arch] = &[Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm90];
    pub const HOPPER: &'static [Arch] = &[Arch::Sm90a];
    pub const fn number(self) -> u32 {
        match self {
            Self::Sm80 => 80,
            Self::Sm86 => 86,
            Self::Sm89 => 89,
            Self::Sm90 | Self::Sm90a => 90,
        }
    }
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm86 => "sm_86",
            Self::Sm89 => "sm_89",
            Self::Sm90 => "sm_90",
            Self::Sm90a => "sm_90a",
        }
    }
}

/// One way to compute an op: one source file in the op's folder.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Name within the op: `online` in `softmax/online`.
    pub name: &'static str,
    /// File in the op's folder, `.cu` or `.ptx`.
    pub file: &'static str,
    pub archs: &'static [Arch],
    /// Whether the host emulator can run it (no wgmma, no TMA, no hand-written PTX).
    pub emulated: bool,
    /// One line: the idea that this step teaches.
    pub about: &'static str,
}

/// What a launch has to know of the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip {
    /// Compute capability as one number: 90 for 9.0.
    pub sm: u32,
    /// Multiprocessors.
    pub sms: u32,
    pub l2_bytes: u64,
    /// Largest dynamic shared memory of a block after opting in, bytes.
    pub shared_optin: u32,
}

impl Chip {
    /// NVIDIA H200 as its driver reports it.
    pub const H200: Chip = Chip { sm: 90, sms: 132, l2_bytes: 60 << 20, shared_optin: 232_448 };
}

/// How a buffer begins.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// Random, about normal (a sum of four uniforms), mean 0.
    Normal {
        std: f32,
    },
    /// Uniform in [lo, hi).
    Uniform {
        lo: f32,
        hi: f32,
    },
    /// Uniform random bits.
    Bits,
    Bytes(Vec<u8>),
    Zero,
    /// 0xFF in every byte: NaN in every float type, so an unwritten output is seen.
    Poison,
}

/// What a buffer is to the op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Input,
    Output,
    /// Read and written (a KV cache that is appended to).
    InOut,
}

/// One argument array of an op: a flat run of `len` elements; layouts are in the op's documentation.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub name: &'static str,
    pub role: Role,
    pub dtype: DType,
    pub len: u64,
    pub init: Init,
}

impl Buffer {
    pub fn input(name: &'static str, dtype: DType, len: u64, init: Init) -> Self {
        Self { name, role: Role::Input, dtype, len, init }
    }
    pub fn output(name: &'static str, dtype: DType, len: u64) -> Self {
        Self { name, role: Role::Output, dtype, len, init: Init::Poison }
    }
    pub fn inout(name: &'static str, dtype: DType, len: u64, init: Init) -> Self {
        Self { name, role: Role::InOut, dtype, len, init }
    }
    pub fn bytes(&self) -> u64 {
        self.len * self.dtype.size()
    }
}

/// Addresses of an op's buffers, by name; `workspace` is the scratch that [`Op::workspace`] asked for.
#[derive(Clone, Debug, Default)]
pub struct Bindings(Vec<(String, u64)>);

impl Bindings {
    pub fn new() -> Self {
        Self::default()
    }
    pub fn set(&mut self, name: &str, address: u64) {
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some(slot) => slot.1 = address,
            None => self.0.push((name.to_string(), address)),
        }
    }
    pub fn with(mut self, name: &str, address: u64) -> Self {
        self.set(name, address);
        self
    }
    /// The address bound to `name`.
    pub fn get(&self, name: &str) -> OpResult<u64> {
        self.maybe(name).ok_or_else(|| OpError(format!("no buffer is bound to `{name}`")))
    }
    pub fn maybe(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, a)| *a)
    }
}

/// A tensor-map descriptor (TMA), encoded by the driver at launch preparation; row-major, innermost dimension first.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMap {
    pub address: u64,
    pub dtype: DType,
    /// Elements in each dimension, innermost first.
    pub dims: Vec<u64>,
    /// Bytes between neighbours in each dimension but the innermost; multiples of 16.
    pub strides: Vec<u64>,
    pub box_dims: Vec<u32>,
    /// Bytes of the shared-memory swizzle: 0, 32, 64 or 128.
    pub swizzle: u32,
}

/// One kernel argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    Ptr(u64),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    F32(f32),
    TensorMap(Box<TensorMap>),
}

/// One kernel launch as data. Times, addresses and the chip are settled; nothing of CUDA is needed to make one.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Which compiled image: `op/variant`.
    pub image: String,
    /// The `extern "C"` name of the kernel.
    pub entry: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Blocks in a cluster; `[1, 1, 1]` for none (needs 9.0 otherwise).
    pub cluster: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub shared: u32,
    /// May begin before its predecessor in the stream has ended (programmatic dependent launch). Only for a kernel
    /// that executes griddepcontrol.wait before its first dependent access.
    pub programmatic: bool,
    pub args: Vec<Arg>,
}

impl Launch {
    pub fn new(image: impl Into<String>, entry: impl Into<String>, grid: [u32; 3], block: [u32; 3]) -> Self {
        Self {
            image: image.into(),
            entry: entry.into(),
            grid,
            block,
            cluster: [1; 3],
            shared: 0,
            programmatic: false,
            args: Vec::new(),
        }
    }
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared = bytes;
        self
    }
    pub fn cluster(mut self, blocks: [u32; 3]) -> Self {
        self.cluster = blocks;
        self
    }
    pub fn programmatic(mut self) -> Self {
        self.programmatic = true;
        self
    }
    pub fn arg(mut self, arg: Arg) -> Self {
        self.args.push(arg);
        self
    }
    pub fn ptr(self, address: u64) -> Self {
        self.arg(Arg::Ptr(address))
    }
    pub fn i32(self, v: i64) -> Self {
        self.arg(Arg::I32(i32::try_from(v).expect("checked by the op's shape rules")))
    }
    pub fn i64(self, v: i64) -> Self {
        self.arg(Arg::I64(v))
    }
    pub fn f32(self, v: f32) -> Self {
        self.arg(Arg::F32(v))
    }
}

/// Reads buffers back, wherever they live.
pub trait View {
    /// Elements `first .. first + len` of a buffer, widened to f64 (integers exactly up to 2^53).
    fn read(&self, name: &str, first: u64, len: u64) -> OpResult<Vec<f64>>;
    /// The same elements as they lie in memory.
    fn raw(&self, name: &str, first: u64, len: u64) -> OpResult<Vec<u8>>;
    /// Elements as they were before the launches: what a check of a read-and-written buffer starts from.
    fn first(&self, name: &str, _first: u64, _len: u64) -> OpResult<Vec<f64>> {
        Err(OpError(format!("the first contents of `{name}` are not known here")))
    }
}

/// How one output compares with its f64 reference.
#[derive(Clone, Debug)]
pub struct Check {
    pub output: &'static str,
    /// ‖out − ref‖ / ‖ref‖ over the elements compared (absolute where the reference is all zero).
    pub error: f64,
    pub tolerance: f64,
    /// Elements compared.
    pub compared: u64,
    /// Index and values (got, expected) of the worst element.
    pub worst: Option<(u64, f64, f64)>,
    /// A violated contract, in words (a NaN, a wrong empty row).
    pub broken: Option<String>,
}

impl Check {
    /// Compares `got` with `want` element by element; NaN passes only where the reference is NaN, and infinities must agree.
    pub fn compare(output: &'static str, got: &[f64], want: &[f64], tolerance: f64) -> Self {
        let mut check = Self { output, error: 0.0, tolerance, compared: got.len() as u64, worst: None, broken: None };
        let (mut num, mut den, mut worst) = (0.0f64, 0.0f64, -1.0f64);
        if got.len() != want.len() {
            check.broken = Some(format!("{} elements, expected {}", got.len(), want.len()));
            return check;
        }
        for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
            if w.is_nan() || w.is_infinite() || !g.is_finite() {
                if !((w.is_nan() && g.is_nan()) || g == w) && check.broken.is_none() {
                    check.broken = Some(format!("element {i} is {g}, expected {w}"));
                    check.worst = Some((i as u64, g, w));
                }
                continue;
            }
            let d = (g - w).abs();
            num += d * d;
            den += w * w;
            if d > worst {
                worst = d;
                if check.broken.is_none() {
                    check.worst = Some((i as u64, g, w));
                }
            }
        }
        check.error = if den > 0.0 { (num / den).sqrt() } else { num.sqrt() };
        check
    }
    pub fn ok(&self) -> bool {
        self.broken.is_none() && self.error <= self.tolerance
    }
}

/// Random numbers for shapes and fills: splitmix64, the same on host and device.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

/// One splitmix64 output for a counter; kernels/common/fill.cu computes the same.
pub const fn mix(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0.wrapping_sub(0x9e37_79b9_7f4a_7c15))
    }
    /// Uniform in `lo..=hi`.
    pub fn range(&mut self, lo: u64, hi: u64) -> u64 {
        lo + self.next_u64() % (hi - lo + 1)
    }
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.range(0, items.len() as u64 - 1) as usize]
    }
}

/// One dimension that an op's shape takes.
#[derive(Clone, Copy, Debug)]
pub struct Dim {
    pub key: &'static str,
    /// Text of the default, or empty where it must be given.
    pub default: &'static str,
    pub about: &'static str,
}

/// An operation: its shape rules, least cost, variants and the check of their results. All pure.
pub trait Op: Sync {
    /// Folder and registry name: `softmax`.
    fn name(&self) -> &'static str;
    /// One line for `workbench list`.
    fn about(&self) -> &'static str;
    fn dims(&self) -> &'static [Dim];
    fn variants(&self) -> &'static [Variant];
    /// Least traffic and arithmetic of a shape.
    fn cost(&self, shape: &Shape) -> OpResult<Cost>;
    /// The arrays a shape needs, in argument order, with their random or fixed contents.
    fn buffers(&self, shape: &Shape, seed: u64) -> OpResult<Vec<Buffer>>;
    /// Whether a variant can compute a shape on a chip; the error names the rule and the numbers.
    fn supports(&self, variant: &str, shape: &Shape, chip: &Chip) -> OpResult<()>;
    /// Scratch bytes that a variant needs, exactly; bound as `workspace`, zeroed once, left zeroed by every launch
    /// sequence that uses counters in it.
    fn workspace(&self, _variant: &str, _shape: &Shape, _chip: &Chip) -> OpResult<u64> {
        Ok(0)
    }
    /// The kernels to launch, in order. An empty list is right for an empty problem.
    fn launches(&self, variant: &str, shape: &Shape, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>>;
    /// The variant to use when nobody names one.
    fn choose(&self, shape: &Shape, chip: &Chip) -> &'static str;
    /// Compares outputs with an f64 reference computed from the inputs as they lie in memory. Large outputs may be
    /// sampled; `compared` says how much was.
    fn check(&self, shape: &Shape, view: &dyn View) -> OpResult<Vec<Check>>;
    /// Shapes that `verify` always runs: the contract's edges.
    fn edge_shapes(&self) -> Vec<Shape>;
    /// A random shape small enough to check in well under a second on the GPU.
    fn random_shape(&self, rng: &mut Rng) -> Shape;
    /// Shapes too large for every day that the contract names (offsets beyond 2^31 and the like); `verify --large`.
    fn large_shapes(&self) -> Vec<Shape> {
        Vec::new()
    }
    /// Shapes that `bench` sweeps by default.
    fn bench_shapes(&self) -> Vec<Shape>;

    fn variant(&self, name: &str) -> OpResult<&'static Variant> {
        self.variants().iter().find(|v| v.name == name).ok_or_else(|| {
            let names: Vec<_> = self.variants().iter().map(|v| v.name).collect();
            OpError(format!("{} has no variant `{name}`; it has {}", self.name(), names.join(", ")))
        })
    }
}

/// The known name that is nearest to one that is not, where one is near enough to be meant: one that goes on where this
/// one ends (`a100` for `a100-40`), one with few letters wrong, one that this one goes on from (`h200-sxm`), one whose
/// beginning has few letters wrong (`lama3` for `llama-3-8b`); of equally near ones the shortest.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |t: &str| t.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect::<Vec<char>>();
    let wanted = plain(name);
    let (n, few) = (wanted.len(), (wanted.len() / 3).max(1));
    // (kind of nearness, letters wrong, length)
    let order = |key: &[char]| {
        let edits = edits(&wanted, key);
        let (whole, start) = (edits[key.len()], edits.iter().copied().min().unwrap_or(n));
        match () {
            () if n == 0 || key.is_empty() => None,
            () if key.starts_with(&wanted) => Some((0, 0, key.len())),
            () if whole <= few => Some((1, whole, key.len())),
            () if key.len() >= 3 && wanted.starts_with(key) => Some((2, n - key.len(), key.len())),
            () if n >= 4 && start <= few => Some((3, start, key.len())),
            () => None,
        }
    };
    known.into_iter().filter_map(|k| Some((order(&plain(k))?, k))).min_by_key(|(order, _)| *order).map(|(_, k)| k)
}

/// Single-letter edits from one word to every beginning of another, the empty one first (Levenshtein).
fn edits(a: &[char], b: &[char]) -> Vec<usize> {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_read_and_print() {
        let s = Shape::parse("m=1, n=128k,dtype=f16").unwrap();
        assert_eq!(s.int("n").unwrap(), 131_072);
        assert_eq!(s.dtype().unwrap(), DType::F16);
        assert_eq!(s.to_string(), "m=1,n=128k,dtype=f16");
        assert!(s.int("k").unwrap_err().0.contains("lacks `k`"));
        assert!(Shape::parse("m=1,n=2,m=1").unwrap_err().0.contains("`m` twice"));
        assert!(Shape::parse("m").is_err());
        assert!(Shape::parse("m=x").unwrap().int("m").is_err());
        assert!(Shape::parse("m=99999999999999999999g").unwrap().int("m").is_err());
    }

    #[test]
    fn compare_catches_nan_and_infinity() {
        assert!(!Check::compare("o", &[f64::NAN], &[1.0], 1.0).ok());
        assert!(Check::compare("o", &[f64::NAN], &[f64::NAN], 0.0).ok());
        assert!(!Check::compare("o", &[f64::NEG_INFINITY], &[0.0], 1.0).ok());
        assert!(Check::compare("o", &[f64::NEG_INFINITY], &[f64::NEG_INFINITY], 0.0).ok());
        let c = Check::compare("o", &[1.0, 2.1], &[1.0, 2.0], 0.1);
        assert!(c.ok() && c.worst.unwrap().0 == 1);
    }

    #[test]
    fn rng_is_the_counter_hash() {
        let mut r = Rng(7);
        assert_eq!(r.next_u64(), mix(7));
    }

    #[test]
    fn the_nearest_name_is_found_and_far_ones_are_not() {
        let known = ["h100", "h200", "rtx4090"];
        assert_eq!(nearest("H-200", known), Some("h200"));
        assert_eq!(nearest("rtx4900", known), Some("rtx4090"));
        assert_eq!(nearest("abacus", known), None);
        assert_eq!(nearest("h200-sxm", known), Some("h200"));
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("a100", ["a10", "a100-40-pcie", "a100-40"]), Some("a100-40"));
        assert_eq!(nearest("lama3", ["qwen3-8b", "llama-3-70b", "llama-3-8b", "gemma-3-12b"]), Some("llama-3-8b"));
        assert_eq!(nearest("foo", ["matmul", "argmax", "softmax"]), None);
    }
}
