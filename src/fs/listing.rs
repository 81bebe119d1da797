//! What open directories give out, name by name. A look-up counts for each entry but `.` and `..` that the kernel takes, and
//! has to be taken back for one that did not fit.

use std::ffi::OsStr;

use super::Filesystem;
use super::attr::{Attr, EntryAttr};
use super::errno::Failure;
use super::handle::Handle;
use super::node::FsNode;
use crate::memory::{FileKind, Time};

/// Takes a node number, the cookie of the next name, what it is, and the name; true is "full".
pub(super) type NameSink<'a> = &'a mut dyn FnMut(u64, u64, FileKind, &OsStr) -> bool;
/// Takes an entry, the cookie of the next name, and the name; true is "full".
pub(super) type EntrySink<'a> = &'a mut dyn FnMut(&EntryAttr, u64, &OsStr) -> bool;

/// Cookies of `.` and `..`, of which no look-up is counted.
const DOTS: u64 = 2;

impl Filesystem {
    /// Gives names to `sink`, as long as `file_kind` says what they are; what is gone is passed over. Fails if an entry
    /// of the directory can't be read; names before it were given.
    pub(super) fn emit_names(
        &self,
        handle: &Handle,
        offset: u64,
        sink: NameSink<'_>,
        file_kind: impl Fn(&FsNode) -> Option<FileKind>,
    ) -> Result<(), Failure> {
        for_each_name(handle, offset, &mut |cookie, node, name| {
            file_kind(node).is_some_and(|kind| sink(self.nodes.number(node), cookie + 1, kind, name))
        })
    }

    /// Gives entries to `sink`. `lookup` counts a look-up, and knows nothing of what is gone, which is passed over.
    /// Fails like `Listing::item`; entries before that were given.
    pub(super) fn emit_entries(
        &self,
        handle: &Handle,
        offset: u64,
        sink: EntrySink<'_>,
        lookup: impl Fn(&FsNode, &OsStr) -> Option<EntryAttr>,
    ) -> Result<(), Failure> {
        for_each_name(handle, offset, &mut |cookie, node, name| {
            let entry = if cookie < DOTS { Some(self.dot(node)) } else { lookup(node, name) };
            let Some(entry) = entry else { return false };
            let full = sink(&entry, cookie + 1, name);
            // `lookup` counted a look-up, and the kernel does not hear of an entry that found no room.
            if full && cookie >= DOTS {
                self.nodes.forget(entry.attr.ino, 1);
            }
            full
        })
    }

    /// Returns the entry of `.` or `..`, of which the kernel takes no attribute.
    fn dot(&self, node: &FsNode) -> EntryAttr {
        let attr = Attr::generated(self.nodes.number(node), true, Time::default(), (0, 0));
        EntryAttr { attr, generation: 0, lifetime: attr.lifetime }
    }
}

/// Iterates over the names from a cookie on, until `visit` returns true for "full".
fn for_each_name(
    handle: &Handle,
    offset: u64,
    visit: &mut dyn FnMut(u64, &FsNode, &OsStr) -> bool,
) -> Result<(), Failure> {
    let mut listing = handle.listing()?.lock_or_give_up().ok_or_else(Failure::would_wait)?;
    if offset == 0 {
        listing.rewind()?;
    }
    for cookie in offset.. {
        let Some(item) = listing.item(cookie)? else { break };
        if visit(cookie, item.node(), &item.name()) {
            break;
        }
    }
    Ok(())
}
