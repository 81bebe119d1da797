//! Generated documents of a view, and the cache that makes their lengths cheap.
//!
//! A document is one file here, with its [`DocumentSpec`], and a variant of [`Document`]. `fs` lists and opens all of them by
//! [`Document::ALL`].

mod conflicts;
mod diff;
mod readme;
mod status;

use std::collections::HashMap;
use std::sync::Arc;

pub use status::LiveStatus;
pub(super) use status::{LeaseStatus, padded_bytes};

use crate::memory::catalog::shared_log::SharedLogCursor;
use crate::memory::catalog::{BranchId, Catalog, ResolvedView, View};
use crate::memory::{Error, Memory};
use crate::object::Time;

/// A document that is generated, and kept until what it shows changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Document {
    /// `README.md`: where the reader is, what is here, how to use it.
    Readme,
    /// `status`: the branch in figures, one line of JSON.
    Status,
    /// `diff`: a line of JSON for each record and file that differs from the branch's base.
    Diff,
    /// `conflicts`: what both sides changed since the base. Empty for root branches and for views of the past.
    Conflicts,
}

impl Document {
    /// All documents, in the order of a listing.
    pub const ALL: [Document; 4] = [Document::Readme, Document::Status, Document::Diff, Document::Conflicts];

    /// Returns the name of its file in the directory of a branch.
    pub fn file_name(self) -> &'static str {
        self.spec().file_name
    }

    /// Returns whether stat(2) shows its length; if not, it shows 0, as in /proc.
    pub fn has_length(self) -> bool {
        self.spec().has_length
    }

    /// Returns whether it shows what the parent has, so that its reader must be able to read the parent.
    pub fn shows_parent(self) -> bool {
        self.spec().shows_parent
    }

    fn spec(self) -> &'static DocumentSpec {
        match self {
            Document::Readme => &readme::README,
            Document::Status => &status::STATUS,
            Document::Diff => &diff::DIFF,
            Document::Conflicts => &conflicts::CONFLICTS,
        }
    }
}

/// What tells a document from others.
struct DocumentSpec {
    /// Its name in the directory of a branch, reserved in `branch/names.rs`.
    file_name: &'static str,
    /// Whether stat(2) shows its length, which takes rendering it.
    has_length: bool,
    /// Whether it shows what the parent has.
    shows_parent: bool,
    /// Returns a number that is another one when what it shows changes without an entry of the branch, its parent or their root
    /// branch and without an edit of files, a new path, cursor or lease.
    change_count: fn(&Memory, &Catalog, &ResolvedView<'_>) -> u64,
    /// Returns its bytes.
    render: Render,
}

type Render = fn(&Memory, &Catalog, &View, &ResolvedView<'_>) -> Result<Vec<u8>, Error>;

/// Documents that were rendered; one whose version is not that of the present is rendered again.
#[derive(Default)]
pub(in crate::memory) struct DocumentCache {
    documents: HashMap<(View, Document), RenderedDocument>,
    /// How many bytes these have together.
    bytes: usize,
}

impl DocumentCache {
    /// Forgets the documents of a branch that has ended, or from which something was purged.
    pub(in crate::memory) fn forget(&mut self, branch: BranchId) {
        self.documents.retain(|(view, _), _| view.branch() != branch);
        self.bytes = self.documents.values().map(|(_, bytes)| bytes.len()).sum();
    }

    fn get(&self, key: &(View, Document), of: &DocumentVersion) -> Option<Arc<[u8]>> {
        self.documents.get(key).filter(|(version, _)| version == of).map(|(_, bytes)| bytes.clone())
    }

    /// Keeps a document unless it is too long; what went for it is returned, to be dropped with no lock held.
    fn put(&mut self, key: (View, Document), (version, bytes): RenderedDocument) -> Option<DocumentCache> {
        let before = self.documents.get(&key).map_or(0, |(_, bytes)| bytes.len());
        if bytes.len() > DOCUMENT_BYTES_MAX {
            self.documents.remove(&key);
            self.bytes -= before;
            return None;
        }
        let is_full = self.documents.len() >= CACHED_MAX || self.bytes + bytes.len() > CACHED_BYTES_MAX;
        let gone = is_full.then(|| std::mem::take(self));
        self.bytes += bytes.len();
        self.bytes -= if gone.is_none() { before } else { 0 };
        self.documents.insert(key, (version, bytes));
        gone
    }
}

type RenderedDocument = (DocumentVersion, Arc<[u8]>);

/// What a document was rendered from: it changes whenever the document may, and may change when that does not.
#[derive(PartialEq)]
struct DocumentVersion {
    /// Last entries of the branch, its parent and its root branch, and how far what else is shown has come.
    counters: [u64; 6],
    // What changes without an entry of the branch.
    path: Arc<str>,
    cursor: SharedLogCursor,
    lease_since: Option<Time>,
}

/// How many documents are kept; when there are more, all go.
const CACHED_MAX: usize = 4096;
/// Bytes of all of them; beyond that all go, too. Nobody's share of memory counts them.
const CACHED_BYTES_MAX: usize = 32 << 20;
/// Bytes of the longest that is kept: `diff` and `conflicts` have a line for each record. No stat(2) asks for those.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

impl Memory {
    /// Returns the bytes of a document. They are cached until something in them changes, so asking for the length first
    /// costs nothing more.
    ///
    /// Fails with `Gone` if the branch has ended, and with kind `NotFound` if the checkpoint, proposal or earlier state
    /// is not there. `Document::Conflicts` of a branch may note conflicts that were resolved by writing, and then fails
    /// like a change.
    pub fn document(&self, view: &View, document: Document) -> Result<Arc<[u8]>, Error> {
        if let (View::Branch(branch), Document::Conflicts) = (view, document) {
            self.resolve_written(*branch)?;
        }
        let catalog = self.catalog().clone();
        let seen = ResolvedView::new(&catalog, view)?;
        let version = self.document_version(&catalog, &seen, document);
        let key = (view.clone(), document);
        if let Some(bytes) = self.documents.lock().get(&key, &version) {
            return Ok(bytes);
        }
        let bytes: Arc<[u8]> = (document.spec().render)(self, &catalog, view, &seen)?.into();
        let gone = self.documents.lock().put(key, (version, bytes.clone()));
        drop(gone);
        Ok(bytes)
    }

    fn document_version(&self, catalog: &Catalog, resolved: &ResolvedView<'_>, document: Document) -> DocumentVersion {
        let parent = resolved.branch.parent.and_then(|id| catalog.branches.get(&id));
        let (parent, parent_edits) = parent.map_or((0, 0), |parent| (parent.last_entry_seq, parent.file_op_count));
        let root = catalog.branches.get(&resolved.branch.root).map_or(0, |root| root.last_entry_seq);
        DocumentVersion {
            counters: [
                resolved.branch.last_entry_seq,
                resolved.branch.file_op_count,
                parent,
                parent_edits,
                root,
                (document.spec().change_count)(self, catalog, resolved),
            ],
            path: resolved.branch.path.clone(),
            cursor: resolved.branch.cursor,
            lease_since: self.lease_since(resolved.branch.id),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Environment, OpenMode, SharedLogEntryInput};

    #[test]
    fn what_changes_without_an_entry_of_the_branch_is_shown_at_once() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let environment = Environment::real(who.clone());
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        let status = || -> serde_json::Value {
            serde_json::from_slice(&memory.document(&View::Branch(main), Document::Status).unwrap()).unwrap()
        };
        let entries = ["one", "two", "three"].map(|text| SharedLogEntryInput::parse(text).unwrap());
        memory.append_log(&who, main, &entries).unwrap();
        assert_eq!(status()["unread"], 3);
        memory.move_cursor(&who, main, 3).unwrap();
        assert_eq!(status()["unread"], 0);
        assert_eq!(status()["lease"]["held"], false);
        let lease = memory.hold_lease(&who, main).unwrap();
        assert_eq!(status()["lease"]["held"], true);
        drop(lease);
        let mut below = vec![main];
        for name in ["x", "a", "b", "d"] {
            below.push(memory.fork(&who, *below.last().unwrap(), name, None).unwrap());
        }
        let title = || {
            let readme = memory.document(&View::Branch(below[4]), Document::Readme).unwrap();
            String::from_utf8_lossy(&readme).lines().next().unwrap().to_owned()
        };
        assert!(title().contains("main/x/a/b/d"), "{}", title());
        memory.rename_branch(&who, below[2], "c").unwrap();
        assert!(title().contains("main/x/c/b/d"), "{}", title());
    }

    #[test]
    fn few_bytes_are_kept_however_many_and_long_the_documents_are() {
        let version = || DocumentVersion {
            counters: [0; 6],
            path: "main".into(),
            cursor: SharedLogCursor::default(),
            lease_since: None,
        };
        let mut cache = DocumentCache::default();
        let key = |number: usize| (View::At(BranchId(1), number as u64), Document::Diff);
        let mut put = |number: usize, length: usize| {
            cache.put(key(number), (version(), vec![0; length].into()));
            let kept: usize = cache.documents.values().map(|(_, bytes)| bytes.len()).sum();
            assert_eq!(cache.bytes, kept, "{number}");
            (cache.get(&key(number), &version()).is_some(), cache.documents.len())
        };
        assert_eq!([put(0, 100), put(1, DOCUMENT_BYTES_MAX), put(1, 7)], [(true, 1), (true, 2), (true, 2)]);
        assert_eq!(put(1, DOCUMENT_BYTES_MAX + 1), (false, 1), "and the shorter one before it is none of the present");
        let most = CACHED_BYTES_MAX / DOCUMENT_BYTES_MAX;
        let counts: Vec<usize> = (2..2 * most).map(|number| put(number, DOCUMENT_BYTES_MAX).1).collect();
        assert_eq!(counts.iter().max(), Some(&most));
        cache.forget(BranchId(1));
        assert_eq!((cache.bytes, cache.documents.len()), (0, 0));
    }
}
