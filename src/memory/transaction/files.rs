//! The files of a branch: an operation is one frame of the journal, and what was done within a
//! second is one entry of the lineage.
//!
//! A frame of an operation is not signed by itself. The entry that commits it is: its head covers
//! the files. So every command that looks at a branch's head commits pending operations first. Until then a
//! keyed code binds it to all before it. Long writes are in `contents`.

use std::sync::Arc;

use super::file_ops::{content_bytes, frees_room, is_replayable, moves_directory};
use super::transact::LogTail;
use crate::journal::{FrameKind, Journal};
use crate::lineage::ITEMS_MAX;
use crate::memory::admission::disk_room::disk_cost_bytes;
use crate::memory::catalog::settings::Settings;
use crate::memory::catalog::{Branch, BranchId, Catalog, OrphanFile, ResolvedView, View};
use crate::memory::command::log_record::COMMAND_BYTES;
use crate::memory::{Actor, BranchEvent, Error, Kind, Memory};
use crate::object::{CodecError, Hash, Reader, Time, Writer};
use crate::sync::allow_waiting;
use crate::workspace::{DirectWrite, FileOp, FileOutcome, Packs, Tree, TreeDifference, TreeError};

/// Operations that are committed with the writer's lock held; what more changed is worked out before.
const COMMITTED_UNDER_LOCK_MAX: u64 = 256;

/// What was done to a branch's files since its last entry.
pub(in crate::memory) struct PendingFiles {
    /// Uid of the user. An operation of another user first commits these.
    pub(super) uid: u32,
    /// The files before the first of them, with which the entry compares.
    pub(super) before: Tree,
    /// Which paths differ, as far as that was worked out; none before the first time.
    counted: Option<CountedChanges>,
    /// Operations on the branch when that was, or when the first came.
    counted_at: u64,
    /// Operations on the branch so far.
    edits: u64,
    /// Operations on the branch when a directory was moved last, with all that is in it.
    moved_at: u64,
}

/// How many paths differ, as of some operation, and the first of them.
struct CountedChanges {
    after: Tree,
    count: u64,
    first: Vec<Arc<str>>,
}

impl PendingFiles {
    /// Returns how many operations have come since paths were last compared, or since the entry.
    pub(in crate::memory) fn operation_count(&self) -> u64 {
        // Operations on files without a name count for the branch and are never pending.
        self.edits.saturating_sub(self.counted_at)
    }

    /// Returns how many paths differ between the files before and after, and the first of them; one that was changed, and
    /// changed again after the count was worked out, may count twice.
    pub(super) fn count_changed_paths(&self, after: &Tree) -> (u64, Vec<Arc<str>>) {
        let Some(done) = &self.counted else { return count_paths_between(&self.before, after) };
        let (count, more) = count_paths_between(&done.after, after);
        let is_new = |path: &Arc<str>| !done.first.contains(path);
        (done.count + count, done.first.iter().cloned().chain(more.into_iter().filter(is_new)).collect())
    }
}

/// Returns how many paths differ between two trees, and the first of those that everybody could list: who reads the branch
/// is told of them.
fn count_paths_between(before: &Tree, after: &Tree) -> (u64, Vec<Arc<str>>) {
    let changes = before.differences(after);
    let path = |change: &TreeDifference| format!("files/{}", String::from_utf8_lossy(&change.path)).into();
    let listed = changes.iter().filter(|change| change.is_listed_by_everybody([before, after]));
    (changes.len() as u64, listed.take(ITEMS_MAX).map(path).collect())
}

/// Who changes the files of which branch, and when: the beginning of each frame of an operation.
#[derive(Clone, Copy)]
pub(in crate::memory) struct Author {
    /// The branch whose files they are.
    pub branch: BranchId,
    /// When it was done: the time that nodes get from it.
    pub time: Time,
    /// Who did it.
    pub uid: u32,
}

impl Author {
    /// Appends the stored form: branch, time, uid.
    pub fn write(&self, out: &mut Writer) {
        out.number(self.branch.0).signed(self.time.0).number(u64::from(self.uid));
    }

    /// Reads the stored form. [`CodecError::Number`] for a uid of more than 32 bits.
    pub fn read(input: &mut Reader<'_>) -> Result<Author, CodecError> {
        let (branch, time) = (BranchId(input.number()?), Time(input.signed()?));
        Ok(Author { branch, time, uid: u32::try_from(input.number()?).map_err(|_| CodecError::Number)? })
    }
}

/// An operation as the journal holds it, except for the code that binds it.
pub(in crate::memory) struct FileOpRecord<'a> {
    /// Who did it, where and when.
    pub author: Author,
    /// What was done; bytes of a write may be borrowed from the caller.
    pub op: FileOp<'a>,
}

/// The files of a branch before an operation, and how many came before it.
#[derive(Clone)]
pub(in crate::memory) struct FilesBefore {
    /// All files of the branch.
    pub tree: Tree,
    /// Operations on them since the store was opened, as [`Branch::file_op_count`] counts.
    pub edits: u64,
}

impl FilesBefore {
    /// Returns the files of a branch. Fails with `Gone` if it has ended.
    pub fn from_catalog(catalog: &Catalog, branch: BranchId) -> Result<FilesBefore, Error> {
        let branch = catalog.branch(branch)?;
        Ok(FilesBefore { tree: branch.state.files().clone(), edits: branch.file_op_count })
    }
}

/// What an operation was checked against before the writer's lock was taken.
struct CheckedRules {
    settings: Settings,
    tree: Tree,
}

impl CheckedRules {
    /// Returns whether a branch has the same files and rules, so that the check still holds.
    fn is_current(&self, branch: &Branch) -> bool {
        self.tree.is_clone_of(branch.state.files()) && self.settings.has_same_rules(&branch.settings)
    }
}

/// Why an operation on files was refused; in either case the files are as they were.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// As any file system would: a name that is taken, a directory that is not empty.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The store could not take it, or a rule forbids it.
    #[error(transparent)]
    Refused(#[from] Error),
}

impl<'a> FileOpRecord<'a> {
    /// Returns the bytes in two parts: the content of a write, or nothing, is the second.
    fn to_bytes(&self) -> (Vec<u8>, &[u8]) {
        let mut out = Writer::new();
        self.author.write(&mut out);
        let content = self.op.write(&mut out);
        (out.finish(), content)
    }

    fn from_bytes(bytes: &'a [u8]) -> Result<FileOpRecord<'a>, CodecError> {
        let mut input = Reader::new(bytes);
        let edit = FileOpRecord { author: Author::read(&mut input)?, op: FileOp::read(&mut input)? };
        if input.is_empty() { Ok(edit) } else { Err(CodecError::Number) }
    }
}

impl Memory {
    /// Returns the files of a view at this moment, as a value that never changes. Kind `Gone` or `NotFound` if the view
    /// is not there.
    pub fn files(&self, view: &View) -> Result<Tree, Error> {
        if let View::Proposal(..) = view {
            let catalog = self.catalog().clone();
            return Ok(ResolvedView::new(&catalog, view)?.shown_files(view));
        }
        Ok(self.state(view)?.files().clone())
    }

    /// Returns where the contents of sealed files are read from, for [`Tree::read`]. Every read is checked.
    pub fn packs(&self) -> &dyn Packs {
        &self.storage.trees
    }

    /// Applies one operation to a branch's files, atomically. What the branch's rules forbid is refused, and noted in
    /// the lineage.
    ///
    /// [`EditError::Tree`] for what any file system refuses, such as a taken name. Kind `Denied` by a rule `write=`,
    /// `NotPermitted` by a rule `append`, `Quota` beyond a quota, `Gone` if the branch has ended.
    pub fn edit(&self, who: &Actor, branch: BranchId, op: FileOp<'_>) -> Result<FileOutcome, EditError> {
        self.edit_if_unchanged(who, branch, op, |_| true)
    }

    /// Like [`Memory::edit`], if `is_as_found` returns true for the files at that moment. `Error::FileChanged` if it
    /// does not, and nothing is done; otherwise fails like [`Memory::edit`].
    pub fn edit_if_unchanged(
        &self,
        who: &Actor,
        branch: BranchId,
        op: FileOp<'_>,
        is_as_found: impl FnOnce(&Tree) -> bool,
    ) -> Result<FileOutcome, EditError> {
        let guarded = self.check_rules(who, branch, &op)?;
        // Counting for a quota may take long, so it is done before the lock, and a little may come in between.
        self.check_file_quota(branch, &op)?;
        // Under the lock again: a rule, or what it binds, may have changed.
        let still = |catalog: &Catalog, op: &FileOp<'_>| {
            let branch = catalog.branch(branch)?;
            if !is_as_found(branch.state.files()) {
                return Err(Error::FileChanged);
            }
            match branch.settings.binding_rules() {
                Some(rules) if !guarded.as_ref().is_some_and(|guarded| guarded.is_current(branch)) => {
                    crate::memory::admission::guard::check(rules, branch.state.files(), who, op)
                }
                _ => Ok(()),
            }
        };
        match self.edit_if(who, branch, op, still) {
            Err(EditError::Refused(error)) if error.kind() == Kind::Denied => {
                Err(self.note_refusal(who, branch, error).into())
            }
            done => done,
        }
    }

    /// Checks whether a user may write to a file at all. Kind `Denied` if a `write=` rule forbids it; that is noted in
    /// the lineage.
    pub fn check_writer(&self, who: &Actor, branch: BranchId, inode: u64) -> Result<(), Error> {
        self.check_rules(who, branch, &FileOp::Write { inode, offset: u64::MAX, bytes: (&[]).into() }).map(drop)
    }

    /// Refuses what the branch's rules forbid, and notes that; returns what it looked at where they forbid anything.
    fn check_rules(&self, who: &Actor, branch: BranchId, op: &FileOp<'_>) -> Result<Option<CheckedRules>, Error> {
        let guarded = {
            let catalog = self.catalog();
            let branch = catalog.branch(branch)?;
            let binding = branch.settings.binding_rules();
            binding.map(|_| CheckedRules { settings: branch.settings.clone(), tree: branch.state.files().clone() })
        };
        if let Some(CheckedRules { settings, tree }) = &guarded
            && let Err(error) = crate::memory::admission::guard::check(settings.rules(), tree, who, op)
        {
            return Err(self.note_refusal(who, branch, error));
        }
        Ok(guarded)
    }

    /// Like [`Memory::edit`], whatever the rules say; else it fails like [`Memory::edit`].
    pub(in crate::memory) fn edit_unguarded(
        &self,
        who: &Actor,
        branch: BranchId,
        op: FileOp<'_>,
    ) -> Result<FileOutcome, EditError> {
        self.edit_if(who, branch, op, |_, _| Ok(()))
    }

    /// Like [`Memory::edit_unguarded`], if `still` lets it pass in the catalog that it is done to. Fails like `still`,
    /// and as [`Memory::edit`].
    pub(in crate::memory) fn edit_if(
        &self,
        who: &Actor,
        branch: BranchId,
        op: FileOp<'_>,
        still: impl FnOnce(&Catalog, &FileOp<'_>) -> Result<(), Error>,
    ) -> Result<FileOutcome, EditError> {
        let mut edit = FileOpRecord { author: Author { branch, time: self.now(), uid: who.uid }, op };
        // The hashes of a long write are worked out without the lock.
        let direct = match &edit.op {
            FileOp::Write { offset, bytes, .. } => DirectWrite::new(*offset, bytes),
            _ => None,
        };
        let _room = match self.frees_room(branch, &edit.op) {
            true => self.ensure_room_to_free().map(|()| None)?,
            false => {
                let bytes = content_bytes(&edit.op);
                let (unsealed_bytes, long_bytes) = if direct.is_some() { (0, bytes) } else { (bytes, 0) };
                Some(self.reserve_room(disk_cost_bytes(unsealed_bytes, long_bytes))?)
            }
        };
        let (outcome, _before) = {
            let mut writer = self.writer_for(who, &[])?;
            // An entry names one user, so what another did becomes one first; `writer_for` takes the lock itself.
            if writer.pending.get(&branch).is_some_and(|pending| pending.uid != who.uid) {
                drop(writer);
                writer = self.writer_for(who, &[Some(branch)])?;
            }
            let journal = writer.writable()?;
            edit.author.time = self.next_time(&mut writer)?;
            let catalog = self.catalog().clone();
            let files = FilesBefore::from_catalog(&catalog, branch)?;
            let before = files.tree.clone();
            // Under the lock, so that no rule changes any more, and before the frame: a replay does not ask again.
            still(&catalog, &edit.op)?;
            drop(catalog);
            let (after, outcome) = self.append_edit(&mut writer, &journal, &edit, direct.as_ref(), files)?;
            self.catalog.write().edit(branch, after, edit.author.time);
            // The files before are dropped after the lock: freeing what nobody else has takes time.
            (outcome, before)
        };
        self.maintenance.thread.commit_pending_soon();
        self.maintenance.file_indexer.wake(branch);
        self.wake_maintenance();
        Ok(outcome)
    }

    /// Returns whether an operation gives room back, so that it may use the reserve; false for a branch that has ended.
    fn frees_room(&self, branch: BranchId, op: &FileOp<'_>) -> bool {
        self.catalog().branches.get(&branch).is_some_and(|branch| frees_room(branch.state.files(), op))
    }

    /// Removes a file without a name that is no longer open, in the background.
    pub fn drop_file_soon(&self, who: Actor, branch: BranchId, inode: u64) {
        self.maintenance.thread.drop_file_soon(OrphanFile { who, branch, inode });
    }

    /// Appends an operation to the journal, if it outlives its file's handles; returns the files after it.
    fn append_edit(
        &self,
        log_tail: &mut LogTail,
        journal: &Journal,
        edit: &FileOpRecord<'_>,
        direct: Option<&DirectWrite<'_>>,
        files: FilesBefore,
    ) -> Result<(Tree, FileOutcome), EditError> {
        let is_replayable = is_replayable(&files.tree, &edit.op)?;
        if let (FileOp::Write { inode, .. }, Some(direct), true) = (&edit.op, direct, is_replayable) {
            let after = log_tail.write_content(self, journal, edit, direct, files)?;
            return Ok((after, FileOutcome { inode: *inode, unlinked: None }));
        }
        let mut after = files.tree.clone();
        let outcome = after.apply(&edit.op, edit.author.time, &self.storage.trees)?;
        // Before the frame: what is refused for its memory must leave nothing in the journal that a replay would do
        // again.
        self.admit_files(&self.catalog(), edit.author.branch, &files.tree, &after)?;
        let (head, content) = edit.to_bytes();
        // What is done to a file without a name stays in memory alone; `is_replayable` says why no replay could do it.
        if is_replayable {
            allow_waiting();
            let code = log_tail.frame_mac(FrameKind::FileOp, &[&head, content]);
            self.append(journal, FrameKind::FileOp, &[&code.0, &head, content], frees_room(&files.tree, &edit.op))?;
            // Only after the append: no later operation may be bound to a frame that was not written.
            log_tail.link = code;
            let bytes = head.len() as u64 + content_bytes(&edit.op);
            let (moves, edits) = (moves_directory(&files.tree, &edit.op), files.edits);
            log_tail.note_pending(edit.author, files, bytes + COMMAND_BYTES);
            if moves && let Some(pending) = log_tail.pending.get_mut(&edit.author.branch) {
                pending.moved_at = edits + 1;
            }
        } else {
            allow_waiting();
            // A seal writes the chunks of nameless files to packs too, so they count as unsealed.
            log_tail.unsealed_bytes += content_bytes(&edit.op);
        }
        Ok((after, outcome))
    }

    /// Works out what takes long of what was done to a branch's files, so that committing it takes little. Fails only
    /// if the right to write can't be had.
    pub(in crate::memory) fn prepare_commit(&self, branch: BranchId, before: &Tree) -> Result<(), Error> {
        let Some((state, edits)) =
            self.catalog().branches.get(&branch).map(|branch| (branch.state.clone(), branch.file_op_count))
        else {
            return Ok(());
        };
        // Computed here, without the lock: the state caches its head, and later states reuse its hashes.
        state.head();
        let (count, first) = count_paths_between(before, state.files());
        if let Some(pending) = self.writer()?.pending.get_mut(&branch)
            // Another commit may have come in between; what was counted is then about operations that have their entry
            // already.
            && pending.before.is_clone_of(before)
        {
            pending.counted = Some(CountedChanges { after: state.files().clone(), count, first });
            pending.counted_at = edits;
        }
        Ok(())
    }

    /// Commits the pending operations on files of some branches, for whoever needs their entries and may make none
    /// itself: listeners are told at once. Fails like [`Memory::writer_for`].
    pub(in crate::memory) fn commit_and_announce(
        &self,
        who: &Actor,
        branches: &[Option<BranchId>],
    ) -> Result<(), Error> {
        let pending: Vec<BranchId> = {
            let writer = self.writer()?;
            branches.iter().flatten().copied().filter(|branch| writer.pending.contains_key(branch)).collect()
        };
        drop(self.writer_for(who, branches)?);
        pending.into_iter().for_each(|branch| self.announce_files(branch));
        Ok(())
    }

    /// Commits the pending operations on files of every branch. The first failure ends it.
    pub(in crate::memory) fn commit_all_pending(&self) -> Result<(), Error> {
        let branches: Vec<BranchId> = self.writer()?.pending.keys().copied().collect();
        for branch in branches {
            drop(self.writer_for(&self.environment.owner, &[Some(branch)])?);
            self.announce_files(branch);
        }
        Ok(())
    }

    /// Tells the listeners that what was done to a branch's files is in an entry. No lock may be held.
    pub(in crate::memory) fn announce_files(&self, branch: BranchId) {
        let parent = self.catalog().branches.get(&branch).and_then(|branch| branch.parent);
        self.notify(BranchEvent { branch, parent, op: "files", files: Vec::new(), previous: Vec::new() });
    }
}

impl LogTail {
    /// Notes an operation that was written down, to be committed by a later entry.
    pub(in crate::memory) fn note_pending(&mut self, author: Author, files: FilesBefore, unsealed_bytes: u64) {
        self.time = author.time;
        self.unsealed_bytes += unsealed_bytes;
        let FilesBefore { tree, edits } = files;
        // `before` is kept from the first operation on, since the entry that commits them compares with the files of
        // its predecessor.
        let fresh =
            || PendingFiles { uid: author.uid, before: tree, counted: None, counted_at: edits, edits, moved_at: 0 };
        self.pending.entry(author.branch).or_insert_with(fresh).edits = edits + 1;
    }

    /// Returns the files before, where committing what was done since takes too long for the lock; none else.
    pub(in crate::memory) fn find_slow_pending(&self, branch: BranchId) -> Option<(BranchId, Tree)> {
        let pending = self.pending.get(&branch)?;
        let is_slow = pending.operation_count() > COMMITTED_UNDER_LOCK_MAX || pending.moved_at > pending.counted_at;
        is_slow.then(|| (branch, pending.before.clone()))
    }

    /// Carries out an operation that the journal holds. Kind `Damaged` if its code, its bytes or what it does can't be;
    /// `Gone` for a branch that is not there.
    pub(in crate::memory) fn replay_edit(
        &mut self,
        catalog: &mut Catalog,
        packs: &dyn Packs,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let damaged = |what: String| Error::damaged(format!("an operation on files in the journal {what}"));
        let (code, bytes) = split_mac(bytes).ok_or_else(|| damaged("has no code".to_owned()))?;
        // The code is checked before a byte is parsed, so that nothing but what this store wrote reaches the parser of
        // operations.
        self.verify_and_advance(FrameKind::FileOp, &code, &[bytes])?;
        let edit = FileOpRecord::from_bytes(bytes).map_err(|error| damaged(format!("can't be read: {error}")))?;
        let by = edit.author;
        let files = FilesBefore::from_catalog(catalog, by.branch)?;
        let mut after = files.tree.clone();
        match after.apply(&edit.op, by.time, packs) {
            Ok(_) => {}
            // A content that can't be read is the disk's failure; anything else was possible when the record was written.
            Err(TreeError::Segment(error)) => return Err(error.into()),
            Err(error) => return Err(damaged(format!("does what can't be done: {error}"))),
        }
        self.note_pending(by, files, bytes.len() as u64 + COMMAND_BYTES);
        catalog.edit(by.branch, after, by.time);
        Ok(())
    }
}

/// Reads the code in front of an operation, and returns it with the rest; `None` if the bytes are too few.
pub(in crate::memory) fn split_mac(bytes: &[u8]) -> Option<(Hash, &[u8])> {
    bytes.split_first_chunk().map(|(code, rest)| (Hash(*code), rest))
}
