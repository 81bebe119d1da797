//! An immutable file of consecutive entries, with what finds them.
//!
//! ```text
//!  section 0 entries    chunks of entries, see [`crate::lineage::EntryChunkWriter`]
//!          1 chunks     16 bytes each: where it ends in section 0 u64 · entries up to its end u64
//!          2 hashes     sorted, 12 bytes each: first 8 bytes of the entry's hash · u32 place in the archive
//!          3 branches   sorted by number, 32 bytes each: number u64 · end of its steps u64 · parent u64 · uid, mode u32
//!          4 steps      of one branch after the other, 40 bytes each: entry u64 · four totals u64
//!          5 before     sorted by number, 24 bytes each: number u64 · parent u64 · uid, mode u32
//!  extra                first entry, entries, branches, steps: varints
//! ```
//!
//! A branch has a row where an entry of the archive is a step of it ([`super::timeline`]). The totals count from the
//! branch's beginning, so that archives are merged by putting their steps one after the other. Section 5 is empty
//! unless entries before the first were moved out: then it has what is known of the branches that lived on. Totals
//! count from there.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::timeline::{BranchAttrs, LineTotals, TimelineStep};
use crate::lineage::{SignedEntry, read_entry_chunk};
use crate::memory::Error;
use crate::object::{BlobStore, CodecError, Hash, Reader};
use crate::segment::{Blocks, Container};

/// Kind byte of the file; a container of another kind is refused.
pub(super) const KIND: u8 = 10;
// Numbers of the sections, which the drawing above describes.
pub(super) const ENTRIES: usize = 0;
pub(super) const CHUNKS: usize = 1;
pub(super) const HASHES: usize = 2;
pub(super) const BRANCHES: usize = 3;
pub(super) const STEPS: usize = 4;
pub(super) const ATTRS_BEFORE: usize = 5;
/// Bytes of a row in [`CHUNKS`]: two u64.
pub(super) const CHUNK_ROW_BYTES: u64 = 16;
/// Bytes of a row in [`HASHES`]: 8 of a hash, and a u32.
pub(super) const HASH_ROW_BYTES: u64 = 12;
/// Bytes of a row in [`BRANCHES`]: three u64 and two u32.
pub(super) const BRANCH_ROW_BYTES: u64 = 32;
/// Bytes of a row in [`STEPS`]: five u64.
pub(super) const STEP_ROW_BYTES: u64 = 40;
/// Bytes of a row in [`ATTRS_BEFORE`]: two u64 and two u32.
pub(super) const ATTRS_BEFORE_ROW_BYTES: u64 = 24;

/// How an archive is named in the manifest: by the hash of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveName {
    /// The file's name in the blob store.
    pub name: Hash,
    /// How many entries it holds, never 0. The number of the first one follows from the archives before it.
    pub count: u64,
}

/// An archive; its file is opened when something of it is first needed.
pub struct Archive {
    /// The file's name in the blob store.
    pub name: Hash,
    /// Number of its first entry; the others follow without a gap.
    pub first: u64,
    /// How many entries it holds, never 0; the file is refused where it says otherwise.
    pub count: u64,
    file: OnceLock<OpenArchive>,
}

struct OpenArchive {
    file: Container,
    branch_count: u64,
    step_count: u64,
}

/// Where the steps of one branch are in an archive: one row of section 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchRow {
    /// The branch's number, by which rows are sorted.
    pub branch: u64,
    /// Where its steps begin in section 4, in steps.
    pub start: u64,
    /// Behind the last of them, in steps, too.
    pub end: u64,
    /// What was known of it after the last entry of the archive.
    pub attrs: BranchAttrs,
}

impl Archive {
    /// Names an archive; nothing is opened or checked yet.
    pub fn new(name: Hash, first: u64, count: u64) -> Archive {
        Archive { name, first, count, file: OnceLock::new() }
    }

    /// Opens an archive that no manifest describes, by reading its footer. Kind `Damaged` if the file is not an
    /// archive.
    pub fn from_file(blobs: &BlobStore, name: Hash) -> Result<Archive, Error> {
        let [first, count, ..] = archive_numbers(&Archive::open_file(blobs, name)?)?;
        Ok(Archive::new(name, first, count))
    }

    /// Opens the file of an archive that nothing names. Kind `Damaged` if the footer is not what was written, or the
    /// file is of another kind.
    pub fn open_file(blobs: &BlobStore, name: Hash) -> Result<Container, Error> {
        Ok(Container::open(blobs, name, KIND)?)
    }

    /// Returns the number of its last entry, without reading the file.
    pub fn last(&self) -> u64 {
        self.first + self.count - 1
    }

    fn get_or_open(&self, blobs: &BlobStore) -> Result<&OpenArchive, Error> {
        if let Some(opened) = self.file.get() {
            return Ok(opened);
        }
        let file = Archive::open_file(blobs, self.name)?;
        let [first, count, branch_count, step_count] = archive_numbers(&file)?;
        if (first, count) != (self.first, self.count) {
            return Err(self.damaged("it holds other entries than the manifest says"));
        }
        Ok(self.file.get_or_init(|| OpenArchive { file, branch_count, step_count }))
    }

    /// Returns the file. It is opened at the first call and kept. Kind `Damaged` if it is not an archive, or holds
    /// other entries than the manifest says.
    pub fn file(&self, blobs: &BlobStore) -> Result<&Container, Error> {
        Ok(&self.get_or_open(blobs)?.file)
    }

    /// Returns how many branches and steps it holds. Fails like [`Archive::file`].
    pub fn counts(&self, blobs: &BlobStore) -> Result<(u64, u64), Error> {
        self.get_or_open(blobs).map(|opened| (opened.branch_count, opened.step_count))
    }

    /// Returns an error of kind `Damaged` that names the archive; `reason` is a clause that says how it shows.
    pub fn damaged(&self, reason: &str) -> Error {
        Error::damaged(format!("the archive {} is damaged: {reason}", self.name))
    }

    fn read_numbers<const N: usize>(&self, blobs: &BlobStore, section: usize, at: u64) -> Result<[u64; N], Error> {
        let bytes = self.file(blobs)?.slice(section, at, 8 * N as u64)?;
        let mut numbers = [0; N];
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        Ok(numbers)
    }

    /// Returns how many chunks of entries it has. Fails like [`Archive::file`].
    pub fn chunk_count(&self, blobs: &BlobStore) -> Result<u64, Error> {
        Ok(self.file(blobs)?.section_length(CHUNKS)? / CHUNK_ROW_BYTES)
    }

    /// Returns the number of the chunk with the entry at a place. Places count from 0, the first entry of the archive;
    /// after the last one it is the number of chunks. Fails like [`Archive::file`], or if a block of the section is
    /// damaged.
    pub fn chunk_with(&self, blobs: &BlobStore, place: u64) -> Result<u64, Error> {
        let chunks = self.chunk_count(blobs)?;
        first_where(chunks, |at| Ok(self.read_numbers::<2>(blobs, CHUNKS, at * CHUNK_ROW_BYTES)?[1] > place))
    }

    /// Reads a chunk of entries, checked now. Kind `Damaged` if it does not hold the entries that the index says.
    /// `blocks` are those of one reply.
    pub fn chunk(&self, blobs: &BlobStore, number: u64, blocks: &mut Blocks) -> Result<Vec<SignedEntry>, Error> {
        let [start, place] = match number {
            0 => [0, 0],
            _ => self.read_numbers(blobs, CHUNKS, (number - 1) * CHUNK_ROW_BYTES)?,
        };
        let [end, places] = self.read_numbers(blobs, CHUNKS, number * CHUNK_ROW_BYTES)?;
        let length = end.checked_sub(start).filter(|_| place < places && places <= self.count);
        let length = length.ok_or_else(|| self.damaged("entries end before they begin"))?;
        let bytes = self.file(blobs)?.read(ENTRIES, start, length, blocks)?;
        let entries = read_entry_chunk(&bytes, self.first + place)
            .map_err(|error| self.damaged(&format!("an entry can't be read: {error}")))?;
        if places - place == entries.len() as u64 {
            return Ok(entries);
        }
        Err(self.damaged("a chunk holds more or fewer entries than its index says"))
    }

    /// Returns the row at that place in the sorted hashes: the first 8 bytes of a hash as a number, and the place of
    /// its entry in the archive. Fails like [`Archive::file`], or if the row lies past the section's end or in a
    /// damaged block.
    pub fn hash_row(&self, blobs: &BlobStore, at: u64) -> Result<(u64, u32), Error> {
        let bytes = self.file(blobs)?.slice(HASHES, at * HASH_ROW_BYTES, HASH_ROW_BYTES)?;
        let (hash, place) = bytes.split_at(8);
        Ok((
            u64::from_le_bytes(hash.try_into().unwrap_or_default()),
            u32::from_le_bytes(place.try_into().unwrap_or_default()),
        ))
    }

    /// Returns the numbers of entries that may have a hash. Hashes are spread evenly, so it is looked for near where it
    /// should be, and few blocks of the file are touched. Few hashes begin alike, so it is nearly always one or none;
    /// the caller compares the whole hash. Fails like [`Archive::hash_row`].
    pub fn candidates(&self, blobs: &BlobStore, hash: &Hash) -> Result<Vec<u64>, Error> {
        let wanted = hash_prefix(hash);
        let guess = ((u128::from(wanted) * u128::from(self.count)) >> 64) as u64;
        let slack = 4 * self.count.isqrt() + 16;
        let (mut low, mut high) = (guess.saturating_sub(slack), (guess + slack).min(self.count));
        let is_before = |at: u64| self.hash_row(blobs, at).map(|(prefix, _)| prefix < wanted);
        // The range is right for nearly every hash. Where it is not, the search goes to the end on that side.
        if low > 0 && !is_before(low - 1)? {
            low = 0;
        }
        if high < self.count && is_before(high)? {
            high = self.count;
        }
        let mut at = low + first_where(high - low, |at| Ok(!is_before(low + at)?))?;
        let mut found = Vec::new();
        while at < self.count {
            let (prefix, place) = self.hash_row(blobs, at)?;
            if prefix != wanted {
                break;
            }
            found.push(self.first + u64::from(place));
            at += 1;
        }
        Ok(found)
    }

    /// Returns the row of the branch at that place, from 0. Fails like [`Archive::hash_row`], and with kind `Damaged`
    /// if the branch's steps end before they begin, or after the last of all.
    pub fn branch_row(&self, blobs: &BlobStore, at: u64) -> Result<BranchRow, Error> {
        let start =
            if at == 0 { 0 } else { self.read_numbers::<1>(blobs, BRANCHES, (at - 1) * BRANCH_ROW_BYTES + 8)?[0] };
        let [branch, end, parent, rights] = self.read_numbers(blobs, BRANCHES, at * BRANCH_ROW_BYTES)?;
        if start >= end || end > self.get_or_open(blobs)?.step_count {
            return Err(self.damaged("a branch's steps end before they begin"));
        }
        Ok(BranchRow { branch, start, end, attrs: branch_attrs(parent, rights) })
    }

    /// Returns the row of a branch, if it has steps here. Fails like [`Archive::file`], or if a block of the section is
    /// damaged.
    pub fn find_branch(&self, blobs: &BlobStore, branch: u64) -> Result<Option<BranchRow>, Error> {
        // A branch has the number of its first entry.
        if branch > self.last() {
            return Ok(None);
        }
        let branches = self.get_or_open(blobs)?.branch_count;
        let number = |at: u64| self.read_numbers::<1>(blobs, BRANCHES, at * BRANCH_ROW_BYTES).map(|[number]| number);
        let at = first_where(branches, |at| Ok(number(at)? >= branch))?;
        if at == branches || number(at)? != branch { Ok(None) } else { self.branch_row(blobs, at).map(Some) }
    }

    /// Returns the facts about branches before the first entry. Empty unless entries were archived. Fails like
    /// [`Archive::file`], or if a block of the section is damaged.
    pub fn load_attrs_before(&self, blobs: &BlobStore) -> Result<BTreeMap<u64, BranchAttrs>, Error> {
        (0..self.attrs_before_count(blobs)?).map(|at| self.attrs_before_row(blobs, at)).collect()
    }

    /// Returns what was known of a branch before the first entry. `None` if the branch is newer, or nothing was moved
    /// out. Fails like [`Archive::load_attrs_before`].
    pub fn attrs_before(&self, blobs: &BlobStore, branch: u64) -> Result<Option<BranchAttrs>, Error> {
        let count = self.attrs_before_count(blobs)?;
        let at = first_where(count, |at| Ok(self.attrs_before_row(blobs, at)?.0 >= branch))?;
        let row = if at < count { Some(self.attrs_before_row(blobs, at)?) } else { None };
        Ok(row.filter(|(number, _)| *number == branch).map(|(_, attrs)| attrs))
    }

    fn attrs_before_count(&self, blobs: &BlobStore) -> Result<u64, Error> {
        Ok(self.file(blobs)?.section_length(ATTRS_BEFORE)? / ATTRS_BEFORE_ROW_BYTES)
    }

    fn attrs_before_row(&self, blobs: &BlobStore, at: u64) -> Result<(u64, BranchAttrs), Error> {
        let [branch, parent, rights] = self.read_numbers(blobs, ATTRS_BEFORE, at * ATTRS_BEFORE_ROW_BYTES)?;
        Ok((branch, branch_attrs(parent, rights)))
    }

    /// Returns the step at that place in section 4. Its totals are bytes of lines. Fails like [`Archive::file`], or if
    /// the place lies past the section's end or in a damaged block.
    pub fn step(&self, blobs: &BlobStore, at: u64) -> Result<TimelineStep, Error> {
        let [seq, own_bytes, merged_bytes, lineage_bytes, events_bytes] =
            self.read_numbers(blobs, STEPS, at * STEP_ROW_BYTES)?;
        Ok(TimelineStep { seq, totals: LineTotals { own_bytes, merged_bytes, lineage_bytes, events_bytes } })
    }
}

/// Returns the numbers of the first entry, entries, branches and steps, checked against the lengths of the sections.
fn archive_numbers(file: &Container) -> Result<[u64; 4], Error> {
    let damaged = |reason: &str| Error::damaged(format!("the archive {} is damaged: {reason}", file.name()));
    let mut extra = Reader::new(file.extra());
    let parsed = (|| Ok([extra.number()?, extra.number()?, extra.number()?, extra.number()?]))();
    let [first, count, branches, steps] = parsed.map_err(|error: CodecError| damaged(&error.to_string()))?;
    for (section, count, width) in
        [(HASHES, count, HASH_ROW_BYTES), (BRANCHES, branches, BRANCH_ROW_BYTES), (STEPS, steps, STEP_ROW_BYTES)]
    {
        if Some(file.section_length(section)?) != count.checked_mul(width) {
            return Err(damaged("a section has another length than its rows"));
        }
    }
    // Entries count from 1, and the number behind the last one must fit a u64.
    if first == 0 || count == 0 || first.checked_add(count).is_none() {
        return Err(damaged("it has no entries that there could be"));
    }
    Ok([first, count, branches, steps])
}

fn branch_attrs(parent: u64, rights: u64) -> BranchAttrs {
    BranchAttrs { parent, uid: rights as u32, mode: (rights >> 32) as u32 }
}

/// Returns the first 8 bytes of a hash, big-endian, so that keys sort as the whole hashes do.
pub(super) fn hash_prefix(hash: &Hash) -> u64 {
    u64::from_be_bytes(hash.0[..8].try_into().unwrap_or_default())
}

/// Returns the first of `count` places for which `holds`, or `count`; it holds for all behind one for which it does.
/// `holds` is asked about as often as `count` has bits, and an error of it ends the search.
pub(super) fn first_where(count: u64, holds: impl Fn(u64) -> Result<bool, Error>) -> Result<u64, Error> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}
