//! The control tree: branches, checkpoints, `vectors/`, `ctl`, `query`, `config/` and all else that
//! the memory is seen and driven by.
//!
//! ```text
//! operations  what can be asked of a node
//! tree        names → nodes, listings      ─┐
//! attr, set   what stat(2) shows, setattr  ─┼─ each request asks the memory, which checks and records
//! open, fixed a File for each kind of file ─┤
//! change      mkdir rmdir unlink rename    ─┘  branches: discard, merge · vectors: records, temporaries
//! ```

mod attr;
mod branches;
mod change;
mod fixed;
mod open;
mod operations;
mod set;
mod signals;
mod tree;
mod vectors;

use super::Filesystem;
use super::node::FsNode;
pub(super) use fixed::{ControlDirectory, ControlFile};

/// The operations of a node of the control tree.
pub(super) struct ControlNodeOps<'a> {
    /// The mount that was asked.
    pub fs: &'a Filesystem,
    /// The node that was asked for: any but a file of `files/` or `scratch/`.
    pub node: &'a FsNode,
}
