//! A consistent copy of a store, also while it is in use.

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::contents::is_whole;
use super::verify::{VerifyOptions, verify};
use super::{Error, Kind};
use crate::disk::{Disk, RealDisk};
use crate::journal::{Files, Journal, JournalError};

/// How often a copy is begun anew when the store was sealed while it was made.
const TRIES: usize = 20;

/// Copies the store at `store` to `dest`, which must not exist or be an empty folder.
///
/// Segments never change, the manifest is replaced as a whole, and the journal only grows: so a
/// copy of the manifest first, then of what it names, then of the journal as far as it goes, is a
/// state that the store really had. A seal meanwhile makes the copy begin anew. The copy is
/// verified before it is called done. It holds the signing key.
pub fn backup(store: &Path, dest: &Path) -> Result<Value, Error> {
    if !store.join("format").exists() {
        let message = format!("there is no store at {}", store.display());
        return Err(Error::new(Kind::NotFound, "no_such_store", message, "name the folder that the store is in"));
    }
    if fs::read_dir(dest).is_ok_and(|mut entries| entries.next().is_some()) {
        let message = format!("{} is there and not empty", dest.display());
        return Err(Error::new(Kind::Exists, "exists", message, "name a new folder"));
    }
    for _ in 0..TRIES {
        let copied = copy(store, dest).map_err(|error| Error::io("the store could not be copied", &error))?;
        if let Some(bytes) = copied {
            let verified = verify(dest, &VerifyOptions::default())?;
            return Ok(json!({ "bytes": bytes, "tip": verified["tip"], "entries": verified["entries"] }));
        }
        fs::remove_dir_all(dest).map_err(|error| Error::io("an unfinished copy could not be removed", &error))?;
    }
    let message = "the store was sealed again and again while it was copied";
    Err(Error::new(Kind::Busy, "busy", message, "try again when less is written"))
}

/// Copies once; nothing if the manifest changed meanwhile.
fn copy(store: &Path, dest: &Path) -> io::Result<Option<u64>> {
    fs::create_dir_all(dest.join("journal"))?;
    fs::create_dir_all(dest.join("segments"))?;
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(dest, private)?;
    let before = fs::read(store.join("manifest"))?;
    let mut bytes = 0;
    for name in ["format", "key", "key.pub", "manifest"] {
        bytes += fs::copy(store.join(name), dest.join(name))?;
    }
    for folder in ["journal", "segments"] {
        let mut entries: Vec<_> = fs::read_dir(store.join(folder))?.collect::<io::Result<_>>()?;
        // The newest journal file first: what is written to the one before it precedes all that is copied of it.
        entries.sort_by_key(|entry| Reverse(entry.file_name()));
        for entry in entries {
            if entry.file_name().to_string_lossy().starts_with("draft-") {
                continue;
            }
            match fs::copy(entry.path(), dest.join(folder).join(entry.file_name())) {
                Ok(copied) => bytes += copied,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
    if fs::read(store.join("manifest"))? != before {
        return Ok(None);
    }
    cut_to_whole_frames(dest)?;
    for folder in ["journal", "segments", ""] {
        fs::File::open(dest.join(folder))?.sync_all()?;
    }
    Ok(Some(bytes))
}

/// Cuts a frame that was being written while the journal was copied.
fn cut_to_whole_frames(dest: &Path) -> io::Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(dest));
    let names = disk.list("journal")?;
    let Some(first) = names.iter().filter_map(|name| Journal::number_of(name)).min() else { return Ok(()) };
    let cut = || -> Result<(), JournalError> {
        let files = Files::list(&disk, first)?.replay::<JournalError>(true, |frame| Ok(is_whole(&frame)))?;
        // Whatever else stands there, the check of the copy says what is wrong with it.
        if files.torn().is_none_or(|torn| torn.cut_short) { files.carry_on(&disk).map(drop) } else { Ok(()) }
    };
    cut().map_err(io::Error::other)
}
