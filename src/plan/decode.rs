//! A decode step as a plan: one new token for each request of a batch, over a paged KV cache.
//!
//! Norms, the SwiGLU gate, the residual adds, the rotation and the cache append are folded into the products and the
//! attention where an op's variant for that shape can; where it cannot, they stand as nodes of their own. So the list
//! below is what runs, and what is predicted.

use super::model::Model;
use super::{BufferId, Node, Plan, Purpose};
use crate::error::{Error, Result};
use crate::kernels;
use crate::op::{Chip, DType, Init, Role, Shape};

/// How the projection weights are stored; embedding, norms and output head stay 16 bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The activations' own type.
    Dense,
    /// 4-bit groups of `group` weights along K (0: a whole row), with a zero point each if `asymmetric`.
    W4a16 { group: u64, asymmetric: bool },
}

/// What to build.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of each request, the new token included.
    pub lens: Vec<u64>,
    /// Positions that the page table has room for; at least the longest length.
    pub max_ctx: u64,
    pub page: u64,
    /// bf16 or f16.
    pub dtype: DType,
    pub weights: Weights,
    /// Fold norms, gate, residuals and rotation into their neighbours where a variant can.
    pub fuse: bool,
}

impl Options {
    /// `batch` requests of `ctx` tokens each in bf16.
    pub fn uniform(batch: u64, ctx: u64) -> Self {
        Self {
            lens: vec![ctx; batch as usize],
            max_ctx: ctx,
            page: 16,
            dtype: DType::Bf16,
            weights: Weights::Dense,
            fuse: true,
        }
    }
    pub fn batch(&self) -> u64 {
        self.lens.len() as u64
    }
}

/// The buffers that the host sets or reads between steps.
#[derive(Clone, Copy, Debug)]
pub struct Handles {
    /// Token ids, i32 `[batch]`: read by the embedding, overwritten by the argmax.
    pub ids: BufferId,
    /// i32 `[batch]`, the new token included.
    pub seq_lens: BufferId,
    /// i32 `[batch, ceil(max_ctx / page)]`.
    pub page_table: BufferId,
    /// fp32 `[batch, vocab]`.
    pub logits: BufferId,
}

struct Builder<'a> {
    plan: Plan,
    model: &'a Model,
    options: &'a Options,
    chip: &'a Chip,
}

/// Builds the plan of one decode step.
///
/// # Errors
/// Lengths of 0 or beyond `max_ctx`, an empty batch, a sliding window shorter than the context, or a shape that no
/// variant takes.
pub fn decode(model: &Model, options: &Options, chip: &Chip) -> Result<(Plan, Handles)> {
    check(model, options)?;
    let (m, d, dtype) = (options.batch(), model.hidden, options.dtype);
    let weights = match options.weights {
        Weights::Dense => dtype.name().to_string(),
        Weights::W4a16 { group, asymmetric } => {
            format!("w4a16 g{group}{}", if asymmetric { " asymmetric" } else { "" })
        }
    };
    let uniform = options.lens.iter().all(|l| *l == options.lens[0]);
    let ctx = if uniform {
        options.lens[0].to_string()
    } else {
        let (lo, hi) = (options.lens.iter().min().unwrap_or(&0), options.lens.iter().max().unwrap_or(&0));
        format!("{lo}..{hi}")
    };
    let mut b = Builder { plan: Plan::default(), model, options, chip };
    b.plan.title = format!("{} {weights} batch {m} context {ctx}", model.name);

    let max_pages = options.max_ctx.div_ceil(options.page);
    let ids: Vec<u8> = (0..m).flat_map(|i| ((1 + 7 * i) % model.vocab).to_le_bytes()[..4].to_vec()).collect();
    let lens: Vec<u8> = options.lens.iter().flat_map(|l| (*l as i32).to_le_bytes()).collect();
    let handles = Handles {
        ids: b.plan.buffer("ids", Purpose::Control, DType::I32, m, Init::Bytes(ids)),
        seq_lens: b.plan.buffer("seq_lens", Purpose::Control, DType::I32, m, Init::Bytes(lens)),
        page_table: b.plan.buffer(
            "page_table",
            Purpose::Control,
            DType::I32,
            m * max_pages,
            Init::Bytes(page_table(m * max_pages)),
        ),
        logits: b.plan.buffer("logits", Purpose::Activations, DType::F32, m * model.vocab, Init::Poison),
    };
    let rope = model.rope_table(options.max_ctx).iter().flat_map(|v| v.to_le_bytes()).collect();
    let cos_sin =
        b.plan.buffer("cos_sin", Purpose::Control, DType::F32, options.max_ctx * model.head_dim, Init::Bytes(rope));
    let act =
        |b: &mut Builder, name: &str, len: u64| b.plan.buffer(name, Purpose::Activations, dtype, len, Init::Poison);
    let x = act(&mut b, "x", m * d);
    let normed = act(&mut b, "normed", m * d);
    let qkv = act(&mut b, "qkv", m * model.qkv_rows());
    let attn = act(&mut b, "attn", m * model.heads * model.head_dim);
    let gate_up = act(&mut b, "gate_up", m * 2 * model.intermediate);
    let h = act(&mut b, "h", m * model.intermediate);
    let q = act(&mut b, "q", m * model.heads * model.head_dim);
    let lse = b.plan.buffer("lse", Purpose::Activations, DType::F32, m * model.heads, Init::Poison);

    let table = b.weight("model.embed_tokens.weight".into(), model.vocab * d);
    let shape = Shape::new().with("m", m).with("v", model.vocab).with("k", d).with("dtype", dtype.name());
    b.node("embed", "embed", None, "embed", shape, vec![("ids", handles.ids, 0), ("table", table, 0), ("out", x, 0)]);

    for layer in 0..model.layers {
        let p = format!("model.layers.{layer}");
        let t = |name: &str| format!("{p}.{name}.weight");
        let norm1 = b.gain(t("input_layernorm"), d);
        let names = [t("self_attn.q_proj"), t("self_attn.k_proj"), t("self_attn.v_proj")].join("+");
        b.linear(Linear {
            class: "qkv",
            layer: Some(layer as u32),
            weight: names,
            n: model.qkv_rows(),
            k: d,
            x,
            norm: Some((norm1, normed)),
            post: Post::None,
            out: qkv,
        })?;
        b.attention(layer, qkv, q, attn, lse, cos_sin, &handles)?;
        b.linear(Linear {
            class: "o",
            layer: Some(layer as u32),
            weight: t("self_attn.o_proj"),
            n: d,
            k: model.heads * model.head_dim,
            x: attn,
            norm: None,
            post: Post::Residual(x),
            out: x,
        })?;
        let norm2 = b.gain(t("post_attention_layernorm"), d);
        b.linear(Linear {
            class: "gate_up",
            layer: Some(layer as u32),
            weight: [t("mlp.gate_proj"), t("mlp.up_proj")].join("+"),
            n: 2 * model.intermediate,
            k: d,
            x,
            norm: Some((norm2, normed)),
            post: Post::SiluMul(gate_up),
            out: h,
        })?;
        b.linear(Linear {
            class: "down",
            layer: Some(layer as u32),
            weight: t("mlp.down_proj"),
            n: d,
            k: model.intermediate,
            x: h,
            norm: None,
            post: Post::Residual(x),
            out: x,
        })?;
    }
    let norm = b.gain("model.norm.weight".into(), d);
    b.head(x, norm, normed, table, handles.logits)?;
    let shape = Shape::new().with("m", m).with("v", model.vocab).with("dtype", "f32");
    b.node("argmax", "argmax", None, "argmax", shape, vec![("logits", handles.logits, 0), ("out", handles.ids, 0)]);
    b.plan.drop_unused();
    Ok((b.plan, handles))
}

fn check(model: &Model, options: &Options) -> Result<()> {
    let longest = options.lens.iter().copied().max().unwrap_or(0);
    if options.lens.is_empty() || options.lens.contains(&0) {
        return Err(Error::usage(
            "a decode step needs a batch of at least 1 and lengths of at least 1 (the new token)",
        ));
    }
    if longest > options.max_ctx {
        return Err(Error::usage(format!("length {longest} is beyond the cache of {} positions", options.max_ctx)));
    }
    if longest > model.max_positions {
        return Err(Error::usage(format!("length {longest} is beyond the model's {} positions", model.max_positions)));
    }
    if options.page == 0 || options.max_ctx > i32::MAX as u64 {
        return Err(Error::usage("pages need at least 1 token, and positions must fit 31 bits"));
    }
    match model.sliding_window {
        Some(w) if w < longest => Err(Error::usage(format!(
            "length {longest} passes the sliding window of {w}, which the step's attention does not implement"
        ))
        .try_next(format!("--ctx {w} or less"))),
        _ => Ok(()),
    }
}

/// Pages in an order that no run of neighbours survives, so a gather is really a gather: i * stride mod count, with a
/// stride prime to the count.
fn page_table(count: u64) -> Vec<u8> {
    let mut stride = (count as f64 * 0.618) as u64 | 1;
    while gcd(stride, count) != 1 {
        stride += 2;
    }
    (0..count).flat_map(|i| ((i * stride % count) as i32).to_le_bytes()).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

enum Post {
    None,
    /// Adds to this buffer.
    Residual(BufferId),
    /// Halves the rows; the buffer holds gate and up where the gate is a node of its own.
    SiluMul(BufferId),
}

struct Linear {
    class: &'static str,
    layer: Option<u32>,
    weight: String,
    n: u64,
    k: u64,
    x: BufferId,
    /// Gain, and where the normalised input goes if the norm is a node of its own.
    norm: Option<(BufferId, BufferId)>,
    post: Post,
    out: BufferId,
}

impl Builder<'_> {
    fn weight(&mut self, name: String, len: u64) -> BufferId {
        self.plan.buffer(name, Purpose::Weights, self.options.dtype, len, Init::Normal { std: 0.02 })
    }

    fn gain(&mut self, name: String, len: u64) -> BufferId {
        self.plan.buffer(name, Purpose::Weights, self.options.dtype, len, Init::Uniform { lo: 0.9, hi: 1.1 })
    }

    fn node(
        &mut self,
        label: &str,
        class: &str,
        layer: Option<u32>,
        op: &'static str,
        shape: Shape,
        bind: Vec<(&'static str, BufferId, u64)>,
    ) {
        let label = match layer {
            Some(l) => format!("L{l:02} {label}"),
            None => label.to_string(),
        };
        self.plan.nodes.push(Node { label, class: class.to_string(), layer, op, variant: None, shape, bind });
    }

    /// Whether the op's own choice for a shape can compute it.
    fn takes(&self, op: &str, shape: &Shape) -> bool {
        kernels::op(op).is_ok_and(|o| o.supports(o.choose(shape, self.chip), shape, self.chip).is_ok())
    }

    fn linear(&mut self, l: Linear) -> Result<()> {
        let m = self.options.batch();
        let (op, mut shape) = match self.options.weights {
            Weights::Dense => ("matmul", Shape::new()),
            Weights::W4a16 { group, asymmetric } => {
                ("w4a16", Shape::new().with("group", group).with("zeros", if asymmetric { "asym" } else { "sym" }))
            }
        };
        shape = shape.with("m", m).with("n", l.n).with("k", l.k).with("dtype", self.options.dtype.name());
        let eps = self.model.rms_eps;
        let mut full = shape.clone();
        if l.norm.is_some() {
            full = full.with("pre", "rmsnorm").with("eps", eps);
        }
        full = match &l.post {
            Post::None => full,
            Post::Residual(_) => full.with("post", "residual"),
            Post::SiluMul(_) => full.with("post", "silu_mul"),
        };
        // Fold what the op can: everything, else the tail only, else nothing.
        // The residual is always folded: no op of the plan does nothing but add.
        let fuse = self.options.fuse;
        let mut tail = full.clone();
        tail.set("pre", "none");
        let pre = fuse && self.takes(op, &full);
        let post = pre || (fuse || matches!(l.post, Post::Residual(_))) && self.takes(op, &tail);
        let mut x = l.x;
        if let (Some((gain, normed)), false) = (l.norm, pre) {
            let s = Shape::new().with("m", m).with("k", l.k).with("dtype", self.options.dtype.name()).with("eps", eps);
            let label = format!("{} norm", l.class);
            self.node(
                &label,
                "norm",
                l.layer,
                "rmsnorm",
                s,
                vec![("x", l.x, 0), ("gain", gain, 0), ("out", normed, 0)],
            );
            x = normed;
        }
        if pre && l.norm.is_some() {
            shape = shape.with("pre", "rmsnorm").with("eps", eps);
        }
        let mut out = l.out;
        let mut bind = vec![("x", x, 0)];
        if let (Some((gain, _)), true) = (l.norm, pre) {
            bind.push(("norm", gain, 0));
        }
        match l.post {
            Post::Residual(r) if post => {
                shape = shape.with("post", "residual");
                bind.push(("residual", r, 0));
            }
            Post::SiluMul(_) if post => shape = shape.with("post", "silu_mul"),
            Post::SiluMul(both) => out = both,
            Post::Residual(_) => {
                return Err(Error::usage(format!(
                    "no {op} variant adds the residual for shape {shape}, and the plan has no add node"
                )));
            }
            Post::None => {}
        }
        bind.push(("out", out, 0));
        // What the op still lacks are its weights: one array for a dense product, codes and scales for w4a16.
        for b in kernels::op(op)?.buffers(&shape, 0)? {
            if b.role == Role::Input && !bind.iter().any(|(n, ..)| *n == b.name) {
                let name = if b.name == "w" { l.weight.clone() } else { format!("{}#{}", l.weight, b.name) };
                let id = self.plan.buffer(name, Purpose::Weights, b.dtype, b.len, b.init);
                bind.push((b.name, id, 0));
            }
        }
        self.node(l.class, l.class, l.layer, op, shape, bind);
        if let (Post::SiluMul(both), false) = (l.post, post) {
            let s = Shape::new().with("m", m).with("n", l.n / 2).with("dtype", self.options.dtype.name());
            self.node("silu_mul", "silu_mul", l.layer, "silu_mul", s, vec![("x", both, 0), ("out", l.out, 0)]);
        }
        Ok(())
    }

    /// The output head: 16-bit weights always, fp32 logits.
    fn head(&mut self, x: BufferId, gain: BufferId, normed: BufferId, table: BufferId, logits: BufferId) -> Result<()> {
        let (m, d, v) = (self.options.batch(), self.model.hidden, self.model.vocab);
        let w = if self.model.tied { table } else { self.weight("lm_head.weight".into(), v * d) };
        let dtype = self.options.dtype.name();
        let base = Shape::new().with("m", m).with("n", v).with("k", d).with("dtype", dtype).with("out", "f32");
        let fused = base.clone().with("pre", "rmsnorm").with("eps", self.model.rms_eps);
        if self.options.fuse && self.takes("matmul", &fused) {
            let bind = vec![("x", x, 0), ("norm", gain, 0), ("w", w, 0), ("out", logits, 0)];
            self.node("lm_head", "lm_head", None, "matmul", fused, bind);
        } else {
            let s = Shape::new().with("m", m).with("k", d).with("dtype", dtype).with("eps", self.model.rms_eps);
            self.node("norm", "norm", None, "rmsnorm", s, vec![("x", x, 0), ("gain", gain, 0), ("out", normed, 0)]);
            self.node(
                "lm_head",
                "lm_head",
                None,
                "matmul",
                base,
                vec![("x", normed, 0), ("w", w, 0), ("out", logits, 0)],
            );
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn attention(
        &mut self,
        layer: u64,
        qkv: BufferId,
        q: BufferId,
        out: BufferId,
        lse: BufferId,
        cos_sin: BufferId,
        handles: &Handles,
    ) -> Result<()> {
        let (o, model) = (self.options, self.model);
        let pages = o.batch() * o.max_ctx.div_ceil(o.page);
        let len = pages * o.page * model.kv_heads * model.head_dim;
        let p = format!("model.layers.{layer}.self_attn");
        let mut cache = |kind: &str| {
            self.plan.buffer(format!("{p}.{kind}_cache"), Purpose::KvCache, o.dtype, len, Init::Normal { std: 1.0 })
        };
        let (k_cache, v_cache) = (cache("k"), cache("v"));
        let mut shape = Shape::new().with("batch", o.batch());
        if o.lens.iter().all(|l| *l == o.lens[0]) {
            shape.set("ctx", o.lens[0]);
        } else {
            shape.set("lens", o.lens.iter().map(u64::to_string).collect::<Vec<_>>().join(":"));
        }
        shape = shape
            .with("heads", model.heads)
            .with("kv_heads", model.kv_heads)
            .with("d", model.head_dim)
            .with("page", o.page)
            .with("max_ctx", o.max_ctx)
            .with("dtype", o.dtype.name());
        let mut extra = vec![("cos_sin", cos_sin, 0)];
        let mut rope_shape = shape.clone();
        if model.qk_norm() {
            rope_shape = rope_shape.with("qk_norm", "rms").with("eps", model.rms_eps);
            extra.push(("q_norm", self.gain(format!("{p}.q_norm.weight"), model.head_dim), 0));
            extra.push(("k_norm", self.gain(format!("{p}.k_norm.weight"), model.head_dim), 0));
        }
        let cache = [
            ("k_cache", k_cache, 0),
            ("v_cache", v_cache, 0),
            ("page_table", handles.page_table, 0),
            ("seq_lens", handles.seq_lens, 0),
        ];
        let layer = Some(layer as u32);
        let fused = rope_shape.clone().with("fuse", "rope_append");
        let results = [("out", out, 0), ("lse", lse, 0)];
        if o.fuse && self.takes("paged_attention", &fused) {
            let bind = [("qkv", qkv, 0)].into_iter().chain(extra).chain(cache).chain(results).collect();
            self.node("attention", "attention", layer, "paged_attention", fused, bind);
        } else {
            let bind = [("qkv", qkv, 0)].into_iter().chain(extra).chain(cache).chain([("q", q, 0)]).collect();
            self.node("rope_append", "rope_append", layer, "rope_append", rope_shape, bind);
            let bind = [("q", q, 0)].into_iter().chain(cache).chain(results).collect();
            self.node("attention", "attention", layer, "paged_attention", shape, bind);
        }
        Ok(())
    }
}
