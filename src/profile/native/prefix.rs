//! What can still be read of a stream that breaks off: a cut or damaged gzip or zstd file gives an error where its sound
//! part ends, and a recording is good up to there.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read};

/// Ends where the source fails, and keeps the reason outside, where it outlives the reader.
pub(super) struct Prefix<'a, R: Read> {
    source: R,
    broken: &'a RefCell<Option<String>>,
}

impl<'a, R: Read> Prefix<'a, R> {
    pub(super) fn new(source: R, broken: &'a RefCell<Option<String>>) -> Self {
        Self { source, broken }
    }
}

impl<R: Read> Read for Prefix<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.broken.borrow().is_some() {
            return Ok(0);
        }
        match self.source.read(to) {
            Err(e) if e.kind() != ErrorKind::Interrupted => {
                *self.broken.borrow_mut() = Some(e.to_string());
                Ok(0)
            }
            other => other,
        }
    }
}
