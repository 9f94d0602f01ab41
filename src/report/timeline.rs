//! The data behind an interactive timeline, as JSON that may stand inside a page's script element.

use super::html::Picture;
use crate::error::{Error, Result};
use crate::profile::ledger::LineKind;
use crate::profile::timeline::Timeline;
use serde_json::{Map, Value, json};
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
    let mut causes = Map::new();
    for e in &t.evidence {
        let cause = e.runner_up.cause;
        let key = serde_json::to_value(cause).unwrap_or_default();
        causes.insert(key.as_str().unwrap_or_default().into(), cause.text().into());
    }
    let names: Vec<&str> = groups.iter().map(|(n, _)| n.as_str()).collect();
    let value = json!({
        "window_ns": t.window_ns, "names": t.names, "group": of, "groups": names, "segments": segments,
        "evidence": t.evidence, "lanes": t.lanes, "causes": causes,
    });
    let text = serde_json::to_string(&value).map_err(|e| Error::usage(format!("cannot write the timeline: {e}")))?;
    Ok(escape(&text))
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
