//! 4-bit checkpoints as GPTQ and AWQ tools publish them: what their configs say, and their tensors in the packed layout.

use super::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::kernels::w4a16::layout::Packed;
use crate::kernels::w4a16::repack::{self, Awq, Gptq, ZeroConvention};
use crate::kernels::w4a16::shape::Spec;
use serde_json::Value;
use std::path::Path;

/// Who packed the nibbles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Gptq(ZeroConvention),
    Awq,
}

/// How a checkpoint is quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantization {
    pub method: Method,
    /// Weights along k that share a scale; 0 for a whole row (`group_size` -1).
    pub group: u64,
}

impl Quantization {
    /// Reads `quantization_config` of `config.json`, or `quantize_config.json` (GPTQ) or `quant_config.json` (AWQ) beside it;
    /// `None` where there is none.
    ///
    /// # Errors
    /// Malformed JSON, a method other than gptq and awq, other than 4 bits, an AWQ layout other than GEMM.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        for (file, key) in
            [("config.json", Some("quantization_config")), ("quantize_config.json", None), ("quant_config.json", None)]
        {
            let path = folder.join(file);
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let root: Value = serde_json::from_str(&text)
                .map_err(|e| Error::usage(format!("not valid JSON: {e}")).at(path.display()))?;
            let found = key.map_or(&root, |k| &root[k]);
            if found.is_object() {
                let named = found["quant_method"].as_str();
                let method = named.unwrap_or(if file == "quant_config.json" { "awq" } else { "gptq" });
                return Self::read(method, found).map(Some).map_err(|e| e.at(path.display()));
            }
        }
        Ok(None)
    }

    fn read(method: &str, config: &Value) -> Result<Self> {
        let int = |keys: [&str; 2]| keys.iter().find_map(|k| config[*k].as_i64());
        let bits = int(["bits", "w_bit"]).unwrap_or(4);
        if bits != 4 {
            return Err(Error::usage(format!("weights of {bits} bits; the step multiplies 16-bit and 4-bit weights")));
        }
        let text = |key: &str| config[key].as_str().unwrap_or_default().to_lowercase();
        let method = match method {
            "gptq" => Method::Gptq(ZeroConvention::of_format(&text("checkpoint_format"))?),
            "awq" if matches!(text("version").as_str(), "" | "gemm") => Method::Awq,
            "awq" => {
                return Err(Error::usage(format!("AWQ layout `{}`; only `gemm` is read", text("version"))));
            }
            other => {
                return Err(Error::usage(format!("quant_method `{other}` is neither gptq nor awq")).try_next(
                    "a GPTQ or AWQ checkpoint, or the model's 16-bit weights (--weights w4a16 rounds them)",
                ));
            }
        };
        let group = int(["group_size", "q_group_size"]).unwrap_or(128);
        let group = u64::try_from(group).unwrap_or(0);
        Ok(Self { method, group })
    }

    /// One linear layer, `name` without `.weight`, in the packed layout; `spec` is the whole stacked matrix and gives k, group,
    /// zero points and the scales' type.
    ///
    /// # Errors
    /// Missing tensors, sizes that disagree, another group or zero points than the plan has, act-order.
    pub fn layer(&self, checkpoint: &Checkpoint, name: &str, spec: &Spec) -> Result<(u64, Packed)> {
        if self.group != spec.group {
            return Err(Error::usage(format!(
                "the checkpoint has a scale for {}, the plan for {}",
                width(self.group),
                width(spec.group)
            ))
            .try_next(format!("--group {}", self.group)));
        }
        let words = |part: &str| checkpoint.words(&format!("{name}.{part}"));
        let (qweight, shape) = words("qweight")?;
        let (qzeros, _) = words("qzeros")?;
        let (scales, _) = checkpoint.floats(&format!("{name}.scales"))?;
        let [rows, columns] = shape[..] else {
            return Err(Error::usage(format!("{name}.qweight has {} dimensions, 2 expected", shape.len())));
        };
        let (n, k, group) = match self.method {
            Method::Gptq(_) => (columns, rows * 8, self.group),
            Method::Awq => (columns * 8, rows, self.group),
        };
        if k != spec.k {
            return Err(Error::usage(format!("{name}.qweight is for {k} inputs, the config asks for {}", spec.k)));
        }
        let (part, mut packed) = match self.method {
            Method::Gptq(zeros) => {
                let g_idx = format!("{name}.g_idx");
                let g_idx = if checkpoint.has(&g_idx) { Some(checkpoint.words(&g_idx)?.0) } else { None };
                let g_idx = g_idx.as_deref();
                let t = Gptq { n, k, group, zeros, qweight: &qweight, qzeros: &qzeros, scales: &scales, g_idx };
                repack::gptq(&t, spec.dtype)
            }
            Method::Awq => {
                let t = Awq { n, k, group, qweight: &qweight, qzeros: &qzeros, scales: &scales };
                repack::awq(&t, spec.dtype)
            }
        }
        .map_err(|e| Error::from(e).at(name))?;
        if packed.perm.is_some() {
            return Err(Error::usage(format!(
                "{name}.g_idx orders the inputs by importance (act-order, desc_act): the step's products would need x \
                 gathered, which no kernel of the step does"
            ))
            .try_next("a checkpoint quantised with desc_act=false"));
        }
        if part.asym && !spec.asym {
            return Err(Error::usage(format!("{name} has zero points other than 8")).try_next("--asymmetric"));
        }
        if spec.asym && !part.asym {
            packed.zeros =
                vec![0x88; crate::kernels::w4a16::layout::zeros_bytes(&Spec { asym: true, ..part }) as usize];
        }
        Ok((n, packed))
    }
}

fn width(group: u64) -> String {
    if group == 0 { "a whole row".into() } else { format!("{group} weights") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(file: &str, text: &str) -> Result<Option<Quantization>> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(file), text).unwrap();
        Quantization::find(dir.path())
    }

    #[test]
    fn configs_as_published() {
        let gptq = |zeros, group| Some(Quantization { method: Method::Gptq(zeros), group });
        for (file, text, want) in [
            ("config.json", r#"{"hidden_size": 8}"#, None),
            (
                "config.json",
                r#"{"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false}}"#,
                gptq(ZeroConvention::V1, 128),
            ),
            (
                "config.json",
                r#"{"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1, "checkpoint_format": "gptq_v2"}}"#,
                gptq(ZeroConvention::V2, 0),
            ),
            ("quantize_config.json", r#"{"bits": 4, "group_size": 64, "sym": true}"#, gptq(ZeroConvention::V1, 64)),
            (
                "quant_config.json",
                r#"{"zero_point": true, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}"#,
                Some(Quantization { method: Method::Awq, group: 32 }),
            ),
        ] {
            assert_eq!(find(file, text).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn refusals_say_what_is_there() {
        for (text, words) in [
            (r#"{"quantization_config": {"quant_method": "fp8"}}"#, "`fp8` is neither gptq nor awq"),
            (r#"{"quantization_config": {"quant_method": "gptq", "bits": 8}}"#, "weights of 8 bits"),
            (r#"{"quantization_config": {"quant_method": "awq", "version": "gemv"}}"#, "AWQ layout `gemv`"),
            (r#"{"quantization_config": {"quant_method": "gptq", "checkpoint_format": "marlin"}}"#, "`marlin`"),
            ("{", "not valid JSON"),
        ] {
            let e = find("config.json", text).unwrap_err().to_string();
            assert!(e.contains(words), "{text}: {e}");
        }
    }
}
