//! One Chrome trace event as slices of the file: what the accountant needs, found in one pass, the rest skipped.

use super::json::{self, Scanned, Scanner, Value};

/// What an event is, by its category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Category {
    Kernel,
    Memcpy,
    Memset,
    Runtime,
    Driver,
    Sync,
    Overhead,
    /// Host ranges that mean something to a reader: `user_annotation`, `nvtx`.
    Annotation,
    /// Framework operators.
    Operator,
    /// Device work in the Chrome JSON that is made from Nsight Systems files.
    NsysDevice,
    /// Nothing that is accounted: flows, Python functions, device-side copies of annotations.
    Ignored,
    /// No category has been read.
    #[default]
    None,
}

impl Category {
    pub(super) fn of(text: &[u8]) -> Self {
        match text {
            b"kernel" | b"Kernel" => Self::Kernel,
            b"gpu_memcpy" | b"Memcpy" => Self::Memcpy,
            b"gpu_memset" | b"Memset" => Self::Memset,
            b"cuda_runtime" | b"Runtime" | b"hip_runtime" | b"cuda_api" => Self::Runtime,
            b"cuda_driver" | b"hip_driver" => Self::Driver,
            b"cuda_sync" => Self::Sync,
            b"overhead" => Self::Overhead,
            b"user_annotation" | b"nvtx" => Self::Annotation,
            b"cpu_op" | b"Operator" => Self::Operator,
            b"cuda" => Self::NsysDevice,
            _ => Self::Ignored,
        }
    }
}

/// The arguments that are read; numbers are none where absent or not numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Args<'a> {
    pub device: Option<i64>,
    pub stream: Option<i64>,
    pub correlation: Option<i64>,
    pub registers: Option<i64>,
    pub shared: Option<i64>,
    pub bytes: Option<i64>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub graph: Option<i64>,
    pub graph_node: Option<u64>,
    pub kind: &'a [u8],
    pub sync_kind: &'a [u8],
    pub event_stream: Option<i64>,
    pub event_correlation: Option<i64>,
    pub event: Option<i64>,
}

/// An event. Times are in nanoseconds; none where the field is absent or no number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event<'a> {
    /// Phase: `X` complete, `B`/`E` begin and end, others carry no duration.
    pub phase: u8,
    pub category: Category,
    pub name: &'a [u8],
    pub ts: Option<i64>,
    pub duration: Option<i64>,
    /// Digits after the decimal point were seen in `ts` or `dur`.
    pub fraction: bool,
    /// A number came as a string.
    pub quoted: bool,
    pub pid: Option<Value<'a>>,
    pub tid: Option<Value<'a>>,
    pub args: Args<'a>,
}

impl<'a> Event<'a> {
    /// Scans one event; its `{` is next.
    pub fn scan(s: &mut Scanner<'a>) -> Scanned<Self> {
        let mut e = Event { phase: b'X', ..Event::default() };
        if !s.open(b'{', b'}')? {
            return Ok(e);
        }
        loop {
            let key = s.string()?;
            s.expect(b':')?;
            match key {
                b"ph" => {
                    e.phase = s.value()?.bytes().and_then(|b| b.first().copied()).unwrap_or(0);
                    if e.phase != b'X' {
                        // Flows, metadata, instants: nothing of them is needed.
                        s.skip_rest()?;
                        return Ok(e);
                    }
                }
                b"cat" => {
                    e.category = s.value()?.bytes().map_or(Category::Ignored, Category::of);
                    if e.category == Category::Ignored {
                        s.skip_rest()?;
                        return Ok(e);
                    }
                }
                b"name" => e.name = s.value()?.bytes().unwrap_or(b""),
                b"ts" => e.ts = e.time(s.value()?),
                b"dur" => e.duration = e.time(s.value()?),
                b"pid" => e.pid = Some(s.value()?),
                b"tid" => e.tid = Some(s.value()?),
                b"args" if e.category != Category::Operator && s.peek()? == b'{' => e.args = Args::scan(s)?,
                _ => {
                    s.value()?;
                }
            }
            if !s.another(b'}')? {
                return Ok(e);
            }
        }
    }

    pub(super) fn time(&mut self, value: Value<'_>) -> Option<i64> {
        self.quoted |= matches!(value, Value::Text(_));
        let (ns, fraction) = json::micros_to_ns(value.bytes()?)?;
        self.fraction |= fraction;
        Some(ns)
    }
}

impl<'a> Args<'a> {
    fn scan(s: &mut Scanner<'a>) -> Scanned<Self> {
        let mut a = Args::default();
        if !s.open(b'{', b'}')? {
            return Ok(a);
        }
        loop {
            let key = s.string()?;
            s.expect(b':')?;
            let value = s.value()?;
            a.set(key, value);
            if !s.another(b'}')? {
                return Ok(a);
            }
        }
    }
}

impl<'a> Args<'a> {
    /// Takes one argument, if it is one that is read.
    pub(super) fn set(&mut self, key: &[u8], value: Value<'a>) {
        let a = self;
        match key {
            b"device" => a.device = value.integer(),
            b"stream" => a.stream = value.integer(),
            b"correlation" | b"correlationId" => a.correlation = value.integer(),
            b"registers per thread" => a.registers = value.integer(),
            b"shared memory" => a.shared = value.integer(),
            b"bytes" => a.bytes = value.integer(),
            b"grid" => a.grid = triple(value),
            b"block" => a.block = triple(value),
            b"graph id" => a.graph = value.integer(),
            b"graph node id" => a.graph_node = value.bytes().and_then(json::unsigned),
            b"kind" => a.kind = value.bytes().unwrap_or(b""),
            b"cuda_sync_kind" => a.sync_kind = value.bytes().unwrap_or(b""),
            b"wait_on_stream" => a.event_stream = value.integer(),
            b"wait_on_cuda_event_record_corr_id" => a.event_correlation = value.integer(),
            b"wait_on_cuda_event_id" => a.event = value.integer(),
            _ => {}
        }
    }
}

/// `[x, y, z]`, also as text `"[x, y, z]"` or `"(x, y, z)"`; zeros where it is anything else.
fn triple(value: Value<'_>) -> [u32; 3] {
    let (Value::Nested(raw) | Value::Text(raw)) = value else { return [0; 3] };
    let mut out = [0u32; 3];
    let numbers = raw.split(|b| !b.is_ascii_digit()).filter(|t| !t.is_empty());
    for (slot, text) in out.iter_mut().zip(numbers) {
        *slot = json::integer(text).and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
    }
    out
}
