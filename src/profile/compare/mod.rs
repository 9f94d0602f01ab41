//! Two ledgers line by line: what changed, adding up to the wall difference exactly, and whether it can be believed.

pub mod align;
mod names;
mod verdict;

pub use verdict::{Interval, Verdict, judge};

use super::ledger::{Accountant, FastMap, Ledger, Line, LineKind};
use super::trace::{Trace, Work};
use align::{align, replaced};
pub(in crate::profile) use names::canonical;
use serde::{Deserialize, Serialize};

/// How one line changed from A to B.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineDelta {
    pub kind: LineKind,
    pub name: String,
    /// Names in B of the kernels that took the place of `name`.
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

/// Kernel names of one side, in their one spelling, to the pair of names (A's, B's) that they stand under.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Renames {
    a: FastMap<String, (String, String)>,
    b: FastMap<String, (String, String)>,
}

impl Renames {
    /// Kernels `a` of the first capture became kernels `b` of the second.
    pub fn add(&mut self, a: &[String], b: &[String]) {
        let pair = (a.join(" + "), b.join(" + "));
        self.a.extend(a.iter().map(|n| (canonical(n), pair.clone())));
        self.b.extend(b.iter().map(|n| (canonical(n), pair.clone())));
    }
    pub fn is_empty(&self) -> bool {
        self.a.is_empty()
    }
}

/// The difference of two closed ledgers. Each line of either goes to exactly one row, so the rows add up whatever the
/// renames say.
pub fn difference(a: &Ledger, b: &Ledger, renames: &Renames) -> Difference {
    let mut rows: Vec<LineDelta> = Vec::new();
    let mut at: FastMap<(LineKind, String, Option<String>), usize> = FastMap::default();
    let sides = [(a, &renames.a), (b, &renames.b)];
    for (side, (ledger, pairs)) in sides.into_iter().enumerate() {
        for l in &ledger.lines {
            let row = &mut rows_of(&mut rows, &mut at, l, pairs);
            let (ns, count) = match side {
                0 => (&mut row.a_ns, &mut row.a_count),
                _ => (&mut row.b_ns, &mut row.b_count),
            };
            *ns += l.ns;
            *count += l.count;
        }
    }
    close(a, b, rows)
}

/// The row that a line goes to, made where there is none. Names that only two demanglers tell apart are one; A's is shown.
fn rows_of<'r>(
    rows: &'r mut Vec<LineDelta>,
    at: &mut FastMap<(LineKind, String, Option<String>), usize>,
    l: &Line,
    pairs: &FastMap<String, (String, String)>,
) -> &'r mut LineDelta {
    let spelled = canonical(&l.name);
    let (key, name, renamed) = match pairs.get(&spelled).filter(|_| l.kind == LineKind::Kernel) {
        Some((x, y)) => (x.clone(), x.clone(), Some(y.clone())),
        None => (spelled, l.name.clone(), None),
    };
    let i = *at.entry((l.kind, key, renamed.clone())).or_insert_with(|| {
        let kind = l.kind;
        rows.push(LineDelta { kind, name, renamed, a_ns: 0, b_ns: 0, a_count: 0, b_count: 0, delta_ns: 0 });
        rows.len() - 1
    });
    &mut rows[i]
}

fn close(a: &Ledger, b: &Ledger, mut lines: Vec<LineDelta>) -> Difference {
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

/// Words that two captures share: a word's one spelling to its number, and how it was first written.
#[derive(Default)]
struct Vocabulary {
    numbers: FastMap<String, u32>,
    texts: Vec<String>,
}

impl Vocabulary {
    fn number(&mut self, text: String) -> u32 {
        let fresh = self.texts.len() as u32;
        let number = *self.numbers.entry(canonical(&text)).or_insert(fresh);
        if number == fresh {
            self.texts.push(text);
        }
        number
    }
}

/// One capture's operations inside a window, as words. A copy's word is its direction: profilers name copies differently.
fn tokens(trace: &Trace, a: &Accountant<'_>, (t0, t1): (i64, i64), words: &mut Vocabulary) -> Vec<u32> {
    let mut known: FastMap<(Work, u32), u32> = FastMap::default();
    let inside = a.in_order().iter().map(|&i| &trace.operations[i as usize]).filter(|o| o.start >= t0 && o.start < t1);
    inside
        .map(|o| {
            *known.entry((o.work, o.name.0)).or_insert_with(|| {
                words.number(match o.work {
                    Work::Memcpy(kind) => format!("memcpy {kind:?}"),
                    Work::Memset => "memset".into(),
                    Work::Kernel | Work::Graph => trace.names.text(o.name).to_string(),
                })
            })
        })
        .collect()
}

/// How the kernel sequences of two windows relate.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sequences {
    pub a_operations: usize,
    pub b_operations: usize,
    /// Operations that kept name and place.
    pub same: usize,
    /// Fewest insertions and deletions from A to B; none where they are too far apart to be aligned.
    pub distance: Option<usize>,
    /// Names of A and of B that took their place.
    pub replaced: Vec<(Vec<String>, Vec<String>)>,
    #[serde(skip)]
    pub renames: Renames,
}

/// Aligns the operations of two windows by name.
pub fn sequences(
    (trace_a, a, window_a): (&Trace, &Accountant<'_>, (i64, i64)),
    (trace_b, b, window_b): (&Trace, &Accountant<'_>, (i64, i64)),
) -> Sequences {
    let mut words = Vocabulary::default();
    let (sa, sb) = (tokens(trace_a, a, window_a, &mut words), tokens(trace_b, b, window_b, &mut words));
    let alignment = align(&sa, &sb);
    let texts = words.texts;
    let mut out = Sequences {
        a_operations: sa.len(),
        b_operations: sb.len(),
        same: alignment.same,
        distance: alignment.distance,
        ..Sequences::default()
    };
    if alignment.distance.is_some() {
        for group in replaced(&sa, &sb, &alignment) {
            let names = |list: &[u32]| list.iter().map(|t| texts[*t as usize].clone()).collect::<Vec<_>>();
            let (x, y) = (names(&group.a), names(&group.b));
            out.renames.add(&x, &y);
            out.replaced.push((x, y));
        }
    }
    out
}

#[cfg(test)]
mod tests;
