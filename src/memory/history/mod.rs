//! All entries of the store: the recent ones in memory, the older ones in archives in the blob store, and what finds them by
//! number, by hash, and by where they are in the `lineage` and `events.jsonl` of a branch.
//!
//! ```text
//!  timeline   what an entry adds to the histories of its branch and its parent
//!  tail       the entries behind the newest archive, in memory
//!  archive    an immutable file of entries with its indexes        write   making one, merging small ones; chunks  its entries
//!  read       finding entries and lines in both                    lines   the two files of a branch, for readers
//!  cut        archives without their first entries                 moved   the files that those are moved to
//!  purge      archives without some texts of lines that merges did not keep
//! ```

mod archive;
mod chunks;
mod cut;
#[cfg(any(fuzzing, debug_assertions))]
pub mod fuzzing;
mod lines;
mod moved;
mod purge;
mod read;
mod tail;
mod timeline;
mod write;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::lineage::{Entry, SignedEntry};
use crate::memory::catalog::LineageStart;
use crate::memory::{Error, Memory};
use crate::object::BlobStore;
use crate::sync::{Rank, RwLock};

pub use archive::{Archive, ArchiveName};
pub(super) use cut::without_entries_before;
pub use lines::HistoryFile;
pub(super) use moved::{FOLDER as ARCHIVE_FOLDER, MovedEntries};
pub(super) use purge::without_quotes;
pub use purge::{DecisionRef, PurgedItems};
pub(super) use read::HistoryReader;
use tail::HistoryTail;
use timeline::{LineLengths, LineTotals, TimelinePoint, advance, is_parent_event, needs_parent};
use write::FreshEntries;

/// The archives of a moment, and the entries behind them. Who reads holds one: a seal makes another.
pub(super) struct HistorySnapshot {
    /// The first entry here; those before it were moved out.
    pub start: LineageStart,
    /// Oldest first, each beginning behind the one before it.
    pub archives: Vec<Arc<Archive>>,
    tail: RwLock<HistoryTail>,
}

impl HistorySnapshot {
    /// Returns the number of the newest entry; one less than that of the first where there is none.
    pub fn newest(&self) -> u64 {
        self.tail.read().next_seq() - 1
    }
}

/// All entries in order. A seal swaps the snapshot, and readers go on with the one that they have.
pub(super) struct History(RwLock<Arc<HistorySnapshot>>);

impl History {
    /// Begins with archives, oldest first; no file is opened yet.
    pub fn new(names: &[ArchiveName], start: LineageStart) -> History {
        let mut first = start.first_seq;
        let archives: Vec<Arc<Archive>> = names
            .iter()
            .map(|archive| {
                let archive = Archive::new(archive.name, first, archive.count);
                first += archive.count;
                Arc::new(archive)
            })
            .collect();
        let tail = RwLock::with_rank(Rank::Leaf, HistoryTail::new(first));
        History(RwLock::with_rank(Rank::History, Arc::new(HistorySnapshot { start, archives, tail })))
    }

    /// Returns archives and entries as they are now. Later entries appear in it as well, until a seal installs another one.
    pub fn snapshot(&self) -> Arc<HistorySnapshot> {
        self.0.read().clone()
    }

    /// Returns the names of all archives, oldest first, for the next manifest.
    pub fn archives(&self) -> Vec<ArchiveName> {
        archive_names(&self.snapshot().archives)
    }

    /// Looks up what [`History::push`] of an entry needs to know. Only who writes calls these two. Kind `Damaged` if an
    /// archive that has steps of its branches is not what was written.
    pub fn prepare_push(&self, blobs: &BlobStore, entry: &Entry) -> Result<(), Error> {
        let snapshot = self.snapshot();
        let parent = if needs_parent(entry) { entry.parent_id } else { 0 };
        for branch in [entry.branch_id, parent] {
            // Archives are read here, where that may fail. `push` comes when the entry is in the journal already, and
            // can't.
            if branch != 0 && !snapshot.tail.read().has_attrs(branch) {
                let point = HistoryReader::new(blobs, snapshot.clone()).timeline_point(branch, u64::MAX)?;
                snapshot.tail.write().begin(branch, point);
            }
        }
        Ok(())
    }

    /// Adds the newest entry: its sequence number is one more than that of the entry before, as look-ups count on.
    pub fn push(&self, signed: &SignedEntry) {
        let lengths = line_lengths(signed);
        self.snapshot().tail.write().push(signed, lengths);
    }

    /// Puts the entries up to `last_seq` into an archive, and merges small archives into it. Nothing changes yet. Fails
    /// if an entry can't be read or the new archive can't be written. Where only merging fails the small ones stay as
    /// they are.
    pub fn build_archives(&self, blobs: &BlobStore, last_seq: u64) -> Result<Vec<Arc<Archive>>, Error> {
        let snapshot = self.snapshot();
        let mut archives = snapshot.archives.clone();
        let first = archives.last().map_or(snapshot.start.first_seq, |archive| archive.last() + 1);
        if first > last_seq {
            return Ok(archives);
        }
        let fresh = FreshEntries {
            first,
            last: last_seq,
            branches: snapshot.tail.read().steps_up_to(last_seq),
            attrs_before: BTreeMap::new(),
        };
        let reader = HistoryReader::new(blobs, snapshot.clone());
        let older = archives.split_off(archives.len() - write::count_to_merge(&archives, last_seq + 1 - first));
        let archive = match write::write(blobs, &reader, &older, &fresh) {
            // The disk may have room for the small one alone, and damage in an old one is not a reason to seal nothing.
            Err(error) if !older.is_empty() => {
                log::warn!("archives of entries are not merged now: {error}");
                archives.extend(older);
                write::write(blobs, &reader, &[], &fresh)?
            }
            written => written?,
        };
        archives.push(Arc::new(archive));
        Ok(archives)
    }

    /// Takes over what [`History::build_archives`] made; the caller has the writer's lock. Returns what is to be dropped
    /// without it.
    pub fn install(&self, archives: Vec<Arc<Archive>>, start: LineageStart) -> Arc<HistorySnapshot> {
        let old = self.snapshot();
        let sealed = archives.last().map_or(start.first_seq - 1, |archive| archive.last());
        let tail = HistoryTail::after_seal(&old.tail.read(), sealed);
        let snapshot = Arc::new(HistorySnapshot { start, archives, tail: RwLock::with_rank(Rank::Leaf, tail) });
        std::mem::replace(&mut *self.0.write(), snapshot)
    }
}

/// Returns the form in which the manifest names archives, oldest first: no number is stored but their counts.
pub(super) fn archive_names(archives: &[Arc<Archive>]) -> Vec<ArchiveName> {
    archives.iter().map(|archive| ArchiveName { name: archive.name, count: archive.count }).collect()
}

/// Returns how long an entry's two lines are; both are written to find out.
fn line_lengths(signed: &SignedEntry) -> LineLengths {
    let mut line = Vec::with_capacity(1024);
    signed.write_line(&mut line);
    let length = line.len() as u64;
    line.clear();
    signed.write_event(&mut line);
    LineLengths { lineage_bytes: length, events_bytes: line.len() as u64 }
}

/// Checks the indexes of archives against their entries, which come one after the other.
pub(super) struct ArchiveCheck {
    points: HashMap<u64, TimelinePoint>,
    /// How many steps of each branch the archive at hand has shown.
    steps_seen: HashMap<u64, u64>,
}

impl ArchiveCheck {
    /// Begins with what is known of branches before the first archive. Kind `Io` or `Damaged` if the first archive
    /// can't be opened or its rows of branches can't be read.
    pub fn new(blobs: &BlobStore, archives: &[Arc<Archive>]) -> Result<ArchiveCheck, Error> {
        let before = archives.first().map(|archive| archive.load_attrs_before(blobs)).transpose()?.unwrap_or_default();
        let point = |attrs| TimelinePoint { attrs, totals: LineTotals::default() };
        let points = before.into_iter().map(|(branch, attrs)| (branch, point(attrs))).collect();
        Ok(ArchiveCheck { points, steps_seen: HashMap::new() })
    }

    /// Checks what finds the next entry, which is in `archive`. Kind `Damaged` if the archive does not find it by its
    /// hash, or has another step than follows from the entries, or, at its last entry, steps that belong to none.
    pub fn check_entry(&mut self, blobs: &BlobStore, archive: &Archive, signed: &SignedEntry) -> Result<(), Error> {
        let entry = &signed.entry;
        if entry.seq == archive.first {
            self.steps_seen.clear();
        }
        if !archive.candidates(blobs, &signed.hash)?.contains(&entry.seq) {
            return Err(archive.damaged(&format!("entry {} is not found by its hash", entry.seq)));
        }
        if entry.branch_id != 0 {
            let point = |branch: u64| self.points.get(&branch).copied().unwrap_or_default();
            let (mut branch, mut parent) = (point(entry.branch_id), point(entry.parent_id));
            advance(entry, line_lengths(signed), &mut branch, &mut parent);
            self.check_step(blobs, archive, entry.seq, (entry.branch_id, branch))?;
            if is_parent_event(entry) {
                self.check_step(blobs, archive, entry.seq, (entry.parent_id, parent))?;
            }
        }
        if entry.seq == archive.last() {
            return self.check_end(blobs, archive);
        }
        Ok(())
    }

    fn check_step(
        &mut self,
        blobs: &BlobStore,
        archive: &Archive,
        seq: u64,
        (branch, point): (u64, TimelinePoint),
    ) -> Result<(), Error> {
        self.points.insert(branch, point);
        let row = archive.find_branch(blobs, branch)?;
        let seen = self.steps_seen.entry(branch).or_default();
        *seen += 1;
        let is_right = match row.filter(|row| row.start + *seen <= row.end) {
            None => false,
            Some(row) => {
                let step = archive.step(blobs, row.start + *seen - 1)?;
                let is_last = row.start + *seen == row.end;
                (step.seq, step.totals) == (seq, point.totals) && (!is_last || row.attrs == point.attrs)
            }
        };
        if is_right {
            return Ok(());
        }
        Err(archive.damaged(&format!("entry {seq} does not stand where it should in the history of branch {branch}")))
    }

    fn check_end(&self, blobs: &BlobStore, archive: &Archive) -> Result<(), Error> {
        let (branches, steps) = archive.counts(blobs)?;
        if (branches, steps) == (self.steps_seen.len() as u64, self.steps_seen.values().sum::<u64>()) {
            return Ok(());
        }
        Err(archive.damaged("it names steps of branches that no entry is"))
    }
}

impl Memory {
    /// Returns a reader of the present history. Make one for each request: it caches what it looks up.
    pub(super) fn history_reader(&self) -> HistoryReader<'_> {
        HistoryReader::new(&self.storage.segments.blobs, self.history.snapshot())
    }

    /// Returns the lines of a branch's lineage, without line ends and in the order of the file; with `subtree` those of
    /// all branches ever forked below it, merged or not, in the order of their numbers. Kind `Damaged` if an archive is
    /// not what was written. Empty for a branch without entries.
    pub fn lineage_lines(&self, branch: crate::memory::BranchId, subtree: bool) -> Result<Vec<String>, Error> {
        let reader = self.history_reader();
        if !subtree {
            let (mut text, newest) = (Vec::new(), reader.newest());
            let length = reader.length(HistoryFile::Lineage, branch.0, newest)?;
            while (text.len() as u64) < length {
                let part =
                    reader
                        .lines((HistoryFile::Lineage, branch.0, newest), text.len() as u64, 1 << 20, &|_| Ok(true))?;
                text.extend_from_slice(&part);
            }
            return Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect());
        }
        let mut inside = std::collections::HashSet::from([branch.0]);
        let mut lines = Vec::new();
        for seq in reader.first()..=reader.newest() {
            let signed = reader.entry(seq)?;
            let entry = &signed.entry;
            // A branch is forked after its parent was, so one pass finds all that is below.
            if inside.contains(&entry.parent_id) {
                inside.insert(entry.branch_id);
            }
            if inside.contains(&entry.branch_id) {
                lines.push(signed.to_line());
            }
        }
        Ok(lines)
    }
}
