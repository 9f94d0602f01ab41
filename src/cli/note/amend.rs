//! `workbench note amend`: says below a seal what it lacks.

use super::book::{self, Open};
use crate::error::{Error, Result};
use crate::notebook::{amend, document};
use std::path::Path;

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("text").required(true).args(["derived", "not_derived"])))]
pub struct Args {
    /// The note: its file, or its slug
    id: String,
    /// Name of the sealed quantity, where a note has several
    #[arg(long)]
    name: Option<String>,
    /// Equation with units that ends at the sealed number, from what was known then; remarks after `;`
    #[arg(long, value_name = "TEXT")]
    derived: Option<String>,
    /// Why no equation ends at the sealed number
    #[arg(long, value_name = "TEXT")]
    not_derived: Option<String>,
}

pub fn run(args: &Args, dir: &Path) -> Result<()> {
    let mut open = Open::find(dir, &args.id)?;
    let seals = open.seals();
    if seals.is_empty() {
        return Err(Error::check(format!("{} has no seal that something could be added after", open.note.file))
            .try_next(format!("workbench note predict {}", args.id)));
    }
    let name = open.choose("sealed prediction", args.name.as_deref(), &seals, |s| &s.seal.name)?.seal.name.clone();
    let text = args.derived.as_ref().or(args.not_derived.as_ref()).map_or("", String::as_str);
    let line = amend::draft(&open.note, &name, args.derived.is_some(), text, &book::now())?.line();
    let changed = document::append(&open.text, "Arithmetic", &line).ok_or_else(|| open.lacks("Arithmetic"))?;
    open.write(changed)?;
    println!("{}: {}", open.note.file, line.trim_start_matches("- "));
    Ok(())
}
