//! The files `lineage` and `events.jsonl` of a branch, read from any offset.

use std::cell::RefCell;
use std::collections::HashMap;

use super::HistoryReader;
use crate::lineage::SignedEntry;
use crate::memory::catalog::{BranchId, View};
use crate::memory::{Error, Memory};

/// A history file of a branch. It only grows, by one line for each entry it shows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HistoryFile {
    /// `lineage`: the branch's own lines, those of branches merged into it, and those it has from its parent.
    Lineage,
    /// `events.jsonl`: the branch's own lines, and those of branches below it that concern their parent.
    Events,
}

const READ_BYTES_MAX: usize = 1 << 20;

impl HistoryReader<'_> {
    /// Reads up to `size` bytes of a branch's history up to an entry. Lines of `lineage` for which `shows` is false
    /// show little, in as many bytes. At most 1 MiB is read at once. An error of `shows` ends it.
    pub fn lines(
        &self,
        (file, branch, last_seq): (HistoryFile, u64, u64),
        offset: u64,
        size: usize,
        shows: &dyn Fn(&SignedEntry) -> Result<bool, Error>,
    ) -> Result<Vec<u8>, Error> {
        let left = self.length(file, branch, last_seq)?.saturating_sub(offset);
        let size = size.min(READ_BYTES_MAX).min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut out = Vec::with_capacity(size);
        while out.len() < size {
            let (at, offset) = ((branch, last_seq), offset + out.len() as u64);
            let mut found = match file {
                HistoryFile::Events => self.event_at(at, offset)?,
                HistoryFile::Lineage => self.line_at(at, offset)?,
            };
            if file == HistoryFile::Lineage && !shows(&found.signed)? {
                // As many bytes as the line has, so that offsets are the same for every reader.
                let length = found.line.len();
                found.line.clear();
                found.signed.write_hidden_line(length, &mut found.line);
            }
            let rest = &found.line[found.line_offset as usize..];
            out.extend_from_slice(&rest[..rest.len().min(size - out.len())]);
        }
        Ok(out)
    }
}

impl Memory {
    /// Returns the number of the last entry in a view's history: the store's newest one for a branch, that of the
    /// checkpoint for a checkpoint, and the entry in the view itself for an earlier state or a proposal, whether or not
    /// that is still kept.
    ///
    /// Kind `NotFound` if the checkpoint is not there, `Gone` if the branch of the first two has ended.
    pub fn history_last_seq(&self, view: &View) -> Result<u64, Error> {
        Ok(match view {
            View::Branch(branch) => {
                self.catalog().branch(*branch)?;
                self.last_seq()
            }
            View::Checkpoint(branch, label) => self.catalog().branch(*branch)?.checkpoint(label)?.seq,
            View::At(_, entry) | View::Proposal(_, entry) => *entry,
        })
    }

    /// Returns the length in bytes of a branch's history, up to and with the entry `last_seq`; 0 for a branch without
    /// entries. Kind `Damaged` if an archive with entries of the branch is not what was written.
    pub fn history_length(&self, branch: BranchId, file: HistoryFile, last_seq: u64) -> Result<u64, Error> {
        self.history_reader().length(file, branch.0, last_seq)
    }

    /// Reads up to `size` bytes of a branch's history from byte `offset` on, up to and with the entry `last_seq`. Fewer
    /// are returned only at the end, or if `size` is above 1 MiB.
    ///
    /// `may_enter` gets the owner (a uid) and the mode of a branch's directory, and returns whether the reader may
    /// enter it. Entries about other branches show little to a reader who may not enter them.
    ///
    /// Kind `Damaged` if an archive is not what was written.
    pub fn read_history(
        &self,
        (branch, file, last_seq): (BranchId, HistoryFile, u64),
        offset: u64,
        size: usize,
        may_enter: &dyn Fn(u32, u32) -> bool,
    ) -> Result<Vec<u8>, Error> {
        let reader = self.history_reader();
        let access = LineageAccess {
            memory: self,
            reader: &reader,
            home: branch,
            may_enter,
            may_enter_by_branch: RefCell::default(),
        };
        let shows = |signed: &SignedEntry| access.may_enter_from_home(signed.entry.branch_id);
        reader.lines((file, branch.0, last_seq), offset, size, &shows)
    }
}

/// Which branches a reader may enter; each is asked about once a read.
struct LineageAccess<'a> {
    memory: &'a Memory,
    reader: &'a HistoryReader<'a>,
    /// The branch whose history is read: the reader is there already, so it is not asked for.
    home: BranchId,
    may_enter: &'a dyn Fn(u32, u32) -> bool,
    may_enter_by_branch: RefCell<HashMap<u64, bool>>,
}

impl LineageAccess<'_> {
    /// A branch is entered through those above it, up to the one where the reader is.
    fn may_enter_from_home(&self, branch: u64) -> Result<bool, Error> {
        let (mut at, mut passed, mut may_enter) = (branch, Vec::new(), true);
        while at != 0 && at != self.home.0 {
            if let Some(known) = self.may_enter_by_branch.borrow().get(&at) {
                may_enter = *known;
                break;
            }
            passed.push(at);
            let (parent, uid, mode) = self.parent_and_rights(at)?;
            if !(self.may_enter)(uid, mode) {
                may_enter = false;
                break;
            }
            at = parent;
        }
        // Each branch on the way is entered through those behind it, so that all have the same answer.
        self.may_enter_by_branch.borrow_mut().extend(passed.into_iter().map(|branch| (branch, may_enter)));
        Ok(may_enter)
    }

    fn parent_and_rights(&self, branch: u64) -> Result<(u64, u32, u32), Error> {
        if let Some(branch) = self.memory.catalog().branches.get(&BranchId(branch)) {
            return Ok((branch.parent.map_or(0, |parent| parent.0), branch.uid, branch.mode));
        }
        // A branch that has ended is in no catalog, and its history tells what it was at its end.
        let attrs = self.reader.timeline_point(branch, u64::MAX)?.attrs;
        Ok((attrs.parent, attrs.uid, attrs.mode))
    }
}
