//! The pool of activity buffers. They are allocated, zeroed and touched before the first launch, because a buffer request
//! comes on the launching thread, and an allocation or a page fault there would be charged to that launch.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const ALIGN: usize = 4096;

/// Buffers of one size.
pub struct Pool {
    bytes: usize,
    limit: AtomicUsize,
    made: AtomicUsize,
    /// How often no buffer was to be had.
    refused: AtomicUsize,
    /// How often one had to be made on the launching thread.
    late: AtomicUsize,
    free: Mutex<Vec<usize>>,
}

impl Pool {
    /// A pool of no buffers yet. `bytes` is rounded up to whole pages.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes: bytes.clamp(ALIGN, 1 << 30).next_multiple_of(ALIGN),
            limit: AtomicUsize::new(0),
            made: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            late: AtomicUsize::new(0),
            free: Mutex::new(Vec::with_capacity(1024)),
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Fills the pool up to `ready` buffers, and lets it grow to `limit`.
    pub fn prepare(&self, ready: usize, limit: usize) {
        let limit = limit.max(1);
        self.limit.store(limit, Ordering::Relaxed);
        while self.made.load(Ordering::Relaxed) < ready.min(limit) {
            match self.make() {
                Some(b) => {
                    // SAFETY: just allocated with this many bytes; a write to each page makes it resident.
                    (0..self.bytes).step_by(ALIGN).for_each(|i| unsafe { (b as *mut u8).add(i).write_volatile(0) });
                    self.push(b);
                }
                None => break,
            }
        }
    }

    fn make(&self) -> Option<usize> {
        let layout = Layout::from_size_align(self.bytes, ALIGN).ok()?;
        // SAFETY: the size is not 0.
        let p = unsafe { alloc_zeroed(layout) } as usize;
        (p != 0).then(|| {
            self.made.fetch_add(1, Ordering::Relaxed);
            p
        })
    }

    /// A zeroed buffer, or None: then CUPTI drops records and counts them.
    pub fn take(&self) -> Option<*mut u8> {
        let free = self.lock().pop();
        let buffer = free.or_else(|| {
            if self.made.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed) {
                return None;
            }
            self.late.fetch_add(1, Ordering::Relaxed);
            self.make()
        });
        if buffer.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        buffer.map(|b| b as *mut u8)
    }

    /// Takes a buffer back and zeroes it.
    ///
    /// # Safety
    /// `buffer` came from [`Pool::take`] and nobody uses it any more.
    pub unsafe fn give(&self, buffer: *mut u8) {
        // SAFETY: this many bytes are ours.
        unsafe { buffer.write_bytes(0, self.bytes) };
        self.push(buffer as usize);
    }

    fn push(&self, buffer: usize) {
        self.lock().push(buffer);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// (made, made late, refused).
    pub fn counts(&self) -> (usize, usize, usize) {
        let get = |a: &AtomicUsize| a.load(Ordering::Relaxed);
        (get(&self.made), get(&self.late), get(&self.refused))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Ok(layout) = Layout::from_size_align(self.bytes, ALIGN) {
            for b in self.lock().drain(..) {
                // SAFETY: allocated by `make` with this layout; only free buffers are here.
                unsafe { dealloc(b as *mut u8, layout) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_bounded() {
        let pool = Pool::new(5000);
        assert_eq!(pool.bytes(), 8192);
        pool.prepare(2, 3);
        let taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), 3);
        assert_eq!(pool.counts(), (3, 1, 1));
        assert!(taken.iter().all(|&b| (b as usize).is_multiple_of(8)));
        // SAFETY: ours until given back.
        unsafe {
            taken[0].write_bytes(0xff, 8192);
            taken.iter().for_each(|&b| pool.give(b));
        }
        while let Some(b) = pool.take() {
            // SAFETY: 8192 bytes of ours.
            assert!(unsafe { std::slice::from_raw_parts(b, 8192) }.iter().all(|&v| v == 0));
        }
    }
}
