//! `undo` and `redo`: which entries of a branch a user takes back next.

use std::sync::Arc;

use super::find_state::StateSearch;
use super::merge::MergeOptions;
use super::merge_result::MergeResult;
use super::revert::RevertTarget;
use crate::lineage::{Entry, EntryOp, SignedEntry};
use crate::memory::catalog::{BranchId, StateSource};
use crate::memory::command::merge_verb::{RevertVerb, RevertedEntries};
use crate::memory::{Actor, Error, Memory, MergeError};
use crate::workspace::Tree;

/// Deletions at most this far apart are undone as one.
const DELETE_RUN_GAP_NANOS: i64 = 1_000_000_000;
/// The same for entries about files, each of which commits up to a second of operations.
const FILE_DELETE_RUN_GAP_NANOS: i64 = 2 * DELETE_RUN_GAP_NANOS;
/// Files of one entry that are looked through to tell whether it only deleted.
const FILES_COMPARED_MAX: usize = 1 << 16;

impl Memory {
    /// Takes back the caller's newest `count` changes of a branch, each by an entry of its own. [`RevertVerb::Undo`]
    /// takes back changes, [`RevertVerb::Redo`] takes back undos. Deletions within a second of each other count as one
    /// change.
    ///
    /// Kind `Invalid`, code `nothing_to_undo` or `nothing_to_redo`, if there is none. If one of several can't be taken
    /// back, those before it are.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use engramfs::disk::ForgetfulDisk;
    /// use engramfs::memory::{Actor, Environment, Error, Memory, OpenMode, RecordEdit, RecordInput, RevertVerb, View};
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
    /// # let environment = Environment::real(ann.clone());
    /// # let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment)?;
    /// # let main = memory.root("main").unwrap();
    /// # let put = |id: &str, text: &str| {
    /// #     let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
    /// #     vec![RecordEdit::Put { id: id.into(), input }]
    /// # };
    /// memory.commit(&ann, main, put("tea", "tea is at four"))?;
    /// memory.commit(&ann, main, put("tea", "tea is at five"))?;
    ///
    /// memory.undo(&ann, main, RevertVerb::Undo, 1, false)?;
    /// let now = memory.snapshot(&View::Branch(main))?;
    /// assert_eq!(now.get("tea")?.unwrap().text(), Some("tea is at four"));
    ///
    /// memory.undo(&ann, main, RevertVerb::Redo, 1, false)?;
    /// let now = memory.snapshot(&View::Branch(main))?;
    /// assert_eq!(now.get("tea")?.unwrap().text(), Some("tea is at five"));
    /// assert_eq!(memory.undo(&ann, main, RevertVerb::Redo, 1, false).unwrap_err().code(), "nothing_to_redo");
    /// # Ok(())
    /// # }
    /// ```
    pub fn undo(
        &self,
        who: &Actor,
        branch: BranchId,
        verb: RevertVerb,
        count: usize,
        dry_run: bool,
    ) -> Result<MergeResult, Error> {
        if !self.is_read_only() {
            // What was written to files becomes an entry first.
            self.commit_and_announce(who, &[Some(branch)])?;
        }
        let targets = UndoSearch::new(self, who, branch)?.find(verb, count)?;
        let mut all: Option<MergeResult> = None;
        for target in targets {
            let result = self.revert_entries(who, branch, &target, MergeOptions::default(), dry_run)?;
            all = Some(match all {
                Some(before) => before.followed_by(result),
                None => result,
            });
        }
        let nothing = if verb == RevertVerb::Redo { MergeError::NothingToRedo } else { MergeError::NothingToUndo };
        all.ok_or_else(|| nothing.into())
    }
}

/// A walk from the newest change of a branch to the oldest that can be taken back.
struct UndoSearch<'a> {
    search: StateSearch<'a>,
    uid: u32,
    /// The changes so far, newest first, read as the walk needs them.
    changes: Vec<Arc<SignedEntry>>,
    /// The first and last number of entries that were taken back.
    taken_back: Vec<(u64, u64)>,
    /// The entry of the oldest state that is kept: nothing before it can be taken back.
    oldest: u64,
}

impl<'a> UndoSearch<'a> {
    fn new(memory: &'a Memory, who: &Actor, branch: BranchId) -> Result<UndoSearch<'a>, Error> {
        let search = StateSearch::new(memory, branch)?;
        let oldest = search.catalog.retained.oldest(branch)?.map_or(u64::MAX, |oldest| oldest.key.1);
        Ok(UndoSearch { search, uid: who.uid, changes: Vec::new(), taken_back: Vec::new(), oldest })
    }

    fn find(mut self, verb: RevertVerb, count: usize) -> Result<Vec<RevertTarget>, Error> {
        // All targets are found before the first is taken back: each revert is an entry, and would shift what comes
        // next.
        let (mut found, mut at) = (Vec::new(), 0);
        while found.len() < count
            && let Some(last) = self.change(at)?
            && let Some(mut before) = self.state_before(at)?
        {
            let mut first = last.clone();
            let is_done = self.is_taken_back(&last.entry);
            let is_target = !is_done && self.is_target(&last.entry, verb);
            // Before the next change is looked at: walking from the newest, a revert is met before what it took back.
            // One that is taken back, or will be, takes nothing back: what follows is searched as behind its end.
            self.note_revert(&last.entry, is_done || is_target);
            at += 1;
            if !is_target {
                continue;
            }
            while let Some(older) = self.change(at)?
                && self.is_grouped_with(&older.entry, &first.entry)?
                && let Some(older_state) = self.state_before(at)?
            {
                (first, before) = (older, older_state);
                at += 1;
            }
            let entries = RevertedEntries { before, first: first.entry.seq, last: last.entry.seq, verb };
            found.push(RevertTarget { entries, last });
        }
        Ok(found)
    }

    /// Returns a change by its place, newest first; `None` if the state behind it is not kept.
    fn change(&mut self, at: usize) -> Result<Option<Arc<SignedEntry>>, Error> {
        while self.changes.len() <= at {
            let newer = self.changes.last().map_or(self.search.reader.newest() + 1, |newer| newer.entry.seq);
            match self.search.change_before(newer)? {
                // A state that is not kept ends the walk: nothing behind it can be taken back, as a revert needs the
                // state before.
                Some(change) if change.entry.seq >= self.oldest => self.changes.push(change),
                _ => return Ok(None),
            }
        }
        Ok(self.changes.get(at).cloned())
    }

    /// Returns the number of the entry that gave the state before a change, by the place of that; `None` if that state
    /// is not kept.
    fn state_before(&mut self, at: usize) -> Result<Option<u64>, Error> {
        if let Some(before) = self.change(at + 1)? {
            return Ok(Some(before.entry.seq));
        }
        let Some(change) = self.change(at)? else { return Ok(None) };
        // The entry may be moved out of the lineage, and its state still be kept.
        Ok(self.search.state_before(change.entry.seq)?.filter(|before| *before >= self.oldest))
    }

    fn is_taken_back(&self, entry: &Entry) -> bool {
        self.taken_back.iter().any(|(first, last)| (*first..=*last).contains(&entry.seq))
    }

    /// Notes which entries a revert took back, unless that is taken back itself.
    fn note_revert(&mut self, entry: &Entry, is_taken_back: bool) {
        if entry.op == EntryOp::Revert && !is_taken_back {
            self.taken_back.extend(entry.detail.label.as_deref().and_then(RevertedEntries::parse_label));
        }
    }

    /// Returns whether a verb is about an entry: one of the caller's, for `redo` an undo, else anything but that.
    fn is_target(&self, entry: &Entry, verb: RevertVerb) -> bool {
        let is_undo = entry.op == EntryOp::Revert && entry.detail.text.as_deref() == Some(RevertVerb::Undo.name());
        entry.uid == self.uid && is_undo == (verb == RevertVerb::Redo)
    }

    /// Returns whether a change counts as one with the next: both only delete, soon after each other.
    fn is_grouped_with(&mut self, entry: &Entry, next: &Entry) -> Result<bool, Error> {
        let together = if next.op == EntryOp::Files { FILE_DELETE_RUN_GAP_NANOS } else { DELETE_RUN_GAP_NANOS };
        let is_soon = next.time.0.saturating_sub(entry.time.0) <= together;
        let is_same = entry.uid == self.uid && entry.op == next.op && !self.is_taken_back(entry);
        Ok(is_soon && is_same && self.only_deletes(next)? && self.only_deletes(entry)?)
    }

    fn only_deletes(&mut self, entry: &Entry) -> Result<bool, Error> {
        match entry.op {
            EntryOp::Commit => Ok(entry.counts.put == 0 && entry.counts.deleted > 0),
            EntryOp::Files => {
                let at = self.changes.iter().position(|change| change.entry.seq == entry.seq);
                let Some(at) = at else { return Ok(false) };
                // The walk may not have come there yet.
                let Some(before) = self.state_before(at)? else { return Ok(false) };
                let state = |seq| self.search.catalog.resolve_source(&self.search.branch, &StateSource::Entry(seq));
                let (Ok(before), Ok(after)) = (state(before), state(entry.seq)) else { return Ok(false) };
                Ok(only_deletes_files(before.state.files(), after.state.files(), FILES_COMPARED_MAX))
            }
            _ => Ok(false),
        }
    }
}

/// Returns whether all that differs between two trees went. Those that differ in more than `most` paths count as no
/// deletion: a count of paths alone does not tell one from a change.
fn only_deletes_files(before: &Tree, after: &Tree, most: usize) -> bool {
    let found = before.differences_at_most(after, most);
    found.is_some_and(|found| !found.is_empty() && found.iter().all(|it| it.new.is_none()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Environment, FILES_ROOT, FileName, FileOp, NewInode, OpenMode, View};

    #[test]
    fn an_entry_that_changed_more_than_65536_files_counts_as_no_deletion() {
        assert_eq!(FILES_COMPARED_MAX, 65_536);
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let environment = Environment::real(who.clone());
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        let name = |name: &str| FileName::new(name.as_bytes()).unwrap();
        for file in ["a", "b", "c"] {
            let make = NewInode::File;
            let op = FileOp::Create { parent: FILES_ROOT, name: name(file), make, mode: 0o644, uid: 0, gid: 0 };
            memory.edit(&who, main, op).unwrap();
        }
        let before = memory.files(&View::Branch(main)).unwrap();
        for file in ["a", "b", "c"] {
            memory.edit(&who, main, FileOp::Unlink { parent: FILES_ROOT, name: name(file), keep: false }).unwrap();
        }
        let after = memory.files(&View::Branch(main)).unwrap();
        assert!(only_deletes_files(&before, &after, 3));
        assert!(!only_deletes_files(&before, &after, 2), "one more than may be compared");
    }
}
