//! The tensor cores' ceiling: the best product that anything here can make.

use super::{Session, Trial};
use crate::error::{Error, Result};
use crate::kernels;
use crate::launch::Graph;
use crate::op::{DType, Shape};
use crate::run::arrays::{Arrays, workspace};
use crate::run::measure::{Launches, Work};
use crate::run::peer::{self, CublasLt};
use crate::run::{Executor, rows};
use std::time::Duration;

impl Session<'_> {
    /// Tensor rate on a product of 8192³ with random data: the first replays after half a second of rest, and the end of
    /// a second of load. The library where it is there, our own variants beside it.
    pub(super) fn tensor(&mut self, dtype: DType) -> Result<(f64, f64)> {
        let size = 8192u64;
        let shape = Shape::new().with("m", size).with("n", size).with("k", size).with("dtype", dtype.name());
        let op = kernels::op("matmul")?;
        let chip = self.gpu.chip();
        let arrays = Arrays::new(self.gpu, op, &shape, 1)?;
        let mut works: Vec<Box<dyn Work>> = Vec::new();
        if peer::present() {
            match CublasLt::product(self.gpu.device(), &shape, std::slice::from_ref(&arrays)) {
                Ok(work) => works.extend(work.map(|w| Box::new(w) as Box<dyn Work>)),
                Err(e) => (self.say)(&format!("cuBLASLt left out: {e}")),
            }
        }
        let mut scratch = Vec::new();
        for variant in op.variants() {
            if op.supports(variant.name, &shape, &chip).is_err() || self.gpu.can_run("matmul", variant).is_err() {
                continue;
            }
            let mut at = arrays.bindings().clone();
            if let Some(address) = workspace(self.gpu, op, variant.name, &shape)? {
                at.set("workspace", address);
                scratch.push(address);
            }
            let prepared = self.gpu.prepare(&op.launches(variant.name, &shape, &chip, &at)?)?;
            works.push(Box::new(Launches { name: format!("matmul/{}", variant.name), sets: vec![prepared] }));
        }
        let mut best: Option<(f64, f64, String)> = None;
        let (tried, flops) = (works.len(), (2 * size * size * size) as f64);
        for work in &works {
            arrays.reset(self.gpu)?;
            self.gpu.sync()?;
            work.enqueue(0, self.gpu.stream())?;
            self.gpu.stream().synchronize(|| work.name().into())?;
            if let Some(bad) = arrays.check(self.gpu, op, &shape)?.iter().find(|c| !c.ok()) {
                (self.say)(&format!("{} left out, it is wrong: {}", work.name(), rows::wrong(bad)));
                continue;
            }
            let graph = Graph::capture(self.gpu.device(), |stream| work.enqueue(0, stream))?;
            let once = graph.replay(self.bench.stream(), 3)?.into_iter().fold(f64::INFINITY, f64::min);
            // A variant several times slower than the best so far is no ceiling, and a second of it is wasted.
            if best.as_ref().is_some_and(|(b, ..)| once > 1.5 * b) {
                continue;
            }
            std::thread::sleep(Duration::from_millis(500));
            let burst = crate::stats::median(&graph.replay(self.bench.stream(), 6)?);
            let load = graph.replay(self.bench.stream(), (1e9 / once) as usize + 20)?;
            let sustained = crate::stats::median(&load[load.len() - 20..]);
            if best.as_ref().is_none_or(|(b, ..)| burst < *b) {
                best = Some((burst, sustained, work.name().into()));
            }
        }
        drop(works);
        for address in scratch {
            self.gpu.free(address)?;
        }
        arrays.free(self.gpu)?;
        let (burst, sustained, who) =
            best.ok_or_else(|| Error::usage(format!("nothing here multiplies {} matrices", dtype.name())))?;
        for (state, ns) in [("burst", burst), ("sustained", sustained)] {
            self.keep(Trial {
                probe: format!("{} product 8192³, {state}", dtype.name()),
                config: who.clone(),
                ns,
                rate: Some(flops / ns / 1e3),
                tried,
            });
        }
        Ok((flops / burst / 1e3, flops / sustained / 1e3))
    }
}
