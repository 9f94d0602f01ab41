//! `softmax`: scale, mask and softmax over rows. The ladder of a memory-bound op: the work is to touch each element once.

mod choose;
mod contents;
mod launch;
mod reference;

use crate::op::{
    Arch, Bindings, Buffer, Check, Chip, Cost, DType, Dim, Init, Launch, Op, OpResult, Rng, Shape, Unit, Variant, View,
};

pub struct Softmax;

/// What a row may not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    None,
    /// A byte for each element; 0 masks.
    Bool,
    /// A score to add, of the element type; -inf masks.
    Additive,
    /// Column c of query q is seen where c <= q + cols - mask_rows: the last query sees everything.
    Causal,
}

/// `softmax`'s sizes, checked.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub rows: u64,
    pub cols: u64,
    pub dtype: DType,
    pub mask: Mask,
    /// Row r has mask row r % mask_rows; under [`Mask::Causal`] the number of queries.
    pub mask_rows: u64,
    pub scale: f64,
    /// Whether some rows hold NaN, infinities and extremes.
    pub special: bool,
    pub tuning: Tuning,
}

/// What a shape may ask of a variant instead of the choice's own; 0 and `None` leave it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tuning {
    /// Blocks of a row (bulk).
    pub blocks: u64,
    /// Warps of a block (bulk).
    pub warps: u64,
}

impl Size {
    pub fn of(shape: &Shape) -> OpResult<Self> {
        let (rows, cols) = (shape.int("rows")?, shape.int("cols")?);
        let mask = match shape.choice("mask", &["none", "bool", "additive", "causal"])? {
            "bool" => Mask::Bool,
            "additive" => Mask::Additive,
            "causal" => Mask::Causal,
            _ => Mask::None,
        };
        let size = Self {
            rows,
            cols,
            dtype: shape.dtype()?,
            mask,
            mask_rows: shape.int_or("mask_rows", if mask == Mask::Causal { cols } else { rows })?,
            scale: shape.float_or("scale", 1.0)?,
            special: shape.choice("values", &["normal", "special"])? == "special",
            tuning: Tuning { blocks: shape.int_or("cluster", 0)?, warps: shape.int_or("warps", 0)? },
        };
        if ![0, 1, 2, 4, 8].contains(&size.tuning.blocks) || size.tuning.warps > 32 {
            return Err(crate::op_error!(
                "softmax: cluster={} is none of 1, 2, 4, 8 or warps={} is above 32",
                size.tuning.blocks,
                size.tuning.warps
            ));
        }
        if !matches!(size.dtype, DType::Bf16 | DType::F16 | DType::F32) {
            return Err(crate::op_error!("softmax: dtype={} is none of bf16, f16, f32", size.dtype.name()));
        }
        if cols > 1 << 30 {
            return Err(crate::op_error!("softmax: cols={cols} is above 2^30, where column arithmetic is 32-bit"));
        }
        if rows.checked_mul(cols).is_none_or(|n| n > 1 << 40) {
            return Err(crate::op_error!("softmax: rows={rows} times cols={cols} is above 2^40 elements"));
        }
        if mask != Mask::None && rows > 0 && (size.mask_rows == 0 || size.mask_rows > i32::MAX as u64) {
            return Err(crate::op_error!("softmax: mask_rows={} is not in 1..2^31", size.mask_rows));
        }
        Ok(size)
    }
    /// Columns that a row sees under a structural mask.
    pub fn limit(&self, row: u64) -> u64 {
        match self.mask {
            Mask::Causal => (row % self.mask_rows + 1 + self.cols).saturating_sub(self.mask_rows).min(self.cols),
            _ => self.cols,
        }
    }
    /// Elements that must be read of x: a causal mask leaves about half.
    pub fn seen(&self) -> u64 {
        if self.mask != Mask::Causal {
            return self.rows * self.cols;
        }
        // Over one period the limits run up to cols; the first of them may be 0.
        let sum_to = |queries: u64| {
            let top = self.limit(queries.saturating_sub(1));
            let terms = queries.min(top);
            terms * top - terms * terms.saturating_sub(1) / 2
        };
        self.rows / self.mask_rows * sum_to(self.mask_rows) + sum_to(self.rows % self.mask_rows)
    }
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }
    fn about(&self) -> &'static str {
        "out = softmax(x * scale + mask) over the columns; a fully masked row gives 0, a NaN makes its row NaN"
    }
    fn dims(&self) -> &'static [Dim] {
        &[
            Dim { key: "rows", default: "", about: "rows (batch times heads times queries)" },
            Dim { key: "cols", default: "", about: "columns (keys)" },
            Dim { key: "scale", default: "1", about: "factor before the mask" },
            Dim {
                key: "mask",
                default: "none",
                about: "none, bool (bytes, 0 masks), additive (element type) or causal",
            },
            Dim {
                key: "mask_rows",
                default: "rows",
                about: "row r takes mask row r % mask_rows; causal: queries (default cols)",
            },
            Dim { key: "values", default: "normal", about: "normal, or special: rows of NaN, infinities and extremes" },
            Dim { key: "dtype", default: "bf16", about: "bf16, f16 or f32, of x, out and an additive mask" },
            Dim { key: "cluster", default: "by row", about: "blocks of a row: 1, 2, 4, 8 (bulk)" },
            Dim { key: "warps", default: "by row", about: "warps of a block, up to 32 (bulk)" },
        ]
    }
    fn variants(&self) -> &'static [Variant] {
        const fn cu(name: &'static str, file: &'static str, archs: &'static [Arch], about: &'static str) -> Variant {
            Variant { name, file, archs, emulated: true, about }
        }
        const {
            &[
                cu("three_pass", "three_pass.cu", Arch::ALL, "maximum, sum, quotient: three reads, element by element"),
                cu(
                    "online",
                    "online.cu",
                    Arch::ALL,
                    "maximum and sum in one pass: two reads, 16-byte loads, any length",
                ),
                cu("fused", "fused.cu", Arch::ALL, "the row in registers: one read, one write, one barrier"),
                cu(
                    "cluster",
                    "cluster.cu",
                    &[Arch::Sm90],
                    "a long row over a cluster's registers, statistics through DSMEM",
                ),
                cu(
                    "bulk",
                    "bulk.cu",
                    &[Arch::Sm90],
                    "the row in shared memory as it came, by the copy engine: a block or a cluster a row",
                ),
                Variant {
                    name: "by_hand",
                    file: "by_hand.ptx",
                    archs: Arch::ALL,
                    emulated: false,
                    about: "a block a row for bf16, written in PTX: what the compiler does, seen from below",
                },
            ]
        }
    }
    fn cost(&self, shape: &Shape) -> OpResult<Cost> {
        let s = Size::of(shape)?;
        let e = s.dtype.size();
        let mask = match s.mask {
            Mask::Bool => s.mask_rows.min(s.rows) * s.cols,
            Mask::Additive => s.mask_rows.min(s.rows) * s.cols * e,
            _ => 0,
        };
        // Multiply, compare, subtract, exponential, add, multiply.
        Ok(Cost::new(Unit::Fp32, s.seen() * 6)
            .read("x", s.seen() * e)
            .read("mask", mask)
            .write("out", s.rows * s.cols * e))
    }
    fn buffers(&self, shape: &Shape, seed: u64) -> OpResult<Vec<Buffer>> {
        let s = Size::of(shape)?;
        let x = if s.special { contents::special(&s)? } else { Init::Normal { std: 2.0 } };
        let mut all = vec![Buffer::input("x", s.dtype, s.rows * s.cols, x)];
        if matches!(s.mask, Mask::Bool | Mask::Additive) {
            all.push(contents::mask(&s, seed));
        }
        all.push(Buffer::output("out", s.dtype, s.rows * s.cols));
        Ok(all)
    }
    fn supports(&self, variant: &str, shape: &Shape, chip: &Chip) -> OpResult<()> {
        self.variant(variant)?;
        choose::supports(variant, &Size::of(shape)?, chip)
    }
    fn launches(&self, variant: &str, shape: &Shape, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
        self.supports(variant, shape, chip)?;
        launch::launches(variant, &Size::of(shape)?, chip, at)
    }
    fn choose(&self, shape: &Shape, chip: &Chip) -> &'static str {
        Size::of(shape).map_or("online", |s| choose::choose(&s, chip))
    }
    fn check(&self, shape: &Shape, view: &dyn View) -> OpResult<Vec<Check>> {
        reference::check(&Size::of(shape)?, view)
    }
    fn edge_shapes(&self) -> Vec<Shape> {
        contents::edge_shapes()
    }
    fn random_shape(&self, rng: &mut Rng) -> Shape {
        let cols = match rng.range(0, 3) {
            0 => rng.range(1, 300),
            1 => rng.range(1, 4096),
            2 => rng.range(1, 600) * 8,
            _ => rng.range(4000, 70_000),
        };
        let rows = rng.range(1, (40_000 / cols).max(1) + 2);
        let mask = *rng.pick(&["none", "bool", "additive", "causal"]);
        let mut shape = Shape::new().with("rows", rows).with("cols", cols).with("mask", mask);
        if mask == "causal" {
            shape.set("mask_rows", rng.range(1, rows.max(cols)));
        } else if mask != "none" {
            shape.set("mask_rows", rng.range(1, rows));
        }
        shape.with("scale", rng.pick(&["1", "0.125", "-0.7", "3"])).with("dtype", rng.pick(&["bf16", "f16", "f32"]))
    }
    fn large_shapes(&self) -> Vec<Shape> {
        let texts = [
            // Exactly 2^31 elements; beyond 2^31 by one row; beyond 2^32; one row of 2^21 and of 2^24 columns.
            "rows=1048576,cols=2048,mask=causal,mask_rows=2048,scale=0.088",
            "rows=1048576,cols=2048,mask=additive,mask_rows=2048",
            "rows=2097153,cols=1024",
            "rows=4194305,cols=1025",
            "rows=3,cols=2097152",
            "rows=2,cols=16777217",
        ];
        texts.iter().filter_map(|t| Shape::parse(t).ok()).collect()
    }
    fn bench_shapes(&self) -> Vec<Shape> {
        let texts = [
            "rows=1048576,cols=256",
            "rows=65536,cols=1024",
            "rows=1048576,cols=2048",
            "rows=32768,cols=4096",
            "rows=8192,cols=8192",
            "rows=8192,cols=16384",
            "rows=4096,cols=32768",
            "rows=2048,cols=50257",
            "rows=1024,cols=128256",
            "rows=64,cols=128256",
            "rows=1048576,cols=2048,mask=additive,mask_rows=2048,scale=0.125",
            "rows=1048576,cols=2048,mask=bool,mask_rows=2048,scale=0.125",
            "rows=1048576,cols=2048,mask=causal,mask_rows=2048,scale=0.125",
        ];
        texts.iter().filter_map(|t| Shape::parse(t).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causal_reads_what_it_sees() {
        for text in
            ["rows=7,cols=5", "rows=12,cols=5,mask_rows=3", "rows=9,cols=4,mask_rows=7", "rows=3,cols=9,mask_rows=1"]
        {
            let s = Size::of(&Shape::parse(&format!("{text},mask=causal")).unwrap()).unwrap();
            assert_eq!(s.seen(), (0..s.rows).map(|r| s.limit(r)).sum::<u64>(), "{text}");
        }
        let s = Size::of(&Shape::parse("rows=1048576,cols=2048,mask=causal").unwrap()).unwrap();
        assert_eq!(s.seen(), 512 * 2048 * 2049 / 2);
    }

    #[test]
    fn sizes_name_their_rule() {
        let of = |t: &str| Size::of(&Shape::parse(t).unwrap()).map(|_| ());
        assert!(of("rows=1,cols=2g").unwrap_err().0.contains("2^30"));
        assert!(of("rows=4096g,cols=1024").unwrap_err().0.contains("2^40"));
        assert!(of("rows=1,cols=2,dtype=i32").is_err());
        assert!(of("rows=3,cols=2,mask=bool,mask_rows=0").is_err());
        assert!(of("rows=0,cols=2,mask=bool").is_ok());
    }
}
