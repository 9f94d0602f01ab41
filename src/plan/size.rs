//! What fits on a card: weights, KV cache per token, the pool that is left, and how many sequences it holds.

use super::model::Model;
use crate::error::{Error, Result};
use crate::units::Provenance;
use serde::Serialize;

/// How projection weights are stored; embedding, norms and output head stay 16 bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stored {
    Bf16,
    /// One byte; the scales of a tensor or channel are too few to count.
    Fp8,
    /// 4 bits and a 16-bit scale for each `group` weights along K.
    W4a16 {
        group: u64,
    },
}

/// Memory of one card.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// Key of the card, the same as in the datasheets.
    pub key: &'static str,
    /// What the driver can give out, bytes.
    pub bytes: u64,
    pub provenance: Provenance,
    pub source: &'static str,
}

const fn seen(key: &'static str, mib: u64, source: &'static str) -> Memory {
    Memory { key, bytes: mib << 20, provenance: Provenance::Cited, source }
}

/// Cards of which only the nominal size is known: 98 % of it, a little under what cards of the other rows show.
const fn nominal(key: &'static str, gib: u64) -> Memory {
    Memory {
        key,
        bytes: (gib << 30) / 100 * 98,
        provenance: Provenance::Assumed,
        source: "98 % of the datasheet's nominal size",
    }
}

/// Memory by card.
pub static MEMORIES: &[Memory] = &[
    seen("rtx3090", 24_146, "23.58 GiB as PyTorch reports it, vllm issue 10517"),
    nominal("rtx4090", 24),
    seen("rtx5090", 32_607, "32607 MiB as nvidia-smi reports it, club-3090 issue 769"),
    nominal("a10", 24),
    nominal("l4", 24),
    nominal("l40s", 48),
    nominal("a100-40", 40),
    nominal("a100-80", 80),
    nominal("h100-pcie", 80),
    seen("h100", 81_121, "79.22 GiB as PyTorch reports it, vllm issue 10511"),
    seen("h200", 142_336, "139 GiB, the lower end of what drivers report"),
    seen("b200", 183_296, "179 GiB, aiconfigurator issue 1396"),
];

/// Memory of a card by its key.
pub fn memory(key: &str) -> Result<&'static Memory> {
    MEMORIES.iter().find(|m| m.key == key).ok_or_else(|| {
        let keys: Vec<_> = MEMORIES.iter().map(|m| m.key).collect();
        Error::usage(format!("the memory of `{key}` is not known here"))
            .try_next(format!("--memory GIB, or one of {}", keys.join(", ")))
    })
}

/// The question.
#[derive(Clone, Debug)]
pub struct Question {
    pub model: Model,
    /// Memory of one card, bytes.
    pub memory: u64,
    /// Share of it that the engine may take.
    pub util: f64,
    /// Runtime, graphs and activations of one card, bytes.
    pub overhead: u64,
    pub stored: Stored,
    /// Bytes of one KV element.
    pub kv_element: u64,
    /// Tokens of a page.
    pub page: u64,
    /// Cards that share each layer.
    pub tp: u64,
    pub ctx: u64,
    pub batch: u64,
}

/// The answer, for one card of `tp`. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    pub params: u64,
    pub weight_bytes: u64,
    pub kv_bytes_per_token: u64,
    /// What weights and overhead leave for the cache; negative where they alone do not fit.
    pub pool_bytes: i64,
    /// Tokens in whole pages.
    pub tokens: u64,
    /// Sequences of the context that the pool holds, each in whole pages.
    pub sequences: u64,
    pub fits: bool,
}

/// Weights of the projections (stored quantised where asked) and all others.
fn parameters(m: &Model) -> (u64, u64) {
    let projections =
        m.layers * (m.hidden * m.qkv_rows() + m.heads * m.head_dim * m.hidden + 3 * m.hidden * m.intermediate);
    let qk_norms = if m.qk_norm() { 2 * m.head_dim } else { 0 };
    let norms = m.layers * (2 * m.hidden + qk_norms) + m.hidden;
    (projections, m.vocab * m.hidden * if m.tied { 1 } else { 2 } + norms)
}

/// All parameters of a model.
pub fn params(m: &Model) -> u64 {
    let (projections, others) = parameters(m);
    projections + others
}

impl Question {
    /// Bytes of one token's keys and values on one card; KV heads that do not divide are replicated.
    fn cell(&self) -> u64 {
        let m = &self.model;
        2 * m.layers * m.kv_heads.div_ceil(self.tp) * m.head_dim * self.kv_element
    }

    fn weights(&self) -> u64 {
        let (projections, others) = parameters(&self.model);
        let p = match self.stored {
            Stored::Bf16 => 2 * projections,
            Stored::Fp8 => projections,
            Stored::W4a16 { group } => projections / 2 + 2 * projections.div_ceil(group.max(1)),
        };
        (p + 2 * others).div_ceil(self.tp)
    }

    /// Sizes of this question.
    ///
    /// # Errors
    /// Sizes of zero, a share outside (0, 1], or a number of cards that does not divide the query heads.
    pub fn answer(&self) -> Result<Size> {
        if self.tp == 0 || !self.model.heads.is_multiple_of(self.tp) {
            return Err(Error::usage(format!(
                "{} query heads cannot be shared by {} cards",
                self.model.heads, self.tp
            )));
        }
        if self.page == 0 || self.ctx == 0 || self.batch == 0 {
            return Err(Error::usage("page, context and batch must be at least 1"));
        }
        if !(self.util > 0.0 && self.util <= 1.0) {
            return Err(Error::usage(format!("--util {} is not a share in (0, 1]", self.util)));
        }
        let (weights, cell) = (self.weights(), self.cell());
        let usable = (self.memory as f64 * self.util) as i64;
        let pool = usable - weights as i64 - self.overhead as i64;
        let pages = pool.max(0) as u64 / (cell * self.page);
        let sequences = pages / self.ctx.div_ceil(self.page);
        Ok(Size {
            params: params(&self.model),
            weight_bytes: weights,
            kv_bytes_per_token: cell,
            pool_bytes: pool,
            tokens: pages * self.page,
            sequences,
            fits: sequences >= self.batch,
        })
    }

    /// Single changes after which the batch fits, each as one line; empty where it fits already.
    pub fn remedies(&self) -> Result<Vec<String>> {
        let now = self.answer()?;
        let mut found = Vec::new();
        if now.fits {
            return Ok(found);
        }
        if now.sequences > 0 {
            found.push(format!("--batch {}", now.sequences));
        }
        let ctx = now.tokens / self.page / self.batch * self.page;
        if ctx > 0 {
            found.push(format!("--ctx {ctx}"));
        }
        let mut attempt = |text: String, question: Self| {
            if question.answer().is_ok_and(|s| s.fits) {
                found.push(text);
                return true;
            }
            false
        };
        if self.kv_element > 1 {
            attempt("--kv fp8".into(), Self { kv_element: 1, ..self.clone() });
        }
        if self.stored == Stored::Bf16 {
            attempt("--weights fp8".into(), Self { stored: Stored::Fp8, ..self.clone() });
            attempt("--weights w4a16".into(), Self { stored: Stored::W4a16 { group: 128 }, ..self.clone() });
        }
        for tp in [2, 4, 8, 16].into_iter().filter(|tp| *tp > self.tp) {
            if attempt(format!("--tp {tp}"), Self { tp, ..self.clone() }) {
                break;
            }
        }
        let mut larger: Vec<&Memory> = MEMORIES.iter().filter(|m| m.bytes > self.memory).collect();
        larger.sort_by_key(|m| m.bytes);
        for m in larger {
            if attempt(format!("--gpu {}", m.key), Self { memory: m.bytes, ..self.clone() }) {
                break;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(gpu: &str) -> Question {
        Question {
            model: Model::find("llama-3-8b").unwrap(),
            memory: memory(gpu).unwrap().bytes,
            util: 0.9,
            overhead: (1.55 * f64::from(1 << 30)) as u64,
            stored: Stored::Bf16,
            kv_element: 2,
            page: 16,
            tp: 1,
            ctx: 8192,
            batch: 4,
        }
    }

    #[test]
    fn parameters_equal_the_published_checkpoints() {
        for (name, count) in [
            ("llama-3-8b", 8_030_261_248),
            ("llama-3.2-1b", 1_235_814_400),
            ("qwen3-8b", 8_190_735_360),
            ("mistral-7b", 7_248_023_552),
        ] {
            assert_eq!(params(&Model::find(name).unwrap()), count, "{name}");
        }
    }

    #[test]
    fn four_sequences_of_8k_on_a_3090() {
        let q = question("rtx3090");
        let s = q.answer().unwrap();
        assert_eq!((s.weight_bytes, s.kv_bytes_per_token, s.sequences), (16_060_522_496, 131_072, 4));
        assert!(s.fits && q.remedies().unwrap().is_empty());
        assert_eq!(s.tokens % 16, 0);
    }

    #[test]
    fn every_remedy_fits() {
        let q = Question { batch: 7, ..question("rtx3090") };
        let remedies = q.remedies().unwrap();
        assert!(remedies.contains(&"--kv fp8".into()) && remedies.contains(&"--batch 4".into()), "{remedies:?}");
        assert!(Question { kv_element: 1, ..q.clone() }.answer().unwrap().fits);
        assert!(Question { tp: 2, ..q.clone() }.answer().unwrap().fits);
        let ctx = remedies.iter().find_map(|r| r.strip_prefix("--ctx ")).unwrap().parse().unwrap();
        assert!(Question { ctx, ..q.clone() }.answer().unwrap().fits);
        assert!(!Question { ctx: ctx + 16, ..q }.answer().unwrap().fits);
    }

    #[test]
    fn kv_heads_replicate_beyond_their_number() {
        let cell = |tp| Question { tp, ..question("h200") }.answer().unwrap().kv_bytes_per_token;
        assert_eq!((cell(2), cell(8), cell(16)), (65_536, 16_384, 16_384));
        assert!(Question { tp: 3, ..question("h200") }.answer().is_err());
    }

    #[test]
    fn weights_that_do_not_fit_leave_a_negative_pool() {
        let q = Question { util: 0.5, ..question("rtx4090") };
        let s = q.answer().unwrap();
        assert!(s.pool_bytes < 0 && s.tokens == 0 && !s.fits);
    }
}
