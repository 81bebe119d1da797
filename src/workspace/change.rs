//! Carrying out an op: attributes and content of one inode. What has to be read for it is read before anything changes, so
//! that an op that fails leaves the tree as it was.

use super::content::FILE_BYTES_MAX;
use super::node::{Body, FileNode, Xattrs};
use super::op::{Attrs, FileOp, RangeOp, XattrMode};
use super::pack::Packs;
use super::{FileContent, Tree, TreeError, TreeTotals};
use crate::object::Time;

/// Longest name of an extended attribute, in bytes: Linux's own limit.
const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value of an extended attribute, in bytes: Linux's own limit.
const XATTR_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of all extended attributes of an inode.
const XATTRS_BYTES_MAX: usize = 1 << 20;

impl Tree {
    /// Carries out an op on attributes or content and returns the inode that changed. `Invalid` for an op that is about
    /// names.
    pub(super) fn change(&mut self, op: &FileOp, time: Time, packs: &dyn Packs) -> Result<u64, TreeError> {
        match op {
            FileOp::SetAttr { inode, attrs } => self.set_attrs(*inode, attrs, time, packs).map(|()| *inode),
            FileOp::Write { inode, offset, bytes } => self.write(*inode, *offset, bytes, time, packs).map(|()| *inode),
            FileOp::Range { inode, what, offset, length, keep_size } => {
                self.change_range(*inode, *what, (*offset, *length), *keep_size, time, packs).map(|()| *inode)
            }
            FileOp::Copy { from, from_offset, to, to_offset, length } => {
                let content = self.node(*from)?.file()?.clone();
                // As copy_file_range(2), which refuses ranges of one file that overlap.
                if from == to && from_offset.abs_diff(*to_offset) < *length {
                    return Err(TreeError::Invalid("the two ranges of one file overlap"));
                }
                self.copy(&content, *from_offset, (*to, *to_offset), *length, time, packs).map(|()| *to)
            }
            FileOp::SetXattr { inode, name, value, mode } => {
                self.set_xattr(*inode, name, value, *mode, time).map(|()| *inode)
            }
            FileOp::RemoveXattr { inode, name } => {
                // Checked first: a removal that changes nothing must not touch ctime either.
                self.node(*inode)?.xattr(name).ok_or(TreeError::NoAttribute)?;
                self.change_xattrs(*inode, time, |xattrs| drop(xattrs.remove(name.as_slice()))).map(|()| *inode)
            }
            _ => Err(TreeError::Invalid("it is about names")),
        }
    }

    /// Changes a file's content in its place, keeps the totals, and sets its times. `TreeError::Stale` if there is none
    /// with that number, `TreeError::IsDirectory` or `TreeError::Invalid` for what is not a regular file. An error of
    /// `edit` may leave the content half changed.
    pub(super) fn edit<T>(
        &mut self,
        inode: u64,
        time: Time,
        edit: impl FnOnce(&mut FileContent) -> Result<T, TreeError>,
    ) -> Result<T, TreeError> {
        // Asked first: `node_mut` copies a shared node and drops known hashes, which a refused change must not cost.
        self.node(inode)?.file()?;
        let node = self.node_mut(inode)?;
        let is_counted = !node.is_nameless();
        let content = node.file_mut()?;
        // Read before the edit and after it also where that fails: a content that is half changed has other sums, too.
        let before = (content.size(), content.allocated_bytes());
        let done = edit(content);
        let after = (content.size(), content.allocated_bytes());
        if done.is_ok() {
            (node.mtime, node.written, node.ctime) = (time, time, time);
        }
        if is_counted {
            self.totals.bytes = self.totals.bytes - before.0 + after.0;
            self.totals.allocated_bytes = self.totals.allocated_bytes - before.1 + after.1;
        }
        // A chunk that was brought into memory is unsealed, whatever came of the change.
        if after.1 == 0 {
            self.unsealed.remove(&inode);
        } else if !self.unsealed.contains(&inode) {
            self.unsealed.insert(inode);
        }
        done
    }

    fn set_attrs(&mut self, inode: u64, attrs: &Attrs, time: Time, packs: &dyn Packs) -> Result<(), TreeError> {
        // The size comes first: it alone can fail. It also sets mtime, over which an explicit one then counts.
        if let Some(size) = attrs.size {
            if size > FILE_BYTES_MAX {
                return Err(TreeError::TooLarge);
            }
            self.edit(inode, time, |content| {
                // Reads the chunk that is cut, so that what follows can't fail.
                content.prefetch_edges(size, 0, packs)?;
                content.truncate(size, packs)
            })?;
        }
        let node = self.node_mut(inode)?;
        node.mode = attrs.mode.map_or(node.mode, |mode| mode & 0o7777);
        node.uid = attrs.uid.unwrap_or(node.uid);
        node.gid = attrs.gid.unwrap_or(node.gid);
        node.atime = attrs.atime.unwrap_or(node.atime);
        node.mtime = attrs.mtime.unwrap_or(node.mtime);
        node.ctime = time;
        Ok(())
    }

    /// Writes bytes into a file; they stay in memory until they are sealed. Fails like [`Tree::check_write`].
    pub(super) fn write(
        &mut self,
        inode: u64,
        offset: u64,
        bytes: &[u8],
        time: Time,
        packs: &dyn Packs,
    ) -> Result<(), TreeError> {
        let length = bytes.len() as u64;
        self.check_write(inode, offset, length)?;
        self.edit(inode, time, |content| {
            content.prefetch_edges(offset, length, packs)?;
            content.write(offset, bytes, packs)
        })
    }

    fn change_range(
        &mut self,
        inode: u64,
        what: RangeOp,
        (offset, length): (u64, u64),
        keep_size: bool,
        time: Time,
        packs: &dyn Packs,
    ) -> Result<(), TreeError> {
        self.node(inode)?.file()?;
        if length == 0 {
            return Err(TreeError::Invalid("a range has at least one byte"));
        }
        let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX).ok_or(TreeError::TooLarge)?;
        self.edit(inode, time, |content| {
            // A range of zeros is a hole that takes up space afterwards.
            if what != RangeOp::Allocate {
                content.prefetch_edges(offset, length, packs)?;
                content.punch(offset, length, packs)?;
            }
            if what != RangeOp::Punch {
                content.allocate(offset, length)?;
            }
            if what != RangeOp::Punch && !keep_size {
                content.grow(end);
            }
            Ok(())
        })
    }

    fn copy(
        &mut self,
        source: &FileContent,
        from: u64,
        (to, at): (u64, u64),
        length: u64,
        time: Time,
        packs: &dyn Packs,
    ) -> Result<(), TreeError> {
        let length = length.min(source.size().saturating_sub(from));
        if at.checked_add(length).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(TreeError::TooLarge);
        }
        self.edit(to, time, |content| {
            // A source that can't be read must not leave half a copy.
            let mut copy = content.clone();
            copy.copy(at, source, from, length, packs)?;
            *content = copy;
            Ok(())
        })
    }

    fn set_xattr(
        &mut self,
        inode: u64,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        time: Time,
    ) -> Result<(), TreeError> {
        let node = self.node(inode)?;
        if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
            return Err(TreeError::AttributeName);
        }
        if value.len() > XATTR_BYTES_MAX {
            return Err(TreeError::AttributeTooLarge);
        }
        match (mode, node.xattr(name)) {
            (XattrMode::Create, Some(_)) => return Err(TreeError::Exists),
            (XattrMode::Replace, None) => return Err(TreeError::NoAttribute),
            _ => {}
        }
        // Without the value that is replaced, or a full inode could not even have one of its values made shorter.
        let others = node.xattrs().filter(|(other, _)| *other != name);
        let bytes: usize = others.map(|(name, value)| name.len() + value.len()).sum();
        if bytes + name.len() + value.len() > XATTRS_BYTES_MAX {
            return Err(TreeError::NoSpace);
        }
        self.change_xattrs(inode, time, |xattrs| drop(xattrs.insert(name.into(), value.into())))
    }

    fn change_xattrs(&mut self, inode: u64, time: Time, change: impl FnOnce(&mut Xattrs)) -> Result<(), TreeError> {
        let node = self.node_mut(inode)?;
        // The totals hold what a name leads to, and the root has no name.
        let is_counted = inode != super::ROOT && !node.is_nameless();
        let before = TreeTotals::from_node(node);
        change(&mut node.xattrs);
        node.ctime = time;
        let after = TreeTotals::from_node(node);
        if is_counted {
            self.totals.replace(before, after);
        }
        Ok(())
    }

    /// Makes a new inode under a free name with the kind, attributes, times and content of a detached `node`; of a
    /// directory without its entries. Chunks are shared; ctime becomes `time`.
    ///
    /// For merging: it is not an op, as what is grafted follows from the trees that are merged. `Exists`,
    /// `NotDirectory`, `TooManyLinks`, and `Invalid` or `NameTooLong` for what no entry can be called.
    pub fn graft(&mut self, parent: u64, name: &[u8], node: &FileNode, time: Time) -> Result<u64, TreeError> {
        let name = super::FileName::new(name)?;
        // Any body serves until `copy_from` replaces it, which leaves out the entries of a directory.
        let mut copy = FileNode::new(Body::Fifo, node.mode, node.uid, node.gid, time);
        copy.copy_from(node);
        self.check_free(parent, &name, copy.directory().is_some())?;
        // After the check: an inode that was added and then got no name would stay for ever.
        let inode = self.add(copy);
        self.add_name(parent, &name, inode, time)?;
        Ok(inode)
    }

    /// Gives an inode kind, attributes, times and content of a detached `node`; number and names stay, and the entries
    /// of a directory. ctime becomes `time`. `IsDirectory` or `NotDirectory` if one of the two is a directory and the
    /// other is not.
    pub fn replace(&mut self, inode: u64, node: &FileNode, time: Time) -> Result<(), TreeError> {
        match (self.node(inode)?.directory(), node.directory()) {
            // A directory can become nothing else in its place: its entries would lose the way that leads to them.
            (Some(_), None) => return Err(TreeError::IsDirectory),
            (None, Some(_)) => return Err(TreeError::NotDirectory),
            _ => {}
        }
        let is_counted = !self.node(inode)?.is_nameless();
        let before = TreeTotals::from_node(self.node(inode)?);
        let own = self.node_mut(inode)?;
        let epoch = own.epoch;
        own.copy_from(node);
        // The epoch of now, as `node_mut` set it: the uid of `node` is the owner by now, so no transfer until now may count for it
        // again. The epoch of a detached node lies behind all transfers, and would keep later ones from counting, too.
        (own.ctime, own.epoch) = (time, epoch);
        let after = TreeTotals::from_node(own);
        // The set has to follow, since sealing looks only at inodes that are in it.
        if own.content().is_some_and(FileContent::is_unsealed) {
            self.unsealed.insert(inode);
        } else {
            self.unsealed.remove(&inode);
        }
        if is_counted {
            self.totals.replace(before, after);
        }
        Ok(())
    }
}

impl FileNode {
    /// Takes everything of another node but its names; a directory keeps its own entries.
    fn copy_from(&mut self, other: &FileNode) {
        let own = std::mem::replace(&mut self.body, Body::Fifo);
        let body = match (own, &other.body) {
            (own @ Body::Directory(_), Body::Directory(_)) => own,
            (_, Body::Directory(_)) => Body::Directory(super::node::Directory::default()),
            (_, body) => body.clone(),
        };
        let (links, xattrs) = (self.links.clone(), other.xattrs.clone());
        let (mode, uid, gid, epoch) = (other.mode, other.uid, other.gid, other.epoch);
        let (atime, mtime, written) = (other.atime, other.mtime, other.written);
        let (ctime, crtime) = (other.ctime, other.crtime);
        let hash = std::sync::OnceLock::new();
        *self = FileNode { mode, uid, epoch, gid, atime, mtime, written, ctime, crtime, links, xattrs, body, hash };
    }
}
