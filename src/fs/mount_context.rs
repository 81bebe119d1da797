//! What every open file and every operation shares.

use std::collections::HashMap;
use std::sync::Arc;

use super::FsOptions;
use super::attr::StatFs;
use super::counted_buffer::CountedBuffer;
use super::ended_branches::EndedBranches;
use super::errno::{Errno, Failure};
use super::files::{Area, FileTreeId, InodeMap, OpenInodes, RemovedInodes, Scratch};
use super::kernel_notifier::KernelNotifier;
use super::last_answers::LastAnswers;
use super::mount_branch_state::{MountBranchState, MountBranchStates};
use super::refusal::AccessRefusal;
use super::user::User;
use crate::memory::{Actor, BranchEvent, BranchId, Credentials, KEPT_DROPPED, LimitError, Memory, View};
use crate::sync::Mutex;

/// Who calls, as the kernel says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Effective uid; it decides rights and the share of memory.
    pub uid: u32,
    /// Effective gid; supplementary groups are unknown.
    pub gid: u32,
    /// The process, or the thread of one; 0 if none is known.
    pub pid: u32,
}

/// What all nodes and handles of one mount share.
pub(super) struct MountContext {
    /// The store that the mount shows.
    pub memory: Arc<Memory>,
    /// What the mount remembers of branches, from the first time that one is touched.
    pub states: MountBranchStates,
    /// The last answer of each user, for handles that ask nothing.
    pub answers: LastAnswers,
    /// Tells the kernel which names and attributes it has to ask for again.
    pub notifier: KernelNotifier,
    /// The numbers under which the kernel knows inodes of `files/` and `scratch/`.
    pub inode_map: Arc<InodeMap>,
    /// What is open in `files/` and `scratch/`.
    pub open_inodes: OpenInodes,
    /// The trees of `scratch/`, which end with the mount.
    pub scratch: Scratch,
    /// What inodes that are gone were last.
    pub removed_inodes: RemovedInodes,
    /// What is said to users of branches that were merged or discarded, in place of a bare ESTALE.
    pub ended_branches: EndedBranches,
    options: FsOptions,
    users: Mutex<HashMap<u32, User>>,
}

impl MountContext {
    /// Begins a mount with nothing open; starts the notifier's threads.
    pub fn new(memory: Arc<Memory>, options: FsOptions) -> MountContext {
        let numbering = memory.clone();
        MountContext {
            memory,
            states: MountBranchStates::default(),
            answers: LastAnswers::default(),
            notifier: KernelNotifier::start(),
            inode_map: Arc::new(InodeMap::new(Box::new(move |branch| numbering.branch_number(branch)))),
            open_inodes: OpenInodes::default(),
            scratch: Scratch::default(),
            removed_inodes: RemovedInodes::default(),
            ended_branches: EndedBranches::default(),
            options,
            users: Mutex::default(),
        }
    }

    /// Returns the branch that is the mount's root, where one is.
    pub fn root_branch(&self) -> Option<BranchId> {
        self.options.branch
    }

    /// Returns EROFS if nothing may change: in a read-only mount, or while the store takes no writes.
    pub fn check_writable(&self) -> Result<(), Failure> {
        self.check_not_read_only()?;
        if !self.memory.is_read_only() {
            return Ok(());
        }
        Err(AccessRefusal::StoreFailed.into())
    }

    /// Returns EROFS in a read-only mount.
    pub fn check_not_read_only(&self) -> Result<(), Failure> {
        if !self.options.read_only {
            return Ok(());
        }
        Err(AccessRefusal::ReadOnlyMount.into())
    }

    /// Makes all that was acknowledged durable; where this mount changes nothing there is nothing to do. If the flush
    /// fails nothing can be written any more.
    pub fn sync(&self) -> Result<(), Failure> {
        if self.options.read_only { Ok(()) } else { Ok(self.memory.sync()?) }
    }

    /// Returns the room on the store's device, and how many inodes the files of a branch or checkpoint have. No inodes
    /// are counted for a view that is not there. EIO if the disk can't be asked.
    pub fn store_statfs(&self, view: Option<View>) -> Result<StatFs, Failure> {
        let space = self.memory.disk_space().map_err(|error| Errno::from(error.kind()))?;
        let totals = view.and_then(|view| self.memory.files(&view).ok()).map(|files| files.totals());
        let inodes = totals.map_or(0, |totals| totals.files + totals.directories);
        Ok(StatFs {
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            available_bytes: space.available_bytes,
            inodes,
        })
    }

    /// Returns the caller as the lineage names them.
    pub fn actor(&self, caller: Caller) -> Actor {
        Actor { uid: caller.uid, gid: caller.gid, name: self.user(caller.uid).name.into() }
    }

    /// Returns the credentials of a caller for reading files, with all groups that can be found.
    pub fn credentials(&self, caller: Caller) -> Credentials {
        let supplementary = (self.options.groups)(caller.pid);
        let knows_all_groups = supplementary.is_some();
        let groups = std::iter::once(caller.gid).chain(supplementary.into_iter().flatten()).collect();
        Credentials { uid: caller.uid, groups, knows_all_groups }
    }

    /// Returns who has a uid. The system is asked once; what it said holds until the mount ends.
    pub fn user(&self, uid: u32) -> User {
        if let Some(user) = self.users.lock().get(&uid) {
            return user.clone();
        }
        // Asked with no lock held, since it may read the system's list of users; two who ask at once get the same.
        let user = (self.options.users)(uid).unwrap_or_else(|| User::unknown(uid));
        self.users.lock().insert(uid, user.clone());
        user
    }

    /// Returns the context of a handle on a view; ESTALE if its branch is gone.
    pub fn open_context(self: &Arc<MountContext>, view: &View, caller: Caller) -> Result<OpenContext, Failure> {
        self.memory.info(view.branch())?;
        let state = self.states.get_or_insert(view.branch());
        Ok(OpenContext { mount: self.clone(), view: view.clone(), state, caller })
    }

    /// Hears of every change: wakes who polls, has the kernel forget files that it did not see
    /// change, and ends what belonged to a branch that is gone.
    pub fn on_branch_event(&self, change: &BranchEvent) {
        for replaced in &change.files {
            // The kernel forgets before anybody is woken, so that who looks again sees what is there now.
            self.invalidate_changed_files(replaced.branch, replaced.before.clone(), replaced.after.clone());
        }
        if self.memory.info(change.branch).is_err() {
            let parent = change.parent.and_then(|parent| self.memory.info(parent).ok());
            self.ended_branches.note(change, parent.as_ref().map(|parent| &*parent.path), self.memory.now());
        }
        if change.op == KEPT_DROPPED {
            let errors = &self.states.get_or_insert(change.branch).errors;
            errors.add(self.memory.now(), None, ".", &LimitError::KeptDropped.into());
        }
        if change.op == "purge" {
            // Any branch may have lost something, and any answer may quote it.
            self.answers.forget_all();
            self.states.list().iter().for_each(|(_, state)| self.notifier.send_all(state.take_wake_calls()));
        }
        for branch in [Some(change.branch), change.parent].into_iter().flatten() {
            self.end_stale_scratch(branch);
            let is_gone = self.memory.info(branch).is_err();
            if is_gone {
                self.invalidate_open_files(&FileTreeId::branch(branch));
            }
            let Some(state) = self.states.get(branch) else {
                continue;
            };
            if is_gone {
                self.states.forget(branch);
                self.answers.forget(branch);
            }
            self.notifier.send_all(state.take_wake_calls());
        }
        self.wake_log(change);
        // Last, when the kernel was told of all that is gone and may have given look-ups back.
        self.inode_map.reclaim(|tree_id| self.tree_exists(tree_id));
    }

    /// Wakes who waits for the shared log that a branch has: its owner may be far above.
    fn wake_log(&self, change: &BranchEvent) {
        // Of a branch that has ended the parent leads to the same owner.
        for branch in [Some(change.branch), change.parent].into_iter().flatten() {
            let owner = self.memory.shared_log(branch).ok().map(|log| log.owner);
            if let Some(state) = owner.and_then(|owner| self.states.get(owner)) {
                self.notifier.send_all(state.take_wake_calls());
            }
        }
    }

    /// Returns whether the branch, the checkpoint or the session of some files is there still.
    fn tree_exists(&self, tree_id: &FileTreeId) -> bool {
        match &tree_id.view {
            View::Checkpoint(branch, label) => {
                self.memory.checkpoint_time(*branch, label).is_ok_and(|taken| taken == tree_id.taken)
            }
            View::At(branch, entry) => self.memory.state_time(*branch, *entry).is_ok(),
            View::Proposal(branch, entry) => self.memory.proposal_time(*branch, *entry).is_ok(),
            View::Branch(branch) if tree_id.area == Area::Scratch => {
                self.memory.info(*branch).is_ok() && self.scratch.session_start(*branch) == tree_id.taken
            }
            View::Branch(branch) => self.memory.info(*branch).is_ok(),
        }
    }
}

/// The view of an open file, and who opened it: what is written is written in their name.
#[derive(Clone)]
pub(super) struct OpenContext {
    /// The mount that the file was opened through.
    pub mount: Arc<MountContext>,
    /// What it is a file of; only in a branch itself may it be written.
    pub view: View,
    /// Held by the handle, so that it tells of the branch's end when the mount has forgotten the branch.
    pub state: Arc<MountBranchState>,
    /// Who opened it, also where another process writes through the handle.
    pub caller: Caller,
}

impl OpenContext {
    /// Returns the store that the mount shows.
    pub fn memory(&self) -> &Memory {
        &self.mount.memory
    }

    /// Returns the branch that the view is of, also for a checkpoint and an earlier state.
    pub fn branch(&self) -> BranchId {
        self.view.branch()
    }

    /// Returns the credentials of the caller for reading files.
    pub fn credentials(&self) -> Credentials {
        self.mount.credentials(self.caller)
    }

    /// Returns an empty buffer; what is put into it counts against the caller's share of memory.
    pub fn buffer(&self) -> CountedBuffer {
        CountedBuffer::new(self.memory().budget(), self.caller.uid)
    }

    /// Counts bytes that were made for the caller. EDQUOT or ENOSPC if they are too many.
    pub fn count_buffer(&self, bytes: Vec<u8>) -> Result<CountedBuffer, Failure> {
        CountedBuffer::from_bytes(self.memory().budget(), self.caller.uid, bytes)
    }

    /// Returns who opened the file, as the lineage names them.
    pub fn actor(&self) -> Actor {
        self.mount.actor(self.caller)
    }

    /// Returns ESTALE if the branch was merged or discarded.
    pub fn check_alive(&self) -> Result<(), Failure> {
        if self.state.is_gone() { Err(Errno::ESTALE.into()) } else { Ok(()) }
    }

    /// Returns EROFS if nothing may change, ESTALE if nothing is left to change.
    pub fn check_writable(&self) -> Result<(), Failure> {
        self.check_alive()?;
        check_changeable(&self.view)?;
        self.mount.check_writable()
    }
}

/// Returns EROFS for a checkpoint, a proposal and an earlier state.
pub(super) fn check_changeable(view: &View) -> Result<(), Failure> {
    match view {
        View::Branch(_) => Ok(()),
        View::Checkpoint(_, label) => Err(AccessRefusal::Checkpoint(label.to_string()).into()),
        View::At(_, entry) => Err(AccessRefusal::EarlierState(*entry).into()),
        View::Proposal(_, entry) => Err(AccessRefusal::Proposal(*entry).into()),
    }
}
