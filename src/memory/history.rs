//! All entries of the store: the recent ones in memory, the older ones in archives on the shelf.

use std::sync::Arc;

use super::world::BranchId;
use super::{Error, Memory};
use crate::lineage::{Entry, Op, SIGNATURE_BYTES, SignedEntry};
use crate::object::{CodecError, Hash, Reader, Shelf, Writer};
use crate::segment::{Container, ContainerWriter};

/// Kind byte of a file of entries.
const KIND: u8 = 2;

/// An immutable file of consecutive entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Archive {
    /// The file's name.
    pub name: Hash,
    /// How many entries it holds.
    pub count: u64,
}

/// All entries in order.
#[derive(Default)]
pub(super) struct History {
    /// The older ones.
    pub archives: Vec<Archive>,
    /// Those since.
    pub recent: Vec<Arc<SignedEntry>>,
}

impl History {
    /// Adds the newest entry.
    pub fn push(&mut self, entry: Arc<SignedEntry>) {
        self.recent.push(entry);
    }
}

/// Writes entries into an archive, canonical bytes and signature each.
pub(super) fn write_archive(shelf: &Shelf, entries: &[Arc<SignedEntry>]) -> Result<Archive, Error> {
    let mut out = ContainerWriter::new(shelf)?;
    out.begin()?;
    for entry in entries {
        let mut bytes = Writer::new();
        bytes.raw(&entry.signature).raw(&entry.entry.to_bytes());
        out.write(bytes.as_slice())?;
    }
    let mut extra = Writer::new();
    extra.number(entries.len() as u64);
    let name = out.finish(KIND, extra.as_slice())?;
    Ok(Archive { name, count: entries.len() as u64 })
}

/// Opens the file of an archive.
pub(super) fn open_archive(shelf: &Shelf, archive: &Archive) -> Result<Container, Error> {
    Ok(Container::open(shelf, archive.name, KIND)?)
}

/// Reads the entries of an archive; signatures are not checked here.
pub(super) fn read_archive(file: &Container, archive: &Archive) -> Result<Vec<Arc<SignedEntry>>, Error> {
    let mut input = Reader::new(file.section(0)?);
    let mut read = || -> Result<Arc<SignedEntry>, CodecError> {
        let signature: [u8; SIGNATURE_BYTES] = input.raw(SIGNATURE_BYTES)?.try_into().map_err(|_| CodecError::Short)?;
        let entry = Entry::read(&mut input)?;
        let hash = entry.hash();
        Ok(Arc::new(SignedEntry { entry, hash, signature }))
    };
    let entries = (0..archive.count).map(|_| read()).collect::<Result<Vec<_>, _>>()?;
    if !input.is_empty() {
        return Err(Error::damaged(format!("the archive {} holds more than its entries", archive.name)));
    }
    Ok(entries)
}

impl Memory {
    /// Returns all entries in order.
    pub(super) fn entries(&self) -> Result<Vec<Arc<SignedEntry>>, Error> {
        let (archives, recent) = {
            let history = self.history.read();
            (history.archives.clone(), history.recent.clone())
        };
        let mut all = Vec::new();
        for archive in &archives {
            all.extend(read_archive(&open_archive(&self.segments.shelf, archive)?, archive)?);
        }
        all.extend(recent);
        Ok(all)
    }

    /// Returns the entries that a branch's `lineage` shows: its own, its ancestors' up to the fork,
    /// and those of branches merged into it.
    pub(super) fn lineage_of(&self, branch: BranchId) -> Result<Vec<Arc<SignedEntry>>, Error> {
        Ok(select(&self.entries()?, branch))
    }

    /// Returns the entries of a branch's lineage, with those of all branches ever forked below it
    /// where `subtree` is set, as JSON lines without line ends.
    pub fn lineage_lines(&self, branch: BranchId, subtree: bool) -> Result<Vec<String>, Error> {
        let all = self.entries()?;
        let chosen = if subtree { below(&all, branch) } else { select(&all, branch) };
        Ok(chosen.iter().map(|entry| entry.to_line()).collect())
    }
}

/// Walks from the newest entry back. `wanted` tells up to which entry each branch's are shown.
fn select(all: &[Arc<SignedEntry>], branch: BranchId) -> Vec<Arc<SignedEntry>> {
    let mut wanted = std::collections::HashMap::from([(branch.0, u64::MAX)]);
    let mut chosen = Vec::new();
    for signed in all.iter().rev() {
        let entry = &signed.entry;
        let reaches = |id: u64| wanted.get(&id).is_some_and(|upto| entry.seq <= *upto);
        let (own, joins) = (reaches(entry.branch_id), entry.reaches_parent() && reaches(entry.parent_id));
        if !own && !joins {
            continue;
        }
        chosen.push(signed.clone());
        let mut want = |id: u64| {
            let upto = wanted.entry(id).or_insert(entry.seq);
            *upto = (*upto).max(entry.seq);
        };
        if joins {
            want(entry.branch_id);
        }
        if own && matches!(entry.op, Op::Fork | Op::Pull) && entry.parent_id != 0 {
            want(entry.parent_id);
        }
    }
    chosen.reverse();
    chosen
}

/// A branch's own entries and those of every branch ever forked below it.
fn below(all: &[Arc<SignedEntry>], branch: BranchId) -> Vec<Arc<SignedEntry>> {
    let mut inside = std::collections::HashSet::from([branch.0]);
    let belongs = |signed: &&Arc<SignedEntry>| {
        let entry = &signed.entry;
        if inside.contains(&entry.parent_id) {
            inside.insert(entry.branch_id);
        }
        inside.contains(&entry.branch_id)
    };
    all.iter().filter(belongs).cloned().collect()
}
