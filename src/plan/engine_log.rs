//! What an inference engine says about its memory when it starts: vLLM of all eras, SGLang, llama.cpp. And how that
//! compares with what the model's shapes say.
//!
//! Lines of several ranks are one report: of tokens and pools the least counts, of weights the most. Engines that print
//! `GB` here mean GiB (2^30): checked against the tokens that they print beside it.

use super::dims::{Dims, Tensors};
use super::size::{Question, Stored};
use crate::error::{Error, Result};
use regex::Regex;
use serde::Serialize;

const GIB: f64 = 1_073_741_824.0;
/// Relative difference up to which two numbers agree: logs round to two decimals.
pub const AGREES: f64 = 0.01;

/// The same for a pool whose activations and runtime the log does not say.
pub const ASSUMED: f64 = 0.10;

/// Who wrote the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    Vllm,
    Sglang,
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
}

/// What a log says; bytes and tokens of one card.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub engine: Engine,
    /// Ranks that reported.
    pub ranks: usize,
    pub weight_bytes: Option<f64>,
    /// May be negative.
    pub pool_bytes: Option<f64>,
    pub tokens: Option<u64>,
    /// Memory of the card, and the share of it that the engine may take.
    pub total_bytes: Option<f64>,
    pub util: Option<f64>,
    pub non_torch_bytes: Option<f64>,
    pub activation_bytes: Option<f64>,
    /// Weights and activations at their peak, where only the sum is printed.
    pub peak_bytes: Option<f64>,
    pub max_len: Option<u64>,
    /// Requests of `max_len` that fit.
    pub concurrency: Option<f64>,
    /// What a start that failed said it needed, and the longest length that it offered.
    pub needed_bytes: Option<f64>,
    pub offered_len: Option<u64>,
    /// Cards that share each layer, where the log says.
    pub tp: Option<u64>,
    /// The last rank that a line begins with, plus one: at least so many cards, as a log may hold some ranks only.
    pub tp_at_least: u64,
    /// Bytes of one element of the cache, where the log says.
    pub kv_element: Option<u64>,
    /// Things that the log contradicts itself in.
    pub remarks: Vec<String>,
}

/// All matches of a pattern's first group, as numbers, thousands separators removed.
fn all(text: &str, pattern: &str) -> Vec<f64> {
    let Ok(re) = Regex::new(pattern) else { return Vec::new() };
    re.captures_iter(text).filter_map(|c| c.get(1)?.as_str().replace([',', '_'], "").parse().ok()).collect()
}

fn least(v: &[f64]) -> Option<f64> {
    v.iter().copied().min_by(f64::total_cmp)
}

fn most(v: &[f64]) -> Option<f64> {
    v.iter().copied().max_by(f64::total_cmp)
}

/// The numbers after each of these words; with `GiB` (or a `GB` that is one) in bytes.
fn sizes(text: &str, words: &[&str]) -> Vec<Vec<f64>> {
    let after = |w: &&str| all(text, &format!(r"(?i){w}\s*[=:(]?\s*(-?[\d.]+)\s*(?:GiB|GB)"));
    words.iter().map(|w| after(w).into_iter().map(|v| v * GIB).collect()).collect()
}

/// The same of all words together.
fn size(text: &str, words: &[&str]) -> Vec<f64> {
    sizes(text, words).concat()
}

/// A rank prints each of its lines once, so that the commonest line counts them.
fn ranks(lines: &[&[Vec<f64>]]) -> usize {
    lines.iter().flat_map(|l| l.iter().map(Vec::len)).max().unwrap_or(0).max(1)
}

/// Reads a log; `block` is the tokens of a vLLM block where only blocks are printed.
///
/// # Errors
/// No line that any of the engines prints.
pub fn read(log: &str, block: u64) -> Result<Report> {
    // Terminals colour some lines.
    let text = Regex::new(r"\x1b\[[0-9;]*m").map_or_else(|_| log.into(), |re| re.replace_all(log, ""));
    let text = text.as_ref();
    let has = |pattern: &str| Regex::new(pattern).is_ok_and(|re| re.is_match(text));
    let engine = if has(r"KV Cache is allocated|max_total_num_tokens|Load weight end") {
        Engine::Sglang
    } else if has(r"llama_kv_cache|KV self size|llm_load_tensors|load_tensors:") {
        Engine::LlamaCpp
    } else if has(
        r"# (GPU|CUDA) blocks|GPU KV cache size|KV [Cc]ache|odel weights t|Model loading took|Memory profiling",
    ) {
        Engine::Vllm
    } else {
        return Err(Error::usage("no line of vLLM's, SGLang's or llama.cpp's start-up report is in it")
            .try_next("the log from the engine's start, at its default level"));
    };
    let mut r = Report {
        engine,
        ranks: 0,
        weight_bytes: None,
        pool_bytes: None,
        tokens: None,
        total_bytes: None,
        util: None,
        non_torch_bytes: None,
        activation_bytes: None,
        peak_bytes: None,
        max_len: None,
        concurrency: None,
        needed_bytes: None,
        offered_len: None,
        tp: None,
        tp_at_least: 1,
        kv_element: None,
        remarks: Vec::new(),
    };
    match engine {
        Engine::Vllm => vllm(text, block, &mut r),
        Engine::Sglang => sglang(text, &mut r),
        Engine::LlamaCpp => llama_cpp(text, &mut r),
    }
    if r.weight_bytes.is_none() && r.pool_bytes.is_none() && r.tokens.is_none() && r.needed_bytes.is_none() {
        return Err(Error::usage("it names neither weights, nor a cache, nor tokens"));
    }
    Ok(r)
}

fn count(v: Option<f64>) -> Option<u64> {
    v.filter(|v| *v >= 0.0).map(|v| v as u64)
}

fn vllm(text: &str, block: u64, r: &mut Report) {
    let weights = sizes(text, &["weights t(?:ake|ook)", "Model loading took"]);
    let pools = sizes(
        text,
        &["kv_cache_size", "reserved for KV Cache is", "available_kv_cache_memory", "(?-i:A)vailable KV cache memory"],
    );
    // A start that failed says the pool again, for all ranks.
    let failed = size(text, &["the available KV cache memory"]);
    r.ranks = ranks(&[&weights, &pools]);
    r.weight_bytes = most(&weights.concat());
    r.pool_bytes = least(&[pools.concat(), failed].concat());
    let blocks: Vec<f64> =
        all(text, r"# (?:GPU|CUDA) blocks: ([\d,]+)").into_iter().map(|b| b * block as f64).collect();
    let stored = all(text, r"can be stored in (?:the )?KV cache \(([\d,]+)\)");
    let printed = all(text, r"GPU KV cache size: ([\d,]+) tokens");
    r.tokens = count(least(&[blocks, printed.clone(), stored].concat()));
    r.total_bytes = least(&size(text, &["total_gpu_memory"]));
    r.util = least(&all(text, r"gpu[_-]memory[_-]utilization\s*[=(:]?\s*([\d.]+)"));
    r.non_torch_bytes = most(&size(text, &["non_torch_memory(?: takes)?"]));
    r.activation_bytes = most(&size(text, &["activation peak memory(?: takes)?"]));
    r.peak_bytes = most(&size(text, &["peak_torch_memory"]));
    r.max_len = count(least(&all(text, r"(?i)max(?:imum)? ?(?:_?model_?len|_seq_len|seq len)\D{0,4}([\d,]+)")))
        .or(count(least(&all(text, r"Maximum concurrency for ([\d,]+) tokens"))));
    r.concurrency = least(&all(text, r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"));
    r.needed_bytes = least(&all(text, r"\(?(-?[\d.]+) GiB KV cache is needed")).map(|v| v * GIB);
    r.offered_len = count(least(&all(text, r"estimated maximum model length is ([\d,]+)")));
    r.tp = count(most(&all(text, r"tensor[_-]parallel[_-]size[= ]+(\d+)")));
    r.tp_at_least = count(most(&all(text, r"(?:Worker_TP|VllmWorker rank=)(\d+)"))).map_or(1, |last| last + 1);
    if Regex::new(r"kv[_-]cache[_-]dtype[= ]+'?fp8").is_ok_and(|re| re.is_match(text)) {
        r.kv_element = Some(1);
    }
    let length = count(least(&all(text, r"Maximum concurrency for ([\d,]+) tokens")));
    if let (Some(tokens), Some(len), Some(times)) = (least(&printed), length, r.concurrency) {
        let derived = len as f64 * times;
        if (derived / tokens - 1.0).abs() > 0.02 {
            let what = format!(
                "{tokens:.0} tokens and {times} × {len} = {derived:.0} contradict each other: a hybrid or windowed cache, of \
                 which the first number counts one kind of layer only"
            );
            r.remarks.push(what);
        }
    }
    if r.pool_bytes.is_some_and(|p| p < 0.0) {
        r.remarks.push("the pool is negative: weights and activations alone are more than the engine may take".into());
    }
}

fn sglang(text: &str, r: &mut Report) {
    let weights = size(text, &["mem usage"]);
    let (k, v) = (size(text, &["K size"]), size(text, &["V size"]));
    let one = size(text, &["KV size"]);
    let pools: Vec<f64> =
        if k.len() == v.len() && !k.is_empty() { k.iter().zip(&v).map(|(a, b)| a + b).collect() } else { one };
    r.ranks = ranks(&[&[weights.clone(), pools.clone()]]);
    r.weight_bytes = most(&weights);
    r.pool_bytes = least(&pools);
    let tokens = [all(text, r"#tokens: ([\d,]+)"), all(text, r"max_total_num_tokens=([\d,]+)")].concat();
    r.tokens = count(least(&tokens));
    r.max_len = count(least(&all(text, r"context_len=([\d,]+)")));
    r.util = least(&all(text, r"mem[_-]fraction[_-]static[= ]+([\d.]+)"));
    r.tp = count(most(&all(text, r"(?:tp_size=|--tp(?:-size)? )(\d+)")));
    r.tp_at_least = count(most(&all(text, r"TP(\d+)\]"))).map_or(1, |last| last + 1);
    let kind = Regex::new(r"KV Cache is allocated\.?\s*(?:\[?)dtype: torch\.(\w+)")
        .ok()
        .and_then(|re| Some(re.captures(text)?[1].to_string()));
    r.kv_element = kind.map(|k| if k.starts_with("float8") { 1 } else { 2 });
}

fn llama_cpp(text: &str, r: &mut Report) {
    const MIB: f64 = 1_048_576.0;
    let mib = |pattern: &str| all(text, pattern).into_iter().map(|v| v * MIB).collect::<Vec<_>>();
    let weights = mib(r"(?:CUDA|ROCm|Metal|Vulkan)\d*(?: model)? buffer size =\s*([\d.]+) MiB");
    r.weight_bytes = (!weights.is_empty()).then(|| weights.iter().sum());
    // A cache with windows prints one line for each kind of layer.
    let whole = mib(r"(?:llama_kv_cache(?:_unified)?: size =|KV self size\s*=)\s*([\d.]+) MiB");
    let parts = mib(r"KV buffer size =\s*([\d.]+) MiB");
    let pools = if whole.is_empty() { parts } else { whole };
    r.pool_bytes = (!pools.is_empty()).then(|| pools.iter().sum());
    r.tokens = count(most(&all(text, r"\(\s*([\d,]+) cells"))).or(count(most(&all(text, r"n_ctx\s*=\s*([\d,]+)"))));
    r.max_len = r.tokens;
    r.ranks = 1;
    r.kv_element =
        match Regex::new(r"K \((\w+)\)").ok().and_then(|re| Some(re.captures(text)?[1].to_string())).as_deref() {
            Some("f32") => Some(4),
            Some("q8_0") => Some(1),
            Some(_) => Some(2),
            None => None,
        };
}

/// One quantity of the log beside the shapes' arithmetic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub quantity: &'static str,
    pub reported: f64,
    pub predicted: f64,
    /// How the prediction comes about.
    pub arithmetic: String,
    /// Whether a part of it is taken on trust; then within 10 % is agreement.
    pub assumed: bool,
    pub agrees: bool,
}

impl Row {
    fn new(quantity: &'static str, reported: f64, predicted: f64, arithmetic: String) -> Self {
        let agrees = (reported - predicted).abs() <= AGREES * predicted.abs().max(1.0);
        Self { quantity, reported, predicted, arithmetic, assumed: false, agrees }
    }
    /// The same where a part of the prediction is taken on trust.
    fn on_trust(mut self) -> Self {
        self.assumed = true;
        self.agrees = self.gap().abs() <= ASSUMED;
        self
    }
    /// Reported over predicted, less one.
    pub fn gap(&self) -> f64 {
        self.reported / self.predicted - 1.0
    }
}

/// The rows that the log allows, each independent of the others, and the likely causes of what disagrees, the likeliest
/// first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reconciled {
    pub rows: Vec<Row>,
    pub causes: Vec<String>,
    /// What the log holds and nothing here can be held against, with the option that would help.
    pub unknown: Vec<String>,
}

/// The weights that an engine puts on a card: llama.cpp looks the embedding up in host memory, unless the head reads it.
fn on_card(r: &Report, q: &Question, tp: u64) -> Tensors {
    let mut tensors = q.model.tensors(tp);
    if r.engine == Engine::LlamaCpp {
        tensors.embedding = 0;
    }
    tensors
}

/// What the cache's pool should be, bytes, how that comes about, and whether the log says all of it.
fn pool(r: &Report, q: &Question) -> (f64, String, bool) {
    let gib = |b: f64| format!("{:.3} GiB", b / GIB);
    let weights = r.weight_bytes.unwrap_or(q.model.tensors(q.tp).bytes(q.stored) as f64);
    let other = r.non_torch_bytes.unwrap_or(0.0);
    let (taken, how, said) = match (r.peak_bytes, r.activation_bytes) {
        (Some(peak), _) => (peak + other, format!("peak {} − other {}", gib(peak), gib(other)), true),
        (None, Some(act)) => {
            let how = format!("weights {} − activations {} − other {}", gib(weights), gib(act), gib(other));
            (weights + act + other, how, true)
        }
        (None, None) => {
            let how = format!("weights {} − assumed {}", gib(weights), gib(q.overhead as f64));
            (weights + q.overhead as f64, how, false)
        }
    };
    let text = format!("{} × {} − {how}", gib(q.memory as f64), q.util);
    (q.memory as f64 * q.util - taken, text, said)
}

/// Sets a report beside a model. `question` holds what the log does not say: memory (0 where nobody says it), share,
/// weights' type, cache's type, and the cards that share each layer, at least as many as the log's lines come from.
pub fn reconcile(r: &Report, question: &Question) -> Result<Reconciled> {
    // Ranks 0 and 2 are lines of three cards or more: of as many as can share the model.
    let seen = (r.tp_at_least..=4 * r.tp_at_least).find(|tp| question.model.shared_by(*tp).is_ok());
    let q = Question {
        tp: r.tp.unwrap_or(question.tp.max(seen.unwrap_or(r.tp_at_least))),
        util: r.util.unwrap_or(question.util),
        kv_element: r.kv_element.unwrap_or(question.kv_element),
        memory: r.total_bytes.map_or(question.memory, |b| b as u64),
        ..question.clone()
    };
    q.model.shared_by(q.tp)?;
    let m: &Dims = &q.model;
    let cell = m.kv_bytes_per_token(q.kv_element, q.tp) as f64;
    let of = if q.tp > 1 { format!(" on each of {} cards", q.tp) } else { String::new() };
    let gib = |b: f64| format!("{:.3} GiB", b / GIB);
    let mut rows = Vec::new();
    let tensors = on_card(r, &q, q.tp);
    if let Some(reported) = r.weight_bytes {
        let params = tensors.params();
        let of = match r.engine {
            Engine::LlamaCpp if m.tensors(q.tp).embedding > 0 => {
                format!("{of}, without the embedding, which llama.cpp leaves in host memory,")
            }
            _ => of.clone(),
        };
        rows.push(Row::new(
            "weights",
            reported,
            tensors.bytes(q.stored) as f64,
            format!("{params} parameters{of} as {}", q.stored.name()),
        ));
    }
    let mut unknown = Vec::new();
    if let Some(reported) = r.pool_bytes {
        if let (Engine::LlamaCpp, Some(tokens)) = (r.engine, r.tokens) {
            let text = format!("{tokens} cells in {} layers", m.layers);
            rows.push(Row::new("pool", reported, m.kv_bytes(tokens, q.kv_element, 1) as f64, text));
        } else if r.engine != Engine::LlamaCpp && q.memory > 0 {
            let (predicted, text, said) = pool(r, &q);
            let row = Row::new("pool", reported, predicted, text);
            rows.push(if said { row } else { row.on_trust() });
        } else if r.engine != Engine::LlamaCpp {
            unknown.push("the pool was not compared: the log does not say the card's memory; --gpu NAME does".into());
        }
    }
    let windowed = m.window.is_some_and(|w| r.max_len.is_none_or(|l| l > w.tokens));
    if let (Some(pool), Some(tokens)) = (r.pool_bytes.filter(|p| *p > 0.0), r.tokens)
        && r.engine != Engine::LlamaCpp
        && !windowed
    {
        let text = format!("{} / {cell} bytes a token{of}", gib(pool));
        rows.push(Row::new("tokens", tokens as f64, pool / cell, text));
    } else if let (None, Some(tokens)) = (r.pool_bytes, r.tokens)
        && r.engine != Engine::LlamaCpp
        && !windowed
    {
        // Only tokens are printed: what the card's memory leaves must hold them.
        let (bytes, text, _) = pool(r, &q);
        if q.memory == 0 {
            let what =
                "the tokens were not compared: the log says neither the pool nor the card's memory; --gpu NAME does";
            unknown.push(what.into());
        } else {
            let text = format!("({text}) / {cell} bytes a token{of}");
            rows.push(Row::new("tokens", tokens as f64, bytes.max(0.0) / cell, text).on_trust());
        }
    }
    if let (Some(times), Some(len), Some(tokens)) = (r.concurrency, r.max_len, r.tokens) {
        rows.push(Row::new("concurrency", times, tokens as f64 / len as f64, format!("{tokens} tokens / {len}")));
    }
    if let (Some(needed), Some(len)) = (r.needed_bytes, r.max_len) {
        let predicted = m.kv_bytes(len, q.kv_element, q.tp) as f64;
        rows.push(Row::new("cache for one request", needed, predicted, format!("{len} tokens × {cell} bytes")));
    }
    if let (Some(offered), Some(pool)) = (r.offered_len, r.pool_bytes) {
        rows.push(Row::new("longest request", offered as f64, pool / cell, format!("{} / {cell} bytes", gib(pool))));
    }
    if rows.is_empty() {
        return Err(
            Error::usage("the log holds nothing that can be compared").try_next("a log with weights, pool or tokens")
        );
    }
    let causes = causes(&rows, r, &q);
    Ok(Reconciled { rows, causes, unknown })
}

/// What is likely, in the order in which such gaps were seen to arise.
fn causes(rows: &[Row], r: &Report, q: &Question) -> Vec<String> {
    let gap = |name: &str| rows.iter().find(|w| w.quantity == name && !w.agrees).map(Row::gap);
    let share = |quantity: &str| {
        let usual = match r.engine {
            Engine::Sglang => "SGLang: --mem-fraction-static",
            _ => "vLLM: 0.90, later 0.92",
        };
        format!("{quantity}: the log does not say the share; {} was assumed ({usual}): --util", q.util)
    };
    let mut found: Vec<String> = Vec::new();
    let mut add = |text: String| found.push(text);
    // One option for each size: types that store this model alike are one.
    let mut sizes = vec![q.model.tensors(q.tp).bytes(q.stored)];
    if let Some(g) = gap("weights") {
        for (stored, name) in [
            (Stored::Bf16, "bf16"),
            (Stored::Fp8, "fp8"),
            (Stored::W4a16 { group: 128 }, "w4a16"),
            (Stored::Mxfp4, "mxfp4"),
        ] {
            let bytes = on_card(r, q, q.tp).bytes(stored);
            if sizes.contains(&bytes) {
                continue;
            }
            sizes.push(bytes);
            if r.weight_bytes.is_some_and(|w| (w / bytes as f64 - 1.0).abs() < 0.03) {
                add(format!("weights: stored as {name}, not as asked: --weights {name}"));
            }
        }
        for tp in [1, 2, 4, 8, 16].into_iter().filter(|tp| *tp != q.tp && q.model.shared_by(*tp).is_ok()) {
            let bytes = on_card(r, q, tp).bytes(q.stored) as f64;
            if r.weight_bytes.is_some_and(|w| (w / bytes - 1.0).abs() < 0.01) {
                add(format!("weights: shared by {tp} cards: --tp {tp}"));
            }
        }
        add(if g > 0.0 {
            "weights: repacked or padded at load, or output head and embedding left in 16 bit".into()
        } else {
            "weights: another checkpoint, or part of it on another device".into()
        });
    }
    if let Some(g) = gap("pool") {
        if g < 0.0 {
            add(match r.engine {
                Engine::Sglang => "pool: the activation peak grows with chunked_prefill_size",
                _ => {
                    "pool: the activation peak grows with max_num_batched_tokens (with max_model_len where prefill is not chunked)"
                }
            }
            .into());
            add("pool: CUDA graphs, and memory outside PyTorch (NCCL's buffers grow with --tp)".into());
            add("pool: loader temporaries, or other processes on the card".into());
        } else {
            add("pool: less activation memory than assumed".into());
        }
        if r.util.is_none() {
            add(share("pool"));
        }
    }
    if let Some(g) = gap("tokens") {
        if (g - 1.0).abs() < 0.05 {
            add("tokens: twice as many: the cache is fp8: --kv fp8".into());
        } else if (g + 0.5).abs() < 0.05 {
            add("tokens: half as many: the cache is 16 bit, not fp8".into());
        } else if (g + 1.0 - 1e9 / GIB).abs() < 0.005 {
            add("tokens: the pool's unit is GB (1e9), not GiB".into());
        }
        if let (None, Some(tokens)) = (r.pool_bytes, r.tokens) {
            let cache = tokens as f64 * q.model.kv_bytes_per_token(q.kv_element, q.tp) as f64;
            let taken = q.memory as f64 * q.util - pool(r, q).0;
            let whole = (cache + taken) / q.util / GIB;
            add(format!("tokens: another card: these would be a card of {whole:.1} GiB: --gpu"));
            if r.util.is_none() {
                add(share("tokens"));
            }
        }
        add("tokens: windows and hybrid layers are grouped and padded to equal pages".into());
        if q.tp > 1 {
            add(format!("tokens: KV heads copied or shared otherwise than by {} cards", q.tp));
        }
    }
    if gap("concurrency").is_some() || r.remarks.iter().any(|t| t.contains("contradict")) {
        add("concurrency: a hybrid cache, where tokens are of one kind of layer".into());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(model: &str) -> Question {
        Question {
            model: Dims::find(model).unwrap(),
            memory: 0,
            util: 0.9,
            overhead: 0,
            stored: Stored::Bf16,
            kv_element: 2,
            page: 16,
            tp: 1,
            ctx: 1,
            batch: 1,
        }
    }

    fn row<'a>(r: &'a Reconciled, quantity: &str) -> &'a Row {
        r.rows.iter().find(|w| w.quantity == quantity).unwrap_or_else(|| panic!("no {quantity} in {r:?}"))
    }

    #[track_caller]
    fn within(r: &Reconciled, quantity: &str) {
        let w = row(r, quantity);
        assert!(w.agrees && w.gap().abs() < 0.01, "{w:?}");
    }

    #[test]
    fn k1_llama_8b_on_a_3090_of_november_2024() {
        let log = "INFO 11-21 01:05:28 model_runner.py:1077] Loading model weights took 14.9888 GB\n\
            INFO 11-21 01:05:29 worker.py:232] Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.32GiB \
            peak_torch_memory=17.06GiB memory_usage_post_profile=15.41GiB non_torch_memory=0.35GiB kv_cache_size=3.81GiB \
            gpu_memory_utilization=0.90\n\
            INFO 11-21 01:05:29 gpu_executor.py:113] # GPU blocks: 1952, # CPU blocks: 2048\n\
            INFO 11-21 01:05:29 gpu_executor.py:117] Maximum concurrency for 20000 tokens per request: 1.56x\n";
        let r = read(log, 16).unwrap();
        assert_eq!(
            (r.engine, r.tokens, r.max_len, r.concurrency),
            (Engine::Vllm, Some(31_232), Some(20_000), Some(1.56))
        );
        let c = reconcile(&r, &question("llama-3.1-8b")).unwrap();
        ["weights", "pool", "tokens", "concurrency"].iter().for_each(|q| within(&c, q));
        assert!(c.causes.is_empty());
    }

    #[test]
    fn k2_the_short_lived_table_of_december_2024() {
        let log = "INFO 12-13 19:54:18 worker.py:243] Memory profiling results:\n\
            INFO 12-13 19:54:18 worker.py:243] total_gpu_memory\t79.22GiB\n\
            INFO 12-13 19:54:18 worker.py:243] gpu_memory_utilization\t0.90\n\
            INFO 12-13 19:54:18 worker.py:243] the current vLLM instance can use\t71.29GiB\n\
            INFO 12-13 19:54:18 worker.py:243] model weights take\t14.96GiB\n\
            INFO 12-13 19:54:18 worker.py:243] non_torch_memory\t1.79GiB\n\
            INFO 12-13 19:54:18 worker.py:243] PyTorch activation peak memory\t1.26GiB\n\
            INFO 12-13 19:54:18 worker.py:243] available_kv_cache_memory\t53.29GiB\n";
        let r = read(log, 16).unwrap();
        let c = reconcile(&r, &question("llama-3-8b")).unwrap();
        within(&c, "weights");
        within(&c, "pool");
        let tokens = r.pool_bytes.unwrap() / 131_072.0;
        assert!((tokens - 436_500.0).abs() < 100.0, "{tokens}");
    }

    #[test]
    fn k3_blocks_and_concurrency_of_january_2025() {
        let log = "INFO 01-30 loader.py] Loading model weights took 67.7229 GB\n\
            INFO 01-30 core.py] # GPU blocks: 1,381\n\
            INFO 01-30 core.py] Maximum concurrency for 2,048 tokens per request: 10.79x\n";
        let r = read(log, 16).unwrap();
        assert_eq!(r.tokens, Some(22_096));
        let c = reconcile(&r, &Question { stored: Stored::Fp8, ..question("llama-3.1-70b") }).unwrap();
        within(&c, "weights");
        within(&c, "concurrency");
        let pool = 22_096.0 * 327_680.0 / GIB;
        assert!((pool - 6.74).abs() < 0.01, "{pool}");
    }

    #[test]
    fn k4_sglang_says_gb_and_means_gib() {
        let log = "[2025-07-22 10:00:00 TP3] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB\n\
            [2025-07-22 10:00:00 TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB\n";
        let r = read(log, 16).unwrap();
        assert_eq!((r.engine, r.ranks, r.tp, r.tp_at_least), (Engine::Sglang, 2, None, 4));
        let q = Question { stored: Stored::Fp8, memory: 81_121 << 20, util: 0.93, ..question("qwen3-235b-a22b") };
        let c = reconcile(&r, &q).unwrap();
        within(&c, "tokens");
        assert!(row(&c, "tokens").gap().abs() < 0.001);
    }

    #[test]
    fn k5_a_start_that_failed() {
        let log = "ValueError: To serve at least one request with the models's max seq len (262144), (36.00 GiB KV cache is \
            needed, which is larger than the available KV cache memory (6.94 GiB). Based on the available memory, the estimated \
            maximum model length is 50512. Try increasing `gpu_memory_utilization`.\n";
        let r = read(log, 16).unwrap();
        assert_eq!((r.max_len, r.offered_len), (Some(262_144), Some(50_512)));
        let c = reconcile(&r, &Question { memory: 24_146 << 20, overhead: 1 << 30, ..question("qwen3-8b") }).unwrap();
        within(&c, "cache for one request");
        within(&c, "longest request");
    }

    #[test]
    fn other_eras_are_read() {
        let r =
            read("GPU KV cache size: 2,042,016 tokens\nMaximum concurrency for 2,048 tokens per request: 997.08x", 16)
                .unwrap();
        assert_eq!((r.tokens, r.max_len), (Some(2_042_016), Some(2_048)));
        assert!(r.remarks.is_empty());
        let ranks = "(VllmWorkerProcess pid=521) INFO the current vLLM instance can use total_gpu_memory (23.58GiB) x \
            gpu_memory_utilization (0.99) = 23.35GiB\n(VllmWorkerProcess pid=521) INFO model weights take 21.21GiB; \
            non_torch_memory takes 0.20GiB; PyTorch activation peak memory takes 0.37GiB; the rest of the memory reserved for \
            KV Cache is 1.57GiB.\n(VllmWorkerProcess pid=507) INFO model weights take 21.21GiB; non_torch_memory takes 0.30GiB; \
            PyTorch activation peak memory takes 0.37GiB; the rest of the memory reserved for KV Cache is 1.47GiB.\n";
        let r = read(ranks, 16).unwrap();
        assert_eq!((r.ranks, r.util), (2, Some(0.99)));
        assert!((r.pool_bytes.unwrap() / GIB - 1.47).abs() < 1e-9, "the least of the ranks");
        let hybrid = "GPU KV cache size: 290,864 tokens\nMaximum concurrency for 32,768 tokens per request: 33.04x\n";
        assert!(read(hybrid, 16).unwrap().remarks[0].contains("contradict"));
        let r = read(
            "(EngineCore_DP0 pid=7) INFO Available KV cache memory: -3.20 GiB\nModel loading took 65.97 GiB and 9 s",
            16,
        )
        .unwrap();
        assert!(r.pool_bytes.unwrap() < 0.0 && r.remarks[0].contains("negative"));
        let later = "Available KV cache memory: 5.98 GiB\nGPU KV cache size: 567,978 tokens\nMaximum concurrency for 131,072 \
            tokens per request: 4.33x";
        assert_eq!(read(later, 16).unwrap().remarks.len(), 0);
    }

    #[test]
    fn llama_cpp_in_both_forms() {
        let log = "load_tensors:        CUDA0 model buffer size =  4403.49 MiB\n\
            llama_kv_cache: size =  256.00 MiB (  2048 cells,  32 layers,  1 seqs), K (f16):  128.00 MiB, V (f16):  128.00 MiB\n";
        let r = read(log, 16).unwrap();
        assert_eq!((r.engine, r.tokens), (Engine::LlamaCpp, Some(2_048)));
        within(&reconcile(&r, &question("llama-3-8b")).unwrap(), "pool");
        // All layers on the card: the embedding, 1002 MiB, stays outside it.
        let whole = "load_tensors:   CPU_Mapped model buffer size =  1002.00 MiB\n\
            load_tensors:        CUDA0 model buffer size = 14315.02 MiB\n";
        within(&reconcile(&read(whole, 16).unwrap(), &question("llama-3-8b")).unwrap(), "weights");
        let old = "llama_new_context_with_model: n_ctx      = 8192\nllama_new_context_with_model: KV self size  = 1024.00 MiB, \
            K (f16):  512.00 MiB, V (f16):  512.00 MiB\n";
        within(&reconcile(&read(old, 16).unwrap(), &question("llama-3-8b")).unwrap(), "pool");
    }

    #[test]
    fn tokens_without_a_pool_are_held_against_the_card() {
        let log = "INFO 02-20 Loading model weights took 14.9888 GB\nINFO 02-20 GPU KV cache size: 158,656 tokens\n\
            INFO 02-20 Maximum concurrency for 32,768 tokens per request: 4.84x\n";
        let r = read(log, 16).unwrap();
        let on = |memory| {
            let q = Question { memory, overhead: (1.55 * GIB) as u64, ..question("llama-3.1-8b") };
            reconcile(&r, &q).unwrap()
        };
        let (large, fitting, none) = (on(143_155 << 20), on((40.0 * GIB) as u64), on(0));
        let tokens = row(&large, "tokens");
        assert!(tokens.assumed && !tokens.agrees && (tokens.predicted - 895_000.0).abs() < 2_000.0, "{tokens:?}");
        assert!(large.causes.iter().any(|c| c.contains("a card of 39.9 GiB")), "{:?}", large.causes);
        assert!(row(&fitting, "tokens").agrees && fitting.causes.is_empty(), "{fitting:?}");
        assert!(none.rows.iter().all(|w| w.quantity != "tokens") && none.unknown[0].contains("--gpu"), "{none:?}");
    }

    #[test]
    fn ranks_that_speak_are_the_least_number_of_cards() {
        let log = "[2025-07-22 10:00:00 TP0] Load weight end. avail mem=74.0 GB, mem usage=3.79 GB.\n\
            [2025-07-22 10:00:00 TP0] KV Cache is allocated. #tokens: 1000000, K size: 15.26 GB, V size: 15.26 GB\n";
        let r = read(log, 16).unwrap();
        let c = reconcile(&r, &Question { tp: 4, ..question("llama-3-8b") }).unwrap();
        within(&c, "tokens");
        assert!(row(&c, "weights").gap().abs() < 0.02, "{c:?}");
        // Lines of ranks 0 and 2 are of four cards: three cannot share 32 heads.
        let three = read(&log.replace("TP0] KV", "TP2] KV"), 16).unwrap();
        within(&reconcile(&three, &question("llama-3-8b")).unwrap(), "tokens");
        let said = read(&format!("server_args: tp_size=2\n{log}"), 16).unwrap();
        assert_eq!(said.tp, Some(2), "what the log says goes before prefixes");
        let worker = read("(Worker_TP3 pid=4) INFO Available KV cache memory: 5.0 GiB\n", 16).unwrap();
        assert_eq!((worker.tp, worker.tp_at_least), (None, 4));
    }

    #[test]
    fn a_line_is_of_one_rank_whatever_words_match_it() {
        let log = "INFO Available KV cache memory: 6.94 GiB\nValueError: 36.00 GiB KV cache is needed, which is larger \
            than the available KV cache memory (6.94 GiB)\n";
        let r = read(log, 16).unwrap();
        assert_eq!(r.ranks, 1);
        assert!((r.pool_bytes.unwrap() / GIB - 6.94).abs() < 1e-9);
    }

    #[test]
    fn causes_fit_the_engine_and_the_model() {
        let log = "[2025-07-22 10:00:00] Load weight end. avail mem=74.0 GB, mem usage=15.26 GB.\n\
            [2025-07-22 10:00:00] KV Cache is allocated. #tokens: 10000, K size: 0.69 GB, V size: 0.69 GB\n";
        let q = Question { stored: Stored::Fp8, memory: 80 << 30, ..question("qwen3-8b") };
        let causes = reconcile(&read(log, 16).unwrap(), &q).unwrap().causes;
        assert!(causes[0].contains("--weights bf16"), "{causes:?}");
        assert!(causes.iter().all(|c| !c.contains("mxfp4") && !c.contains("vLLM")), "{causes:?}");
        assert!(causes.iter().any(|c| c.contains("--mem-fraction-static")), "{causes:?}");
    }

    #[test]
    fn what_disagrees_is_named_with_its_cause() {
        let log = "Model loading took 8.51 GiB and 3 s\nAvailable KV cache memory: 10.00 GiB\nGPU KV cache size: 163,840 tokens\n";
        let c = reconcile(&read(log, 16).unwrap(), &Question { memory: 24 << 30, ..question("llama-3-8b") }).unwrap();
        assert!(c.causes[0].contains("fp8"), "{:?}", c.causes);
        assert!(c.causes.iter().any(|t| t.contains("--kv fp8")), "{:?}", c.causes);
        assert!(read("nothing here", 16).is_err());
    }
}
