//! `workbench list`: what there is, and what the assembler made of it. Needs no GPU.

use super::{OutputArgs, write_output};
use crate::error::{Error, Result};
use crate::kernels::{self, COMMON, OPS};
use crate::launch::image::{self, Image, Resources, TOOLCHAIN};
use crate::op::Variant;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this op
    op: Option<String>,
    /// One row for each kernel and architecture instead of one for each variant
    #[arg(long)]
    kernels: bool,
}

const VARIANTS: &[&str] = &["variant", "archs", "registers", "spills B", "static smem B", "emulated", "idea"];
const KERNELS: &[&str] = &["variant", "kernel", "arch", "registers", "spills B", "stack B", "static smem B"];

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    let groups = groups(args.op.as_deref())?;
    let (head, rows) = if args.kernels { (KERNELS, kernel_rows(&groups)) } else { (VARIANTS, variant_rows(&groups)) };
    if let Some(file) = &out.json {
        write_output(file, &format!("{:#}\n", to_json(&groups)))?;
    }
    if let Some(file) = &out.csv {
        write_output(file, &csv(head, &rows)?)?;
    }
    if let Some(file) = &out.md {
        write_output(file, &markdown(head, &rows))?;
    }
    if !out.takes_stdout() {
        write_output("-".as_ref(), &terminal(head, &rows, &groups, args.kernels))?;
    }
    Ok(())
}

/// An op's name and idea with its variants.
struct Group {
    op: &'static str,
    about: &'static str,
    variants: &'static [Variant],
}

fn groups(only: Option<&str>) -> Result<Vec<Group>> {
    let group = |op: &'static dyn crate::op::Op| Group { op: op.name(), about: op.about(), variants: op.variants() };
    let common = Group { op: "common", about: "fills and probes that belong to no op", variants: COMMON };
    match only {
        Some("common") => Ok(vec![common]),
        Some(name) => Ok(vec![group(super::op(name)?)]),
        None => Ok(OPS.iter().map(|op| group(*op)).chain([common]).filter(|g| !g.variants.is_empty()).collect()),
    }
}

fn image(group: &Group, variant: &Variant) -> &'static Image {
    image::find(&format!("{}/{}", group.op, variant.name)).expect("build.rs embeds every registered variant")
}

fn variant_rows(groups: &[Group]) -> Vec<Vec<String>> {
    let row = |group: &Group, v: &Variant| {
        let image = image(group, v);
        let archs: Vec<&str> = v.archs.iter().map(|a| a.name().trim_start_matches("sm_")).collect();
        // The newest architecture stands for the variant; `--kernels` has every one.
        let newest = image.resources.last().map(|r| r.arch);
        let of: Vec<&Resources> = image.resources.iter().filter(|r| Some(r.arch) == newest).collect();
        let range = |f: &dyn Fn(&Resources) -> u32| match (of.iter().map(|r| f(r)).min(), of.iter().map(|r| f(r)).max())
        {
            (Some(low), Some(high)) if low == high => high.to_string(),
            (Some(low), Some(high)) => format!("{low}-{high}"),
            _ => "?".to_string(),
        };
        vec![
            image.name.to_string(),
            archs.join(" "),
            range(&|r| r.registers),
            range(&|r| r.spill_stores + r.spill_loads),
            range(&|r| r.shared),
            if v.emulated { "yes" } else { "no" }.to_string(),
            v.about.to_string(),
        ]
    };
    groups.iter().flat_map(|g| g.variants.iter().map(move |v| row(g, v))).collect()
}

fn kernel_rows(groups: &[Group]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for group in groups {
        for image in group.variants.iter().map(|v| image(group, v)) {
            for r in image.resources {
                let spills = r.spill_stores + r.spill_loads;
                let numbers = [r.registers, spills, r.stack, r.shared].map(|n| n.to_string());
                rows.push([image.name, r.entry, r.arch].map(String::from).into_iter().chain(numbers).collect());
            }
        }
    }
    rows
}

fn to_json(groups: &[Group]) -> Value {
    let variant = |group: &Group, v: &Variant| {
        let image = image(group, v);
        let archs: Vec<&str> = v.archs.iter().map(|a| a.name()).collect();
        json!({
            "variant": v.name, "image": image.name, "file": image.file, "about": v.about, "archs": archs,
            "emulated": v.emulated, "hash": image.hash, "compiled": image.compiled(),
            "resources": image.resources,
        })
    };
    let ops: Vec<Value> = groups
        .iter()
        .map(|g| {
            let dims: Vec<Value> = kernels::op(g.op)
                .map(|op| {
                    op.dims().iter().map(|d| json!({"key": d.key, "default": d.default, "about": d.about})).collect()
                })
                .unwrap_or_default();
            let variants: Vec<Value> = g.variants.iter().map(|v| variant(g, v)).collect();
            json!({"op": g.op, "about": g.about, "dims": dims, "variants": variants})
        })
        .collect();
    json!({"schema": 1, "toolchain": TOOLCHAIN, "ops": ops})
}

fn csv(head: &[&str], rows: &[Vec<String>]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |e: csv::Error| Error::usage(format!("cannot write CSV: {e}"));
    writer.write_record(head).map_err(failed)?;
    for row in rows {
        writer.write_record(row).map_err(failed)?;
    }
    let bytes = writer.into_inner().map_err(|e| Error::usage(format!("cannot write CSV: {e}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head.iter().map(|h| h.to_string()).collect());
    text += &line(head.iter().map(|_| "---".to_string()).collect());
    for row in rows {
        text += &line(row.iter().map(|c| c.replace('|', "\\|")).collect());
    }
    text
}

fn terminal(head: &[&str], rows: &[Vec<String>], groups: &[Group], kernels: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for (i, name) in head.iter().enumerate() {
        if name.ends_with(" B") || *name == "registers" {
            table.column_mut(i).expect("as many columns as heads").set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    if !kernels {
        for g in groups {
            text += &format!("{:<16} {}\n", g.op, g.about);
        }
        text += "\n";
    }
    text += &table.trim_fmt();
    text += &match (TOOLCHAIN.nvcc, kernels) {
        (Some(v), false) => format!("\n\nnvcc {v}; registers, spills and shared memory on the newest architecture\n"),
        (Some(v), true) => format!("\n\nnvcc {v}\n"),
        (None, _) => "\n\nbuilt without nvcc: kernels compile at run time, so their resources are not known here; \
                      `cargo xtask toolchain` brings nvcc\n"
            .to_string(),
    };
    text
}
