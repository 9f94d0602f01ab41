//! Zstandard streams of any number of frames: parallel compressors write many, with skippable ones between them.

use crate::error::{Error, Result};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{self, Chain, Cursor, Read};

/// Decodes frame after frame.
pub struct Frames<R: Read> {
    state: State<R>,
}

/// The four bytes that tell the kind of a frame are read first and given back in front of the rest.
type Source<R> = Chain<Cursor<Vec<u8>>, R>;

enum State<R: Read> {
    Inside(Box<StreamingDecoder<Source<R>, FrameDecoder>>),
    Between(R),
    Done,
}

impl<R: Read> Frames<R> {
    /// # Errors
    /// `Usage` where the first frame does not begin.
    pub fn new(source: R) -> Result<Self> {
        let mut made = Self { state: State::Between(source) };
        made.begin().map_err(|e| Error::usage(format!("the zstd stream does not begin: {e}")))?;
        Ok(made)
    }

    /// Begins the next frame; the stream may end here.
    fn begin(&mut self) -> io::Result<()> {
        let State::Between(mut source) = std::mem::replace(&mut self.state, State::Done) else { return Ok(()) };
        loop {
            let mut magic = Vec::with_capacity(4);
            (&mut source).take(4).read_to_end(&mut magic)?;
            match <[u8; 4]>::try_from(magic.as_slice()).map(u32::from_le_bytes) {
                Err(_) if magic.is_empty() => return Ok(()),
                Ok(0x184d_2a50..=0x184d_2a5f) => {
                    let mut length = [0; 4];
                    source.read_exact(&mut length)?;
                    io::copy(&mut (&mut source).take(u64::from(u32::from_le_bytes(length))), &mut io::sink())?;
                }
                _ => {
                    let whole = Cursor::new(magic).chain(source);
                    let decoder = StreamingDecoder::new(whole).map_err(|e| io::Error::other(e.to_string()))?;
                    self.state = State::Inside(Box::new(decoder));
                    return Ok(());
                }
            }
        }
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        loop {
            let State::Inside(decoder) = &mut self.state else { return Ok(0) };
            let n = decoder.read(to)?;
            if n > 0 {
                return Ok(n);
            }
            if let State::Inside(decoder) = std::mem::replace(&mut self.state, State::Done) {
                self.state = State::Between(decoder.into_inner().into_inner().1);
            }
            self.begin()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    #[test]
    fn many_frames_are_one_stream() {
        let frame = |text: &str| compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
        let mut all = frame("one, ");
        all.extend_from_slice(&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9]);
        all.extend_from_slice(&frame(&"two".repeat(1_000)));
        let mut text = String::new();
        Frames::new(all.as_slice()).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("one, {}", "two".repeat(1_000)));
        // A stream that stops gives what came before and then an error, never silence.
        let mut part = Vec::new();
        let mut cut = Frames::new(&all[..all.len() - 5]).unwrap();
        assert!(cut.read_to_end(&mut part).is_err());
        assert!(part.starts_with(b"one, "));
        assert!(Frames::new(&b"\x28\xb5\x2f"[..]).is_err());
    }
}
