//! Finding entries by number and by hash, and the line at an offset of a history. Each read takes a reader of its own:
//! what it looked up stays for that read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::HistorySnapshot;
use super::archive::first_where;
use super::lines::HistoryFile;
use super::timeline::{BranchAttrs, TimelinePoint, TimelineStep};
use crate::lineage::SignedEntry;
use crate::memory::Error;
use crate::object::{BlobStore, Hash};
use crate::segment::Blocks;

/// Branches that lie between a line and the branch in whose history it is; more are a sign of damage.
const DEPTH_MAX: usize = 1 << 16;

#[derive(Clone, Copy)]
enum StepLocation {
    /// In the archive of that index among the snapshot's, from a step of its section 4 on.
    Archive(usize, u64),
    /// In the tail, where a branch's steps count from 0.
    Tail,
}

#[derive(Clone, Copy)]
struct HistoryPiece {
    location: StepLocation,
    count: u64,
    attrs: BranchAttrs,
}

#[derive(Default)]
struct DecodedChunk {
    first: u64,
    entries: Vec<Arc<SignedEntry>>,
}

impl DecodedChunk {
    fn get(&self, seq: u64) -> Option<Arc<SignedEntry>> {
        self.entries.get(usize::try_from(seq.checked_sub(self.first)?).ok()?).cloned()
    }
}

/// Reads entries and histories of one snapshot, in one thread: what it looks up stays in it.
pub(in crate::memory) struct HistoryReader<'a> {
    blobs: &'a BlobStore,
    snapshot: Arc<HistorySnapshot>,
    /// The steps of each branch, newest first.
    pieces: RefCell<HashMap<u64, Arc<[HistoryPiece]>>>,
    blocks: RefCell<Blocks>,
    decoded: RefCell<DecodedChunk>,
}

#[derive(Clone, Copy)]
enum LineList {
    /// All of `lineage`, without those that this branch brought, 0 for none.
    Lineage {
        without: u64,
    },
    Own,
}

impl<'a> HistoryReader<'a> {
    /// Opens no file yet; archives are opened by the look-ups that need them.
    pub fn new(blobs: &'a BlobStore, snapshot: Arc<HistorySnapshot>) -> HistoryReader<'a> {
        HistoryReader {
            blobs,
            snapshot,
            pieces: RefCell::default(),
            blocks: RefCell::default(),
            decoded: RefCell::default(),
        }
    }

    /// Returns the number of the first entry that the store holds; more than 1 where older ones were moved out.
    pub fn first(&self) -> u64 {
        self.snapshot.start.first_seq
    }

    /// Returns the number of the newest entry, which grows as others are written, until a seal.
    pub fn newest(&self) -> u64 {
        self.snapshot.newest()
    }

    /// Returns an entry by its number. Who reads one after the other decodes each chunk once. [`Error::EntryArchived`]
    /// for one that was moved out, [`Error::NoEntry`] for a number that none has yet.
    pub fn entry(&self, seq: u64) -> Result<Arc<SignedEntry>, Error> {
        if (1..self.first()).contains(&seq) {
            return Err(Error::EntryArchived(seq));
        }
        let mut decoded = self.decoded.borrow_mut();
        if decoded.get(seq).is_none() {
            *decoded = self.decode(seq)?.ok_or(Error::NoEntry(seq))?;
        }
        decoded.get(seq).ok_or(Error::NoEntry(seq))
    }

    /// Reads the chunk that an entry is in. `None` where no entry has that number yet.
    fn decode(&self, seq: u64) -> Result<Option<DecodedChunk>, Error> {
        let archives = &self.snapshot.archives;
        let number = archives.partition_point(|archive| archive.last() < seq);
        let (first, entries) = match archives.get(number) {
            Some(archive) if archive.first <= seq => {
                let chunk = archive.chunk_with(self.blobs, seq - archive.first)?;
                let entries = archive.chunk(self.blobs, chunk, &mut self.blocks.borrow_mut())?;
                (entries.first().map_or(0, |first| first.entry.seq), entries)
            }
            _ => {
                let Some((first, chunk)) = self.snapshot.tail.read().chunk(seq) else { return Ok(None) };
                (first, chunk.entries(first).map_err(|error| Error::damaged(format!("entry {seq}: {error}")))?)
            }
        };
        Ok(Some(DecodedChunk { first, entries: entries.into_iter().map(Arc::new).collect() }))
    }

    /// Returns an entry by its hash. `None` if no entry has it. The newest archives are looked at first. Kind `Damaged`
    /// if an archive is not what was written.
    pub fn find_by_hash(&self, hash: &Hash) -> Result<Option<Arc<SignedEntry>>, Error> {
        let mut numbers = self.snapshot.tail.read().candidates(hash);
        for archive in self.snapshot.archives.iter().rev() {
            numbers.extend(archive.candidates(self.blobs, hash)?);
        }
        for seq in numbers {
            let signed = self.entry(seq)?;
            // The indexes hold beginnings of hashes, so only the entry itself decides.
            if signed.hash == *hash {
                return Ok(Some(signed));
            }
        }
        Ok(None)
    }

    fn pieces(&self, branch: u64) -> Result<Arc<[HistoryPiece]>, Error> {
        if let Some(pieces) = self.pieces.borrow().get(&branch) {
            return Ok(pieces.clone());
        }
        let mut pieces = Vec::new();
        {
            // Its lock is not held while archives are read below.
            let tail = self.snapshot.tail.read();
            if let Some(attrs) = tail.attrs(branch) {
                pieces.push(HistoryPiece { location: StepLocation::Tail, count: tail.step_count(branch), attrs });
            }
        }
        for (number, archive) in self.snapshot.archives.iter().enumerate().rev() {
            if let Some(row) = archive.find_branch(self.blobs, branch)? {
                let location = StepLocation::Archive(number, row.start);
                pieces.push(HistoryPiece { location, count: row.end - row.start, attrs: row.attrs });
            }
        }
        let pieces: Arc<[HistoryPiece]> = pieces.into();
        self.pieces.borrow_mut().insert(branch, pieces.clone());
        Ok(pieces)
    }

    fn step(&self, branch: u64, piece: &HistoryPiece, at: u64) -> Result<TimelineStep, Error> {
        match piece.location {
            StepLocation::Archive(number, start) => self.snapshot.archives[number].step(self.blobs, start + at),
            StepLocation::Tail => Ok(self.snapshot.tail.read().step_at(branch, at).unwrap_or_default()),
        }
    }

    /// Returns a branch as it stood behind an entry. What is known of it beside the totals is the newest. All totals
    /// are 0 if it has no entry until then. Kind `Io` or `Damaged` if an archive with steps of the branch can't be
    /// read.
    pub fn timeline_point(&self, branch: u64, last_seq: u64) -> Result<TimelinePoint, Error> {
        let attrs = match (self.pieces(branch)?.first(), self.snapshot.archives.first()) {
            (Some(piece), _) => piece.attrs,
            (None, Some(archive)) => archive.attrs_before(self.blobs, branch)?.unwrap_or_default(),
            (None, None) => BranchAttrs::default(),
        };
        let totals = self.last_step(branch, last_seq)?.unwrap_or_default().totals;
        Ok(TimelinePoint { totals, attrs })
    }

    /// Returns the last step of a branch up to an entry. `None` if it has none until then. Kind `Io` or `Damaged` if an
    /// archive with steps of the branch can't be read.
    pub fn last_step(&self, branch: u64, last_seq: u64) -> Result<Option<TimelineStep>, Error> {
        for piece in self.pieces(branch)?.iter() {
            let step = |at: u64| self.step(branch, piece, at);
            let last = step(piece.count - 1)?;
            if last.seq <= last_seq {
                return Ok(Some(last));
            }
            let count = first_where(piece.count, |at| Ok(step(at)?.seq > last_seq))?;
            if count > 0 {
                return step(count - 1).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns how many entries the store holds that are steps of a branch. Kind `Io` or `Damaged` if an archive with
    /// steps of the branch can't be read.
    pub fn step_count(&self, branch: u64) -> Result<u64, Error> {
        Ok(self.pieces(branch)?.iter().map(|piece| piece.count).sum())
    }

    /// Returns the first step of a branch up to an entry whose value is more than `wanted`, and the one before it.
    /// Values never fall from step to step. `None` if no value is. Fails like `value`, or if an archive with steps of
    /// the branch can't be read; kind `Damaged` if steps that are out of order lead to one of a later entry.
    pub fn seek(
        &self,
        (branch, last_seq): (u64, u64),
        wanted: u64,
        value: impl Fn(&TimelineStep) -> Result<u64, Error>,
    ) -> Result<Option<(TimelineStep, TimelineStep)>, Error> {
        let mut found = None;
        for piece in self.pieces(branch)?.iter() {
            let step = |at: u64| self.step(branch, piece, at);
            let mut count = piece.count;
            // Mostly all steps of a piece count, which one look tells.
            if step(count - 1)?.seq > last_seq {
                count = first_where(count, |at| Ok(step(at)?.seq > last_seq))?;
            }
            if count == 0 {
                continue;
            }
            let at = first_where(count, |at| Ok(value(&step(at)?)? > wanted))?;
            if at > 0 {
                let before = step(at - 1)?;
                let hit = if at < count { Some(step(at)?) } else { found };
                return hit.map(|hit| Ok((before, hit.check_up_to(branch, last_seq)?))).transpose();
            }
            // All values here are more, so it is this first step, unless an older piece has such a value as well.
            found = Some(step(0)?);
        }
        found.map(|hit| Ok((TimelineStep::default(), hit.check_up_to(branch, last_seq)?))).transpose()
    }

    /// Returns the length of a history up to an entry, in bytes. Fails like [`HistoryReader::timeline_point`].
    pub fn length(&self, file: HistoryFile, branch: u64, last_seq: u64) -> Result<u64, Error> {
        let totals = self.timeline_point(branch, last_seq)?.totals;
        Ok(match file {
            HistoryFile::Lineage => totals.lineage_bytes,
            HistoryFile::Events => totals.events_bytes,
        })
    }

    /// Returns the entry whose line is at an offset of `events.jsonl`, the line, and where in it the offset is. Kind
    /// `Damaged` if the totals lead to no line.
    pub(super) fn event_at(&self, at: (u64, u64), offset: u64) -> Result<FoundEntry, Error> {
        let found = self.seek(at, offset, |step| Ok(step.totals.events_bytes))?;
        let (before, hit) = found.ok_or_else(|| misplaced_entry(at.0))?;
        let signed = self.entry(hit.seq)?;
        let mut line = Vec::with_capacity(512);
        signed.write_event(&mut line);
        FoundEntry { signed, line, line_offset: offset.saturating_sub(before.totals.events_bytes) }.check_branch(at.0)
    }

    /// Returns the entry whose line is at an offset of `lineage`, the line, and where in it the offset is. Totals that
    /// contradict one another lead to no line: kind `Damaged`.
    pub(super) fn line_at(&self, at: (u64, u64), offset: u64) -> Result<FoundEntry, Error> {
        let (branch, mut at, mut wanted, mut list) = (at.0, at, offset, LineList::Lineage { without: 0 });
        for _ in 0..DEPTH_MAX {
            let value = |step: &TimelineStep| self.bytes_up_to(list, step);
            let (before, hit) = self.seek(at, wanted, value)?.ok_or_else(|| misplaced_entry(branch))?;
            let rest = wanted.saturating_sub(value(&before)?);
            let signed = self.entry(hit.seq)?;
            let entry = &signed.entry;
            if entry.branch_id != at.0 {
                // The entry merged a child: what follows is of the child's own lines, behind those that earlier merges
                // took over.
                let merged = self.timeline_point(entry.branch_id, hit.seq - 1)?.totals.merged_bytes;
                (at, wanted, list) = ((entry.branch_id, hit.seq), merged.saturating_add(rest), LineList::Own);
                continue;
            }
            let mut line = Vec::with_capacity(1024);
            signed.write_line(&mut line);
            let lead = value(&hit)?.saturating_sub(value(&before)?).saturating_sub(line.len() as u64);
            if rest >= lead {
                return FoundEntry { signed, line, line_offset: rest - lead }.check_branch(branch);
            }
            // The entry is a fork or a pull: what follows is of the parent's lines, behind those that were taken over
            // before.
            wanted = before.totals.lineage_bytes.saturating_sub(before.totals.own_bytes).saturating_add(rest);
            (at, list) = ((entry.parent_id, hit.seq - 1), LineList::Lineage { without: at.0 });
        }
        Err(misplaced_entry(branch))
    }

    fn bytes_up_to(&self, list: LineList, step: &TimelineStep) -> Result<u64, Error> {
        match list {
            LineList::Own => Ok(step.totals.own_bytes),
            LineList::Lineage { without: 0 } => Ok(step.totals.lineage_bytes),
            LineList::Lineage { without } => Ok(step
                .totals
                .lineage_bytes
                .saturating_sub(self.timeline_point(without, step.seq)?.totals.merged_bytes)),
        }
    }
}

impl TimelineStep {
    /// Lines are followed from a fork to entries before it, so a step of a later entry could lead round in a circle.
    fn check_up_to(self, branch: u64, last_seq: u64) -> Result<TimelineStep, Error> {
        if self.seq <= last_seq { Ok(self) } else { Err(misplaced_entry(branch)) }
    }
}

/// The line at an offset of a history, with the entry that it is of.
pub(super) struct FoundEntry {
    /// The entry with its signature.
    pub signed: Arc<SignedEntry>,
    /// The whole line, also the bytes before the offset.
    pub line: Vec<u8>,
    /// Bytes of the line before the offset: less than the line has.
    pub line_offset: u64,
}

impl FoundEntry {
    fn check_branch(self, branch: u64) -> Result<FoundEntry, Error> {
        if self.line_offset < self.line.len() as u64 { Ok(self) } else { Err(misplaced_entry(branch)) }
    }
}

fn misplaced_entry(branch: u64) -> Error {
    Error::damaged(format!("the index of entries does not lead to the lines of branch {branch}"))
}
