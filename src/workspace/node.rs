//! One inode: attributes, names, and what it is.

use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use imbl::OrdMap;

use super::content::FileContent;
use super::links::Links;
use super::pack::Packs;
use super::{FileName, TreeError};
use crate::object::{Context, Hash, Hasher, Time};

/// The size that directories have, and the space that they and long links are said to take.
const DIRECTORY_BYTES: u64 = 4096;
static NODE_CONTEXT: Context = Context::new("engramfs 2026 file node v1");

/// What an inode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FileKind {
    /// Has a [`FileContent`]: bytes in chunks.
    File = 1,
    /// Has entries by name; the root of a tree is one.
    Directory = 2,
    /// Has a target of 1 to 4095 bytes, which the kernel follows.
    Symlink = 3,
    /// A named pipe; what is written to it passes through the kernel alone.
    Fifo = 4,
    /// A socket's name; connections are the kernel's.
    Socket = 5,
    /// Has the number of a device, as mknod(2) gave it.
    CharDevice = 6,
    /// Has the number of a device, likewise.
    BlockDevice = 7,
}

/// What an inode is, with what only this kind has.
#[derive(Clone)]
pub enum Body {
    /// A file and its bytes.
    File(FileContent),
    /// A directory and its entries.
    Directory(Directory),
    /// A symbolic link and its target.
    Symlink(Arc<[u8]>),
    /// A named pipe: nothing but names and attributes is stored of it.
    Fifo,
    /// A socket: nothing but names and attributes is stored of it.
    Socket,
    /// A character device and its number.
    CharDevice(u32),
    /// A block device and its number.
    BlockDevice(u32),
}

/// The entries of a directory, which clones share until they change.
#[derive(Clone, Default)]
pub struct Directory {
    /// Names with the inodes that they lead to, in bytewise order.
    pub(super) entries: OrdMap<FileName, u64>,
    /// How many of them are directories: the links that it has beside two.
    pub(super) subdirectories: u32,
}

impl Directory {
    /// Returns the number of entries, without `.` and `..`.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no entry, as rmdir(2) asks.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the inode of a name; `None` if there is no such entry.
    pub fn get(&self, name: &[u8]) -> Option<u64> {
        self.entries.get(name).copied()
    }

    /// Iterates over the entries whose names are behind `after`, or all, in bytewise order.
    pub fn entries_after(&self, after: Option<&[u8]>) -> impl Iterator<Item = (&FileName, u64)> + use<'_> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.entries.range::<_, [u8]>((from, Bound::Unbounded));
        range.map(|(name, inode)| (name, *inode))
    }
}

/// Extended attributes by name.
pub(super) type Xattrs = OrdMap<Arc<[u8]>, Arc<[u8]>>;

/// One inode. Handles may hold it: it never changes, the tree replaces it.
#[derive(Clone)]
pub struct FileNode {
    /// Permission bits with setuid, setgid and sticky: 12 bits.
    pub mode: u32,
    /// Uid of the owner when it was last written; [`Tree::owner`](super::Tree::owner) returns the present one.
    pub(super) uid: u32,
    /// Transfers of its tree until then.
    pub(super) epoch: u32,
    /// Gid of its group, set by chown(2) or by the directory.
    pub gid: u32,
    /// When it was last read, as the caller says.
    pub atime: Time,
    /// When its content last changed, or the time that was set since (mtime).
    pub mtime: Time,
    /// When its content was last written in this branch or brought by a merge; nobody can set it.
    pub written: Time,
    /// When anything of it last changed.
    pub ctime: Time,
    /// When it was made. A purge finds it under its other names by this time.
    pub crtime: Time,
    /// The names that lead to it.
    pub(super) links: Links,
    /// With their namespaces in their names, such as `user.`.
    pub(super) xattrs: Xattrs,
    /// What only this kind of inode has.
    pub(super) body: Body,
    /// That of [`FileNode::hash_without_entries`], once asked for.
    pub(super) hash: OnceLock<Hash>,
}

impl FileNode {
    /// Makes a node without names, all of whose times are `time`.
    pub(super) fn new(body: Body, mode: u32, uid: u32, gid: u32, time: Time) -> FileNode {
        let (links, xattrs, hash) = (Links::None, OrdMap::new(), OnceLock::new());
        let mode = mode & 0o7777;
        FileNode {
            mode,
            uid,
            epoch: 0,
            gid,
            atime: time,
            mtime: time,
            written: time,
            ctime: time,
            crtime: time,
            links,
            xattrs,
            body,
            hash,
        }
    }

    /// Returns what it is and what only its kind has.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Returns its kind.
    pub fn kind(&self) -> FileKind {
        match self.body {
            Body::File(_) => FileKind::File,
            Body::Directory(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Fifo => FileKind::Fifo,
            Body::Socket => FileKind::Socket,
            Body::CharDevice(_) => FileKind::CharDevice,
            Body::BlockDevice(_) => FileKind::BlockDevice,
        }
    }

    /// Returns the number of links: of a directory 2 and one for each directory in it, of an orphan 0.
    pub fn nlink(&self) -> u32 {
        match (&self.body, &self.links) {
            (_, Links::None) => 0,
            (Body::Directory(directory), _) => directory.subdirectories + 2,
            (_, Links::One(..) | Links::Root) => 1,
            (_, Links::Many(all)) => all.len() as u32,
        }
    }

    /// Returns the size: bytes of a file, bytes of a link's target, 4096 for a directory, else 0.
    pub fn size(&self) -> u64 {
        match &self.body {
            Body::File(content) => content.size(),
            Body::Directory(_) => DIRECTORY_BYTES,
            Body::Symlink(target) => target.len() as u64,
            _ => 0,
        }
    }

    /// Returns the space it takes up in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        match &self.body {
            Body::File(content) => content.allocated_bytes() / 512,
            Body::Directory(_) => DIRECTORY_BYTES / 512,
            _ => 0,
        }
    }

    /// Iterates over its names, each with the directory that has it.
    pub fn names(&self) -> impl Iterator<Item = (u64, &FileName)> {
        self.links.iter()
    }

    /// Returns the node with what stat(2) shows of it and nothing else: without the bytes of a file and extended attributes.
    pub fn stat_only(mut self) -> FileNode {
        if let Body::File(content) = &mut self.body {
            content.forget_bytes();
        }
        self.xattrs = OrdMap::new();
        self.hash = OnceLock::new();
        self
    }

    /// Returns an extended attribute; `None` if there is none with that name.
    pub fn xattr(&self, name: &[u8]) -> Option<&[u8]> {
        self.xattrs.get(name).map(|value| &**value)
    }

    /// Iterates over the extended attributes of all namespaces, in bytewise order of names.
    pub fn xattrs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.xattrs.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns a symbolic link's target; `None` for any other kind.
    pub fn target(&self) -> Option<&[u8]> {
        if let Body::Symlink(target) = &self.body { Some(target) } else { None }
    }

    /// Returns a device's number; 0 for any other kind.
    pub fn rdev(&self) -> u32 {
        if let Body::CharDevice(rdev) | Body::BlockDevice(rdev) = self.body { rdev } else { 0 }
    }

    /// Returns a file's content; `None` for any other kind.
    pub fn content(&self) -> Option<&FileContent> {
        if let Body::File(content) = &self.body { Some(content) } else { None }
    }

    /// Returns a directory's entries; `None` for any other kind.
    pub fn directory(&self) -> Option<&Directory> {
        if let Body::Directory(directory) = &self.body { Some(directory) } else { None }
    }

    /// Returns the hash of a file's size and bytes alone; `None` for any other kind.
    pub fn content_hash(&self) -> Option<Hash> {
        self.content().map(FileContent::hash)
    }

    /// Returns the hash of kind, mode, content, target, device number and user attributes; `None` for a directory,
    /// whose hash is its tree's to know.
    pub fn hash(&self) -> Option<Hash> {
        if let Body::Directory(_) = self.body { None } else { Some(self.hash_without_entries()) }
    }

    /// The same, also for a directory, whose entries are not in it.
    pub(super) fn hash_without_entries(&self) -> Hash {
        *self.hash.get_or_init(|| {
            let mut hasher = Hasher::new(&NODE_CONTEXT);
            hasher.update(&[self.kind() as u8]);
            hasher.update(&self.mode.to_le_bytes());
            match &self.body {
                Body::File(content) => hasher.update(&content.hash().0),
                Body::Symlink(target) => hasher.field(target),
                Body::CharDevice(rdev) | Body::BlockDevice(rdev) => hasher.update(&rdev.to_le_bytes()),
                Body::Directory(_) | Body::Fifo | Body::Socket => {}
            }
            for (name, value) in self.xattrs.iter().filter(|(name, _)| name.starts_with(b"user.")) {
                hasher.field(name);
                hasher.field(value);
            }
            hasher.finish()
        })
    }

    /// Returns up to `length` bytes of a file from `offset`; `IsDirectory` or `Invalid` for others.
    pub fn read(&self, offset: u64, length: usize, packs: &dyn Packs) -> Result<Vec<u8>, TreeError> {
        self.file()?.read(offset, length, packs)
    }

    /// Returns a file's content, or the error that it is not a file.
    pub(super) fn file(&self) -> Result<&FileContent, TreeError> {
        match &self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(TreeError::IsDirectory),
            _ => Err(TreeError::Invalid("it is not a regular file")),
        }
    }

    /// The same, to change it. `TreeError::IsDirectory`, or `TreeError::Invalid` for what is not a regular file.
    pub(super) fn file_mut(&mut self) -> Result<&mut FileContent, TreeError> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(TreeError::IsDirectory),
            _ => Err(TreeError::Invalid("it is not a regular file")),
        }
    }

    /// Returns whether no name leads to it.
    pub(super) fn is_nameless(&self) -> bool {
        self.links == Links::None
    }
}
