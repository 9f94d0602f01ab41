//! `workbench show`: one variant's source, PTX, machine code, resources or launches. Needs no GPU.

mod launches;

use super::{OutputArgs, write_output};
use crate::error::{Error, Result};
use crate::kernels;
use crate::launch::image::{self, Image, Resources};
use crate::toolchain;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// What tells that the working folder is the project's.
const TOOLCHAIN_LIST: &str = "toolchain/wheels.txt";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The variant, such as softmax/online; with --launches an op alone is what it chooses
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
    /// With --launches: the GPU they are for (an H200 where there is none)
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: u32,
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
    /// What is launched for a shape: kernel, grid, block, cluster and arguments
    #[arg(long, value_name = "SHAPE")]
    launches: Option<String>,
    /// The image itself, for cuModuleLoadData: bytes to standard output
    #[arg(long)]
    fatbin: bool,
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    if let Some(shape) = &args.what.launches {
        if args.arch.is_some() || args.kernel.is_some() {
            return Err(Error::usage("--arch and --kernel do not narrow --launches"));
        }
        let found = launches::of(&args.variant, shape, args.gpu)?;
        if let Some(file) = &out.json {
            write_output(file, &format!("{:#}\n", found.json()))?;
        }
        return if out.takes_stdout() { Ok(()) } else { write_output("-".as_ref(), &found.text()) };
    }
    let image = find(&args.variant)?;
    narrowed(image, &args)?;
    if args.what.fatbin {
        if out.json.is_some() {
            return Err(Error::usage("--fatbin writes bytes, which JSON cannot hold").try_next("leave --json out"));
        }
        let bytes = image.fatbin()?.ok_or_else(|| not_compiled(image))?;
        return std::io::stdout().write_all(bytes).map_err(|e| Error::usage(format!("cannot write the image: {e}")));
    }
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

/// Holds `--arch` and `--kernel` against what the image has, so that no tool is asked for what is not there.
fn narrowed(image: &Image, args: &Args) -> Result<()> {
    if args.arch.is_none() && args.kernel.is_none() {
        return Ok(());
    }
    if !args.what.sass && !args.what.resources {
        return Err(Error::usage("--arch and --kernel narrow machine code and resources").try_next("add --sass or --resources"));
    }
    if image.resources.is_empty() {
        return Err(not_compiled(image));
    }
    let named = |of: fn(&Resources) -> &'static str| {
        let mut all: Vec<&str> = image.resources.iter().map(of).collect();
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|name| seen.insert(*name));
        all
    };
    for (asked, what, has) in [
        (&args.arch, "machine code for", named(|r| r.arch)),
        (&args.kernel, "kernel", named(|r| r.entry)),
    ] {
        if let Some(asked) = asked.as_deref().filter(|a| !has.contains(a)) {
            return Err(Error::usage(format!("{} has no {what} `{asked}`; it has {}", image.name, has.join(", ")))
                .try_next(format!("workbench show {} --resources", image.name)));
        }
    }
    let both = |r: &&Resources| {
        args.arch.as_deref().is_none_or(|a| a == r.arch) && args.kernel.as_deref().is_none_or(|k| k == r.entry)
    };
    match image.resources.iter().find(both) {
        Some(_) => Ok(()),
        None => Err(Error::usage(format!("{} has no such kernel for that architecture", image.name))
            .try_next(format!("workbench show {} --resources", image.name))),
    }
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
    Ok(text)
}

fn sass(image: &Image, arch: Option<&str>, kernel: Option<&str>) -> Result<String> {
    let fatbin = image.fatbin()?.ok_or_else(|| not_compiled(image))?;
    let toolkit = toolchain::find("cuobjdump", Path::new(".")).map_err(Error::usage)?.ok_or_else(|| {
        let here = match Path::new(TOOLCHAIN_LIST).is_file() {
            true => "cargo xtask toolchain, or CUDA_HOME=DIR of a CUDA toolkit (cuobjdump is in its bin/)",
            false => "CUDA_HOME=DIR of a CUDA toolkit (cuobjdump is in its bin/), or run in the project's folder",
        };
        Error::usage("there is no cuobjdump, which reads machine code").try_next(here)
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
        let why = log.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or("it printed no function");
        return Err(Error::usage(format!("cuobjdump cannot read the machine code of {}: {why}", image.name))
            .try_next("CUDA_HOME=DIR of a CUDA toolkit as new as the one that built this (workbench list says which)"));
    }
    Ok(text)
}
