//! The last resort for an event whose quotes make no JSON: its fields by their keys, wherever they stand.
//!
//! Texts that a program put into the file unescaped may look like anything, so nothing between the fields is believed.

use super::event::{Category, Event};
use crate::profile::import::json::{Scanner, Value};

/// Arguments that are looked for.
const ARGS: [&[u8]; 14] = [
    b"device",
    b"stream",
    b"correlation",
    b"correlationId",
    b"registers per thread",
    b"shared memory",
    b"bytes",
    b"grid",
    b"block",
    b"graph id",
    b"graph node id",
    b"cuda_sync_kind",
    b"wait_on_stream",
    b"wait_on_cuda_event_record_corr_id",
];

/// An event of the text, if it says of what kind it is and when it was.
pub fn event(text: &[u8]) -> Option<Event<'_>> {
    let mut e = Event { phase: b'X', ..Event::default() };
    e.phase = value(text, b"ph")?.bytes()?.first().copied()?;
    e.category = Category::of(value(text, b"cat")?.bytes()?);
    e.ts = value(text, b"ts").and_then(|v| e.time(v));
    e.duration = value(text, b"dur").and_then(|v| e.time(v));
    if e.phase != b'X' || e.ts.is_none() || e.duration.is_none() {
        return None;
    }
    e.name = name(text);
    (e.pid, e.tid) = (value(text, b"pid"), value(text, b"tid"));
    for key in ARGS {
        if let Some(value) = value(text, key) {
            e.args.set(key, value);
        }
    }
    Some(e)
}

/// Where the value of a key begins: the first place where the key stands in quotes before a colon.
fn place(text: &[u8], key: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(quote) = text[at..].iter().position(|b| *b == b'"') {
        at += quote + 1;
        if let Some(rest) = text[at..].strip_prefix(key).and_then(|r| r.strip_prefix(b"\"")) {
            let colon = rest.iter().position(|b| *b > b' ')?;
            if rest[colon] == b':' {
                return Some(text.len() - rest.len() + colon + 1);
            }
        }
    }
    None
}

fn value<'a>(text: &'a [u8], key: &[u8]) -> Option<Value<'a>> {
    Scanner::new(&text[place(text, key)?..], false).value().ok()
}

/// The name: up to the quote before the next field that an event has.
fn name(text: &[u8]) -> &[u8] {
    let Some(from) = place(text, b"name") else { return b"" };
    let Some(open) = text[from..].iter().position(|b| *b == b'"') else { return b"" };
    let begin = from + open + 1;
    let fields: [&[u8]; 7] = [b"ph", b"cat", b"pid", b"tid", b"ts", b"dur", b"args"];
    let next = fields.iter().filter_map(|f| {
        let rest = &text[begin..];
        let end = place(rest, f)?;
        // Back over the colon, the key and its quote.
        rest[..end].windows(f.len() + 1).rposition(|w| w[0] == b'"' && &w[1..] == *f)
    });
    let Some(next) = next.min() else { return b"" };
    let field = &text[begin..begin + next];
    field.iter().rposition(|b| *b == b'"').map_or(field, |end| &field[..end])
}
