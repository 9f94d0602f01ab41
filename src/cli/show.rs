//! `workbench show`: one variant's source, PTX, machine code or resources. Needs no GPU.

use super::{OutputArgs, write_output};
use crate::error::{Error, Result};
use crate::kernels;
use crate::launch::image::{self, Image};
use crate::toolchain;
use serde_json::json;
use std::path::Path;
use std::process::Command;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The variant, such as softmax/online
    #[arg(value_name = "OP/VARIANT")]
    variant: String,
    #[command(flatten)]
    what: What,
    /// With --sass and --resources: only this architecture, such as sm_90
    #[arg(long)]
    arch: Option<String>,
    /// With --sass and --resources: only this kernel
    #[arg(long)]
    kernel: Option<String>,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct What {
    /// The source as it was built in (the default)
    #[arg(long)]
    source: bool,
    /// The PTX of the newest architecture
    #[arg(long)]
    ptx: bool,
    /// The machine code, by cuobjdump
    #[arg(long)]
    sass: bool,
    /// Registers, spills, stack and static shared memory of each kernel
    #[arg(long)]
    resources: bool,
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    for (file, kind) in [(&out.csv, "CSV"), (&out.md, "Markdown"), (&out.html, "HTML")] {
        if file.is_some() {
            return Err(Error::usage(format!("`show` writes no {kind}")).try_next("workbench show … --json FILE"));
        }
    }
    let image = find(&args.variant)?;
    let (what, text) = if args.what.ptx {
        ("ptx", ptx(image)?)
    } else if args.what.sass {
        ("sass", sass(image, args.arch.as_deref(), args.kernel.as_deref())?)
    } else if args.what.resources {
        ("resources", resources(image, &args)?)
    } else {
        ("source", image.source.to_string())
    };
    if let Some(file) = &out.json {
        let object = json!({
            "schema": 1, "image": image.name, "file": image.file, "hash": image.hash, "what": what,
            "text": text, "resources": image.resources,
        });
        write_output(file, &format!("{object:#}\n"))?;
    }
    if out.takes_stdout() { Ok(()) } else { write_output("-".as_ref(), &text) }
}

/// The image of `op/variant`; the error lists what the op has.
fn find(name: &str) -> Result<&'static Image> {
    if let Some(image) = image::find(name) {
        return Ok(image);
    }
    let (op, variant) = name.split_once('/').ok_or_else(|| {
        Error::usage(format!("`{name}` is not OP/VARIANT, such as softmax/online")).try_next("workbench list")
    })?;
    kernels::op(op).and_then(|o| o.variant(variant)).map_err(|e| Error::from(e).try_next("workbench list"))?;
    Err(Error::usage(format!("`{name}` has no image")).try_next("cargo build"))
}

fn not_compiled(image: &Image) -> Error {
    Error::usage(format!("{} was built as source only: there was no nvcc, or not for its architectures", image.name))
        .try_next("cargo xtask toolchain && cargo build")
}

fn ptx(image: &Image) -> Result<String> {
    if image.is_ptx {
        return Ok(image.source.to_string());
    }
    image.ptx()?.ok_or_else(|| not_compiled(image))
}

fn resources(image: &Image, args: &Args) -> Result<String> {
    if image.resources.is_empty() {
        return Err(not_compiled(image));
    }
    let rows: Vec<_> = image
        .resources
        .iter()
        .filter(|r| args.arch.as_deref().is_none_or(|a| a == r.arch))
        .filter(|r| args.kernel.as_deref().is_none_or(|k| k == r.entry))
        .collect();
    let width = rows.iter().map(|r| r.entry.len()).max().unwrap_or(6).max(6);
    let mut text = format!("{:width$}  arch    registers  spills B  stack B  static smem B\n", "kernel");
    for r in &rows {
        let spills = r.spill_stores + r.spill_loads;
        text += &format!(
            "{:width$}  {:6}  {:9}  {spills:8}  {:7}  {:13}\n",
            r.entry, r.arch, r.registers, r.stack, r.shared
        );
    }
    if rows.is_empty() {
        return Err(Error::usage(format!("{} has no such kernel or architecture", image.name))
            .try_next(format!("workbench show {} --resources", image.name)));
    }
    Ok(text)
}

fn sass(image: &Image, arch: Option<&str>, kernel: Option<&str>) -> Result<String> {
    let fatbin = image.fatbin()?.ok_or_else(|| not_compiled(image))?;
    let toolkit = toolchain::find("cuobjdump", Path::new(".")).map_err(Error::usage)?.ok_or_else(|| {
        Error::usage("there is no cuobjdump, which reads machine code").try_next("cargo xtask toolchain")
    })?;
    let file = std::env::temp_dir().join(format!("workbench-{}-{}.fatbin", std::process::id(), image.hash));
    std::fs::write(&file, fatbin).map_err(|e| Error::usage(format!("cannot write {}: {e}", file.display())))?;
    let mut command = Command::new(toolkit.tool("cuobjdump"));
    command.arg("-sass");
    if let Some(arch) = arch {
        command.args(["-arch", arch]);
    }
    if let Some(kernel) = kernel {
        command.args(["-fun", kernel]);
    }
    // cuobjdump calls nvdisasm by name.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([toolkit.root.join("bin")].into_iter().chain(std::env::split_paths(&path)));
    if let Ok(path) = path {
        command.env("PATH", path);
    }
    let output = command.arg(&file).output();
    let _ = std::fs::remove_file(&file);
    let output = output.map_err(|e| Error::usage(format!("cannot run cuobjdump: {e}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || !text.contains("Function :") {
        let log = String::from_utf8_lossy(&output.stderr);
        return Err(Error::usage(format!("cuobjdump shows no such machine code in {}: {}", image.name, log.trim()))
            .try_next(format!("workbench show {} --resources", image.name)));
    }
    Ok(text)
}
