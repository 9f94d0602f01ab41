//! What softmax's arrays hold in a check: masks that mask whole rows, rows of NaN and extremes; and the edge shapes.

use super::{Mask, Size};
use crate::op::{Buffer, DType, Init, OpResult, Rng, Shape};

fn encode(dtype: DType, value: f32, out: &mut Vec<u8>) {
    match dtype {
        DType::F16 => out.extend(half::f16::from_f32(value).to_le_bytes()),
        DType::F32 => out.extend(value.to_le_bytes()),
        _ => out.extend(half::bf16::from_f32(value).to_le_bytes()),
    }
}

/// A mask that leaves about three quarters. Of several rows the first masks everything; the second one whole half.
pub fn mask(s: &Size, seed: u64) -> Buffer {
    let (rows, cols) = (s.mask_rows, s.cols);
    let mut rng = Rng(seed ^ 0x6d61_736b);
    let mut keep = move |row: u64, col: u64| match row {
        0 if rows > 2 => false,
        1 if rows > 2 => col >= cols / 2,
        _ => rng.range(0, 3) > 0,
    };
    let all = (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c)));
    let (dtype, bytes) = match s.mask {
        Mask::Additive => {
            let mut values = Rng(seed);
            let mut bytes = Vec::with_capacity((rows * cols * s.dtype.size()) as usize);
            for (r, c) in all {
                let value = values.range(0, 64) as f32 / 16.0 - 2.0;
                encode(s.dtype, if keep(r, c) { value } else { f32::NEG_INFINITY }, &mut bytes);
            }
            (s.dtype, bytes)
        }
        // Any byte but 0 keeps.
        _ => (DType::U8, all.map(|(r, c)| if keep(r, c) { 1 + (c % 255) as u8 } else { 0 }).collect()),
    };
    Buffer::input("mask", dtype, rows * cols, Init::Bytes(bytes))
}

/// Rows in turn: ordinary, one NaN, all -inf, one +inf, NaN among -inf, huge, far below any sentinel, half -inf.
pub fn special(s: &Size) -> OpResult<Init> {
    if s.rows * s.cols > 1 << 24 {
        return Err(crate::op_error!("softmax: values=special is for up to 2^24 elements, not {}", s.rows * s.cols));
    }
    let mut rng = Rng(s.cols);
    let mut bytes = Vec::new();
    let far = if s.dtype == DType::F16 { -6.5e4 } else { -1e38 };
    for row in 0..s.rows {
        for col in 0..s.cols {
            let ordinary = rng.range(0, 1000) as f32 / 250.0 - 2.0;
            let here = col == row * 7 % s.cols;
            let value = match row % 8 {
                1 if here => f32::NAN,
                2 => f32::NEG_INFINITY,
                3 if here => f32::INFINITY,
                4 => {
                    if here {
                        f32::NAN
                    } else {
                        f32::NEG_INFINITY
                    }
                }
                5 => ordinary * 3e4,
                6 => far,
                7 if col < s.cols / 2 => f32::NEG_INFINITY,
                _ => ordinary,
            };
            encode(s.dtype, value, &mut bytes);
        }
    }
    Ok(Init::Bytes(bytes))
}

pub fn edge_shapes() -> Vec<Shape> {
    let mut texts: Vec<String> = Vec::new();
    for dtype in ["bf16", "f16", "f32"] {
        for cols in [1u64, 7, 8, 33, 64, 65, 255, 256, 257, 500, 513, 1000, 1024, 1025, 2048, 3001] {
            texts.push(format!("rows=5,cols={cols},dtype={dtype}"));
        }
        for mask in ["bool", "additive", "causal"] {
            for (rows, cols, mask_rows) in
                [(9, 64, 9), (7, 129, 3), (6, 1027, 4), (5, 2048, 5), (13, 40, 13), (4, 5000, 4)]
            {
                texts.push(format!(
                    "rows={rows},cols={cols},mask={mask},mask_rows={mask_rows},scale=0.125,dtype={dtype}"
                ));
            }
        }
        for (rows, cols) in [(16, 5), (9, 100), (8, 777), (8, 2056)] {
            texts.push(format!("rows={rows},cols={cols},values=special,dtype={dtype}"));
            texts.push(format!("rows={rows},cols={cols},values=special,mask=causal,mask_rows=8,dtype={dtype}"));
            texts.push(format!("rows={rows},cols={cols},values=special,mask=bool,mask_rows=5,dtype={dtype}"));
        }
        texts.push(format!("rows=0,cols=64,dtype={dtype}"));
        texts.push(format!("rows=3,cols=0,dtype={dtype}"));
        texts.push(format!("rows=3,cols=20000,dtype={dtype}"));
        // 1024 vectors, none idle: enough rows for a chip that would give a few several blocks each.
        texts.push(format!("rows=140,cols={},dtype={dtype}", if dtype == "f32" { 4096 } else { 8192 }));
        texts.push(format!("rows=67,cols=200,dtype={dtype}"));
        texts.push(format!("rows=2,cols=50257,scale=-0.3,dtype={dtype}"));
        texts.push(format!("rows=1,cols=128256,dtype={dtype}"));
        texts.push(format!("rows=1,cols=280001,mask=causal,mask_rows=1,dtype={dtype}"));
        // More queries than keys: the first see nothing.
        texts.push(format!("rows=12,cols=5,mask=causal,mask_rows=12,dtype={dtype}"));
        texts.push(format!("rows=1000,cols=3,dtype={dtype}"));
        if dtype == "f16" {
            // Row 6 is one value throughout: the sum of its exponentials is beyond the range of f16.
            texts.push("rows=7,cols=66000,values=special,dtype=f16".into());
        }
    }
    for text in [
        "rows=3,cols=9000,cluster=2,warps=3,dtype=f32",
        "rows=5,cols=9001,cluster=4,warps=2",
        "rows=3,cols=9001,cluster=2,warps=7,mask=causal,mask_rows=3",
        "rows=70,cols=40008",
        // Between rows of eight and of sixteen blocks: a row's vectors in registers too.
        "rows=1,cols=950001",
        "rows=2,cols=470000,mask=causal,mask_rows=2,dtype=f32",
    ] {
        texts.push(text.into());
    }
    texts.push("rows=1000000,cols=16".into());
    texts.push("rows=4096,cols=4096,mask=causal,mask_rows=512,scale=0.0625".into());
    texts.iter().filter_map(|t| Shape::parse(t).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edge_shape_is_legal() {
        for shape in edge_shapes() {
            Size::of(&shape).unwrap_or_else(|e| panic!("{shape}: {e}"));
        }
    }

    #[test]
    fn masks_hold_a_fully_masked_row() {
        let s = Size::of(&Shape::parse("rows=4,cols=9,mask=bool").unwrap()).unwrap();
        let Init::Bytes(bytes) = mask(&s, 3).init else { panic!("bytes") };
        assert!(bytes[..9].iter().all(|b| *b == 0) && bytes[18..].iter().any(|b| *b != 0));
    }
}
