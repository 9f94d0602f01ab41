//! `workbench occupancy`: blocks on a multiprocessor for numbers or for a built-in kernel. Needs no GPU, unless the
//! arithmetic is to be held against a driver's answers.

use super::OutputArgs;
use super::table::{Sheet, emit, percent};
use crate::error::{Error, Result};
use crate::explain::occupancy::{Block, Limits, Occupancy, limits, occupancy};
use crate::explain::quantisation;
use crate::op::{Chip, Shape};
use serde_json::json;
use std::path::PathBuf;

mod check;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A built-in variant, `OP/VARIANT`, in place of numbers
    #[arg(conflicts_with_all = ["threads", "regs", "shared"], value_name = "OP/VARIANT")]
    kernel: Option<String>,
    /// Shape of the variant's launches; the op's first bench shape that it takes otherwise
    #[arg(long, value_name = "KEY=VALUE,…", requires = "kernel")]
    shape: Option<String>,
    /// Threads of a block
    #[arg(long, value_name = "N", required_unless_present_any = ["kernel", "check_driver", "recorded"])]
    threads: Option<u32>,
    /// Registers of a thread
    #[arg(long, value_name = "N", required_unless_present_any = ["kernel", "check_driver", "recorded"])]
    regs: Option<u32>,
    /// Static and dynamic shared memory of a block, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    shared: u32,
    /// Compute capability as one number
    #[arg(long, value_name = "N", default_value_t = 90)]
    sm: u32,
    /// Ask the driver about every kernel, in many block and shared-memory sizes, and compare
    #[arg(long, conflicts_with_all = ["kernel", "threads", "regs"])]
    check_driver: bool,
    /// With --check-driver: write the driver's answers to FILE, as CSV
    #[arg(long, value_name = "FILE", requires = "check_driver")]
    record: Option<PathBuf>,
    /// Compare with answers that --record wrote; needs no GPU
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernel", "threads", "regs", "check_driver"])]
    recorded: Option<PathBuf>,
    /// GPU to ask
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: u32,
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    if args.check_driver {
        return check::ask(args.gpu, args.record.as_deref(), out);
    }
    if let Some(file) = &args.recorded {
        return check::again(file, out);
    }
    let limits = limits(args.sm)?;
    let blocks = match &args.kernel {
        Some(name) => of_variant(name, args.shape.as_deref(), limits)?,
        None => {
            let block = Block {
                threads: args.threads.unwrap_or(0),
                registers: args.regs.unwrap_or(0),
                shared: args.shared,
            };
            vec![("block".to_string(), block)]
        }
    };
    let title = format!("Blocks on one multiprocessor of compute capability {}.{}", args.sm / 10, args.sm % 10);
    let heads =
        ["kernel", ">threads", ">registers", ">shared B", ">blocks", ">warps", ">occupancy", "bound by", "one more with"];
    let mut sheet = Sheet::new(title, &heads);
    let mut values = Vec::new();
    for (name, block) in blocks {
        let o: Occupancy = occupancy(limits, block).map_err(|e| e.at(&name))?;
        let bound: Vec<&str> = o.binding.iter().map(|r| r.name()).collect();
        sheet.row([
            name.clone(),
            block.threads.to_string(),
            block.registers.to_string(),
            block.shared.to_string(),
            o.blocks.to_string(),
            format!("{}/{}", o.warps, o.max_warps),
            percent(o.share()),
            bound.join(", "),
            o.raise.join("; and "),
        ]);
        values.push(json!({"kernel": name, "block": block, "occupancy": o, "share": o.share()}));
    }
    emit(out, &[sheet], "", &json!({"schema": 1, "limits": limits, "kernels": values}))
}

/// Each kernel that a variant launches for a shape, with what the assembler reported of it.
fn of_variant(name: &str, shape: Option<&str>, limits: &Limits) -> Result<Vec<(String, Block)>> {
    let (op, variant) = name.split_once('/').ok_or_else(|| {
        Error::usage(format!("`{name}` is not OP/VARIANT")).try_next("workbench list shows them all")
    })?;
    let op = super::op(op)?;
    op.variant(variant)?;
    let chip = Chip { sm: limits.sm, shared_optin: limits.shared_optin, ..Chip::H200 };
    let shape = match shape {
        Some(text) => {
            let shape = Shape::parse(text)?;
            op.supports(variant, &shape, &chip)?;
            shape
        }
        None => op
            .bench_shapes()
            .into_iter()
            .chain(op.edge_shapes())
            .find(|s| op.supports(variant, s, &chip).is_ok())
            .ok_or_else(|| {
                Error::usage(format!("{name} takes none of its op's shapes on compute capability {}", limits.sm))
                    .try_next("--shape KEY=VALUE,… or another --sm")
            })?,
    };
    let mut found: Vec<(String, Block)> = Vec::new();
    for launch in quantisation::launches(op, variant, &shape, &chip)? {
        let block = quantisation::block_of(&launch, limits)?;
        if !found.iter().any(|(n, b)| *n == launch.entry && *b == block) {
            found.push((launch.entry.clone(), block));
        }
    }
    Ok(found)
}
