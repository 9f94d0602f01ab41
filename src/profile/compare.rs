//! Two ledgers line by line, and two traces step by step: what changed, adding up to the wall difference exactly.

use super::ledger::{FastMap, Ledger, Line, LineKind};
use serde::{Deserialize, Serialize};

/// How one line changed from A to B.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineDelta {
    pub kind: LineKind,
    pub name: String,
    /// The name in B where the line was renamed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub renamed: Option<String>,
    pub a_ns: i64,
    pub b_ns: i64,
    pub a_count: u64,
    pub b_count: u64,
    /// B less A.
    pub delta_ns: i64,
}

/// All lines of two ledgers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// B's window less A's.
    pub wall_delta_ns: i64,
    /// Largest change first.
    pub lines: Vec<LineDelta>,
    /// Wall difference less the sum of the lines: always 0.
    pub residual_ns: i64,
}

/// The difference of two closed ledgers; `renames` maps a line name of A to the one of B that took its place.
pub fn difference(a: &Ledger, b: &Ledger, renames: &FastMap<String, String>) -> Difference {
    let mut lines: Vec<LineDelta> = Vec::new();
    let mut at: FastMap<(LineKind, String), usize> = FastMap::default();
    for l in &a.lines {
        let renamed = renames.get(&l.name).filter(|_| l.kind == LineKind::Kernel).cloned();
        let key = (l.kind, renamed.clone().unwrap_or_else(|| l.name.clone()));
        let i = *at.entry(key).or_insert_with(|| {
            lines.push(blank(l, renamed));
            lines.len() - 1
        });
        lines[i].a_ns += l.ns;
        lines[i].a_count += l.count;
    }
    for l in &b.lines {
        let i = *at.entry((l.kind, l.name.clone())).or_insert_with(|| {
            lines.push(blank(l, None));
            lines.len() - 1
        });
        lines[i].b_ns += l.ns;
        lines[i].b_count += l.count;
    }
    for l in &mut lines {
        l.delta_ns = l.b_ns - l.a_ns;
    }
    lines.sort_by(|x, y| {
        y.delta_ns.abs().cmp(&x.delta_ns.abs()).then_with(|| (x.kind, &x.name).cmp(&(y.kind, &y.name)))
    });
    let wall_delta_ns = b.window_ns - a.window_ns;
    let residual_ns = wall_delta_ns - lines.iter().map(|l| l.delta_ns).sum::<i64>();
    Difference { wall_delta_ns, lines, residual_ns }
}

fn blank(l: &Line, renamed: Option<String>) -> LineDelta {
    LineDelta { kind: l.kind, name: l.name.clone(), renamed, a_ns: 0, b_ns: 0, a_count: 0, b_count: 0, delta_ns: 0 }
}
