//! A plan's weight arrays from a checkpoint: stacked rows as they are; for 4-bit products 16-bit weights rounded to the packed
//! layout, or a GPTQ or AWQ checkpoint's own.

use super::checkpoint::Checkpoint;
use super::quantized::Quantization;
use crate::error::{Error, Result};
use crate::kernels::w4a16::layout::{self, Packed};
use crate::kernels::w4a16::quantize;
use crate::kernels::w4a16::shape::{Spec, TILE};
use crate::op::DType;
use crate::plan::{Plan, PlanBuffer};
use std::collections::BTreeMap;

/// Reads the arrays of one plan, in any order; the last packed matrix is kept for its other arrays.
pub struct Reader<'a> {
    checkpoint: &'a Checkpoint,
    quantization: Option<Quantization>,
    /// Names of a 4-bit product's stacked tensors to its shape.
    specs: BTreeMap<String, Spec>,
    last: Option<(String, Packed)>,
}

impl<'a> Reader<'a> {
    /// # Errors
    /// A checkpoint quantised in a way that is not read.
    pub fn new(checkpoint: &'a Checkpoint, plan: &Plan) -> Result<Self> {
        let mut specs = BTreeMap::new();
        for node in plan.nodes.iter().filter(|n| n.op == "w4a16") {
            let spec = Spec::read(&node.shape)?;
            for (_, id, _) in &node.bind {
                if let Some((names, _)) = plan.buffers[id.0].name.split_once('#') {
                    specs.insert(names.to_string(), spec);
                }
            }
        }
        Ok(Self { checkpoint, quantization: Quantization::find(checkpoint.folder())?, specs, last: None })
    }

    /// The bytes of one weight array. A tied head has no tensor of its own and never reaches here under its own name.
    ///
    /// # Errors
    /// Missing tensors, sizes that disagree with the plan, what [`quantize::round_to_nearest`] and
    /// [`Quantization::layer`] refuse.
    pub fn read(&mut self, buffer: &PlanBuffer) -> Result<Vec<u8>> {
        let Some((names, part)) = buffer.name.split_once('#') else {
            let name = buffer.name.split('+').next().unwrap_or_default();
            let packed = name.strip_suffix(".weight").map(|n| format!("{n}.qweight"));
            if name.starts_with("model.layers.")
                && !self.checkpoint.has(name)
                && packed.is_some_and(|p| self.checkpoint.has(&p))
            {
                return Err(Error::usage(format!("{name} is there in 4 bits only")).try_next("--weights w4a16"));
            }
            return self.checkpoint.read(&buffer.name, buffer.dtype, buffer.len);
        };
        if self.last.as_ref().is_none_or(|(n, _)| n != names) {
            let spec = *self.specs.get(names).ok_or_else(|| Error::usage(format!("no product uses {names}")))?;
            self.last = Some((names.to_string(), self.pack(names, &spec)?));
        }
        let packed = self.last.as_ref().map(|(_, p)| p);
        let bytes = match (packed, part) {
            (Some(p), "qweight") => p.qweight.clone(),
            (Some(p), "scales") => p.scales.iter().flat_map(|s| s.to_le_bytes()).collect(),
            (Some(p), "zeros") => p.zeros.clone(),
            _ => return Err(Error::usage(format!("{}: no such array of 4-bit weights", buffer.name))),
        };
        if bytes.len() as u64 != buffer.bytes() {
            return Err(Error::usage(format!(
                "{} has {} bytes, the plan expects {}",
                buffer.name,
                bytes.len(),
                buffer.bytes()
            )));
        }
        Ok(bytes)
    }

    fn pack(&self, names: &str, spec: &Spec) -> Result<Packed> {
        let Some(quantization) = self.quantization else {
            let floats = self.checkpoint.read(names, DType::F32, spec.n * spec.k)?;
            let floats: Vec<f32> =
                floats.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
            return quantize::round_to_nearest(&floats, spec).map_err(|e| Error::from(e).at(names));
        };
        let mut whole = Packed { qweight: vec![], scales: vec![], zeros: vec![], perm: None };
        let mut rows = 0u64;
        for name in names.split('+') {
            let name = name.strip_suffix(".weight").unwrap_or(name);
            let (n, part) = quantization.layer(self.checkpoint, name, spec)?;
            // All arrays begin with the tile: stacking rows is joining arrays, as long as tiles are whole.
            if !rows.is_multiple_of(TILE) {
                return Err(Error::usage(format!(
                    "{name} would begin at row {rows} of a stacked product, not a multiple of {TILE}"
                )));
            }
            rows += n;
            whole.qweight.extend(part.qweight);
            whole.scales.extend(part.scales);
            whole.zeros.extend(part.zeros);
        }
        if rows != spec.n || whole.qweight.len() as u64 != layout::qweight_bytes(spec) {
            return Err(Error::usage(format!("{names} holds {rows} outputs, the config asks for {}", spec.n)));
        }
        Ok(whole)
    }
}
