//! What a matmul is asked to do, read from a shape and checked once.

use crate::op::{Buffer, Cost, DType, Init, OpResult, Shape, Unit};
use half::{bf16, f16};

/// What happens to a finished sum before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    None,
    /// `out = residual + sum`
    Residual,
    /// `out[j] = silu(sum over row j) * (sum over row n/2 + j)`
    SiluMul,
}

/// `out[m, cols] = post(pre(x)[m, k] · w[n, k]ᵀ)`, everything row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    /// Type of x, w, norm, residual.
    pub dtype: DType,
    /// Type of out: `dtype` or f32.
    pub out: DType,
    /// Whether x is RMS-normalised first.
    pub pre: bool,
    pub post: Post,
    pub eps: f32,
    /// Infinities, NaNs and partial sums beyond fp16's range in x, to test how they travel.
    pub special: bool,
    /// A row of the variant's configuration table instead of the heuristic's choice, for experiments.
    pub cfg: Option<usize>,
}

/// Largest m, n and k: kernels index rows and columns by 32 bits (elements by 64) and round k up to whole tiles.
const LIMIT: u64 = 1 << 30;

impl Problem {
    /// Reads a shape.
    ///
    /// # Errors
    /// A missing or unreadable key, a dtype other than bf16 or f16, k of 0, an odd n with silu_mul, a size beyond 2^30,
    /// more than 2^40 outputs.
    pub fn of(shape: &Shape) -> OpResult<Self> {
        let dtype = shape.dtype()?;
        if !matches!(dtype, DType::Bf16 | DType::F16) {
            return Err(crate::op_error!("matmul takes dtype bf16 or f16, not {}", dtype.name()));
        }
        let out = shape.dtype_or("out", dtype)?;
        if out != dtype && out != DType::F32 {
            return Err(crate::op_error!("matmul's out is its dtype ({}) or f32, not {}", dtype.name(), out.name()));
        }
        let p = Self {
            m: shape.int("m")?,
            n: shape.int("n")?,
            k: shape.int("k")?,
            dtype,
            out,
            pre: shape.choice("pre", &["none", "rmsnorm"])? == "rmsnorm",
            post: match shape.choice("post", &["none", "residual", "silu_mul"])? {
                "residual" => Post::Residual,
                "silu_mul" => Post::SiluMul,
                _ => Post::None,
            },
            eps: shape.float_or("eps", 1e-5)? as f32,
            special: shape.choice("values", &["normal", "special"])? == "special",
            cfg: if shape.word("cfg").is_some() { Some(shape.int("cfg")? as usize) } else { None },
        };
        for (name, size) in [("m", p.m), ("n", p.n), ("k", p.k)] {
            if size > LIMIT {
                return Err(crate::op_error!("{name}={size} is beyond 2^30"));
            }
        }
        // Tiles are counted, and blocks numbered, by 32 bits.
        if p.m * p.n > 1 << 40 {
            return Err(crate::op_error!("m={} times n={} is beyond 2^40 outputs", p.m, p.n));
        }
        if p.k == 0 {
            return Err(crate::op_error!("k=0: a sum over nothing; k must be at least 1"));
        }
        if p.post == Post::SiluMul && !p.n.is_multiple_of(2) {
            return Err(crate::op_error!("post=silu_mul needs an even n (gate rows, then up rows), not n={}", p.n));
        }
        Ok(p)
    }

    /// Columns of the output.
    pub fn cols(&self) -> u64 {
        if self.post == Post::SiluMul { self.n / 2 } else { self.n }
    }

    /// Whether there is nothing to compute.
    pub fn empty(&self) -> bool {
        self.m == 0 || self.n == 0
    }

    /// Every input once, the output once, 2 m n k operations.
    pub fn cost(&self) -> Cost {
        let size = self.dtype.size();
        let once = if self.empty() { 0 } else { size };
        Cost::new(Unit::Tensor16, 2 * self.m * self.n * self.k)
            .read("weights", self.n * self.k * once)
            .read("x", self.m * self.k * once)
            .read("norm", if self.pre { self.k * once } else { 0 })
            .read("residual", if self.post == Post::Residual { self.m * self.n * once } else { 0 })
            .write("out", self.m * self.cols() * self.out.size())
    }

    /// The arrays, in argument order. Weights have standard deviation 1/√k, so that outputs are about normal.
    pub fn buffers(&self) -> Vec<Buffer> {
        let (x, w) = if self.special {
            (Init::Bytes(self.special_x()), Init::Uniform { lo: 0.5, hi: 1.5 })
        } else {
            (Init::Normal { std: 1.0 }, Init::Normal { std: 1.0 / (self.k as f32).sqrt() })
        };
        let mut all = vec![
            Buffer::input("x", self.dtype, self.m * self.k, x),
            Buffer::input("w", self.dtype, self.n * self.k, w),
        ];
        if self.pre {
            all.push(Buffer::input("norm", self.dtype, self.k, Init::Uniform { lo: 0.5, hi: 1.5 }));
        }
        if self.post == Post::Residual {
            all.push(Buffer::input("residual", self.dtype, self.m * self.n, Init::Normal { std: 1.0 }));
        }
        all.push(Buffer::output("out", self.out, self.m * self.cols()));
        all
    }

    /// Rows in turn: an infinity; a NaN; ±200 whose partial sums pass 65504 before they cancel; ordinary values.
    fn special_x(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((self.m * self.k * 2) as usize);
        for row in 0..self.m {
            for i in 0..self.k {
                let v = match row % 4 {
                    0 if i == self.k / 2 => f32::INFINITY,
                    1 if i + 1 == self.k => f32::NAN,
                    2 if i < self.k / 2 => 200.0,
                    2 => -200.0,
                    _ => ((i * 7 + row) % 13) as f32 / 8.0 - 0.75,
                };
                let bits =
                    if self.dtype == DType::F16 { f16::from_f32(v).to_bits() } else { bf16::from_f32(v).to_bits() };
                bytes.extend(bits.to_le_bytes());
            }
        }
        bytes
    }
}
