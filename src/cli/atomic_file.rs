//! A file of the user's that is replaced as a whole, or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::random_tag::random_tag;

/// Names that are tried; that two in a row are taken by chance is next to impossible.
const NAMES_MAX: usize = 8;

/// A new file beside the place that it is for, which it takes once it is whole. Dropped before, it is removed.
pub struct AtomicFile {
    /// Where it goes.
    place: PathBuf,
    /// Where it is until then.
    path: PathBuf,
    file: File,
    is_in_place: bool,
}

impl AtomicFile {
    /// Makes an empty file for `place`, under a name that nobody can know before: what is there already under any name,
    /// a symbolic link too, is neither followed nor written to. Fails if no file can be made in that folder.
    pub fn create(place: &Path) -> io::Result<AtomicFile> {
        let mut left = NAMES_MAX;
        loop {
            left -= 1;
            // Not made of the name of the place, so that it is never too long.
            let path = place.with_file_name(format!(".engramfs-{}.part", random_tag(12)));
            match File::create_new(&path) {
                Ok(file) => return Ok(AtomicFile { place: place.to_owned(), path, file, is_in_place: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && left > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns where it goes.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Returns the file, which can be read, too.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts the file in its place, and what was there is gone. Fails if that can't be done; the old file stays then, and
    /// the new one is removed.
    pub fn replace(mut self) -> io::Result<()> {
        fs::rename(&self.path, &self.place)?;
        self.is_in_place = true;
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.is_in_place {
            // Whoever could be told is told what went wrong before.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_replaces_the_one_before_or_leaves_it_alone() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a");
        fs::write(&place, "old").unwrap();
        let mut dropped = AtomicFile::create(&place).unwrap();
        dropped.file().write_all(b"half").unwrap();
        drop(dropped);
        assert_eq!((fs::read(&place).unwrap(), fs::read_dir(dir.path()).unwrap().count()), (b"old".to_vec(), 1));
        let (mut one, other) = (AtomicFile::create(&place).unwrap(), AtomicFile::create(&place).unwrap());
        one.file().write_all(b"new").unwrap();
        assert_eq!(one.place(), place);
        one.replace().unwrap();
        drop(other);
        assert_eq!((fs::read(&place).unwrap(), fs::read_dir(dir.path()).unwrap().count()), (b"new".to_vec(), 1));
        assert!(AtomicFile::create(&dir.path().join("none/a")).is_err());
    }

    #[test]
    fn a_link_in_the_place_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let [place, victim] = ["a", "victim"].map(|name| dir.path().join(name));
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, &place).unwrap();
        AtomicFile::create(&place).unwrap().replace().unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        assert!(place.symlink_metadata().unwrap().is_file());
    }
}
