//! Properties that must hold for any capture, and small captures whose causes are known because they were planted.

use super::*;
use crate::profile::trace::*;

mod planted;
mod properties;

fn kernel(t: &mut Trace, name: &str, stream: u64, (start, end): (i64, i64), correlation: u64) -> usize {
    let name = t.names.intern(name);
    t.operations.push(Operation { name, stream, start, end, correlation, ..Operation::default() });
    t.operations.len() - 1
}

fn call(t: &mut Trace, kind: CallKind, name: &str, (start, end): (i64, i64), correlation: u64) {
    let name = t.names.intern(name);
    t.calls.push(Call { kind, name, process: 0, thread: 1, start, end, correlation, driver: false });
}

fn exact() -> Options {
    Options { clock_ns: Some(0), ..Options::default() }
}

/// Floors and limits short enough that random captures cross them.
fn tight() -> Options {
    let floors = Floors { stream_ns: 5, graph_node_ns: 3, ..Floors::default() };
    Options { floors, launch_ns: 4, plausible_ns: 12, ..exact() }
}

/// `kind name` → ns.
fn sums(l: &Ledger) -> Vec<(String, i64)> {
    let mut all: Vec<_> = l.lines.iter().map(|x| (format!("{:?} {}", x.kind, x.name), x.ns)).collect();
    all.sort();
    all
}

fn ns(l: &Ledger, kind: LineKind, name: &str) -> i64 {
    l.lines.iter().filter(|x| x.kind == kind && x.name == name).map(|x| x.ns).sum()
}
