//! Attributes of files: what chmod(2), chown(2), truncate(2) and utimensat(2) ask for.

use super::FileOps;
use crate::fs::attr::AttrChanges;
use crate::fs::errno::Failure;
use crate::fs::mount_context::Caller;
use crate::fs::refusal::LayoutRefusal;
use crate::memory::{FileKind, FileNode};

const SETUID: u32 = libc::S_ISUID;
const SETGID: u32 = libc::S_ISGID;
/// A file with setgid that its group can't run has a lock's mark, not a right.
const GROUP_RUNS: u32 = libc::S_IXGRP;

impl FileOps<'_> {
    /// The root belongs to the branch's owner; cp -a and the like end by giving it what it has. Any other owner or
    /// group is refused by the shape of the tree.
    pub(super) fn check_owner(&self, (uid, gid): (Option<u32>, Option<u32>)) -> Result<(), Failure> {
        let owner = self.fs.mount.memory.info(self.files.view.branch())?.uid;
        let group = self.fs.mount.user(owner).gid;
        if uid.is_none_or(|uid| uid == owner) && gid.is_none_or(|gid| gid == group) {
            return Ok(());
        }
        Err(LayoutRefusal::FilesOwner.into())
    }
}

/// Returns the permission bits to set, if any. A new owner, and a new length by somebody else than
/// root, take setuid and setgid away; the kernel leaves that to us, and asks for nothing else in a
/// chown(2) that names neither owner nor group.
pub(super) fn mode_after(caller: Caller, changes: AttrChanges, node: &FileNode) -> Option<u32> {
    let owner_changes = changes.uid.or(changes.gid).is_some() || changes.is_empty();
    let length_changes = changes.size.is_some() && caller.uid != 0;
    let mode = changes.mode.map_or(node.mode, |mode| mode & 0o7777);
    // A directory's setgid passes the group on and gives nobody a right, so it stays.
    let strips = node.kind() != FileKind::Directory && (owner_changes || length_changes);
    let mode = if strips { clear_set_id_bits(mode) } else { mode };
    (changes.mode.is_some() || mode != node.mode).then_some(mode)
}

/// Returns permission bits without the rights of owner and group for whoever runs the file: without setuid, and
/// without setgid where the group may run it. Else setgid is no right, and stays.
pub(super) fn clear_set_id_bits(mode: u32) -> u32 {
    let mode = mode & !SETUID;
    if mode & GROUP_RUNS != 0 { mode & !SETGID } else { mode }
}

#[cfg(test)]
mod tests {
    use super::clear_set_id_bits;

    #[test]
    fn setgid_without_group_execution_is_no_right() {
        assert_eq!(clear_set_id_bits(0o6755), 0o755);
        assert_eq!(clear_set_id_bits(0o6745), 0o2745);
        assert_eq!(clear_set_id_bits(0o1644), 0o1644);
    }
}
