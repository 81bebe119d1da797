//! A list of changes that turns one tree into another: what a merge did to the files of a branch, as the log holds it.

use super::op_bytes::read_name;
use super::pack::Packs;
use super::{FileName, FileNode, FileOp, FileOutcome, Tree, TreeError};
use crate::object::{CodecError, Reader, Time, Writer};

/// Codes of changes; those below are the codes of operations.
mod code {
    /// [`TreeChange::Graft`](super::TreeChange::Graft): inode there, directory and name here.
    pub const GRAFT: u8 = 64;
    /// [`TreeChange::Replace`](super::TreeChange::Replace): inode there, inode here.
    pub const REPLACE: u8 = 65;
}

/// One change of a tree. If it takes a node of another tree, it names the inode there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeChange {
    /// An operation, as users do them.
    Op(FileOp<'static>),
    /// Makes an inode like `from` of the other tree; of a directory without its entries.
    Graft {
        /// The inode in the other tree.
        from: u64,
        /// The directory that gets it.
        parent: u64,
        /// The name that it gets.
        name: FileName,
    },
    /// Gives a file the content, attributes and times of `from`; owner, mode and birth stay.
    Replace {
        /// The inode in the other tree.
        from: u64,
        /// The inode that changes.
        inode: u64,
    },
}

/// Changes in the order in which they are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreePatch {
    /// Inodes that are made get numbers from here on.
    pub next_inode: u64,
    /// Whether contents that another tree gives count as written when the patch was made, as a merge writes them.
    pub writes: bool,
    /// In the order in which they are made.
    pub changes: Vec<TreeChange>,
}

impl Tree {
    /// Makes one change, with the nodes of `other`, whose contents may count as written now; returns the inode that was
    /// made or changed, and the one that lost its last name.
    ///
    /// Fails like [`Tree::apply`], and `Stale` if either tree does not have an inode that it names.
    pub fn make_change(
        &mut self,
        change: &TreeChange,
        (other, writes): (&Tree, bool),
        time: Time,
        packs: &dyn Packs,
    ) -> Result<FileOutcome, TreeError> {
        let inode = match change {
            TreeChange::Op(op) => return self.apply(op, time, packs),
            TreeChange::Graft { from, parent, name } => {
                let mut node = other.detached(other.node(*from)?);
                node.written = if writes { time } else { node.written };
                self.graft(*parent, name, &node, time)?
            }
            TreeChange::Replace { from, inode } => {
                let own = self.node(*inode)?;
                let mut node = FileNode::clone(other.node(*from)?);
                (node.mode, node.uid, node.gid, node.crtime) = (own.mode, self.owner(own), own.gid, own.crtime);
                node.written = match () {
                    // A merge that brings the same bytes has written nothing.
                    () if own.content_hash() == node.content_hash() && own.target() == node.target() => own.written,
                    () if writes => time,
                    () => node.written,
                };
                self.replace(*inode, &node, time)?;
                *inode
            }
        };
        Ok(FileOutcome { inode, unlinked: None })
    }

    /// Returns this tree with all changes of a patch made. It gives what it gave when the patch was recorded: the same
    /// inodes under the same numbers.
    ///
    /// An error means that this tree or `other` is not the one that the patch was recorded with.
    pub fn apply_patch(
        &self,
        patch: &TreePatch,
        other: &Tree,
        time: Time,
        packs: &dyn Packs,
    ) -> Result<Tree, TreeError> {
        let mut tree = self.clone();
        tree.reserve_inodes_below(patch.next_inode);
        for change in &patch.changes {
            tree.make_change(change, (other, patch.writes), time, packs)?;
        }
        Ok(tree)
    }
}

impl TreePatch {
    /// Appends the canonical bytes.
    pub fn write(&self, out: &mut Writer) {
        out.number(self.next_inode).byte(u8::from(self.writes)).number(self.changes.len() as u64);
        for change in &self.changes {
            match change {
                TreeChange::Op(op) => {
                    let content = op.write(out);
                    out.raw(content);
                }
                TreeChange::Graft { from, parent, name } => {
                    out.byte(code::GRAFT).number(*from).number(*parent).bytes(name);
                }
                TreeChange::Replace { from, inode } => {
                    out.byte(code::REPLACE).number(*from).number(*inode);
                }
            }
        }
    }

    /// Reads canonical bytes back. The numbers of inodes are not looked at. Fails with the `CodecError` of the first
    /// value that is not of the expected form.
    pub fn read(input: &mut Reader<'_>) -> Result<TreePatch, CodecError> {
        let (next_inode, writes) = (input.number()?, input.byte()? != 0);
        let changes = (0..input.length()?).map(|_| TreeChange::read(input)).collect::<Result<_, _>>()?;
        Ok(TreePatch { next_inode, writes, changes })
    }
}

impl TreeChange {
    fn read(input: &mut Reader<'_>) -> Result<TreeChange, CodecError> {
        Ok(match input.remaining().first() {
            Some(&code::GRAFT) => {
                input.byte()?;
                TreeChange::Graft { from: input.number()?, parent: input.number()?, name: read_name(input)? }
            }
            Some(&code::REPLACE) => {
                input.byte()?;
                TreeChange::Replace { from: input.number()?, inode: input.number()? }
            }
            _ => TreeChange::Op(FileOp::read_owned(input)?),
        })
    }
}
