//! Numbers in bold: `**Predicted decode: 12.3 ms**`. The name and the unit are what pairs a prediction with its
//! measurement.

use serde::Serialize;

/// A named number with its unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quantity {
    /// What stands between the word and the colon; often empty.
    pub name: String,
    pub value: f64,
    pub unit: String,
}

/// A prediction and its measurement, both in `unit`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    pub name: String,
    pub predicted: f64,
    pub measured: Option<f64>,
    pub unit: String,
}

impl Pair {
    /// Measured over predicted, less one.
    pub fn miss(&self) -> Option<f64> {
        self.measured.map(|m| m / self.predicted - 1.0)
    }
}

/// Units that convert: the group that a unit belongs to and its size in it.
const UNITS: &[(&str, &str, f64)] = &[
    ("ns", "s", 1e-9),
    ("µs", "s", 1e-6),
    ("ms", "s", 1e-3),
    ("s", "s", 1.0),
    ("GB/s", "B/s", 1e9),
    ("TB/s", "B/s", 1e12),
    ("GFLOP/s", "FLOP/s", 1e9),
    ("TFLOP/s", "FLOP/s", 1e12),
    ("kB", "B", 1e3),
    ("MB", "B", 1e6),
    ("GB", "B", 1e9),
    ("KiB", "B", 1024.0),
    ("MiB", "B", 1_048_576.0),
    ("GiB", "B", 1_073_741_824.0),
];

impl Quantity {
    /// The value in another unit, where one converts into the other.
    pub fn in_unit(&self, unit: &str) -> Option<f64> {
        if self.unit == unit {
            return Some(self.value);
        }
        let find = |u: &str| UNITS.iter().find(|(n, ..)| *n == u);
        let ((_, group, from), (_, wanted, to)) = (find(&self.unit)?, find(unit)?);
        (group == wanted).then(|| self.value * from / to)
    }
}

/// Reads `3.75 ms`, `~1,200 GB/s`, `1.5x`: a value and its unit.
pub fn value(text: &str) -> Option<(f64, String)> {
    let text = text.trim().trim_start_matches(['~', '≈', '+']).trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || ".,-−".contains(c))).unwrap_or(text.len());
    let number = text[..end].replace(',', "").replace('−', "-").parse().ok()?;
    let unit = text[end..].split_whitespace().next().unwrap_or_default().replace('μ', "µ");
    let unit = match unit.as_str() {
        "us" => "µs".into(),
        "x" => "×".into(),
        _ => unit,
    };
    Some((number, unit))
}

/// The quantities in bold whose text begins with `word`. Bold text without a number is left out.
pub fn bold(text: &str, word: &str) -> Vec<Quantity> {
    text.lines()
        .flat_map(|line| line.split("**").skip(1).step_by(2))
        .filter_map(|span| {
            let (name, value) = span.strip_prefix(word)?.rsplit_once(':')?;
            let (number, unit) = self::value(value)?;
            Some(Quantity { name: name.trim_matches([' ', ',']).to_lowercase(), value: number, unit })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bold_numbers_are_read() {
        let q = bold(
            "- **Predicted, rows of 4096: 258 µs** (x)\n- **Predicted read: 4,580 GB/s** **Measured: 1 s**",
            "Predicted",
        );
        assert_eq!(q.len(), 2);
        assert_eq!((q[0].name.as_str(), q[0].value, q[0].unit.as_str()), ("rows of 4096", 258.0, "µs"));
        assert_eq!((q[1].value, q[1].unit.as_str()), (4580.0, "GB/s"));
        assert_eq!(bold("**Predicted: 1.3 % slower**", "Predicted")[0].unit, "%");
        assert_eq!(bold("**Predicted speedup: 1.5x**", "Predicted")[0].unit, "×");
        assert!(bold("**Predicted: soon** Predicted: 3 ms", "Predicted").is_empty());
    }

    #[test]
    fn units_convert_within_their_group() {
        let q = &bold("**Measured: 4.58 TB/s**", "Measured")[0];
        assert!((q.in_unit("GB/s").unwrap() - 4580.0).abs() < 1e-9);
        assert_eq!(q.in_unit("ms"), None);
    }
}
