//! Notices to the kernel of what it must not remember.

use std::sync::Arc;

use fuser::{INodeNo, Notifier};

use crate::fs::{Filesystem, Kernel};

/// Lets `fs` send notices to the kernel from now on. To be called when the mount answers; at its
/// end `fs.set_kernel(None)` lets go.
pub fn connect(fs: &Filesystem, notifier: Notifier) {
    fs.set_kernel(Some(Arc::new(KernelNotices(notifier))));
}

struct KernelNotices(Notifier);

impl KernelNotices {
    /// Makes the kernel forget a node's attributes, and its pages from `offset` on.
    fn forget(&self, ino: u64, offset: i64) {
        if let Err(error) = self.0.inval_inode(INodeNo(ino), offset, 0) {
            log::debug!("the kernel did not take a notice: {error}");
        }
    }
}

impl Kernel for KernelNotices {
    fn forget_attributes(&self, ino: u64) {
        // From a negative offset no page is looked at, so nothing is waited for.
        self.forget(ino, -1);
    }

    fn forget_content(&self, ino: u64) {
        self.forget(ino, 0);
    }
}
