//! Names in `files/`.

use std::ffi::OsStr;

use super::attr::attr_of;
use super::{FilesOf, name_lifetime};
use crate::fs::Filesystem;
use crate::fs::attr::{Attr, EntryAttr};
use crate::fs::errno::{Errno, Failure};
use crate::fs::node::FsNode;
use crate::memory::{Tree, View};

impl Filesystem {
    /// Finds a name in a directory of files.
    pub(in crate::fs) fn lookup_file(&self, of: &FilesOf, directory: u64, name: &OsStr) -> Result<EntryAttr, Failure> {
        let tree = self.mount.tree(of)?;
        let inode = tree.lookup(directory, name.as_encoded_bytes())?;
        self.file_entry(of, &tree, inode)
    }

    /// Returns the attributes of an inode, also of one that is gone and that the kernel still holds.
    pub(in crate::fs) fn file_attr(&self, ino: u64, of: &FilesOf, inode: u64) -> Result<Attr, Failure> {
        let tree = self.mount.tree(of)?;
        if let Ok(node) = tree.node(inode) {
            return attr_of(&self.mount, ino, of, inode, node);
        }
        let node = self.mount.removed.find(ino).ok_or(Errno::ESTALE)?;
        Ok(Attr { links: 0, ..attr_of(&self.mount, ino, of, inode, &node)? })
    }

    /// Counts a look-up of an inode as it is in `tree`.
    pub(in crate::fs) fn file_entry(&self, of: &FilesOf, tree: &Tree, inode: u64) -> Result<EntryAttr, Failure> {
        let node = tree.node(inode)?;
        let ino = self.nodes.remember(&FsNode::File(of.clone(), inode));
        let attr = attr_of(&self.mount, ino, of, inode, node).inspect_err(|_| self.nodes.forget(ino, 1))?;
        Ok(EntryAttr { attr, lifetime: name_lifetime() })
    }

    /// Counts a look-up of an inode as it is now.
    pub(super) fn present_entry(&self, of: &FilesOf, inode: u64) -> Result<EntryAttr, Failure> {
        self.file_entry(of, &self.mount.tree(of)?, inode)
    }

    /// Returns the target of a symbolic link; EINVAL for anything else.
    pub fn readlink(&self, ino: u64) -> Result<Vec<u8>, Errno> {
        let node = self.nodes.node(ino)?;
        let target = match &node {
            FsNode::File(of, inode) => {
                self.mount.tree(of).and_then(|tree| Ok(tree.node(*inode)?.target().ok_or(Errno::EINVAL)?.to_vec()))
            }
            _ => Err(Errno::EINVAL.into()),
        };
        self.audit_node(None, &node, target)
    }

    /// Tells whether a number is that of something in `files/`: what is asked of it is done at once,
    /// and its pages may stay in the kernel's cache.
    pub fn is_file(&self, ino: u64) -> bool {
        matches!(self.nodes.node(ino), Ok(FsNode::File(..)))
    }

    /// Returns the path of a node below its branch's directory, as `errors` shows it. A file that
    /// has no name any more is shown by its number.
    pub(in crate::fs) fn shown_path(&self, node: &FsNode) -> String {
        let FsNode::File(of, inode) = node else { return node.path() };
        let inside = self.mount.tree(of).ok().and_then(|tree| tree.path(*inode));
        let inside = inside.map_or_else(|| format!("#{inode}"), |path| String::from_utf8_lossy(&path).into_owned());
        let path = format!("{}/{inside}", of.area.name()).trim_end_matches('/').to_owned();
        match &of.view {
            View::Branch(_) => path,
            View::Checkpoint(_, label) => format!("checkpoints/{label}/{path}"),
        }
    }
}
