//! What making or copying a store leaves where it fails, and its removal: what was there before stays.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::maintenance::unfinished_purge;
use super::storage::manifest;

/// The files and folders that making or copying a store makes. The manifest goes first: without it nothing is taken for a store.
const NAMES: [&str; 9] = [
    manifest::PATH,
    manifest::NEW_PATH,
    unfinished_purge::PATH,
    "format",
    "key",
    "key.pub",
    "journal",
    crate::segment::FOLDER,
    super::admission::reserve::FOLDER,
];

/// A folder in which a store is being made.
pub(super) struct UnfinishedStore {
    folder: PathBuf,
    /// The folder and those above it that were not there, the deepest first.
    missing: Vec<PathBuf>,
}

impl UnfinishedStore {
    /// Notes what is there before the first folder is made.
    pub fn new(folder: &Path) -> UnfinishedStore {
        let above = folder.ancestors().take_while(|above| !above.as_os_str().is_empty());
        let missing = above.take_while(|above| above.symlink_metadata().is_err()).map(Path::to_owned).collect();
        UnfinishedStore { folder: folder.to_owned(), missing }
    }

    /// Removes what belongs to a store. The folder stays: a mount point can't be removed, and of a symbolic link to a folder the
    /// link would go and not what is in there. The file `lock` stays, too, as others may be about to lock it. Fails if
    /// something can't be removed.
    pub fn remove_content(&self) -> io::Result<()> {
        NAMES.iter().try_for_each(|name| remove(&self.folder.join(name)))
    }

    /// Removes the folders that were not there before, as far as they are empty.
    pub fn remove_folders(&self) {
        self.missing.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }

    /// Removes all that was made, for whoever holds the lock. What can't be removed stays.
    pub fn remove_all(&self) {
        let removed = self.remove_content();
        // Only with its folder: in one that stays, two processes could lock two files of that name.
        if removed.is_ok() && !self.missing.is_empty() {
            let _ = remove(&self.folder.join("lock"));
        }
        self.remove_folders();
    }
}

/// Removes a file or a folder, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_a_store_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (above, store) = (dir.path().join("new"), dir.path().join("new/store"));
        let unfinished = UnfinishedStore::new(&store);
        fs::create_dir_all(store.join("journal")).unwrap();
        for name in ["manifest", "key", "lock", "journal/1"] {
            fs::write(store.join(name), "x").unwrap();
        }
        fs::write(store.join("notes"), "mine").unwrap();
        unfinished.remove_all();
        assert_eq!(fs::read_dir(&store).unwrap().count(), 1, "somebody else put it there");
        fs::remove_file(store.join("notes")).unwrap();
        unfinished.remove_folders();
        assert!(!above.exists() && dir.path().exists());
        fs::create_dir_all(&store).unwrap();
        fs::write(store.join("lock"), "x").unwrap();
        UnfinishedStore::new(&store).remove_all();
        assert!(store.join("lock").exists());
    }
}
