//! Reads the PTX out of a fatbin, so that `workbench show --ptx` needs no CUDA tool and the program carries each text
//! once. The container's layout, little-endian, as `fatbinary` of CUDA 13 writes it:
//!
//! ```text
//! file   u32 magic 0xba55ed50, u16 version, u16 header bytes, u64 bytes that follow
//! entry  u16 kind (1 PTX, 2 machine code), u16 version, u32 header bytes, u64 payload bytes with padding,
//!        u32 payload bytes, …, u64 flags at 40 (bit 15: Zstandard), …, u64 unpacked bytes at 56
//! ```

use std::io::Read;

const MAGIC: u32 = 0xba55_ed50;
const PTX: u16 = 1;
const ZSTD: u64 = 1 << 15;
/// Any other way of packing.
const PACKED: u64 = 1 << 13;

/// The text of the first PTX entry; none where there is none or it is packed in a way not known here.
pub fn ptx(fatbin: &[u8]) -> Option<String> {
    if u32_at(fatbin, 0)? != MAGIC {
        return None;
    }
    let mut at = usize::from(u16_at(fatbin, 6)?);
    while at < fatbin.len() {
        let entry = &fatbin[at..];
        let (header, padded) = (u32_at(entry, 4)? as usize, usize::try_from(u64_at(entry, 8)?).ok()?);
        if u16_at(entry, 0)? == PTX {
            let (packed, flags) = (u32_at(entry, 16)? as usize, u64_at(entry, 40)?);
            let bytes = if flags & ZSTD != 0 {
                unpack(entry.get(header..header + packed)?)?
            } else if flags & PACKED == 0 {
                entry.get(header..header + padded)?.to_vec()
            } else {
                return None;
            };
            let text = String::from_utf8(bytes).ok()?;
            return Some(format!("{}\n", text.trim_matches(['\0', '\n'])));
        }
        at += header.checked_add(padded).filter(|n| *n > 0)?;
    }
    None
}

fn unpack(frame: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(frame).ok()?.read_to_end(&mut out).ok()?;
    Some(out)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fatbin with a machine-code entry and a PTX entry.
    fn sample(text: &[u8], flags: u64) -> Vec<u8> {
        let entry = |kind: u16, payload: &[u8], flags: u64| {
            let mut e = vec![0u8; 64];
            e[..2].copy_from_slice(&kind.to_le_bytes());
            e[4..8].copy_from_slice(&64u32.to_le_bytes());
            e[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
            e[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
            e[40..48].copy_from_slice(&flags.to_le_bytes());
            e.extend_from_slice(payload);
            e
        };
        let body = [entry(2, b"\x7fELF", 0), entry(1, text, flags)].concat();
        let mut file = MAGIC.to_le_bytes().to_vec();
        file.extend_from_slice(&1u16.to_le_bytes());
        file.extend_from_slice(&16u16.to_le_bytes());
        file.extend_from_slice(&(body.len() as u64).to_le_bytes());
        file.extend_from_slice(&body);
        file
    }

    #[test]
    fn plain_and_packed_text_is_read() {
        let text = ".version 9.0\n.target sm_90\n";
        assert_eq!(ptx(&sample(text.as_bytes(), 1)).as_deref(), Some(text));
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let frame = ruzstd::encoding::compress_to_vec(text.as_bytes(), level);
        assert_eq!(ptx(&sample(&frame, ZSTD)).as_deref(), Some(text));
    }

    #[test]
    fn nonsense_is_no_text() {
        let good = sample(b".version 9.0\n", 1);
        for cut in 0..good.len() {
            assert_eq!(ptx(&good[..cut]), None, "cut at {cut}");
        }
        assert_eq!(ptx(&sample(b"not a frame", ZSTD)), None);
        assert_eq!(ptx(&sample(b"old packing", PACKED)), None);
    }
}
