//! Who may read a file by its path: modes, owners and groups of the file and of all directories on the way.

use std::collections::HashMap;

use super::visible::{HiddenPaths, paths};
use crate::workspace::{FileNode, ROOT, Tree};

const READ: u32 = 0o4;
const SEARCH: u32 = 0o1;

/// On whose behalf files are searched: what permission bits are held against.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// The effective user; 0 may read everything.
    pub uid: u32,
    /// All groups: the effective one and the supplementary ones.
    pub groups: Vec<u32>,
    /// Whether `groups` is complete. If not, the bits for others give only those rights that the group's bits give, too.
    pub knows_all_groups: bool,
}

impl Credentials {
    /// Returns whether the permission bits of a file give the reader all of some rights, 4 to read and 2 to write.
    pub fn may_open(&self, tree: &Tree, node: &FileNode, rights: u32) -> bool {
        self.has_right(rights, (tree.owner(node), node.gid, node.mode))
    }

    /// Returns whether the reader may read a file of a tree by one of its paths. False where it has none.
    pub fn reaches(&self, tree: &Tree, inode: u64) -> bool {
        AccessCheck::new(tree, self).may_find(inode, &HiddenPaths { rules: "".into(), hides: None })
    }

    /// Returns whether permission bits give the reader a right in what somebody owns.
    fn has_right(&self, right: u32, (uid, gid, mode): (u32, u32, u32)) -> bool {
        let bits = if self.uid == uid {
            mode >> 6
        } else if self.groups.contains(&gid) {
            mode >> 3
        } else if self.knows_all_groups {
            mode
        } else {
            mode & mode >> 3
        };
        self.uid == 0 || bits & right == right
    }
}

/// Returns whether some reader may lack a right that a path through the node takes.
pub(super) fn is_restricted(node: &FileNode) -> bool {
    let right = if node.directory().is_some() { SEARCH } else { READ };
    node.mode & node.mode >> 3 & node.mode >> 6 & right == 0
}

/// What one reader may reach in one tree; many files share a directory, which is looked at once.
pub(super) struct AccessCheck<'a> {
    tree: &'a Tree,
    reader: &'a Credentials,
    /// Directories that were looked at: whether the reader may reach what is in them.
    directories: HashMap<u64, bool>,
}

impl<'a> AccessCheck<'a> {
    /// Begins with no directory looked at.
    pub fn new(tree: &'a Tree, reader: &'a Credentials) -> AccessCheck<'a> {
        AccessCheck { tree, reader, directories: HashMap::new() }
    }

    /// Returns whether the reader may read a file under one of its names that is not hidden.
    pub fn may_find(&mut self, inode: u64, hidden: &HiddenPaths) -> bool {
        let Ok(node) = self.tree.node(inode) else { return false };
        self.has_right(READ, node)
            && match hidden.hides {
                None => node.names().any(|(directory, _)| self.may_search(directory)),
                Some(_) => {
                    paths(self.tree, inode).any(|(directory, path)| self.may_search(directory) && !hidden.hides(&path))
                }
            }
    }

    /// Returns whether the reader may reach what is in a directory, by its path.
    pub fn may_search(&mut self, directory: u64) -> bool {
        let tree = self.tree;
        // Up to the first that is known, then down again, and not by recursion: nothing limits how deep directories lie.
        let (mut unknown, mut at) = (Vec::new(), directory);
        let mut may = loop {
            if let Some(known) = self.directories.get(&at) {
                break *known;
            }
            let Ok(node) = tree.node(at) else { break false };
            unknown.push((at, node));
            match node.names().next() {
                Some((above, _)) => at = above,
                None => break at == ROOT,
            }
        };
        while let Some((directory, node)) = unknown.pop() {
            may = may && self.has_right(SEARCH, node);
            self.directories.insert(directory, may);
        }
        may
    }

    fn has_right(&self, right: u32, node: &FileNode) -> bool {
        self.reader.may_open(self.tree, node, right)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::object::Time;
    use crate::workspace::{FileName, FileOp, NewInode, NoPacks};

    fn make_directory(tree: &mut Tree, parent: u64, name: &str, mode: u32) -> u64 {
        let (name, make) = (FileName::new(name.as_bytes()).unwrap(), NewInode::Directory);
        tree.apply(&FileOp::Create { parent, name, make, mode, uid: 1, gid: 1 }, Time(1), &NoPacks).unwrap().inode
    }

    #[test]
    fn a_directory_is_reached_through_all_above_it_however_many_they_are() {
        let (mut tree, mut inode) = (Tree::default(), ROOT);
        for _ in 0..3_000 {
            inode = make_directory(&mut tree, inode, "d", 0o755);
        }
        let closed = make_directory(&mut tree, inode, "closed", 0o700);
        let below = make_directory(&mut tree, closed, "below", 0o755);
        let look = move || {
            let reader = Credentials { uid: 2, groups: vec![2], knows_all_groups: true };
            let mut access = AccessCheck::new(&tree, &reader);
            // The deepest first, so that nothing above it is known.
            [below, closed, inode].map(|directory| access.may_search(directory))
        };
        // A quarter of the stack that threads of the server have, so that a recursion over directories overflows here first.
        let looked = std::thread::Builder::new().stack_size(512 << 10).spawn(look).unwrap().join().unwrap();
        assert_eq!(looked, [false, false, true]);
    }
}
