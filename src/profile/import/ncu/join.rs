//! Counters beside the kernels of a trace: by name, and where one name stands for several rows (instances of a template,
//! nodes of a plan) by launch configuration and by order.

use super::{Profiled, SHOWN, stem};
use crate::profile::compare::canonical;
use crate::profile::gaps::KernelRow;
use crate::profile::ledger::FastMap;
use crate::profile::trace::{Names, Operation};

/// A kernel of the trace, in order of time: its record, and the row that it is summed on.
#[derive(Clone, Copy, Debug)]
pub struct Launched<'t> {
    pub operation: &'t Operation,
    pub row: usize,
}

/// How the profiled launches found their kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    pub by_name: usize,
    /// Where the name was not enough: by grid and block, or by the place in the sequence.
    pub by_order: usize,
    /// No kernel, or several that could not be told apart.
    pub strangers: usize,
}

/// Puts the counters beside the kernels; medians over the launches.
pub fn join(rows: &mut [KernelRow], launched: &[Launched<'_>], names: &Names, profiled: &[Profiled]) -> Joined {
    let spelled = Spelled::new(launched, names);
    let place = places(launched, names, profiled);
    let mut out = Joined::default();
    let mut of: Vec<Vec<&Profiled>> = vec![Vec::new(); rows.len()];
    for (p, place) in profiled.iter().zip(&place) {
        let whole = spelled.whole.get(&canonical(&p.name));
        let alike: &[Launched<'_>] = whole.or_else(|| spelled.bare.get(stem(&p.name))).map_or(&[], Vec::as_slice);
        let configured = alike.iter().filter(|l| p.fits(l.operation)).map(|l| l.row);
        let (row, by_name) = match (one(alike.iter().map(|l| l.row)), one(configured).or(*place)) {
            (Some(row), _) => (row, true),
            (None, Some(row)) => (row, false),
            (None, None) => {
                out.strangers += 1;
                continue;
            }
        };
        *(if by_name { &mut out.by_name } else { &mut out.by_order }) += 1;
        of[row].push(p);
    }
    for (row, launches) in rows.iter_mut().zip(of) {
        for (details, raw, shown) in SHOWN {
            let values = launches.iter().filter_map(|p| p.metrics.iter().find(|m| m.name == details || m.name == raw));
            let found: Vec<_> = values.collect();
            let numbers: Vec<f64> = found.iter().map(|m| m.value).collect();
            if let Some(m) = found.first() {
                row.counters.push((shown.to_string(), m.unit.clone(), crate::stats::median(&numbers)));
            }
        }
    }
    out
}

/// One launch of each kind (row, grid, block) by its whole name, in one spelling, and by its bare one.
struct Spelled<'t> {
    whole: FastMap<String, Vec<Launched<'t>>>,
    bare: FastMap<String, Vec<Launched<'t>>>,
}

impl<'t> Spelled<'t> {
    fn new(launched: &[Launched<'t>], names: &Names) -> Self {
        let mut seen: FastMap<(u32, usize, [u32; 3], [u32; 3]), ()> = FastMap::default();
        let (mut whole, mut bare): (FastMap<_, Vec<_>>, FastMap<_, Vec<_>>) = Default::default();
        for l in launched {
            let o = l.operation;
            if seen.insert((o.name.0, l.row, o.grid, o.block), ()).is_none() {
                let text = names.text(o.name);
                whole.entry(canonical(text)).or_default().push(*l);
                bare.entry(stem(text).to_string()).or_default().push(*l);
            }
        }
        Self { whole, bare }
    }
}

/// The one value that all are, if there is one.
fn one<T: Copy + PartialEq>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.all(|v| v == first).then_some(first)
}

/// The row of each profiled launch by its place: where the whole profiled sequence, by bare name, grid and block, stands in
/// the trace. Kernels that were not profiled at all do not count; where it stands several times, rows must agree.
fn places(launched: &[Launched<'_>], names: &Names, profiled: &[Profiled]) -> Vec<Option<usize>> {
    let configured = profiled.iter().all(|p| p.grid.is_some() && p.block.is_some());
    let shape = |grid: [u32; 3], block: [u32; 3]| if configured { (grid, block) } else { ([0; 3], [0; 3]) };
    let wanted: Vec<_> = profiled
        .iter()
        .map(|p| (stem(&p.name), shape(p.grid.unwrap_or_default(), p.block.unwrap_or_default())))
        .collect();
    let profiled_names: FastMap<&str, ()> = wanted.iter().map(|w| (w.0, ())).collect();
    let there = launched.iter().map(|l| {
        let o = l.operation;
        (stem(names.text(o.name)), shape(o.grid, o.block), l.row)
    });
    let there: Vec<_> = there.filter(|t| profiled_names.contains_key(t.0)).collect();
    let text: Vec<_> = there.iter().map(|t| (t.0, t.1)).collect();
    let mut rows: Vec<Option<usize>> = vec![None; profiled.len()];
    let mut open = vec![true; profiled.len()];
    for at in occurrences(&text, &wanted) {
        for (i, (row, open)) in rows.iter_mut().zip(&mut open).enumerate() {
            let here = there[at + i].2;
            match row {
                None if *open => *row = Some(here),
                Some(have) if *have != here => {
                    *row = None;
                    *open = false;
                }
                _ => {}
            }
        }
    }
    rows
}

/// Where `part` stands in `text`, by Knuth, Morris and Pratt.
fn occurrences<T: PartialEq>(text: &[T], part: &[T]) -> Vec<usize> {
    let mut border = vec![0; part.len()];
    for i in 1..part.len() {
        let mut k: usize = border[i - 1];
        while k > 0 && part[i] != part[k] {
            k = border[k - 1];
        }
        border[i] = k + usize::from(part[i] == part[k]);
    }
    let (mut out, mut k) = (Vec::new(), 0);
    for (i, t) in text.iter().enumerate().filter(|_| !part.is_empty()) {
        while k > 0 && *t != part[k] {
            k = border[k - 1];
        }
        k += usize::from(*t == part[k]);
        if k == part.len() {
            out.push(i + 1 - k);
            k = border[k - 1];
        }
    }
    out
}
