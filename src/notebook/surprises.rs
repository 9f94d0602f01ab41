//! The surprise log: one entry for each prediction that missed by more than 30 %, each with the fix to the mental model.

use super::BLANK;
use super::quantity::Pair;
use serde::Serialize;

/// One entry of `surprise_log.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub heading: String,
    pub cause: String,
    pub fix: String,
    #[serde(skip)]
    pub body: String,
}

impl Entry {
    /// Whether it is the entry of a note.
    pub fn is_of(&self, file: &str) -> bool {
        self.heading.contains(file) || self.body.contains(file)
    }
    /// What is still to be written in it.
    pub fn missing(&self) -> Vec<&'static str> {
        let empty = |t: &str| t.is_empty() || t.contains(BLANK);
        let mut names = Vec::new();
        if empty(&self.cause) {
            names.push("cause");
        }
        if empty(&self.fix) {
            names.push("`Fix` to the mental model");
        }
        names
    }
}

/// The entries, in the order of the log. A cause or fix runs on over indented lines.
pub fn entries(log: &str) -> Vec<Entry> {
    let parts = log.split("\n## ").skip(usize::from(!log.starts_with("## ")));
    parts
        .map(|e| {
            let (heading, body) = e.trim_start_matches("## ").split_once('\n').unwrap_or((e, ""));
            let item = |starts: &[&str]| {
                let mut lines = body.lines().skip_while(|l| !starts.iter().any(|s| l.starts_with(s)));
                let first = lines.next().and_then(|l| l.split_once(':')).map_or("", |(_, t)| t.trim()).to_string();
                lines.take_while(|l| l.starts_with("  ")).fold(first, |text, l| format!("{text} {}", l.trim()))
            };
            Entry {
                heading: heading.trim().into(),
                cause: item(&["- Suspected cause", "- Cause"]).trim().into(),
                fix: item(&["- Fix"]).trim().into(),
                body: body.into(),
            }
        })
        .collect()
}

/// The log with an entry drafted for a miss; unchanged where the miss is no surprise or already has one.
pub fn draft(log: &str, file: &str, date: &str, title: &str, pair: &Pair) -> Option<String> {
    let miss = pair.miss().filter(|m| super::is_surprise(*m))?;
    if entries(log).iter().any(|e| e.is_of(file)) {
        return None;
    }
    let name = if pair.name.is_empty() { title.to_string() } else { format!("{}: {title}", pair.name) };
    let measured = pair.measured?;
    let entry = format!(
        "## {date} — Predicted {} {unit}, measured {} {unit} ({:+.0} %): {name}\n\n- Suspected cause: {BLANK}\n\
         - Fix: {BLANK}\n- Note: {file}\n",
        super::number(pair.predicted),
        super::number(measured),
        100.0 * miss,
        unit = pair.unit,
    );
    let head = if log.trim().is_empty() { "# Surprise log\n" } else { log.trim_end() };
    Some(format!("{}\n\n{entry}", head.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_surprise_is_drafted_once_and_waits_for_its_fix() {
        let pair = Pair { name: String::new(), predicted: 6.1, measured: Some(8.34), unit: "µs".into() };
        let log = draft("", "a.md", "2026-11-30", "Attention", &pair).unwrap();
        let all = entries(&log);
        assert_eq!(all.len(), 1);
        assert!(all[0].heading.contains("+37 %") && all[0].is_of("a.md"));
        assert_eq!(all[0].missing().len(), 2);
        assert_eq!(draft(&log, "a.md", "2026-11-30", "Attention", &pair), None);
        let done =
            log.replacen("cause: …", "cause: latency\n  and its chain", 1).replacen("Fix: …", "Fix: count links", 1);
        let entry = &entries(&done)[0];
        assert_eq!((entry.cause.as_str(), entry.missing().len()), ("latency and its chain", 0));
    }

    #[test]
    fn thirty_percent_is_no_surprise() {
        let pair = Pair { name: String::new(), predicted: 10.0, measured: Some(13.0), unit: "ms".into() };
        assert_eq!(draft("", "a.md", "2026-11-30", "T", &pair), None);
        assert!(draft("", "a.md", "2026-11-30", "T", &Pair { measured: Some(6.9), ..pair }).is_some());
    }
}
