//! Steps without markers: the period of the kernel sequence.
//!
//! A decode step repeats layers inside it, so the shortest period is the wrong one. But some kernel runs once a step
//! (an embedding, a sampler): among kernels that come back at regular distances over most of the capture, the one that
//! comes least often marks the step. Its phase is then moved to where the device idles longest.

use crate::profile::ledger::FastMap;
use crate::profile::trace::Trace;

/// A repetition that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Period {
    /// Positions of the marking operation.
    anchors: Vec<usize>,
    /// Operations from a mark to the step's beginning.
    shift: usize,
    /// Most common number of operations in a step.
    pub length: usize,
    /// Share of steps of that length.
    pub regularity: f64,
}

impl Period {
    pub fn how(&self) -> String {
        format!(
            "repetition of the kernel sequence: {} operations a step, {:.0} % of steps are of that length",
            self.length,
            100.0 * self.regularity
        )
    }

    /// First operation of each step.
    pub fn heads(&self, trace: &Trace, order: &[u32]) -> Vec<(usize, String)> {
        let heads = self.anchors.iter().map(|p| p + self.shift).filter(|p| *p < order.len());
        let mut heads: Vec<usize> = heads.collect();
        // The first mark may lie inside a step that began before it.
        if let Some(&first) = heads.first()
            && first >= self.length
            && self.same(trace, order, first - self.length, first)
        {
            heads.insert(0, first - self.length);
        }
        heads.into_iter().enumerate().map(|(n, p)| (p, format!("step {n}"))).collect()
    }

    fn same(&self, trace: &Trace, order: &[u32], a: usize, b: usize) -> bool {
        let name = |p: usize| order.get(p).map(|&i| trace.operations[i as usize].name);
        (0..self.length).all(|k| name(a + k) == name(b + k))
    }
}

/// How regular a kernel's returns must be, and how much of the capture they must cover.
const REGULAR: f64 = 0.8;
const COVERED: f64 = 0.5;

/// Finds the period of a device's operations, by names; by names and grids where one kernel does everything.
pub fn period(trace: &Trace, order: &[u32]) -> Option<Period> {
    let names: Vec<u32> = order.iter().map(|&i| trace.operations[i as usize].name.0).collect();
    by_tokens(trace, order, &names).or_else(|| {
        let mut ids: FastMap<(u32, [u32; 3]), u32> = FastMap::default();
        let tokens: Vec<u32> = order
            .iter()
            .map(|&i| {
                let o = &trace.operations[i as usize];
                let fresh = ids.len() as u32;
                *ids.entry((o.name.0, o.grid)).or_insert(fresh)
            })
            .collect();
        by_tokens(trace, order, &tokens)
    })
}

fn by_tokens(trace: &Trace, order: &[u32], tokens: &[u32]) -> Option<Period> {
    let mut places: FastMap<u32, Vec<usize>> = FastMap::default();
    for (p, t) in tokens.iter().enumerate() {
        places.entry(*t).or_default().push(p);
    }
    if places.len() < 2 {
        return None;
    }
    let mut best: Option<Period> = None;
    for anchors in places.into_values().filter(|l| l.len() >= 3) {
        let mut distances: FastMap<usize, usize> = FastMap::default();
        for w in anchors.windows(2) {
            *distances.entry(w[1] - w[0]).or_insert(0) += 1;
        }
        let Some((length, hits)) = distances.into_iter().max_by_key(|(d, hits)| (*hits, *d)) else { continue };
        let regularity = hits as f64 / (anchors.len() - 1) as f64;
        let covered = (anchors[anchors.len() - 1] - anchors[0] + length) as f64 / tokens.len() as f64;
        // Two marks in one graph launch: that is a layer of the step, not the step.
        let launch = |p: usize| {
            let o = &trace.operations[order[p] as usize];
            (o.process, o.correlation, o.correlation != 0)
        };
        let inside = anchors.windows(2).filter(|w| launch(w[0]).2 && launch(w[0]) == launch(w[1])).count();
        if regularity < REGULAR || covered < COVERED || length < 2 || 2 * inside > anchors.len() {
            continue;
        }
        let better = match &best {
            None => true,
            // Fewest returns first; among equals the most regular, then the earliest.
            Some(b) => (anchors.len(), -regularity, anchors[0]) < (b.anchors.len(), -b.regularity, b.anchors[0]),
        };
        if better {
            best = Some(Period { anchors, shift: 0, length, regularity });
        }
    }
    let mut best = best?;
    best.divide(tokens);
    best.rotate(trace, order);
    Some(best)
}

impl Period {
    /// A mark that comes only every second or third step hides a shorter period: take it where the sequence has it.
    fn divide(&mut self, tokens: &[u32]) {
        let from = self.anchors[0];
        let to = (self.anchors[self.anchors.len() - 1] + self.length).min(tokens.len());
        for parts in (2..=8).rev().filter(|p| self.length.is_multiple_of(*p)) {
            let length = self.length / parts;
            let pairs = (to - from).saturating_sub(length);
            let same = (from..from + pairs).filter(|&p| tokens[p] == tokens[p + length]).count();
            if length >= 2 && pairs > 0 && same as f64 >= 0.99 * pairs as f64 {
                self.anchors = (from..to).step_by(length).collect();
                self.length = length;
                return;
            }
        }
    }

    /// Moves the boundary to the operation before which the device idles longest (median over the steps).
    fn rotate(&mut self, trace: &Trace, order: &[u32]) {
        let mut best = (-1, 0);
        for shift in 0..self.length {
            let mut gaps: Vec<i64> = self
                .anchors
                .iter()
                .map(|a| a + shift)
                .filter(|p| *p > 0 && *p < order.len())
                .take(64)
                .map(|p| {
                    let at = |q: usize| &trace.operations[order[q] as usize];
                    at(p).start.saturating_sub(at(p - 1).end)
                })
                .collect();
            gaps.sort_unstable();
            let median = gaps.get(gaps.len() / 2).copied().unwrap_or(-1);
            if median > best.0 {
                best = (median, shift);
            }
        }
        self.shift = best.1;
    }
}
