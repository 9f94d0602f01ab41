//! Memory that catches what touches its surroundings: an inaccessible page ends right behind the array, the slack is
//! patterned and checked. Under AddressSanitizer plain heap memory, whose surroundings the sanitizer watches itself.

use crate::error::{Error, Result};
use std::alloc::Layout;
use std::ffi::c_void;

const PAGE: usize = 4096;
const ALIGN: usize = 256;
const PATTERN: u8 = 0xa5;

unsafe extern "C" {
    fn mmap(at: *mut c_void, bytes: usize, protection: i32, flags: i32, file: i32, offset: i64) -> *mut c_void;
    fn mprotect(at: *mut c_void, bytes: usize, protection: i32) -> i32;
    fn munmap(at: *mut c_void, bytes: usize) -> i32;
}
const PROT_NONE: i32 = 0;
const PROT_READ_WRITE: i32 = 1 | 2;
const MAP_PRIVATE_ANONYMOUS_NORESERVE: i32 = 0x02 | 0x20 | 0x4000;

#[derive(Debug)]
enum Place {
    /// Page, slack, array, slack below 256 bytes, page.
    Mapped {
        base: *mut u8,
        total: usize,
    },
    Heap(Layout),
}

/// One guarded allocation.
#[derive(Debug)]
pub struct Guarded {
    data: *mut u8,
    bytes: usize,
    place: Place,
}

// The memory belongs to this value alone.
unsafe impl Send for Guarded {}

/// Whether AddressSanitizer's runtime is in this process.
fn sanitized() -> bool {
    // SAFETY: the symbol is only looked for, never called.
    unsafe { libloading::os::unix::Library::this().get::<unsafe extern "C" fn()>(b"__asan_init\0").is_ok() }
}

impl Guarded {
    /// Allocates `bytes`, 256-byte aligned, filled with the guard pattern.
    pub fn new(bytes: u64) -> Result<Self> {
        let refuse = || Error::usage(format!("the host has no memory for an array of {bytes} bytes"));
        let size = usize::try_from(bytes).ok().filter(|b| *b < 1 << 46).ok_or_else(refuse)?;
        if sanitized() {
            let layout = Layout::from_size_align(size.max(1), ALIGN).map_err(|_| refuse())?;
            // SAFETY: the layout's size is not zero.
            let data = unsafe { std::alloc::alloc(layout) };
            return if data.is_null() {
                Err(refuse())
            } else {
                Ok(Self { data, bytes: size, place: Place::Heap(layout) })
            };
        }
        let body = size.next_multiple_of(ALIGN);
        let inner = body.next_multiple_of(PAGE);
        let total = inner + 2 * PAGE;
        // SAFETY: a fresh anonymous mapping; the protections concern pages of it.
        let base = unsafe {
            let base = mmap(std::ptr::null_mut(), total, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_NORESERVE, -1, 0);
            if base as isize == -1 {
                return Err(refuse());
            }
            mprotect(base, PAGE, PROT_NONE);
            mprotect(base.byte_add(PAGE + inner), PAGE, PROT_NONE);
            base.cast::<u8>()
        };
        // SAFETY: all offsets lie in the mapping's accessible part.
        let data = unsafe {
            let data = base.add(PAGE + inner - body);
            base.add(PAGE).write_bytes(PATTERN, inner - body);
            data.add(size).write_bytes(PATTERN, body - size);
            data
        };
        Ok(Self { data, bytes: size, place: Place::Mapped { base, total } })
    }
    pub fn address(&self) -> u64 {
        self.data as u64
    }
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }
    /// The array's contents.
    pub fn slice(&mut self) -> &mut [u8] {
        // SAFETY: `bytes` bytes from `data` on are ours and initialised by the system (or unspecified, but readable).
        unsafe { std::slice::from_raw_parts_mut(self.data, self.bytes) }
    }
    /// Distance of the nearest overwritten guard byte: negative before the array, positive behind its end.
    pub fn damage(&self) -> Option<i64> {
        let Place::Mapped { base, total } = self.place else { return None };
        // SAFETY: the slack on both sides lies in the accessible part of the mapping.
        let (before, behind) = unsafe {
            let start = base.add(PAGE);
            let end = base.add(total - PAGE);
            let tail = self.data.add(self.bytes);
            (
                std::slice::from_raw_parts(start, self.data.offset_from(start) as usize),
                std::slice::from_raw_parts(tail, end.offset_from(tail) as usize),
            )
        };
        let front = before.iter().rposition(|b| *b != PATTERN).map(|i| i as i64 - before.len() as i64);
        front.or_else(|| behind.iter().position(|b| *b != PATTERN).map(|i| i as i64 + 1))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: made by `new` in exactly this way, and released once.
        unsafe {
            match self.place {
                Place::Mapped { base, total } => {
                    munmap(base.cast(), total);
                }
                Place::Heap(layout) => std::alloc::dealloc(self.data, layout),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_seen_on_both_sides() {
        for bytes in [0, 1, 100, 256, 4096, 10_000] {
            let mut g = Guarded::new(bytes).unwrap();
            assert_eq!(g.address() % 256, 0);
            assert_eq!(g.slice().len() as u64, bytes);
            g.slice().fill(7);
            assert_eq!(g.damage(), None);
            if matches!(g.place, Place::Mapped { .. }) && bytes == 100 {
                // SAFETY: the slack behind 100 bytes is 156 bytes long, and before it there are more.
                unsafe { g.data.add(102).write(0) };
                assert_eq!(g.damage(), Some(3));
                unsafe { g.data.sub(1).write(0) };
                assert_eq!(g.damage(), Some(-1));
            }
        }
        assert!(Guarded::new(1 << 50).is_err());
    }
}
