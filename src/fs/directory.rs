//! Listings: what a directory showed when it was opened.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::errno::Failure;
use super::files::FileNames;
use super::node::FsNode;
use crate::memory::{FileName, Snapshot, View};

/// How many record ids are held at a time.
const PAGE_NAMES: usize = 1_024;

/// A name of a listing that is held in memory, not read page by page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ListName {
    /// As readdir(3) shows it.
    pub name: OsString,
    /// What the name leads to.
    pub node: FsNode,
}

/// One open directory: some names held here, then the records of a snapshot or the files of a
/// tree, page by page.
///
/// The cookie of a name is its place in the listing, which stays as it was at open. So telldir(3), seekdir(3) and
/// rewinddir(3) work whatever happens meanwhile, and a listing of any length takes the same memory except for one id a
/// page.
pub(super) struct Listing {
    names: Vec<ListName>,
    more: ListingTail,
}

/// What comes after the names that are held.
pub(super) enum ListingTail {
    /// Nothing: all names are held.
    Nothing,
    /// The records of a view, as `ID.json`.
    Records(Records),
    /// The entries of a folder of files.
    Files(FileNames),
}

/// The records of a snapshot in order of their ids, of which one page at a time is in memory.
pub(super) struct Records {
    view: View,
    snapshot: Snapshot,
    /// The last id of each page, as far as they were read.
    page_ends: Vec<Arc<str>>,
    page: Vec<Arc<str>>,
    /// Which page that is; nothing before the first.
    page_number: Option<usize>,
}

/// The entry at a cookie.
pub(super) enum ListItem<'a> {
    /// One of the names that are held.
    Named(&'a OsStr, &'a FsNode),
    /// A record, by its id without `.json`.
    Record(Arc<str>, FsNode),
    /// An entry of a folder of files.
    File(FileName, FsNode),
}

impl ListItem<'_> {
    /// Returns the name as it is listed: of a record its id with `.json`.
    pub fn name(&self) -> Cow<'_, OsStr> {
        match self {
            ListItem::Named(name, _) => Cow::Borrowed(name),
            ListItem::Record(id, _) => Cow::Owned(format!("{id}.json").into()),
            ListItem::File(name, _) => Cow::Borrowed(OsStr::from_bytes(name)),
        }
    }

    /// Returns what the name leads to; no look-up is counted by this.
    pub fn node(&self) -> &FsNode {
        match self {
            ListItem::Named(_, node) => node,
            ListItem::Record(_, node) | ListItem::File(_, node) => node,
        }
    }
}

impl Listing {
    /// Takes the names that come first, and what comes after them.
    pub fn new(names: Vec<ListName>, more: ListingTail) -> Listing {
        Listing { names, more }
    }

    /// Begins again: files are listed as they are now, all else as at open. Fails like `FileNames::rewind`.
    pub fn rewind(&mut self) -> Result<(), Failure> {
        if let ListingTail::Files(files) = &mut self.more { files.rewind() } else { Ok(()) }
    }

    /// Returns the entry at `cookie`, counted from 0; nothing past the end. EIO if the id of a record can't be read,
    /// ESTALE if the folder that is listed was removed.
    pub fn item(&mut self, cookie: u64) -> Result<Option<ListItem<'_>>, Failure> {
        let index = usize::try_from(cookie).unwrap_or(usize::MAX);
        if let Some(found) = self.names.get(index) {
            return Ok(Some(ListItem::Named(&found.name, &found.node)));
        }
        let index = index - self.names.len();
        Ok(match &mut self.more {
            ListingTail::Nothing => None,
            ListingTail::Records(records) => records.get(index)?.map(|(id, node)| ListItem::Record(id, node)),
            ListingTail::Files(files) => files.get(index).map(|(name, node)| ListItem::File(name, node)),
        })
    }
}

impl Records {
    /// Takes a snapshot of the view; no page is loaded yet.
    pub fn new(view: View, snapshot: Snapshot) -> Records {
        Records { view, snapshot, page_ends: Vec::new(), page: Vec::new(), page_number: None }
    }

    fn get(&mut self, index: usize) -> Result<Option<(Arc<str>, FsNode)>, Failure> {
        let id = self.id(index)?;
        Ok(id.map(|id| (id.clone(), FsNode::Record(self.view.clone(), id))))
    }

    fn id(&mut self, index: usize) -> Result<Option<Arc<str>>, Failure> {
        let page = index / PAGE_NAMES;
        // A cookie that was given leads to a page whose beginning is known. Another one, made up by
        // the caller, is walked to.
        while self.page_ends.len() < page {
            self.load(self.page_ends.len())?;
            if self.page.len() < PAGE_NAMES {
                return Ok(None);
            }
        }
        if self.page_number != Some(page) {
            self.load(page)?;
        }
        Ok(self.page.get(index % PAGE_NAMES).cloned())
    }

    fn load(&mut self, page: usize) -> Result<(), Failure> {
        let after = page.checked_sub(1).map(|before| self.page_ends[before].clone());
        self.page = self.snapshot.ids_after(after.as_deref(), PAGE_NAMES)?;
        self.page_number = Some(page);
        if let (true, Some(last)) = (self.page.len() == PAGE_NAMES && page == self.page_ends.len(), self.page.last()) {
            self.page_ends.push(last.clone());
        }
        Ok(())
    }
}
