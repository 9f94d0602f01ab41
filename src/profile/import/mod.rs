//! Reading anyone's trace: the format is told by the content, never by the file's name.

pub mod json;
pub mod kineto;
pub mod ncu;
pub mod nsys;
mod window;
mod zstd;

use super::trace::{CallKind, CopyKind, Defect, Trace};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
pub use window::Window;

/// What a file's first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Chrome trace JSON: an object or an array.
    Json,
    Gzip,
    Zstd,
    Sqlite,
    /// A recording of `workbench trace` or `step`.
    Workbench,
    /// Comma-separated text with Nsight Compute's columns.
    NcuCsv,
    /// A report of Nsight Systems or Compute that only its own tool can read.
    NvidiaReport,
    Unknown,
}

/// Tells the format from the first bytes (4 KiB are plenty).
pub fn detect(head: &[u8]) -> Format {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    match head {
        [0x1f, 0x8b, ..] => Format::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Format::Zstd,
        _ if super::native::is_recording(head) => Format::Workbench,
        _ if head.starts_with(b"SQLite format 3\0") => Format::Sqlite,
        _ if text.starts_with(b"{") || text.starts_with(b"[") => Format::Json,
        _ if has(head, b"\"Kernel Name\"") || has(text, b"==PROF==") => Format::NcuCsv,
        _ if head.starts_with(b"NVR") || has(&head[..head.len().min(64)], b"QDSTRM") => Format::NvidiaReport,
        _ => Format::Unknown,
    }
}

fn has(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|w| w == needle)
}

/// Reads the first bytes of a file, fewer where it is shorter.
pub fn head(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file(path)?.take(4096).read_to_end(&mut bytes).map_err(|e| unreadable(path, &e))?;
    Ok(bytes)
}

/// A pipe is refused before it is opened: a trace is read more than once, and what was read of a pipe is gone.
fn file(path: &Path) -> Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = std::fs::metadata(path).map_err(|e| unreadable(path, &e))?.file_type();
        if kind.is_fifo() || kind.is_socket() {
            return Err(Error::usage(format!("{} is a pipe; a trace is read from a file", path.display()))
                .try_next("write it to a file first; .gz and .zst are read as they are"));
        }
    }
    File::open(path).map_err(|e| unreadable(path, &e))
}

/// A path that cannot be read as a file, and what would make or name a trace.
fn unreadable(path: &Path, e: &std::io::Error) -> Error {
    let place = path.display();
    let (what, next) = match () {
        () if path.join("step.json").exists() => {
            (format!("{place} is the folder of a recorded step"), format!("workbench report {place}"))
        }
        () if path.is_dir() => (format!("{place} is a folder"), "the trace file in it".into()),
        () => {
            let next = "the path of a trace; `workbench trace --output FILE -- CMD` makes one on a machine with a GPU";
            (format!("cannot open {place}: {e}"), next.into())
        }
    };
    Error::usage(what).try_next(next)
}

/// A trace with what only our own recordings know: the windows that the program marked as its steps.
#[derive(Debug, Default)]
pub struct Loaded {
    pub trace: Trace,
    /// Name, start, end.
    pub windows: Vec<(String, i64, i64)>,
}

/// Reads a trace: our own recordings, Kineto or Nsight Systems Chrome JSON (each plain, gzip or zstd), Nsight Systems
/// SQLite.
///
/// # Errors
/// `Usage` where the file cannot be read or is no trace; a damaged one is read as far as it goes, and its `defects` say so.
pub fn load(path: &Path) -> Result<Loaded> {
    let place = path.display();
    if detect(&head(path)?) == Format::Sqlite {
        return Ok(Loaded { trace: nsys::read(path).map_err(|e| e.at(place))?, ..Loaded::default() });
    }
    let mut text = stream(path)?;
    let head = text.fill_buf().map_err(|e| Error::usage(format!("{place} cannot be read: {e}")))?;
    match detect(head) {
        Format::Json => Ok(Loaded { trace: kineto::read(text).map_err(|e| e.at(place))?, ..Loaded::default() }),
        Format::Workbench => {
            let r = super::native::read(text).map_err(|e| e.at(place))?;
            Ok(Loaded { trace: r.trace, windows: r.windows })
        }
        Format::NcuCsv => Err(Error::usage(format!("{place} is an Nsight Compute table; it holds no time line"))
            .try_next("give it beside a trace: `workbench gaps TRACE --ncu FILE.csv`")),
        Format::NvidiaReport => Err(Error::usage(format!("{place} is a report that only NVIDIA's tool reads"))
            .try_next("nsys export --type sqlite FILE.nsys-rep, then `workbench gaps FILE.sqlite`")),
        _ if head.is_empty() => Err(Error::usage(format!("{place} is empty"))),
        _ => Err(Error::usage(format!("{place} is no trace that is known here")).try_next(
            "a PyTorch profiler JSON (.json, .json.gz, .json.zst), `nsys export --type sqlite`, or `workbench trace -- CMD`",
        )),
    }
}

/// [`load`] for callers that need only the trace.
pub fn open(path: &Path) -> Result<Trace> {
    load(path).map(|l| l.trace)
}

/// The file's text, decompressed as needed; also what is compressed twice is read.
pub fn stream(path: &Path) -> Result<Box<dyn BufRead>> {
    decompress(Box::new(file(path)?), 0).map_err(|e| e.at(path.display()))
}

fn decompress(reader: Box<dyn Read>, depth: u32) -> Result<Box<dyn BufRead>> {
    let mut buffered = BufReader::with_capacity(1 << 18, reader);
    let head = buffered.fill_buf().map_err(|e| Error::usage(format!("the stream cannot be read: {e}")))?;
    match detect(head) {
        Format::Gzip if depth < 2 => decompress(Box::new(flate2::bufread::MultiGzDecoder::new(buffered)), depth + 1),
        Format::Zstd if depth < 2 => decompress(Box::new(zstd::Frames::new(buffered)?), depth + 1),
        _ => Ok(Box::new(buffered)),
    }
}
/// What a CUDA, driver or HIP function does, told by its name; version suffixes (`_v7000`, `_ptsz`) do not matter.
pub fn call_kind(name: &str) -> CallKind {
    let stem = ["cuda", "hip", "cu"].iter().find_map(|p| name.strip_prefix(p)).unwrap_or(name);
    if stem.starts_with("GraphLaunch") {
        CallKind::GraphLaunch
    } else if ["Launch", "ModuleLaunch", "ExtLaunch", "ExtModuleLaunch", "Memcpy", "Memset"]
        .iter()
        .any(|p| stem.starts_with(p))
        && !stem.starts_with("LaunchHostFunc")
    {
        CallKind::Launch
    } else if stem.contains("Synchronize") {
        CallKind::Sync
    } else {
        CallKind::Other
    }
}

/// A function's name without the version that Nsight Systems appends: `cudaLaunchKernel_v7000`.
pub fn unversioned(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((stem, digits)) if digits.len() >= 4 && digits.bytes().all(|b| b.is_ascii_digit()) => stem,
        _ => name,
    }
}

/// The direction in a copy's name: `Memcpy HtoD (Pageable -> Device)`, `CopyDeviceToHost`.
pub fn copy_kind(text: &str) -> CopyKind {
    let found = |words: [&str; 2]| words.iter().any(|w| text.contains(w));
    match () {
        () if found(["HtoD", "HostToDevice"]) => CopyKind::HtoD,
        () if found(["DtoH", "DeviceToHost"]) => CopyKind::DtoH,
        () if found(["DtoD", "DeviceToDevice"]) => CopyKind::DtoD,
        () if found(["HtoH", "HostToHost"]) => CopyKind::HtoH,
        () if found(["PtoP", "PeerToPeer"]) => CopyKind::PtoP,
        () => CopyKind::Other,
    }
}

/// Flaws met while reading, counted by name with the place of the first.
#[derive(Debug, Default)]
pub struct Flaws(Vec<Defect>);

impl Flaws {
    pub fn add(&mut self, defect: &str, offset: u64, detail: &str) {
        match self.0.iter_mut().find(|d| d.defect == defect) {
            Some(have) => have.count += 1,
            None => self.0.push(Defect {
                defect: defect.into(),
                count: 1,
                first_offset: Some(offset),
                detail: detail.into(),
                ..Defect::default()
            }),
        }
    }
    pub fn into_defects(self) -> Vec<Defect> {
        self.0
    }
}
