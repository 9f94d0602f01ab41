//! GPTQ and AWQ checkpoint tensors to the packed layout.
//!
//! GPTQ: `qweight` u32 \[k/8, n\], nibble i of word \[r, c\] is q\[8r + i, c\]; `qzeros` u32 \[groups, n/8\], nibble i of
//! word \[g, c\] belongs to column 8c + i; `scales` \[groups, n\]; with act-order `g_idx` \[k\] gives each input its group.
//! AWQ: `qweight` u32 \[k, n/8\] and `qzeros` u32 \[groups, n/8\], nibble i belongs to column 8c + ORDER\[i\] in both;
//! `scales` \[groups, n\]. Here "column" is an output: a row of our matrix.

use super::layout::Packed;
use super::quantize::to_16;
use super::shape::{Post, Pre, Spec, check_group};
use crate::op::{DType, OpResult};
use crate::op_error;

/// AWQ's interleave: nibble i of a word holds output 8c + ORDER\[i\].
pub const AWQ_ORDER: [u64; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// How a GPTQ checkpoint stores zero points. The tensors look alike: `checkpoint_format` in `quantize_config.json` tells
/// (`gptq_v2`; `gptq` or nothing is v1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroConvention {
    /// z − 1 is stored, modulo 16: 15 means 0.
    V1,
    /// z is stored.
    V2,
}

impl ZeroConvention {
    /// The convention that a `checkpoint_format` names.
    ///
    /// # Errors
    /// Another word, a Marlin-packed checkpoint for one.
    pub fn of_format(checkpoint_format: &str) -> OpResult<Self> {
        match checkpoint_format {
            "" | "gptq" => Ok(Self::V1),
            "gptq_v2" => Ok(Self::V2),
            other => Err(op_error!("checkpoint_format `{other}` is none of gptq, gptq_v2")),
        }
    }
    fn zero(self, stored: u8) -> u8 {
        match self {
            Self::V1 => stored.wrapping_add(1) & 15,
            Self::V2 => stored,
        }
    }
}

/// The tensors of one GPTQ layer.
#[derive(Clone, Copy, Debug)]
pub struct Gptq<'a> {
    pub n: u64,
    pub k: u64,
    /// 32, 64, 128, or 0 for the whole row (`group_size` −1).
    pub group: u64,
    pub zeros: ZeroConvention,
    pub qweight: &'a [u32],
    pub qzeros: &'a [u32],
    pub scales: &'a [f32],
    pub g_idx: Option<&'a [u32]>,
}

/// The tensors of one AWQ layer.
#[derive(Clone, Copy, Debug)]
pub struct Awq<'a> {
    pub n: u64,
    pub k: u64,
    pub group: u64,
    pub qweight: &'a [u32],
    pub qzeros: &'a [u32],
    pub scales: &'a [f32],
}

fn expect(name: &str, got: usize, rows: u64, cols: u64) -> OpResult<()> {
    if got as u64 == rows * cols {
        return Ok(());
    }
    Err(op_error!("{name} has {got} elements, {rows} x {cols} = {} expected", rows * cols))
}

fn multiple(name: &str, v: u64, of: u64) -> OpResult<()> {
    if v.is_multiple_of(of) {
        Ok(())
    } else {
        Err(op_error!("{name}={v} is not a multiple of {of}: words hold {of} values"))
    }
}

fn spec(n: u64, k: u64, group: u64, dtype: DType, asym: bool) -> Spec {
    let (pre, post) = (Pre::None, Post::None);
    Spec { m: 1, n, k, dtype, group, asym, pre, post, out: dtype, eps: 1e-5, amp: 1.0, cfg: None }
}

/// Packs from accessors: q\[input, output\], zero point and scale \[group, output\]. Symmetric where every zero point is 8.
fn pack(
    (n, k, group, dtype): (u64, u64, u64, DType),
    q: impl Fn(u64, u64) -> u8,
    zero: impl Fn(u64, u64) -> u8,
    scales: &[f32],
    perm: Option<Vec<u32>>,
) -> OpResult<(Spec, Packed)> {
    let groups = k.checked_div(group).unwrap_or(1);
    let asym = (0..groups).any(|g| (0..n).any(|o| zero(g, o) != 8));
    let spec = spec(n, k, group, dtype, asym);
    let mut packed = Packed::new(&spec);
    for out in 0..n {
        for g in 0..groups {
            let scale = scales[(g * n + out) as usize];
            let (rounded, bits) = to_16(scale, dtype);
            if !rounded.is_finite() {
                return Err(op_error!("scale [{g}, {out}] = {scale} is not finite in {}", dtype.name()));
            }
            packed.set_scale(&spec, out, g, bits);
            if asym {
                packed.set_zero(&spec, out, g, zero(g, out));
            }
        }
        for col in 0..k {
            let input = perm.as_ref().map_or(col, |p| u64::from(p[col as usize]));
            packed.set_q(&spec, out, col, q(input, out));
        }
    }
    packed.perm = perm;
    Ok((spec, packed))
}

/// Inputs sorted by group, or none where they already are.
///
/// # Errors
/// A group index out of range, or a group with more or fewer inputs than the others.
fn act_order(g_idx: &[u32], group: u64, groups: u64) -> OpResult<Option<Vec<u32>>> {
    let mut count = vec![0u64; groups as usize];
    for (i, g) in g_idx.iter().enumerate() {
        *count.get_mut(*g as usize).ok_or_else(|| op_error!("g_idx[{i}]={g}, but there are {groups} groups"))? += 1;
    }
    let width = if group == 0 { g_idx.len() as u64 } else { group };
    if let Some((g, c)) = count.iter().enumerate().find(|(_, c)| **c != width) {
        return Err(op_error!("g_idx gives group {g} {c} inputs, group={width} expected"));
    }
    let mut perm: Vec<u32> = (0..g_idx.len() as u32).collect();
    perm.sort_by_key(|i| g_idx[*i as usize]);
    Ok(if perm.iter().enumerate().all(|(i, p)| i as u32 == *p) { None } else { Some(perm) })
}

/// Packs a GPTQ layer; [`Packed::perm`] is set where act-order needs x permuted.
///
/// # Errors
/// Sizes that disagree (the tensor and both sizes are named), a group that does not divide k, a bad `g_idx`, scales that
/// the 16-bit type cannot hold.
pub fn gptq(t: &Gptq<'_>, dtype: DType) -> OpResult<(Spec, Packed)> {
    check_group(t.k, t.group)?;
    multiple("k", t.k, 8)?;
    multiple("n", t.n, 8)?;
    let groups = t.k.checked_div(t.group).unwrap_or(1);
    expect("qweight", t.qweight.len(), t.k / 8, t.n)?;
    expect("qzeros", t.qzeros.len(), groups, t.n / 8)?;
    expect("scales", t.scales.len(), groups, t.n)?;
    let perm = match t.g_idx {
        None => None,
        Some(g_idx) => {
            expect("g_idx", g_idx.len(), 1, t.k)?;
            act_order(g_idx, t.group, groups)?
        }
    };
    let nibble = |words: &[u32], at: u64, i: u64| (words[at as usize] >> (4 * i) & 15) as u8;
    pack(
        (t.n, t.k, t.group, dtype),
        |input, out| nibble(t.qweight, input / 8 * t.n + out, input % 8),
        |g, out| t.zeros.zero(nibble(t.qzeros, g * (t.n / 8) + out / 8, out % 8)),
        t.scales,
        perm,
    )
}

/// Packs an AWQ layer.
///
/// # Errors
/// As [`gptq`].
pub fn awq(t: &Awq<'_>, dtype: DType) -> OpResult<(Spec, Packed)> {
    check_group(t.k, t.group)?;
    multiple("n", t.n, 8)?;
    let groups = t.k.checked_div(t.group).unwrap_or(1);
    expect("qweight", t.qweight.len(), t.k, t.n / 8)?;
    expect("qzeros", t.qzeros.len(), groups, t.n / 8)?;
    expect("scales", t.scales.len(), groups, t.n)?;
    // Where in a word the output 8c + i lies.
    let mut slot = [0u64; 8];
    for (i, o) in AWQ_ORDER.iter().enumerate() {
        slot[*o as usize] = i as u64;
    }
    let nibble = |words: &[u32], row: u64, out: u64| {
        (words[(row * (t.n / 8) + out / 8) as usize] >> (4 * slot[(out % 8) as usize]) & 15) as u8
    };
    pack(
        (t.n, t.k, t.group, dtype),
        |input, out| nibble(t.qweight, input, out),
        |g, out| nibble(t.qzeros, g, out),
        t.scales,
        None,
    )
}

#[cfg(test)]
#[path = "repack_tests.rs"]
mod tests;
