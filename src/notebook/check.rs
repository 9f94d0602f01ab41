//! Whether the notebook keeps its rules: every section written, the arithmetic true, seals whole, a number predicted and
//! measured and no better than its floor, a surprise explained, links alive, the index current, the habit kept up.

use super::amend::{self, Derivation};
use super::quantity::Quantity;
use super::{BLANK, FIELDS, Note, SECTIONS, SURPRISE, WAITING, arithmetic, document, index, seal, surprises, template};
use serde::Serialize;

/// Notes that the habit asks for: by so many days after the first note, so many notes.
const CADENCE: [(i64, usize); 3] = [(7, 3), (30, 15), (182, 80)];

/// Whether something is worth knowing, is still to be written, or contradicts a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing to mend, but to be known.
    Information,
    Incomplete,
    Wrong,
}

/// One thing to mend, or to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub note: String,
    pub kind: Severity,
    pub what: String,
}

/// All findings. `log` and `readme` are the texts of `surprise_log.md` and `README.md`, empty where absent; `exists` says
/// whether a path that a note names is there; nothing may have been added to a seal after `now`.
pub fn check(
    notes: &[Note],
    log: &str,
    readme: &str,
    exists: &dyn Fn(&str) -> bool,
    now: jiff::Timestamp,
) -> Vec<Finding> {
    let mut found: Vec<Finding> = notes.iter().flat_map(|n| of_note(n, log, exists)).collect();
    let mut add = |file: &str, kind, what| found.push(Finding { note: file.into(), kind, what });
    for note in notes {
        for a in amend::of(note).0.iter().filter(|a| a.is_future(now)) {
            let what = format!("added after the seal{}: {} is still to come", spaced(&a.name), a.at);
            add(&note.file, Severity::Wrong, what);
        }
    }
    for entry in surprises::entries(log) {
        for word in entry.missing() {
            add("surprise_log.md", Severity::Incomplete, format!("`{}` names no {word}", entry.heading));
        }
        if let Some(miss) = percent(&entry.heading).filter(|m| m.abs() < 100.0 * SURPRISE - 0.5) {
            let what = format!("`{}`: {miss:+} % is no surprise, the rule is 30 %", entry.heading);
            add("surprise_log.md", Severity::Wrong, what);
        }
    }
    if readme != index::render(notes) {
        add("README.md", Severity::Wrong, "the index is not current: workbench note index".into());
    }
    if let Some(what) = cadence(notes) {
        add("", Severity::Incomplete, what);
    }
    found
}

/// What is no failure but to be known: the sealed numbers whose derivation is not in what was sealed, as their notes own
/// up to it.
pub fn information(notes: &[Note]) -> Vec<Finding> {
    let mut told = Vec::new();
    for note in notes {
        for s in seal::of(note).0.iter().filter(|s| !s.revision) {
            let (how, added) = (amend::derivation(note, s), amend::last(note, &s.seal.name));
            let Some(a) = added.filter(|_| how != Derivation::Sealed) else { continue };
            let Quantity { name, value, unit } = s.seal.quantity();
            let what = format!("{}{value} {unit} is {} ({}): {}", prefixed(&name), how.name(), a.at, a.text);
            told.push(Finding { note: note.file.clone(), kind: Severity::Information, what });
        }
    }
    told
}

/// How many first seals are derived where: in what was sealed, after it, nowhere.
pub fn derivations(notes: &[Note]) -> [usize; 3] {
    let of = |d| {
        let first =
            |n| seal::of(n).0.into_iter().filter(|s| !s.revision).filter(|s| amend::derivation(n, s) == d).count();
        notes.iter().map(first).sum()
    };
    [of(Derivation::Sealed), of(Derivation::After), of(Derivation::None)]
}

/// A quantity's name before its number.
fn prefixed(name: &str) -> String {
    if name.is_empty() { "the sealed ".into() } else { format!("{name}: the sealed ") }
}

/// The last percentage of a text.
fn percent(text: &str) -> Option<f64> {
    let before = text[..text.rfind('%')?].trim_end();
    let start = before.rfind(|c: char| !(c.is_ascii_digit() || ".+-−".contains(c))).map_or(0, |i| i + 1);
    let start = (start..before.len()).find(|i| before.is_char_boundary(*i))?;
    before[start..].replace('−', "-").parse().ok()
}

/// Whether there are as many notes as the habit makes: 3 in the first week, 15 in the first month, 80 in six. Time is
/// counted to the newest note, so that a notebook at rest does not begin to fail.
fn cadence(notes: &[Note]) -> Option<String> {
    let day = |n: &Note| n.file.get(..10)?.parse::<jiff::civil::Date>().ok();
    let mut days: Vec<jiff::civil::Date> = notes.iter().filter_map(day).collect();
    days.sort();
    let (first, last) = (*days.first()?, *days.last()?);
    let age = |d: jiff::civil::Date| d.since(first).map_or(0, |s| i64::from(s.get_days()));
    let (by, least) = CADENCE.into_iter().rfind(|(by, _)| age(last) >= *by)?;
    let many = days.iter().filter(|d| age(**d) <= by).count();
    (many < least).then(|| format!("{many} notes in the first {by} days; the habit makes at least {least}"))
}

/// Paths that a note names: links, and names in backticks that look like files.
fn paths(text: &str) -> Vec<String> {
    let links = text.split("](").skip(1).filter_map(|t| t.split_once(')')).map(|(t, _)| t.to_string());
    let quoted = text.lines().flat_map(|l| l.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>());
    let plain = |p: &String| {
        let clean =
            !p.contains("://") && !p.starts_with(['-', '#', '/']) && !p.contains([' ', '<', '|', '{', '$', '=']);
        clean && (p.contains('/') || p.ends_with(".md"))
    };
    links.chain(quoted).filter(plain).map(|p| p.split('#').next().unwrap_or_default().to_string()).collect()
}

/// Whether a named path is missing. A star matches anything; without a file ending only a path below an existing folder
/// is held to exist.
fn missing(path: &str, exists: &dyn Fn(&str) -> bool) -> bool {
    let path = path.trim_end_matches('/');
    let path = match path.find('*') {
        Some(star) => path[..star].rsplit_once('/').map_or("", |(folder, _)| folder),
        None => path.split_once(':').map_or(path, |(file, _)| file),
    };
    let root = path.split('/').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    !path.is_empty() && !exists(path) && (exists(root) || name.contains('.'))
}

fn of_note(note: &Note, log: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |kind, what: String| found.push(Finding { note: note.file.clone(), kind, what });
    use Severity::{Incomplete, Wrong};
    if note.title.is_empty() {
        add(Incomplete, "no title".into());
    }
    for name in FIELDS {
        if note.field(name).is_none_or(|v| v.is_empty() || v == BLANK || v == "YYYY-MM-DD") {
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
    for (_, body) in &note.sections {
        for path in paths(body).iter().filter(|p| missing(p, exists)) {
            add(Wrong, format!("`{path}` does not exist"));
        }
    }
    let (predicted, measured) = note.quantities();
    for (word, list) in [("predicted", &predicted), ("measured", &measured)] {
        for (i, q) in list.iter().enumerate() {
            if list[..i].iter().any(|o| o.name == q.name) {
                add(Wrong, format!("two numbers are {word}{}: name what is scored once", spaced(&q.name)));
            }
        }
    }
    let arithmetic = note.section("Arithmetic").unwrap_or_default();
    for fault in arithmetic::check(arithmetic).faults {
        add(Wrong, format!("`{}`: {}", fault.text, fault.why));
    }
    if predicted.is_empty() {
        add(Incomplete, "no number in bold: **Predicted: VALUE UNIT**".into());
    }
    seals(note, &predicted, &mut add);
    let written = note.section("Measurement").is_some_and(|b| !document::written(b).is_empty());
    for p in note.pairs() {
        let name = spaced(&p.name);
        if !(p.predicted.is_finite() && p.predicted != 0.0) {
            add(Wrong, format!("a predicted{name} of {} has no relative miss", p.predicted));
            continue;
        }
        match (p.miss(), measured.iter().find(|m| m.name == p.name)) {
            (Some(miss), _) if super::is_surprise(miss) => {
                if !surprises::entries(log).iter().any(|e| e.is_of(&note.file)) {
                    let percent = 100.0 * miss;
                    let what =
                        format!("missed{name} by {percent:+.0} %, and surprise_log.md has no entry with {}", note.file);
                    add(Wrong, what);
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

fn spaced(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" {name}") }
}

/// What the seals of a note must keep.
fn seals(note: &Note, predicted: &[Quantity], add: &mut dyn FnMut(Severity, String)) {
    use Severity::{Incomplete, Wrong};
    let (seals, broken) = seal::of(note);
    for line in broken {
        add(Wrong, format!("`{line}` cannot be read as a seal"));
    }
    let (added, unread) = amend::of(note);
    for line in unread {
        add(Wrong, format!("`{line}` cannot be read as something added after a seal"));
    }
    for (a, why) in added.iter().filter_map(|a| a.fault(note).map(|why| (a, why))) {
        add(Wrong, format!("added after the seal{}: {why}", spaced(&a.name)));
    }
    for s in &seals {
        let name = spaced(&s.seal.name);
        if !s.whole {
            add(Wrong, format!("the prediction{name} was changed after it was sealed"));
        }
        if !seal::REGIMES.contains(&s.seal.regime.as_str()) {
            add(Wrong, format!("regime `{}` is none of {}", s.seal.regime, seal::REGIMES.join(", ")));
        }
        if s.revision {
            continue;
        }
        let bold = predicted.iter().find(|q| q.name == s.seal.name).and_then(|q| q.in_unit(&s.seal.unit));
        if bold != Some(s.seal.value) {
            add(Wrong, format!("**Predicted{name}** is not the sealed {} {}", s.seal.value, s.seal.unit));
        }
        if amend::derivation(note, s) == Derivation::None && amend::last(note, &s.seal.name).is_none() {
            let what =
                format!("no number of the arithmetic arrives at the sealed{name} {} {}", s.seal.value, s.seal.unit);
            add(Incomplete, what);
        }
        let (_, measured) = note.quantities();
        let measured = measured.iter().find(|m| m.name == s.seal.name).and_then(|m| m.in_unit(&s.seal.unit));
        if let (Some(m), Some(floor)) = (measured, s.seal.floor)
            && s.seal.better.beats(m, floor)
        {
            add(
                Wrong,
                format!(
                    "measured{name} {m} {} is better than the floor {floor}: an invalid measurement or another configuration",
                    s.seal.unit
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::EXAMPLE;
    use super::*;

    fn findings(text: &str, log: &str) -> Vec<String> {
        let notes = [Note::parse("2026-08-08_softmax.md", text)];
        check(&notes, log, &index::render(&notes), &|_| true, jiff::Timestamp::now())
            .into_iter()
            .map(|f| f.what)
            .collect()
    }

    #[test]
    fn a_whole_note_passes_and_an_old_index_does_not() {
        assert_eq!(findings(EXAMPLE, ""), Vec::<String>::new());
        let notes = [Note::parse("2026-08-08_softmax.md", EXAMPLE)];
        assert!(check(&notes, "", "old", &|_| true, jiff::Timestamp::now()).iter().any(|f| f.what.contains("index")));
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

    #[test]
    fn false_arithmetic_dead_links_and_doubled_names_are_wrong() {
        assert!(findings(&EXAMPLE.replace("= 12.3 ms", "= 14.3 ms"), "")[0].contains("left side is 12.257"));
        assert!(
            findings(&EXAMPLE.replace("Predicted speedup: 1.50x", "Predicted: 1.5 ms"), "")[0].contains("two numbers")
        );
        let notes =
            [Note::parse("2026-08-08_softmax.md", &EXAMPLE.replace("Occupancy.", "See `bench/logs/a.log`, `M/N`."))];
        let found = check(&notes, "", &index::render(&notes), &|p| p == "bench", jiff::Timestamp::now());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].kind, found[0].what.as_str()), (Severity::Wrong, "`bench/logs/a.log` does not exist"));
    }

    #[test]
    fn an_entry_below_thirty_percent_is_refused() {
        let log = "# S\n\n## 2026-08-08 — Softmax off by 20 %\n- Suspected cause: x\n- Fix: y\n";
        assert!(findings(EXAMPLE, log)[0].contains("no surprise"));
        assert_eq!(percent("(+37 %)"), Some(37.0));
        assert_eq!(percent("by −31.5%"), Some(-31.5));
        assert_eq!(percent("none"), None);
    }

    #[test]
    fn the_habit_is_counted_to_the_newest_note() {
        let on = |d: &str| Note::parse(&format!("{d}_x.md"), EXAMPLE);
        assert_eq!(cadence(&[on("2026-08-01"), on("2026-08-05")]), None);
        assert!(cadence(&[on("2026-08-01"), on("2026-08-09")]).unwrap().contains("at least 3"));
        let enough: Vec<Note> = (1..=4).map(|d| on(&format!("2026-08-0{d}"))).chain([on("2026-08-20")]).collect();
        assert_eq!(cadence(&enough), None);
        let month: Vec<Note> = enough.into_iter().chain([on("2026-09-20")]).collect();
        assert!(cadence(&month).unwrap().contains("at least 15"));
    }
}
