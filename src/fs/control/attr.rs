//! What stat(2) shows of branches and what is generated.

use std::time::Duration;

use super::signals;
use crate::fs::attr::{Attr, NOT_CACHED, STABLE_NAME_LIFETIME};
use crate::fs::config;
use crate::fs::errno::{Errno, Failure};
use crate::fs::mount_context::MountContext;
use crate::fs::node::{FsNode, SharedNode};
use crate::fs::shared_log::cursor_text;
use crate::memory::{BranchId, BranchInfo, SignalId, Time, View};

/// Returns how long a name leading to `node` may be kept.
pub(super) fn name_lifetime(mount: &MountContext, node: &FsNode) -> Duration {
    match node {
        // Permission to see a proposal is checked at each look-up, so the kernel must not cache the name.
        _ if matches!(node.view(), Some(View::Proposal(..))) => NOT_CACHED,
        // While it is open, the next look-up may get another inode number.
        _ if node.needs_own_inode() => NOT_CACHED,
        FsNode::Mount
        | FsNode::Directory(..)
        | FsNode::Control(..)
        | FsNode::Export(..)
        | FsNode::Setting(..)
        | FsNode::Shared(..) => STABLE_NAME_LIFETIME,
        // Root branches go by rmdir(2) alone, and the kernel sees that.
        FsNode::Branch(branch) if mount.memory.info(*branch).is_ok_and(|info| info.parent.is_none()) => {
            STABLE_NAME_LIFETIME
        }
        FsNode::Branch(_)
        | FsNode::Checkpoint { .. }
        | FsNode::At { .. }
        | FsNode::Proposal { .. }
        | FsNode::Record(..)
        | FsNode::File(..)
        | FsNode::Temporary(..)
        | FsNode::Query(..)
        | FsNode::Signal(..) => NOT_CACHED,
    }
}

/// Returns the attributes of a node.
///
/// ENOENT if it is not there any more, ESTALE if its branch was merged or discarded or its checkpoint deleted.
pub(super) fn attr(mount: &MountContext, ino: u64, node: &FsNode) -> Result<Attr, Failure> {
    let Some(view) = node.view() else {
        return mount_attr(mount, ino);
    };
    let info = mount.memory.info(view.branch())?;
    let base = base_attr(mount, ino, node, &info).with_mtime(changed_time(mount, &view, &info)?);
    let attr = attr_by_node(mount, (node, &view), base, &info)?;
    Ok(if let View::Proposal(..) = view { attr.for_proposal() } else { attr })
}

/// Returns the attributes of a file with its rights as [`attr`] tells them, and without its length and the time of its own
/// last change, which may take work. The errors are the same.
///
/// The rights have to be true although the kernel is told not to keep them: it takes them into its inode, and a call of
/// another process whose permissions it checks at that moment is decided by them.
pub(super) fn listed_attr(mount: &MountContext, ino: u64, node: &FsNode) -> Result<Attr, Failure> {
    let Some(view) = node.view() else {
        return mount_attr(mount, ino);
    };
    let base = base_attr(mount, ino, node, &mount.memory.info(view.branch())?);
    let attr = match node {
        FsNode::Temporary(branch, number) => temporary_attr(mount, base, *branch, *number)?,
        FsNode::Signal(_, key, created) => signals::attr(mount, base, &view, SignalId { key, created: *created })?,
        _ => base,
    };
    Ok(if let View::Proposal(..) = view { attr.for_proposal() } else { attr })
}

/// Returns the attributes that follow from the branch and the kind of a node.
fn base_attr(mount: &MountContext, ino: u64, node: &FsNode, info: &BranchInfo) -> Attr {
    let base = Attr::generated(ino, node.is_directory(), info.changed, (info.uid, mount.user(info.uid).gid));
    let mode = match node {
        FsNode::Directory(_, directory) => directory.mode(),
        FsNode::Control(_, file) => file.mode(),
        FsNode::Shared(_, shared) => shared.mode(),
        FsNode::Query(..) | FsNode::Export(..) => 0o444,
        _ => base.mode,
    };
    Attr { mode, ..base }
}

fn attr_by_node(
    mount: &MountContext,
    (node, view): (&FsNode, &View),
    base: Attr,
    info: &BranchInfo,
) -> Result<Attr, Failure> {
    let (ino, modified) = (base.ino, base.modified);
    match node {
        FsNode::Mount => mount_attr(mount, ino),
        // Nodes below `files/` implement this operation in `files/attr.rs`.
        FsNode::File(..) => Err(Errno::ESTALE.into()),
        FsNode::Branch(_) => {
            let lifetime = if info.parent.is_none() { STABLE_NAME_LIFETIME } else { NOT_CACHED };
            Ok(Attr { mode: info.mode, lifetime, ..base })
        }
        FsNode::Checkpoint { taken, .. } if *taken != modified => Err(Errno::ESTALE.into()),
        FsNode::Checkpoint { .. } => Ok(Attr { mode: info.mode, ..base }),
        FsNode::At { .. } => Ok(Attr { mode: readers_mode(info.mode), lifetime: NOT_CACHED, ..base }),
        FsNode::Proposal { .. } => Ok(base),
        FsNode::Directory(..) => Ok(Attr { lifetime: STABLE_NAME_LIFETIME, ..base }),
        FsNode::Control(_, file) => Ok(base.with_size(file.length(mount, view, info)?)),
        FsNode::Temporary(branch, number) => temporary_attr(mount, base, *branch, *number),
        FsNode::Record(_, id) => {
            let stat = mount.memory.snapshot(view)?.stat(id)?.ok_or(Errno::ENOENT)?;
            Ok(base.with_size(stat.length).with_mtime(stat.modified))
        }
        // The query runs at open, so its length is not known before.
        FsNode::Query(..) => Ok(base),
        FsNode::Export(_, export) => Ok(base.with_size(mount.memory.snapshot(view)?.export_length(*export))),
        FsNode::Shared(_, shared) => shared_attr(mount, view, base, shared),
        FsNode::Signal(_, key, created) => signals::attr(mount, base, view, SignalId { key, created: *created }),
        FsNode::Setting(_, setting) => {
            let value = mount.memory.setting(view, *setting)?;
            Ok(base.with_size(config::with_line_end(&value).len() as u64))
        }
    }
}

fn shared_attr(mount: &MountContext, view: &View, base: Attr, node: &SharedNode) -> Result<Attr, Failure> {
    let memory = &mount.memory;
    let (size, changed) = match node {
        SharedNode::Entries => {
            let log = memory.shared_log(view.branch())?;
            (log.bytes(), log.changed)
        }
        SharedNode::ClosedEntries(name) => {
            let log = memory.closed_log(view.branch(), name)?;
            (log.bytes(), log.changed)
        }
        SharedNode::Events => {
            let events = memory.shared_events(view.branch())?;
            (events.end - events.start, memory.shared_log(view.branch())?.changed)
        }
        SharedNode::Signals => return signals::directory_attr(mount, view, base),
        SharedNode::Cursor => {
            (cursor_text(memory, view.branch())?.len() as u64, memory.shared_log(view.branch())?.changed)
        }
        _ => (0, memory.shared_log(view.branch())?.changed),
    };
    let lifetime = if node.is_directory() { STABLE_NAME_LIFETIME } else { NOT_CACHED };
    Ok(Attr { lifetime, ..base.with_size(size).with_mtime(changed) })
}

/// Returns the bits by which those enter who may read the branch.
fn readers_mode(mode: u32) -> u32 {
    let enters = mode & (mode >> 2) & 0o111;
    enters | enters << 2
}

fn temporary_attr(mount: &MountContext, base: Attr, branch: BranchId, number: u64) -> Result<Attr, Failure> {
    let state = mount.states.get(branch).ok_or(Errno::ENOENT)?;
    let stat = state.temporaries.get_by_number(number).ok_or(Errno::ENOENT)?.stat();
    let base = base.with_size(stat.length_bytes).with_mtime(stat.modified);
    Ok(Attr { mode: stat.mode, uid: stat.uid, gid: stat.gid, ..base })
}

/// Returns the attributes of a record that is being written and not committed yet. ESTALE if the branch has gone.
pub(super) fn uncommitted_record_attr(
    mount: &MountContext,
    ino: u64,
    branch: BranchId,
    size: u64,
) -> Result<Attr, Failure> {
    let info = mount.memory.info(branch)?;
    Ok(Attr::generated(ino, false, mount.memory.now(), (info.uid, mount.user(info.uid).gid)).with_size(size))
}

/// The mount belongs to whom `main` belongs to: to the user who made the store.
fn mount_attr(mount: &MountContext, ino: u64) -> Result<Attr, Failure> {
    let main = mount.memory.resolve("main")?;
    let info = mount.memory.info(main)?;
    let modified =
        mount.memory.roots().iter().filter_map(|(_, id)| mount.memory.info(*id).ok()).map(|root| root.created).max();
    let modified = modified.unwrap_or(info.created);
    let base = Attr::generated(ino, true, modified, (info.uid, mount.user(info.uid).gid));
    Ok(Attr { mode: 0o755, lifetime: STABLE_NAME_LIFETIME, ..base })
}

fn changed_time(mount: &MountContext, view: &View, info: &BranchInfo) -> Result<Time, Failure> {
    match view {
        View::Branch(_) => Ok(info.changed),
        View::Checkpoint(branch, label) => {
            Ok(mount.memory.checkpoint_time(*branch, label).map_err(|_| Errno::ESTALE)?)
        }
        View::At(branch, entry) => Ok(mount.memory.state_time(*branch, *entry).map_err(|_| Errno::ESTALE)?),
        View::Proposal(branch, entry) => Ok(mount.memory.proposal_time(*branch, *entry).map_err(|_| Errno::ESTALE)?),
    }
}
