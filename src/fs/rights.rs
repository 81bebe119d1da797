//! Who may do what to a branch, asked at the time of the call.
//!
//! The kernel checks the way to a file when the file is looked up. Who holds a descriptor, a working directory or a
//! mount of a child alone has passed that long ago, and the branch or its parent may be closed to them since.

use super::errno::Failure;
use super::errors::ErrorReader;
use super::mount_context::{Caller, MountContext, OpenContext};
use super::node::FsNode;
use super::refusal::AccessRefusal;
use crate::memory::{BranchId, BranchInfo, ProposalError, View};

/// The right to list what a directory holds.
pub(super) const READ: u32 = 0o4;
/// The right to change what a directory holds.
pub(super) const WRITE: u32 = 0o2;
/// The right to reach what is in a directory.
pub(super) const SEARCH: u32 = 0o1;

impl MountContext {
    /// Returns whether the permission bits of a branch's directory give a caller all of some rights: of [`READ`],
    /// [`WRITE`] and [`SEARCH`], without supplementary groups. Root has all.
    pub fn permits(&self, caller: Caller, branch: &BranchInfo, rights: u32) -> bool {
        self.permits_mode(caller, (branch.uid, branch.mode), rights)
    }

    /// The same by owner and mode.
    pub fn permits_mode(&self, caller: Caller, (uid, mode): (u32, u32), rights: u32) -> bool {
        let bits = if caller.uid == uid {
            mode >> 6
        } else if caller.gid == self.user(uid).gid {
            mode >> 3
        } else {
            mode
        };
        caller.uid == 0 || bits & rights == rights
    }

    /// Refuses who may not look at what a branch proposes (EACCES).
    pub fn check_reviewer(&self, caller: Caller, branch: BranchId) -> Result<(), Failure> {
        if self.memory.may_review(caller.uid, branch)? {
            return Ok(());
        }
        let path = self.memory.info(branch)?.path.to_string();
        Err(ProposalError::NotVisible { path, uid: caller.uid }.into())
    }

    /// Refuses a look at a node of a proposal to who may not look at that. The kernel is told to ask each time.
    pub fn check_visible(&self, caller: Caller, node: &FsNode) -> Result<(), Failure> {
        match node.view() {
            Some(View::Proposal(branch, _)) => self.check_reviewer(caller, branch),
            _ => Ok(()),
        }
    }

    /// Refuses who lacks one of some rights in a branch's directory (EACCES): bits of [`READ`], [`WRITE`] and [`SEARCH`].
    pub fn check_rights(&self, caller: Caller, branch: &BranchInfo, rights: u32) -> Result<(), Failure> {
        if self.permits(caller, branch, rights) {
            return Ok(());
        }
        let (path, uid) = (branch.path.to_string(), caller.uid);
        let only_write = rights & WRITE != 0 && self.permits(caller, branch, rights & !WRITE);
        Err(if only_write { AccessRefusal::NotWritable { path, uid } } else { AccessRefusal::Closed { path, uid } }
            .into())
    }
}

impl OpenContext {
    /// Refuses who may not enter the branch's directory any more (EACCES); where an earlier state is shown, who may not
    /// read it.
    pub fn check_enter(&self) -> Result<(), Failure> {
        match self.view {
            View::At(..) => return self.check_read(),
            View::Proposal(branch, _) => return self.mount.check_reviewer(self.caller, branch),
            View::Branch(_) | View::Checkpoint(..) => {}
        }
        self.mount.check_rights(self.caller, &self.memory().info(self.branch())?, SEARCH)
    }

    /// Refuses who may not read the branch's directory any more (EACCES).
    pub fn check_read(&self) -> Result<(), Failure> {
        if let View::Proposal(branch, _) = self.view {
            return self.mount.check_reviewer(self.caller, branch);
        }
        self.mount.check_rights(self.caller, &self.memory().info(self.branch())?, READ | SEARCH)
    }

    /// Fails with EACCES if the caller lacks rights in the parent's directory. A root branch has no parent.
    pub fn check_parent(&self, rights: u32) -> Result<(), Failure> {
        match self.memory().info(self.branch())?.parent {
            Some(parent) => self.mount.check_rights(self.caller, &self.memory().info(parent)?, rights),
            None => Ok(()),
        }
    }

    /// Returns whether the caller owns the branch's parent. False for a root branch. ESTALE if one of the two has gone.
    pub fn owns_parent(&self) -> Result<bool, Failure> {
        let parent = self.memory().info(self.branch())?.parent;
        Ok(parent.map(|parent| self.memory().info(parent)).transpose()?.is_some_and(|it| it.uid == self.caller.uid))
    }

    /// Returns whether the gate of the parent decides on a merge by the caller, and not permission bits. ESTALE if the
    /// branch has gone.
    pub fn gate_decides(&self) -> Result<bool, Failure> {
        let is_owner = self.memory().info(self.branch())?.uid == self.caller.uid;
        Ok(is_owner && self.memory().is_gated(self.branch())?)
    }

    /// Returns whose refusals the caller sees here: owner and root see all. ESTALE if the branch has gone.
    pub fn error_reader(&self) -> Result<ErrorReader, Failure> {
        let owner = self.memory().info(self.branch())?.uid;
        let Caller { uid, .. } = self.caller;
        Ok(if [0, owner].contains(&uid) { ErrorReader::Owner } else { ErrorReader::Other(uid) })
    }

    /// Refuses all but the branch's owner and root (EACCES).
    pub fn check_owner(&self) -> Result<(), Failure> {
        let info = self.memory().info(self.branch())?;
        if [0, info.uid].contains(&self.caller.uid) {
            return Ok(());
        }
        let (path, owner, uid) = (info.path.to_string(), info.uid, self.caller.uid);
        Err(AccessRefusal::NotOwner { path, owner, uid }.into())
    }
}
