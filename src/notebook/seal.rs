//! A sealed prediction: one line below the arithmetic that says what was predicted, when, from which commit, with a hash
//! over it and over everything written above it. Whatever is changed afterwards breaks the hash.
//!
//! `- Sealed decode: 3.75 ms; less is better; 80 % 3.6 to 4.1; floor 3.33; regime bandwidth; 2026-11-30T04:12:00Z;
//! commit 0123abc; hash 0123456789abcdef` (one line; interval and floor may be absent, the numbers after the first are in
//! the same unit).

use super::quantity::Quantity;
use super::{Note, document};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// What bounds the number that is predicted; statistics are kept apart by it.
pub const REGIMES: [&str; 6] = ["bandwidth", "compute", "launch", "capacity", "communication", "scheduling"];

/// Which way is better: times and sizes less, rates more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Less,
    More,
}

impl Better {
    pub fn name(self) -> &'static str {
        if self == Self::Less { "less" } else { "more" }
    }
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "less" => Some(Self::Less),
            "more" => Some(Self::More),
            _ => None,
        }
    }
    /// The direction that a unit implies: rates and speed-ups more, times and sizes less, others none.
    pub fn of_unit(unit: &str) -> Option<Self> {
        let rate = unit.ends_with("/s") || ["×", "tokens", "sequences"].contains(&unit);
        let cost = ["ns", "µs", "ms", "s", "B", "kB", "MB", "GB", "KiB", "MiB", "GiB"].contains(&unit);
        rate.then_some(Self::More).or(cost.then_some(Self::Less))
    }
    /// Whether `a` is better than `b`.
    pub fn beats(self, a: f64, b: f64) -> bool {
        if self == Self::Less { a < b } else { a > b }
    }
}

/// One sealed prediction. Interval and floor are in its unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seal {
    /// Name of the quantity, empty where the note has one only.
    pub name: String,
    pub value: f64,
    pub unit: String,
    pub better: Better,
    /// 80 % interval.
    pub interval: Option<(f64, f64)>,
    /// The best that physics allows.
    pub floor: Option<f64>,
    pub regime: String,
    /// UTC, RFC 3339.
    pub at: String,
    pub commit: String,
    pub hash: String,
}

impl Seal {
    /// The line without its hash.
    fn open_line(&self) -> String {
        let name = if self.name.is_empty() { String::new() } else { format!(" {}", self.name) };
        let mut text = format!("- Sealed{name}: {} {}; {} is better", self.value, self.unit, self.better.name());
        if let Some((low, high)) = self.interval {
            text += &format!("; 80 % {low} to {high}");
        }
        if let Some(floor) = self.floor {
            text += &format!("; floor {floor}");
        }
        text + &format!("; regime {}; {}; commit {}", self.regime, self.at, self.commit)
    }

    /// The whole line.
    pub fn line(&self) -> String {
        format!("{}; hash {}", self.open_line(), self.hash)
    }

    /// Reads a line; `None` where it is no seal, or not a whole one.
    pub fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.trim().strip_prefix("- Sealed")?.split_once(": ")?;
        let mut parts = rest.split("; ");
        let (value, unit) = parts.next()?.split_once(' ')?;
        let mut seal = Self {
            name: name.trim().into(),
            value: value.parse().ok()?,
            unit: unit.into(),
            better: Better::parse(parts.next()?.strip_suffix(" is better")?)?,
            interval: None,
            floor: None,
            regime: String::new(),
            at: String::new(),
            commit: String::new(),
            hash: String::new(),
        };
        for part in parts {
            if let Some(both) = part.strip_prefix("80 % ") {
                let (low, high) = both.split_once(" to ")?;
                seal.interval = Some((low.parse().ok()?, high.parse().ok()?));
            } else if let Some(floor) = part.strip_prefix("floor ") {
                seal.floor = Some(floor.parse().ok()?);
            } else if let Some(regime) = part.strip_prefix("regime ") {
                seal.regime = regime.into();
            } else if let Some(commit) = part.strip_prefix("commit ") {
                seal.commit = commit.into();
            } else if let Some(hash) = part.strip_prefix("hash ") {
                seal.hash = hash.into();
            } else {
                seal.at = part.parse::<jiff::Timestamp>().ok().map(|_| part.to_string())?;
            }
        }
        (!seal.at.is_empty() && !seal.hash.is_empty() && !seal.regime.is_empty()).then_some(seal)
    }

    /// The prediction as a quantity.
    pub fn quantity(&self) -> Quantity {
        Quantity { name: self.name.clone(), value: self.value, unit: self.unit.clone() }
    }

    /// First half of SHA-256 over file name, hypothesis, the arithmetic above the line, and the line.
    pub fn digest(&self, file: &str, hypothesis: &str, above: &str) -> String {
        let lines = |t: &str| t.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_string();
        let text = format!("{file}\n{}\n{}\n{}", lines(hypothesis), lines(&document::written(above)), self.open_line());
        Sha256::digest(text.as_bytes())[..8].iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// A seal as it stands in a note.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sealed {
    #[serde(flatten)]
    pub seal: Seal,
    /// Whether the hash is that of the text as it is now.
    pub whole: bool,
    /// Whether the quantity had been sealed before; the first seal is the one that counts.
    pub revision: bool,
    /// The arithmetic above the line: what the hash is of.
    #[serde(skip)]
    pub above: String,
}

/// Lines of a note that begin like a seal but cannot be read, and the seals.
pub fn of(note: &Note) -> (Vec<Sealed>, Vec<String>) {
    let (mut seals, mut broken): (Vec<Sealed>, Vec<String>) = Default::default();
    let arithmetic = note.section("Arithmetic").unwrap_or_default();
    let mut above = String::new();
    for line in arithmetic.lines() {
        if line.trim().starts_with("- Sealed") {
            match Seal::parse(line) {
                None => broken.push(line.trim().into()),
                Some(seal) => {
                    let digest = seal.digest(&note.file, note.section("Hypothesis").unwrap_or_default(), &above);
                    let revision = seals.iter().any(|s| s.seal.name == seal.name);
                    seals.push(Sealed { whole: digest == seal.hash, revision, seal, above: above.clone() });
                }
            }
        }
        above += line;
        above.push('\n');
    }
    (seals, broken)
}

#[cfg(test)]
mod tests {
    use super::super::EXAMPLE;
    use super::*;

    fn sealed(text: &str) -> String {
        let note = Note::parse("a.md", text);
        let mut seal = Seal {
            name: "speedup".into(),
            value: 1.5,
            unit: "×".into(),
            better: Better::More,
            interval: Some((1.3, 1.6)),
            floor: None,
            regime: "bandwidth".into(),
            at: "2026-08-08T10:00:00Z".into(),
            commit: "abc1234".into(),
            hash: String::new(),
        };
        seal.hash = seal.digest("a.md", note.section("Hypothesis").unwrap(), note.section("Arithmetic").unwrap());
        document::append(text, "Arithmetic", &seal.line()).unwrap()
    }

    #[test]
    fn a_seal_comes_back_and_holds() {
        let text = sealed(EXAMPLE);
        let (seals, broken) = of(&Note::parse("a.md", &text));
        assert!(broken.is_empty() && seals.len() == 1 && seals[0].whole && !seals[0].revision, "{seals:?} {broken:?}");
        assert_eq!((seals[0].seal.value, seals[0].seal.interval), (1.5, Some((1.3, 1.6))));
        let twice = sealed(&text);
        let (seals, _) = of(&Note::parse("a.md", &twice));
        assert!(seals[1].revision && seals.iter().all(|s| s.whole));
    }

    #[test]
    fn any_change_breaks_it() {
        let text = sealed(EXAMPLE);
        for (from, to) in [
            ("- Sealed speedup: 1.5 ×", "- Sealed speedup: 1.4 ×"),
            ("10:00:00Z", "09:00:00Z"),
            ("8.58 GB", "8.85 GB"),
            ("Fewer bytes", "More bytes"),
            ("1.3 to 1.6", "1.2 to 1.6"),
        ] {
            assert!(text.contains(from));
            let (seals, _) = of(&Note::parse("a.md", &text.replace(from, to)));
            assert!(!seals[0].whole, "{from}");
        }
        assert!(!of(&Note::parse("b.md", &text)).0[0].whole, "another note's seal");
        let later = text.replace("Occupancy.", "Clocks.").replace("14,700", "14,800");
        assert!(of(&Note::parse("a.md", &later)).0[0].whole, "what comes after the prediction is free");
        let (_, broken) = of(&Note::parse("a.md", &text.replace("; hash", "; hush")));
        assert_eq!(broken.len(), 1);
    }

    #[test]
    fn units_imply_a_direction() {
        assert_eq!(Better::of_unit("ms"), Some(Better::Less));
        assert_eq!(Better::of_unit("GB/s"), Some(Better::More));
        assert_eq!(Better::of_unit("%"), None);
    }
}
