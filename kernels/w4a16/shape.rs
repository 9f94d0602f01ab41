//! The rules of a w4a16 shape in one place: what is read from the words, what is refused and with which numbers.

use crate::op::{DType, OpResult, Shape};
use crate::op_error;

/// What happens to `x` before the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pre {
    None,
    /// Rows are normalised by their root mean square and multiplied by `norm`.
    RmsNorm,
}

/// What happens to the product before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    None,
    Residual,
    /// Rows `0..n/2` of the weights are gate, `n/2..n` up; out = silu(gate) · up.
    SiluMul,
}

/// A checked shape.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub dtype: DType,
    /// Weights of a row that share a scale: 32, 64, 128, or 0 for the whole row.
    pub group: u64,
    pub asym: bool,
    pub pre: Pre,
    pub post: Post,
    pub out: DType,
    pub eps: f32,
    /// Standard deviation of the random `x`: 1000 makes sums that fp16 could not hold.
    pub amp: f32,
    /// Index into the variant's table of configurations; none: the heuristic's.
    pub cfg: Option<u64>,
}

/// Rows of a packed tile.
pub const TILE: u64 = 16;
/// Weights of a row in a packed chunk.
pub const CHUNK: u64 = 128;
/// Bytes of a packed chunk: 16 rows of 128 nibbles.
pub const CHUNK_BYTES: u64 = TILE * CHUNK / 2;

impl Spec {
    /// Reads and checks a shape.
    ///
    /// # Errors
    /// A missing or unreadable size, a group that is none of 32, 64, 128 and 0 or does not divide k, an odd n with
    /// `post=silu_mul`, sizes beyond 32-bit indices.
    pub fn read(shape: &Shape) -> OpResult<Self> {
        let (m, n, k) = (shape.int_or("m", 1)?, shape.int("n")?, shape.int("k")?);
        let dtype = shape.dtype()?;
        if !matches!(dtype, DType::Bf16 | DType::F16) {
            return Err(op_error!("w4a16: dtype={} is none of bf16, f16", dtype.name()));
        }
        let group = shape.int_or("group", 128)?;
        check_group(k, group)?;
        let post = match shape.choice("post", &["none", "residual", "silu_mul"])? {
            "residual" => Post::Residual,
            "silu_mul" => Post::SiluMul,
            _ => Post::None,
        };
        if post == Post::SiluMul && n % 2 != 0 {
            return Err(op_error!("w4a16: post=silu_mul halves n into gate and up rows; n={n} is odd"));
        }
        let out = shape.dtype_or("out", dtype)?;
        if out != dtype && out != DType::F32 {
            return Err(op_error!("w4a16: out={} is neither {} nor f32", out.name(), dtype.name()));
        }
        for (name, v) in [("m", m), ("n", n), ("k", k)] {
            if v > 1 << 30 {
                return Err(op_error!("w4a16: {name}={v} exceeds {}", 1u64 << 30));
            }
        }
        Ok(Self {
            m,
            n,
            k,
            dtype,
            group,
            asym: shape.choice("zeros", &["sym", "asym"])? == "asym",
            pre: if shape.choice("pre", &["none", "rmsnorm"])? == "rmsnorm" { Pre::RmsNorm } else { Pre::None },
            post,
            out,
            eps: shape.float_or("eps", 1e-5)? as f32,
            amp: shape.float_or("amp", 1.0)? as f32,
            cfg: shape.word("cfg").map(|_| shape.int("cfg")).transpose()?,
        })
    }

    /// Columns of `out`.
    pub fn out_n(&self) -> u64 {
        if self.post == Post::SiluMul { self.n / 2 } else { self.n }
    }
    /// Packed tiles of 16 rows.
    pub fn tiles(&self) -> u64 {
        self.n.div_ceil(TILE)
    }
    /// Packed chunks of a tile, 128 weights of each row.
    pub fn chunks(&self) -> u64 {
        self.k.div_ceil(CHUNK)
    }
    /// Groups of a row.
    pub fn groups(&self) -> u64 {
        self.k.checked_div(self.group).unwrap_or(1)
    }
    /// Groups of a row as packed: the last chunk is whole.
    pub fn packed_groups(&self) -> u64 {
        CHUNK.checked_div(self.group).map_or(1, |groups| self.chunks() * groups)
    }
    /// Groups of a row in `zeros`: rounded up to even, so that a tile begins at a multiple of 16 bytes.
    pub fn zero_groups(&self) -> u64 {
        self.packed_groups().next_multiple_of(2)
    }
    /// Groups that the kernels see in a chunk: 1, 2 or 4.
    pub fn groups_per_chunk(&self) -> u64 {
        CHUNK.checked_div(self.group).unwrap_or(1)
    }
    /// Nothing to compute.
    pub fn empty(&self) -> bool {
        self.m == 0 || self.n == 0
    }
}

/// Whether rows of `k` weights can be cut into groups; the error names the numbers.
///
/// # Errors
/// A group that is none of 32, 64, 128 and 0 (whole row), one that straddles a row's end, k = 0.
pub fn check_group(k: u64, group: u64) -> OpResult<()> {
    if k == 0 {
        return Err(op_error!("w4a16: k=0 has no weights"));
    }
    match group {
        0 => Ok(()),
        32 | 64 | 128 if k.is_multiple_of(group) => Ok(()),
        32 | 64 | 128 => {
            Err(op_error!("w4a16: k={k} is not a multiple of group={group} ({} weights are left over)", k % group))
        }
        _ => Err(op_error!("w4a16: group={group} is none of 32, 64, 128, 0 (whole row)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> OpResult<Spec> {
        Spec::read(&Shape::parse(text).unwrap())
    }

    #[test]
    fn refusals_name_the_numbers() {
        for (text, words) in [
            ("n=64,k=2880", "k=2880 is not a multiple of group=128 (64 weights are left over)"),
            ("n=64,k=7392", "k=7392 is not a multiple of group=128"),
            ("n=64,k=320", "k=320 is not a multiple of group=128"),
            ("n=64,k=128,group=96", "group=96 is none of 32, 64, 128, 0"),
            ("n=63,k=128,post=silu_mul", "n=63 is odd"),
            ("n=63,k=0", "k=0"),
            ("n=64,k=128,dtype=f32", "dtype=f32"),
            ("n=64,k=128,out=f16", "out=f16"),
        ] {
            let e = read(text).unwrap_err().0;
            assert!(e.contains(words), "{text}: {e}");
        }
    }

    #[test]
    fn smaller_groups_save_misaligned_k() {
        let s = read("n=17,k=2880,group=64").unwrap();
        assert_eq!((s.tiles(), s.chunks(), s.groups(), s.packed_groups()), (2, 23, 45, 46));
        let s = read("n=17,k=77,group=0").unwrap();
        assert_eq!((s.groups(), s.packed_groups(), s.groups_per_chunk()), (1, 1, 1));
    }
}
