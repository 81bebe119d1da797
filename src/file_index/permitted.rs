//! What of the visible files one caller may read: nothing else counts for an answer, not even in its statistics.

use std::collections::HashSet;
use std::sync::Arc;

use super::access::{AccessCheck, Credentials};
use super::index_segment::{IndexSegment, PassageLocation};
use super::passage::PassageKey;
use super::visible::{Inodes, VisibleFiles, VisiblePart, paths};
use crate::segment::SegmentError;
use crate::sync::Mutex;
use crate::text::CollectionTotals;
use crate::workspace::{Packs, Tree, TreeError};

/// Readers of one tree whose answers are kept; the oldest answer goes first.
const READERS_MAX: usize = 8;

/// The last [`READERS_MAX`] who asked with what they may see, the oldest first. Branches of several owners share a tree, and
/// its root is not the same user's in all of them.
#[derive(Default)]
pub(super) struct PermittedCache(Mutex<Vec<(TreeReader, Arc<PermittedParts>)>>);

/// Who reads a tree, and who owns its root.
#[derive(Clone, PartialEq, Eq)]
struct TreeReader {
    credentials: Credentials,
    root_owner: u32,
}

/// What one reader may see of the index of one tree, kept for the reader's next query.
pub(super) struct PermittedParts {
    parts: Vec<VisiblePart>,
    totals: CollectionTotals,
    /// Inodes of the files that the reader may not read, whether they are indexed or not.
    unreadable: HashSet<u64>,
}

/// The indexed files that one caller may read in one tree.
#[derive(Clone)]
pub struct PermittedFiles {
    files: Arc<VisibleFiles>,
    reader: TreeReader,
    permitted: Arc<PermittedParts>,
}

/// A file that shows a passage; several may show the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePath {
    /// Its path below `files/`: the least of its names that the caller can reach.
    pub path: Vec<u8>,
    /// Its number in the branch's tree.
    pub inode: u64,
}

impl TreeReader {
    fn access_check<'a>(&'a self, tree: &'a Tree) -> AccessCheck<'a> {
        AccessCheck::new(tree, self.root_owner, &self.credentials)
    }
}

impl VisibleFiles {
    /// Returns what a caller may read. It costs what is not open to everybody, and nothing for the last 8 who asked.
    /// [`SegmentError::Io`] or [`SegmentError::Damaged`] if a segment with passages of a file that they may not read
    /// can't be read or is damaged.
    pub fn permitted(
        self: &Arc<VisibleFiles>,
        reader: &Credentials,
        owner: u32,
    ) -> Result<PermittedFiles, SegmentError> {
        let reader = TreeReader { credentials: reader.clone(), root_owner: owner };
        let known = self.permitted.0.lock().iter().find(|(known, _)| *known == reader).map(|(_, found)| found.clone());
        let permitted = match known {
            Some(permitted) => permitted,
            None => {
                // Without the lock, which others with a known answer need. Two who ask at once may both compute the
                // same.
                let found = Arc::new(self.compute_permitted(&reader)?);
                let mut cache = self.permitted.0.lock();
                if cache.iter().all(|(known, _)| *known != reader) {
                    if cache.len() >= READERS_MAX {
                        cache.remove(0);
                    }
                    cache.push((reader.clone(), found.clone()));
                }
                found
            }
        };
        Ok(PermittedFiles { files: self.clone(), reader, permitted })
    }

    fn compute_permitted(&self, reader: &TreeReader) -> Result<PermittedParts, SegmentError> {
        let mut found = PermittedParts { parts: self.parts.clone(), totals: self.totals, unreadable: HashSet::new() };
        if reader.credentials.uid == 0 || self.restricted.is_empty() {
            return Ok(found);
        }
        let mut access = reader.access_check(&self.tree);
        // Only what is restricted can be unreadable, with all that is below a directory that the reader may not
        // search.
        let mut waiting: Vec<u64> = self.restricted.iter().copied().collect();
        let mut seen = HashSet::new();
        while let Some(inode) = waiting.pop() {
            if !seen.insert(inode) {
                continue;
            }
            match self.tree.node(inode).ok().and_then(|node| node.directory()) {
                Some(_) if access.may_search(inode) => {}
                Some(_) => waiting.extend(self.tree.entries(inode, None).into_iter().flatten().map(|(_, inode)| inode)),
                None if access.may_find(inode, &self.hidden) => {}
                None => _ = found.unreadable.insert(inode),
            }
        }
        for inode in &found.unreadable {
            // Files that are hidden or not indexed have no key: they show no passage to begin with.
            let Some(key) = self.keys.get(inode) else { continue };
            for part in &mut found.parts {
                if let Some(rows) = part.segment.find(key)?
                    && !rows.is_empty()
                    && part.file_count(rows.start) > 0
                {
                    part.show_rows(rows, false, &mut found.totals)?;
                    // At most one segment shows a content, see `VisibleFiles::show`.
                    break;
                }
            }
        }
        Ok(found)
    }
}

impl PermittedFiles {
    /// Returns what the caller may see of each segment: rows that only files show which are shut to the caller are not
    /// in it.
    pub fn parts(&self) -> &[VisiblePart] {
        &self.permitted.parts
    }

    /// Returns number and length of the passages, each counted once for every file that shows it: what BM25 weighs
    /// against.
    pub fn passage_totals(&self) -> CollectionTotals {
        self.permitted.totals
    }

    /// Returns the files that show a passage, in order of their paths. Empty if the caller can reach none of them.
    /// [`SegmentError::Io`] or [`SegmentError::Damaged`] if the segment can't be read or is damaged.
    pub fn files_with_passage(&self, segment: &IndexSegment, row: u32) -> Result<Vec<FilePath>, SegmentError> {
        let key = segment.row_key(row)?;
        let inodes = self.files.files.get(&key).into_iter().flat_map(Inodes::iter);
        let mut access = self.reader.access_check(&self.files.tree);
        let mut path = |inode: u64| {
            let open = |(directory, path): (u64, Vec<u8>)| {
                (access.may_search(directory) && !self.files.hidden.hides(&path)).then_some(path)
            };
            paths(&self.files.tree, inode).filter_map(open).min()
        };
        let readable = inodes.filter(|inode| !self.permitted.unreadable.contains(inode));
        let mut found: Vec<FilePath> =
            readable.filter_map(|inode| Some(FilePath { path: path(inode)?, inode })).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Reads the text of a passage from a file, and checks that it is the indexed one. If it is not, the segment is not
    /// used any more. The text is that of the indexed file, which may have changed since. Reads no more bytes than the
    /// passage has. Fails with [`SegmentError::Damaged`] if the bytes are others, and also where the tree does not have
    /// that file; with [`SegmentError::Io`] if they can't be read.
    pub fn text(
        &self,
        (segment, location): (&IndexSegment, &PassageLocation),
        inode: u64,
        packs: &dyn Packs,
    ) -> Result<String, SegmentError> {
        let read = self.files.tree.read(inode, u64::from(location.start_byte), location.length_bytes as usize, packs);
        let bytes = read.map_err(|error| match error {
            TreeError::Segment(error) => error,
            error => SegmentError::Damaged { name: "of a file".to_owned(), reason: error.to_string() },
        })?;
        let text = String::from_utf8(bytes).ok().filter(|text| PassageKey::from_text(text) == location.key);
        text.ok_or_else(|| segment.mark_broken("a passage is not that of the file"))
    }
}
