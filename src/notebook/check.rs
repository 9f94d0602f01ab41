//! Whether the notebook keeps its rules: every section written, a number predicted and measured, a surprise explained,
//! the index current.

use super::{FIELDS, Note, SECTIONS, index, template};
use serde::Serialize;

/// Relative miss beyond which the surprise log needs an entry.
pub const SURPRISE: f64 = 0.30;
/// What a section says that waits for its run.
const WAITING: &str = "Not yet run.";

/// Whether something is still to be written or contradicts a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Incomplete,
    Wrong,
}

/// One thing to mend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub note: String,
    pub kind: Severity,
    pub what: String,
}

/// All findings. `surprises` and `readme` are the texts of `surprise_log.md` and `README.md`, empty where absent.
pub fn check(notes: &[Note], surprises: &str, readme: &str) -> Vec<Finding> {
    let mut found: Vec<Finding> = notes.iter().flat_map(|n| of_note(n, surprises)).collect();
    let mut log =
        |what: String| found.push(Finding { note: "surprise_log.md".into(), kind: Severity::Incomplete, what });
    for (heading, body) in entries(surprises) {
        for word in ["cause", "Fix"] {
            if !body.contains(word) {
                log(format!("`{heading}` names no {}", if word == "Fix" { "`Fix` to the mental model" } else { word }));
            }
        }
    }
    if readme != index::render(notes) {
        found.push(Finding {
            note: "README.md".into(),
            kind: Severity::Wrong,
            what: "the index is not current: workbench note index".into(),
        });
    }
    found
}

/// Heading and text of each entry of the log.
fn entries(log: &str) -> Vec<(&str, &str)> {
    let parts = log.split("\n## ").skip(usize::from(!log.starts_with("## ")));
    parts.map(|e| e.trim_start_matches("## ").split_once('\n').unwrap_or((e, ""))).collect()
}

fn of_note(note: &Note, surprises: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |kind, what: String| found.push(Finding { note: note.file.clone(), kind, what });
    use Severity::{Incomplete, Wrong};
    if note.title.is_empty() {
        add(Incomplete, "no title".into());
    }
    for name in FIELDS {
        if note.field(name).is_none_or(|v| v.is_empty() || v == template::BLANK || v == "YYYY-MM-DD") {
            add(Incomplete, format!("field `{name}` is not filled in"));
        }
    }
    if let Some(date) = note.field("Date").filter(|d| !note.file.starts_with(*d)) {
        add(Wrong, format!("its date {date} is not the one in its file name"));
    }
    for (name, hint) in SECTIONS.iter().zip(template::HINTS) {
        match note.section(name) {
            None => add(Incomplete, format!("no section `{name}`")),
            Some(body) if body.is_empty() || body == WAITING => add(Incomplete, format!("`{name}` is not written")),
            Some(body) if hint.lines().any(|h| body.lines().any(|l| l.trim() == h)) => {
                add(Incomplete, format!("`{name}` still has the template's text"));
            }
            Some(_) => {}
        }
    }
    let (predicted, measured) = note.quantities();
    if predicted.is_empty() {
        add(Incomplete, "no number in bold: **Predicted: VALUE UNIT**".into());
    }
    let written = note.section("Measurement").is_some_and(|b| !b.is_empty() && b != WAITING);
    for p in note.pairs() {
        let name = if p.name.is_empty() { String::new() } else { format!(" {}", p.name) };
        if !(p.predicted.is_finite() && p.predicted != 0.0) {
            add(Wrong, format!("a predicted{name} of {} has no relative miss", p.predicted));
            continue;
        }
        match (p.miss(), measured.iter().find(|m| m.name == p.name)) {
            (Some(miss), _) if miss.abs() > SURPRISE => {
                let logged = entries(surprises).iter().any(|(h, b)| h.contains(&note.file) || b.contains(&note.file));
                if !logged {
                    add(
                        Wrong,
                        format!(
                            "missed{name} by {:+.0} %, and surprise_log.md has no entry with {}",
                            100.0 * miss,
                            note.file
                        ),
                    );
                }
            }
            (Some(_), _) => {}
            (None, Some(m)) => add(Wrong, format!("predicted{name} in {}, measured in {}", p.unit, m.unit)),
            (None, None) if written => {
                add(Incomplete, format!("no number in bold: **Measured{name}: VALUE {}**", p.unit))
            }
            (None, None) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::EXAMPLE;
    use super::*;

    fn findings(text: &str, log: &str) -> Vec<String> {
        let notes = [Note::parse("2026-08-08_softmax.md", text)];
        check(&notes, log, &index::render(&notes)).into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn a_whole_note_passes_and_an_old_index_does_not() {
        assert_eq!(findings(EXAMPLE, ""), Vec::<String>::new());
        let notes = [Note::parse("2026-08-08_softmax.md", EXAMPLE)];
        assert!(check(&notes, "", "old").iter().any(|f| f.what.contains("index")));
    }

    #[test]
    fn what_is_missing_is_named() {
        let empty = findings(&template::note("T", "2026-08-08"), "");
        for word in ["Hardware", "Hypothesis", "Arithmetic", "Measurement", "Gap", "Lesson", "Follow-up", "Predicted"] {
            assert!(empty.iter().any(|f| f.contains(word)), "{word}: {empty:?}");
        }
        let waiting = EXAMPLE.replace("Occupancy.", "Not yet run.");
        assert_eq!(findings(&waiting, ""), ["`Gap explanation` is not written"]);
        let cut = EXAMPLE.replace("**Measured speedup: 1.30x**", "1.3 times");
        assert_eq!(findings(&cut, ""), ["no number in bold: **Measured speedup: VALUE ×**"]);
        assert!(findings(&EXAMPLE.replace("14,700 µs", "5 GB/s"), "")[0].contains("measured in GB/s"));
    }

    #[test]
    fn a_surprise_needs_its_entry() {
        let off = EXAMPLE.replace("14,700 µs", "17 ms");
        assert!(findings(&off, "")[0].contains("+38 %"));
        let entry = "# Surprises\n\n## 2026-08-08 — +38 %\n- Suspected cause: x (2026-08-08_softmax.md)\n- Fix: y\n";
        assert_eq!(findings(&off, entry), Vec::<String>::new());
        assert!(findings(&off, &entry.replace("Fix: y", "later"))[0].contains("Fix"));
    }
}
