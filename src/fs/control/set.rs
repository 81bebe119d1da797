//! What setattr(2) changes of branches and what is generated.

use std::sync::Arc;

use super::ControlNodeOps;
use super::attr::attr;
use super::signals;
use crate::fs::attr::AttrChanges;
use crate::fs::errno::{Errno, Failure};
use crate::fs::mount_context::Caller;
use crate::fs::node::{FsNode, SharedNode};
use crate::fs::refusal::LayoutRefusal;
use crate::fs::temporary::Temporary;
use crate::memory::{BranchId, SignalId, View};

impl ControlNodeOps<'_> {
    /// Sets the length of what is written through a handle. What takes lines or values has none to set, and takes any.
    /// Refused for a record or a signal without a handle, and for what is generated.
    pub(super) fn set_length(&self, length: u64, handle: Option<u64>) -> Result<(), Failure> {
        if let Some(handle) = handle {
            return self.fs.handles.get(handle)?.file()?.truncate(length);
        }
        match self.node {
            FsNode::Temporary(branch, number) => {
                self.find_temporary(*branch, *number)?.resize(length, self.fs.mount.memory.now())
            }
            FsNode::Control(_, file) if file.is_writable() => Ok(()),
            FsNode::Setting(..) | FsNode::Shared(_, SharedNode::Append | SharedNode::Cursor) => Ok(()),
            FsNode::Record(..) | FsNode::Signal(..) => Err(LayoutRefusal::Truncate.into()),
            _ => Err(LayoutRefusal::Generated { hint: "leave it as it is: it changes with the branch" }.into()),
        }
    }

    /// Sets mode and owner of a branch, a signal or a temporary; of a record, whose rights are its branch's, nothing
    /// changes. Refused for what has fixed attributes, unless they stay as they are, and where the caller does not own
    /// it.
    pub(super) fn set_rights(&self, caller: Caller, changes: AttrChanges) -> Result<(), Failure> {
        let owner = changes.uid.or(changes.gid);
        match self.node {
            FsNode::Record(..) => Ok(()),
            FsNode::Signal(view, key, created) => signals::set_rights(
                &self.fs.mount.open_context(view, caller)?,
                SignalId { key, created: *created },
                changes,
            ),
            FsNode::Temporary(branch, number) => {
                let file = self.find_temporary(*branch, *number)?;
                changes.mode.inspect(|mode| file.set_mode(*mode));
                file.set_owner(changes.uid, changes.gid);
                Ok(())
            }
            FsNode::Branch(branch) if owner.is_some() && !self.changes_no_rights(changes)? => {
                self.change_owner(caller, *branch, changes)
            }
            FsNode::Branch(branch) if owner.is_none() => match changes.mode {
                Some(mode) => Ok(self.fs.mount.memory.chmod(&self.fs.mount.actor(caller), *branch, mode & 0o7777)?),
                None => Ok(()),
            },
            // cp -a, tar and shutil end by giving a directory what it has already.
            _ if self.changes_no_rights(changes)? => Ok(()),
            _ => Err(LayoutRefusal::FixedAttributes.into()),
        }
    }

    /// Gives a branch to another user; root may, and its group is always that user's.
    fn change_owner(&self, caller: Caller, branch: BranchId, changes: AttrChanges) -> Result<(), Failure> {
        let mount = &self.fs.mount;
        let uid = changes.uid.filter(|uid| changes.gid.is_none_or(|gid| gid == mount.user(*uid).gid));
        let Some(uid) = uid.filter(|_| caller.uid == 0 && changes.mode.is_none()) else {
            return Err(LayoutRefusal::BranchOwner.into());
        };
        let files = || mount.memory.files(&View::Branch(branch));
        let before = files()?;
        mount.memory.chown(&mount.actor(caller), branch, uid)?;
        mount.invalidate_changed_files(branch, before, files()?);
        mount.invalidate_earlier_owners(branch);
        Ok(())
    }

    /// Returns whether owner, group and permission bits are those that the node has.
    fn changes_no_rights(&self, changes: AttrChanges) -> Result<bool, Failure> {
        let now = attr(&self.fs.mount, self.fs.nodes.number(self.node), self.node)?;
        let differs = |wanted: Option<u32>, has| wanted.is_some_and(|wanted| wanted != has);
        Ok(!differs(changes.uid, now.uid)
            && !differs(changes.gid, now.gid)
            && !differs(changes.mode.map(|mode| mode & 0o7777), now.mode))
    }

    fn find_temporary(&self, branch: BranchId, number: u64) -> Result<Arc<Temporary>, Failure> {
        let file = self.fs.mount.states.get(branch).and_then(|state| state.temporaries.get_by_number(number));
        Ok(file.ok_or(Errno::ENOENT)?)
    }
}
