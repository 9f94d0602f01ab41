//! What a shape of paged attention means: its sizes, its rules, and the arrays that follow. Shared with rope_append.

use crate::op::{DType, OpResult, Rng, Shape};
use crate::op_error;

/// Head sizes that the kernels are compiled for.
pub const HEAD_SIZES: [u64; 5] = [64, 96, 128, 192, 256];
/// Tokens of a request stay below this: the kernels divide by the page size with one 32-bit multiplication.
pub const MAX_TOKENS: u64 = 1 << 24;

/// Order of a page's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// [page slot, kv head, d]
    Nhd,
    /// [kv head, page slot, d]
    Hnd,
}

/// A checked shape.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Tokens of each request; with `fused` the new one is counted.
    pub lens: Vec<u64>,
    pub heads: u64,
    pub kv_heads: u64,
    pub d: u64,
    pub page: u64,
    pub dtype: DType,
    pub kv: DType,
    pub layout: Layout,
    /// Whether rotation and append happen in the same launch.
    pub fused: bool,
    pub max_ctx: u64,
    pub pool_pages: u64,
    /// The cache holds value / scale.
    pub k_scale: f64,
    pub v_scale: f64,
    /// Softmax scale, 1/√d where not given.
    pub scale: f64,
    /// Pieces of fixed length: a request's result does not depend on the rest of the batch.
    pub deterministic: bool,
    /// RMS normalisation of q and k heads before the rotation (Qwen3), with its epsilon.
    pub qk_norm: Option<f64>,
}

impl Spec {
    /// Reads and checks a shape.
    ///
    /// # Errors
    /// A size out of range, heads that are no multiple of kv_heads, a head size without a kernel, a pool beyond 64 GiB.
    pub fn new(shape: &Shape) -> OpResult<Self> {
        let lens = lengths(shape)?;
        let heads = shape.int_or("heads", 32)?;
        let kv_heads = shape.int_or("kv_heads", 8)?;
        let d = shape.int_or("d", 128)?;
        let page = shape.int_or("page", 16)?;
        let dtype = shape.dtype()?;
        let kv = shape.dtype_or("kv", dtype)?;
        let layout = if shape.choice("layout", &["nhd", "hnd"])? == "hnd" { Layout::Hnd } else { Layout::Nhd };
        let fused = shape.choice("fuse", &["none", "rope_append"])? == "rope_append";
        let longest = lens.iter().copied().max().unwrap_or(0);
        let max_ctx = shape.int_or("max_ctx", longest.max(1))?;
        if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(op_error!("heads={heads} is no multiple of kv_heads={kv_heads}"));
        }
        if heads > 1024 {
            return Err(op_error!("heads={heads}: at most 1024"));
        }
        if !HEAD_SIZES.contains(&d) {
            return Err(op_error!("d={d} has no kernel; there are 64, 96, 128, 192 and 256"));
        }
        if page == 0 || page > 256 {
            return Err(op_error!("page={page}: 1 to 256 tokens"));
        }
        if !matches!(dtype, DType::Bf16 | DType::F16) {
            return Err(op_error!("dtype={} is neither bf16 nor f16", dtype.name()));
        }
        if kv != dtype && kv != DType::E4m3 {
            return Err(op_error!("kv={} is neither dtype={} nor e4m3", kv.name(), dtype.name()));
        }
        if max_ctx >= MAX_TOKENS {
            return Err(op_error!("max_ctx={max_ctx}: below {MAX_TOKENS} tokens"));
        }
        if longest > max_ctx {
            return Err(op_error!("a length of {longest} exceeds max_ctx={max_ctx}"));
        }
        // As the kernels take them.
        let single = |key| Ok(f64::from(shape.float_or(key, 1.0)? as f32));
        let (k_scale, v_scale) = (single("k_scale")?, single("v_scale")?);
        if kv != DType::E4m3 && (k_scale != 1.0 || v_scale != 1.0) {
            return Err(op_error!("k_scale={k_scale}, v_scale={v_scale} are for kv=e4m3 only"));
        }
        if !(k_scale > 0.0 && v_scale > 0.0) {
            return Err(op_error!("k_scale={k_scale}, v_scale={v_scale} must be positive"));
        }
        let pages_each = max_ctx.div_ceil(page);
        let need: u64 = lens.iter().map(|l| l.div_ceil(page)).sum();
        let pool_pages = shape.int_or("pool_pages", (lens.len() as u64 * pages_each).max(1))?;
        if pool_pages < need || pool_pages == 0 || pool_pages > i32::MAX as u64 {
            return Err(op_error!("pool_pages={pool_pages}, but the lengths fill {need} pages of {page} tokens"));
        }
        let chunks = pool_pages * page * kv_heads * d * kv.size() / 16;
        if chunks >= u64::from(u32::MAX) {
            return Err(op_error!("a pool of {} GiB exceeds the 64 GiB that the kernels address", chunks >> 26));
        }
        let units = lens.len() as u64 * heads * max_ctx.div_ceil(64);
        if lens.len() > 65_535 || units > i32::MAX as u64 {
            return Err(op_error!("batch={} with max_ctx={max_ctx} is too much work for one launch", lens.len()));
        }
        let scale = shape.float_or("scale", 1.0 / (d as f64).sqrt())?;
        let deterministic = shape.int_or("deterministic", 0)? != 0;
        let qk_norm = match shape.choice("qk_norm", &["none", "rms"])? {
            "rms" => Some(shape.float_or("eps", 1e-6)?),
            _ => None,
        };
        Ok(Self {
            lens,
            heads,
            kv_heads,
            d,
            page,
            dtype,
            kv,
            layout,
            fused,
            max_ctx,
            pool_pages,
            k_scale,
            v_scale,
            scale,
            deterministic,
            qk_norm,
        })
    }

    pub fn batch(&self) -> u64 {
        self.lens.len() as u64
    }
    pub fn group(&self) -> u64 {
        self.heads / self.kv_heads
    }
    /// Columns of the page table.
    pub fn max_pages(&self) -> u64 {
        self.max_ctx.div_ceil(self.page)
    }
    /// Elements of one cache.
    pub fn pool(&self) -> u64 {
        self.pool_pages * self.page * self.kv_heads * self.d
    }
    /// Elements from one page, page slot and kv head to the next.
    pub fn strides(&self) -> (u64, u64, u64) {
        let page = self.page * self.kv_heads * self.d;
        match self.layout {
            Layout::Nhd => (page, self.kv_heads * self.d, self.d),
            Layout::Hnd => (page, self.d, self.page * self.d),
        }
    }
    /// Elements of a request's row of raw projections.
    pub fn qkv_row(&self) -> u64 {
        (self.heads + 2 * self.kv_heads) * self.d
    }
    /// First element of a token's row in the cache.
    pub fn element(&self, page_id: u64, slot: u64, head: u64) -> u64 {
        let (page, step, head_step) = self.strides();
        page_id * page + slot * step + head * head_step
    }
    /// Page table [batch, max_pages]: a random permutation of the pool; columns that no token needs name pages that no
    /// request owns, or page 0 where there is none.
    pub fn page_table(&self, seed: u64) -> Vec<i32> {
        let mut rng = Rng(seed ^ 0x7061_6765);
        let mut ids: Vec<i32> = (0..self.pool_pages as i32).collect();
        for i in (1..ids.len()).rev() {
            ids.swap(i, rng.range(0, i as u64) as usize);
        }
        let mut free = ids.into_iter();
        let (rows, columns) = (self.lens.len(), self.max_pages() as usize);
        let mut table = vec![-1; rows * columns];
        for (row, len) in self.lens.iter().enumerate() {
            for column in 0..len.div_ceil(self.page) as usize {
                table[row * columns + column] = free.next().unwrap_or(0);
            }
        }
        for id in table.iter_mut().filter(|id| **id < 0) {
            *id = free.next().unwrap_or(0);
        }
        table
    }
}

fn lengths(shape: &Shape) -> OpResult<Vec<u64>> {
    let Some(list) = shape.word("lens") else {
        let (batch, ctx) = (shape.int("batch")?, shape.int("ctx")?);
        if batch > 65_535 {
            return Err(op_error!("batch={batch}: at most 65535 requests"));
        }
        return Ok(vec![ctx; batch as usize]);
    };
    let lens = list
        .split(':')
        .map(|l| Shape::new().with("lens", l).int("lens"))
        .collect::<OpResult<Vec<u64>>>()
        .map_err(|e| op_error!("lens={list}: {e}"))?;
    let batch = shape.int_or("batch", lens.len() as u64)?;
    if batch != lens.len() as u64 {
        return Err(op_error!("batch={batch}, but lens names {} requests", lens.len()));
    }
    Ok(lens)
}
