//! Where a launch stands among others: the sizes of its shape, and of its kernels what tiles, waves and a heuristic's choice
//! make of them. Launches are data, so all of it is known before anything runs.

use crate::op::{Arg, Bindings, Chip, Cost, Launch, Op, OpResult, Shape};
use crate::plan::meaning::meaning;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};

/// One kernel of a variant, as recorded beside a measured time. As text: `ENTRY blocks=…,cluster=…,threads=…,shared=…,numbers=…:…`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Kernel {
    pub entry: String,
    pub blocks: u64,
    pub cluster: u64,
    pub threads: u64,
    /// Dynamic shared memory of a block, bytes.
    pub shared: u64,
    /// Its whole numbers in the order of its arguments: sizes, steps, cuts.
    pub numbers: Vec<i64>,
}

impl Kernel {
    pub fn of(launch: &Launch) -> Self {
        let product = |of: [u32; 3]| of.iter().map(|v| u64::from(*v)).product();
        let number = |arg: &Arg| match arg {
            Arg::I32(v) => Some(i64::from(*v)),
            Arg::U32(v) => Some(i64::from(*v)),
            Arg::I64(v) => Some(*v),
            Arg::U64(v) => i64::try_from(*v).ok(),
            Arg::Ptr(_) | Arg::F32(_) | Arg::TensorMap(_) => None,
        };
        Self {
            entry: launch.entry.clone(),
            blocks: product(launch.grid),
            cluster: product(launch.cluster),
            threads: product(launch.block),
            shared: u64::from(launch.shared),
            numbers: launch.args.iter().filter_map(number).collect(),
        }
    }

    /// Blocks that the busiest of so many multiprocessors runs where they are dealt evenly.
    pub fn turns(&self, sms: u64) -> u64 {
        self.blocks.div_ceil(sms.max(1))
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, blocks, cluster, threads, shared, numbers } = self;
        let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
        let numbers = numbers.join(":");
        write!(f, "{entry} blocks={blocks},cluster={cluster},threads={threads},shared={shared},numbers={numbers}")
    }
}

impl From<Kernel> for String {
    fn from(kernel: Kernel) -> Self {
        kernel.to_string()
    }
}

impl TryFrom<String> for Kernel {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = || format!("`{text}` is no kernel of a recorded launch");
        let (entry, rest) = text.split_once(' ').ok_or_else(bad)?;
        let shape = Shape::parse(rest).map_err(|_| bad())?;
        let int = |key: &str| shape.int(key).map_err(|_| bad());
        let numbers = shape.word("numbers").unwrap_or_default().split(':').filter(|n| !n.is_empty());
        Ok(Self {
            entry: entry.into(),
            blocks: int("blocks")?,
            cluster: int("cluster")?,
            threads: int("threads")?,
            shared: int("shared")?,
            numbers: numbers.map(|n| n.parse().map_err(|_| bad())).collect::<Result<_, _>>()?,
        })
    }
}

/// Names of an op's arrays by its shape's words; to describe the arrays themselves can take an op longer than all else here (page
/// tables, poisoned caches).
static NAMES: LazyLock<Mutex<BTreeMap<String, Vec<&'static str>>>> = LazyLock::new(Mutex::default);

/// A variant's kernels for a shape, at invented, distinct addresses.
///
/// # Errors
/// A shape that the variant refuses.
pub fn kernels(op: &dyn Op, variant: &str, shape: &Shape, chip: &Chip) -> OpResult<Vec<Kernel>> {
    let words: Vec<String> = Place::of(op.name(), shape).words.into_iter().map(|(k, v)| format!("{k}={v}")).collect();
    let key = format!("{} {}", op.name(), words.join(","));
    let names = || NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = names().get(&key).cloned();
    if let Some(kernels) = known.and_then(|known| at_names(op, variant, shape, chip, &known).ok()) {
        return Ok(kernels);
    }
    let all: Vec<&'static str> = op.buffers(shape, 1)?.iter().map(|b| b.name).collect();
    let kernels = at_names(op, variant, shape, chip, &all)?;
    names().insert(key, all);
    Ok(kernels)
}

fn at_names(op: &dyn Op, variant: &str, shape: &Shape, chip: &Chip, names: &[&str]) -> OpResult<Vec<Kernel>> {
    let mut at = Bindings::new();
    for (i, name) in names.iter().enumerate() {
        at.set(name, (i as u64 + 1) << 40);
    }
    at.set("workspace", 1 << 50);
    Ok(op.launches(variant, shape, chip, &at)?.iter().map(Kernel::of).collect())
}

/// The kernel with the most blocks.
pub fn widest(kernels: &[Kernel]) -> Option<&Kernel> {
    kernels.iter().max_by_key(|k| k.blocks)
}

/// A shape as its launches meet it: sizes in octaves, words as they are, defaults filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    pub numbers: BTreeMap<String, f64>,
    pub words: BTreeMap<String, String>,
}

fn octaves(v: f64) -> f64 {
    v.max(1.0).log2()
}

impl Place {
    /// The shape alone.
    pub fn of(op: &str, shape: &Shape) -> Self {
        let mut full = meaning(op, shape);
        // Which rows of a mask meet which rows changes no time.
        full.remove("mask_rows");
        // A list of different lengths is about as long as its mean says, and another case than equal ones.
        let lens = full.insert("lens".into(), "even".into());
        if let Some(lens) = lens {
            let lens: Vec<f64> = lens.split(':').filter_map(|l| l.parse().ok()).collect();
            let mean = lens.iter().sum::<f64>() / lens.len().max(1) as f64;
            let even = lens.iter().all(|l| (l - mean).abs() <= mean / 8.0);
            full.insert("lens".into(), if even { "even" } else { "ragged" }.into());
            full.insert("batch".into(), lens.len().to_string());
            full.insert("ctx".into(), format!("{mean:.0}"));
        }
        let mut place = Self::default();
        for (key, value) in full {
            match value.parse::<u64>() {
                Ok(size) => {
                    place.numbers.insert(key, octaves(size as f64));
                }
                Err(_) => {
                    place.words.insert(key, value);
                }
            }
        }
        place
    }

    /// The shape with what it costs and how it is launched on a chip of so many multiprocessors. What a kernel's arguments
    /// mean is its own affair, so they are told apart by variant and position.
    pub fn launched(op: &str, variant: &str, shape: &Shape, cost: &Cost, kernels: &[Kernel], sms: u64) -> Self {
        let mut place = Self::of(op, shape);
        let mut set = |key: String, v: f64| {
            place.numbers.insert(key, v);
        };
        set("bytes".into(), octaves(cost.bytes() as f64));
        set("flops".into(), octaves(cost.flops as f64));
        if let Some(k) = widest(kernels) {
            let turns = k.turns(sms) as f64;
            set("blocks".into(), octaves(k.blocks as f64));
            set("turns".into(), octaves(turns));
            set("uneven".into(), octaves(turns * sms as f64 / k.blocks.max(sms) as f64));
            set("cluster".into(), octaves(k.cluster as f64));
            set("threads".into(), octaves(k.threads as f64));
            set("shared".into(), octaves(1.0 + k.shared as f64 / 1024.0));
        }
        for (i, kernel) in kernels.iter().enumerate() {
            for (j, number) in kernel.numbers.iter().enumerate() {
                let v = if *number < 0 { -1.0 } else { (1.0 + *number as f64).log2() };
                set(format!("{variant}.{i}.{j}"), v);
            }
        }
        let entries: Vec<&str> = kernels.iter().map(|k| k.entry.as_str()).collect();
        place.words.insert("kernel".into(), entries.join(" "));
        place
    }

    /// Whether two shapes ask for the same work.
    pub fn same_work(&self, other: &Self) -> bool {
        self == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels as ops;

    #[test]
    fn kernels_come_back_from_their_text() {
        let op = ops::op("matmul").unwrap();
        let shape = Shape::parse("m=16,n=4096,k=4096").unwrap();
        for kernel in kernels(op, op.choose(&shape, &Chip::H200), &shape, &Chip::H200).unwrap() {
            assert_eq!(Kernel::try_from(kernel.to_string()).unwrap(), kernel);
            assert!(kernel.turns(132) * 132 >= kernel.blocks && kernel.blocks > 0);
        }
        assert!(Kernel::try_from("entry".to_string()).is_err());
        assert!(Kernel::try_from("entry blocks=1,cluster=1,threads=x,shared=0,numbers=".to_string()).is_err());
    }

    #[test]
    fn names_kept_from_another_size_give_the_same_kernels() {
        for op in ops::OPS {
            for shape in op.bench_shapes() {
                let variant = op.choose(&shape, &Chip::H200);
                let names: Vec<&str> = op.buffers(&shape, 1).unwrap().iter().map(|b| b.name).collect();
                let direct = at_names(*op, variant, &shape, &Chip::H200, &names).unwrap();
                assert_eq!(kernels(*op, variant, &shape, &Chip::H200).unwrap(), direct, "{} {shape}", op.name());
            }
        }
    }

    #[test]
    fn places_know_defaults_and_lists() {
        let of = |op: &str, text: &str| Place::of(op, &Shape::parse(text).unwrap());
        assert!(of("matmul", "m=1,n=4k,k=4k").same_work(&of("matmul", "m=1,n=4096,k=4096,dtype=bf16,cfg=3")));
        assert!(!of("matmul", "m=1,n=4k,k=4k").same_work(&of("matmul", "m=1,n=4k,k=4k,post=residual")));
        assert!(of("paged_attention", "batch=2,ctx=1k").same_work(&of("paged_attention", "lens=1000:1048")));
        assert!(!of("paged_attention", "batch=2,ctx=1k").same_work(&of("paged_attention", "lens=24:2024")));
    }
}
