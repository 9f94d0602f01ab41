//! The plan: an ordered list of nodes, each an op with a concrete shape. Predicted, run and explained from this one value.

pub mod decode;
pub mod dims;
pub mod engine_log;
pub mod meaning;
pub mod model;
pub mod serve;
pub mod size;

use crate::op::{Bindings, DType, Init, OpResult, Shape};

/// Index of a buffer in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(pub usize);

/// What a plan's buffer is for; the memory report sums by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    Weights,
    KvCache,
    Activations,
    /// Token ids, lengths, page table: what the host sets between steps.
    Control,
}

/// A device array of the plan.
#[derive(Clone, Debug)]
pub struct PlanBuffer {
    /// Unique, and for weights the Hugging Face tensor name (or a `+` joined list where several are stacked by rows):
    /// `model.layers.0.self_attn.q_proj.weight+model.layers.0.self_attn.k_proj.weight+…`.
    pub name: String,
    pub purpose: Purpose,
    pub dtype: DType,
    pub len: u64,
    pub init: Init,
}

impl PlanBuffer {
    pub fn bytes(&self) -> u64 {
        self.len * self.dtype.size()
    }
}

/// One operation of the plan.
#[derive(Clone, Debug)]
pub struct Node {
    /// `L07 gate_up`: unique within the plan.
    pub label: String,
    /// What classes of the report group by: `gate_up`, `attention`, `lm_head`.
    pub class: String,
    pub layer: Option<u32>,
    /// Registry name of the op.
    pub op: &'static str,
    /// A variant by name, or none to let the op's heuristic choose.
    pub variant: Option<String>,
    pub shape: Shape,
    /// The op's buffer names and the plan's buffers bound to them, with an element offset into each.
    pub bind: Vec<(&'static str, BufferId, u64)>,
}

/// The ordered list of nodes and the arrays that they share.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// `llama-3-8b bf16 batch 1 context 2048`.
    pub title: String,
    pub buffers: Vec<PlanBuffer>,
    pub nodes: Vec<Node>,
}

impl Plan {
    /// Adds an array.
    pub fn buffer(
        &mut self,
        name: impl Into<String>,
        purpose: Purpose,
        dtype: DType,
        len: u64,
        init: Init,
    ) -> BufferId {
        self.buffers.push(PlanBuffer { name: name.into(), purpose, dtype, len, init });
        BufferId(self.buffers.len() - 1)
    }
    /// Bytes of all arrays of a purpose.
    pub fn bytes(&self, purpose: Purpose) -> u64 {
        self.buffers.iter().filter(|b| b.purpose == purpose).map(PlanBuffer::bytes).sum()
    }
    /// Removes arrays that no node binds (scratch of nodes that were folded away); ids of the others must not be held
    /// across this by position, so removal empties an array instead of shifting its neighbours.
    pub fn drop_unused(&mut self) {
        let mut used = vec![false; self.buffers.len()];
        for (_, id, _) in self.nodes.iter().flat_map(|n| &n.bind) {
            used[id.0] = true;
        }
        for (buffer, used) in self.buffers.iter_mut().zip(used) {
            if !used {
                buffer.len = 0;
                buffer.init = Init::Zero;
            }
        }
    }
    /// The op bindings of a node, given the address of each plan buffer.
    pub fn bindings(&self, node: &Node, address: impl Fn(BufferId) -> u64) -> OpResult<Bindings> {
        let mut at = Bindings::new();
        for &(name, id, offset) in &node.bind {
            at.set(name, address(id) + offset * self.buffers[id.0].dtype.size());
        }
        Ok(at)
    }
}
