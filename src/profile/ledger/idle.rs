//! Idle stretches of a sweep: their pieces go to lines by cause, the worst of each kept.

use super::classify::Found;
use super::sweep::{Key, Sweep};
use super::types::{Detail, LineKind, NONE, Piece, Segment};

impl Sweep<'_, '_> {
    /// Books the idle stretch `[from, until)` before position `next`.
    pub(super) fn idle(&mut self, from: i64, until: i64, next: u32, n: u32) {
        let a = self.a;
        // The cause is found on the whole gap, also where the window cuts it: two halves must add up to the whole.
        let previous = if next == 0 { NONE } else { a.last[next as usize - 1] };
        let g0 = if previous == NONE { from } else { a.op(previous).end.min(from) };
        let (next, g1) = if next < n { (next, a.op(next).start) } else { (NONE, self.t1) };
        let index = |p: u32| if p == NONE { NONE } else { a.order[p as usize] };
        let place = match (g0 <= self.t0, g1 >= self.t1) {
            (true, false) => LineKind::Head,
            (false, true) => LineKind::Tail,
            _ => LineKind::Gap,
        };
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        a.classify(previous, next, g0, g1, &mut found);
        for f in &found {
            let (start, end) = (f.start.max(from), f.end.min(until));
            if start < end {
                let launch = if next == NONE { NONE } else { a.launch[next as usize] };
                self.piece(place, (start, end), f, (index(previous), index(next), launch));
            }
        }
        self.found = found;
        self.latest = (NONE, NONE);
    }

    fn piece(&mut self, place: LineKind, (start, end): (i64, i64), f: &Found, around: (u32, u32, u32)) {
        let kind = if f.cause.is_unknown() { LineKind::Unknown } else { place };
        let names = &self.a.trace.names;
        let named = f.name.filter(|_| f.cause.names_call());
        let line = self.line(Key::Idle(kind, f.cause, named), || {
            let name = named.map_or(String::new(), |n| format!(" {}", names.text(n)));
            (kind, format!("{}{name}", f.cause.text()))
        });
        let (previous, next, launch) = around;
        let piece = Piece {
            start,
            end,
            line,
            cause: f.cause,
            previous,
            next,
            launch,
            record: f.record,
            runner_up: f.runner_up,
            why: f.why,
            margin: f.margin,
        };
        let ns = end - start;
        let clock = self.a.clock();
        let worst = self.a.options.worst;
        let open = &mut self.open[line as usize];
        open.line.cause = Some(f.cause);
        open.line.count += 1;
        open.line.ns += ns;
        if ns < 2 * clock {
            open.line.below_clock_ns += ns;
        }
        if f.cause.is_host() {
            self.host += ns;
        }
        let at = open.worst.partition_point(|w| w.end - w.start >= ns);
        if at < worst {
            open.worst.truncate(worst - 1);
            open.worst.insert(at, piece);
        }
        if self.detail == Detail::Segments {
            let piece_index = self.pieces.len() as u32;
            self.pieces.push(piece);
            self.segments.push(Segment { start, end, line, operation: NONE, piece: piece_index });
        }
    }
}
