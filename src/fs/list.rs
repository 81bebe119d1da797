//! What open directories give out, name by name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::Filesystem;
use super::attr::{Attr, EntryAttr};
use super::directory::ListItem;
use super::errno::Failure;
use super::files::FilesOf;
use super::handle::Handle;
use super::mount_context::MountContext;
use super::node::FsNode;
use crate::memory::{FileKind, Time, Tree};

/// Takes a node number, the cookie of the next name, what it is, and the name; true is "full".
pub(super) type Sink<'a> = &'a mut dyn FnMut(u64, u64, FileKind, &OsStr) -> bool;
/// Takes an entry, the cookie of the next name, and the name; true is "full".
pub(super) type PlusSink<'a> = &'a mut dyn FnMut(&EntryAttr, u64, &OsStr) -> bool;

/// Cookies of `.` and `..`, of which no look-up is counted.
const DOTS: u64 = 2;

impl Filesystem {
    pub(super) fn fill(&self, handle: &Handle, offset: u64, sink: Sink<'_>) -> Result<(), Failure> {
        let files = files(&self.mount, handle)?;
        self.each(handle, offset, &mut |cookie, node, name| {
            let kind = match (node, &files) {
                (FsNode::File(_, inode), Some((_, tree))) => tree.node(*inode).map(|node| node.kind()).ok(),
                _ => Some(if node.is_directory() { FileKind::Directory } else { FileKind::File }),
            };
            Ok(kind.is_some_and(|kind| sink(self.nodes.number(node), cookie + 1, kind, name)))
        })
    }

    pub(super) fn fill_plus(&self, handle: &Handle, offset: u64, sink: PlusSink<'_>) -> Result<(), Failure> {
        let files = files(&self.mount, handle)?;
        self.each(handle, offset, &mut |cookie, node, name| {
            let entry = match (node, &files) {
                _ if cookie < DOTS => Some(self.shell(node)),
                (FsNode::File(_, inode), Some((of, tree))) => self.file_if_there(of, tree, handle, (name, *inode)),
                _ if node.is_directory() => self.entry(node).ok(),
                _ => Some(self.remembered(node)),
            };
            // What is gone meanwhile is passed over.
            let Some(entry) = entry else { return Ok(false) };
            let full = sink(&entry, cookie + 1, name);
            if full && cookie >= DOTS {
                self.nodes.forget(entry.attr.ino, 1);
            }
            Ok(full)
        })
    }

    /// Goes through the names from a cookie on, until `visit` returns true for "full".
    fn each(
        &self,
        handle: &Handle,
        offset: u64,
        visit: &mut dyn FnMut(u64, &FsNode, &OsStr) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut listing = handle.listing()?.acquire().ok_or_else(Failure::would_wait)?;
        if offset == 0 {
            listing.rewind()?;
        }
        for cookie in offset.. {
            let full = match (listing.item(cookie)?, &handle.node) {
                (Some(ListItem::Named(name, node)), _) => visit(cookie, node, name)?,
                (Some(ListItem::File(name, inode)), FsNode::File(of, _)) => {
                    visit(cookie, &FsNode::File(of.clone(), inode), OsStr::from_bytes(&name))?
                }
                (Some(ListItem::Record(id)), node) => match node.view() {
                    Some(view) => {
                        visit(cookie, &FsNode::Record(view, id.clone()), &OsString::from(format!("{id}.json")))?
                    }
                    None => true,
                },
                (Some(ListItem::File(..)) | None, _) => true,
            };
            if full {
                break;
            }
        }
        Ok(())
    }

    /// Returns the entry of a file where the name still leads to it: the kernel would believe in a
    /// name that is not there any more.
    fn file_if_there(
        &self,
        of: &FilesOf,
        tree: &Tree,
        handle: &Handle,
        (name, inode): (&OsStr, u64),
    ) -> Option<EntryAttr> {
        let FsNode::File(_, directory) = &handle.node else { return None };
        let there = tree.lookup(*directory, name.as_bytes()).ok()? == inode;
        there.then(|| self.file_entry(of, tree, inode).ok())?
    }

    /// Returns an entry without attributes that anybody may believe.
    fn shell(&self, node: &FsNode) -> EntryAttr {
        let ino = self.nodes.number(node);
        let attr = Attr::plain(ino, node.is_directory() || matches!(node, FsNode::File(..)), Time::default(), (0, 0));
        EntryAttr { attr, lifetime: attr.lifetime }
    }

    /// Returns the entry of what is generated, and counts a look-up. Its length is worked out when
    /// somebody asks: until then it is the one that the kernel was told last, or 0 where it knows
    /// of none. Another one would cut off what somebody has mapped.
    fn remembered(&self, node: &FsNode) -> EntryAttr {
        let shell = self.shell(node);
        let ino = self.nodes.remember(node);
        let attr = Attr { ino, ..shell.attr.sized(self.nodes.told_length(ino)) };
        EntryAttr { attr, ..shell }
    }
}

/// Returns the files that a handle lists, as they are now.
fn files(mount: &MountContext, handle: &Handle) -> Result<Option<(FilesOf, Tree)>, Failure> {
    let FsNode::File(of, _) = &handle.node else { return Ok(None) };
    Ok(Some((of.clone(), mount.tree(of)?)))
}
