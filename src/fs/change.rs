//! Operations that make, remove and rename.

use std::ffi::OsStr;

use super::attr::EntryAttr;
use super::errno::{Errno, Failure};
use super::mount_context::{Caller, check_changeable};
use super::node::{ControlNode, FsNode};
use super::refusal::ShapeRefusal;
use super::rights::{READ, SEARCH};
use super::{Filesystem, branches, vectors};
use crate::memory::{FILES_ROOT, Make, View};

impl Filesystem {
    /// Makes a root branch, a fork, a checkpoint or a directory in `files/`; EPERM where a directory
    /// means none of these. `mode` is for `files/`.
    pub fn mkdir(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32) -> Result<EntryAttr, Errno> {
        let parent = self.nodes.node(parent)?;
        let made = match &parent {
            FsNode::File(of, directory) => self.make_file(caller, of, *directory, name, Make::Directory, mode),
            _ => self.make(caller, &parent, name).and_then(|node| self.entry(&node)),
        };
        self.audit_at(caller, &parent, name, made)
    }

    /// Discards a branch with all that is in it, deletes a checkpoint, or removes an empty directory
    /// in `files/`.
    ///
    /// EPERM for `main` and fixed names, ENOTEMPTY while the branch has child branches, EBUSY while
    /// a handle holds bytes of it that no commit took.
    pub fn rmdir(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let parent = self.nodes.node(parent)?;
        let removed = match &parent {
            FsNode::File(of, directory) => self.remove_file(caller, of, *directory, name, true),
            _ => self.find(&parent, name).and_then(|node| self.remove_directory(caller, &parent, &node)),
        };
        self.audit_at(caller, &parent, name, removed)
    }

    /// Removes a record in this branch, a temporary, or a file in `files/`; EPERM for everything else.
    pub fn unlink(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let parent = self.nodes.node(parent)?;
        let removed = match &parent {
            FsNode::File(of, directory) => self.remove_file(caller, of, *directory, name, false),
            FsNode::Control(view, ControlNode::Vectors) => {
                self.mount.place(view, caller).and_then(|place| vectors::unlink(&place, name))
            }
            _ => self.find(&parent, name).and_then(|node| Err(fixed(&node))),
        };
        self.audit_at(caller, &parent, name, removed)
    }

    /// Renames: within `files/` anything, within `vectors/` records and temporaries, within
    /// `branches/` a branch; from `branches/` to the parent's directory under the same name it
    /// merges. `flags` are those of renameat2(2); outside of `files/` only `RENAME_NOREPLACE` has a
    /// meaning.
    ///
    /// EEXIST onto a branch, EINVAL to anywhere else, EPERM for fixed names, and what a merge is
    /// refused for.
    pub fn rename(&self, caller: Caller, from: (u64, &OsStr), to: (u64, &OsStr), flags: u32) -> Result<(), Errno> {
        let (parent, new_parent) = (self.nodes.node(from.0)?, self.nodes.node(to.0)?);
        if matches!((&parent, &new_parent), (FsNode::File(..), _) | (_, FsNode::File(..))) {
            let moved = self.rename_at(caller, (&parent, from.1), (&new_parent, to.1), flags);
            return self.audit_at(caller, &parent, from.1, moved);
        }
        let moved = self.find(&parent, from.1).and_then(|node| {
            let renamed = self.rename_node(caller, (&parent, from.1, &node), (&new_parent, to.1), flags);
            renamed.inspect_err(|failure| self.record_for_branch(caller, &node, failure))
        });
        self.audit_at(caller, &parent, from.1, moved)
    }

    fn make(&self, caller: Caller, parent: &FsNode, name: &OsStr) -> Result<FsNode, Failure> {
        if let Some(view) = parent.view() {
            self.mount.memory.info(view.branch())?;
            check_changeable(&view)?;
        }
        self.mount.check_writable()?;
        let who = self.mount.actor(caller);
        match parent {
            FsNode::Mount => Ok(FsNode::Branch(self.mount.memory.create_root(&who, text(name)?)?)),
            FsNode::Control(View::Branch(branch), ControlNode::Branches) => {
                self.mount.check_rights(caller, &self.mount.memory.info(*branch)?, READ | SEARCH)?;
                Ok(FsNode::Branch(self.mount.memory.fork(&who, *branch, text(name)?, None)?))
            }
            FsNode::Control(View::Branch(branch), ControlNode::Checkpoints) => {
                self.mount.memory.checkpoint(&who, *branch, text(name)?, None)?;
                self.find(parent, name)
            }
            _ => Err(ShapeRefusal::NoDirectoryHere.into()),
        }
    }

    fn remove_directory(&self, caller: Caller, parent: &FsNode, node: &FsNode) -> Result<(), Failure> {
        if let Some(view) = parent.view() {
            check_changeable(&view)?;
        }
        match node {
            FsNode::Branch(branch) => {
                let discarded = branches::discard(&self.mount, &self.handles, caller, *branch);
                discarded.inspect_err(|failure| self.record_for_branch(caller, node, failure))
            }
            FsNode::Checkpoint { branch, label, .. } => {
                self.mount.check_writable()?;
                Ok(self.mount.memory.delete_checkpoint(&self.mount.actor(caller), *branch, label)?)
            }
            node if node.is_directory() => Err(fixed(node)),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    fn rename_node(
        &self,
        caller: Caller,
        from: (&FsNode, &OsStr, &FsNode),
        to: (&FsNode, &OsStr),
        flags: u32,
    ) -> Result<(), Failure> {
        let ((parent, name, node), (new_parent, new_name)) = (from, to);
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return Err(ShapeRefusal::Exchange.into());
        }
        for view in [parent.view(), new_parent.view()].into_iter().flatten() {
            check_changeable(&view)?;
        }
        self.check_target(node, new_parent, new_name)?;
        match (node, new_parent) {
            (FsNode::Record(view, _), _) if parent == new_parent => {
                vectors::rename(&self.mount.place(view, caller)?, name, new_name, flags != 0)?;
            }
            (FsNode::Temporary(branch, _), _) if parent == new_parent => {
                vectors::rename(&self.mount.place(&View::Branch(*branch), caller)?, name, new_name, flags != 0)?;
            }
            // As between file systems: mv(1) then copies, and the copy is a record of the other
            // branch.
            (FsNode::Record(..) | FsNode::Temporary(..), FsNode::Control(_, ControlNode::Vectors)) => {
                return Err(Errno::EXDEV.into());
            }
            (FsNode::Branch(branch), _) => {
                branches::rename(&self.mount, &self.handles, caller, *branch, (new_parent, text(new_name)?))?;
            }
            _ => return Err(fixed(node)),
        }
        Ok(())
    }

    /// The kernel marks a directory that is replaced as dead for everybody, so that must never be.
    pub(super) fn check_target(&self, node: &FsNode, new_parent: &FsNode, new_name: &OsStr) -> Result<(), Failure> {
        match self.find(new_parent, new_name) {
            Ok(target) if target == *node => Ok(()),
            Ok(FsNode::Branch(_)) => Err(ShapeRefusal::BranchExists(new_name.to_string_lossy().into_owned()).into()),
            Ok(
                target @ (FsNode::Control(..) | FsNode::Setting(..) | FsNode::Export(..) | FsNode::Checkpoint { .. }),
            ) => Err(fixed(&target)),
            Ok(target @ FsNode::File(_, FILES_ROOT)) => Err(fixed(&target)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Who merges or discards a branch may look for the reason in the branch as well as in its
    /// parent.
    fn record_for_branch(&self, caller: Caller, node: &FsNode, failure: &Failure) {
        if let (FsNode::Branch(_), Failure::Refused(error)) = (node, failure) {
            self.record(Some(caller), node.view().as_ref(), ".", error);
        }
    }
}

/// Returns the refusal to move or remove what is always there.
pub(super) fn fixed(node: &FsNode) -> Failure {
    ShapeRefusal::Fixed(node.path().to_string()).into()
}

fn text(name: &OsStr) -> Result<&str, Failure> {
    name.to_str().ok_or_else(|| ShapeRefusal::NameNotUtf8.into())
}
