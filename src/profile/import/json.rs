//! A tokenizer for the JSON that profilers write, which is not always JSON: numbers stay text, bare `inf` and `nan`
//! pass, control characters pass, and a lenient mode ends a string only where a delimiter follows its quote.

/// Why a scan stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The bytes end before the value does.
    More,
    /// No such value can begin or go on so; the position.
    Bad(usize),
}

pub type Scanned<T> = Result<T, Stop>;

/// A value: scalars as their text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Between the quotes, escapes not resolved.
    Text(&'a [u8]),
    Number(&'a [u8]),
    /// `true`, `null`, `NaN`, …
    Word(&'a [u8]),
    /// An object or array, whole.
    Nested(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The text of a string or number; producers swap them.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Text(t) | Self::Number(t) => Some(t),
            _ => None,
        }
    }
    /// A whole number, possibly quoted, possibly written with `.0`; saturates.
    pub fn integer(self) -> Option<i64> {
        integer(self.bytes()?)
    }
}

/// Scans a slice; `at` is the position.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    bytes: &'a [u8],
    pub at: usize,
    lenient: bool,
    /// Bare `inf`, `nan` and the like that were passed.
    pub non_finite: u32,
}

/// Longest string that the lenient mode tries to find the end of.
const GUESS: usize = 16 << 10;

/// Deepest nesting in an event; deeper is taken for a missing bracket.
const DEEPEST: u32 = 64;

/// Byte classes for skipping nested values.
const QUOTE: u8 = 1;
const OPEN: u8 = 2;
const CLOSE: u8 = 3;
const LETTER: u8 = 4;
const CLASS: [u8; 256] = {
    let mut t = [0; 256];
    t[b'"' as usize] = QUOTE;
    t[b'{' as usize] = OPEN;
    t[b'[' as usize] = OPEN;
    t[b'}' as usize] = CLOSE;
    t[b']' as usize] = CLOSE;
    t[b'i' as usize] = LETTER;
    t[b'I' as usize] = LETTER;
    t[b'n' as usize] = LETTER;
    t[b'N' as usize] = LETTER;
    t
};

impl<'a> Scanner<'a> {
    pub fn new(bytes: &'a [u8], lenient: bool) -> Self {
        Self { bytes, at: 0, lenient, non_finite: 0 }
    }

    /// The next byte that is no white space, not consumed.
    #[inline]
    pub fn peek(&mut self) -> Scanned<u8> {
        while let Some(&b) = self.bytes.get(self.at) {
            if b > b' ' {
                return Ok(b);
            }
            self.at += 1;
        }
        Err(Stop::More)
    }

    /// Consumes one given byte after white space.
    #[inline]
    pub fn expect(&mut self, byte: u8) -> Scanned<()> {
        if self.peek()? == byte {
            self.at += 1;
            return Ok(());
        }
        Err(Stop::Bad(self.at))
    }

    /// A string's content; the opening quote is next.
    #[inline]
    pub fn string(&mut self) -> Scanned<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            let quote = self.find_quote()?;
            if !self.lenient || self.delimited(quote + 1)? {
                self.at = quote + 1;
                return Ok(&self.bytes[start..quote]);
            }
            // A guess must stay short, or a hostile file makes every guess read to its end.
            if quote - start > GUESS {
                return Err(Stop::Bad(start));
            }
            self.at = quote + 1;
        }
    }

    /// Position of the next quote that no backslash precedes.
    #[inline]
    fn find_quote(&mut self) -> Scanned<usize> {
        let mut i = self.at;
        // Eight bytes at a time: a zero byte in `x ^ pattern` marks a hit.
        const LOW: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = 0x8080_8080_8080_8080;
        let zero = |x: u64| x.wrapping_sub(LOW) & !x & HIGH;
        loop {
            while let Some(chunk) = self.bytes.get(i..i + 8) {
                let word = u64::from_le_bytes(chunk.try_into().unwrap_or([0; 8]));
                let hit = zero(word ^ (LOW * b'"' as u64)) | zero(word ^ (LOW * b'\\' as u64));
                if hit != 0 {
                    i += (hit.trailing_zeros() / 8) as usize;
                    break;
                }
                i += 8;
            }
            match self.bytes.get(i) {
                Some(b'"') => return Ok(i),
                Some(b'\\') => i += 2,
                Some(_) => i += 1,
                None => return Err(Stop::More),
            }
        }
    }

    /// Whether a delimiter follows at `i`: then a quote before it closes its string.
    fn delimited(&self, i: usize) -> Scanned<bool> {
        match self.bytes[i.min(self.bytes.len())..].iter().find(|b| **b > b' ') {
            Some(b) => Ok(matches!(b, b',' | b'}' | b']' | b':')),
            None => Err(Stop::More),
        }
    }

    /// Any value.
    #[inline]
    pub fn value(&mut self) -> Scanned<Value<'a>> {
        match self.peek()? {
            b'"' => self.string().map(Value::Text),
            b'{' | b'[' => {
                let start = self.at;
                self.skip_nested()?;
                Ok(Value::Nested(&self.bytes[start..self.at]))
            }
            b'0'..=b'9' | b'-' | b'+' | b'.' | b'a'..=b'z' | b'A'..=b'Z' => {
                let start = self.at;
                let word = &self.bytes[start..];
                let length = word.iter().position(|b| matches!(b, b',' | b'}' | b']' | b':' | 0..=b' '));
                let text = &word[..length.ok_or(Stop::More)?];
                self.at += text.len();
                if text.iter().all(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) {
                    return Ok(Value::Number(text));
                }
                match text {
                    b"true" | b"false" | b"null" | b"None" | b"True" | b"False" => {}
                    _ if non_finite(text) => self.non_finite += 1,
                    _ => return Err(Stop::Bad(start)),
                }
                Ok(Value::Word(text))
            }
            _ => Err(Stop::Bad(self.at)),
        }
    }

    /// Skips the nested value that begins here.
    pub fn skip_nested(&mut self) -> Scanned<()> {
        self.skip_open(0, 0)
    }

    /// Skips what is left of the object that is open, its closing brace included.
    pub fn skip_rest(&mut self) -> Scanned<()> {
        self.skip_open(1, 1)
    }

    /// Skips until `depth` open brackets are closed; bit `i` of `objects` says that the one at depth `i` is a brace.
    fn skip_open(&mut self, mut depth: u32, mut objects: u64) -> Scanned<()> {
        loop {
            let Some(&b) = self.bytes.get(self.at) else { return Err(Stop::More) };
            match CLASS[b as usize] {
                QUOTE => {
                    self.string()?;
                    continue;
                }
                OPEN => {
                    if depth == DEEPEST {
                        return Err(Stop::Bad(self.at));
                    }
                    objects = objects & !(1 << depth) | u64::from(b == b'{') << depth;
                    depth += 1;
                }
                CLOSE => {
                    let brace = depth > 0 && objects >> (depth - 1) & 1 == 1;
                    if depth == 0 || brace != (b == b'}') {
                        return Err(Stop::Bad(self.at));
                    }
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return Ok(());
                    }
                }
                LETTER => {
                    let rest = &self.bytes[self.at..];
                    let length = rest.iter().position(|b| !b.is_ascii_alphabetic()).ok_or(Stop::More)?;
                    self.non_finite += u32::from(non_finite(&rest[..length]));
                    self.at += length;
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// After a member or element: true where another follows, false where `close` ended it.
    #[inline]
    pub fn another(&mut self, close: u8) -> Scanned<bool> {
        let b = self.peek()?;
        self.at += 1;
        match b {
            b',' => Ok(true),
            b if b == close => Ok(false),
            _ => Err(Stop::Bad(self.at - 1)),
        }
    }

    /// Consumes an opening byte; true where at least one member follows.
    pub fn open(&mut self, open: u8, close: u8) -> Scanned<bool> {
        self.expect(open)?;
        if self.peek()? == close {
            self.at += 1;
            return Ok(false);
        }
        Ok(true)
    }
}

/// Whether a bare word is one of the non-finite numbers that printf and Python write.
fn non_finite(word: &[u8]) -> bool {
    let word = word.strip_prefix(b"-").or(word.strip_prefix(b"+")).unwrap_or(word);
    ["inf", "infinity", "nan"].iter().any(|w| word.eq_ignore_ascii_case(w.as_bytes()))
}

/// A whole number from decimal text; a fraction of zeros is allowed. Saturates.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (mut value, mut any) = (0i64, false);
    for (i, b) in digits.iter().enumerate() {
        match b {
            b'0'..=b'9' => {
                any = true;
                value = value.saturating_mul(10).saturating_add(i64::from(b - b'0'));
            }
            b'.' if any && digits[i + 1..].iter().all(|d| *d == b'0') => break,
            _ => return None,
        }
    }
    any.then_some(if negative { -value } else { value })
}

/// An unsigned whole number up to 2^64 - 1.
pub fn unsigned(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Decimal microseconds to integer nanoseconds without passing through a float; half a nanosecond rounds away from 0.
/// The second value says whether the text had a fraction.
pub fn micros_to_ns(text: &[u8]) -> Option<(i64, bool)> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    // Mantissa in digits, its decimal exponent, and then the shift to nanoseconds.
    let (mut mantissa, mut exponent, mut digits, mut point) = (0i128, 3i64, 0u32, false);
    let mut i = 0;
    while i < rest.len() {
        match rest[i] {
            b @ b'0'..=b'9' => {
                digits += 1;
                if mantissa < 10i128.pow(30) {
                    mantissa = mantissa * 10 + i128::from(b - b'0');
                    exponent -= i64::from(point);
                } else {
                    exponent += i64::from(!point);
                }
            }
            b'.' if !point => point = true,
            b'e' | b'E' => {
                exponent = exponent.saturating_add(integer(&rest[i + 1..])?);
                break;
            }
            _ => return None,
        }
        i += 1;
    }
    if digits == 0 {
        return None;
    }
    let scaled = match exponent {
        0 => mantissa,
        1..=18 => mantissa.checked_mul(10i128.pow(exponent as u32))?,
        -36..=-1 => {
            let by = 10i128.pow((-exponent) as u32);
            (mantissa + by / 2) / by
        }
        ..=-37 => 0,
        _ if mantissa == 0 => 0,
        _ => return None,
    };
    let ns = i64::try_from(scaled).ok()?;
    Some((if negative { -ns } else { ns }, point))
}

/// A string's text: escapes resolved where they are valid and kept where not, bad UTF-8 replaced. The second value
/// says whether bytes had to be replaced.
pub fn text(raw: &[u8]) -> (std::borrow::Cow<'_, str>, bool) {
    let plain = String::from_utf8_lossy(raw);
    let replaced = matches!(plain, std::borrow::Cow::Owned(_));
    if !raw.contains(&b'\\') {
        return (plain, replaced);
    }
    let mut out = String::with_capacity(plain.len());
    let mut chars = plain.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let rest = chars.clone();
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some(c @ ('"' | '\\' | '/')) => out.push(c),
            Some('u') => match rest.as_str().get(1..5).and_then(|h| u32::from_str_radix(h, 16).ok()) {
                Some(code) => {
                    out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    chars.nth(3);
                }
                None => out.push_str("\\u"),
            },
            // A Windows path with single backslashes: keep what was written.
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    (out.into(), replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_keep_every_nanosecond() {
        let ns = |t: &str| micros_to_ns(t.as_bytes());
        assert_eq!(ns("1767189312000000.123"), Some((1_767_189_312_000_000_123, true)));
        assert_eq!(ns("15057.495"), Some((15_057_495, true)));
        assert_eq!(ns("-0.0005"), Some((-1, true)));
        assert_eq!(ns("0.00049"), Some((0, true)));
        assert_eq!(ns("12"), Some((12_000, false)));
        assert_eq!(ns("1.5e3"), Some((1_500_000, true)));
        assert_eq!(ns("1e-3"), Some((1, false)));
        assert_eq!(ns("0e999999999999999999999"), Some((0, false)));
        assert_eq!(ns("1e30"), None);
        assert_eq!(ns("9223372036854775807"), None);
        assert_eq!(ns("1.2.3"), None);
        assert_eq!(ns("."), None);
        assert_eq!(ns(""), None);
    }

    #[test]
    fn integers_saturate_and_accept_floats_that_are_whole() {
        assert_eq!(integer(b"7.0"), Some(7));
        assert_eq!(integer(b"7.5"), None);
        assert_eq!(integer(b"-99999999999999999999"), Some(-i64::MAX));
        assert_eq!(integer(b"-"), None);
    }

    #[test]
    fn strings_strict_and_lenient() {
        let raw = br#""a \"quoted\" b", 1"#;
        assert_eq!(Scanner::new(raw, false).string(), Ok(&br#"a \"quoted\" b"#[..]));
        let bad = br#""a "quoted" b": 1"#;
        assert_eq!(Scanner::new(bad, false).string(), Ok(&b"a "[..]));
        assert_eq!(Scanner::new(bad, true).string(), Ok(&br#"a "quoted" b"#[..]));
        assert_eq!(Scanner::new(b"\"abcdefghijkl", false).string(), Err(Stop::More));
        assert_eq!(text(br"C:\new\x \u00b5").0, "C:\new\\x µ");
        assert_eq!(text(b"\xff"), ("\u{fffd}".into(), true));
    }

    #[test]
    fn nested_values_are_skipped_whole() {
        let raw = br#"{"a": [1, {"b": "}]"}], "c": inf, "d": null, "e": -Infinity} ,"#;
        let mut s = Scanner::new(raw, false);
        assert_eq!(s.value(), Ok(Value::Nested(&raw[..raw.len() - 2])));
        assert_eq!(s.non_finite, 2);
        assert_eq!(Scanner::new(br#"{"a": [1"#, false).value(), Err(Stop::More));
        assert_eq!(Scanner::new(b"wat,", false).value(), Err(Stop::Bad(0)));
        assert_eq!(Scanner::new(br#"[{"a": 1]"#, false).value(), Err(Stop::Bad(8)));
        assert_eq!(Scanner::new("[".repeat(65).as_bytes(), false).value(), Err(Stop::Bad(64)));
    }
}
