//! PyTorch profiler (Kineto) traces and other Chrome trace JSON, in one pass over a stream of any size.
//!
//! Files in the wild are damaged in known ways (`docs/ledger.md` lists them); each event stands alone, so a broken one
//! costs itself and no other, and a file that stops is read up to there.

use super::json::{self, Scanned, Scanner, Stop, Value};
use super::{Flaws, Window};
use crate::error::{Error, Result};
use crate::profile::trace::{DeviceInfo, Trace};
use event::Event;
use std::io::Read;

mod build;
mod event;
mod order;
mod salvage;
#[cfg(test)]
mod tests;

/// One event longer than this is taken for a broken one.
const LONGEST: usize = 4 << 20;

/// After so many events that could not be mended, broken ones are skipped at once: the file is no trace.
const HOPELESS: u32 = 1_000;

/// Reads a Chrome trace from decompressed text.
///
/// # Errors
/// `Usage` where the text does not begin as JSON.
pub fn read(reader: Box<dyn Read>) -> Result<Trace> {
    let mut r = Reader {
        w: Window::new(reader),
        made: build::Builder::default(),
        flaws: Flaws::default(),
        hopeless: 0,
        over: false,
        parted: true,
    };
    // A byte-order mark is no JSON, and some tools write one.
    if r.w.peek() == Some(0xef) {
        r.w.consume(3);
    }
    match r.w.peek() {
        Some(b'[') => {
            r.w.consume(1);
            r.events(true);
        }
        Some(b'{') => {
            r.w.consume(1);
            r.object();
        }
        other => {
            let why = match (r.w.broken(), other) {
                (Some(why), _) => format!("the compressed stream is damaged from its start: {why}"),
                (None, None) => "the file is empty".into(),
                (None, Some(_)) => "the file is no JSON".into(),
            };
            return Err(Error::usage(why));
        }
    }
    if let Some(why) = r.w.broken().map(str::to_string) {
        let detail = format!("the compressed stream is damaged ({why}); what came before it was read");
        r.flaws.add("truncated", r.w.offset(), &detail);
    }
    Ok(r.made.finish(r.flaws))
}

struct Reader {
    w: Window,
    made: build::Builder,
    flaws: Flaws,
    /// Events that the lenient mode could not mend either.
    hopeless: u32,
    /// The end was met inside a value.
    over: bool,
    /// A comma has come since the last event that was read; where one was looked for, its comma was what told it.
    parted: bool,
}

impl Reader {
    /// The members of the outermost object; its `{` is consumed.
    fn object(&mut self) {
        loop {
            match self.w.peek() {
                None => return self.truncated(),
                Some(b'}') => return,
                Some(b',') => {
                    self.w.consume(1);
                    continue;
                }
                Some(_) => {}
            }
            let key = match self.whole(|s| {
                let key = s.string()?;
                s.expect(b':')?;
                Ok(key.to_vec())
            }) {
                Ok(key) => key,
                Err(Stop::More) => return self.truncated(),
                Err(Stop::Bad(_)) => {
                    // The header is broken: the events may still be found.
                    self.malformed();
                    if !self.resync() {
                        return;
                    }
                    self.events(false);
                    continue;
                }
            };
            match (key.as_slice(), self.w.peek()) {
                (b"traceEvents", Some(b'[')) => {
                    self.w.consume(1);
                    self.events(false);
                }
                (b"deviceProperties" | b"distributedInfo", Some(b'[' | b'{')) => match self.whole(nested) {
                    Ok(raw) => self.made.header(&key, &raw),
                    Err(_) => self.skip(),
                },
                (_, Some(b'[' | b'{')) => self.skip(),
                (_, Some(_)) => match self.whole(|s| s.value().map(|v| v.bytes().map(<[u8]>::to_vec))) {
                    Ok(Some(raw)) => self.made.header(&key, &raw),
                    Ok(None) => {}
                    Err(Stop::More) => return self.truncated(),
                    Err(Stop::Bad(_)) => {
                        self.malformed();
                        self.w.consume(1);
                    }
                },
                (_, None) => return self.truncated(),
            }
        }
    }

    /// The events of an array whose `[` is consumed. A bare array may end without its bracket, as the format allows.
    fn events(&mut self, bare: bool) {
        self.parted = true;
        loop {
            match self.w.peek() {
                None if bare => return,
                None => return self.truncated(),
                Some(b',') => {
                    self.w.consume(1);
                    self.parted = true;
                }
                Some(b']') => return self.w.consume(1),
                Some(b'{') => {
                    if !std::mem::replace(&mut self.parted, true) {
                        let detail = "no comma between events, which is no JSON; both were read";
                        self.flaws.add("missing_comma", self.w.offset(), detail);
                    }
                    if !self.event() {
                        return;
                    }
                }
                Some(_) => {
                    self.malformed();
                    if !self.resync() {
                        return;
                    }
                }
            }
        }
    }

    /// One event, whose `{` is next; false where the stream is over.
    fn event(&mut self) -> bool {
        let mut lenient = false;
        loop {
            let data = self.w.data();
            let mut scan = Scanner::new(data, lenient);
            match Event::scan(&mut scan) {
                Ok(event) => {
                    let offset = self.w.offset();
                    if lenient {
                        self.flaws.add(
                            "malformed_event",
                            offset,
                            "events with unescaped quotes, backslashes or the like; repaired or skipped one by one",
                        );
                    }
                    let (used, non_finite) = (scan.at, scan.non_finite > 0);
                    self.made.take(&event, offset, &mut self.flaws);
                    if non_finite {
                        self.non_finite();
                    }
                    self.w.consume(used);
                    self.parted = false;
                    return true;
                }
                Err(Stop::More) if data.len() < LONGEST => {
                    if !self.w.more() {
                        if !lenient {
                            lenient = true;
                            continue;
                        }
                        // The last event does not end: either the file does, or this event is broken.
                        if self.resync_from(1) {
                            self.malformed();
                            return true;
                        }
                        self.truncated();
                        return false;
                    }
                }
                Err(_) if !lenient && self.hopeless < HOPELESS => lenient = true,
                Err(_) => {
                    self.hopeless += 1;
                    self.malformed();
                    return self.salvage();
                }
            }
        }
    }

    /// Takes what can be told of an event that no rule of JSON fits, where the next one or the end of the array shows its
    /// own end; then that is next. False where the stream is over.
    fn salvage(&mut self) -> bool {
        if next_event(self.w.data(), 1).is_none() && self.w.data().len() < LONGEST {
            self.w.more();
        }
        let data = self.w.data();
        if let Some(end) = next_event(data, 1).or_else(|| array_end(data)) {
            if let Some(event) = salvage::event(&data[..end]) {
                self.made.take(&event, self.w.offset(), &mut self.flaws);
            }
            self.w.consume(end);
            return true;
        }
        self.w.consume(1);
        self.resync()
    }

    /// Runs a scan on the unconsumed bytes, reading on until it is complete; consumes what it used.
    fn whole<T>(&mut self, scan: impl Fn(&mut Scanner<'_>) -> Scanned<T>) -> Scanned<T> {
        loop {
            let mut s = Scanner::new(self.w.data(), false);
            match scan(&mut s) {
                Ok(value) => {
                    let (used, non_finite) = (s.at, s.non_finite > 0);
                    if non_finite {
                        self.non_finite();
                    }
                    self.w.consume(used);
                    return Ok(value);
                }
                Err(Stop::More) if self.w.data().len() < LONGEST => {
                    if !self.w.more() {
                        return Err(Stop::More);
                    }
                }
                Err(Stop::More) => return Err(Stop::Bad(0)),
                Err(bad) => return Err(bad),
            }
        }
    }

    /// Skips a nested value of any size in bounded memory.
    fn skip(&mut self) {
        let (mut depth, mut in_string, mut escaped) = (0u32, false, false);
        loop {
            for (i, &b) in self.w.data().iter().enumerate() {
                if in_string {
                    match b {
                        _ if escaped => escaped = false,
                        b'\\' => escaped = true,
                        b'"' => in_string = false,
                        _ => {}
                    }
                    continue;
                }
                match b {
                    b'"' => in_string = true,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            self.w.consume(i + 1);
                            return;
                        }
                    }
                    _ => {}
                }
            }
            self.w.consume(self.w.data().len());
            if !self.w.more() {
                return;
            }
        }
    }

    /// Moves to the next place that looks like the start of an event: `}`, `,`, `{` and `"` with white space at most
    /// between them. False where there is none.
    fn resync(&mut self) -> bool {
        loop {
            if self.resync_from(0) {
                return true;
            }
            // Keep a tail that may hold the beginning of the pattern.
            let keep = self.w.data().len().min(256);
            self.w.consume(self.w.data().len() - keep);
            if !self.w.more() {
                self.w.consume(self.w.data().len());
                return false;
            }
        }
    }

    /// The same, only in what is in memory; consumes nothing where nothing is found.
    fn resync_from(&mut self, from: usize) -> bool {
        let found = next_event(self.w.data(), from);
        self.w.consume(found.unwrap_or(0));
        found.is_some()
    }

    fn malformed(&mut self) {
        let offset = self.w.offset();
        self.flaws.add(
            "malformed_event",
            offset,
            "events with unescaped quotes, backslashes or the like; repaired or skipped one by one",
        );
    }

    /// The file ends here; what is left of it is the part of a value and is told of once.
    fn truncated(&mut self) {
        if self.w.broken().is_none() && !self.over {
            self.flaws.add("truncated", self.w.offset(), "the file ends inside a value; what came before it was read");
        }
        self.over = true;
        self.w.consume(self.w.data().len());
    }

    fn non_finite(&mut self) {
        let offset = self.w.offset();
        self.flaws.add("non_finite_number", offset, "bare inf or nan, which is no JSON; read as absent");
    }
}

/// Where the next event opens: behind `}` and `,` with white space at most between them, and before a `"`.
fn next_event(data: &[u8], from: usize) -> Option<usize> {
    let next = |mut i: usize| {
        while data.get(i).is_some_and(|b| *b <= b' ') {
            i += 1;
        }
        i
    };
    (from..data.len()).filter(|&i| data[i] == b'}').find_map(|i| {
        let comma = next(i + 1);
        let open = next(comma + 1);
        let quote = next(open + 1);
        let found = (data.get(comma), data.get(open), data.get(quote)) == (Some(&b','), Some(&b'{'), Some(&b'"'));
        found.then_some(open)
    })
}

/// The bracket behind the last event, which `}` comes before.
fn array_end(data: &[u8]) -> Option<usize> {
    let after = |i: usize| data[i + 1..].iter().position(|b| *b > b' ').map(|n| i + 1 + n);
    (0..data.len()).filter(|&i| data[i] == b'}').find_map(|i| after(i).filter(|&n| data[n] == b']'))
}

fn nested(s: &mut Scanner<'_>) -> Scanned<Vec<u8>> {
    match s.value()? {
        Value::Nested(raw) => Ok(raw.to_vec()),
        _ => Err(Stop::Bad(s.at)),
    }
}

/// Devices of a `deviceProperties` array; what cannot be read is left out.
fn devices(raw: &[u8]) -> Vec<DeviceInfo> {
    let Ok(serde_json::Value::Array(list)) = serde_json::from_slice(raw) else { return Vec::new() };
    let number = |v: &serde_json::Value, key: &str| v[key].as_u64().unwrap_or(0) as u32;
    list.iter()
        .map(|v| DeviceInfo {
            id: number(v, "id"),
            name: v["name"].as_str().unwrap_or("").to_string(),
            sm: number(v, "computeMajor") * 10 + number(v, "computeMinor"),
            sms: number(v, "numSms"),
        })
        .collect()
}
