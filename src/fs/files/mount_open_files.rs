//! Tells the store which files are open, since a file that loses its last name lives on for its handles, and what is taken in
//! place of others must be opened by nobody meanwhile.

use std::any::Any;
use std::sync::{Arc, Weak};

use super::FileTreeId;
use super::open_inodes::BlockedOpens;
use crate::fs::mount_context::MountContext;
use crate::memory::{BranchId, OpenFiles, OpensBlocked, WritersBlocked};

/// The mount that the store asks. It is held weakly: the store outlives a mount, and must not keep it alive.
pub(in crate::fs) struct MountOpenFiles(pub Weak<MountContext>);

/// Lets files be opened again when it is dropped.
struct BlockedOpensGuard {
    mount: Arc<MountContext>,
    files: FileTreeId,
    blocked: BlockedOpens,
}

impl Drop for BlockedOpensGuard {
    fn drop(&mut self) {
        self.mount.open_inodes.unblock(&self.files, self.blocked);
    }
}

impl MountOpenFiles {
    fn block(&self, branch: BranchId, blocked: BlockedOpens) -> (Vec<u64>, Box<dyn Any>) {
        let Some(mount) = self.0.upgrade() else { return (Vec::new(), Box::new(())) };
        let files = FileTreeId::branch(branch);
        let open = mount.open_inodes.block(&files, blocked);
        (open, Box::new(BlockedOpensGuard { mount, files, blocked }))
    }
}

impl OpenFiles for MountOpenFiles {
    fn open_inodes(&self, branch: BranchId) -> Vec<u64> {
        self.0
            .upgrade()
            .map(|mount| mount.open_inodes.inodes_with_handles(&FileTreeId::branch(branch)))
            .unwrap_or_default()
    }

    fn block_writers(&self, branch: BranchId) -> (Vec<u64>, WritersBlocked) {
        self.block(branch, BlockedOpens::Writers)
    }

    fn block_opens(&self, branch: BranchId) -> (Vec<u64>, OpensBlocked) {
        self.block(branch, BlockedOpens::All)
    }
}
