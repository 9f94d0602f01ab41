//! Serving in closed form: how long a prompt and a token take, where batching, chunking, caching prefixes and speculating
//! stop paying. The formulas of the inference labs 02 to 08, with their errors mended (each where it stands).

/// What the formulas need of a model on a machine; times in seconds, bytes and rates on one card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Server {
    /// Bytes of weights that every step reads (at batch 1 for experts), and what one token of context adds.
    pub weight_bytes: f64,
    pub kv_bytes_per_token: f64,
    /// Parameters that a token meets, and what one token of context adds in operations.
    pub active_params: f64,
    pub flops_per_context_token: f64,
    pub hidden: f64,
    pub layers: f64,
    /// Bytes of a weight.
    pub element: f64,
    /// Bytes per second and operations per second.
    pub bandwidth: f64,
    pub rate: f64,
    /// Seconds that a step costs whatever it reads: launches, edges, host.
    pub fixed: f64,
    /// Cards, and seconds of one all-reduce.
    pub tp: f64,
    pub all_reduce: f64,
}

impl Server {
    /// Operations that a byte must carry before arithmetic bounds (the ridge).
    pub fn ridge(&self) -> f64 {
        self.rate / self.bandwidth
    }

    fn collectives(&self) -> f64 {
        if self.tp > 1.0 { 2.0 * self.layers * self.all_reduce } else { 0.0 }
    }

    /// One decode step of `batch` requests at `ctx` tokens each: the products are the longer of reading and computing,
    /// attention always reads. t = fixed + B·KV/β + max(W/β, 2·B·P/π) + 2·L·λ.
    pub fn step(&self, batch: f64, ctx: f64) -> f64 {
        let products = (self.weight_bytes / self.bandwidth).max(2.0 * batch * self.active_params / self.tp / self.rate);
        self.fixed + self.collectives() + batch * ctx * self.kv_bytes_per_token / self.bandwidth + products
    }

    /// Prefill of `tokens` with `before` in the cache; causal attention costs half of the full square.
    pub fn prefill(&self, tokens: f64, before: f64) -> f64 {
        let attention = self.flops_per_context_token * tokens * (before + tokens / 2.0);
        let compute = (2.0 * self.active_params * tokens + attention) / self.tp / self.rate;
        self.fixed + self.collectives() + compute.max(self.weight_bytes / self.bandwidth)
    }

    /// Batch at which the products turn from reading to computing: ridge × bytes of a weight / 2.
    pub fn critical_batch(&self) -> f64 {
        self.weight_bytes / self.bandwidth * self.rate * self.tp / (2.0 * self.active_params)
    }

    /// Requests at which their caches weigh as much as the weights.
    pub fn balanced_batch(&self, ctx: f64) -> f64 {
        self.weight_bytes / (ctx * self.kv_bytes_per_token)
    }

    /// The smallest concurrency of a doubling series after which another doubling gains less than `share` of what
    /// doubling would give.
    pub fn knee(&self, ctx: f64, share: f64, most: u64) -> u64 {
        let rate = |b: u64| b as f64 / self.step(b as f64, ctx);
        let mut b = 1;
        while b < most && (rate(2 * b) - rate(b)) / rate(b) >= share {
            b *= 2;
        }
        b
    }

    /// Tokens of prefill from which on a square product of width d computes rather than reads: from
    /// I = 2·T·d / (b·(2·T + d)) = ridge follows T = b·I·d / (2·(d − b·I)). The labs print it without b/2, which is right
    /// for 2 bytes only. `None` where no number of tokens gets there.
    pub fn ridge_tokens(&self) -> Option<f64> {
        let reach = self.element * self.ridge();
        (self.hidden > reach).then(|| reach * self.hidden / (2.0 * (self.hidden - reach)))
    }

    /// Longest pause of the running requests while a prompt of `prompt` tokens is taken in: whole, or in chunks that share
    /// a step with them.
    pub fn worst_gap(&self, prompt: f64, chunk: Option<f64>, batch: f64, ctx: f64) -> f64 {
        let piece = chunk.map_or(prompt, |c| c.min(prompt));
        self.step(batch, ctx) + self.prefill(piece, (prompt - piece).max(0.0)) - self.fixed - self.collectives()
    }
}

/// Tokens of a prompt that a cache of blocks can serve to a later request: whole blocks of the prefix, never the last
/// token, nothing after a token that differs.
pub fn servable(prefix: u64, prompt: u64, block: u64, differs_at: Option<u64>) -> u64 {
    let blocks = (prefix / block).min(prompt.saturating_sub(1) / block);
    blocks.min(differs_at.map_or(u64::MAX, |at| at / block)) * block
}

/// Share of all prompt tokens that come from the cache: the first request of each group fills it.
pub fn hit_rate(requests: u64, groups: u64, prompt: u64, servable: u64) -> f64 {
    if requests == 0 || prompt == 0 {
        return 0.0;
    }
    requests.saturating_sub(groups) as f64 * servable as f64 / (requests as f64 * prompt as f64)
}

/// Tokens that a round of speculation yields: (1 − α^(κ+1)) / (1 − α), for an acceptance α and κ proposals.
pub fn accepted(alpha: f64, proposals: u64) -> f64 {
    if alpha >= 1.0 { proposals as f64 + 1.0 } else { (1.0 - alpha.powi(proposals as i32 + 1)) / (1.0 - alpha) }
}

/// Speed-up at batch 1, where a proposal costs `cost` of a step: E / (1 + κ·c).
pub fn speculation(alpha: f64, proposals: u64, cost: f64) -> f64 {
    accepted(alpha, proposals) / (1.0 + proposals as f64 * cost)
}

/// Batch at which speculation stops paying: ridge · (E − κ·c) / (κ + 1).
pub fn speculation_limit(alpha: f64, proposals: u64, cost: f64, ridge: f64) -> f64 {
    ridge * (accepted(alpha, proposals) - proposals as f64 * cost).max(0.0) / (proposals as f64 + 1.0)
}

/// Seconds of one all-reduce from two measured steps, with what the single card already pays beyond its floor taken off:
/// without that a constant host cost passes as communication.
pub fn all_reduce(step: f64, floor: f64, single_residual: f64, layers: f64) -> f64 {
    (step - floor - single_residual) / (2.0 * layers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn llama_on_h100() -> Server {
        Server {
            weight_bytes: 15.01e9,
            kv_bytes_per_token: 131_072.0,
            active_params: 7.505e9,
            flops_per_context_token: 4.0 * 32.0 * 4096.0,
            hidden: 4096.0,
            layers: 32.0,
            element: 2.0,
            bandwidth: 3.35e12,
            rate: 989e12,
            fixed: 0.0,
            tp: 1.0,
            all_reduce: 0.0,
        }
    }

    #[test]
    fn the_labs_worked_numbers() {
        assert_eq!(servable(1000, 1200, 16, None), 992);
        assert!((hit_rate(64, 1, 1200, servable(1000, 1200, 16, None)) - 0.81375).abs() < 1e-9);
        assert_eq!(servable(1000, 1000, 16, None), 992, "never the last token");
        assert_eq!(servable(1000, 1200, 16, Some(40)), 32);
        assert_eq!(hit_rate(4, 8, 100, 96), 0.0);
        assert!((accepted(0.7, 3) - 2.533).abs() < 1e-9);
        assert!((speculation(0.7, 3, 0.165) - 2.533 / 1.495).abs() < 1e-9);
        assert_eq!(speculation_limit(0.7, 3, 0.165, 295.0).round(), 150.0);
        assert_eq!(accepted(1.0, 3), 4.0);
    }

    #[test]
    fn the_knee_of_prefill_with_its_factor() {
        let s = llama_on_h100();
        assert!((s.ridge() - 295.2).abs() < 0.1);
        let t = s.ridge_tokens().unwrap();
        assert!((t - 345.0).abs() < 1.0, "{t}");
        // One byte a weight halves the reach; the labs' formula would have said 345 again.
        let half = Server { element: 1.0, ..s }.ridge_tokens().unwrap();
        assert!((half - 159.1).abs() < 0.5, "{half}");
        assert_eq!(Server { hidden: 512.0, ..s }.ridge_tokens(), None);
    }

    #[test]
    fn batches_bend_where_the_formulas_say() {
        let s = llama_on_h100();
        assert!((s.critical_batch() - 295.2).abs() < 0.2, "the ridge, for two bytes a weight");
        assert!((s.step(1.0, 0.0) - 15.01e9 / 3.35e12).abs() < 1e-12);
        assert!((s.balanced_batch(2048.0) - 55.9).abs() < 0.1);
        let knee = s.knee(2048.0, 0.25, 1024);
        assert!((64..=256).contains(&knee), "{knee}");
    }

    #[test]
    fn a_constant_cost_is_no_communication() {
        // gpt-fast, 8B on A100s: 3.29 ms beyond the floor on one card, 3.03 ms on two.
        let naive = 3.03e-3 / 64.0;
        assert!(naive > 40e-6 && all_reduce(6.71e-3, 3.68e-3, 3.29e-3, 32.0) < 0.0);
    }

    proptest! {
        #[test]
        fn times_grow_and_chunks_never_hurt_the_gap(b in 1.0f64..512.0, ctx in 1.0f64..1e5, prompt in 64.0f64..65_536.0, chunk in 64.0f64..8_192.0) {
            let s = llama_on_h100();
            prop_assert!(s.step(b + 1.0, ctx) > s.step(b, ctx) && s.step(b, ctx + 1.0) > s.step(b, ctx));
            prop_assert!(s.prefill(prompt + 1.0, 0.0) >= s.prefill(prompt, 0.0));
            prop_assert!(s.worst_gap(prompt, Some(chunk), b, ctx) <= s.worst_gap(prompt, None, b, ctx) * 1.0001);
        }
    }
}
