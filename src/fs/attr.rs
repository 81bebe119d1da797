//! What stat(2) shows, and how long the kernel may believe it.

use std::time::Duration;

use super::errno::{Errno, Failure};
use super::mount_context::MountContext;
use super::node::{ControlNode, FsNode};
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
    /// Permission bits, with setuid, setgid and the sticky bit.
    pub mode: u32,
    /// Number of names; outside of `files/` 1, which tells find(1) not to count on it.
    pub links: u32,
    /// Owner; of a directory that is always there, who made the branch.
    pub uid: u32,
    /// Group of that user, or of the file in `files/`.
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
pub struct EntryAttr {
    /// What stands there.
    pub attr: Attr,
    /// How long the kernel may believe that it stands there.
    pub lifetime: Duration,
}

/// Returns how long a name leading to `node` may be kept.
pub(super) fn name_lifetime(mount: &MountContext, node: &FsNode) -> Duration {
    match node {
        // Who opens it next may get another number.
        _ if node.stands_apart() => NEVER,
        FsNode::Mount | FsNode::Control(..) | FsNode::Export(..) | FsNode::Setting(..) => STEADY,
        FsNode::File(..) => files::name_lifetime(),
        // Root branches go by rmdir(2) alone, and the kernel sees that.
        FsNode::Branch(branch) if mount.memory.info(*branch).is_ok_and(|info| info.parent.is_none()) => STEADY,
        FsNode::Branch(_)
        | FsNode::Checkpoint { .. }
        | FsNode::Record(..)
        | FsNode::Temporary(..)
        | FsNode::Query(..) => NEVER,
    }
}

/// Returns the attributes of a node.
///
/// ENOENT when it is not there any more, ESTALE when its branch was merged or discarded or its
/// checkpoint deleted.
pub(super) fn attr(mount: &MountContext, ino: u64, node: &FsNode) -> Result<Attr, Failure> {
    let Some(view) = node.view() else {
        return mount_attr(mount, ino);
    };
    if let FsNode::File(of, inode) = node {
        return files::attr(mount, ino, of, *inode);
    }
    let info = mount.memory.info(view.branch())?;
    let modified = changed(mount, &view, &info)?;
    let base = Attr::plain(ino, node.is_directory(), modified, (info.uid, mount.user(info.uid).gid));
    match node {
        FsNode::Mount => mount_attr(mount, ino),
        FsNode::File(of, inode) => files::attr(mount, ino, of, *inode),
        FsNode::Branch(_) => {
            let lifetime = if info.parent.is_none() { STEADY } else { NEVER };
            Ok(Attr { mode: info.mode, lifetime, ..base })
        }
        FsNode::Checkpoint { taken, .. } if *taken != modified => Err(Errno::ESTALE.into()),
        FsNode::Checkpoint { .. } => Ok(Attr { mode: info.mode, ..base }),
        FsNode::Control(_, fixed) => {
            let lifetime = if fixed.is_directory() { STEADY } else { NEVER };
            let size = fixed_size(mount, &view, &info, *fixed)?;
            Ok(Attr { mode: fixed.mode(), lifetime, ..base.sized(size) })
        }
        FsNode::Temporary(branch, number) => temporary(mount, base, *branch, *number),
        FsNode::Record(_, id) => {
            let stat = mount.memory.snapshot(&view)?.stat(id)?.ok_or(Errno::ENOENT)?;
            Ok(base.sized(stat.length).dated(stat.modified))
        }
        // It is asked when it is opened.
        FsNode::Query(..) => Ok(Attr { mode: 0o444, ..base }),
        FsNode::Export(_, export) => {
            let size = mount.memory.snapshot(&view)?.export_length(*export);
            Ok(Attr { mode: 0o444, ..base.sized(size) })
        }
        FsNode::Setting(_, setting) => {
            let value = mount.memory.setting(&view, *setting)?;
            Ok(base.sized(config::shown(&value).len() as u64))
        }
    }
}

fn temporary(mount: &MountContext, base: Attr, branch: BranchId, number: u64) -> Result<Attr, Failure> {
    let state = mount.states.known(branch).ok_or(Errno::ENOENT)?;
    let look = state.temporaries.numbered(number).ok_or(Errno::ENOENT)?.look();
    let base = base.sized(look.length).dated(look.modified);
    Ok(Attr { mode: look.mode, uid: look.uid, gid: look.gid, ..base })
}

/// Returns the attributes of a record that is being written and not committed yet.
pub(super) fn unborn(mount: &MountContext, ino: u64, branch: BranchId, size: u64) -> Result<Attr, Failure> {
    let info = mount.memory.info(branch)?;
    Ok(Attr::plain(ino, false, mount.memory.now(), (info.uid, mount.user(info.uid).gid)).sized(size))
}

/// The mount belongs to whom `main` belongs to: to the user who made the store.
fn mount_attr(mount: &MountContext, ino: u64) -> Result<Attr, Failure> {
    let main = mount.memory.resolve("main")?;
    let info = mount.memory.info(main)?;
    let modified =
        mount.memory.roots().iter().filter_map(|(_, id)| mount.memory.info(*id).ok()).map(|root| root.created).max();
    let modified = modified.unwrap_or(info.created);
    let base = Attr::plain(ino, true, modified, (info.uid, mount.user(info.uid).gid));
    Ok(Attr { mode: 0o755, lifetime: STEADY, ..base })
}

fn changed(mount: &MountContext, view: &View, info: &BranchInfo) -> Result<Time, Failure> {
    match view {
        View::Branch(_) => Ok(info.changed),
        View::Checkpoint(branch, label) => {
            Ok(mount.memory.checkpoint_time(*branch, label).map_err(|_| Errno::ESTALE)?)
        }
    }
}

/// Returns the length that stat(2) shows: 0 as in /proc for what is different for each reader or takes work.
fn fixed_size(mount: &MountContext, view: &View, info: &BranchInfo, fixed: ControlNode) -> Result<u64, Failure> {
    match fixed {
        ControlNode::Document(Document::Status) => Ok(info.status_bytes()),
        ControlNode::Document(Document::Diff | Document::Conflicts) => Ok(0),
        ControlNode::Document(document @ Document::Readme) => Ok(mount.memory.document(view, document)?.len() as u64),
        ControlNode::History(file) => {
            let memory = &mount.memory;
            Ok(memory.history_length(view.branch(), file, memory.history_end(view)?)?)
        }
        ControlNode::Query | ControlNode::Ingest | ControlNode::Ctl | ControlNode::Errors => Ok(0),
        ControlNode::Vectors
        | ControlNode::Branches
        | ControlNode::Checkpoints
        | ControlNode::Search
        | ControlNode::Exports
        | ControlNode::Config => Ok(0),
    }
}
