//! Files written whole or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that takes its place when it is complete: written beside it as `NAME.part` and renamed by [`Whole::keep`]; dropped
/// before, it leaves what was there.
///
/// What is no regular file (`/dev/null`, a pipe) and what a link names is written in place: a rename would put a regular file
/// where the device or the link was, and on a machine whose `/dev/null` has become a file nothing works as it should.
pub struct Whole {
    file: File,
    /// The neighbour and the name that it gets; none where the file is written in place.
    rename: Option<(PathBuf, PathBuf)>,
}

impl Whole {
    /// Opens the neighbour, or the file itself where it must be written in place.
    pub fn create(path: &Path) -> io::Result<Whole> {
        if std::fs::symlink_metadata(path).is_ok_and(|m| !m.file_type().is_file()) {
            return Ok(Whole { file: File::create(path)?, rename: None });
        }
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
        name.push(".part");
        let part = path.with_file_name(name);
        Ok(Whole { file: File::create(&part)?, rename: Some((part, path.to_owned())) })
    }

    /// Flushes it to the disk and gives it its name.
    pub fn keep(mut self) -> io::Result<()> {
        if let Some((part, path)) = &self.rename {
            self.file.sync_all()?;
            std::fs::rename(part, path)?;
            self.rename = None;
        }
        Ok(())
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.rename {
            let _ = std::fs::remove_file(part);
        }
    }
}

/// Writes a file whole or not at all.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = Whole::create(path)?;
    file.write_all(bytes)?;
    file.keep()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_when_the_new_one_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write(&path, b"first").unwrap();
        let mut second = Whole::create(&path).unwrap();
        second.write_all(b"half").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        drop(second);
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        write(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a neighbour was left");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_a_pipe_a_pipe() {
        use std::os::unix::fs::FileTypeExt;
        let folder = tempfile::tempdir().unwrap();
        let (target, link, pipe) =
            (folder.path().join("target"), folder.path().join("link"), folder.path().join("pipe"));
        std::fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write(&link, b"new").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&target).unwrap(), b"new");

        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe).unwrap()
        });
        write(&pipe, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    }
}
