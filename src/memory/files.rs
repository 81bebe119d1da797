//! The files of a branch: an operation is one frame of the journal, and what was done within a
//! second is one entry of the lineage.
//!
//! A frame of an operation is not signed by itself. The entry that gathers it is: its head covers
//! the files. So every act that looks at a branch's head gathers first, and so does a sync. Long writes
//! are in `contents`.

use std::sync::{Arc, PoisonError};

use super::act::Deed;
use super::chain::Chain;
use super::world::{BranchId, View, World};
use super::{Actor, Error, Memory, seal};
use crate::journal::{Journal, Kind};
use crate::object::{CodecError, Reader, Time, Writer};
use crate::workspace::{Op, Outcome, Packs, Tree, TreeError};

/// What was done to a branch's files since its last entry.
pub(super) struct Pending {
    /// Who did it.
    uid: u32,
    /// The files before.
    before: Tree,
}

/// An operation as the journal holds it.
pub(super) struct Edit<'a> {
    /// The branch.
    pub branch: BranchId,
    /// When.
    pub time: Time,
    /// Who.
    pub uid: u32,
    /// What.
    pub op: Op<'a>,
}

/// Why an operation on files was refused.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// As any file system would: a name that is taken, a directory that is not empty.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The store could not take it, or a rule forbids it.
    #[error(transparent)]
    Refused(#[from] Error),
}

impl<'a> Edit<'a> {
    /// Returns the bytes in two parts: the content of a write, or nothing, is the second.
    fn to_bytes(&self) -> (Vec<u8>, &[u8]) {
        let mut out = Writer::new();
        out.number(self.branch.0).signed(self.time.0).number(u64::from(self.uid));
        let content = self.op.write(&mut out);
        (out.finish(), content)
    }

    fn from_bytes(bytes: &'a [u8]) -> Result<Edit<'a>, CodecError> {
        let mut input = Reader::new(bytes);
        let (branch, time) = (BranchId(input.number()?), Time(input.signed()?));
        let uid = u32::try_from(input.number()?).map_err(|_| CodecError::Number)?;
        let op = Op::read(&mut input)?;
        if input.is_empty() { Ok(Edit { branch, time, uid, op }) } else { Err(CodecError::Number) }
    }
}

impl Memory {
    /// Returns the files of a view at this moment: a value that never changes.
    pub fn files(&self, view: &View) -> Result<Tree, Error> {
        let world = self.world();
        Ok(super::look::Seen::new(&world, view)?.state.files().clone())
    }

    /// Returns where the contents of sealed files are read from.
    pub fn packs(&self) -> &dyn Packs {
        &self.trees
    }

    /// Carries out one operation on a branch's files, atomically; what the branch's rules forbid is
    /// refused and noted in the lineage.
    pub fn edit(&self, who: &Actor, branch: BranchId, op: Op<'_>) -> Result<Outcome, EditError> {
        self.guard(who, branch, &op)?;
        self.edit_unguarded(who, branch, op)
    }

    /// Checks whether somebody may write to a file at all, as its `write=` rule says; a refusal is
    /// noted in the lineage.
    pub fn check_writer(&self, who: &Actor, branch: BranchId, inode: u64) -> Result<(), Error> {
        self.guard(who, branch, &Op::Write { inode, offset: u64::MAX, bytes: (&[]).into() })
    }

    fn guard(&self, who: &Actor, branch: BranchId, op: &Op<'_>) -> Result<(), Error> {
        let guarded = {
            let world = self.world();
            let branch = world.branch(branch)?;
            let guards = super::guard::guards(branch.settings.rules());
            guards.then(|| (branch.settings.clone(), branch.state.files().clone()))
        };
        if let Some((settings, tree)) = guarded
            && let Err(error) = super::guard::check(settings.rules(), &tree, who, op)
        {
            self.note_refusal(who, branch, &error);
            return Err(error);
        }
        Ok(())
    }

    /// Like [`Memory::edit`], whatever the rules say.
    pub(super) fn edit_unguarded(&self, who: &Actor, branch: BranchId, op: Op<'_>) -> Result<Outcome, EditError> {
        let outcome = {
            let mut chain = self.chain();
            let journal = chain.writable()?;
            self.introduce(&mut chain, who)?;
            if chain.pending.get(&branch).is_some_and(|pending| pending.uid != who.uid) {
                self.gather(&mut chain, branch)?;
            }
            let time = self.now().max(chain.time.after(1));
            let edit = Edit { branch, time, uid: who.uid, op };
            let before = self.world().branch(branch)?.state.files().clone();
            let (after, outcome) = self.write_down(&mut chain, &journal, &edit, before)?;
            self.world.write().unwrap_or_else(PoisonError::into_inner).edit(branch, after, time);
            outcome
        };
        self.keeper.gather_soon();
        self.wake_keeper();
        Ok(outcome)
    }

    /// Appends an operation to the journal, where it outlives its file's handles; returns the files
    /// after it.
    fn write_down(
        &self,
        chain: &mut Chain,
        journal: &Journal,
        edit: &Edit<'_>,
        before: Tree,
    ) -> Result<(Tree, Outcome), EditError> {
        let lasts = lasts(&before, &edit.op)?;
        if let Op::Write { inode, .. } = edit.op
            && lasts
            && let Some(after) = chain.write_content(journal, edit, &before, &self.trees)?
        {
            return Ok((after, Outcome { inode, gone: None }));
        }
        let mut after = before.clone();
        let outcome = after.apply(&edit.op, edit.time, &self.trees)?;
        let (head, content) = edit.to_bytes();
        if lasts {
            journal.append(Kind::Edit, &[&head, content]).map_err(Error::from)?;
            let bytes = (head.len() + content.len()) as u64;
            chain.note(edit.branch, edit.uid, edit.time, before, bytes + seal::ACT_BYTES);
        } else {
            // Its chunks go into packs all the same.
            chain.loose_bytes += content.len() as u64;
        }
        Ok((after, outcome))
    }

    /// Makes one entry of what was done to a branch's files since its last one.
    pub(super) fn gather(&self, chain: &mut Chain, branch: BranchId) -> Result<(), Error> {
        let Some(pending) = chain.pending.get(&branch) else { return Ok(()) };
        let (uid, before) = (pending.uid, pending.before.clone());
        // The state itself and no clone of its files: what is hashed here is known when its head is asked for.
        let Some(after) = self.world().branches.get(&branch).map(|branch| branch.state.clone()) else {
            chain.pending.remove(&branch);
            return Ok(());
        };
        let count = before.changes(after.files()).len() as u64;
        self.perform(chain, uid, Deed::Files(branch, count))?;
        self.settle(chain, branch, uid, &before, after.files());
        Ok(())
    }

    /// Gathers what was done to the files of every branch.
    pub(super) fn gather_all(&self) -> Result<(), Error> {
        let gathered = self.gather_each(&mut self.chain())?;
        gathered.into_iter().for_each(|branch| self.tell_files(branch));
        Ok(())
    }

    /// Like [`Memory::gather_all`], for who holds the chain; returns the branches.
    pub(super) fn gather_each(&self, chain: &mut Chain) -> Result<Vec<BranchId>, Error> {
        let mut branches: Vec<BranchId> = chain.pending.keys().copied().collect();
        branches.sort_unstable();
        branches.iter().try_for_each(|branch| self.gather(chain, *branch))?;
        Ok(branches)
    }

    fn tell_files(&self, branch: BranchId) {
        let parent = self.world().branches.get(&branch).and_then(|branch| branch.parent);
        self.tell(&super::Change { branch, parent, what: "files", files: Vec::new() });
    }
}

impl Chain {
    /// Notes an operation that was written down.
    pub(super) fn note(&mut self, branch: BranchId, uid: u32, time: Time, before: Tree, loose_bytes: u64) {
        self.time = time;
        self.loose_bytes += loose_bytes;
        self.pending.entry(branch).or_insert(Pending { uid, before });
    }

    /// Carries out an operation that stands in the journal.
    pub(super) fn replay_edit(&mut self, world: &mut World, packs: &dyn Packs, bytes: &[u8]) -> Result<(), Error> {
        let damaged = |what: String| Error::damaged(format!("an operation on files in the journal {what}"));
        let edit = Edit::from_bytes(bytes).map_err(|error| damaged(format!("can't be read: {error}")))?;
        let before = world.branch(edit.branch)?.state.files().clone();
        let mut after = before.clone();
        match after.apply(&edit.op, edit.time, packs) {
            Ok(_) => {}
            Err(TreeError::Segment(error)) => return Err(error.into()),
            Err(error) => return Err(damaged(format!("does what can't be done: {error}"))),
        }
        self.note(edit.branch, edit.uid, edit.time, before, bytes.len() as u64 + seal::ACT_BYTES);
        world.edit(edit.branch, after, edit.time);
        Ok(())
    }
}

/// Returns whether an operation outlives the handles of its file.
///
/// What is done to a file without a name does not, and the journal never speaks of it: a seal stores
/// no such file, so after it an opening could not do it again. For the same reason none is a source
/// of bytes for a file that has one: `Stale`.
fn lasts(tree: &Tree, op: &Op<'_>) -> Result<bool, TreeError> {
    let has_name = |inode: u64| tree.node(inode).map(|node| node.nlink() > 0);
    match op {
        Op::Create { .. } | Op::Link { .. } | Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } => Ok(true),
        Op::SetAttr { inode, .. }
        | Op::Write { inode, .. }
        | Op::Range { inode, .. }
        | Op::SetXattr { inode, .. }
        | Op::RemoveXattr { inode, .. } => has_name(*inode),
        Op::Copy { from, to, .. } => match (has_name(*from)?, has_name(*to)?) {
            (false, true) => Err(TreeError::Stale),
            (_, lasts) => Ok(lasts),
        },
        Op::Drop { .. } => Ok(false),
    }
}

impl World {
    /// Lets go of files that were deleted while open: nothing is open any more.
    pub(super) fn drop_orphans(&mut self) {
        self.each_branch(|branch| {
            if branch.state.files().orphans().next().is_some() {
                let mut files = branch.state.files().clone();
                files.drop_orphans();
                Arc::make_mut(&mut branch.state).set_files(files);
            }
        });
    }

    /// Puts other files in place of a branch's.
    pub(super) fn edit(&mut self, id: BranchId, files: Tree, time: Time) {
        if let Some(branch) = self.branches.get_mut(&id) {
            let branch = Arc::make_mut(branch);
            Arc::make_mut(&mut branch.state).set_files(files);
            branch.changed = time;
            branch.edits += 1;
        }
    }
}
