//! Predictions of many shapes, sealed before any of them is measured, and what the measurements made of them.
//!
//! A sealed file is JSON lines: a head (when, at which commit, from which fits), a row a shape, and the SHA-256 of all that.

use crate::error::{Error, Result};
use crate::op::{Chip, Shape};
use crate::roofline::{Calibration, Ceilings};
use crate::run::grid::Case;
use crate::stats;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// What the first line of a sealed file says it is.
const WHAT: &str = "sealed predictions";

/// Where and when predictions were made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    pub schema: u32,
    pub what: String,
    /// List of shapes.
    pub grid: String,
    /// UTC, RFC 3339.
    pub at: String,
    pub commit: Option<String>,
    pub dirty: bool,
    pub gpu: String,
    /// Where the fits come from, and the first half of the SHA-256 of them.
    pub calibration: String,
    pub calibration_hash: String,
    pub cases: usize,
}

/// One prediction, ns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub op: String,
    pub variant: String,
    pub shape: String,
    pub floor_ns: i64,
    pub predicted_ns: i64,
    pub low_ns: i64,
    pub high_ns: i64,
}

/// A sealed file, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Sealed {
    pub head: Head,
    pub rows: Vec<Row>,
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
}

fn line(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string(value).map_err(|e| Error::usage(e.to_string()))? + "\n")
}

/// Predicts what the heuristic picks for each case.
///
/// # Errors
/// A case that its op refuses.
pub fn predict(
    grid: &str,
    cases: &[Case],
    chip: &Chip,
    ceilings: &Ceilings,
    calibration: &Calibration,
    built: (Option<&str>, bool),
) -> Result<Sealed> {
    let row = |(op, shape): &Case| {
        let variant = op.choose(shape, chip);
        let at = |e| Error::from(e).at(format!("{}/{variant} {shape}", op.name()));
        op.supports(variant, shape, chip).map_err(at)?;
        let cost = op.cost(shape).map_err(at)?;
        let p = calibration.estimate(op.name(), variant, shape, &cost, (chip, ceilings)).prediction;
        let ns = |v: f64| v.round() as i64;
        Ok(Row {
            op: op.name().into(),
            variant: variant.into(),
            shape: shape.to_string(),
            floor_ns: ns(p.floor.ns),
            predicted_ns: ns(p.ns),
            low_ns: ns(p.low),
            high_ns: ns(p.high),
        })
    };
    let rows = cases.iter().map(row).collect::<Result<Vec<_>>>()?;
    let mut sources: Vec<&str> = calibration.fits.iter().map(|f| f.source.as_str()).collect();
    sources.sort_unstable();
    sources.dedup();
    let head = Head {
        schema: 1,
        what: WHAT.into(),
        grid: grid.into(),
        at: jiff::Timestamp::now().to_string(),
        commit: built.0.map(String::from),
        dirty: built.1,
        gpu: ceilings.gpu.clone(),
        calibration: sources.join(", "),
        calibration_hash: hash(&line(calibration)?)[..16].into(),
        cases: rows.len(),
    };
    Ok(Sealed { head, rows })
}

impl Sealed {
    /// The file's text, its seal last.
    pub fn text(&self) -> Result<String> {
        let mut text = line(&self.head)?;
        for row in &self.rows {
            text += &line(row)?;
        }
        let seal = hash(&text);
        Ok(text + &line(&serde_json::json!({ "seal": seal }))?)
    }

    /// Reads a sealed file.
    ///
    /// # Errors
    /// A file that is none; one that was changed after it was sealed.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let none = |why: &str| {
            Error::usage(format!("{name} holds no sealed predictions: {why}"))
                .try_next("`workbench predict sweep --seal FILE` writes them")
        };
        let body = text.trim_end();
        let (above, last) = body.rsplit_once('\n').ok_or_else(|| none("it has no lines"))?;
        let last: Value = serde_json::from_str(last).map_err(|e| none(&format!("last line: {e}")))?;
        let seal = last["seal"].as_str().ok_or_else(|| none("its last line is no seal"))?;
        if hash(&format!("{above}\n")) != seal {
            return Err(Error::check(format!("{name} was changed after it was sealed: its hash is another")));
        }
        let mut lines = above.lines();
        let head: Head = serde_json::from_str(lines.next().unwrap_or_default()).map_err(|e| none(&e.to_string()))?;
        if head.what != WHAT {
            return Err(none("its first line says something else"));
        }
        let rows = lines.map(|l| serde_json::from_str(l).map_err(|e| none(&e.to_string()))).collect::<Result<_>>()?;
        Ok(Self { head, rows })
    }
}

/// A prediction beside its measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    #[serde(flatten)]
    pub row: Row,
    pub ns: i64,
    /// |predicted − measured| / measured.
    pub miss: f64,
    /// Whether the measurement lies in the 80 % interval.
    pub inside: bool,
    /// The variant that ran, where it is not the predicted one.
    pub ran: Option<String>,
}

/// How a set of predictions did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    pub n: usize,
    pub median: f64,
    pub worst: f64,
    /// Share of measurements inside their interval.
    pub hits: f64,
}

/// All outcomes, and the sealed shapes that no run has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    pub outcomes: Vec<Outcome>,
    pub unmeasured: Vec<String>,
}

/// Score of some outcomes; `None` of none.
pub fn score<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Option<Score> {
    let all: Vec<&Outcome> = outcomes.into_iter().collect();
    let misses: Vec<f64> = all.iter().map(|o| o.miss).collect();
    let worst = misses.iter().copied().reduce(f64::max)?;
    let hits = all.iter().filter(|o| o.inside).count() as f64 / all.len() as f64;
    Some(Score { n: all.len(), median: stats::median(&misses), worst, hits })
}

/// Sets sealed predictions beside the rows of runs (JSON lines of `bench`), each a name and its text.
///
/// # Errors
/// A run without a start time, or one that began before the predictions were sealed.
pub fn check(sealed: &Sealed, runs: &[(String, String)]) -> Result<Checked> {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    let at = time(&sealed.head.at).ok_or_else(|| Error::usage(format!("`{}` is no time", sealed.head.at)))?;
    let mut measured: Vec<(String, Shape, String, i64)> = Vec::new();
    for (name, text) in runs {
        let mut begun = None;
        for row in text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()) {
            if let Some(started) = row["environment"]["started"].as_str() {
                begun = time(started);
                if begun.is_some_and(|b| b < at) {
                    return Err(Error::check(format!(
                        "{name} began at {started}, before the predictions were sealed at {}",
                        sealed.head.at
                    )));
                }
            }
            let ours = row.get("peer").is_none_or(Value::is_null);
            if let (true, Some(op), Some(shape), Some(ns)) =
                (ours, row["op"].as_str(), row["shape"].as_str(), row["ns"].as_i64())
            {
                let variant = row["variant"].as_str().unwrap_or_default();
                measured.push((op.into(), Shape::parse(shape)?, variant.into(), ns));
            }
        }
        if begun.is_none() {
            return Err(Error::usage(format!("{name} does not say when it began"))
                .try_next("a file that `workbench bench --json` wrote"));
        }
    }
    let (mut outcomes, mut unmeasured) = (Vec::new(), Vec::new());
    for row in &sealed.rows {
        let shape = Shape::parse(&row.shape)?;
        let same = || measured.iter().filter(|(op, s, ..)| *op == row.op && *s == shape);
        // The predicted variant's row before another's.
        let Some((_, _, variant, ns)) = same().find(|(_, _, v, _)| *v == row.variant).or_else(|| same().next()) else {
            unmeasured.push(format!("{} {}", row.op, row.shape));
            continue;
        };
        outcomes.push(Outcome {
            ns: *ns,
            miss: (row.predicted_ns - ns).abs() as f64 / (*ns).max(1) as f64,
            inside: (row.low_ns..=row.high_ns).contains(ns),
            ran: (*variant != row.variant).then(|| variant.clone()),
            row: row.clone(),
        });
    }
    Ok(Checked { outcomes, unmeasured })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::grid;

    fn sealed() -> Sealed {
        let cases = grid::parse("list", "matmul m=1,n=5120,k=5120\nargmax m=3,v=50304\nrmsnorm m=2,k=3072").unwrap();
        predict("list", &cases, &Chip::H200, &Ceilings::h200(), &Calibration::default(), (Some("abc"), false)).unwrap()
    }

    /// A run that began after the seal, whose rows took `factor` times the prediction.
    fn run(sealed: &Sealed, factor: f64, started: &str) -> (String, String) {
        let mut text = format!("{{\"environment\":{{\"started\":\"{started}\"}}}}\n");
        for row in &sealed.rows {
            let ns = (row.predicted_ns as f64 * factor).round() as i64;
            text += &format!(
                "{}\n",
                serde_json::json!({"op": row.op, "variant": row.variant, "shape": row.shape, "ns": ns})
            );
        }
        ("run".into(), text)
    }

    #[test]
    fn a_sealed_file_comes_back_and_any_change_breaks_it() {
        let s = sealed();
        let text = s.text().unwrap();
        assert_eq!(Sealed::parse("f", &text).unwrap(), s);
        for (from, to) in
            [("\"commit\":\"abc\"", "\"commit\":\"abd\""), ("m=1,n=5120", "m=2,n=5120"), ("rmsnorm", "argmax")]
        {
            assert!(text.contains(from), "{from}");
            assert!(Sealed::parse("f", &text.replace(from, to)).unwrap_err().what.contains("changed after"), "{from}");
        }
        assert!(Sealed::parse("f", "{}\n{}\n").unwrap_err().what.contains("no sealed predictions"));
    }

    #[test]
    fn misses_are_counted_and_time_runs_forward() {
        let s = sealed();
        let later = "2999-01-01T00:00:00Z";
        let c = check(&s, &[run(&s, 1.25, later)]).unwrap();
        let all = score(&c.outcomes).unwrap();
        assert!((all.median - 0.2).abs() < 0.01 && (all.worst - 0.2).abs() < 0.01 && all.n == 3, "{all:?}");
        assert!(
            check(&s, &[run(&s, 1.0, "1999-01-01T00:00:00Z")]).unwrap_err().what.contains("before the predictions")
        );
        assert!(check(&s, &[("run".into(), String::new())]).is_err());
        let half = run(&s, 1.0, later).1.lines().take(2).collect::<Vec<_>>().join("\n");
        let c = check(&s, &[("run".into(), half)]).unwrap();
        assert_eq!((c.outcomes.len(), c.unmeasured.len()), (1, 2));
        assert!(score(&c.outcomes[..1]).unwrap().hits == 1.0 && score(&[]).is_none());
    }
}
