//! Who may read a file by its path: modes, owners and groups of the file and of all directories on the way.

use std::collections::HashMap;

use super::visible::{HiddenPaths, paths};
use crate::workspace::{FileNode, ROOT, Tree, TreeDifference};

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

    /// Returns whether the reader may read a file of a tree by one of its paths. False where it has none. The root
    /// belongs to `root_owner`, the owner of the branch.
    pub fn reaches(&self, tree: &Tree, root_owner: u32, inode: u64) -> bool {
        AccessCheck::new(tree, root_owner, self).may_find(inode, &HiddenPaths { rules: "".into(), hides: None })
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
    /// Who has the branch, and so the root: the tree does not say it.
    root_owner: u32,
    reader: &'a Credentials,
    /// Directories that were looked at: whether the reader may reach what is in them.
    directories: HashMap<u64, bool>,
}

impl<'a> AccessCheck<'a> {
    /// Begins with no directory looked at.
    pub fn new(tree: &'a Tree, root_owner: u32, reader: &'a Credentials) -> AccessCheck<'a> {
        AccessCheck { tree, root_owner, reader, directories: HashMap::new() }
    }

    /// Returns whether the reader may read a file under one of its names that is not hidden.
    pub fn may_find(&mut self, inode: u64, hidden: &HiddenPaths) -> bool {
        let Ok(node) = self.tree.node(inode) else { return false };
        self.reader.may_open(self.tree, node, READ)
            && match hidden.hides {
                None => node.names().any(|(directory, _)| self.may_search(directory)),
                Some(_) => {
                    paths(self.tree, inode).any(|(directory, path)| self.may_search(directory) && !hidden.hides(&path))
                }
            }
    }

    /// Returns whether the reader may reach the entries of a directory by path.
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
            may = may && self.has_right(directory, node, SEARCH);
            self.directories.insert(directory, may);
        }
        may
    }

    /// Returns whether the reader may list a directory and those above it, and so learn of what is in it. False where
    /// there is none.
    fn may_list(&mut self, path: &[u8]) -> bool {
        let tree = self.tree;
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let mut directories = [0, path.len()].into_iter().chain(slashes).map(|end| tree.resolve(&path[..end]));
        let has_right = |directory| tree.node(directory).is_ok_and(|node| self.has_right(directory, node, READ));
        directories.all(|directory| directory.is_ok_and(has_right))
            && tree.resolve(path).is_ok_and(|directory| self.may_search(directory))
    }

    /// Returns whether the reader has a right in a directory, whatever is above it.
    fn has_right(&self, directory: u64, node: &FileNode, right: u32) -> bool {
        if directory != ROOT {
            return self.reader.may_open(self.tree, node, right);
        }
        // A mount gives the root its owner's group, which is not known here: the reader may be in it or not.
        let bits = if self.reader.uid == self.root_owner { node.mode >> 6 } else { node.mode & node.mode >> 3 };
        self.reader.uid == 0 || bits & right == right
    }
}

/// Which paths of a comparison of two trees its reader could list: what is told of others says what a directory holds
/// that is closed to them.
pub struct ListedPaths<'a> {
    sides: [AccessCheck<'a>; 2],
    /// The directory that was looked at last on each side, and whether it can be listed: paths come in order, so that many
    /// in a row share it.
    last: [Option<(Box<[u8]>, bool)>; 2],
}

impl<'a> ListedPaths<'a> {
    /// Begins with nothing looked at in the older and the newer tree, each with the owner of its branch.
    pub fn new(trees: [(&'a Tree, u32); 2], reader: &'a Credentials) -> ListedPaths<'a> {
        let sides = trees.map(|(tree, root_owner)| AccessCheck::new(tree, root_owner, reader));
        ListedPaths { sides, last: [None, None] }
    }

    /// Returns whether the reader could list the path in each tree that has it. The root is no name in a directory.
    pub fn has(&mut self, difference: &TreeDifference) -> bool {
        let path = &difference.path;
        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or_default();
        let directory = &path[..end];
        let mut sides = self.sides.iter_mut().zip(&mut self.last).zip([&difference.old, &difference.new]);
        path.is_empty()
            || sides.all(|((tree, last), there)| {
                if there.is_none() {
                    return true;
                }
                let known = last.as_ref().filter(|(known, _)| **known == *directory).map(|(_, may)| *may);
                known.unwrap_or_else(|| {
                    let may = tree.may_list(directory);
                    *last = Some((directory.into(), may));
                    may
                })
            })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::object::Time;
    use crate::workspace::{FileName, FileOp, NewInode, NoPacks};

    fn create_directory(tree: &mut Tree, parent: u64, name: &str, mode: u32) -> u64 {
        let (name, make) = (FileName::new(name.as_bytes()).unwrap(), NewInode::Directory);
        tree.apply(&FileOp::Create { parent, name, make, mode, uid: 1, gid: 1 }, Time(1), &NoPacks).unwrap().inode
    }

    #[test]
    fn a_directory_is_reached_through_all_above_it_however_many_they_are() {
        let (mut tree, mut inode) = (Tree::default(), ROOT);
        for _ in 0..3_000 {
            inode = create_directory(&mut tree, inode, "d", 0o755);
        }
        let closed = create_directory(&mut tree, inode, "closed", 0o700);
        let below = create_directory(&mut tree, closed, "below", 0o755);
        let look = move || {
            let reader = Credentials { uid: 2, groups: vec![2], knows_all_groups: true };
            let mut access = AccessCheck::new(&tree, 1, &reader);
            // The deepest first, so that nothing above it is known.
            [below, closed, inode].map(|directory| access.may_search(directory))
        };
        // A quarter of the stack that threads of the server have, so that a recursion over directories overflows here first.
        let looked = std::thread::Builder::new().stack_size(512 << 10).spawn(look).unwrap().join().unwrap();
        assert_eq!(looked, [false, false, true]);
    }

    #[test]
    fn the_root_is_the_branchs_owners_whatever_the_tree_says() {
        let reader = |uid: u32| Credentials { uid, groups: vec![0], knows_all_groups: true };
        // Owner, somebody who is in the group that the tree names, root.
        for (mode, expected) in
            [(0o700, [true, false, true]), (0o077, [false, true, true]), (0o701, [true, false, true])]
        {
            let tree = Tree::new(mode, 0, 0, Time(0));
            let found = [7, 8, 0].map(|uid| AccessCheck::new(&tree, 7, &reader(uid)).may_search(ROOT));
            assert_eq!(found, expected, "{mode:o}");
        }
    }
}
