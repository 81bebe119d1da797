//! `scratch/`: trees of files in RAM, each a branch's own.
//!
//! A tree ends with the mount, with its branch, and when the branch's `config/session` or `config/task` changes; what
//! was open in it is stale then. It is never forked, merged or kept, no journal hears of it, and no
//! rule of `config/rules` is asked.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Area, FileTreeId};
use crate::fs::attr::StatFs;
use crate::fs::errno::{Errno, Failure};
use crate::fs::mount_context::MountContext;
use crate::fs::refusal::SpaceRefusal;
use crate::memory::{BranchId, Error, FileNode, FileOp, FileOutcome, Setting, Time, Tree, View};
use crate::sync::{Mutex, Rank, Reservation};

/// What an inode takes up beside its content.
const INODE_BYTES: u64 = 1024;
/// What one more name of a file takes up.
const HARD_LINK_BYTES: u64 = 512;

/// The trees of all branches that have something in theirs. What has no tree is empty and began at
/// time 0.
pub(in crate::fs) struct Scratch {
    sessions: Mutex<HashMap<BranchId, Arc<ScratchSession>>>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { sessions: Mutex::with_rank(Rank::ScratchTrees, HashMap::new()) }
    }
}

/// The tree of one session and task: another value of either ends it.
struct ScratchSession {
    /// Both, a line each.
    session: Arc<str>,
    /// Tells it from those of earlier sessions.
    since: Time,
    content: Mutex<ScratchContent>,
}

impl ScratchSession {
    fn new(session: Arc<str>, since: Time, reservation: Reservation) -> Arc<ScratchSession> {
        let content = ScratchContent { tree: Tree::default(), reservation };
        Arc::new(ScratchSession { session, since, content: Mutex::with_rank(Rank::Scratch, content) })
    }
}

struct ScratchContent {
    tree: Tree,
    /// Bytes that it takes up, with those that have lost their names and are open. They count for the branch's owner.
    reservation: Reservation,
}

impl Scratch {
    fn get(&self, branch: BranchId) -> Option<Arc<ScratchSession>> {
        self.sessions.lock().get(&branch).cloned()
    }

    /// Returns when a branch's present tree began; 0 if none has begun since the mount.
    pub fn session_start(&self, branch: BranchId) -> Time {
        self.get(branch).map(|held| held.since).unwrap_or_default()
    }

    /// Returns the tree and how many bytes it takes up; ESTALE for one of an earlier session. That of
    /// a checkpoint is empty.
    fn tree_and_bytes(&self, tree_id: &FileTreeId) -> Result<(Tree, u64), Failure> {
        let View::Branch(branch) = tree_id.view else { return Ok(Default::default()) };
        match self.get(branch) {
            Some(held) if held.since == tree_id.taken => {
                let content = held.content.lock();
                Ok((content.tree.clone(), content.reservation.bytes()))
            }
            None if tree_id.taken == Time::default() => Ok(Default::default()),
            _ => Err(Errno::ESTALE.into()),
        }
    }

    /// Ends the tree of a branch that has a new session, or is gone; returns what it
    /// was.
    fn end(&self, branch: BranchId, session: Option<&Arc<str>>, now: Time) -> Option<(Time, Tree)> {
        let mut all = self.sessions.lock();
        let held = all.get(&branch).filter(|held| Some(&held.session) != session)?.clone();
        match session {
            Some(session) => {
                // Later than the session before even where the clock was set back, as this time tells their handles
                // apart.
                let since = now.max(held.since.plus_nanos(1));
                let counted = held.content.lock().reservation.empty_for_same_user();
                all.insert(branch, ScratchSession::new(session.clone(), since, counted));
            }
            None => drop(all.remove(&branch)),
        }
        drop(all);
        let tree = held.content.lock().tree.clone();
        Some((held.since, tree))
    }
}

impl MountContext {
    /// Returns the tree of a branch's `scratch/`. ESTALE if the branch has gone.
    pub(super) fn scratch_tree(&self, tree_id: &FileTreeId) -> Result<Tree, Failure> {
        self.memory.info(tree_id.view.branch())?;
        Ok(self.scratch.tree_and_bytes(tree_id)?.0)
    }

    /// Changes `scratch/` by one operation; ENOSPC if it would hold more than `config/scratch_size` afterwards and more
    /// than before, EDQUOT beyond the owner's share of memory.
    pub(super) fn edit_scratch(&self, tree_id: &FileTreeId, op: &FileOp) -> Result<FileOutcome, Failure> {
        let limit = self.scratch_bytes_max(tree_id)?;
        let held = self.scratch_session_to_edit(tree_id)?;
        let mut content = held.content.lock();
        let mut after = content.tree.clone();
        let outcome = after.apply(op, self.memory.now(), self.memory.packs())?;
        // A file whose name is replaced may live on by its others, and takes less then.
        let replaced = match op {
            FileOp::Rename { new_parent, new_name, .. } => content.tree.lookup(*new_parent, new_name).ok(),
            _ => None,
        };
        let changed: BTreeSet<u64> = [Some(outcome.inode), outcome.unlinked, replaced].into_iter().flatten().collect();
        let size = |tree: &Tree| changed.iter().map(|inode| inode_bytes(tree, *inode)).sum::<u64>();
        let (lost, gained) = (size(&content.tree), size(&after));
        let used = content.reservation.bytes() - lost + gained;
        // What shrinks is allowed even beyond the limit, which may have been lowered since.
        if gained > lost && used > limit {
            return Err(SpaceRefusal::Scratch(limit).into());
        }
        // Before the tree is put in place: what the owner may not hold is refused and has changed nothing.
        content.reservation.resize(used).map_err(Error::from)?;
        content.tree = after;
        Ok(outcome)
    }

    /// Returns the room in `scratch/`, of what it may hold, and how many inodes it has. In bytes. ESTALE if the branch
    /// has gone.
    pub(super) fn scratch_statfs(&self, tree_id: &FileTreeId) -> Result<StatFs, Failure> {
        let (total_bytes, used_bytes) = (self.scratch_bytes_max(tree_id)?, self.scratch.tree_and_bytes(tree_id)?.1);
        let totals = self.tree(tree_id)?.totals();
        let free_bytes = total_bytes.saturating_sub(used_bytes);
        let inodes = totals.files + totals.directories;
        Ok(StatFs { total_bytes, free_bytes, available_bytes: free_bytes, inodes })
    }

    /// Hears that a branch changed: where it has a new session, or is gone, its
    /// `scratch/` ends and the kernel forgets it.
    pub(in crate::fs) fn end_stale_scratch(&self, branch: BranchId) {
        if self.scratch.get(branch).is_none() {
            return;
        }
        if let (Some(held), Ok(info)) = (self.scratch.get(branch), self.memory.info(branch)) {
            // What the new owner may not hold goes on to count for the one before.
            let _ = held.content.lock().reservation.move_to(info.uid);
        }
        let session = self.session_and_task(branch).ok();
        let Some((taken, tree)) = self.scratch.end(branch, session.as_ref(), self.memory.now()) else { return };
        let tree_id = FileTreeId { area: Area::Scratch, view: View::Branch(branch), taken };
        self.invalidate_open_files(&tree_id);
        let inode_map = self.inode_map.clone();
        self.notifier.notify_and_wait(
            branch,
            Box::new(move |kernel| {
                let known = tree.inodes().filter_map(|inode| inode_map.ino(&tree_id, inode));
                known.for_each(|ino| kernel.forget_attributes(ino));
            }),
        );
    }

    fn scratch_session_to_edit(&self, tree_id: &FileTreeId) -> Result<Arc<ScratchSession>, Failure> {
        let branch = tree_id.view.branch();
        let mut all = self.scratch.sessions.lock();
        if tree_id.taken == Time::default() && !all.contains_key(&branch) {
            let session = self.session_and_task(branch)?;
            let owner = self.memory.info(branch)?.uid;
            all.insert(
                branch,
                ScratchSession::new(session, tree_id.taken, self.memory.budget().empty_reservation(owner)),
            );
        }
        let held = all.get(&branch).filter(|held| held.since == tree_id.taken);
        Ok(held.cloned().ok_or(Errno::ESTALE)?)
    }

    /// Returns the session and task that a branch is at.
    fn session_and_task(&self, branch: BranchId) -> Result<Arc<str>, Failure> {
        let setting = |setting| self.memory.setting(&View::Branch(branch), setting);
        Ok(format!("{}\n{}", setting(Setting::Session)?, setting(Setting::Task)?).into())
    }

    fn scratch_bytes_max(&self, tree_id: &FileTreeId) -> Result<u64, Failure> {
        Ok(self.memory.scratch_bytes_max(tree_id.view.branch())?)
    }
}

/// Returns what an inode takes up; nothing for one that is not there. The root is free.
fn inode_bytes(tree: &Tree, inode: u64) -> u64 {
    let beside = |node: &FileNode| node.xattrs().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    let further_names = |node: &FileNode| match node.directory() {
        Some(_) => 0,
        None => u64::from(node.nlink().saturating_sub(1)),
    };
    tree.node(inode).map_or(0, |node| {
        let content = node.content().map_or(0, |it| it.allocated_bytes());
        INODE_BYTES + HARD_LINK_BYTES * further_names(node) + content + beside(node) as u64
    })
}
