//! Whether a place lies in a store, where nothing else may be written: its check would find a file that no store has.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use super::{CopyError, Error};
use crate::disk::{Disk, RealDisk};

/// How the file `format` begins in stores of all versions, also those that this one can't open.
const FORMAT_PREFIX: &[u8; 14] = b"engramfs store";

/// Looks for the name `format` alone: the store there may be unfinished or damaged.
pub(super) fn is_store(path: &Path) -> bool {
    path.join("format").symlink_metadata().is_ok()
}

/// Refuses a place that is or lies in a store, by whatever path, before anything is made there.
///
/// [`CopyError::Inside`] if it does, [`CopyError::DotDotPath`] for a path with `..` below a folder that is not there.
pub fn check_outside_stores(dest: &Path) -> Result<(), Error> {
    check_outside(dest, None)
}

/// Refuses what [`check_outside_stores`] does, and a place in `store`, also where a bind mount gives it another path.
pub(super) fn check_outside(dest: &Path, store: Option<&Path>) -> Result<(), Error> {
    let failed = |error: io::Error| Error::io(format!("{} could not be looked at", dest.display()), error);
    let path = std::path::absolute(dest).map_err(failed)?;
    let found = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let (existing, real) = found.unwrap_or((Path::new("/"), "/".into()));
    // Where `..` leads behind a folder that is not there yet is not known.
    if path.strip_prefix(existing).is_ok_and(|rest| rest.components().any(|part| part == Component::ParentDir)) {
        return Err(CopyError::DotDotPath(dest.to_owned()).into());
    }
    let parts = store.into_iter().flat_map(|store| ["", "journal", "segments"].map(|part| store.join(part)));
    // By device and inode, as a bind mount gives a folder of the store another path.
    let own: Vec<_> = parts.filter_map(|part| part.metadata().ok()).map(|it| (it.dev(), it.ino())).collect();
    for above in real.ancestors() {
        let it = above.metadata().map_err(failed)?;
        if own.contains(&(it.dev(), it.ino())) || has_store_format(&RealDisk::new(above)) {
            return Err(CopyError::Inside { dest: dest.to_owned(), store: above.to_owned() }.into());
        }
    }
    Ok(())
}

/// Returns whether the file `format` of a folder says that it is a store, of whatever version.
fn has_store_format(disk: &RealDisk) -> bool {
    let mut bytes = [0; FORMAT_PREFIX.len()];
    disk.open("format").and_then(|file| file.read_exact_at(&mut bytes, 0)).is_ok() && bytes == *FORMAT_PREFIX
}
