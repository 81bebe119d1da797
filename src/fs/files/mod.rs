//! `files/`: requests become operations on a branch's tree of files.
//!
//! ```text
//! look     names, attributes      ─┐
//! change   make, remove, rename   ─┤  each request takes the tree of this moment, a value, and
//! set      setattr                ─┼─ changes it by one Memory::edit, which is atomic and
//! open     handles, read, write   ─┤  written to the journal before it returns
//! range    holes, copies          ─┤
//! xattr    extended attributes    ─┘
//! numbers  (view, inode) ↔ the kernel's number       listing  open directories
//! opened   who is open, so that what loses its last name lives on; removed: what the kernel holds on to
//! stale    what the kernel must forget when a merge or a rollback changed it
//! ```
//!
//! Who may do what is checked by the kernel, by the modes and owners that it is told. Nothing here
//! holds a lock while the tree is read or changed.

mod attr;
mod change;
mod listing;
mod look;
mod numbers;
mod open;
mod opened;
mod range;
mod removed;
mod set;
mod stale;
mod xattr;

pub(super) use attr::{attr, name_lifetime};
pub(super) use listing::FileNames;
pub(super) use numbers::FileNumbers;
pub(super) use opened::Opened;
pub(super) use removed::Removed;

use std::ffi::OsStr;

use super::common::{Caller, Common, check_changeable};
use super::errno::{Errno, Failure};
use super::node::Node;
use crate::memory::{FileName, FileOp, FileOutcome, Time, Tree, View};

/// The name of the tree's root in a branch's directory.
pub(super) const FILES: &str = "files";

/// Whose files. `taken` tells a checkpoint from a later one of the same label, as in [`Node`]; it is
/// zero for a branch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct FilesOf {
    pub view: View,
    pub taken: Time,
}

impl FilesOf {
    /// Returns the files in the directory of a branch or checkpoint; nothing for other nodes.
    pub fn directory(node: &Node) -> Option<FilesOf> {
        let taken = match node {
            Node::Branch(_) => Time::default(),
            Node::Checkpoint { taken, .. } => *taken,
            _ => return None,
        };
        Some(FilesOf { view: node.view()?, taken })
    }

    /// Returns the directory that holds `files`.
    pub fn above(&self) -> Node {
        Node::of_view(&self.view, self.taken)
    }
}

impl Common {
    /// Returns the files as they are now; ESTALE when the branch or the checkpoint is gone.
    pub fn tree(&self, of: &FilesOf) -> Result<Tree, Failure> {
        if let View::Checkpoint(branch, label) = &of.view {
            let taken = self.memory.checkpoint_time(*branch, label).map_err(|_| Errno::ESTALE)?;
            if taken != of.taken {
                return Err(Errno::ESTALE.into());
            }
        }
        Ok(self.memory.files(&of.view)?)
    }

    /// Changes the files by one operation; EROFS in a checkpoint and where nothing may change.
    pub fn edit(&self, caller: Caller, of: &FilesOf, op: FileOp) -> Result<FileOutcome, Failure> {
        check_changeable(&of.view)?;
        self.check_mount()?;
        Ok(self.memory.edit(&self.actor(caller), of.view.branch(), op)?)
    }
}

/// Checks a name that something is to get: ENAMETOOLONG, or EINVAL for what no name can be.
fn name_of(name: &OsStr) -> Result<FileName, Failure> {
    Ok(FileName::new(name.as_encoded_bytes())?)
}
