//! The data behind an interactive timeline, as JSON that may stand inside a page's script element.

use super::html::Picture;
use crate::error::{Error, Result};
use crate::profile::ledger::{LineKind, RecordKind};
use crate::profile::timeline::Timeline;
use serde_json::{Value, json};
use std::collections::HashMap;

/// A picture of a window. `group` tells which names share a colour: the class of a node's kernel, else the name itself.
pub fn picture(id: &str, title: &str, t: &Timeline, group: impl Fn(&str) -> String) -> Result<Picture> {
    Ok(Picture { id: id.into(), title: title.into(), data: data(t, group)? })
}

/// Times are nanoseconds from the window's start; names are indices. The script beside this knows the layout.
fn data(t: &Timeline, group: impl Fn(&str) -> String) -> Result<String> {
    // Colours go to groups by their time on the device, so that the largest differ most.
    let mut time: HashMap<String, i64> = HashMap::new();
    for lane in t.lanes.iter().filter(|l| l.group == "stream") {
        for (_, ns, name, _) in &lane.slices {
            *time.entry(group(&t.names[*name as usize])).or_default() += ns;
        }
    }
    let mut groups: Vec<(String, i64)> = time.into_iter().collect();
    groups.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let place: HashMap<&str, usize> = groups.iter().enumerate().map(|(i, (name, _))| (name.as_str(), i)).collect();
    let of: Vec<Option<usize>> = t.names.iter().map(|n| place.get(group(n).as_str()).copied()).collect();
    let segments: Vec<Value> =
        t.segments.iter().map(|s| json!([s.start, s.ns, s.name, s.evidence, kind(s.kind)])).collect();
    // Most of a page is evidence, and most of that the same few texts: each is written once.
    let mut texts = Texts::default();
    let evidence: Vec<Value> = t
        .evidence
        .iter()
        .map(|e| {
            let records: Vec<Value> = e
                .records
                .iter()
                .map(|r| json!([texts.id(&r.role), texts.id(&r.name), texts.id(record(r.record)), r.index]))
                .collect();
            json!([records, texts.id(e.runner_up.cause.text()), e.runner_up.why, u8::from(e.below_clock)])
        })
        .collect();
    let names: Vec<&str> = groups.iter().map(|(n, _)| n.as_str()).collect();
    let value = json!({
        "window_ns": t.window_ns, "names": t.names, "group": of, "groups": names, "segments": segments,
        "evidence": evidence, "texts": texts.list, "lanes": t.lanes,
    });
    let text = serde_json::to_string(&value).map_err(|e| Error::usage(format!("cannot write the timeline: {e}")))?;
    Ok(escape(&text))
}

/// Texts by number, each once.
#[derive(Default)]
struct Texts {
    list: Vec<String>,
    index: HashMap<String, usize>,
}

impl Texts {
    fn id(&mut self, text: &str) -> usize {
        if let Some(&i) = self.index.get(text) {
            return i;
        }
        self.list.push(text.to_string());
        self.index.insert(text.to_string(), self.list.len() - 1);
        self.list.len() - 1
    }
}

fn record(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Operation => "operation",
        RecordKind::Call => "call",
        RecordKind::Sync => "sync",
        RecordKind::Overhead => "overhead",
    }
}

/// No `<`, `>` or `&` is left in it, so no name can end the script element or open a comment.
fn escape(json: &str) -> String {
    json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

fn kind(k: LineKind) -> String {
    format!("{k:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_ends_the_script() {
        let name = "void k<int>(</script><!-- & \u{2028}";
        let t = Timeline { window_ns: 5, names: vec![name.into()], ..Timeline::default() };
        let text = data(&t, str::to_string).unwrap();
        assert!(!text.contains(['<', '>', '&']));
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["names"][0], name);
    }
}
