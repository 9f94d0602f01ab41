//! What fits on a card: weights, KV cache per token, the pool that is left, and how many sequences it holds.

use super::dims::Dims;
pub use super::dims::Stored;
use crate::error::{Error, Result};
use serde::Serialize;

/// The question.
#[derive(Clone, Debug)]
pub struct Question {
    pub model: Dims,
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
    /// Bytes of one sequence of the context in whole pages.
    pub sequence_bytes: u64,
    /// Sequences of the context that the pool holds, each in whole pages.
    pub sequences: u64,
    pub fits: bool,
}

impl Question {
    /// Sizes of this question.
    ///
    /// # Errors
    /// Sizes of zero, a share outside (0, 1], or a number of cards that does not divide the query heads.
    pub fn answer(&self) -> Result<Size> {
        self.model.shared_by(self.tp)?;
        if self.page == 0 || self.ctx == 0 || self.batch == 0 {
            return Err(Error::usage("page, context and batch must be at least 1"));
        }
        if !(self.util > 0.0 && self.util <= 1.0) {
            return Err(Error::usage(format!("--util {} is not a share in (0, 1]", self.util)));
        }
        let weights = self.model.tensors(self.tp).bytes(self.stored);
        let cell = self.model.kv_bytes_per_token(self.kv_element, self.tp);
        let usable = (self.memory as f64 * self.util) as i64;
        let pool = usable - weights as i64 - self.overhead as i64;
        let room = pool.max(0) as u64;
        let each = self.model.kv_bytes(self.ctx.next_multiple_of(self.page), self.kv_element, self.tp);
        // Windows free pages: then tokens depend on the context, and are those of sequences of this one.
        let (tokens, sequences) = match self.model.window {
            Some(w) if w.tokens < self.ctx => {
                let tokens = (room as f64 / each.max(1) as f64 * self.ctx as f64) as u64;
                (tokens / self.page * self.page, room / each.max(1))
            }
            _ => {
                let pages = room / (cell * self.page);
                (pages * self.page, pages / self.ctx.div_ceil(self.page))
            }
        };
        Ok(Size {
            params: self.model.params(),
            weight_bytes: weights,
            kv_bytes_per_token: cell,
            pool_bytes: pool,
            tokens,
            sequence_bytes: each,
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
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mib(gpu: &str) -> u64 {
        match gpu {
            "rtx3090" => 24_146,
            "rtx4090" => 24_084,
            _ => 143_155,
        }
    }

    fn question(gpu: &str) -> Question {
        Question {
            model: Dims::find("llama-3-8b").unwrap(),
            memory: mib(gpu) << 20,
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

    #[test]
    fn windows_make_room() {
        let q = Question { model: Dims::find("gemma-3-27b").unwrap(), ctx: 32_768, batch: 1, ..question("h200") };
        let s = q.answer().unwrap();
        assert!((s.sequence_bytes as f64 / f64::from(1 << 30) - 2.91).abs() < 0.01, "{s:?}");
        assert!(s.tokens > s.pool_bytes as u64 / s.kv_bytes_per_token);
    }

    #[test]
    fn the_seeds_second_example_with_its_arithmetic_mended() {
        // 24 GB is 23.58 GiB to an engine, 10 % stay free, and GB are not GiB: 4 sequences of 8192 fit, not 6.
        assert_eq!(question("rtx3090").answer().unwrap().sequences, 4);
        let seed = (24.0 - 16.06 - 1.5) / 1.07;
        assert_eq!(seed as u64, 6);
    }
}
