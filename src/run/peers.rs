//! Rows of other libraries, recorded by the scripts in `peers/` on some GPU, and of earlier runs of ours: read, and matched
//! to shapes by what the shapes mean.
//!
//! Two spellings are read: the rows that `bench` and today's scripts write (a shape as text, ns), and those of the first
//! recordings (a shape as an object of sizes, µs).

use crate::error::{Error, Result};
use crate::op::Shape;
use crate::plan::meaning::meaning;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// One recorded row. Times in ns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recorded {
    pub op: String,
    /// Library, or our variant.
    pub name: String,
    /// Whether it is another library's.
    pub peer: bool,
    pub shape: String,
    pub ns: f64,
    pub ns_p90: f64,
    pub bytes: u64,
    pub flops: u64,
    pub n: u64,
    pub mode: String,
    /// The result was wrong, so its time says nothing.
    pub wrong: bool,
}

/// The card of a file, as far as it says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Card {
    pub file: String,
    pub gpu: Option<String>,
    pub uuid_tail: Option<String>,
    pub driver: Option<String>,
    pub power_limit_w: Option<f64>,
    pub sm_mhz: Option<u64>,
}

/// A file of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    pub card: Card,
    pub rows: Vec<Recorded>,
    /// What did not run, with the reason.
    pub failed: Vec<String>,
}

/// Reads a file of rows, one JSON object a line.
///
/// # Errors
/// A file that cannot be read, a line that is no JSON, a file without a single row.
pub fn read(path: &Path) -> Result<File> {
    let name = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|e| Error::usage(format!("cannot read the rows in {name}: {e}")))?;
    parse(&name, &text)
}

/// The same of a text; `name` stands in errors and warnings.
pub fn parse(name: &str, text: &str) -> Result<File> {
    let mut file = File { card: Card { file: name.into(), ..Card::default() }, ..File::default() };
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let value: Value =
            serde_json::from_str(line).map_err(|e| Error::usage(format!("{name} line {}: {e}", i + 1)))?;
        if let Some(environment) = value.get("environment") {
            file.card = card(name, environment);
        }
        let Some(op) = value["op"].as_str() else { continue };
        match row(op, &value) {
            Some(row) => file.rows.push(row),
            None => file.failed.push(failure(op, &value)),
        }
    }
    if file.rows.is_empty() && file.failed.is_empty() {
        return Err(Error::usage(format!("{name} holds no rows"))
            .try_next("a file that `workbench bench --json` or a script in peers/ wrote"));
    }
    Ok(file)
}

fn card(file: &str, environment: &Value) -> Card {
    let text = |key: &str| environment[key].as_str().map(String::from);
    let clock = |when: &str| environment[when]["sm_mhz"].as_u64();
    Card {
        file: file.into(),
        gpu: text("gpu"),
        uuid_tail: text("uuid_tail"),
        driver: text("driver"),
        power_limit_w: environment["power_limit_w"].as_f64(),
        sm_mhz: clock("after").or_else(|| clock("before")),
    }
}

fn row(op: &str, value: &Value) -> Option<Recorded> {
    let peer = value["peer"].as_str();
    let (op, shape) = match &value["shape"] {
        Value::String(text) => (op.to_string(), text.clone()),
        sizes => first_spelling(op, sizes)?,
    };
    let time = |ns: &str, us: &str| value[ns].as_f64().or_else(|| value[us].as_f64().map(|v| v * 1e3));
    let ns = time("median_ns", "us").or_else(|| value["ns"].as_f64()).filter(|ns| *ns > 0.0)?;
    Some(Recorded {
        op,
        name: peer.or_else(|| value["variant"].as_str())?.into(),
        peer: peer.is_some(),
        shape,
        ns,
        ns_p90: time("ns_p90", "us_p90").unwrap_or(ns),
        bytes: value["bytes"].as_u64().unwrap_or(0),
        flops: value["flops"].as_u64().unwrap_or(0),
        n: value["n"].as_u64().unwrap_or(0),
        mode: value["mode"].as_str().unwrap_or("graph").into(),
        wrong: value["ok"] == false,
    })
}

fn failure(op: &str, value: &Value) -> String {
    let text = |key: &str| value[key].as_str();
    let who = text("peer").or_else(|| text("variant")).unwrap_or("?");
    let why = text("failed").or_else(|| text("refused")).or_else(|| text("error")).unwrap_or("it has no time");
    let shape = text("shape").map_or_else(|| value["shape"].to_string(), String::from);
    format!("{op} by {who} {shape}: {why}")
}

/// Op and shape of a row of the first recordings, whose shapes were objects of sizes.
fn first_spelling(op: &str, sizes: &Value) -> Option<(String, String)> {
    let size = |key: &str| sizes[key].as_u64();
    let mut shape = Shape::new();
    let mask = op.strip_prefix("softmax-");
    if let Some(mask) = mask {
        let (b, h, s) = (size("B")?, size("H")?, size("S")?);
        shape = shape.with("rows", b * h * s).with("cols", s).with("mask", mask).with("mask_rows", s);
    } else {
        for (theirs, ours) in
            [("M", "m"), ("N", "n"), ("K", "k"), ("rows", "rows"), ("cols", "cols"), ("batch", "batch"), ("ctx", "ctx")]
        {
            if let Some(value) = size(theirs) {
                shape.set(ours, value);
            }
        }
    }
    let op = match op {
        "paged-decode" => {
            size("ctx")?;
            "paged_attention"
        }
        "decode-step" => "step",
        _ if mask.is_some() => "softmax",
        other => other,
    };
    Some((op.into(), shape.to_string()))
}

/// Rows of the same op and problem, fastest first.
pub fn matching<'a>(rows: impl IntoIterator<Item = &'a Recorded>, op: &str, shape: &Shape) -> Vec<&'a Recorded> {
    let wanted = meaning(op, shape);
    let same = |row: &&Recorded| row.op == op && Shape::parse(&row.shape).is_ok_and(|s| meaning(op, &s) == wanted);
    let mut found: Vec<&Recorded> = rows.into_iter().filter(same).collect();
    found.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_read_and_a_shape_finds_its_peers_only() {
        let old = |op: &str, peer: &str, shape: &str, us: f64| {
            format!(
                r#"{{"op":"{op}","peer":"{peer}","shape":{shape},"us":{us},"us_p90":{us},"bytes":1,"flops":0,"n":3,"mode":"graph"}}"#
            )
        };
        let new = r#"{"op":"matmul","variant":"humming","peer":"humming","shape":"k=4k,n=4096,m=1","ns":13000,"ns_p90":13100}"#;
        let lines = [
            r#"{"schema":1,"environment":{"gpu":"NVIDIA H200","uuid_tail":"a5","driver":"580","after":{"sm_mhz":1980}}}"#.into(),
            old("matmul", "cublas", r#"{"M":1,"N":4096,"K":4096}"#, 13.5),
            old("matmul", "cublaslt", r#"{"M":1,"N":4096,"K":4096}"#, 13.4),
            old("matmul", "cublas", r#"{"M":2,"N":4096,"K":4096}"#, 13.3),
            old("softmax-causal", "eager", r#"{"B":16,"H":32,"S":2048}"#, 16_420.0),
            old("paged-decode", "xqa", r#"{"batch":1,"ctx":2048,"tokens":2048}"#, 9.5),
            old("paged-decode", "split", r#"{"batch":64,"ctx":"128-32768","tokens":9}"#, 9.5),
            new.into(),
            r#"{"op":"matmul","peer":"none","shape":{"M":1},"error":"ImportError: none"}"#.into(),
        ];
        let file = parse("f", &lines.join("\n")).unwrap();
        assert_eq!((file.card.gpu.as_deref(), file.card.sm_mhz), (Some("NVIDIA H200"), Some(1980)));
        assert_eq!(file.failed.len(), 2, "{:?}", file.failed);
        assert!(
            file.failed[1].contains("matmul by none") && file.failed[1].contains("ImportError"),
            "{:?}",
            file.failed
        );
        let names = |op: &str, shape: &str| -> Vec<String> {
            matching(&file.rows, op, &Shape::parse(shape).unwrap()).iter().map(|r| r.name.clone()).collect()
        };
        assert_eq!(names("matmul", "m=1,n=4096,k=4096,dtype=bf16"), ["humming", "cublaslt", "cublas"]);
        assert_eq!(names("matmul", "m=4,n=4096,k=4096"), [""; 0]);
        assert_eq!(names("matmul", "m=1,n=4096,k=4096,dtype=f16"), [""; 0]);
        assert_eq!(names("softmax", "rows=1m,cols=2k,mask=causal,mask_rows=2048,scale=0.125"), ["eager"]);
        assert_eq!(names("softmax", "rows=1m,cols=2k"), [""; 0]);
        assert_eq!(names("paged_attention", "batch=1,ctx=2k"), ["xqa"]);
        assert_eq!(names("paged_attention", "lens=2048"), ["xqa"]);
        assert_eq!(names("paged_attention", "batch=1,lens=5:9"), [""; 0]);
        assert!(parse("f", "{}").is_err() && parse("f", "no").unwrap_err().what.contains("line 1"));
    }
}
