//! The notebook's folder: notes found by name, read, and written back.

use crate::cli::write_output;
use crate::error::{Error, Kind, Result};
use crate::notebook::{Note, index, seal};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Text of a file of the notebook, empty where there is none.
pub fn text(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap_or_default()
}

/// The notes of a folder by name, which begins with the date.
pub fn notes(dir: &Path) -> Result<Vec<Note>> {
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

/// One note with its text as it is on disk.
pub struct Open {
    pub dir: PathBuf,
    pub note: Note,
    pub text: String,
}

impl Open {
    /// A note by its file, its file's stem, or its slug, where only one note has it.
    pub fn find(dir: &Path, id: &str) -> Result<Self> {
        let id = Path::new(id).file_name().map_or(id.into(), |n| n.to_string_lossy());
        let id = id.trim_end_matches(".md");
        let all = notes(dir)?;
        let stem = |n: &Note| n.file.trim_end_matches(".md").to_string();
        let exact = all.iter().filter(|n| stem(n) == id);
        let slug = all.iter().filter(|n| stem(n).split_once('_').is_some_and(|(_, s)| s == id));
        let found: Vec<&Note> = match exact.collect::<Vec<_>>() {
            f if f.is_empty() => slug.collect(),
            f => f,
        };
        match found.as_slice() {
            [note] => Ok(Self { dir: dir.into(), text: text(dir, &note.file), note: (*note).clone() }),
            [] => {
                let near = crate::op::nearest(id, all.iter().filter_map(|n| n.file.trim_end_matches(".md").split_once('_')).map(|(_, s)| s));
                let next = near.map_or("workbench note new SLUG --title TITLE".into(), |n| format!("`{n}`, or workbench note new SLUG --title TITLE"));
                Err(Error::usage(format!("{} has no note `{id}`", dir.display())).try_next(next))
            }
            many => Err(Error::usage(format!("{} notes are called `{id}`", many.len()))
                .try_next(many.iter().map(|n| stem(n)).collect::<Vec<_>>().join(" or "))),
        }
    }

    /// Writes the new text, reads it again, and renews the index.
    pub fn write(&mut self, text: String) -> Result<()> {
        write_output(&self.dir.join(&self.note.file), &text)?;
        self.note = Note::parse(&self.note.file, &text);
        self.text = text;
        write_index(&self.dir)
    }

    /// A section's absence, as an error.
    pub fn lacks(&self, section: &str) -> Error {
        Error::usage(format!("{} has no section `{section}`", self.note.file)).try_next("the template: workbench note new")
    }

    /// The first seal of each quantity.
    pub fn seals(&self) -> Vec<seal::Sealed> {
        seal::of(&self.note).0.into_iter().filter(|s| !s.revision).collect()
    }

    /// The quantity with this name, or the only one that `fits`.
    pub fn choose<'a, T>(&self, what: &str, name: Option<&str>, all: &'a [T], of: impl Fn(&T) -> &str) -> Result<&'a T> {
        let names = || all.iter().map(|t| format!("`{}`", of(t))).collect::<Vec<_>>().join(", ");
        match (name, all) {
            (Some(name), _) => all.iter().find(|t| of(t) == name.to_lowercase()).ok_or_else(|| {
                Error::usage(format!("{} has no {what} `{name}`; it has {}", self.note.file, names()))
            }),
            (None, [one]) => Ok(one),
            (None, []) => Err(Error::usage(format!("{} has no {what}", self.note.file))),
            (None, _) => Err(Error::usage(format!("{} has several: {}", self.note.file, names())).try_next("--name NAME")),
        }
    }
}

/// Renews `README.md`.
pub fn write_index(dir: &Path) -> Result<()> {
    write_output(&dir.join("README.md"), &index::render(&notes(dir)?))
}

/// Refuses unless a note's predictions are sealed and unchanged.
///
/// # Errors
/// No such note; no seal in it; a seal that does not hold.
pub fn require_sealed(dir: &Path, id: &str) -> Result<()> {
    let open = Open::find(dir, id)?;
    let seals = open.seals();
    let refuse = |what: String, next: &str| {
        Err(Error::new(Kind::Check, format!("nothing was run: {what}")).try_next(format!("workbench note {next}")))
    };
    match seals.iter().find(|s| !s.whole) {
        _ if seals.is_empty() => {
            refuse(format!("the prediction of {} is not sealed", open.note.file), &format!("predict {id}"))
        }
        Some(_) => refuse(format!("{} was changed after its prediction was sealed", open.note.file), "check"),
        None => Ok(()),
    }
}

/// Commit of the folder's repository, with `+changes` where the work tree differs; `none` outside one.
pub fn commit(dir: &Path) -> String {
    let git = |args: &[&str]| {
        let out = Command::new("git").arg("-C").arg(dir).args(args).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_string())
    };
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "none".into() };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => head,
        _ => format!("{head}+changes"),
    }
}

/// Now, UTC, to the second.
pub fn now() -> String {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

/// Five significant digits, no zeros at the end.
pub fn digits(v: f64) -> String {
    let decimals = if v == 0.0 { 0 } else { (4 - v.abs().log10().floor() as i32).clamp(0, 12) as usize };
    let text = format!("{v:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_digits() {
        assert_eq!(digits(4.118_672), "4.1187");
        assert_eq!(digits(12_345.6), "12346");
        assert_eq!(digits(0.000_012_3), "0.0000123");
        assert_eq!(digits(300.0), "300");
    }
}
