//! Making, removing and renaming branches, checkpoints and records.

use std::ffi::OsStr;

use super::{ControlNodeOps, branches, signals, vectors};
use crate::fs::control::ControlDirectory;
use crate::fs::errno::{Errno, Failure};
use crate::fs::mount_context::{Caller, check_changeable};
use crate::fs::node::FsNode;
use crate::fs::operations::{NodeOperations, ParentAndName, fixed_node_refusal};
use crate::fs::refusal::LayoutRefusal;
use crate::fs::rights::{READ, SEARCH};
use crate::memory::View;

impl ControlNodeOps<'_> {
    /// Makes a root branch, a fork or a checkpoint. Refused where the view is not the present one or the mount is
    /// read-only, where the name is not one or taken, and where directories are not made at all.
    pub(super) fn make(&self, caller: Caller, name: &OsStr) -> Result<FsNode, Failure> {
        let parent = self.node;
        if let Some(view) = parent.view() {
            self.fs.mount.memory.info(view.branch())?;
            check_changeable(&view)?;
        }
        self.fs.mount.check_writable()?;
        let who = self.fs.mount.actor(caller);
        match parent {
            FsNode::Mount => Ok(FsNode::Branch(self.fs.mount.memory.create_root(&who, text(name)?)?)),
            FsNode::Directory(View::Branch(branch), ControlDirectory::Branches) => {
                // The kernel checks the directory `branches/`, which everybody may write to; whether the branch may be
                // read it can't see.
                self.fs.mount.check_rights(caller, &self.fs.mount.memory.info(*branch)?, READ | SEARCH)?;
                Ok(FsNode::Branch(self.fs.mount.memory.fork(&who, *branch, text(name)?, None)?))
            }
            FsNode::Directory(View::Branch(branch), ControlDirectory::Checkpoints) => {
                self.fs.mount.memory.checkpoint(&who, *branch, text(name)?, None)?;
                self.find(name)
            }
            _ => Err(LayoutRefusal::NoDirectoryHere.into()),
        }
    }

    /// Discards a branch or deletes a checkpoint. ENOTDIR for a file; a fixed directory and what is not the present
    /// view are refused by the layout of the tree.
    pub(super) fn remove(&self, caller: Caller, node: &FsNode) -> Result<(), Failure> {
        if let Some(view) = self.node.view() {
            check_changeable(&view)?;
        }
        match node {
            FsNode::Branch(branch) => {
                let discarded = branches::discard(&self.fs.mount, &self.fs.handles, caller, *branch);
                discarded.inspect_err(|failure| self.log_refusal_for_branch(caller, node, failure))
            }
            FsNode::Checkpoint { branch, label, .. } => {
                self.fs.mount.check_writable()?;
                Ok(self.fs.mount.memory.delete_checkpoint(&self.fs.mount.actor(caller), *branch, label)?)
            }
            node if node.is_directory() => Err(fixed_node_refusal(node)),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    /// Moves what has a name here within the tree. EXDEV for a record that goes to another branch; an exchange, and
    /// what has a fixed place, are refused by the layout of the tree.
    pub(super) fn rename_node(
        &self,
        caller: Caller,
        (name, node): (&OsStr, &FsNode),
        (new_parent, new_name): ParentAndName<'_>,
        flags: u32,
    ) -> Result<(), Failure> {
        let parent = self.node;
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return Err(LayoutRefusal::Exchange.into());
        }
        for view in [parent.view(), new_parent.view()].into_iter().flatten() {
            check_changeable(&view)?;
        }
        // Before anything is done, as the kernel marks a directory that is replaced as dead for everybody.
        self.fs.check_target(node, (new_parent, new_name))?;
        match (node, new_parent) {
            (FsNode::Record(view, _), _) if parent == new_parent => {
                let context = self.fs.mount.open_context(view, caller)?;
                vectors::rename(&context, &self.fs.handles, (name, new_name), flags != 0)?;
            }
            (FsNode::Temporary(branch, _), _) if parent == new_parent => {
                let context = self.fs.mount.open_context(&View::Branch(*branch), caller)?;
                vectors::rename(&context, &self.fs.handles, (name, new_name), flags != 0)?;
            }
            (FsNode::Signal(view, key, _), _) if parent == new_parent => {
                signals::rename(&self.fs.mount.open_context(view, caller)?, key, new_name, flags != 0)?;
            }
            // As between file systems: mv(1) then copies, and the copy is a record of the other
            // branch.
            (FsNode::Record(..) | FsNode::Temporary(..), FsNode::Directory(_, ControlDirectory::Vectors)) => {
                return Err(Errno::EXDEV.into());
            }
            (FsNode::Branch(branch), _) => {
                branches::rename(&self.fs.mount, &self.fs.handles, caller, *branch, (new_parent, text(new_name)?))?;
            }
            _ => return Err(fixed_node_refusal(node)),
        }
        Ok(())
    }

    /// Who merges or discards a branch may look for the reason in the branch as well as in its
    /// parent.
    pub(super) fn log_refusal_for_branch(&self, caller: Caller, node: &FsNode, failure: &Failure) {
        if let (FsNode::Branch(_), Failure::Refused(error)) = (node, failure) {
            self.fs.log_refusal(Some(caller), node.view().as_ref(), ".", error);
        }
    }
}

fn text(name: &OsStr) -> Result<&str, Failure> {
    name.to_str().ok_or_else(|| LayoutRefusal::NameNotUtf8.into())
}
