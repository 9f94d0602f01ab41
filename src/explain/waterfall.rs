//! From the least time to the measured time, step by step: floor, what each class of kernel lost, gaps, head, tail.
//!
//! Under programmatic dependent launch neighbours overlap, so durations do not add. Time is therefore attributed: while
//! several operations run, the one that began first owns the time (its successor is then waiting or prefetching).
//! Attributed times, gaps, head and tail add up to the window exactly.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One operation of the step beside what it should have cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub label: String,
    pub class: String,
    pub kernel: String,
    pub floor_ns: i64,
    pub predicted_ns: i64,
    /// Attributed time of this step.
    pub ns: i64,
    pub bytes: u64,
    pub flops: u64,
}

/// A bar of the waterfall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// `floor`, `kernel`, `gap`, `head`, `tail` or `unknown`.
    pub kind: String,
    pub name: String,
    pub ns: i64,
}

/// The whole decomposition; `residual_ns` is 0 or the account is wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waterfall {
    pub wall_ns: i64,
    pub bars: Vec<Bar>,
    pub residual_ns: i64,
}

/// Attributed nanoseconds of each `(start, end)` inside `[t0, t1)`, in the order given, and the time in which none ran.
pub fn attribute(t0: i64, t1: i64, spans: &[(i64, i64)]) -> (Vec<i64>, i64) {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&i| (spans[i].0, spans[i].1, i));
    let (mut owned, mut cursor, mut idle) = (vec![0; spans.len()], t0, 0);
    for i in order {
        let (start, end) = (spans[i].0.clamp(t0, t1), spans[i].1.clamp(t0, t1));
        idle += (start - cursor).max(0);
        owned[i] = (end - start.max(cursor)).max(0);
        cursor = cursor.max(end);
    }
    (owned, idle + (t1 - cursor).max(0))
}

/// Builds the bars: the summed floor, each class's excess over its floor, then the other lines as given.
pub fn waterfall(wall_ns: i64, rows: &[Row], others: &[Bar]) -> Waterfall {
    let floor: i64 = rows.iter().map(|r| r.floor_ns).sum();
    let mut excess: BTreeMap<&str, i64> = BTreeMap::new();
    for r in rows {
        *excess.entry(&r.class).or_default() += r.ns - r.floor_ns;
    }
    let mut classes: Vec<(&str, i64)> = excess.into_iter().collect();
    classes.sort_by_key(|(name, ns)| (-ns, *name));
    let mut bars = vec![Bar { kind: "floor".into(), name: "least time (floor)".into(), ns: floor }];
    bars.extend(classes.into_iter().map(|(name, ns)| Bar {
        kind: "kernel".into(),
        name: format!("{name}: above its floor"),
        ns,
    }));
    bars.extend(others.iter().cloned());
    let residual_ns = wall_ns - bars.iter().map(|b| b.ns).sum::<i64>();
    Waterfall { wall_ns, bars, residual_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn earlier_kernel_owns_the_overlap() {
        let (owned, idle) = attribute(0, 100, &[(10, 40), (30, 60), (35, 38), (70, 120)]);
        assert_eq!(owned, [30, 20, 0, 30]);
        assert_eq!(idle, 20);
    }

    proptest! {
        #[test]
        fn attribution_sums_to_the_window(spans in prop::collection::vec((0i64..1000, 0i64..200), 0..40)) {
            let spans: Vec<_> = spans.into_iter().map(|(s, d)| (s, s + d)).collect();
            let (owned, idle) = attribute(100, 900, &spans);
            prop_assert_eq!(owned.iter().sum::<i64>() + idle, 800);
        }
    }

    #[test]
    fn bars_close() {
        let rows = [
            Row { class: "qkv".into(), floor_ns: 10, ns: 15, ..Row::default() },
            Row { class: "o".into(), floor_ns: 8, ns: 9, ..Row::default() },
        ];
        let gap = Bar { kind: "gap".into(), name: "gap: graph node".into(), ns: 6 };
        let w = waterfall(30, &rows, &[gap]);
        assert_eq!(w.residual_ns, 0);
        assert_eq!(w.bars[1].name, "qkv: above its floor");
        assert_eq!(waterfall(31, &rows, &[]).residual_ns, 7);
    }
}
