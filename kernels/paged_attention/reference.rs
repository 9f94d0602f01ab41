//! The f64 reference: attention from the arrays as they lie in memory after the launch, and the contents that tests
//! begin with (NaN wherever no token lies).

use super::spec::Spec;
use crate::op::{Check, DType, Init, OpResult, Rng, View};
use half::{bf16, f16};

/// Caches up to this many elements are read whole; of larger ones a few heads, page by page.
const READ_WHOLE: u64 = 1 << 22;
/// (request, kv head) pairs compared where the cache is large.
const SAMPLES: u64 = 6;

/// A cache with about normal values in the slots of the requests' tokens and NaN everywhere else. With `fused` the
/// new token's slot is NaN too: the launch has to fill it.
pub fn poisoned_cache(s: &Spec, table: &[i32], seed: u64) -> Init {
    let size = s.kv.size() as usize;
    let mut bytes = vec![0xffu8; s.pool() as usize * size];
    let mut rng = Rng(seed);
    for (b, len) in s.lens.iter().enumerate() {
        for t in 0..len.saturating_sub(u64::from(s.fused)) {
            let id = table[b * s.max_pages() as usize + (t / s.page) as usize] as u64;
            for head in 0..s.kv_heads {
                let first = s.element(id, t % s.page, head) as usize * size;
                for out in bytes[first..first + s.d as usize * size].chunks_mut(size) {
                    encode(s.kv, &mut rng, out);
                }
            }
        }
    }
    Init::Bytes(bytes)
}

fn encode(dtype: DType, rng: &mut Rng, out: &mut [u8]) {
    let r = rng.next_u64();
    let sum: i64 = (0..4).map(|i| (r >> (16 * i) & 0xffff) as i64).sum::<i64>() - 131_070;
    let value = sum as f32 / 37_837.0;
    match dtype {
        DType::F16 => out.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
        // Any finite code of moderate exponent (2^-4 to 2^1): the op only has to read it.
        DType::E4m3 => out[0] = ((r >> 8 & 0x80) | (3 + r % 6) << 3 | (r >> 4 & 7)) as u8,
        _ => out.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
    }
}

/// Rounds to an element type, as the kernels store.
pub fn round(dtype: DType, v: f64) -> f64 {
    match dtype {
        DType::Bf16 => bf16::from_f64(v).to_f64(),
        DType::F16 => f16::from_f64(v).to_f64(),
        DType::E4m3 => {
            let a = v.abs().min(448.0);
            let step = (a.max(0.015_625).log2().floor() - 3.0).exp2();
            ((a / step).round_ties_even() * step).min(448.0).copysign(v)
        }
        _ => v,
    }
}

/// Half-split rotation (Llama's rotate_half) of one head in place; `cos_sin` is a row of the table.
pub fn rotate(head: &mut [f64], cos_sin: &[f64]) {
    let half = head.len() / 2;
    for i in 0..half {
        let (a, b, c, s) = (head[i], head[i + half], cos_sin[i], cos_sin[half + i]);
        head[i] = a * c - b * s;
        head[i + half] = b * c + a * s;
    }
}

/// Reads rows of one cache.
struct Cache<'a> {
    s: &'a Spec,
    name: &'static str,
    view: &'a dyn View,
    /// The whole cache, where it is small.
    whole: Option<Vec<f64>>,
    /// Number and elements of the page read last, where it is large.
    page: (u64, Vec<f64>),
}

impl<'a> Cache<'a> {
    fn new(s: &'a Spec, name: &'static str, view: &'a dyn View) -> OpResult<Self> {
        let whole = if s.pool() <= READ_WHOLE { Some(view.read(name, 0, s.pool())?) } else { None };
        Ok(Self { s, name, view, whole, page: (u64::MAX, Vec::new()) })
    }
    fn row(&mut self, id: u64, slot: u64, head: u64) -> OpResult<Vec<f64>> {
        let (d, at) = (self.s.d as usize, self.s.element(id, slot, head));
        if let Some(whole) = &self.whole {
            return Ok(whole[at as usize..at as usize + d].to_vec());
        }
        let page = self.s.strides().0;
        if self.page.0 != id {
            self.page = (id, self.view.read(self.name, id * page, page)?);
        }
        let within = (at - id * page) as usize;
        Ok(self.page.1[within..within + d].to_vec())
    }
}

/// Compares out and lse, and with `fused` the appended rows, with the reference.
///
/// # Errors
/// A buffer that the view does not have.
pub fn check(s: &Spec, view: &dyn View) -> OpResult<Vec<Check>> {
    if s.batch() == 0 {
        return Ok(Vec::new());
    }
    let table = view.read("page_table", 0, s.batch() * s.max_pages())?;
    let lens = view.read("seq_lens", 0, s.batch())?;
    let mut keys = Cache::new(s, "k_cache", view)?;
    let mut values = Cache::new(s, "v_cache", view)?;
    let (mut got, mut want) = (Vec::new(), Vec::new());
    let (mut got_lse, mut want_lse) = (Vec::new(), Vec::new());
    let mut rows = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    let mut intruded = None;
    for pair in pairs(s) {
        let (b, kv) = (pair / s.kv_heads, pair % s.kv_heads);
        let len = (lens[b as usize].max(0.0) as u64).min(s.max_pages() * s.page);
        let place = |t: u64| (table[(b * s.max_pages() + t / s.page) as usize] as u64, t % s.page);
        let first = kv * s.group();
        let mut queries = read_queries(s, view, b, kv, len)?;
        if s.fused && len > 0 {
            let (id, slot) = place(len - 1);
            let (k, v) = new_token(s, view, b, kv, len)?;
            rows[0].0.extend(keys.row(id, slot, kv)?);
            rows[0].1.extend(k);
            rows[1].0.extend(values.row(id, slot, kv)?);
            rows[1].1.extend(v);
            // The slot after the new token was NaN and must have stayed so.
            if super::poisoned(s) && slot + 1 < s.page && keys.row(id, slot + 1, kv)?.iter().any(|x| !x.is_nan()) {
                intruded = Some(format!("request {b}, kv head {kv}: the slot after the new token was written"));
            }
        }
        let mut scores = vec![Vec::with_capacity(len as usize); queries.len()];
        for t in 0..len {
            let (id, slot) = place(t);
            let k = keys.row(id, slot, kv)?;
            for (q, out) in queries.iter().zip(&mut scores) {
                out.push(q.iter().zip(&k).map(|(a, b)| a * b).sum::<f64>() * s.scale * s.k_scale);
            }
        }
        let mut weights = Vec::new();
        for x in &scores {
            let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = x.iter().map(|v| (v - top).exp()).sum();
            want_lse.push(if len == 0 { f64::NEG_INFINITY } else { top + sum.ln() });
            weights.push(x.iter().map(|v| (v - top).exp() / sum).collect::<Vec<f64>>());
        }
        queries.iter_mut().for_each(|q| q.fill(0.0));
        for t in 0..len {
            let (id, slot) = place(t);
            let v = values.row(id, slot, kv)?;
            for (w, out) in weights.iter().zip(&mut queries) {
                for (o, x) in out.iter_mut().zip(&v) {
                    *o += w[t as usize] * x * s.v_scale;
                }
            }
        }
        want.extend(queries.into_iter().flatten());
        got.extend(view.read("out", (b * s.heads + first) * s.d, s.group() * s.d)?);
        got_lse.extend(view.read("lse", b * s.heads + first, s.group())?);
    }
    let eps = s.dtype.epsilon();
    let mut checks = vec![
        Check::compare("out", &got, &want, 2.0 * eps),
        // Scores are sums of d products in fp32; the rotation of fused queries may round an element the other way.
        Check::compare("lse", &got_lse, &want_lse, if s.fused { eps } else { 2e-4 }),
    ];
    if s.fused {
        for (name, (got, want)) in ["k_cache", "v_cache"].into_iter().zip(&rows) {
            // Correctly rounded, but for products that fp32 puts on the other side of a tie.
            let mut check = Check::compare(name, got, want, s.kv.epsilon() / 2.0);
            check.broken = check.broken.or(intruded.take());
            checks.push(check);
        }
    }
    Ok(checks)
}

/// The (request, kv head) pairs to compare: all, or an even sample with the first and last.
fn pairs(s: &Spec) -> Vec<u64> {
    let all = s.batch() * s.kv_heads;
    let tokens: u64 = s.lens.iter().sum::<u64>() * s.heads;
    if s.pool() <= READ_WHOLE && tokens <= 1 << 18 || all <= SAMPLES {
        return (0..all).collect();
    }
    (0..SAMPLES).map(|i| i * (all - 1) / (SAMPLES - 1)).collect()
}

/// The query heads of a kv head, as the kernel uses them: with `fused` rotated and rounded to the op's type.
fn read_queries(s: &Spec, view: &dyn View, b: u64, kv: u64, len: u64) -> OpResult<Vec<Vec<f64>>> {
    let (name, row) = if s.fused { ("qkv", s.qkv_row()) } else { ("q", s.heads * s.d) };
    let flat = view.read(name, b * row + kv * s.group() * s.d, s.group() * s.d)?;
    let mut heads: Vec<Vec<f64>> = flat.chunks(s.d as usize).map(<[f64]>::to_vec).collect();
    if s.fused && len > 0 {
        let cos_sin = view.read("cos_sin", (len - 1).min(s.max_ctx - 1) * s.d, s.d)?;
        for head in &mut heads {
            rotate(head, &cos_sin);
            head.iter_mut().for_each(|x| *x = round(s.dtype, *x));
        }
    }
    Ok(heads)
}

/// The new token's rows as the cache must hold them.
fn new_token(s: &Spec, view: &dyn View, b: u64, kv: u64, len: u64) -> OpResult<(Vec<f64>, Vec<f64>)> {
    let cos_sin = view.read("cos_sin", (len - 1).min(s.max_ctx - 1) * s.d, s.d)?;
    let at = b * s.qkv_row() + (s.heads + kv) * s.d;
    let mut k = view.read("qkv", at, s.d)?;
    let mut v = view.read("qkv", at + s.kv_heads * s.d, s.d)?;
    rotate(&mut k, &cos_sin);
    k.iter_mut().for_each(|x| *x = round(s.kv, *x / s.k_scale));
    v.iter_mut().for_each(|x| *x = round(s.kv, *x / s.v_scale));
    Ok((k, v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4m3_rounds_to_its_grid() {
        for (v, want) in [(0.0, 0.0), (1.0, 1.0), (1.06, 1.0), (1.07, 1.125), (-500.0, -448.0), (0.002, 0.001_953_125)]
        {
            assert_eq!(round(DType::E4m3, v), want, "{v}");
        }
        assert_eq!(round(DType::E4m3, 1.062_5), 1.0, "ties go to even");
    }

    #[test]
    fn rotation_by_a_right_angle() {
        let mut head = [1.0, 2.0, 3.0, 4.0];
        rotate(&mut head, &[0.0, 1.0, 1.0, 0.0]);
        assert_eq!(head, [-3.0, 2.0, 1.0, 4.0]);
    }
}
