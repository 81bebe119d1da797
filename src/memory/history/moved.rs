//! Files of entries that were moved out of the lineage: archives in a folder of their own, which nothing in the store needs.
//!
//! The last entry's signature vouches for all before it, and the store keeps that entry's hash. A user may take the files
//! away; `verify` checks those that are there.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::archive::Archive;
use super::purge::{PurgedItems, rewrite_archive};
use super::read::HistoryReader;
use super::write::{FreshEntries, write};
use crate::disk::Disk;
use crate::lineage::SignedEntry;
use crate::memory::{Error, Kind};
use crate::object::{BlobStore, Hash, TEMP_PREFIX};
use crate::segment::{Blocks, SegmentError};

/// The folder of a store that they are in; a user may take files of it away.
pub(in crate::memory) const FOLDER: &str = "archive";

/// The files of entries that were moved out, as far as they are there.
pub(in crate::memory) struct MovedEntries {
    disk: Arc<dyn Disk>,
    blobs: BlobStore,
    /// By the number of the first entry, then by how many they have.
    files: Vec<Archive>,
}

impl MovedEntries {
    /// Opens the files there are, none if the folder is missing. Kind `Damaged` if a file of it is not an archive,
    /// temporary files aside.
    pub fn open(disk: &Arc<dyn Disk>) -> Result<MovedEntries, Error> {
        let blobs = BlobStore::open_existing(disk.clone(), FOLDER);
        let names = match disk.list(FOLDER) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            names => names.map_err(|error| Error::io("the folder archive could not be read", error))?,
        };
        let names = names
            .iter()
            .filter(|name| !name.starts_with(TEMP_PREFIX))
            .map(|name| name.parse::<Hash>().map_err(|_| Error::ForeignFile(format!("{FOLDER}/{name}"))));
        let open = |name: Hash| Archive::from_file(&blobs, name).map_err(|error| name_file(&blobs, &name, error));
        let files = names.map(|name| open(name?)).collect::<Result<Vec<_>, _>>();
        let mut files = files?;
        files.sort_by_key(|file| (file.first, file.count));
        Ok(MovedEntries { disk: disk.clone(), blobs, files })
    }

    /// Writes a file with these entries, which the store still holds; returns its path in the store. The file and its
    /// name are durable then. Fails if the disk refuses, or an entry can't be read.
    pub fn write(&mut self, reader: &HistoryReader<'_>, seqs: RangeInclusive<u64>) -> Result<String, Error> {
        self.disk.create_dir(FOLDER).map_err(|error| Error::io("the folder archive could not be made", error))?;
        let (first, last) = (*seqs.start(), *seqs.end());
        self.remove_unfinished(first)?;
        let entries = FreshEntries { first, last, ..FreshEntries::default() };
        let file = write(&self.blobs, reader, &[], &entries)?;
        self.disk.sync_dir("").map_err(|error| Error::io("the folder archive could not be made", error))?;
        let path = self.blobs.path(&file.name);
        self.files.push(file);
        Ok(path)
    }

    /// Removes what a crash left before its entry was made: half files, and those of entries that the store still holds, from
    /// `first` on.
    fn remove_unfinished(&mut self, first: u64) -> Result<(), Error> {
        self.files.retain(|file| file.last() < first);
        let swept = self.blobs.sweep(|| self.files.iter().map(|file| file.name).collect());
        swept.map(drop).map_err(|error| Error::io("an unfinished file in archive could not be removed", error))
    }

    /// Calls `each` with every entry in order, up to the one before `first`; returns the numbers that are missing.
    ///
    /// Each file is checked whole. Kind `Damaged` if a file is not what was written, or two have the same entries. An
    /// error of `each` ends it.
    pub fn for_each_chunk(
        &self,
        first: u64,
        mut each: impl FnMut(Vec<SignedEntry>) -> Result<(), Error>,
    ) -> Result<Vec<RangeInclusive<u64>>, Error> {
        let (mut missing, mut next) = (Vec::new(), 1);
        for file in self.files.iter().filter(|file| file.last() < first) {
            let named = |error: Error| name_file(&self.blobs, &file.name, error);
            file.file(&self.blobs).and_then(|opened| Ok(opened.verify()?)).map_err(named)?;
            if file.first < next {
                let reason = "another file has the same entries".to_owned();
                return Err(Error::MovedFile { path: self.blobs.path(&file.name), reason });
            }
            if file.first > next {
                missing.push(next..=file.first - 1);
            }
            for chunk in 0..file.chunk_count(&self.blobs).map_err(named)? {
                each(file.chunk(&self.blobs, chunk, &mut Blocks::default()).map_err(named)?)?;
            }
            next = file.last() + 1;
        }
        if next < first {
            missing.push(next..=first - 1);
        }
        Ok(missing)
    }

    /// Takes the texts of lines that merges did not keep out of the files, where they are about one of these items.
    /// Files are replaced one by one. After a failure those before it are purged, and a second call continues.
    pub fn purge(&mut self, purged: &PurgedItems) -> Result<(), Error> {
        for at in 0..self.files.len() {
            let file = &self.files[at];
            let mut quotes = std::collections::BTreeSet::new();
            for chunk in 0..file.chunk_count(&self.blobs)? {
                for signed in file.chunk(&self.blobs, chunk, &mut Blocks::default())? {
                    quotes.extend(purged.quotes_in(&signed));
                }
            }
            if quotes.is_empty() {
                continue;
            }
            let without = rewrite_archive(&self.blobs, file, &quotes)?;
            let name = std::mem::replace(&mut self.files[at], without).name;
            self.remove(&name)?;
        }
        Ok(())
    }

    fn remove(&self, name: &Hash) -> Result<(), Error> {
        let remove = || self.disk.remove(&self.blobs.path(name)).and_then(|()| self.disk.sync_dir(FOLDER));
        remove().map_err(|error| Error::io(format!("{} could not be removed", self.blobs.path(name)), error))
    }
}

/// Names the file that damaged bytes are in; any other error stays as it is.
fn name_file(blobs: &BlobStore, name: &Hash, error: Error) -> Error {
    let reason = match &error {
        Error::Segment(error) => match &**error {
            SegmentError::Damaged { reason, .. } => Some(reason.clone()),
            SegmentError::Io { .. } => None,
        },
        other => (other.kind() == Kind::Damaged).then(|| other.to_string()),
    };
    match reason {
        Some(reason) => Error::MovedFile { path: blobs.path(name), reason },
        None => error,
    }
}
