//! `workbench show OP --launches SHAPE`: what an op launches for a shape, with its buffers named, so that another program can
//! load the kernels and launch them itself. The scripts in peers/ do, to time ours and theirs in one process.

use crate::error::{Error, Result};
use crate::kernels;
use crate::launch::Device;
use crate::op::{Arg, Bindings, Chip, Launch, Op, Shape};
use serde_json::{Value, json};

/// Distance of the addresses that stand for buffers: far more than any buffer's size.
const APART: u64 = 1 << 44;

/// The launches of an op at a shape, their pointers given as a buffer's name and an offset in bytes.
pub struct Launches {
    pub variant: &'static str,
    launches: Vec<Launch>,
    /// Name and bytes of each buffer, in the order of their addresses; a variant's `workspace` comes last.
    buffers: Vec<(String, u64)>,
}

/// `name` is OP for what the op chooses, or OP/VARIANT; on GPU `gpu`, or on an H200 where there is none.
pub fn of(name: &str, shape: &str, gpu: u32) -> Result<Launches> {
    let (op, variant) = name.split_once('/').map_or((name, None), |(op, variant)| (op, Some(variant)));
    let op = kernels::op(op).map_err(|e| Error::from(e).try_next("workbench list"))?;
    let shape = Shape::parse(shape)?;
    let chip = Device::open(gpu).map_or(Chip::H200, |d| d.info().chip);
    collect(op, variant, &shape, &chip)
}

fn collect(op: &'static dyn Op, variant: Option<&str>, shape: &Shape, chip: &Chip) -> Result<Launches> {
    let variant = op.variant(variant.unwrap_or_else(|| op.choose(shape, chip)))?.name;
    let mut buffers: Vec<(String, u64)> =
        op.buffers(shape, 1)?.iter().map(|b| (b.name.to_string(), b.bytes())).collect();
    match op.workspace(variant, shape, chip)? {
        0 => {}
        bytes => buffers.push(("workspace".into(), bytes)),
    }
    let mut at = Bindings::new();
    for (i, (name, _)) in buffers.iter().enumerate() {
        at.set(name, (i as u64 + 1) * APART);
    }
    Ok(Launches { variant, launches: op.launches(variant, shape, chip, &at)?, buffers })
}

impl Launches {
    fn place(&self, address: u64) -> Option<(&str, u64)> {
        let i = (address / APART).checked_sub(1)?;
        Some((self.buffers.get(i as usize)?.0.as_str(), address % APART))
    }
    fn arg(&self, arg: &Arg) -> Value {
        match arg {
            Arg::Ptr(at) => match self.place(*at) {
                Some((name, offset)) => json!({ "buffer": name, "offset": offset }),
                None => json!({ "u64": at }),
            },
            Arg::I32(v) => json!({ "i32": v }),
            Arg::U32(v) => json!({ "u32": v }),
            Arg::I64(v) => json!({ "i64": v }),
            Arg::U64(v) => json!({ "u64": v }),
            Arg::F32(v) => json!({ "f32": v }),
            Arg::TensorMap(m) => json!({ "tensor_map": {
                "buffer": self.place(m.address).map(|p| p.0), "offset": self.place(m.address).map(|p| p.1),
                "dtype": m.dtype.name(), "dims": m.dims, "strides": m.strides, "box": m.box_dims, "swizzle": m.swizzle,
            } }),
        }
    }
    pub fn json(&self) -> Value {
        let buffers: Vec<_> = self.buffers.iter().map(|(name, bytes)| json!({ "name": name, "bytes": bytes })).collect();
        let launches: Vec<_> = self
            .launches
            .iter()
            .map(|l| {
                json!({
                    "image": l.image, "entry": l.entry, "grid": l.grid, "block": l.block, "cluster": l.cluster,
                    "shared": l.shared, "programmatic": l.programmatic,
                    "args": l.args.iter().map(|a| self.arg(a)).collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({ "schema": 1, "variant": self.variant, "buffers": buffers, "launches": launches })
    }
    /// A line for each launch, and its arguments below it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for l in &self.launches {
            let dims = |d: [u32; 3]| d.map(|n| n.to_string()).join(" x ");
            text += &format!("{} in {}: grid {}, block {}", l.entry, l.image, dims(l.grid), dims(l.block));
            if l.cluster != [1; 3] {
                text += &format!(", cluster {}", dims(l.cluster));
            }
            if l.shared > 0 {
                text += &format!(", {} bytes of dynamic shared memory", l.shared);
            }
            text += if l.programmatic { ", programmatic\n" } else { "\n" };
            for a in &l.args {
                text += &format!("    {}\n", self.arg(a));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launches(op: &str, variant: Option<&str>, shape: &str) -> Value {
        collect(kernels::op(op).unwrap(), variant, &Shape::parse(shape).unwrap(), &Chip::H200).unwrap().json()
    }

    #[test]
    fn pointers_are_told_by_their_buffers() {
        let found = launches("softmax", None, "rows=1024,cols=128256");
        assert_eq!(found["variant"], "bulk");
        let launch = &found["launches"][0];
        assert_eq!((&launch["cluster"], &launch["programmatic"]), (&json!([8, 1, 1]), &json!(true)));
        assert_eq!(launch["args"][0], json!({ "buffer": "x", "offset": 0 }));
        assert_eq!(launch["args"][1], json!({ "buffer": "out", "offset": 0 }));
        // No mask: a null pointer, not a buffer.
        assert_eq!(launch["args"][2], json!({ "u64": 0 }));
        assert_eq!((&launch["args"][3], &launch["args"][4]), (&json!({ "i64": 1024 }), &json!({ "i32": 128_256 })));
        assert_eq!(found["buffers"][0], json!({ "name": "x", "bytes": 1024 * 128_256 * 2 }));
        let masked = launches("softmax", Some("online"), "rows=64,cols=100,mask=additive");
        assert_eq!(masked["launches"][0]["args"][2]["buffer"], "mask");
    }

    #[test]
    fn every_variant_names_its_buffers() {
        for op in kernels::OPS {
            for shape in op.bench_shapes().iter().take(2) {
                for variant in op.variants().iter().filter(|v| op.supports(v.name, shape, &Chip::H200).is_ok()) {
                    let found = collect(*op, Some(variant.name), shape, &Chip::H200).unwrap();
                    for arg in found.launches.iter().flat_map(|l| &l.args) {
                        match arg {
                            Arg::Ptr(0) => {}
                            Arg::Ptr(at) => assert!(found.place(*at).is_some(), "{}/{} {at:#x}", op.name(), variant.name),
                            Arg::TensorMap(m) => assert!(found.place(m.address).is_some(), "{}", variant.name),
                            _ => {}
                        }
                    }
                    assert!(found.text().contains(&found.launches[0].entry));
                }
            }
        }
    }
}
