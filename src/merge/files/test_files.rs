//! A tree to change by paths, for tests.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use crate::object::Time;
use crate::workspace::{Attrs, Kind, Make, Name, NoPacks, Op, ROOT, RenameHow, Tree, TreeError, XattrHow};

/// A tree that is changed by paths, each time a second later.
#[derive(Clone)]
pub(super) struct Files {
    pub tree: Tree,
    time: i64,
}

impl Files {
    pub(super) fn new() -> Files {
        Files { tree: Tree::default(), time: 0 }
    }

    /// A fork whose changes are later by so much than those of another.
    pub(super) fn later(&self, by: i64) -> Files {
        Files { tree: self.tree.clone(), time: self.time + by }
    }

    pub(super) fn apply(&mut self, op: Op) -> Result<u64, TreeError> {
        self.time += 1;
        self.tree.apply(&op, Time(self.time), &NoPacks).map(|outcome| outcome.inode)
    }

    pub(super) fn place(&self, path: &str) -> Result<(u64, Name), TreeError> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.tree.resolve(folder.as_bytes())?, Name::new(name.as_bytes())?))
    }

    pub(super) fn make(&mut self, path: &str, make: Make, mode: u32) -> Result<u64, TreeError> {
        let (parent, name) = self.place(path)?;
        self.apply(Op::Create { parent, name, make, mode, uid: 1, gid: 1 })
    }

    pub(super) fn mkdir(&mut self, path: &str) -> &mut Files {
        self.make(path, Make::Directory, 0o755).unwrap();
        self
    }

    pub(super) fn write(&mut self, path: &str, text: &str) -> &mut Files {
        let there = self.tree.resolve(path.as_bytes());
        let inode = there.or_else(|_| self.make(path, Make::File, 0o644)).unwrap();
        self.apply(Op::SetAttr { inode, attrs: Attrs { size: Some(0), ..Attrs::default() } }).unwrap();
        self.apply(Op::Write { inode, offset: 0, bytes: text.as_bytes().into() }).unwrap();
        self
    }

    /// Writes as editors do: a new file, renamed over the old one.
    pub(super) fn save(&mut self, path: &str, text: &str) -> &mut Files {
        self.write("temporary", text);
        self.rename("temporary", path, RenameHow::Plain).unwrap();
        self
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, how: RenameHow) -> Result<u64, TreeError> {
        let ((parent, name), (new_parent, new_name)) = (self.place(from)?, self.place(to)?);
        self.apply(Op::Rename { parent, name, new_parent, new_name, how, keep: false })
    }

    pub(super) fn mv(&mut self, from: &str, to: &str) -> &mut Files {
        self.rename(from, to, RenameHow::Plain).unwrap();
        self
    }

    pub(super) fn rm(&mut self, path: &str) -> &mut Files {
        let (parent, name) = self.place(path).unwrap();
        self.apply(Op::Unlink { parent, name, keep: false }).unwrap();
        self
    }

    pub(super) fn rmdir(&mut self, path: &str) -> &mut Files {
        let (parent, name) = self.place(path).unwrap();
        self.apply(Op::Rmdir { parent, name, keep: false }).unwrap();
        self
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> &mut Files {
        let (parent, name) = self.place(to).unwrap();
        let inode = self.tree.resolve(from.as_bytes()).unwrap();
        self.apply(Op::Link { inode, parent, name }).unwrap();
        self
    }

    pub(super) fn chmod(&mut self, path: &str, mode: u32) -> &mut Files {
        let inode = self.tree.resolve(path.as_bytes()).unwrap();
        self.apply(Op::SetAttr { inode, attrs: Attrs { mode: Some(mode), ..Attrs::default() } }).unwrap();
        self
    }

    pub(super) fn tag(&mut self, path: &str, name: &str, value: &str) -> &mut Files {
        let inode = self.tree.resolve(path.as_bytes()).unwrap();
        let (name, value) = (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        self.apply(Op::SetXattr { inode, name, value, how: XattrHow::Any }).unwrap();
        self
    }
}

/// Every path with what is there: folders end in a slash, links point.
pub(super) fn listing(tree: &Tree) -> BTreeMap<String, String> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![(ROOT, String::new())]);
    while let Some((folder, path)) = folders.pop() {
        for (name, inode) in tree.entries(folder, None).unwrap() {
            let path = format!("{path}{}", String::from_utf8_lossy(name));
            let node = tree.node(inode).unwrap();
            match node.kind() {
                Kind::Directory => {
                    folders.push((inode, format!("{path}/")));
                    found.insert(format!("{path}/"), String::new());
                }
                Kind::Symlink => {
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
