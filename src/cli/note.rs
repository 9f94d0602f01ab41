//! `workbench note`: the lab notebook's check, index and empty pages.

use super::table::{Sheet, emit};
use super::{OutputArgs, write_output};
use crate::error::{Error, Result};
use crate::notebook::{self, Note, index, template};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
    /// Folder of the notes
    #[arg(long, global = true, value_name = "DIR", default_value = "lab_notes")]
    dir: PathBuf,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Hold every note to the rules; exit code 1 if one fails
    Check,
    /// Write the index, README.md
    Index,
    /// Begin a note
    New {
        /// Lower-case letters, digits and `_`; the file is DATE_SLUG.md
        slug: String,
        /// One line, searchable
        #[arg(long)]
        title: String,
    },
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    match args.what {
        What::Check => check(&args.dir, out),
        What::Index => write_index(&args.dir),
        What::New { slug, title } => begin(&args.dir, &slug, &title),
    }
}

/// The notes of a folder by name, which begins with the date.
fn read(dir: &Path) -> Result<Vec<Note>> {
    let failed = |e: std::io::Error| {
        Error::usage(format!("cannot read {}: {e}", dir.display())).try_next("--dir FOLDER of the notes")
    };
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .map_err(failed)?
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| n.ends_with(".md") && n.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|name| {
            let text = std::fs::read_to_string(dir.join(&name)).map_err(|e| Error::from(e).at(&name))?;
            Ok(Note::parse(&name, &text))
        })
        .collect()
}

fn check(dir: &Path, out: &OutputArgs) -> Result<()> {
    let notes = read(dir)?;
    let text = |name| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    let found = notebook::check(&notes, &text("surprise_log.md"), &text("README.md"));
    let mut sheet = Sheet::new("", &["file", "kind", "what"]);
    for f in &found {
        sheet.row([f.note.clone(), format!("{:?}", f.kind).to_lowercase(), f.what.clone()]);
    }
    let listed: Vec<Value> =
        notes.iter().map(|n| json!({"file": n.file, "title": n.title, "quantities": n.pairs()})).collect();
    let tail = format!("{} notes, {} errors\n", notes.len(), found.len());
    let sheets = if found.is_empty() { Vec::new() } else { vec![sheet] };
    emit(out, &sheets, &tail, &json!({"schema": 1, "notes": listed, "errors": found}))?;
    if found.is_empty() {
        return Ok(());
    }
    Err(Error::check(format!("the notebook in {} breaks its rules {} times", dir.display(), found.len())))
}

fn write_index(dir: &Path) -> Result<()> {
    write_output(&dir.join("README.md"), &index::render(&read(dir)?))
}

fn begin(dir: &Path, slug: &str, title: &str) -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let date = template::date(now);
    let file = dir.join(template::file_name(slug, &date)?);
    if title.trim().is_empty() || title.contains('\n') {
        return Err(Error::usage("--title must be one line"));
    }
    if file.exists() {
        return Err(Error::usage(format!("{} exists", file.display())).try_next("another SLUG"));
    }
    std::fs::create_dir_all(dir)?;
    write_output(&file, &template::note(title.trim(), &date))?;
    println!("{}", file.display());
    write_index(dir)
}
