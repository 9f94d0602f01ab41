//! Measured ceilings kept between commands, one file for all cards of a machine, keyed by UUID.

use super::Ceilings;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// `$XDG_DATA_HOME/workbench/ceilings.json`, else below `~/.local/share`, else `./out`.
pub fn file() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("XDG_DATA_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".local/share")))
        .map_or_else(|| PathBuf::from("out"), |data| data.join("workbench"))
        .join("ceilings.json")
}

fn read(path: &Path) -> Result<BTreeMap<String, Ceilings>> {
    match std::fs::read_to_string(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(e) => Err(Error::usage(format!("cannot read {}: {e}", path.display()))),
        Ok(text) => serde_json::from_str(&text).map_err(|e| {
            Error::usage(format!("{} is not a ceilings file: {e}", path.display()))
                .try_next("delete it and run `workbench roofline` again")
        }),
    }
}

/// Keeps a card's ceilings.
pub fn save(path: &Path, uuid: &str, ceilings: &Ceilings) -> Result<()> {
    let failed = |e: std::io::Error| Error::usage(format!("cannot write {}: {e}", path.display()));
    let mut all = read(path)?;
    all.insert(uuid.into(), ceilings.clone());
    let text = serde_json::to_string_pretty(&all).map_err(|e| Error::usage(e.to_string()))?;
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    crate::files::write(path, text.as_bytes()).map_err(failed)
}

/// A card's own measured ceilings; else the recorded ones of its model; none for a card that nobody has measured.
pub fn find(path: &Path, uuid: &str, gpu: &str) -> Result<Option<Ceilings>> {
    if let Some(stored) = read(path)?.remove(uuid) {
        return Ok(Some(stored));
    }
    let recorded = Ceilings::h200();
    Ok((recorded.gpu == gpu).then_some(recorded))
}

/// For a card that is known by its name alone, as in a trace: ceilings measured here on a card of that name, if any.
pub fn of_model(path: &Path, gpu: &str) -> Result<Option<Ceilings>> {
    Ok(read(path)?.into_values().find(|c| !gpu.is_empty() && c.gpu == gpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_ceilings_come_back_for_their_card_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/ceilings.json");
        let mine = Ceilings { read_gbps: 4_600.0, ..Ceilings::h200() };
        save(&path, "GPU-a", &mine).unwrap();
        save(&path, "GPU-b", &Ceilings::h200()).unwrap();
        assert_eq!(find(&path, "GPU-a", "anything").unwrap(), Some(mine));
        assert_eq!(find(&path, "GPU-c", "NVIDIA H200").unwrap(), Some(Ceilings::h200()));
        assert_eq!(find(&path, "GPU-c", "NVIDIA Z9").unwrap(), None);
        assert_eq!(of_model(&path, "NVIDIA H200").unwrap().map(|c| c.gpu), Some("NVIDIA H200".into()));
        assert_eq!((of_model(&path, "NVIDIA Z9").unwrap(), of_model(&path, "").unwrap()), (None, None));
        std::fs::write(&path, "{").unwrap();
        assert!(find(&path, "GPU-a", "").unwrap_err().next.is_some());
    }
}
