//! The files of a branch: a tree of inodes whose clones share everything until it changes.
//!
//! A [`Tree`] is a value: fork, checkpoint, base and rollback are clones, in constant time. It
//! changes by [`FileOp`]s, which have canonical bytes for the journal, and the same ops give the same
//! tree, inode numbers and head; a long write can leave its bytes in the journal, as a [`DirectWrite`].
//! Contents are chunks of 64 KiB, in memory, in a file that they were written down in, or in packs on
//! the blob store; what is read from a file is checked.
//!
//! Nothing here knows of branches, handles, the journal or the kernel; time is passed in.
//!
//! What a tree refuses is a [`TreeError`], one variant for each error number of POSIX; the operation's variant in
//! [`FileOp`] says which. Whatever is about an inode that is not there is [`TreeError::Stale`]. Bytes of a chunk that
//! can't be read, or are not what was written, are [`TreeError::Segment`], of any function that takes [`Packs`]. Stored
//! forms that are damaged, or of a later version, are [`TreeError::Codec`] or [`TreeError::Stored`] and never a panic.
//!
//! ```
//! use engramfs::object::Time;
//! use engramfs::workspace::{FileName, FileOp, NewInode, NoPacks, ROOT, Tree, TreeError};
//!
//! # fn main() -> Result<(), TreeError> {
//! let mut tree = Tree::new(0o755, 1000, 1000, Time(1));
//! let name = FileName::new(b"plan.md")?;
//! let create = FileOp::Create { parent: ROOT, name, make: NewInode::File, mode: 0o644, uid: 1000, gid: 1000 };
//! let inode = tree.apply(&create, Time(2), &NoPacks)?.inode;
//! let fork = tree.clone();
//! tree.apply(&FileOp::Write { inode, offset: 0, bytes: b"tea".into() }, Time(3), &NoPacks)?;
//!
//! assert_eq!(tree.read(inode, 0, 100, &NoPacks)?, b"tea");
//! assert_eq!(fork.read(inode, 0, 100, &NoPacks)?, b"");
//! assert_ne!(tree.hash(), fork.hash());
//! assert!(matches!(tree.apply(&create, Time(4), &NoPacks), Err(TreeError::Exists)));
//! # Ok(())
//! # }
//! ```

mod apply;
mod change;
mod check;
mod chunk;
mod chunks;
mod content;
mod delta;
mod diff;
mod error;
mod hash;
mod held;
mod links;
mod load;
mod name;
mod node;
mod nodes;
mod op;
mod op_bytes;
mod orphans;
mod owners;
mod pack;
mod patch;
mod purge;
mod ranges;
mod repacking;
mod review_tree;
mod sealing;
mod snapshot;
mod totals;
mod touched;
mod tree;
mod written;

#[cfg(test)]
mod tests;

pub use apply::LINKS_MAX;
pub use content::{FILE_BYTES_MAX, FileContent};
pub use diff::{ChangeKind, InodeNode, PathChange, TreeDifference};
pub use error::TreeError;
pub use held::HeldChunks;
pub use name::{FileName, NAME_BYTES_MAX};
pub use node::{Body, Directory, FileKind, FileNode};
pub use nodes::ChangedNode;
pub use op::{Attrs, FileOp, FileOutcome, NewInode, RangeOp, RenameMode, XattrMode};
pub use owners::Transfers;
pub use pack::{NoPacks, Pack, Packs};
pub use patch::{TreeChange, TreePatch};
pub use purge::{PurgedFile, PurgedFiles};
pub use ranges::unshared_bytes;
pub use repacking::{PackMarks, TreeRelocator};
pub use sealing::{TreeSealer, reachable_packs, write_packs};
pub use snapshot::{read_snapshot, verify_snapshot, write_snapshot};
pub use totals::TreeTotals;
pub use tree::{ROOT, Tree};
pub use written::DirectWrite;
