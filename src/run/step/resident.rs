//! A plan brought to life: its arrays on an executor, its nodes as launches.
//!
//! The GPU and the host emulator both are executors, so the same code answers "does the step compute the right thing"
//! in CI and on the card.

use super::checkpoint::Checkpoint;
use super::weights::Reader;
use crate::error::{Error, Result};
use crate::kernels;
use crate::op::{Init, Launch};
use crate::plan::decode::Handles;
use crate::plan::{BufferId, Plan, Purpose};
use crate::run::{Executor, fill};

/// A loaded plan. Release it before the executor goes away.
pub struct Resident {
    pub plan: Plan,
    pub handles: Handles,
    /// Each launch with the index of its node, in order.
    pub launches: Vec<(usize, Launch)>,
    /// The variant that each node uses.
    pub variants: Vec<String>,
    addresses: Vec<u64>,
    scratch: Vec<u64>,
}

impl Resident {
    /// Bytes that loading a plan takes, workspaces included.
    ///
    /// # Errors
    /// A node whose op or variant does not exist or cannot take its shape.
    pub fn bytes(plan: &Plan, chip: &crate::op::Chip) -> Result<u64> {
        let mut total: u64 = plan.buffers.iter().map(|b| b.bytes().next_multiple_of(256)).sum();
        for node in &plan.nodes {
            let op = kernels::op(node.op)?;
            let variant = node.variant.as_deref().unwrap_or_else(|| op.choose(&node.shape, chip));
            total += op.workspace(variant, &node.shape, chip)?.next_multiple_of(256);
        }
        Ok(total)
    }

    /// Allocates and fills every array (weights from the checkpoint where one is given, else random from the seed) and
    /// settles every launch.
    ///
    /// # Errors
    /// Out of memory, a checkpoint that lacks a tensor, a node that no variant can compute.
    pub fn load(
        exec: &mut dyn Executor,
        plan: Plan,
        handles: Handles,
        seed: u64,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Self> {
        let mut this = Self { plan, handles, launches: vec![], variants: vec![], addresses: vec![], scratch: vec![] };
        match this.fill(exec, seed, checkpoint).and_then(|()| this.resolve(exec)) {
            Ok(()) => Ok(this),
            Err(e) => {
                this.release(exec);
                Err(e)
            }
        }
    }

    fn fill(&mut self, exec: &mut dyn Executor, seed: u64, checkpoint: Option<&Checkpoint>) -> Result<()> {
        let mut reader = checkpoint.map(|c| Reader::new(c, &self.plan)).transpose()?;
        for b in &self.plan.buffers {
            let address = exec.alloc(b.bytes()).map_err(|e| e.at(format!("allocating {}", b.name)))?;
            self.addresses.push(address);
            if b.len == 0 {
                continue;
            }
            match (&mut reader, b.purpose, &b.init) {
                (Some(r), Purpose::Weights, _) => exec.write(address, &r.read(b)?)?,
                (_, _, Init::Bytes(bytes)) => exec.write(address, bytes)?,
                _ => exec.fill(address, b.dtype, b.len, &b.init, fill::key(seed, &b.name))?,
            }
        }
        exec.sync()
    }

    fn resolve(&mut self, exec: &mut dyn Executor) -> Result<()> {
        let chip = exec.chip();
        for (index, node) in self.plan.nodes.iter().enumerate() {
            let op = kernels::op(node.op)?;
            let variant = node.variant.clone().unwrap_or_else(|| op.choose(&node.shape, &chip).to_string());
            let place = |e: crate::op::OpError| Error::usage(format!("node `{}`: {e}", node.label));
            op.supports(&variant, &node.shape, &chip).map_err(place)?;
            let mut at = self.plan.bindings(node, |id: BufferId| self.addresses[id.0]).map_err(place)?;
            let bytes = op.workspace(&variant, &node.shape, &chip).map_err(place)?;
            if bytes > 0 {
                let address = exec.alloc(bytes)?;
                self.scratch.push(address);
                exec.fill(address, crate::op::DType::U8, bytes, &Init::Zero, 0)?;
                at.set("workspace", address);
            }
            let launches = op.launches(&variant, &node.shape, &chip, &at).map_err(place)?;
            self.launches.extend(launches.into_iter().map(|l| (index, l)));
            self.variants.push(variant);
        }
        exec.sync()
    }

    /// Runs one step in order.
    pub fn run(&self, exec: &mut dyn Executor) -> Result<()> {
        let launches: Vec<Launch> = self.launches.iter().map(|(_, l)| l.clone()).collect();
        exec.launch(&launches)
    }

    /// Sets the tokens and lengths of the next step (`len` counts the new token).
    pub fn set(&self, exec: &mut dyn Executor, ids: &[i32], lens: &[i32]) -> Result<()> {
        let bytes = |v: &[i32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        exec.write(self.address(self.handles.ids), &bytes(ids))?;
        exec.write(self.address(self.handles.seq_lens), &bytes(lens))
    }

    /// The tokens that the last step chose.
    pub fn ids(&self, exec: &mut dyn Executor) -> Result<Vec<i32>> {
        let raw = self.read(exec, self.handles.ids)?;
        Ok(raw.chunks_exact(4).map(|c| i32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
    }

    /// The last step's logits, `[batch, vocab]`.
    pub fn logits(&self, exec: &mut dyn Executor) -> Result<Vec<f32>> {
        let raw = self.read(exec, self.handles.logits)?;
        Ok(raw.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
    }

    /// Device address of an array.
    pub fn address(&self, id: BufferId) -> u64 {
        self.addresses[id.0]
    }

    fn read(&self, exec: &mut dyn Executor, id: BufferId) -> Result<Vec<u8>> {
        let mut raw = vec![0; self.plan.buffers[id.0].bytes() as usize];
        exec.read(self.address(id), &mut raw)?;
        Ok(raw)
    }

    /// Frees everything; errors are of no use to anybody then.
    pub fn release(self, exec: &mut dyn Executor) {
        for address in self.addresses.into_iter().chain(self.scratch) {
            let _ = exec.free(address);
        }
    }
}
