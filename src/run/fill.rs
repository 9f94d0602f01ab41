//! What a buffer begins with, element by element: one definition for the host emulator and the GPU.
//!
//! Every element is a function of a key and its index alone, so any part of a buffer can be made anywhere and both
//! executors hold the same bits. `kernels/common/fill.cu` computes the same on the device, rounding step by rounding step.

use crate::error::{Error, Result};
use crate::op::{DType, Init, mix};
use half::{bf16, f16};

/// Standard deviation of the sum of four independent integers uniform in 0..65536.
pub const SUM_STD: f32 = 37_837.227;
/// Its mean.
pub const SUM_MEAN: i64 = 131_070;

/// The key of a buffer: differs by seed and by name (FNV-1a), so equal sizes never hold equal data.
pub fn key(seed: u64, name: &str) -> u64 {
    let hash =
        name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    mix(seed ^ hash)
}

/// One about normal value: the sum of four 16-bit uniforms, centred, times `std / SUM_STD` in f32.
pub fn normal(key: u64, index: u64, std: f32) -> f32 {
    let r = mix(key.wrapping_add(index));
    let sum = (0..4).map(|i| (r >> (16 * i) & 0xffff) as i64).sum::<i64>() - SUM_MEAN;
    sum as f32 * (std / SUM_STD)
}

/// One value uniform in [lo, hi): 24 bits, product and sum each rounded to f32.
pub fn uniform(key: u64, index: u64, lo: f32, hi: f32) -> f32 {
    let u = (mix(key.wrapping_add(index)) >> 40) as f32 * (1.0 / 16_777_216.0);
    lo + (hi - lo) * u
}

/// f32 to E4M3, nearest even, saturating at ±448; NaN to 0x7f.
pub fn e4m3(value: f32) -> u8 {
    let bits = value.to_bits();
    let (sign, magnitude) = ((bits >> 24 & 0x80) as u8, bits & 0x7fff_ffff);
    if magnitude > 0x7f80_0000 {
        return sign | 0x7f;
    }
    if magnitude >= 0x43e0_0000 {
        return sign | 0x7e; // 448 and above
    }
    if magnitude < 0x3c80_0000 {
        // Below 2^-6 the step is 2^-9: adding 1.5 * 2^14 rounds the product to an integer, ties to even.
        let steps = f32::from_bits(magnitude) * 512.0 + 12_582_912.0;
        return sign | (steps.to_bits() & 0xf) as u8;
    }
    let rounded = magnitude + 0x7_ffff + (magnitude >> 20 & 1);
    sign | ((rounded >> 20) - (120 << 3)).min(0x7e) as u8
}

/// The bytes of elements `first .. first + len` of a buffer.
///
/// `Init::Bits` is a run of 64-bit words, whatever the element type; integers take `Uniform` as floor, below `hi`.
///
/// # Errors
/// `Init::Bytes` that is not exactly as long as the buffer is caught by the executors, which know the length; here a
/// range outside it is an error. `Normal` has no meaning for integers.
pub fn bytes(init: &Init, dtype: DType, key: u64, first: u64, len: u64) -> Result<Vec<u8>> {
    let size = dtype.size();
    let floats = |value: &dyn Fn(u64) -> f32| -> Vec<u8> {
        let mut out = Vec::with_capacity((len * size) as usize);
        for i in first..first + len {
            encode(dtype, value(i), &mut out);
        }
        out
    };
    Ok(match init {
        Init::Normal { std } => {
            if matches!(dtype, DType::U8 | DType::I32 | DType::U32 | DType::I64) {
                return Err(Error::usage(format!("a buffer of {} cannot begin normal", dtype.name())));
            }
            floats(&|i| normal(key, i, *std))
        }
        Init::Uniform { lo, hi } => match dtype {
            DType::U8 | DType::I32 | DType::U32 | DType::I64 => {
                floats(&|i| uniform(key, i, *lo, *hi).floor().min(*hi - 1.0).max(*lo))
            }
            _ => floats(&|i| uniform(key, i, *lo, *hi)),
        },
        Init::Bits => (first * size..(first + len) * size)
            .map(|b| mix(key.wrapping_add(b / 8)).to_le_bytes()[(b % 8) as usize])
            .collect(),
        Init::Bytes(data) => {
            let (from, to) = ((first * size) as usize, ((first + len) * size) as usize);
            data.get(from..to)
                .ok_or_else(|| Error::usage(format!("bytes {from}..{to} of initial contents of {} bytes", data.len())))?
                .to_vec()
        }
        Init::Zero => vec![0; (len * size) as usize],
        Init::Poison => vec![0xff; (len * size) as usize],
    })
}

fn encode(dtype: DType, value: f32, out: &mut Vec<u8>) {
    match dtype {
        DType::F32 => out.extend(value.to_le_bytes()),
        DType::Bf16 => out.extend(bf16::from_f32(value).to_le_bytes()),
        DType::F16 => out.extend(f16::from_f32(value).to_le_bytes()),
        DType::E4m3 => out.push(e4m3(value)),
        DType::U8 => out.push(value as u8),
        DType::I32 => out.extend((value as i32).to_le_bytes()),
        DType::U32 => out.extend((value as u32).to_le_bytes()),
        DType::I64 => out.extend((value as i64).to_le_bytes()),
    }
}

/// Element `index` of raw little-endian memory, widened to f64.
pub fn decode(dtype: DType, raw: &[u8], index: usize) -> f64 {
    let at = index * dtype.size() as usize;
    let four = |i: usize| [raw[i], raw[i + 1], raw[i + 2], raw[i + 3]];
    match dtype {
        DType::F32 => f64::from(f32::from_le_bytes(four(at))),
        DType::Bf16 => bf16::from_le_bytes([raw[at], raw[at + 1]]).to_f64(),
        DType::F16 => f16::from_le_bytes([raw[at], raw[at + 1]]).to_f64(),
        DType::E4m3 => e4m3_value(raw[at]),
        DType::U8 => f64::from(raw[at]),
        DType::I32 => f64::from(i32::from_le_bytes(four(at))),
        DType::U32 => f64::from(u32::from_le_bytes(four(at))),
        DType::I64 => i64::from_le_bytes(raw[at..at + 8].try_into().expect("eight bytes")) as f64,
    }
}

/// The value of an E4M3 byte.
pub fn e4m3_value(byte: u8) -> f64 {
    let (exponent, fraction) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f64::NAN,
        (0, _) => fraction * 2f64.powi(-9),
        _ => (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_has_the_moments_it_claims() {
        let v: Vec<f64> = (0..200_000).map(|i| f64::from(normal(key(1, "x"), i, 2.0))).collect();
        let mean = v.iter().sum::<f64>() / v.len() as f64;
        let std = (v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / v.len() as f64).sqrt();
        assert!(mean.abs() < 0.02 && (std - 2.0).abs() < 0.02, "mean {mean}, std {std}");
    }

    #[test]
    fn parts_agree_with_the_whole() {
        for dtype in [DType::F32, DType::Bf16, DType::E4m3] {
            let (k, size) = (key(3, "w"), dtype.size() as usize);
            for init in [Init::Normal { std: 1.0 }, Init::Bits, Init::Uniform { lo: -1.0, hi: 1.0 }] {
                let whole = bytes(&init, dtype, k, 0, 101).unwrap();
                assert_eq!(whole[13 * size..], bytes(&init, dtype, k, 13, 88).unwrap(), "{init:?} {dtype:?}");
            }
        }
    }

    #[test]
    fn integers_stay_below_the_bound() {
        let raw = bytes(&Init::Uniform { lo: 0.0, hi: 7.0 }, DType::I32, key(1, "ids"), 0, 5_000).unwrap();
        let v: Vec<f64> = (0..5_000).map(|i| decode(DType::I32, &raw, i)).collect();
        assert!(v.iter().all(|x| (0.0..7.0).contains(x)) && v.contains(&0.0) && v.contains(&6.0));
        assert!(bytes(&Init::Normal { std: 1.0 }, DType::I32, 0, 0, 1).is_err());
    }

    #[test]
    fn e4m3_rounds_to_the_nearest() {
        for byte in 0..=0x7e {
            assert_eq!(e4m3(e4m3_value(byte) as f32), byte);
        }
        // Between each pair of neighbours: below the middle goes down, above goes up, the middle to the even one.
        for byte in 0..0x7e_u8 {
            let (a, b) = (e4m3_value(byte) as f32, e4m3_value(byte + 1) as f32);
            let middle = (a + b) / 2.0;
            assert_eq!(e4m3(middle), if byte % 2 == 0 { byte } else { byte + 1 });
            assert_eq!(e4m3(middle * 0.999), byte);
            assert_eq!(e4m3(-middle * 1.001), 0x80 | (byte + 1));
        }
        assert_eq!((e4m3(1e9), e4m3(f32::NAN)), (0x7e, 0x7f));
    }
}
