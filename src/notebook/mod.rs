//! The lab notebook: one Markdown file an experiment, its prediction written before its measurement. Pure: text in,
//! findings out, so that everything here can be told from the files alone.

pub mod amend;
pub mod arithmetic;
pub mod check;
pub mod document;
pub mod index;
pub mod quantity;
pub mod score;
pub mod seal;
pub mod surprises;
pub mod template;

pub use check::{Finding, Severity, check};
use quantity::{Pair, Quantity};
use serde::Serialize;

/// The sections that every note has, in order.
pub const SECTIONS: [&str; 6] = ["Hypothesis", "Arithmetic", "Measurement", "Gap explanation", "Lesson", "Follow-up"];
/// The fields below the title.
pub const FIELDS: [&str; 4] = ["Date", "Hardware", "Related sprint", "Related file/PR"];

/// Relative miss beyond which the surprise log needs an entry.
pub const SURPRISE: f64 = 0.30;

/// Whether a relative miss is a surprise; exactly 30 % is not, whatever binary fractions say.
pub fn is_surprise(miss: f64) -> bool {
    miss.abs() > SURPRISE + 1e-9
}

/// What a section says that waits for its run.
pub const WAITING: &str = "Not yet run.";
/// What stands for a thing that is still to be written.
pub use template::BLANK;

/// A heading without its number.
pub(crate) fn heading(text: &str) -> &str {
    text.trim().trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim()
}

/// At most four decimals, and no zeros at the end.
pub fn number(v: f64) -> String {
    let text = format!("{v:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A note as read from its file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Note {
    /// Name of its file.
    pub file: String,
    pub title: String,
    pub fields: Vec<(String, String)>,
    /// Heading (without its number) and text of each section.
    #[serde(skip)]
    pub sections: Vec<(String, String)>,
}

impl Note {
    /// Reads a note; what is missing is absent, not an error.
    pub fn parse(file: &str, text: &str) -> Self {
        let mut note = Self { file: file.into(), ..Self::default() };
        for line in text.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                note.sections.push((self::heading(heading).into(), String::new()));
            } else if let Some((_, body)) = note.sections.last_mut() {
                body.push_str(line);
                body.push('\n');
            } else if let Some(title) = line.strip_prefix("# ") {
                note.title = title.trim().into();
            } else if let Some((key, value)) = line.strip_prefix("**").and_then(|l| l.split_once(":**")) {
                note.fields.push((key.trim().into(), value.trim().into()));
            }
        }
        note
    }

    /// Text of the section whose heading begins with `name`.
    pub fn section(&self, name: &str) -> Option<&str> {
        self.sections.iter().find(|(h, _)| h.starts_with(name)).map(|(_, b)| b.trim())
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    /// The quantities in bold: predicted ones of section 2, measured ones of section 3.
    pub fn quantities(&self) -> (Vec<Quantity>, Vec<Quantity>) {
        let of = |section, word| quantity::bold(self.section(section).unwrap_or_default(), word);
        (of("Arithmetic", "Predicted"), of("Measurement", "Measured"))
    }

    /// What bounds its numbers, by the optional field `Regime`.
    pub fn regime(&self) -> String {
        self.field("Regime").filter(|r| !r.is_empty()).unwrap_or("unstated").into()
    }

    /// When a quantity was measured, UTC in RFC 3339, where its line says it.
    pub fn measured_at(&self, name: &str) -> Option<String> {
        let of_name = |l: &&str| quantity::bold(l, "Measured").iter().any(|q| q.name == name);
        let line = self.section("Measurement")?.lines().find(of_name)?;
        let words = line.split([' ', ';', '(', ')', ',']);
        words.filter(|w| w.parse::<jiff::Timestamp>().is_ok()).map(String::from).next()
    }

    /// Each prediction with its measurement, where there is one in the same unit. The first seal of a quantity is its
    /// prediction, whatever else the note says.
    pub fn pairs(&self) -> Vec<Pair> {
        let (predicted, measured) = self.quantities();
        let (seals, _) = seal::of(self);
        let mut first: Vec<Quantity> = Vec::new();
        for q in seals.iter().map(|s| s.seal.quantity()).chain(predicted) {
            if !first.iter().any(|f| f.name == q.name) {
                first.push(q);
            }
        }
        first
            .into_iter()
            .map(|p| {
                let m = measured.iter().find(|m| m.name == p.name).and_then(|m| m.in_unit(&p.unit));
                Pair { name: p.name, predicted: p.value, measured: m, unit: p.unit }
            })
            .collect()
    }
}

#[cfg(test)]
pub(crate) const EXAMPLE: &str = "# Fused softmax\n\n**Date:** 2026-08-08\n**Hardware:** RTX 3090\n\
    **Related sprint:** 7\n**Related file/PR:** softmax.cu\n\n## 1. Hypothesis (one sentence)\n\n> Fewer bytes.\n\n\
    ## 2. Arithmetic — predicted number\n\n- 8.58 GB / 700 = 12.3 ms\n- **Predicted speedup: 1.50x**\n\
    - **Predicted: 12.3 ms**\n\n## 3. Measurement — actual number\n\n- **Measured speedup: 1.30x**\n\
    - **Measured: 14,700 µs** (ten runs)\n\n## 4. Gap explanation\n\nOccupancy.\n\n\
    ## 5. Lesson (one sentence, memorable)\n\n> Bytes are a ceiling.\n\n## 6. Follow-up questions\n\n- Blocks of 128?\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read() {
        let note = Note::parse("a.md", EXAMPLE);
        assert_eq!((note.title.as_str(), note.field("Date")), ("Fused softmax", Some("2026-08-08")));
        assert!(SECTIONS.iter().all(|s| note.section(s).is_some_and(|b| !b.is_empty())));
        let pairs = note.pairs();
        assert_eq!((pairs.len(), pairs[1].measured), (2, Some(14.7)));
        assert!((pairs[1].miss().unwrap() - 0.195).abs() < 1e-3);
    }
}
