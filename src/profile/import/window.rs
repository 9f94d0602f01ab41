//! A sliding view of a byte stream: what is being parsed lies in one piece, what is done is forgotten.

use std::io::Read;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// The part of a stream that is in memory.
pub struct Window {
    reader: Box<dyn Read>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the stream of `buffer[0]`.
    base: u64,
    eof: bool,
    /// Why the stream ended early (a damaged archive), if it did.
    broken: Option<String>,
}

impl Window {
    pub fn new(reader: Box<dyn Read>) -> Self {
        Self { reader, buffer: vec![0; CHUNK], start: 0, end: 0, base: 0, eof: false, broken: None }
    }
    /// What is in memory and not yet consumed.
    pub fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
    /// Stream offset of the first unconsumed byte.
    pub fn offset(&self) -> u64 {
        self.base + self.start as u64
    }
    pub fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
    }
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }
    /// Reads on; false at the end of the stream. What is unconsumed stays, and stays in one piece.
    pub fn more(&mut self) -> bool {
        if self.eof {
            return false;
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.base += self.start as u64;
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let before = self.end;
        while self.end < self.buffer.len() {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.eof = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    self.broken = Some(e.to_string());
                    self.eof = true;
                }
            }
            if self.eof {
                break;
            }
        }
        self.end > before
    }
    /// The next byte that is no white space, without consuming it; white space before it is consumed.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let skip = self.data().iter().position(|b| !b.is_ascii_whitespace());
            match skip {
                Some(n) => {
                    self.consume(n);
                    return Some(self.data()[0]);
                }
                None => {
                    self.start = self.end;
                    if !self.more() {
                        return None;
                    }
                }
            }
        }
    }
}
