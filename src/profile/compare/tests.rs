use super::*;
use crate::profile::ledger::{Options, account};
use crate::profile::trace::Operation;
use proptest::prelude::*;

fn trace(ops: &[(u8, i64, i64)]) -> Trace {
    let mut t = Trace { resolution_ns: 1, ..Trace::default() };
    for (name, start, length) in ops {
        let name = t.names.intern(&format!("k{name}"));
        t.operations.push(Operation { name, start: *start, end: start + length, ..Operation::default() });
    }
    t
}

proptest! {
    #[test]
    fn deltas_sum_to_the_wall_difference(
        a in prop::collection::vec((0..4u8, 0..300i64, 0..40i64), 0..30),
        b in prop::collection::vec((2..6u8, 0..300i64, 0..40i64), 0..30),
        wall_a in 0..400i64,
        wall_b in 0..400i64,
    ) {
        let (ta, tb, o) = (trace(&a), trace(&b), Options::default());
        let (x, y) = (Accountant::new(&ta, 0, &o), Accountant::new(&tb, 0, &o));
        let s = sequences((&ta, &x, (0, wall_a)), (&tb, &y, (0, wall_b)));
        let (la, lb) = (account(&ta, 0, 0, wall_a, &o).unwrap(), account(&tb, 0, 0, wall_b, &o).unwrap());
        let d = difference(&la, &lb, &s.renames);
        prop_assert_eq!(d.residual_ns, 0);
        prop_assert_eq!(d.lines.iter().map(|l| l.delta_ns).sum::<i64>(), wall_b - wall_a);
        prop_assert_eq!(d.lines.iter().map(|l| l.a_ns).sum::<i64>(), wall_a);
        let itself = difference(&la, &la, &Renames::default());
        prop_assert!(itself.lines.iter().all(|l| l.delta_ns == 0));
    }
}

#[test]
fn a_fused_kernel_stands_on_the_row_of_what_it_replaced() {
    let a = trace(&[(1, 0, 100), (2, 110, 50), (3, 170, 60), (1, 240, 100)]);
    let b = trace(&[(1, 0, 100), (9, 110, 70), (1, 190, 100)]);
    let o = Options::default();
    let (x, y) = (Accountant::new(&a, 0, &o), Accountant::new(&b, 0, &o));
    let s = sequences((&a, &x, (0, 340)), (&b, &y, (0, 290)));
    assert_eq!((s.same, s.distance), (2, Some(3)));
    let (la, lb) = (account(&a, 0, 0, 340, &o).unwrap(), account(&b, 0, 0, 290, &o).unwrap());
    let d = difference(&la, &lb, &s.renames);
    let row = d.lines.iter().find(|l| l.renamed.is_some()).unwrap();
    assert_eq!((row.name.as_str(), row.renamed.as_deref()), ("k2 + k3", Some("k9")));
    assert_eq!((row.a_ns, row.b_ns, row.delta_ns), (110, 70, -40));
}

/// The same loop, recorded by `trace` (CUPTI's mangled names, ours demangled) and by PyTorch's profiler.
#[test]
fn two_profilers_of_one_loop_name_the_same_kernels() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/loop");
    for name in ["loop_graph", "loop_eager"] {
        let sides = ["wbt", "json"]
            .map(|kind| crate::profile::import::open(&folder.join(format!("{name}.{kind}.gz"))).unwrap());
        let o = Options::default();
        let [x, y] = sides.each_ref().map(|t| Accountant::new(t, t.operations[0].device, &o));
        let (steps_x, steps_y) = [(&sides[0], &x), (&sides[1], &y)]
            .map(|(t, a)| crate::profile::steps::find(t, a, &crate::profile::steps::Selector::Auto).unwrap())
            .into();
        let median =
            |a: &Accountant<'_>, s: &crate::profile::steps::Steps| crate::profile::steps::report(a, s).unwrap().2;
        let (lx, ly) = (median(&x, &steps_x), median(&y, &steps_y));
        let s = sequences((&sides[0], &x, (lx.t0, lx.t1)), (&sides[1], &y, (ly.t0, ly.t1)));
        assert!(s.replaced.is_empty() && (s.a_operations, s.b_operations) == (108, 108), "{name}: {s:?}");
        // The steps of the eager captures are found half a period apart, so there kernels of one name stand elsewhere.
        if name == "loop_graph" {
            assert_eq!((s.same, s.distance), (108, Some(0)));
        }
        // On the lines, too: no kernel stands on one side only.
        let d = difference(&lx, &ly, &s.renames);
        assert_eq!(d.residual_ns, 0);
        for l in d.lines.iter().filter(|l| matches!(l.kind, LineKind::Kernel | LineKind::Memcpy)) {
            assert!(l.a_count > 0 && l.a_count == l.b_count, "{name}: {l:?}");
        }
    }
}
