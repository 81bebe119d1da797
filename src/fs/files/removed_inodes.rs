//! What is gone from a tree while the kernel still holds it: somebody's working directory, or a
//! descriptor that was opened without a handle (`O_PATH`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memory::FileNode;
use crate::sync::Mutex;

/// What stat(2) showed last of inodes, by the kernel's numbers, each until the kernel forgets it. Their bytes are not kept: nobody
/// can read them any more, and they count in nobody's share of memory.
#[derive(Default)]
pub(in crate::fs) struct RemovedInodes {
    nodes: Mutex<HashMap<u64, Arc<FileNode>>>,
    /// As many as there are, so that who forgets other numbers need not ask.
    count: AtomicUsize,
}

impl RemovedInodes {
    /// Keeps the last state of an inode that was removed, as `FileNode::stat_only` gives it.
    pub fn insert(&self, ino: u64, node: Arc<FileNode>) {
        let mut nodes = self.nodes.lock();
        nodes.insert(ino, node);
        self.count.store(nodes.len(), Ordering::Release);
    }

    /// Returns the last state of a removed inode; `None` once the kernel has forgotten it.
    pub fn find(&self, ino: u64) -> Option<Arc<FileNode>> {
        self.nodes.lock().get(&ino).cloned()
    }

    /// Lets go of an inode that the kernel does not hold any more.
    pub fn forget(&self, ino: u64) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut nodes = self.nodes.lock();
        nodes.remove(&ino);
        self.count.store(nodes.len(), Ordering::Release);
    }
}
