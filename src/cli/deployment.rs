//! How a model lies on its cards: the options that `size`, `predict serve` and `reconcile` share.

use crate::error::{Error, Result};
use crate::plan::dims::Dims;
use crate::plan::size::{Question, Stored};

#[derive(Debug, clap::Args)]
pub struct Deployment {
    /// Projection weights; embedding, norms and output head stay 16 bit
    #[arg(long, default_value = "bf16", value_parser = ["bf16", "w4a16", "fp8", "mxfp4"])]
    pub weights: String,
    /// Elements of the KV cache
    #[arg(long, default_value = "bf16", value_parser = ["bf16", "fp8"])]
    pub kv: String,
    /// Cards that share each layer
    #[arg(long, default_value_t = 1)]
    pub tp: u64,
    /// Share of the memory that may be taken
    #[arg(long, default_value_t = 0.9)]
    pub util: f64,
    /// Runtime, graphs and activations of one card, GiB
    #[arg(long, value_name = "GIB", default_value_t = 1.55)]
    pub overhead: f64,
}

/// Bytes of a size in GiB that an option gave.
pub fn gib(option: &str, value: f64) -> Result<u64> {
    match value {
        v if (0.0..1e6).contains(&v) => Ok((v * f64::from(1 << 30)) as u64),
        v => Err(Error::usage(format!("{option} {v} is not a size in GiB"))),
    }
}

/// How weights of this name lie in memory.
pub fn stored(weights: &str, group: u64) -> Stored {
    match weights {
        "fp8" => Stored::Fp8,
        "mxfp4" => Stored::Mxfp4,
        "w4a16" => Stored::W4a16 { group },
        _ => Stored::Bf16,
    }
}

/// Bytes of an element of a cache of this name.
pub fn kv_element(kv: &str) -> u64 {
    if kv == "fp8" { 1 } else { 2 }
}

impl Deployment {
    /// What fits for one sequence of one token; set `ctx` and `batch` for more. `memory` and `page` are the card's bytes
    /// and the tokens of a page.
    ///
    /// # Errors
    /// Shares and sizes out of range.
    pub fn question(&self, model: Dims, memory: u64, page: u64, group: u64) -> Result<Question> {
        if page == 0 || !(self.util > 0.0 && self.util <= 1.0) {
            return Err(Error::usage("pages must have at least 1 token, and --util must lie in (0, 1]"));
        }
        Ok(Question {
            model,
            memory,
            util: self.util,
            overhead: gib("--overhead", self.overhead)?,
            stored: stored(&self.weights, group),
            kv_element: kv_element(&self.kv),
            page,
            tp: self.tp,
            ctx: 1,
            batch: 1,
        })
    }
}
