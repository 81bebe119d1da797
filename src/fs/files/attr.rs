//! What stat(2) shows of files.

use std::time::Duration;

use super::FileTreeId;
use crate::fs::attr::{Attr, NOT_CACHED};
use crate::fs::errno::Failure;
use crate::fs::mount_context::MountContext;
use crate::memory::{FILES_ROOT, FileNode, Time, Tree, View};

/// How long the kernel keeps names and attributes of files. It sees every change but those of
/// merges and the like, and is told of attributes that these change. That a name is not there it
/// may not keep at all: nobody could tell it that the name is there again.
pub(super) const ATTR_LIFETIME: Duration = Duration::from_secs(1);

/// Returns the attributes of a node. The root belongs to the branch's owner, as all fixed directories do. ESTALE if the
/// branch has gone.
pub(super) fn file_attr(
    mount: &MountContext,
    ino: u64,
    files: &FileTreeId,
    inode: u64,
    (tree, node): (&Tree, &FileNode),
) -> Result<Attr, Failure> {
    let (uid, gid) = match inode {
        FILES_ROOT => {
            let owner = mount.memory.info(files.view.branch())?.uid;
            (owner, mount.user(owner).gid)
        }
        _ => (tree.owner(node), node.gid),
    };
    // The root of a new branch has no times of its own.
    let time =
        |time: Time| if time == Time::default() && inode == FILES_ROOT { created_time(mount, files) } else { time };
    let attr = Attr {
        ino,
        kind: node.kind(),
        size: node.size(),
        blocks: node.blocks(),
        mode: node.mode,
        links: node.nlink(),
        uid,
        gid,
        device: node.rdev(),
        accessed: time(node.atime),
        modified: time(node.mtime),
        changed: time(node.ctime),
        lifetime: ATTR_LIFETIME,
    };
    Ok(if let View::Proposal(..) = files.view { attr.for_proposed_file() } else { attr })
}

/// Returns how long a name that leads to one of some files may be kept.
pub(super) fn name_lifetime(files: &FileTreeId) -> Duration {
    if let View::Proposal(..) = files.view { NOT_CACHED } else { ATTR_LIFETIME }
}

fn created_time(mount: &MountContext, files: &FileTreeId) -> Time {
    match files.view {
        View::Branch(branch) => mount.memory.info(branch).map(|info| info.created).unwrap_or_default(),
        View::Checkpoint(..) | View::At(..) | View::Proposal(..) => files.taken,
    }
}
