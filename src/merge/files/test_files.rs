//! A tree to change by paths, for tests.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use crate::object::Time;
use crate::workspace::{
    Attrs, FileKind, FileName, FileOp, NewInode, NoPacks, ROOT, RenameMode, Tree, TreeError, XattrMode,
};

/// A tree that is changed by paths, each time a second later.
#[derive(Clone)]
pub(super) struct TestFiles {
    pub tree: Tree,
    time: i64,
}

impl TestFiles {
    pub(super) fn new() -> TestFiles {
        TestFiles { tree: Tree::default(), time: 0 }
    }

    /// Takes a tree that a merge made, at no time later than any change of it.
    pub(super) fn from_tree(tree: &Tree) -> TestFiles {
        TestFiles { tree: tree.clone(), time: 2_000_000 }
    }

    /// A fork whose changes are later by so much than those of another.
    pub(super) fn later(&self, by: i64) -> TestFiles {
        TestFiles { tree: self.tree.clone(), time: self.time + by }
    }

    pub(super) fn apply(&mut self, op: FileOp) -> Result<u64, TreeError> {
        self.time += 1;
        self.tree.apply(&op, Time(self.time), &NoPacks).map(|outcome| outcome.inode)
    }

    pub(super) fn place(&self, path: &str) -> Result<(u64, FileName), TreeError> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.tree.resolve(directory.as_bytes())?, FileName::new(name.as_bytes())?))
    }

    pub(super) fn make(&mut self, path: &str, make: NewInode, mode: u32) -> Result<u64, TreeError> {
        let (parent, name) = self.place(path)?;
        self.apply(FileOp::Create { parent, name, make, mode, uid: 1, gid: 1 })
    }

    pub(super) fn mkdir(&mut self, path: &str) -> &mut TestFiles {
        self.make(path, NewInode::Directory, 0o755).unwrap();
        self
    }

    pub(super) fn write(&mut self, path: &str, text: &str) -> &mut TestFiles {
        let there = self.tree.resolve(path.as_bytes());
        let inode = there.or_else(|_| self.make(path, NewInode::File, 0o644)).unwrap();
        self.apply(FileOp::SetAttr { inode, attrs: Attrs { size: Some(0), ..Attrs::default() } }).unwrap();
        self.apply(FileOp::Write { inode, offset: 0, bytes: text.as_bytes().into() }).unwrap();
        self
    }

    /// Writes as editors do: a new file, renamed over the old one.
    pub(super) fn save(&mut self, path: &str, text: &str) -> &mut TestFiles {
        self.write("temporary", text);
        self.rename("temporary", path, RenameMode::Plain).unwrap();
        self
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, mode: RenameMode) -> Result<u64, TreeError> {
        let ((parent, name), (new_parent, new_name)) = (self.place(from)?, self.place(to)?);
        self.apply(FileOp::Rename { parent, name, new_parent, new_name, mode, keep: false })
    }

    pub(super) fn mv(&mut self, from: &str, to: &str) -> &mut TestFiles {
        self.rename(from, to, RenameMode::Plain).unwrap();
        self
    }

    pub(super) fn rm(&mut self, path: &str) -> &mut TestFiles {
        let (parent, name) = self.place(path).unwrap();
        self.apply(FileOp::Unlink { parent, name, keep: false }).unwrap();
        self
    }

    pub(super) fn rmdir(&mut self, path: &str) -> &mut TestFiles {
        let (parent, name) = self.place(path).unwrap();
        self.apply(FileOp::Rmdir { parent, name, keep: false }).unwrap();
        self
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> &mut TestFiles {
        let (parent, name) = self.place(to).unwrap();
        let inode = self.tree.resolve(from.as_bytes()).unwrap();
        self.apply(FileOp::Link { inode, parent, name }).unwrap();
        self
    }

    pub(super) fn chmod(&mut self, path: &str, mode: u32) -> &mut TestFiles {
        let inode = self.tree.resolve(path.as_bytes()).unwrap();
        self.apply(FileOp::SetAttr { inode, attrs: Attrs { mode: Some(mode), ..Attrs::default() } }).unwrap();
        self
    }

    pub(super) fn tag(&mut self, path: &str, name: &str, value: &str) -> &mut TestFiles {
        let inode = self.tree.resolve(path.as_bytes()).unwrap();
        let (name, value) = (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        self.apply(FileOp::SetXattr { inode, name, value, mode: XattrMode::Any }).unwrap();
        self
    }
}

/// Every path with what is there: directories end in a slash, links point.
pub(super) fn listing(tree: &Tree) -> BTreeMap<String, String> {
    let (mut found, mut directories) = (BTreeMap::new(), vec![(ROOT, String::new())]);
    while let Some((directory, path)) = directories.pop() {
        for (name, inode) in tree.entries(directory, None).unwrap() {
            let path = format!("{path}{}", String::from_utf8_lossy(name));
            let node = tree.node(inode).unwrap();
            match node.kind() {
                FileKind::Directory => {
                    directories.push((inode, format!("{path}/")));
                    found.insert(format!("{path}/"), String::new());
                }
                FileKind::Symlink => {
                    found.insert(path, format!("-> {}", String::from_utf8_lossy(node.target().unwrap())));
                }
                _ => {
                    let bytes = node.read(0, 1 << 20, &NoPacks).unwrap();
                    found.insert(path, String::from_utf8_lossy(&bytes).into_owned());
                }
            }
        }
    }
    found
}
