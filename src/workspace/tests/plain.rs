//! The plainest tree there is, to hold the real one against: maps and vectors, nothing shared.

use std::collections::BTreeMap;

use super::super::{FileKind, FileOp, NewInode, RangeOp, RenameMode, Tree, XattrMode};
use crate::object::Time;

#[derive(Clone, PartialEq, Eq)]
pub struct PlainNode {
    pub kind: FileKind,
    pub mode: u32,
    pub owner: (u32, u32),
    /// atime, mtime, ctime, crtime.
    pub times: [i64; 4],
    pub nlink: u32,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Content of a file, target of a link.
    pub bytes: Vec<u8>,
    pub entries: BTreeMap<Vec<u8>, u64>,
}

#[derive(Clone)]
pub struct Plain {
    pub nodes: BTreeMap<u64, PlainNode>,
    next: u64,
}

/// What the head covers of one path.
pub type Visible = (FileKind, u32, Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>);

type Done = Result<(), &'static str>;

impl Plain {
    pub fn new() -> Plain {
        Plain { nodes: BTreeMap::from([(1, PlainNode::new(FileKind::Directory, 0o755, (0, 0), 0))]), next: 2 }
    }

    pub fn apply(&mut self, op: &FileOp, time: i64) -> Done {
        match op {
            FileOp::Create { parent, name, make, mode, uid, gid } => {
                self.create(*parent, name, make, *mode, (*uid, *gid), time)
            }
            FileOp::Link { inode, parent, name } => self.link(*inode, *parent, name, time),
            FileOp::Unlink { parent, name, keep } => {
                let inode = self.child(*parent, name)?.ok_or("NotFound")?;
                if self.nodes[&inode].kind == FileKind::Directory {
                    return Err("IsDirectory");
                }
                self.remove(*parent, name, *keep, time)
            }
            FileOp::Rmdir { parent, name, keep } => {
                let inode = self.child(*parent, name)?.ok_or("NotFound")?;
                if self.nodes[&inode].kind != FileKind::Directory {
                    return Err("NotDirectory");
                }
                if !self.nodes[&inode].entries.is_empty() {
                    return Err("NotEmpty");
                }
                self.remove(*parent, name, *keep, time)
            }
            FileOp::Rename { parent, name, new_parent, new_name, mode, keep } => {
                self.rename((*parent, name), (*new_parent, new_name), *mode, *keep, time)
            }
            FileOp::Drop { inode } => {
                if self.nodes.get(inode).is_some_and(|node| node.nlink == 0) {
                    self.nodes.remove(inode);
                }
                Ok(())
            }
            _ => self.change(op, time),
        }
    }

    fn child(&self, parent: u64, name: &[u8]) -> Result<Option<u64>, &'static str> {
        let node = self.nodes.get(&parent).ok_or("Stale")?;
        if node.kind != FileKind::Directory {
            return Err("NotDirectory");
        }
        if node.nlink == 0 {
            return Err("NotFound");
        }
        Ok(node.entries.get(name).copied())
    }

    fn touch(&mut self, inode: u64, time: i64) -> &mut PlainNode {
        let node = self.nodes.get_mut(&inode).unwrap();
        (node.times[1], node.times[2]) = (time, time);
        node
    }

    fn create(
        &mut self,
        parent: u64,
        name: &[u8],
        make: &NewInode,
        mut mode: u32,
        mut owner: (u32, u32),
        time: i64,
    ) -> Done {
        if self.child(parent, name)?.is_some() {
            return Err("Exists");
        }
        let kind = match make {
            NewInode::File => FileKind::File,
            NewInode::Directory => FileKind::Directory,
            NewInode::Symlink(_) => FileKind::Symlink,
            NewInode::Fifo => FileKind::Fifo,
            NewInode::Socket => FileKind::Socket,
            NewInode::CharDevice(_) => FileKind::CharDevice,
            NewInode::BlockDevice(_) => FileKind::BlockDevice,
        };
        let above = self.touch(parent, time);
        if above.mode & 0o2000 != 0 {
            owner.1 = above.owner.1;
            mode |= if kind == FileKind::Directory { 0o2000 } else { 0 };
        }
        let mut node = PlainNode::new(kind, mode, owner, time);
        if let NewInode::Symlink(target) = make {
            node.bytes.clone_from(target);
        }
        self.nodes.insert(self.next, node);
        self.nodes.get_mut(&parent).unwrap().entries.insert(name.to_vec(), self.next);
        self.next += 1;
        self.count();
        Ok(())
    }

    fn link(&mut self, inode: u64, parent: u64, name: &[u8], time: i64) -> Done {
        let node = self.nodes.get(&inode).ok_or("Stale")?;
        if node.kind == FileKind::Directory {
            return Err("NotPermitted");
        }
        if node.nlink == 0 {
            return Err("NotFound");
        }
        if self.child(parent, name)?.is_some() {
            return Err("Exists");
        }
        self.touch(parent, time).entries.insert(name.to_vec(), inode);
        self.nodes.get_mut(&inode).unwrap().times[2] = time;
        self.count();
        Ok(())
    }

    fn remove(&mut self, parent: u64, name: &[u8], keep: bool, time: i64) -> Done {
        let inode = self.touch(parent, time).entries.remove(name).unwrap();
        self.nodes.get_mut(&inode).unwrap().times[2] = time;
        self.count();
        if self.nodes[&inode].nlink == 0 && !keep {
            self.nodes.remove(&inode);
        }
        Ok(())
    }

    fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode, keep: bool, time: i64) -> Done {
        let inode = self.child(from.0, from.1)?.ok_or("NotFound")?;
        let target = self.child(to.0, to.1)?;
        let is_directory = |plain: &Plain, inode: u64| plain.nodes[&inode].kind == FileKind::Directory;
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err("Exists"),
            (RenameMode::Exchange, None) => return Err("NotFound"),
            (RenameMode::Plain, Some(target)) if target == inode => return Ok(()),
            _ => {}
        }
        if is_directory(self, inode) && self.is_below(to.0, inode) {
            return Err("Invalid");
        }
        match (mode, target) {
            (RenameMode::Exchange, Some(other)) => {
                if is_directory(self, other) && self.is_below(from.0, other) {
                    return Err("Invalid");
                }
                if other == inode {
                    return Ok(());
                }
                self.touch(from.0, time).entries.insert(from.1.to_vec(), other);
                self.touch(to.0, time).entries.insert(to.1.to_vec(), inode);
                self.nodes.get_mut(&other).unwrap().times[2] = time;
            }
            (_, Some(target)) => {
                match (is_directory(self, inode), is_directory(self, target)) {
                    (true, false) => return Err("NotDirectory"),
                    (false, true) => return Err("IsDirectory"),
                    (true, true) if !self.nodes[&target].entries.is_empty() => return Err("NotEmpty"),
                    _ => {}
                }
                self.remove(to.0, to.1, keep, time)?;
            }
            _ => {}
        }
        if mode != RenameMode::Exchange {
            self.touch(from.0, time).entries.remove(from.1);
            self.touch(to.0, time).entries.insert(to.1.to_vec(), inode);
        }
        self.nodes.get_mut(&inode).unwrap().times[2] = time;
        self.count();
        Ok(())
    }

    fn is_below(&self, inode: u64, above: u64) -> bool {
        inode == above || self.nodes[&above].entries.values().any(|child| self.is_below(inode, *child))
    }

    /// Counts all links again.
    fn count(&mut self) {
        let mut links: BTreeMap<u64, u32> = BTreeMap::from([(1, 1)]);
        let mut directories: BTreeMap<u64, u32> = BTreeMap::new();
        for (parent, node) in &self.nodes {
            for child in node.entries.values() {
                *links.entry(*child).or_default() += 1;
                *directories.entry(*parent).or_default() += u32::from(self.nodes[child].kind == FileKind::Directory);
            }
        }
        for (inode, node) in &mut self.nodes {
            node.nlink = links.get(inode).copied().unwrap_or(0);
            if node.kind == FileKind::Directory && node.nlink > 0 {
                node.nlink = 2 + directories.get(inode).copied().unwrap_or(0);
            }
        }
    }

    fn file(&mut self, inode: u64) -> Result<&mut PlainNode, &'static str> {
        let node = self.nodes.get_mut(&inode).ok_or("Stale")?;
        match node.kind {
            FileKind::File => Ok(node),
            FileKind::Directory => Err("IsDirectory"),
            _ => Err("Invalid"),
        }
    }

    fn change(&mut self, op: &FileOp, time: i64) -> Done {
        match op {
            FileOp::SetAttr { inode, attrs } => {
                if let Some(size) = attrs.size {
                    self.file(*inode)?.bytes.resize(size as usize, 0);
                    self.touch(*inode, time);
                }
                let node = self.nodes.get_mut(inode).ok_or("Stale")?;
                node.mode = attrs.mode.unwrap_or(node.mode);
                node.owner = (attrs.uid.unwrap_or(node.owner.0), attrs.gid.unwrap_or(node.owner.1));
                node.times[0] = attrs.atime.map_or(node.times[0], |time| time.0);
                node.times[1] = attrs.mtime.map_or(node.times[1], |time| time.0);
                node.times[2] = time;
            }
            FileOp::Write { inode, offset, bytes } => {
                self.file(*inode)?;
                self.put(*inode, *offset as usize, bytes);
                self.touch(*inode, time);
            }
            FileOp::Range { inode, what, offset, length, keep_size } => {
                let node = self.file(*inode)?;
                if *length == 0 {
                    return Err("Invalid");
                }
                let end = (offset + length) as usize;
                if *what != RangeOp::Punch && !keep_size && node.bytes.len() < end {
                    node.bytes.resize(end, 0);
                }
                if *what != RangeOp::Allocate {
                    let end = end.min(node.bytes.len());
                    node.bytes.get_mut(*offset as usize..end).unwrap_or_default().fill(0);
                }
                self.touch(*inode, time);
            }
            FileOp::Copy { from, from_offset, to, to_offset, length } => {
                let bytes = self.file(*from)?.bytes.clone();
                if from == to && from_offset.abs_diff(*to_offset) < *length {
                    return Err("Invalid");
                }
                self.file(*to)?;
                let end = ((from_offset + length) as usize).min(bytes.len());
                let part = bytes.get(*from_offset as usize..end).unwrap_or_default();
                if !part.is_empty() {
                    self.put(*to, *to_offset as usize, part);
                }
                self.touch(*to, time);
            }
            FileOp::SetXattr { inode, name, value, mode } => {
                let node = self.nodes.get_mut(inode).ok_or("Stale")?;
                match (mode, node.xattrs.contains_key(name)) {
                    (XattrMode::Create, true) => return Err("Exists"),
                    (XattrMode::Replace, false) => return Err("NoAttribute"),
                    _ => {}
                }
                node.xattrs.insert(name.clone(), value.clone());
                node.times[2] = time;
            }
            FileOp::RemoveXattr { inode, name } => {
                let node = self.nodes.get_mut(inode).ok_or("Stale")?;
                node.xattrs.remove(name).ok_or("NoAttribute")?;
                node.times[2] = time;
            }
            _ => unreachable!("names are elsewhere"),
        }
        Ok(())
    }

    fn put(&mut self, inode: u64, offset: usize, new: &[u8]) {
        let bytes = &mut self.nodes.get_mut(&inode).unwrap().bytes;
        if new.is_empty() {
            return;
        }
        bytes.resize(bytes.len().max(offset + new.len()), 0);
        bytes[offset..offset + new.len()].copy_from_slice(new);
    }

    /// Takes what a real tree has.
    pub fn from_tree(tree: &Tree, packs: &dyn super::super::Packs) -> Plain {
        let node = |inode: u64| {
            let node = tree.node(inode).unwrap();
            let mut plain = PlainNode::new(node.kind(), node.mode, (node.uid, node.gid), 0);
            plain.times = [node.atime, node.mtime, node.ctime, node.crtime].map(|Time(time)| time);
            plain.nlink = node.nlink();
            plain.xattrs = node.xattrs().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            plain.bytes = match node.kind() {
                FileKind::File => node.read(0, usize::MAX >> 1, packs).unwrap(),
                _ => node.target().unwrap_or_default().to_vec(),
            };
            if node.directory().is_some() {
                plain.entries =
                    tree.entries(inode, None).unwrap().map(|(name, child)| (name.to_vec(), child)).collect();
            }
            plain
        };
        Plain { nodes: tree.inodes().map(|inode| (inode, node(inode))).collect(), next: tree.next_inode }
    }

    /// What the head covers: every path with what is there; content of links and files, user attributes.
    pub fn visible(&self) -> BTreeMap<Vec<u8>, Visible> {
        let (mut seen, mut todo) = (BTreeMap::new(), vec![(Vec::new(), 1)]);
        while let Some((path, inode)) = todo.pop() {
            let node = &self.nodes[&inode];
            for (name, child) in &node.entries {
                todo.push(([&path[..], b"/", name].concat(), *child));
            }
            let mut xattrs = node.xattrs.clone();
            xattrs.retain(|name, _| name.starts_with(b"user."));
            seen.insert(path, (node.kind, node.mode, node.bytes.clone(), xattrs));
        }
        seen
    }
}

/// Finds what differs between two trees' nodes, in few words.
pub fn assert_alike(one: &Plain, other: &Plain) {
    let numbers = |plain: &Plain| plain.nodes.keys().copied().collect::<Vec<u64>>();
    assert_eq!(numbers(one), numbers(other));
    for (inode, node) in &one.nodes {
        let twin = &other.nodes[inode];
        assert_eq!(node.summary(), twin.summary(), "inode {inode}");
        assert!(node == twin, "inode {inode}: the bytes differ at {:?}", {
            node.bytes.iter().zip(&twin.bytes).position(|(one, other)| one != other)
        });
    }
}

impl PlainNode {
    fn summary(&self) -> String {
        let attributes = (self.kind, self.mode, self.owner, self.times, self.nlink, &self.xattrs);
        format!("{attributes:?} {} bytes {:?}", self.bytes.len(), self.entries)
    }

    fn new(kind: FileKind, mode: u32, owner: (u32, u32), time: i64) -> PlainNode {
        let (xattrs, bytes, entries) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let nlink = if kind == FileKind::Directory { 2 } else { 1 };
        PlainNode { kind, mode, owner, times: [time; 4], nlink, xattrs, bytes, entries }
    }
}
