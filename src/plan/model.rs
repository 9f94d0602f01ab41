//! Decoder models as their Hugging Face `config.json` describes them, and the few that are built in.
//!
//! Only what changes bytes, arithmetic or the order of kernels is kept.

use super::dims;
use crate::error::{Error, Result};
use serde_json::Value;

/// A family whose decode step the workbench can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama 2, 3, 3.1, 3.2.
    Llama,
    Mistral,
    /// Like Llama, with an RMS norm on each query and key head before the rotation.
    Qwen3,
}

/// Frequency scaling of Llama 3.1 and later (`rope_type: llama3` in the model's config).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeScaling {
    pub factor: f64,
    pub low_freq_factor: f64,
    pub high_freq_factor: f64,
    pub original_max_positions: f64,
}

/// The dimensions of a dense decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub name: String,
    pub family: Family,
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    pub intermediate: u64,
    pub vocab: u64,
    /// The output head shares the embedding table.
    pub tied: bool,
    pub rms_eps: f64,
    pub rope_theta: f64,
    pub rope_scaling: Option<RopeScaling>,
    pub max_positions: u64,
    pub sliding_window: Option<u64>,
}

impl Model {
    /// Names of the model table that the step can run.
    pub fn built_in() -> Vec<&'static str> {
        let runs = |k: &&dims::Known| Self::from_json(&k.name, &k.config.to_string()).is_ok();
        dims::MODELS.iter().filter(runs).map(|k| k.name.as_str()).collect()
    }

    /// A model of the table by name (case ignored), a `config.json`, or a checkpoint folder that holds one.
    pub fn find(name: &str) -> Result<Self> {
        let (stem, text) = dims::config(name)?;
        Self::from_json(&stem, &text).map_err(|e| e.at(name))
    }

    /// Reads a Hugging Face `config.json` of a family the step can run; names every missing key at once.
    pub fn from_json(name: &str, text: &str) -> Result<Self> {
        let root: Value =
            serde_json::from_str(text).map_err(|e| Error::usage(format!("config is not valid JSON: {e}")))?;
        let arch = root["architectures"][0].as_str().unwrap_or_default();
        let family = match (arch, root["model_type"].as_str().unwrap_or_default()) {
            ("LlamaForCausalLM", _) | ("", "llama") => Family::Llama,
            ("MistralForCausalLM", _) | ("", "mistral") => Family::Mistral,
            ("Qwen3ForCausalLM", _) | ("", "qwen3") => Family::Qwen3,
            (a, t) => {
                let seen = if a.is_empty() { t } else { a };
                let seen = if seen.is_empty() { "no `architectures`" } else { seen };
                return Err(Error::usage(format!("the decode step cannot run this architecture: {seen}")).try_next(
                    "LlamaForCausalLM, MistralForCausalLM or Qwen3ForCausalLM; `size` and `predict` know more",
                ));
            }
        };
        let required = ["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"];
        let missing: Vec<_> = required.iter().filter(|k| root[**k].as_u64().is_none_or(|v| v == 0)).copied().collect();
        if !missing.is_empty() {
            return Err(Error::usage(format!(
                "config lacks {} (or they are not positive integers)",
                missing.join(", ")
            )));
        }
        let int = |key: &str| root[key].as_u64();
        let heads = int("num_attention_heads").unwrap_or(1);
        let hidden = int("hidden_size").unwrap_or(0);
        let kv_heads = int("num_key_value_heads").unwrap_or(heads);
        if kv_heads == 0 || heads % kv_heads != 0 {
            return Err(Error::usage(format!("{heads} query heads cannot share {kv_heads} KV heads evenly")));
        }
        let head_dim = int("head_dim").unwrap_or(hidden / heads);
        if head_dim == 0 || head_dim % 2 != 0 {
            return Err(Error::usage(format!("head_dim {head_dim} cannot be rotated: it must be even and positive")));
        }
        if root["attention_bias"].as_bool() == Some(true) || root["mlp_bias"].as_bool() == Some(true) {
            return Err(Error::usage("attention_bias or mlp_bias is true: the step's products have no bias"));
        }
        Ok(Self {
            name: name.to_string(),
            family,
            layers: int("num_hidden_layers").unwrap_or(0),
            hidden,
            heads,
            kv_heads,
            head_dim,
            intermediate: int("intermediate_size").unwrap_or(0),
            vocab: int("vocab_size").unwrap_or(0),
            tied: root["tie_word_embeddings"].as_bool().unwrap_or(false),
            rms_eps: root["rms_norm_eps"].as_f64().unwrap_or(1e-6),
            rope_theta: root["rope_theta"]
                .as_f64()
                .or_else(|| root["rope_parameters"]["rope_theta"].as_f64())
                .unwrap_or(10_000.0),
            rope_scaling: scaling(&root)?,
            max_positions: int("max_position_embeddings").unwrap_or(u64::MAX),
            sliding_window: int("sliding_window").filter(|_| root["use_sliding_window"].as_bool() != Some(false)),
        })
    }

    /// Whether each query and key head is normalised before the rotation.
    pub fn qk_norm(&self) -> bool {
        self.family == Family::Qwen3
    }

    /// Rows of the stacked query, key and value projection.
    pub fn qkv_rows(&self) -> u64 {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Bytes that one token occupies in the KV cache with 2-byte elements.
    pub fn kv_bytes_per_token(&self) -> u64 {
        2 * self.layers * self.kv_heads * self.head_dim * 2
    }

    /// The rotation table, `[positions, head_dim]` fp32: `head_dim / 2` cosines, then as many sines.
    ///
    /// Frequencies are theta^(-2i/d); Llama 3.1 scaling stretches the long wavelengths by `factor` and blends between
    /// the two frequency bounds, as the model's reference code does.
    pub fn rope_table(&self, positions: u64) -> Vec<f32> {
        let half = self.head_dim / 2;
        let freqs: Vec<f64> = (0..half)
            .map(|i| {
                let f = self.rope_theta.powf(-(2.0 * i as f64) / self.head_dim as f64);
                let Some(s) = self.rope_scaling else { return f };
                let wavelength = 2.0 * std::f64::consts::PI / f;
                let (long, short) =
                    (s.original_max_positions / s.low_freq_factor, s.original_max_positions / s.high_freq_factor);
                if wavelength < short {
                    f
                } else if wavelength > long {
                    f / s.factor
                } else {
                    let blend = (s.original_max_positions / wavelength - s.low_freq_factor)
                        / (s.high_freq_factor - s.low_freq_factor);
                    (1.0 - blend) * f / s.factor + blend * f
                }
            })
            .collect();
        let mut table = Vec::with_capacity((positions * self.head_dim) as usize);
        for p in 0..positions {
            table.extend(freqs.iter().map(|f| (p as f64 * f).cos() as f32));
            table.extend(freqs.iter().map(|f| (p as f64 * f).sin() as f32));
        }
        table
    }
}

fn scaling(root: &Value) -> Result<Option<RopeScaling>> {
    let s = match (&root["rope_scaling"], &root["rope_parameters"]) {
        (Value::Object(_), _) => &root["rope_scaling"],
        (_, Value::Object(_)) => &root["rope_parameters"],
        _ => return Ok(None),
    };
    let kind = s["rope_type"].as_str().or_else(|| s["type"].as_str()).unwrap_or("default");
    if kind == "default" {
        return Ok(None);
    }
    let num = |key: &str| s[key].as_f64();
    match (
        kind,
        num("factor"),
        num("low_freq_factor"),
        num("high_freq_factor"),
        num("original_max_position_embeddings"),
    ) {
        ("llama3", Some(factor), Some(low), Some(high), Some(orig)) if factor > 0.0 && low > 0.0 && high > low => {
            Ok(Some(RopeScaling { factor, low_freq_factor: low, high_freq_factor: high, original_max_positions: orig }))
        }
        _ => Err(Error::usage(format!("rope scaling `{kind}` is not supported or lacks its factors"))
            .try_next("a config with rope_type llama3 or default")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_ins_parse() {
        for name in Model::built_in() {
            let m = Model::find(name).unwrap();
            assert!(m.layers > 0 && m.hidden > 0, "{name}");
        }
        let m = Model::find("Llama-3-8B").unwrap();
        assert_eq!(m.kv_bytes_per_token(), 131_072);
        assert_eq!(m.qkv_rows(), 6144);
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let e = Model::from_json("x", r#"{"architectures":["LlamaForCausalLM"],"hidden_size":64}"#).unwrap_err();
        assert!(e.what.contains("num_hidden_layers") && e.what.contains("vocab_size"), "{e}");
        let e = Model::from_json("x", r#"{"architectures":["GemmaForCausalLM"]}"#).unwrap_err();
        assert!(e.what.contains("GemmaForCausalLM"));
        assert!(Model::from_json("x", "{").unwrap_err().what.contains("JSON"));
        assert!(Model::find("no-such-model").unwrap_err().next.unwrap().contains("llama-3-8b"));
    }

    #[test]
    fn rope_table_rotates() {
        let m = Model::find("llama-3-8b").unwrap();
        let t = m.rope_table(3);
        assert_eq!(t.len(), 3 * 128);
        assert_eq!((t[0], t[64]), (1.0, 0.0));
        assert!((f64::from(t[2 * 128]) - 2f64.cos()).abs() < 1e-7);
        let scaled = Model::find("llama-3.2-1b").unwrap().rope_table(2);
        let slowest = 500_000f64.powf(-62.0 / 64.0) / 32.0;
        assert!((f64::from(scaled[64 + 63]) - slowest.sin()).abs() < 1e-9);
    }
}
