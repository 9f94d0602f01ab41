//! Rows of other libraries, recorded by the scripts in `peers/` on some GPU, matched to our shapes.

use crate::error::{Error, Result};
use crate::op::Shape;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::Path;

/// One recorded row. Times in µs, as the scripts print them.
#[derive(Clone, Debug, Deserialize)]
pub struct PeerRow {
    pub op: String,
    pub peer: String,
    pub shape: Map<String, Value>,
    pub us: f64,
    pub us_p90: f64,
    pub bytes: u64,
    pub flops: u64,
    pub n: u64,
    pub mode: String,
}

/// Reads a file of rows, one JSON object a line; rows that record an error are passed over.
pub fn read(path: &Path) -> Result<Vec<PeerRow>> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::usage(format!("cannot read the peers' rows in {}: {e}", path.display())))?;
    let mut rows = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let place = || format!("{} line {}", path.display(), i + 1);
        let value: Value = serde_json::from_str(line).map_err(|e| Error::usage(format!("{}: {e}", place())))?;
        if value.get("error").is_some() || value.get("us").is_none() {
            continue;
        }
        rows.push(serde_json::from_value(value).map_err(|e| Error::usage(format!("{}: {e}", place())))?);
    }
    Ok(rows)
}

/// The scripts' name for an op of ours, given its shape.
fn their_name(op: &str, shape: &Shape) -> String {
    match op {
        "paged_attention" => "paged-decode".into(),
        "softmax" => match shape.word("mask") {
            Some(mask @ ("additive" | "causal")) => format!("softmax-{mask}"),
            _ => "softmax".into(),
        },
        other => other.into(),
    }
}

/// Rows of the same op and problem, fastest first.
pub fn matching<'a>(rows: &'a [PeerRow], op: &str, shape: &Shape) -> Vec<&'a PeerRow> {
    let name = their_name(op, shape);
    let size = |key: &str| shape.int_or(key, 0).ok().filter(|v| *v > 0);
    let equal = |row: &PeerRow, ours: &str, theirs: &str| {
        row.shape.get(theirs).is_none_or(|v| v.as_u64().is_some_and(|v| size(ours) == Some(v)))
    };
    let mut found: Vec<&PeerRow> = rows
        .iter()
        .filter(|row| row.op == name)
        .filter(|row| match name.as_str() {
            "softmax-additive" | "softmax-causal" => {
                let dim = |key: &str| row.shape.get(key).and_then(Value::as_u64).unwrap_or(0);
                size("rows") == Some(dim("B") * dim("H") * dim("S")) && size("cols") == Some(dim("S"))
            }
            "paged-decode" => {
                shape.word("lens").is_none()
                    && equal(row, "batch", "batch")
                    && row.shape.contains_key("ctx")
                    && equal(row, "ctx", "ctx")
            }
            _ => [("m", "M"), ("n", "N"), ("k", "K"), ("rows", "rows"), ("cols", "cols")]
                .iter()
                .all(|(ours, theirs)| equal(row, ours, theirs)),
        })
        .collect();
    found.sort_by(|a, b| a.us.total_cmp(&b.us));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<PeerRow> {
        let row = |op: &str, peer: &str, shape: &str, us: f64| {
            serde_json::from_str(&format!(
                r#"{{"op":"{op}","peer":"{peer}","shape":{shape},"us":{us},"us_p90":{us},"bytes":1,"flops":0,"n":3,"mode":"graph","sets":2}}"#
            ))
            .unwrap()
        };
        vec![
            row("matmul", "cublas", r#"{"M":1,"N":4096,"K":4096}"#, 13.5),
            row("matmul", "cublaslt", r#"{"M":1,"N":4096,"K":4096}"#, 13.4),
            row("matmul", "cublas", r#"{"M":2,"N":4096,"K":4096}"#, 13.3),
            row("softmax-causal", "eager", r#"{"B":16,"H":32,"S":2048}"#, 16_420.0),
            row("paged-decode", "xqa", r#"{"batch":1,"ctx":2048,"tokens":2048}"#, 9.5),
        ]
    }

    #[test]
    fn a_shape_finds_its_peers_only() {
        let rows = rows();
        let names = |op: &str, shape: &str| -> Vec<String> {
            matching(&rows, op, &Shape::parse(shape).unwrap()).iter().map(|r| r.peer.clone()).collect()
        };
        assert_eq!(names("matmul", "m=1,n=4096,k=4096,dtype=bf16"), ["cublaslt", "cublas"]);
        assert_eq!(names("matmul", "m=4,n=4096,k=4096"), [""; 0]);
        assert_eq!(names("softmax", "rows=1m,cols=2k,mask=causal"), ["eager"]);
        assert_eq!(names("softmax", "rows=1m,cols=2k"), [""; 0]);
        assert_eq!(names("paged_attention", "batch=1,ctx=2k"), ["xqa"]);
        assert_eq!(names("paged_attention", "batch=1,lens=5:9"), [""; 0]);
    }
}
