//! What a card can do at best, as measured, and the floor that follows for any cost.

use crate::op::{Chip, Cost, Traffic, Unit};
use crate::units::{Nanos, Provenance};
use serde::{Deserialize, Serialize};

/// Rates in GB/s (1e9) and TFLOP/s, costs in ns. Copy counts both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// `NVIDIA H200`.
    pub gpu: String,
    /// Last part of the card's UUID; empty for a datasheet.
    pub uuid_tail: String,
    pub provenance: Provenance,
    /// Where the numbers come from: a run, a document.
    pub source: String,
    pub sms: u32,
    pub l2_bytes: u64,
    pub read_gbps: f64,
    pub write_gbps: f64,
    pub copy_gbps: f64,
    /// Reads that L2 answers; absent where nobody measured it.
    pub l2_gbps: Option<f64>,
    /// Tensor cores on random bf16 data in the first milliseconds, before the power limit holds the clocks.
    pub bf16_tflops: f64,
    /// The same after a second.
    pub bf16_sustained_tflops: f64,
    pub fp16_tflops: f64,
    pub fp8_tflops: Option<f64>,
    /// Fused multiply-adds outside the tensor cores.
    pub fp32_tflops: f64,
    /// One launch after another in a stream, and one launch with a wait for it.
    pub launch_ns: f64,
    pub launch_sync_ns: f64,
    /// From one kernel of a graph to the next: over a full edge, over a programmatic edge.
    pub graph_node_ns: f64,
    pub pdl_edge_ns: f64,
    /// From one kernel of a stream to the next, both queued; absent where nobody measured it.
    #[serde(default)]
    pub stream_edge_ns: Option<f64>,
}

/// The resource that sets a floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    Memory,
    Compute,
}

/// The least time that physics allows, and the two terms of which it is the larger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    pub ns: f64,
    pub memory_ns: f64,
    pub compute_ns: f64,
}

impl Floor {
    pub fn bound(&self) -> Bound {
        if self.compute_ns > self.memory_ns { Bound::Compute } else { Bound::Memory }
    }
    pub fn nanos(&self) -> Nanos {
        Nanos::from_f64(self.ns)
    }
}

impl Ceilings {
    /// Time of a mix of traffic: as much of it as pairs up goes at the copy ceiling, the rest at its own.
    pub fn memory_ns(&self, read: u64, write: u64) -> f64 {
        let paired = 2 * read.min(write);
        let (rest, ceiling) =
            if read >= write { (read - write, self.read_gbps) } else { (write - read, self.write_gbps) };
        paired as f64 / self.copy_gbps + rest as f64 / ceiling
    }
    /// Highest rate of a unit in TFLOP/s.
    pub fn rate(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Fp32 => self.fp32_tflops,
            Unit::Tensor16 => self.bf16_tflops.max(self.fp16_tflops),
            Unit::Tensor8 => self.fp8_tflops.unwrap_or(2.0 * self.bf16_tflops),
        }
    }
    /// The floor of a cost: the larger of its traffic and its arithmetic, each at the measured ceiling.
    pub fn floor(&self, cost: &Cost) -> Floor {
        let memory_ns = self.memory_ns(cost.bytes_of(Traffic::Read), cost.bytes_of(Traffic::Write));
        let compute_ns = cost.flops as f64 / self.rate(cost.unit) / 1e3;
        Floor { ns: memory_ns.max(compute_ns), memory_ns, compute_ns }
    }
    /// Arithmetic intensity at which reading and tensor arithmetic take equally long.
    pub fn ridge(&self) -> f64 {
        self.bf16_tflops * 1e3 / self.read_gbps
    }
    /// NVIDIA H200 as recorded with `peers/` on 2026-11-30: 4 GiB read, write and copy; 8192³ matrix products; empty
    /// kernels of 132 blocks, whose edges in a graph are those of `workbench roofline` on that day. fp32 is the datasheet's.
    pub fn h200() -> Self {
        Self {
            gpu: "NVIDIA H200".into(),
            uuid_tail: String::new(),
            provenance: Provenance::Recorded,
            source: "peers baseline, H200, 2026-11-30".into(),
            sms: Chip::H200.sms,
            l2_bytes: Chip::H200.l2_bytes,
            read_gbps: 4_581.0,
            write_gbps: 4_703.0,
            copy_gbps: 4_283.0,
            l2_gbps: None,
            bf16_tflops: 771.0,
            bf16_sustained_tflops: 666.0,
            fp16_tflops: 771.0,
            fp8_tflops: None,
            fp32_tflops: 67.0,
            launch_ns: 3_660.0,
            launch_sync_ns: 9_110.0,
            graph_node_ns: 540.0,
            pdl_edge_ns: 475.0,
            stream_edge_ns: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_costs_the_copy_ceiling_and_a_read_the_read_ceiling() {
        let c = Ceilings::h200();
        let gb = 1_000_000_000;
        assert!((c.memory_ns(gb, gb) - 2e9 / 4_283.0).abs() < 1.0);
        assert!((c.memory_ns(gb, 0) - 1e9 / 4_581.0).abs() < 1.0);
        assert!((c.memory_ns(0, gb) - 1e9 / 4_703.0).abs() < 1.0);
        let mixed = c.memory_ns(3 * gb, gb);
        assert!((mixed - (2e9 / 4_283.0 + 2e9 / 4_581.0)).abs() < 1.0);
    }

    #[test]
    fn the_larger_term_is_the_floor() {
        let c = Ceilings::h200();
        let small = Cost::new(Unit::Tensor16, 2 * 4096 * 4096).read("weights", 2 * 4096 * 4096);
        assert_eq!(c.floor(&small).bound(), Bound::Memory);
        let n = 8192u64;
        let big = Cost::new(Unit::Tensor16, 2 * n * n * n).read("in", 4 * n * n).write("out", 2 * n * n);
        let floor = c.floor(&big);
        assert_eq!(floor.bound(), Bound::Compute);
        assert!((floor.ns / 1e3 - 1426.0).abs() < 1.0, "{}", floor.ns);
    }
}
