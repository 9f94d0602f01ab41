//! What is owned up to after a seal: a dated line below it that says how its number comes about, or that it does not.
//!
//! `- Added after the seal 28672×4096, m=8, 2026-12-01T00:10:00Z: derived: 14.7 µs + 2.8 µs = 17.5 µs; units were missing`
//! `- Added after the seal decode, 2026-12-01T00:10:00Z: not derived: the arithmetic ends at 9.3 µs`
//!
//! Such a line stands below the seal, so that it is no part of what the seal's hash is of, and it never counts as the
//! prediction's own arithmetic: statistics keep these predictions apart. Of several lines about one seal the last counts.

use super::quantity::Quantity;
use super::seal::{Seal, Sealed};
use super::{Note, arithmetic, seal};
use crate::error::{Error, Result};
use serde::Serialize;

/// How such a line begins.
pub const START: &str = "- Added after the seal";
/// Relative difference within which arithmetic arrives at a sealed number.
const ARRIVES: f64 = 0.015;

/// Where the derivation of a sealed number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Derivation {
    /// In the arithmetic above the seal, and so under its hash.
    Sealed,
    /// In a line that was added after the seal.
    After,
    /// Nowhere.
    None,
}

impl Derivation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sealed => "derived before the seal",
            Self::After => "derived after the seal",
            Self::None => "not derived",
        }
    }
}

/// One line added after a seal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Amendment {
    /// Name of the quantity, empty where the note has one only.
    pub name: String,
    /// UTC, RFC 3339.
    pub at: String,
    /// Whether the text claims to derive the number; if not, it says that nothing does.
    pub derived: bool,
    pub text: String,
}

impl Amendment {
    /// The whole line.
    pub fn line(&self) -> String {
        let name = if self.name.is_empty() { String::new() } else { format!(" {}", self.name) };
        let word = if self.derived { "derived" } else { "not derived" };
        format!("{START}{name}, {}: {word}: {}", self.at, self.text)
    }

    /// Reads a line; `None` where it is none, or not a whole one.
    pub fn parse(line: &str) -> Option<Self> {
        let (head, rest) = line.trim().strip_prefix(START)?.split_once(": ")?;
        let (name, at) = head.rsplit_once(", ")?;
        at.parse::<jiff::Timestamp>().ok()?;
        let (word, text) = rest.split_once(": ")?;
        let derived = match word {
            "derived" => true,
            "not derived" => false,
            _ => return None,
        };
        let whole = !text.trim().is_empty();
        whole.then(|| Self { name: name.trim().into(), at: at.into(), derived, text: text.trim().into() })
    }

    /// Whether its time is after `now`.
    pub fn is_future(&self, now: jiff::Timestamp) -> bool {
        self.at.parse::<jiff::Timestamp>().is_ok_and(|at| at > now)
    }

    /// Why this line may not stand in `note`, whose line it is or is to become.
    pub fn fault(&self, note: &Note) -> Option<String> {
        let (seals, _) = seal::of(note);
        let Some(first) = seals.iter().find(|s| s.seal.name == self.name) else {
            let names: Vec<String> = seals.iter().map(|s| format!("`{}`", s.seal.name)).collect();
            return Some(format!("no prediction `{}` is sealed, only {}", self.name, names.join(", ")));
        };
        let time = |t: &str| t.parse::<jiff::Timestamp>().ok();
        if time(&self.at) < time(&first.seal.at) {
            return Some(format!("{} is before the seal of {}", self.at, first.seal.at));
        }
        if first.above.lines().any(|l| Self::parse(l).as_ref() == Some(self)) {
            return Some("it stands above the seal that it was added after".into());
        }
        if let Some(fault) = arithmetic::check(&self.text).faults.first() {
            return Some(format!("`{}`: {}", fault.text, fault.why));
        }
        if self.derived && !derives(&self.text, &first.seal) {
            let Seal { value, unit, .. } = &first.seal;
            return Some(format!("it derives nothing: no equation with units ends at the sealed {value} {unit}"));
        }
        None
    }
}

/// The lines added to a note, and those that begin like one but cannot be read.
pub fn of(note: &Note) -> (Vec<Amendment>, Vec<String>) {
    let lines = note.sections.iter().flat_map(|(_, body)| body.lines()).filter(|l| l.trim().starts_with(START));
    let (mut read, mut broken) = (Vec::new(), Vec::new());
    for line in lines {
        match Amendment::parse(line) {
            Some(a) => read.push(a),
            None => broken.push(line.trim().into()),
        }
    }
    (read, broken)
}

/// The last line about a quantity that may stand; the others count for nothing.
pub fn last(note: &Note, name: &str) -> Option<Amendment> {
    of(note).0.into_iter().rfind(|a| a.name == name && a.fault(note).is_none())
}

/// Where the derivation of a seal's number is.
pub fn derivation(note: &Note, sealed: &Sealed) -> Derivation {
    if arrives(&sealed.above, &sealed.seal) {
        Derivation::Sealed
    } else if last(note, &sealed.seal.name).is_some_and(|a| a.derived) {
        Derivation::After
    } else {
        Derivation::None
    }
}

/// The line to be added to a note.
///
/// # Errors
/// No such sealed prediction, a seal that does not hold, arithmetic that needs nothing added, a text of several lines or
/// with bold numbers, an equation that does not hold, or, where it claims to derive, one that does not end at the sealed
/// number.
pub fn draft(note: &Note, name: &str, derived: bool, text: &str, now: &str) -> Result<Amendment> {
    let file = &note.file;
    if text.trim().is_empty() || text.contains(['\n', '\r']) || text.contains("**") {
        return Err(Error::usage("what is added is one line of text, without numbers in bold"));
    }
    let amendment = Amendment { name: name.into(), at: now.into(), derived, text: text.trim().into() };
    let refuse = |why: String| Error::check(format!("{file}: `{}`: {why}", amendment.line().trim_start_matches("- ")));
    if let Some(why) = amendment.fault(note) {
        return Err(
            refuse(why).try_next("--derived 'A µs + B µs = SEALED µs; why', or --not-derived 'what is missing'")
        );
    }
    let (seals, _) = seal::of(note);
    if let Some(broken) = seals.iter().find(|s| !s.whole) {
        return Err(
            refuse(format!("the seal of `{}` does not hold", broken.seal.name)).try_next("workbench note check")
        );
    }
    if seals.iter().any(|s| s.seal.name == name && !s.revision && arrives(&s.above, &s.seal)) {
        return Err(refuse("what was sealed arrives at its number already".into()));
    }
    Ok(amendment)
}

/// Whether some equation of a text holds and ends at the sealed number, in a unit that converts to the seal's.
fn derives(text: &str, seal: &Seal) -> bool {
    text.split([';', '|']).any(|segment| {
        let outcome = arithmetic::check(segment);
        let end = segment.rsplit(['=', '≈']).next().unwrap_or_default();
        outcome.held > 0 && outcome.faults.is_empty() && arrives(end, seal)
    })
}

/// Whether some number of an arithmetic, outside the bold ones, the seals and what was added, is the sealed one.
fn arrives(section: &str, seal: &Seal) -> bool {
    let own = |l: &&str| !l.trim().starts_with("- Sealed") && !l.trim().starts_with(START);
    let text: String = section.lines().filter(own).flat_map(|l| l.split("**").step_by(2).chain(["\n"])).collect();
    // `0.62 µs` is not 62 µs, nor are `1,062 µs`.
    let goes_on = |before: &str| match before.chars().next_back() {
        Some(p) if ".,".contains(p) => before[..before.len() - 1].ends_with(|d: char| d.is_ascii_digit()),
        p => p.is_some_and(|p| p.is_ascii_digit()),
    };
    text.char_indices().filter(|(i, c)| c.is_ascii_digit() && !goes_on(&text[..*i])).any(|(i, _)| {
        super::quantity::value(&text[i..]).is_some_and(|(value, unit)| {
            let unit = unit.trim_end_matches([',', ';', '.', ')', ':']).to_string();
            let q = Quantity { name: String::new(), value, unit };
            q.in_unit(&seal.unit).is_some_and(|v| (v - seal.value).abs() <= ARRIVES * seal.value.abs())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::document;
    use super::*;

    /// A note whose arithmetic, without units, does not arrive at its two seals.
    fn sealed() -> Note {
        let mut text = super::super::template::note("T", "2026-08-08");
        text = document::append(&text, "Hypothesis", "> Memory.").unwrap();
        text = document::append(&text, "Arithmetic", "- 14.7 + 2.8 = 17.5\n- **Predicted m=8, k: 17.5 µs**").unwrap();
        for (name, value) in [("m=8, k", 17.5), ("", 9.5)] {
            let note = Note::parse("a.md", &text);
            let mut seal = Seal::parse(&format!(
                "- Sealed {name}: {value} µs; less is better; regime compute; 2026-08-08T10:00:00Z; commit a; hash 0"
            ))
            .unwrap();
            seal.hash = seal.digest(
                "a.md",
                note.section("Hypothesis").unwrap(),
                note.section("Arithmetic").unwrap_or_default(),
            );
            text = document::append(&text, "Arithmetic", &seal.line()).unwrap();
        }
        let note = Note::parse("a.md", &text);
        assert!(seal::of(&note).0.iter().all(|s| s.whole));
        note
    }

    fn with(note: &Note, lines: &str) -> Note {
        let mut note = note.clone();
        note.sections.iter_mut().find(|(h, _)| h.starts_with("Arithmetic")).unwrap().1 += &format!("{lines}\n");
        note
    }

    const LATER: &str = "2026-08-09T00:00:00Z";

    #[test]
    fn a_line_comes_back() {
        for (name, derived) in [("m=8, k", true), ("", false)] {
            let a =
                Amendment { name: name.into(), at: LATER.into(), derived, text: "1 µs + 2 µs = 3 µs; x: y".into() };
            assert_eq!(Amendment::parse(&a.line()), Some(a));
        }
        for bad in [
            "- Added after the seal: derived: x",
            "- Added after the seal a, yesterday: derived: x",
            "- Added after the seal a, 2026-08-09T00:00:00Z: x",
            "- Added after the seal a, 2026-08-09T00:00:00Z: derived: ",
        ] {
            assert_eq!(Amendment::parse(bad), None, "{bad}");
            assert_eq!(of(&with(&sealed(), bad)).1.len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_derivation_must_hold_and_end_at_the_sealed_number() {
        let note = sealed();
        let ok = |text: &str| draft(&note, "m=8, k", true, text, LATER).map(|_| ()).map_err(|e| e.to_string());
        ok("14.7 µs + 2.8 µs = 17.5 µs; the units were missing").unwrap();
        for (text, why) in [
            ("14.7 µs + 2.8 µs = 17.5", "the left side is 17.5"),
            ("14.7 + 2.8 = 17.5", "derives nothing"),
            ("2 µs + 2 µs = 4 µs; so 17.5 µs", "derives nothing"),
            ("17.5 µs", "derives nothing"),
            ("14.7 µs + 4 µs = 17.5 µs", "the left side is 18.7"),
            ("14.7 µs + 4 µs = 18.7 µs", "derives nothing"),
            ("", "one line"),
            ("a\n- b", "one line"),
            ("**Predicted x: 3 µs**", "bold"),
        ] {
            assert!(ok(text).unwrap_err().contains(why), "{text}: {:?}", ok(text));
        }
        assert!(draft(&note, "m=8, k", false, "it ends at 17.4 by hand", LATER).is_ok());
    }

    #[test]
    fn a_part_of_a_number_is_not_a_number() {
        let seal = |value, unit: &str| Seal { value, unit: unit.into(), ..seal::of(&sealed()).0[0].seal.clone() };
        assert!(arrives("a tile 62 µs", &seal(62.0, "µs")) && arrives("64 rows, 62 µs", &seal(62.0, "µs")));
        assert!(!arrives("a chunk 0.62 µs", &seal(62.0, "µs")) && !arrives("a step 1,062 µs", &seal(62.0, "µs")));
        assert!(!arrives("**62 µs**", &seal(62.0, "µs")), "the predicted number itself");
    }

    #[test]
    fn what_is_derived_already_needs_no_line_and_a_broken_seal_takes_none() {
        let note = sealed();
        let own = Note { file: "a.md".into(), ..note.clone() };
        let broken = Note { file: "b.md".into(), ..note };
        let said = draft(&broken, "m=8, k", false, "x", LATER).unwrap_err().to_string();
        assert!(said.contains("does not hold"), "{said}");
        let mut whole = own;
        let body = &mut whole.sections.iter_mut().find(|(h, _)| h.starts_with("Arithmetic")).unwrap().1;
        *body = "- 14.7 µs + 2.8 µs = 17.5 µs\n- **Predicted m=8, k: 17.5 µs**\n".into();
        let mut seal = seal::of(&sealed()).0[0].seal.clone();
        seal.hash = seal.digest("a.md", whole.section("Hypothesis").unwrap(), whole.section("Arithmetic").unwrap());
        let whole = with(&whole, &seal.line());
        let said = draft(&whole, "m=8, k", true, "14.7 µs + 2.8 µs = 17.5 µs", LATER).unwrap_err().to_string();
        assert!(said.contains("arrives at its number already"), "{said}");
    }

    #[test]
    fn the_last_line_counts_and_time_does_not_run_ahead() {
        let note = sealed();
        let right = draft(&note, "m=8, k", true, "14.7 µs + 2.8 µs = 17.5 µs", LATER).unwrap();
        let taken_back = Amendment { derived: false, text: "a guess".into(), ..right.clone() };
        let after = with(&note, &format!("{}\n{}", right.line(), taken_back.line()));
        assert_eq!(derivation(&after, &seal::of(&after).0[0]), Derivation::None);
        let now = |t: &str| t.parse::<jiff::Timestamp>().unwrap();
        assert!(!right.is_future(now(LATER)) && right.is_future(now("2026-08-08T23:59:59Z")));
    }

    #[test]
    fn no_pair_that_is_not_there_no_time_before_the_seal_no_place_above_it() {
        let note = sealed();
        let text = "14.7 µs + 2.8 µs = 17.5 µs";
        let why = |name, at| draft(&note, name, true, text, at).unwrap_err().to_string();
        assert!(why("m=9", LATER).contains("no prediction `m=9` is sealed"));
        assert!(why("m=8, k", "2026-08-08T09:59:59Z").contains("before the seal"));
        let line = draft(&note, "m=8, k", true, text, LATER).unwrap();
        let early = Amendment { at: "2026-08-08T09:59:59Z".into(), ..line.clone() };
        let other = Amendment { name: "m=9".into(), ..line.clone() };
        for bad in [&early, &other] {
            let after = with(&note, &bad.line());
            assert!(bad.fault(&after).is_some());
            assert!(seal::of(&after).0.iter().all(|s| derivation(&after, s) == Derivation::None));
        }
        // Above the seal it breaks the hash as well.
        let mut above = note.clone();
        let body = &mut above.sections.iter_mut().find(|(h, _)| h.starts_with("Arithmetic")).unwrap().1;
        *body = format!("{}\n{body}", line.line());
        assert!(line.fault(&above).unwrap().contains("above the seal"));
        assert!(seal::of(&above).0.iter().all(|s| !s.whole));
    }

    #[test]
    fn no_line_changes_a_seal_or_becomes_its_own_derivation() {
        let note = sealed();
        let hashes = |n: &Note| seal::of(n).0.into_iter().map(|s| (s.seal.hash, s.whole)).collect::<Vec<_>>();
        let before = hashes(&note);
        let mut after = note.clone();
        for (derived, text) in
            [(true, "14.7 µs + 2.8 µs = 17.5 µs"), (false, "17.5 µs was a guess"), (false, "- Sealed m=8, k: 1 µs")]
        {
            after = with(&after, &draft(&note, "m=8, k", derived, text, LATER).unwrap().line());
            assert_eq!(hashes(&after), before);
            assert_eq!(after.pairs(), note.pairs());
            let (seals, _) = seal::of(&after);
            assert_eq!(derivation(&after, &seals[0]), if derived { Derivation::After } else { Derivation::None });
            assert_eq!(derivation(&after, &seals[1]), Derivation::None);
            assert!(last(&after, "m=8, k").unwrap().text == text && last(&after, "").is_none());
        }
        // Nor does anything else that is written below the seal.
        let after = with(&note, "- 14.7 µs + 2.8 µs = 17.5 µs");
        assert_eq!(derivation(&after, &seal::of(&after).0[0]), Derivation::None);
    }
}
