//! Varints and texts, and a cursor that cannot read past its end.

/// Appends to a record under construction.
pub trait Put {
    fn varint(&mut self, v: u64);
    /// `v - base` in wrapping arithmetic, so that any two values have a difference.
    fn delta(&mut self, v: u64, base: u64);
    fn text(&mut self, text: &str);
}

impl Put for Vec<u8> {
    fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.push(v as u8);
    }
    fn delta(&mut self, v: u64, base: u64) {
        let d = v.wrapping_sub(base) as i64;
        self.varint(((d << 1) ^ (d >> 63)) as u64);
    }
    fn text(&mut self, text: &str) {
        let mut end = text.len().min(crate::MAX_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.varint(end as u64);
        self.extend_from_slice(&text.as_bytes()[..end]);
    }
}

/// Reads fields; None once the record has no more.
pub struct Cursor<'a>(pub &'a [u8]);

impl Cursor<'_> {
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }
    pub fn varint(&mut self) -> Option<u64> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.byte()?;
            v |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return Some(v);
            }
        }
        None
    }
    pub fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }
    pub fn delta(&mut self, base: u64) -> Option<u64> {
        let z = self.varint()?;
        Some(base.wrapping_add((z >> 1) ^ (z & 1).wrapping_neg()))
    }
    pub fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.varint()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_survive() {
        for v in [0, 1, 127, 128, u64::MAX / 2, u64::MAX] {
            for base in [0, 5, u64::MAX] {
                let mut b = Vec::new();
                b.varint(v);
                b.delta(v, base);
                let mut c = Cursor(&b);
                assert_eq!((c.varint(), c.delta(base), c.byte()), (Some(v), Some(v), None));
            }
        }
    }

    #[test]
    fn nothing_is_read_past_the_end() {
        assert_eq!(Cursor(&[0xff; 20]).varint(), None, "a varint of more than 10 bytes");
        assert_eq!(Cursor(&[0x80]).varint(), None);
        assert_eq!(Cursor(&[5, b'a']).text(), None);
        assert_eq!(Cursor(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).text(), None);
    }
}
