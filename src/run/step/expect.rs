//! Whether a step computes the right thing: greedy tokens and logits against PyTorch transformers' on the same weights.
//!
//! The expectation comes from `peers/llama_reference.py`. Requests of different prompt lengths run as one ragged batch;
//! prompts are fed token by token, so the append, the page boundaries and the growing lengths are all under test.

use super::checkpoint::Checkpoint;
use super::resident::Resident;
use crate::error::{Error, Result};
use crate::op::{DType, Rng};
use crate::plan::decode::{self, Options, Weights};
use crate::plan::model::Model;
use crate::run::Executor;
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Largest accepted ‖logits − fp32 logits‖ / ‖fp32 logits‖. bf16 weights are exact in both; what remains is rounding of
/// activations to 8 bits of mantissa at about ten places a layer, and transformers' own bf16 run shows the same size.
pub const LOGIT_TOLERANCE: f64 = 2e-2;

#[derive(Debug, Deserialize)]
struct Expected {
    steps: usize,
    bf16_error: f64,
    requests: Vec<Request>,
}

#[derive(Debug, Deserialize)]
struct Request {
    prompt: Vec<i32>,
    tokens: Vec<i32>,
}

/// What was compared.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub requests: usize,
    pub steps: usize,
    /// Greedy tokens that differ.
    pub wrong_tokens: usize,
    /// Worst over requests, against the fp32 run.
    pub logit_error: f64,
    /// The same figure of transformers' bf16 run.
    pub peer_error: f64,
}

impl Outcome {
    pub fn ok(&self) -> bool {
        self.wrong_tokens == 0 && self.logit_error <= LOGIT_TOLERANCE
    }
}

/// Runs the checkpoint in `folder` against its `expected.json` and `expected.safetensors`.
///
/// # Errors
/// Files that are missing or do not belong together, and whatever running the step can raise.
pub fn check(exec: &mut dyn Executor, folder: &Path, page: u64, fuse: bool) -> Result<Outcome> {
    let place = folder.join("expected.json");
    let text = std::fs::read_to_string(&place).map_err(|e| {
        Error::usage(format!("cannot read {}: {e}", place.display()))
            .try_next("python3 peers/llama_reference.py FOLDER makes a checkpoint and its expectation")
    })?;
    let expected: Expected =
        serde_json::from_str(&text).map_err(|e| Error::usage(e.to_string()).at(place.display()))?;
    let tensors = std::fs::read(folder.join("expected.safetensors"))?;
    let tensors = SafeTensors::deserialize(&tensors).map_err(|e| Error::usage(format!("expected.safetensors: {e}")))?;
    let model = Model::find(&folder.to_string_lossy())?;
    let longest = expected.requests.iter().map(|r| r.prompt.len()).max().unwrap_or(0);
    let positions = longest + expected.steps;

    let options = Options {
        lens: vec![positions as u64; expected.requests.len()],
        max_ctx: positions as u64,
        page,
        dtype: DType::Bf16,
        weights: Weights::Dense,
        fuse,
    };
    let (plan, handles) = decode::decode(&model, &options, &exec.chip())?;
    let checkpoint = Checkpoint::open(folder)?;
    let resident = Resident::load(exec, plan, handles, 1, Some(&checkpoint))?;
    let outcome = compare(exec, &resident, &expected, &tensors, model.vocab as usize, longest);
    resident.release(exec);
    outcome
}

fn compare(
    exec: &mut dyn Executor,
    resident: &Resident,
    expected: &Expected,
    tensors: &SafeTensors<'_>,
    vocab: usize,
    longest: usize,
) -> Result<Outcome> {
    let n = expected.requests.len();
    // A request starts late enough that all choose their first token in the same step; until then it repeats a random
    // token at position 0, which the real first token overwrites.
    let mut rng = Rng(9);
    let mut ids: Vec<i32> = (0..n).map(|_| rng.range(0, vocab as u64 - 1) as i32).collect();
    let mut errors = vec![(0.0f64, 0.0f64); n];
    let mut wrong = 0;
    for t in 0..longest - 1 + expected.steps {
        let mut lens = vec![1i32; n];
        for (i, r) in expected.requests.iter().enumerate() {
            if let Some(at) = (t + r.prompt.len()).checked_sub(longest) {
                lens[i] = at as i32 + 1;
                // Past the prompt the model's own choice is fed, as a server would.
                if let Some(&token) = r.prompt.get(at) {
                    ids[i] = token;
                }
            }
        }
        resident.set(exec, &ids, &lens)?;
        resident.run(exec)?;
        exec.sync()?;
        ids = resident.ids(exec)?;
        let Some(step) = (t + 1).checked_sub(longest) else { continue };
        let logits = resident.logits(exec)?;
        for (i, r) in expected.requests.iter().enumerate() {
            wrong += usize::from(ids[i] != r.tokens[step]);
            let name = format!("f32.{i}");
            let want = tensors.tensor(&name).map_err(|e| Error::usage(format!("expected.safetensors: {e}")))?;
            let want = want.data().chunks_exact(4).skip(step * vocab).take(vocab);
            for (got, w) in logits[i * vocab..(i + 1) * vocab].iter().zip(want) {
                let w = f64::from(f32::from_le_bytes([w[0], w[1], w[2], w[3]]));
                let d = f64::from(*got) - w;
                // A NaN makes the sum NaN, which fails the comparison below.
                errors[i].0 += d * d;
                errors[i].1 += w * w;
            }
        }
    }
    let logit_error = errors
        .iter()
        .map(|(num, den)| (num / den).sqrt())
        .fold(0.0, |a: f64, b| if b > a || b.is_nan() { b } else { a });
    Ok(Outcome {
        requests: n,
        steps: expected.steps,
        wrong_tokens: wrong,
        logit_error,
        peer_error: expected.bf16_error,
    })
}
