//! What the kernel has to forget: it sees what goes through it, and nothing of a merge, a pull or a
//! rollback.
//!
//! Notices go out on threads of their own, after the change, with no lock held, and before it is
//! answered, so that who asked for it sees what it did. They wait for what is inside `files/` only,
//! and the request that asks for a change holds nothing there.

use super::open_inodes::InodeKey;
use super::{Area, FileTreeId};
use crate::fs::kernel_notifier::Kernel;
use crate::fs::mount_context::{Caller, MountContext};
use crate::memory::{BranchId, ChangedNode, FileNode, FileOp, Tree, View};

impl MountContext {
    /// Has the kernel forget what differs between the files of a branch before and after something
    /// that it did not see, and notes which open files have lost their last name by it.
    pub fn invalidate_changed_files(&self, branch: BranchId, before: Tree, after: Tree) {
        let tree_id = FileTreeId::branch(branch);
        // First, since a handle that closes from now on has to find that its inode has no name.
        after.orphans().for_each(|inode| self.note_orphan(&tree_id, inode));
        let inode_map = self.inode_map.clone();
        self.notifier.notify_and_wait(
            branch,
            Box::new(move |kernel| {
                if inode_map.may_be_known_to_kernel(&tree_id) {
                    forget_changed(kernel, |inode| inode_map.ino(&tree_id, inode), &before, &after);
                    forget_owners(kernel, |inode| inode_map.ino(&tree_id, inode), &before, &after);
                }
            }),
        );
    }

    /// Has the kernel forget the attributes of all files in earlier states of a branch: those belong to whoever owns
    /// the branch, which has just changed.
    pub fn invalidate_earlier_owners(&self, branch: BranchId) {
        let inode_map = self.inode_map.clone();
        let is_earlier = |id: &FileTreeId| id.area == Area::Files && id.view != View::Branch(branch);
        let known = inode_map.known_trees(branch).into_iter().filter(is_earlier);
        let trees: Vec<(FileTreeId, Tree)> =
            known.filter_map(|id| self.memory.files(&id.view).ok().map(|tree| (id, tree))).collect();
        self.notifier.notify_and_wait(
            branch,
            Box::new(move |kernel| {
                for (id, tree) in &trees {
                    tree.inodes()
                        .filter_map(|inode| inode_map.ino(id, inode))
                        .for_each(|ino| kernel.forget_attributes(ino));
                }
            }),
        );
    }

    /// An inode that was open has no name any longer; if it was closed meanwhile, it goes.
    fn note_orphan(&self, files: &FileTreeId, inode: u64) {
        if !self.open_inodes.mark_orphaned(&(files.clone(), inode)) {
            return;
        }
        let owner = self.memory.info(files.view.branch()).map(|info| Caller { uid: info.uid, gid: 0, pid: 0 });
        if let Ok(owner) = owner {
            self.drop_orphan(owner, files, inode);
        }
    }

    /// Lets go of an inode without a name that is not open any more.
    pub fn drop_orphan(&self, caller: Caller, files: &FileTreeId, inode: u64) {
        let dropped = self.edit(caller, files, FileOp::Drop { inode });
        match (dropped, files.area) {
            (Err(failure), Area::Files) if failure.is_would_wait() => {
                self.memory.drop_file_soon(self.actor(caller), files.view.branch(), inode);
            }
            // Either its tree is gone and the file with it, or the next opening of the store removes it.
            (Err(failure), _) => log::debug!("a file without a name stays for now: {:?}", failure.errno()),
            (Ok(_), _) => {}
        }
    }

    /// Has the kernel forget all open files of a tree that is gone, so that reading them asks, and is
    /// told that they are.
    pub fn invalidate_open_files(&self, files: &FileTreeId) {
        let open: Vec<u64> = self
            .open_inodes
            .inodes_with_handles(files)
            .into_iter()
            .filter_map(|inode| self.inode_map.ino(files, inode))
            .collect();
        if !open.is_empty() {
            let branch = files.view.branch();
            self.notifier.notify_and_wait(
                branch,
                Box::new(move |kernel| open.iter().for_each(|ino| kernel.forget_content(*ino))),
            );
        }
    }

    /// Has the kernel forget the pages of a file, soon: it shows what a mapping stored also when the
    /// write of it was refused.
    pub fn invalidate_pages(&self, (tree_id, inode): &InodeKey) {
        if let Some(ino) = self.inode_map.ino(tree_id, *inode) {
            self.notifier.notify(tree_id.view.branch(), Box::new(move |kernel| kernel.forget_content(ino)));
        }
    }
}

/// Has the kernel forget the attributes of files that belong to somebody else now.
fn forget_owners(kernel: &dyn Kernel, number: impl Fn(u64) -> Option<u64>, before: &Tree, after: &Tree) {
    if before.transfers() != after.transfers() {
        after.inodes().filter_map(number).for_each(|ino| kernel.forget_attributes(ino));
    }
}

/// A file keeps its number wherever it is moved, so inodes are compared and not paths.
fn forget_changed(kernel: &dyn Kernel, number: impl Fn(u64) -> Option<u64>, before: &Tree, after: &Tree) {
    let mut names_changed = false;
    for ChangedNode { inode, old, new } in before.changed_nodes(after) {
        names_changed |= [old, new].into_iter().flatten().any(|node| node.directory().is_some());
        // The kernel can't know a number that was never given.
        let Some(ino) = number(inode).filter(|_| inode < before.next_inode()) else { continue };
        match (old, new) {
            (Some(old), Some(new)) if has_same_content(old, new) => kernel.forget_attributes(ino),
            (Some(_), None) => kernel.forget_attributes(ino),
            // One that comes back may be remembered from before it went.
            (_, Some(_)) => kernel.forget_content(ino),
            (None, None) => {}
        }
    }
    if names_changed {
        // A name may lead to another file than before, and the one before may live on under another name.
        kernel.forget_names();
    }
}

/// Returns whether the pages that the kernel may hold of a file or a link are still right.
fn has_same_content(old: &FileNode, new: &FileNode) -> bool {
    old.content_hash() == new.content_hash() && old.target() == new.target()
}
