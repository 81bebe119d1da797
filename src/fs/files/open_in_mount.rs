//! Tells the store which files are open, since a file that loses its last name lives on for its handles, and what is taken in
//! place of others must have no writer meanwhile.

use std::sync::{Arc, Weak};

use super::FilesOf;
use crate::fs::mount_context::MountContext;
use crate::memory::{BranchId, OpenFiles, WritersHeld};

/// The mount that the store asks. It is held weakly: the store outlives a mount, and must not keep it alive.
pub(in crate::fs) struct OpenInMount(pub Weak<MountContext>);

/// Lets files be opened for writing again when it is dropped.
struct HeldWriters {
    mount: Arc<MountContext>,
    files: FilesOf,
}

impl Drop for HeldWriters {
    fn drop(&mut self) {
        self.mount.opened.release_writers(&self.files);
    }
}

impl OpenFiles for OpenInMount {
    fn open(&self, branch: BranchId) -> Vec<u64> {
        self.0.upgrade().map(|mount| mount.opened.of(&FilesOf::branch(branch))).unwrap_or_default()
    }

    fn hold_writers(&self, branch: BranchId) -> (Vec<u64>, WritersHeld) {
        let Some(mount) = self.0.upgrade() else { return (Vec::new(), Box::new(())) };
        let files = FilesOf::branch(branch);
        let open = mount.opened.hold_writers(&files);
        (open, Box::new(HeldWriters { mount, files }))
    }
}
