//! What stat(2) shows, and how long the kernel may believe it.

use std::time::Duration;

use super::common::Common;
use super::errno::{Errno, Failure};
use super::node::{Fixed, Node};
use super::{config, search};
use crate::memory::{BranchId, BranchInfo, Time, View};

/// How long the kernel keeps names that are always there, and what does not change by itself.
const STEADY: Duration = Duration::from_secs(1);
/// For what a merge, a rollback or another client may change at any moment.
const NEVER: Duration = Duration::ZERO;

/// The attributes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// The node's number, its own as long as the mount lives.
    pub ino: u64,
    /// Whether it is a directory; else it is a regular file.
    pub directory: bool,
    /// Bytes: exact for all but `query`, `ingest` and `ctl`, where it is 0.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change.
    pub modified: Time,
    /// How long the kernel may believe this.
    pub lifetime: Duration,
}

/// A name that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What stands there.
    pub attr: Attr,
    /// How long the kernel may believe that it stands there.
    pub lifetime: Duration,
}

/// Returns how long a name leading to `node` may be kept.
pub(super) fn name_lifetime(common: &Common, node: &Node) -> Duration {
    match node {
        Node::Mount | Node::Fixed(..) | Node::Export(..) | Node::Setting(..) => STEADY,
        // Root branches go by rmdir(2) alone, and the kernel sees that.
        Node::Branch(branch) if common.memory.info(*branch).is_ok_and(|info| info.parent.is_none()) => STEADY,
        Node::Branch(_) | Node::Checkpoint { .. } | Node::Record(..) | Node::Temporary(..) | Node::Question(..) => {
            NEVER
        }
    }
}

/// Returns the attributes of a node.
///
/// ENOENT when it is not there any more, ESTALE when its branch was merged or discarded or its
/// checkpoint deleted.
pub(super) fn attr(common: &Common, ino: u64, node: &Node) -> Result<Attr, Failure> {
    let Some(view) = node.view() else {
        return mount(common, ino);
    };
    let info = common.memory.info(view.branch())?;
    let modified = changed(common, &view, &info)?;
    let base = Attr {
        ino,
        directory: node.is_directory(),
        size: 0,
        mode: 0o644,
        uid: info.uid,
        gid: common.user(info.uid).gid,
        modified,
        lifetime: NEVER,
    };
    match node {
        Node::Mount => mount(common, ino),
        Node::Branch(_) => {
            let lifetime = if info.parent.is_none() { STEADY } else { NEVER };
            Ok(Attr { mode: info.mode, lifetime, ..base })
        }
        Node::Checkpoint { taken, .. } if *taken != modified => Err(Errno::ESTALE.into()),
        Node::Checkpoint { .. } => Ok(Attr { mode: info.mode, ..base }),
        Node::Fixed(_, fixed) => {
            let lifetime = if fixed.is_directory() { STEADY } else { NEVER };
            let size = fixed_size(common, &view, *fixed)?;
            Ok(Attr { mode: fixed.mode(), size, lifetime, ..base })
        }
        Node::Temporary(branch, number) => temporary(common, base, *branch, *number),
        Node::Record(_, id) => {
            let stat = common.memory.snapshot(&view)?.stat(id)?.ok_or(Errno::ENOENT)?;
            Ok(Attr { size: stat.length, modified: stat.modified, ..base })
        }
        // What is wrong with a question is told when it is opened.
        Node::Question(_, text) => {
            let size = search::answer(common, &view, text).map_or(0, |lines| lines.len() as u64);
            Ok(Attr { mode: 0o444, size, ..base })
        }
        Node::Export(_, export) => {
            let size = common.memory.snapshot(&view)?.export_length(*export);
            Ok(Attr { mode: 0o444, size, ..base })
        }
        Node::Setting(_, setting) => {
            let value = common.memory.setting(&view, *setting)?;
            Ok(Attr { size: config::shown(&value).len() as u64, ..base })
        }
    }
}

fn temporary(common: &Common, base: Attr, branch: BranchId, number: u64) -> Result<Attr, Failure> {
    let state = common.states.known(branch).ok_or(Errno::ENOENT)?;
    let look = state.temporaries.numbered(number).ok_or(Errno::ENOENT)?.look();
    let (size, modified) = (look.length, look.modified);
    Ok(Attr { size, mode: look.mode, uid: look.uid, gid: look.gid, modified, ..base })
}

/// Returns the attributes of a record that is being written and not committed yet.
pub(super) fn unborn(common: &Common, ino: u64, branch: BranchId, size: u64) -> Result<Attr, Failure> {
    let info = common.memory.info(branch)?;
    Ok(Attr {
        ino,
        directory: false,
        size,
        mode: 0o644,
        uid: info.uid,
        gid: common.user(info.uid).gid,
        modified: common.memory.now(),
        lifetime: NEVER,
    })
}

/// The mount belongs to whom `main` belongs to: to the user who made the store.
fn mount(common: &Common, ino: u64) -> Result<Attr, Failure> {
    let main = common.memory.resolve("main")?;
    let info = common.memory.info(main)?;
    let modified =
        common.memory.roots().iter().filter_map(|(_, id)| common.memory.info(*id).ok()).map(|root| root.created).max();
    let modified = modified.unwrap_or(info.created);
    Ok(Attr {
        ino,
        directory: true,
        size: 0,
        mode: 0o755,
        uid: info.uid,
        gid: common.user(info.uid).gid,
        modified,
        lifetime: STEADY,
    })
}

fn changed(common: &Common, view: &View, info: &BranchInfo) -> Result<Time, Failure> {
    match view {
        View::Branch(_) => Ok(info.changed),
        View::Checkpoint(branch, label) => {
            Ok(common.memory.checkpoint_time(*branch, label).map_err(|_| Errno::ESTALE)?)
        }
    }
}

fn fixed_size(common: &Common, view: &View, fixed: Fixed) -> Result<u64, Failure> {
    match fixed {
        Fixed::Document(document) => Ok(common.memory.document(view, document)?.len() as u64),
        Fixed::Errors => Ok(common.states.known(view.branch()).map_or(0, |state| state.errors.length())),
        Fixed::Query | Fixed::Ingest | Fixed::Ctl => Ok(0),
        Fixed::Vectors | Fixed::Branches | Fixed::Checkpoints | Fixed::Search | Fixed::Exports | Fixed::Config => Ok(0),
    }
}
