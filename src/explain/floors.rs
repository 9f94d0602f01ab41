//! The back-to-back gaps that a ledger takes for the hardware's own: of this card where they were measured.

use crate::profile::ledger::Floors;
use crate::roofline::Ceilings;

/// The launch ceilings of a card as a ledger wants them. They are periods of empty kernels, so a gap, which has no kernel
/// in it, is no longer than that.
pub fn of(ceilings: &Ceilings) -> Floors {
    let ns = |v: f64| v.round() as i64;
    Floors {
        stream_ns: ceilings.stream_edge_ns.map_or(Floors::default().stream_ns, ns),
        graph_node_ns: ns(ceilings.graph_node_ns),
        pdl_ns: ns(ceilings.pdl_edge_ns),
        provenance: ceilings.provenance,
        source: match ceilings.stream_edge_ns {
            Some(_) => ceilings.source.clone(),
            None => format!("{}; between kernels of a stream: {}", ceilings.source, Floors::default().source),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_takes_the_place_of_what_was_recorded() {
        let mut c = Ceilings { graph_node_ns: 511.4, pdl_edge_ns: 432.6, ..Ceilings::h200() };
        let f = of(&c);
        assert_eq!((f.stream_ns, f.graph_node_ns, f.pdl_ns), (Floors::default().stream_ns, 511, 433));
        c.stream_edge_ns = Some(803.0);
        assert_eq!(of(&c).stream_ns, 803);
    }
}
