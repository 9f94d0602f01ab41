//! Two kernel sequences laid side by side: which kernels kept their place, which were renamed, split or fused.

use crate::profile::ledger::FastMap;

/// Where the two sequences agree and where they do not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alignment {
    /// Operations at the same place with the same token.
    pub same: usize,
    /// Runs that differ, as ranges of A and of B; either may be empty.
    pub changed: Vec<(std::ops::Range<usize>, std::ops::Range<usize>)>,
    /// Fewest insertions and deletions; none where the sequences differ too much to be aligned.
    pub distance: Option<usize>,
}

/// Sequences further apart than this are not aligned: what they share would be chance, and the search is quadratic in it.
const BAND: usize = 2_000;

/// Myers' shortest edit script, forward, with the band that bounds its time and memory.
pub fn align(a: &[u32], b: &[u32]) -> Alignment {
    // Common ends cost nothing to find, and real traces are mostly that.
    let head = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let tail = a[head..].iter().rev().zip(b[head..].iter().rev()).take_while(|(x, y)| x == y).count();
    let (inner_a, inner_b) = (&a[head..a.len() - tail], &b[head..b.len() - tail]);
    let Some(pairs) = script(inner_a, inner_b) else {
        let changed = vec![(head..a.len() - tail, head..b.len() - tail)];
        return Alignment { same: head + tail, changed, distance: None };
    };
    let mut changed = Vec::new();
    let (mut i, mut j) = (0, 0);
    for &(x, y) in pairs.iter().chain([&(inner_a.len(), inner_b.len())]) {
        if x > i || y > j {
            changed.push((head + i..head + x, head + j..head + y));
        }
        (i, j) = (x + 1, y + 1);
    }
    let distance = Some(inner_a.len() + inner_b.len() - 2 * pairs.len());
    Alignment { same: head + tail + pairs.len(), changed, distance }
}

/// Matched pairs of a shortest edit script, in order; none beyond the band.
fn script(a: &[u32], b: &[u32]) -> Option<Vec<(usize, usize)>> {
    let (n, m) = (a.len() as i64, b.len() as i64);
    let most = (a.len() + b.len()).min(BAND) as i64;
    let width = (2 * most + 3) as usize;
    let at = |k: i64| (k + most + 1) as usize;
    let mut reach = vec![0i64; width];
    // For each distance, the frontier before it: only its own diagonals are kept.
    let mut history: Vec<Vec<i64>> = Vec::new();
    for d in 0..=most {
        history.push(reach[at(-d - 1)..=at(d + 1)].to_vec());
        for k in (-d..=d).step_by(2) {
            let down = k == -d || (k != d && reach[at(k - 1)] < reach[at(k + 1)]);
            let mut x = if down { reach[at(k + 1)] } else { reach[at(k - 1)] + 1 };
            while x < n && x - k < m && a[x as usize] == b[(x - k) as usize] {
                x += 1;
            }
            reach[at(k)] = x;
            if x >= n && x - k >= m {
                return Some(walk_back(n, m, &history));
            }
        }
    }
    None
}

fn walk_back(n: i64, m: i64, history: &[Vec<i64>]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let (mut x, mut y) = (n, m);
    for (d, frontier) in history.iter().enumerate().rev() {
        let d = d as i64;
        let k = x - y;
        let reach = |k: i64| frontier[(k + d + 1) as usize];
        let down = k == -d || (k != d && reach(k - 1) < reach(k + 1));
        let from = if d == 0 {
            0
        } else if down {
            k + 1
        } else {
            k - 1
        };
        let px = if d == 0 { 0 } else { reach(from) };
        let py = px - from;
        while x > px.max(0) && y > py.max(0) {
            (x, y) = (x - 1, y - 1);
            pairs.push((x as usize, y as usize));
        }
        if d > 0 {
            (x, y) = (px, py);
        }
    }
    pairs.reverse();
    pairs
}

/// Kernels of A and kernels of B that took their place, as groups of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    pub a: Vec<u32>,
    pub b: Vec<u32>,
}

/// More names than this in one group is a rewrite, not a rename.
const GROUP: usize = 8;

/// Groups of names that only A has and only B has, standing at the same places of the two sequences.
pub fn replaced(a: &[u32], b: &[u32], alignment: &Alignment) -> Vec<Replaced> {
    let has = |s: &[u32]| s.iter().map(|t| (*t, ())).collect::<FastMap<u32, ()>>();
    let (in_a, in_b) = (has(a), has(b));
    // Union of the names of each changed run. A token and its side make one element.
    let mut parent: FastMap<(bool, u32), (bool, u32)> = FastMap::default();
    fn root(parent: &mut FastMap<(bool, u32), (bool, u32)>, x: (bool, u32)) -> (bool, u32) {
        let mut r = x;
        while let Some(&p) = parent.get(&r).filter(|p| **p != r) {
            r = p;
        }
        parent.insert(x, r);
        r
    }
    for (ra, rb) in &alignment.changed {
        let left = a[ra.clone()].iter().filter(|t| !in_b.contains_key(t)).map(|t| (false, *t));
        let right = b[rb.clone()].iter().filter(|t| !in_a.contains_key(t)).map(|t| (true, *t));
        let (left, right): (Vec<_>, Vec<_>) = (left.collect(), right.collect());
        let (Some(&first), false) = (left.first(), right.is_empty()) else { continue };
        for x in left.into_iter().chain(right) {
            let (p, q) = (root(&mut parent, first), root(&mut parent, x));
            parent.insert(q, p);
        }
    }
    let mut members: Vec<(bool, u32)> = parent.keys().copied().collect();
    members.sort_unstable();
    let mut groups: FastMap<(bool, u32), Replaced> = FastMap::default();
    for x in members {
        let r = root(&mut parent, x);
        let g = groups.entry(r).or_default();
        if x.0 { g.b.push(x.1) } else { g.a.push(x.1) }
    }
    let mut out: Vec<Replaced> = groups.into_values().filter(|g| g.a.len() + g.b.len() <= GROUP).collect();
    out.sort_by(|x, y| (&x.a, &x.b).cmp(&(&y.a, &y.b)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The textbook longest common subsequence.
    fn longest(a: &[u32], b: &[u32]) -> usize {
        let mut row = vec![0; b.len() + 1];
        for x in a {
            let mut diagonal = 0;
            for (j, y) in b.iter().enumerate() {
                let up = row[j + 1];
                row[j + 1] = if x == y { diagonal + 1 } else { up.max(row[j]) };
                diagonal = up;
            }
        }
        row[b.len()]
    }

    proptest! {
        #[test]
        fn the_script_is_shortest_and_covers_both(
            a in prop::collection::vec(0..5u32, 0..40),
            b in prop::collection::vec(0..5u32, 0..40),
        ) {
            let found = align(&a, &b);
            let common = longest(&a, &b);
            prop_assert_eq!(found.same, common);
            prop_assert_eq!(found.distance, Some(a.len() + b.len() - 2 * common));
            let ca: usize = found.changed.iter().map(|c| c.0.len()).sum();
            let cb: usize = found.changed.iter().map(|c| c.1.len()).sum();
            prop_assert_eq!((ca + common, cb + common), (a.len(), b.len()));
            // What is left after the changes are taken out is the same on both sides.
            let rest = |s: &[u32], runs: Vec<std::ops::Range<usize>>| -> Vec<u32> {
                s.iter().enumerate().filter(|(i, _)| !runs.iter().any(|r| r.contains(i))).map(|(_, t)| *t).collect()
            };
            let left = rest(&a, found.changed.iter().map(|c| c.0.clone()).collect());
            let right = rest(&b, found.changed.iter().map(|c| c.1.clone()).collect());
            prop_assert_eq!(left, right);
        }
    }

    #[test]
    fn renamed_and_fused_kernels_are_paired() {
        // 1 stays; 2 becomes 20; 3 and 4 are fused into 34.
        let a = [1, 2, 1, 3, 4, 1, 2, 1, 3, 4];
        let b = [1, 20, 1, 34, 1, 20, 1, 34];
        let groups = replaced(&a, &b, &align(&a, &b));
        assert_eq!(groups, [Replaced { a: vec![2], b: vec![20] }, Replaced { a: vec![3, 4], b: vec![34] }]);
        assert_eq!(replaced(&a, &a, &align(&a, &a)), []);
    }

    #[test]
    fn strangers_are_not_aligned() {
        let a: Vec<u32> = (0..3_000).collect();
        let b: Vec<u32> = (10_000..13_000).collect();
        assert_eq!(align(&a, &b).distance, None);
    }
}
