//! What stat(2) shows, and how long the kernel may believe it.

use std::time::Duration;

use super::common::Common;
use super::errno::{Errno, Failure};
use super::node::{Fixed, Node};
use super::{config, files};
use crate::memory::{BranchId, BranchInfo, Document, FileKind, Time, View};

/// How long the kernel keeps names that are always there, and what does not change by itself.
const STEADY: Duration = Duration::from_secs(1);
/// For what a merge, a rollback or another client may change at any moment.
const NEVER: Duration = Duration::ZERO;

/// The attributes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// The node's number, its own as long as the mount lives.
    pub ino: u64,
    /// What it is; outside of `files/` a directory or a regular file.
    pub kind: FileKind,
    /// Bytes: exact, but for `status`, which is padded, and for what would have to be worked out, where it is 0.
    pub size: u64,
    /// Space, in units of 512 bytes.
    pub blocks: u64,
    /// Permission bits.
    pub mode: u32,
    /// Number of names; outside of `files/` 1, which tells find(1) not to count on it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device, as the kernel gave it.
    pub device: u32,
    /// Last reading, as somebody set it; nothing is noted when files are read.
    pub accessed: Time,
    /// Last change of the content.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// How long the kernel may believe this.
    pub lifetime: Duration,
}

impl Attr {
    /// Returns attributes of what is generated or in RAM: everything follows from these.
    pub(super) fn plain(ino: u64, directory: bool, modified: Time, (uid, gid): (u32, u32)) -> Attr {
        Attr {
            ino,
            kind: if directory { FileKind::Directory } else { FileKind::File },
            size: 0,
            blocks: 0,
            mode: 0o644,
            links: 1,
            uid,
            gid,
            device: 0,
            accessed: modified,
            modified,
            changed: modified,
            lifetime: NEVER,
        }
    }

    /// The same with another length.
    pub(super) fn sized(self, size: u64) -> Attr {
        Attr { size, blocks: size.div_ceil(512), ..self }
    }

    fn dated(self, modified: Time) -> Attr {
        Attr { accessed: modified, modified, changed: modified, ..self }
    }
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
        // Who opens it next may get another number.
        _ if node.stands_apart() => NEVER,
        Node::Mount | Node::Fixed(..) | Node::Export(..) | Node::Setting(..) => STEADY,
        Node::File(..) => files::name_lifetime(),
        // Root branches go by rmdir(2) alone, and the kernel sees that.
        Node::Branch(branch) if common.memory.info(*branch).is_ok_and(|info| info.parent.is_none()) => STEADY,
        Node::Branch(_) | Node::Checkpoint { .. } | Node::Record(..) | Node::Temporary(..) | Node::Query(..) => NEVER,
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
    if let Node::File(of, inode) = node {
        return files::attr(common, ino, of, *inode);
    }
    let info = common.memory.info(view.branch())?;
    let modified = changed(common, &view, &info)?;
    let base = Attr::plain(ino, node.is_directory(), modified, (info.uid, common.user(info.uid).gid));
    match node {
        Node::Mount => mount(common, ino),
        Node::File(of, inode) => files::attr(common, ino, of, *inode),
        Node::Branch(_) => {
            let lifetime = if info.parent.is_none() { STEADY } else { NEVER };
            Ok(Attr { mode: info.mode, lifetime, ..base })
        }
        Node::Checkpoint { taken, .. } if *taken != modified => Err(Errno::ESTALE.into()),
        Node::Checkpoint { .. } => Ok(Attr { mode: info.mode, ..base }),
        Node::Fixed(_, fixed) => {
            let lifetime = if fixed.is_directory() { STEADY } else { NEVER };
            let size = fixed_size(common, &view, &info, *fixed)?;
            Ok(Attr { mode: fixed.mode(), lifetime, ..base.sized(size) })
        }
        Node::Temporary(branch, number) => temporary(common, base, *branch, *number),
        Node::Record(_, id) => {
            let stat = common.memory.snapshot(&view)?.stat(id)?.ok_or(Errno::ENOENT)?;
            Ok(base.sized(stat.length).dated(stat.modified))
        }
        // It is asked when it is opened.
        Node::Query(..) => Ok(Attr { mode: 0o444, ..base }),
        Node::Export(_, export) => {
            let size = common.memory.snapshot(&view)?.export_length(*export);
            Ok(Attr { mode: 0o444, ..base.sized(size) })
        }
        Node::Setting(_, setting) => {
            let value = common.memory.setting(&view, *setting)?;
            Ok(base.sized(config::shown(&value).len() as u64))
        }
    }
}

fn temporary(common: &Common, base: Attr, branch: BranchId, number: u64) -> Result<Attr, Failure> {
    let state = common.states.known(branch).ok_or(Errno::ENOENT)?;
    let look = state.temporaries.numbered(number).ok_or(Errno::ENOENT)?.look();
    let base = base.sized(look.length).dated(look.modified);
    Ok(Attr { mode: look.mode, uid: look.uid, gid: look.gid, ..base })
}

/// Returns the attributes of a record that is being written and not committed yet.
pub(super) fn unborn(common: &Common, ino: u64, branch: BranchId, size: u64) -> Result<Attr, Failure> {
    let info = common.memory.info(branch)?;
    Ok(Attr::plain(ino, false, common.memory.now(), (info.uid, common.user(info.uid).gid)).sized(size))
}

/// The mount belongs to whom `main` belongs to: to the user who made the store.
fn mount(common: &Common, ino: u64) -> Result<Attr, Failure> {
    let main = common.memory.resolve("main")?;
    let info = common.memory.info(main)?;
    let modified =
        common.memory.roots().iter().filter_map(|(_, id)| common.memory.info(*id).ok()).map(|root| root.created).max();
    let modified = modified.unwrap_or(info.created);
    let base = Attr::plain(ino, true, modified, (info.uid, common.user(info.uid).gid));
    Ok(Attr { mode: 0o755, lifetime: STEADY, ..base })
}

fn changed(common: &Common, view: &View, info: &BranchInfo) -> Result<Time, Failure> {
    match view {
        View::Branch(_) => Ok(info.changed),
        View::Checkpoint(branch, label) => {
            Ok(common.memory.checkpoint_time(*branch, label).map_err(|_| Errno::ESTALE)?)
        }
    }
}

/// Returns the length that stat(2) shows: 0 as in /proc for what is different for each reader or takes work.
fn fixed_size(common: &Common, view: &View, info: &BranchInfo, fixed: Fixed) -> Result<u64, Failure> {
    match fixed {
        Fixed::Document(Document::Status) => Ok(info.status_bytes()),
        Fixed::Document(Document::Diff | Document::Conflicts) => Ok(0),
        Fixed::Document(document @ Document::Readme) => Ok(common.memory.document(view, document)?.len() as u64),
        Fixed::History(file) => {
            let memory = &common.memory;
            Ok(memory.history_length(view.branch(), file, memory.history_end(view)?)?)
        }
        Fixed::Query | Fixed::Ingest | Fixed::Ctl | Fixed::Errors => Ok(0),
        Fixed::Vectors | Fixed::Branches | Fixed::Checkpoints | Fixed::Search | Fixed::Exports | Fixed::Config => Ok(0),
    }
}
