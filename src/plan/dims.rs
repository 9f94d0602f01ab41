//! What a decoder weighs: parameters, bytes read in a decode step and bytes of cache, for families that the step cannot
//! run yet too (mixtures of experts, latent attention, sliding windows, biases). From a Hugging Face `config.json`.

use crate::error::{Error, Result};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use std::sync::LazyLock;

/// Experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moe {
    pub experts: u64,
    /// Experts that a token goes to.
    pub top_k: u64,
    pub intermediate: u64,
    /// Experts that every token goes to, of the same size.
    pub shared: u64,
    /// First layers that have one dense product instead.
    pub dense_layers: u64,
}

/// Multi-head latent attention: one compressed row for keys and values of all heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mla {
    pub q_lora: u64,
    pub kv_lora: u64,
    pub nope: u64,
    pub rope: u64,
    pub v: u64,
}

/// Layers whose attention looks back only so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub tokens: u64,
    pub layers: u64,
}

/// Dimensions of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Dims {
    pub name: String,
    /// The config's architecture, such as `LlamaForCausalLM`.
    pub architecture: String,
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    pub intermediate: u64,
    pub vocab: u64,
    /// The output head shares the embedding table.
    pub tied: bool,
    /// Biases: on queries, keys and values; on the attention's output; on router and experts.
    pub qkv_bias: bool,
    pub out_bias: bool,
    pub expert_bias: bool,
    pub router_bias: bool,
    /// One learned logit a head.
    pub sinks: bool,
    pub qk_norm: bool,
    /// Norms of `hidden` in a layer.
    pub norms: u64,
    pub moe: Option<Moe>,
    pub mla: Option<Mla>,
    pub window: Option<Window>,
    pub max_positions: u64,
}

/// How weights are stored; embedding, norms, routers and output head stay 16 bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stored {
    Bf16,
    /// One byte; the scales of a tensor or channel are too few to count.
    Fp8,
    /// 4 bits and a 16-bit scale for each `group` weights along K.
    W4a16 {
        group: u64,
    },
    /// Experts at 4 bits with an 8-bit scale for 32 weights, all else 16 bit: gpt-oss as published.
    Mxfp4,
}

impl Stored {
    /// As `--weights` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::W4a16 { .. } => "w4a16",
            Self::Mxfp4 => "mxfp4",
        }
    }
}

/// Weights of a model by what happens to them. On one card of `tp`, where given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tensors {
    /// Projections of the attention.
    pub attention: u64,
    /// Dense gate, up and down projections, and experts that every token goes to.
    pub dense: u64,
    /// All routed experts of all layers.
    pub experts: u64,
    /// Norms, biases, routers, sinks.
    pub small: u64,
    /// The table that the head reads.
    pub head: u64,
    /// The embedding, where it is a table of its own: of it a step reads one row a request.
    pub embedding: u64,
}

impl Tensors {
    pub fn params(&self) -> u64 {
        self.attention + self.dense + self.experts + self.small + self.head + self.embedding
    }

    /// Bytes in memory.
    pub fn bytes(&self, stored: Stored) -> u64 {
        stored.bytes(self.attention, false)
            + stored.bytes(self.dense, false)
            + stored.bytes(self.experts, true)
            + 2 * (self.small + self.head + self.embedding)
    }
}

impl Stored {
    /// Bytes of so many projection weights.
    pub fn bytes(self, weights: u64, experts: bool) -> u64 {
        match self {
            Self::Bf16 => 2 * weights,
            Self::Fp8 => weights,
            Self::W4a16 { group } => weights.div_ceil(2) + 2 * weights.div_ceil(group.max(1)),
            Self::Mxfp4 if experts => weights.div_ceil(2) + weights.div_ceil(32),
            Self::Mxfp4 => 2 * weights,
        }
    }
}

/// One entry of the model table.
#[derive(Clone, Debug, Deserialize)]
pub struct Known {
    pub name: String,
    /// The published checkpoint's count.
    pub params: u64,
    pub config: Value,
}

/// The model table, `data/models.json`.
pub static MODELS: LazyLock<Vec<Known>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        models: Vec<Known>,
    }
    let text = include_str!("../../data/models.json");
    serde_json::from_str::<File>(text).expect("data/models.json is checked by the tests").models
});

/// The text of a model's config: a name of the table (case ignored), a `config.json`, or a folder that holds one; with
/// what to call it.
pub fn config(name: &str) -> Result<(String, String)> {
    let lower = name.to_lowercase();
    if let Some(known) = MODELS.iter().find(|k| k.name == lower) {
        return Ok((known.name.clone(), known.config.to_string()));
    }
    let path = Path::new(name);
    let file = if path.is_dir() { path.join("config.json") } else { path.to_path_buf() };
    if !file.exists() {
        let all: Vec<&str> = MODELS.iter().map(|k| k.name.as_str()).collect();
        let near = crate::op::nearest(name, all.iter().copied());
        let near = near.map_or(String::new(), |n| format!("`{n}`; or "));
        return Err(Error::usage(format!("there is no model `{name}` and no such file"))
            .try_next(format!("{near}one of {}, or the path of a Hugging Face config.json", all.join(", "))));
    }
    let text =
        std::fs::read_to_string(&file).map_err(|e| Error::usage(format!("cannot read {}: {e}", file.display())))?;
    let stem =
        file.parent().and_then(Path::file_name).map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned());
    Ok((stem, text))
}

impl Dims {
    /// A model by name or file.
    pub fn find(name: &str) -> Result<Self> {
        let (stem, text) = config(name)?;
        Self::from_json(&stem, &text).map_err(|e| e.at(name))
    }

    /// Reads a `config.json`; names every missing key at once. A multimodal config's `text_config` is taken.
    pub fn from_json(name: &str, text: &str) -> Result<Self> {
        let outer: Value =
            serde_json::from_str(text).map_err(|e| Error::usage(format!("config is not valid JSON: {e}")))?;
        let root = if outer["text_config"]["hidden_size"].is_u64() { &outer["text_config"] } else { &outer };
        let arch = [&root["architectures"][0], &outer["architectures"][0], &root["model_type"], &outer["model_type"]]
            .into_iter()
            .find_map(Value::as_str)
            .unwrap_or_default()
            .to_string();
        let int = |key: &str| root[key].as_u64().filter(|v| *v > 0);
        let like = |word: &str| arch.to_lowercase().replace('_', "").starts_with(word);
        const FAMILIES: [&str; 10] =
            ["llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "deepseekv", "gptoss"];
        if !FAMILIES.iter().any(|f| like(f)) {
            let seen = if arch.is_empty() { "no `architectures`".into() } else { format!("`{arch}`") };
            return Err(Error::usage(format!("the weights of this architecture are not known here: {seen}"))
                .try_next(format!("one of the families {}", FAMILIES.join(", "))));
        }
        let mut required =
            vec!["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"];
        let latent = int("kv_lora_rank").is_some();
        if latent {
            required.extend(["q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]);
        }
        let experts = ["num_experts", "num_local_experts", "n_routed_experts"].into_iter().find_map(int);
        if experts.is_some() {
            required.push("num_experts_per_tok");
        }
        let missing: Vec<&str> = required.into_iter().filter(|k| int(k).is_none()).collect();
        if !missing.is_empty() {
            let what = format!("config lacks {} (or they are not positive integers)", missing.join(", "));
            return Err(Error::usage(what));
        }
        let get = |key: &str| int(key).unwrap_or(0);
        let (heads, hidden, layers) = (get("num_attention_heads"), get("hidden_size"), get("num_hidden_layers"));
        let kv_heads = int("num_key_value_heads").unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(Error::usage(format!("{heads} query heads cannot share {kv_heads} KV heads evenly")));
        }
        let (gpt_oss, gemma) = (like("gptoss"), like("gemma"));
        let intermediate = get("intermediate_size");
        let moe = experts.map(|experts| Moe {
            experts,
            top_k: get("num_experts_per_tok").min(experts),
            intermediate: int("moe_intermediate_size").unwrap_or(intermediate),
            shared: root["n_shared_experts"].as_u64().unwrap_or(0),
            dense_layers: root["first_k_dense_replace"].as_u64().unwrap_or(0).min(layers),
        });
        let mla = latent.then(|| Mla {
            q_lora: get("q_lora_rank"),
            kv_lora: get("kv_lora_rank"),
            nope: get("qk_nope_head_dim"),
            rope: get("qk_rope_head_dim"),
            v: get("v_head_dim"),
        });
        // Local layers: listed, or all but every n-th, or all.
        let listed = root["layer_types"]
            .as_array()
            .map(|t| t.iter().filter(|t| t.as_str() == Some("sliding_attention")).count() as u64);
        let every = int("sliding_window_pattern").or(match () {
            _ if like("gemma2") || gpt_oss => Some(2),
            _ if like("gemma3") => Some(6),
            _ => None,
        });
        let local = listed.unwrap_or_else(|| every.map_or(layers, |n| layers - layers / n));
        let window = int("sliding_window")
            .filter(|_| root["use_sliding_window"].as_bool() != Some(false) && local > 0)
            .map(|tokens| Window { tokens, layers: local });
        let said = |key: &str| root[key].as_bool() == Some(true);
        Ok(Self {
            name: name.into(),
            layers,
            hidden,
            heads,
            kv_heads,
            head_dim: int("head_dim").unwrap_or((hidden / heads).max(1)),
            intermediate,
            vocab: get("vocab_size"),
            tied: root["tie_word_embeddings"].as_bool().unwrap_or(gemma),
            qkv_bias: like("qwen2") || gpt_oss || said("attention_bias"),
            out_bias: gpt_oss || (said("attention_bias") && !like("qwen2")),
            expert_bias: gpt_oss,
            router_bias: gpt_oss || like("deepseekv3"),
            sinks: gpt_oss,
            qk_norm: like("qwen3") || like("gemma3"),
            norms: if gemma { 4 } else { 2 },
            moe,
            mla,
            window,
            max_positions: int("max_position_embeddings").unwrap_or(u64::MAX),
            architecture: arch,
        })
    }

    /// Whether `tp` cards can share each layer.
    ///
    /// # Errors
    /// The reason why they cannot, and the numbers of cards up to 64 that can.
    pub fn shared_by(&self, tp: u64) -> Result<()> {
        let Some(why) = self.unshared(tp) else { return Ok(()) };
        let good: Vec<String> = (1..=64).filter(|n| self.unshared(*n).is_none()).map(|n| n.to_string()).collect();
        Err(Error::usage(format!("--tp {tp}: {why}")).try_next(format!("--tp {}", good.join(", "))))
    }

    fn unshared(&self, tp: u64) -> Option<String> {
        if tp == 0 || !self.heads.is_multiple_of(tp) {
            return Some(format!("{} query heads cannot be shared by {tp} cards", self.heads));
        }
        if self.mla.is_none() && !self.kv_heads.is_multiple_of(tp) && !tp.is_multiple_of(self.kv_heads) {
            return Some(format!(
                "{} KV heads can neither be shared by {tp} cards nor be copied to them evenly",
                self.kv_heads
            ));
        }
        let wide = self.moe.map_or(self.intermediate, |m| m.intermediate);
        (!wide.is_multiple_of(tp)).then(|| format!("{wide} rows of the gate cannot be shared by {tp} cards"))
    }

    /// Weights on each of `tp` cards: heads, rows and vocabulary are shared, KV heads copied where there are too few,
    /// compressed latent projections, norms, routers and sinks copied.
    pub fn tensors(&self, tp: u64) -> Tensors {
        let (d, heads, l) = (self.hidden, self.heads / tp, self.layers);
        let kv = self.kv_heads.div_ceil(tp);
        let bias = |on: bool, n: u64| if on { n } else { 0 };
        let mut small = d + l * self.norms * d + bias(self.sinks, l * heads);
        let attention = match self.mla {
            Some(m) => {
                small += l * (m.q_lora + m.kv_lora);
                d * m.q_lora
                    + m.q_lora * heads * (m.nope + m.rope)
                    + d * (m.kv_lora + m.rope)
                    + m.kv_lora * heads * (m.nope + m.v)
                    + heads * m.v * d
            }
            None => {
                small += l * bias(self.qkv_bias, (heads + 2 * kv) * self.head_dim);
                small += l * bias(self.out_bias, d) + l * bias(self.qk_norm, 2 * self.head_dim);
                2 * d * heads * self.head_dim + 2 * d * kv * self.head_dim
            }
        };
        let (mut dense, mut experts) = (l * 3 * d * (self.intermediate / tp), 0);
        if let Some(m) = self.moe {
            let (f, sparse) = (m.intermediate / tp, l - m.dense_layers);
            experts = sparse * m.experts * 3 * d * f;
            dense = m.dense_layers * 3 * d * (self.intermediate / tp) + sparse * m.shared * 3 * d * f;
            small += sparse * (d * m.experts + bias(self.router_bias, m.experts));
            small += sparse * m.experts * bias(self.expert_bias, 2 * f + d);
        }
        let table = self.vocab.div_ceil(tp) * d;
        Tensors { attention: l * attention, dense, experts, small, head: table, embedding: bias(!self.tied, table) }
    }

    /// All parameters.
    pub fn params(&self) -> u64 {
        self.tensors(1).params()
    }

    /// Share of the routed experts that `batch` tokens reach together, each choosing uniformly: 1 − (1 − k/E)^B.
    pub fn coverage(&self, batch: u64) -> f64 {
        self.moe.map_or(1.0, |m| 1.0 - (1.0 - m.top_k as f64 / m.experts as f64).powf(batch as f64))
    }

    /// Parameters that one decode step reads: everything but the embedding table, and of the experts those reached.
    pub fn read(&self, batch: u64) -> f64 {
        let t = self.tensors(1);
        (t.params() - t.embedding - t.experts) as f64 + t.experts as f64 * self.coverage(batch)
    }

    /// Bytes that one more token takes in a layer's cache, on one card of `tp`. A latent row is copied to every card.
    fn cell(&self, element: u64, tp: u64) -> u64 {
        match self.mla {
            Some(m) => (m.kv_lora + m.rope) * element,
            None => 2 * self.kv_heads.div_ceil(tp) * self.head_dim * element,
        }
    }

    /// Bytes of the first tokens of a sequence, each, while every layer keeps them.
    pub fn kv_bytes_per_token(&self, element: u64, tp: u64) -> u64 {
        self.layers * self.cell(element, tp)
    }

    /// Bytes of a further token beyond every window.
    pub fn kv_bytes_per_late_token(&self, element: u64, tp: u64) -> u64 {
        (self.layers - self.window.map_or(0, |w| w.layers)) * self.cell(element, tp)
    }

    /// Bytes of a whole sequence in the cache; local layers keep their window.
    pub fn kv_bytes(&self, tokens: u64, element: u64, tp: u64) -> u64 {
        let (local, kept) = self.window.map_or((0, 0), |w| (w.layers, tokens.min(w.tokens)));
        self.cell(element, tp) * ((self.layers - local) * tokens + local * kept)
    }

    /// Floating-point operations of one token with so many before it: two for each weight it meets, and four for each
    /// query element and cached position.
    pub fn flops(&self, ctx: u64) -> f64 {
        let width = self.heads * self.mla.map_or(self.head_dim, |m| m.kv_lora + m.rope / 2);
        let local = self.window.map_or(0, |w| w.layers);
        let seen = (self.layers - local) * ctx + local * self.window.map_or(0, |w| ctx.min(w.tokens));
        2.0 * self.read(1) + 4.0 * width as f64 * seen as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_equal_every_published_checkpoint() {
        assert!(MODELS.len() >= 24);
        for known in MODELS.iter() {
            let dims = Dims::find(&known.name).unwrap();
            assert_eq!(dims.params(), known.params, "{}", known.name);
        }
    }

    #[test]
    fn bytes_read_by_a_step_as_published() {
        // Billions of parameters, facts of each model's shapes; experts at batch 1.
        for (name, read) in [
            ("llama-3-8b", 7.505),
            ("llama-3.2-1b", 1.236),
            ("llama-3-70b", 69.50),
            ("mistral-7b", 7.114),
            ("mixtral-8x7b", 12.75),
            ("qwen2.5-72b", 71.46),
            ("qwen3-30b-a3b", 3.04),
            ("qwen3-235b-a22b", 21.57),
            ("gemma-2-9b", 9.24),
            ("phi-4", 14.15),
            ("deepseek-v3", 36.6),
            ("gpt-oss-20b", 3.61),
            ("gpt-oss-120b", 5.13),
        ] {
            let got = Dims::find(name).unwrap().read(1) / 1e9;
            assert!((got / read - 1.0).abs() < 0.012, "{name}: {got}");
        }
    }

    #[test]
    fn cache_bytes_as_published() {
        for (name, bytes) in [
            ("llama-3-8b", 131_072),
            ("llama-3.2-3b", 114_688),
            ("qwen2.5-7b", 57_344),
            ("qwen3-235b-a22b", 192_512),
            ("gemma-3-27b", 507_904),
            ("deepseek-v3", 70_272),
            ("gpt-oss-20b", 49_152),
            ("phi-4", 204_800),
        ] {
            assert_eq!(Dims::find(name).unwrap().kv_bytes_per_token(2, 1), bytes, "{name}");
        }
        let gib = |name: &str, tokens| Dims::find(name).unwrap().kv_bytes(tokens, 2, 1) as f64 / f64::from(1 << 30);
        for (name, tokens, expected) in
            [("gemma-3-27b", 8_192, 1.03), ("gemma-3-27b", 32_768, 2.91), ("gemma-3-12b", 8_192, 0.81)]
        {
            assert!((gib(name, tokens) - expected).abs() < 0.01, "{name} {tokens}: {}", gib(name, tokens));
        }
        assert_eq!(Dims::find("gpt-oss-20b").unwrap().kv_bytes_per_late_token(2, 1), 24_576);
    }

    #[test]
    fn experts_reached_by_a_batch() {
        for (experts, top_k, counts) in [(128u64, 8u64, [8.0, 29.0, 82.0, 126.0]), (256, 8, [8.0, 30.0, 102.0, 222.0])]
        {
            let mut dims = Dims::find("qwen3-30b-a3b").unwrap();
            dims.moe = dims.moe.map(|m| Moe { experts, top_k, ..m });
            for (batch, count) in [1, 4, 16, 64].into_iter().zip(counts) {
                assert!((dims.coverage(batch) * experts as f64 - count).abs() < 0.6, "{experts} {batch}");
            }
        }
    }

    #[test]
    fn quantised_experts() {
        let gib = |name: &str| {
            let t = Dims::find(name).unwrap().tensors(1);
            t.bytes(Stored::Mxfp4) as f64 / f64::from(1 << 30)
        };
        assert!((gib("gpt-oss-20b") - 12.8).abs() < 0.1, "{}", gib("gpt-oss-20b"));
        assert!((gib("gpt-oss-120b") - 60.8).abs() < 0.3, "{}", gib("gpt-oss-120b"));
    }

    #[test]
    fn cards_share_what_they_can_and_say_what_not() {
        let dims = Dims::find("llama-3-70b").unwrap();
        assert_eq!((dims.kv_bytes_per_token(2, 8), dims.kv_bytes_per_token(2, 16)), (40_960, 40_960));
        assert!(dims.shared_by(3).unwrap_err().what.contains("64 query heads"));
        let odd = Dims { kv_heads: 10, heads: 40, ..dims.clone() };
        assert!(odd.shared_by(8).unwrap_err().what.contains("10 KV heads"));
        let v3 = Dims::find("deepseek-v3").unwrap();
        assert_eq!(v3.kv_bytes_per_token(2, 8), 70_272, "a latent row is copied");
        assert!(v3.tensors(8).params() * 8 > v3.params());
    }

    #[test]
    fn bad_configs_are_told_apart() {
        let e = Dims::from_json("x", r#"{"architectures":["MixtralForCausalLM"],"num_local_experts":8}"#).unwrap_err();
        assert!(e.what.contains("hidden_size") && e.what.contains("num_experts_per_tok"), "{e}");
        assert!(Dims::from_json("x", r#"{"architectures":["MambaForCausalLM"]}"#).unwrap_err().what.contains("Mamba"));
        let e = Dims::find("lama-3-8b").unwrap_err();
        assert!(e.next.unwrap().starts_with("`llama-3-8b`"));
    }

    proptest! {
        #[test]
        fn bytes_grow_with_batch_and_context(i in 0..MODELS.len(), batch in 1u64..64, ctx in 1u64..100_000, more in 1u64..1_000) {
            let d = Dims::find(&MODELS[i].name).unwrap();
            prop_assert!(d.read(batch + 1) >= d.read(batch));
            prop_assert!(d.read(batch) <= d.params() as f64);
            prop_assert!(d.kv_bytes(ctx + more, 2, 1) >= d.kv_bytes(ctx, 2, 1));
            prop_assert!(d.kv_bytes(ctx, 2, 1) <= ctx * d.kv_bytes_per_token(2, 1));
            prop_assert!(d.kv_bytes(ctx, 1, 1) * 2 == d.kv_bytes(ctx, 2, 1));
            let t = d.tensors(1);
            let quarter = t.bytes(Stored::W4a16 { group: 128 });
            prop_assert!(quarter < t.bytes(Stored::Fp8));
            prop_assert!(t.bytes(Stored::Fp8) < t.bytes(Stored::Bf16) && t.bytes(Stored::Bf16) == 2 * d.params());
        }
    }
}
