//! What the kernel has to forget: it sees what goes through it, and nothing of a merge, a pull or a
//! rollback.
//!
//! Notices go out on the thread of notices, after the act, with no lock held, and before the act is
//! answered, so that who asked for it sees what it did. They are about what is inside `files/` only,
//! and the request that asks for an act holds nothing there.

use std::collections::HashSet;

use super::FilesOf;
use crate::fs::common::Common;
use crate::fs::news::Kernel;
use crate::memory::{BranchId, Difference, Tree};

impl Common {
    /// Has the kernel forget what differs between the files of a branch before and after something
    /// that it did not see.
    pub fn files_changed(&self, branch: BranchId, before: Tree, after: Tree) {
        let of = FilesOf::branch(branch);
        let numbers = self.file_numbers.clone();
        self.news.tell_now(Box::new(move |kernel| {
            if numbers.is_told(&of) {
                forget(kernel, |inode| numbers.number(&of, inode), &before, &after);
            }
        }));
    }

    /// Has the kernel forget the attributes of all open files of a branch that is gone, so that
    /// reading them asks, and is told that they are.
    pub fn files_gone(&self, branch: BranchId) {
        let of = FilesOf::branch(branch);
        let open: Vec<u64> =
            self.opened.of(&of).into_iter().filter_map(|inode| self.file_numbers.number(&of, inode)).collect();
        if !open.is_empty() {
            self.news.tell_now(Box::new(move |kernel| open.iter().for_each(|ino| kernel.forget_attributes(*ino))));
        }
    }
}

fn forget(kernel: &dyn Kernel, number: impl Fn(u64) -> Option<u64>, before: &Tree, after: &Tree) {
    let mut inodes = HashSet::new();
    for Difference { path, old, new } in before.differences(after) {
        match (old, new) {
            (Some((inode, old)), Some((other, new))) if inode == other => {
                if old.content_hash() != new.content_hash() {
                    number(inode).into_iter().for_each(|ino| kernel.forget_content(ino));
                }
                inodes.insert(inode);
            }
            (old, _) => {
                inodes.extend(old.map(|(inode, _)| inode));
                // The folder lists other names now.
                let above = above(&path);
                inodes.extend([before, after].into_iter().filter_map(|tree| tree.resolve(above).ok()));
            }
        }
    }
    inodes.into_iter().filter_map(number).for_each(|ino| kernel.forget_attributes(ino));
}

/// Returns the path of the folder that a path is in.
fn above(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(&[], |slash| &path[..slash])
}
