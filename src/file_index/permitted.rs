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

/// The last [`READERS_MAX`] who asked, the oldest first. Branches of several owners share a tree, and its root is not the
/// same user's in all of them.
#[derive(Default)]
pub(super) struct PermittedCache(Mutex<Vec<KnownReader>>);

/// What was found out for one reader.
#[derive(Clone)]
struct KnownReader {
    reader: TreeReader,
    /// Inodes of the files that the reader may not read, whether they are indexed or not: the tree and the rules of what
    /// is hidden decide, whatever the segments are.
    unreadable: Arc<HashSet<u64>>,
    /// `None` if the reader has not asked since other segments were taken over.
    permitted: Option<Arc<PermittedParts>>,
}

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
    /// As in [`KnownReader`].
    unreadable: Arc<HashSet<u64>>,
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

impl PermittedCache {
    /// Returns what still holds for the very same tree and rules: all of it if the very same rows are shown, else only which
    /// files each reader may not read.
    pub(super) fn for_same_tree(&self, shows_same_rows: bool) -> PermittedCache {
        let mut known = self.0.lock().clone();
        if !shows_same_rows {
            known.iter_mut().for_each(|known| known.permitted = None);
        }
        PermittedCache(Mutex::new(known))
    }

    fn find(&self, reader: &TreeReader) -> Option<KnownReader> {
        self.0.lock().iter().find(|known| known.reader == *reader).cloned()
    }

    /// Keeps the answer for a reader, unless there is one.
    fn keep(&self, reader: &TreeReader, permitted: &Arc<PermittedParts>) {
        let mut cache = self.0.lock();
        if let Some(known) = cache.iter_mut().find(|known| known.reader == *reader) {
            if known.permitted.is_none() {
                known.permitted = Some(permitted.clone());
            }
            return;
        }
        if cache.len() >= READERS_MAX {
            cache.remove(0);
        }
        let unreadable = permitted.unreadable.clone();
        cache.push(KnownReader { reader: reader.clone(), unreadable, permitted: Some(permitted.clone()) });
    }
}

impl VisibleFiles {
    /// Returns what a caller may read. It costs what is not open to everybody, and nothing for the last 8 who asked; for
    /// one of these, once other segments show the tree's files, what they may not read. [`SegmentError::Io`] or
    /// [`SegmentError::Damaged`] if a segment with passages of a file that they may not read can't be read or is damaged.
    pub fn permitted(
        self: &Arc<VisibleFiles>,
        reader: &Credentials,
        owner: u32,
    ) -> Result<PermittedFiles, SegmentError> {
        let reader = TreeReader { credentials: reader.clone(), root_owner: owner };
        let (unreadable, permitted) = match self.permitted.find(&reader) {
            Some(known) => (Some(known.unreadable), known.permitted),
            None => (None, None),
        };
        let permitted = match permitted {
            Some(permitted) => permitted,
            None => {
                // Without the lock, which others with a known answer need. Two who ask at once may both compute the
                // same.
                let unreadable = unreadable.unwrap_or_else(|| Arc::new(self.find_unreadable(&reader)));
                let found = Arc::new(self.compute_permitted(unreadable)?);
                self.permitted.keep(&reader, &found);
                found
            }
        };
        Ok(PermittedFiles { files: self.clone(), reader, permitted })
    }

    fn find_unreadable(&self, reader: &TreeReader) -> HashSet<u64> {
        let mut unreadable = HashSet::new();
        if reader.credentials.uid == 0 || self.restricted.is_empty() {
            return unreadable;
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
                None => _ = unreadable.insert(inode),
            }
        }
        unreadable
    }

    fn compute_permitted(&self, unreadable: Arc<HashSet<u64>>) -> Result<PermittedParts, SegmentError> {
        let (mut parts, mut totals) = (self.parts.clone(), self.totals);
        for inode in unreadable.iter() {
            // Files that are hidden or not indexed have no key: they show no passage to begin with.
            let Some(key) = self.keys.get(inode) else { continue };
            for part in &mut parts {
                if let Some(rows) = part.segment.find(key)?
                    && !rows.is_empty()
                    && part.file_count(rows.start) > 0
                {
                    part.show_rows(rows, false, &mut totals)?;
                    // At most one segment shows a content, see `VisibleFiles::show`.
                    break;
                }
            }
        }
        Ok(PermittedParts { parts, totals, unreadable })
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::{HiddenPaths, IndexableContent, SegmentSet, index_contents, merge_segments};
    use super::*;
    use crate::object::Time;
    use crate::workspace::{Attrs, FileName, FileOp, NewInode, NoPacks, ROOT};

    const OWNER: u32 = 1;

    fn nothing_hidden() -> HiddenPaths {
        HiddenPaths { rules: "".into(), hides: None }
    }

    fn reader(uid: u32, group: u32) -> Credentials {
        Credentials { uid, groups: vec![group], knows_all_groups: true }
    }

    fn create(tree: &mut Tree, name: &str, mode: u32) -> u64 {
        let name = FileName::new(name.as_bytes()).unwrap();
        let op = FileOp::Create { parent: ROOT, name, make: NewInode::File, mode, uid: OWNER, gid: 9 };
        tree.apply(&op, Time(0), &NoPacks).unwrap().inode
    }

    fn write(tree: &mut Tree, inode: u64, text: &str) {
        tree.apply(&FileOp::Write { inode, offset: 0, bytes: text.as_bytes().into() }, Time(0), &NoPacks).unwrap();
    }

    fn set_mode(tree: &mut Tree, inode: u64, mode: u32) {
        let attrs = Attrs { mode: Some(mode), ..Attrs::default() };
        tree.apply(&FileOp::SetAttr { inode, attrs }, Time(0), &NoPacks).unwrap();
    }

    /// A tree with a file that only owner and group may read, one that all but the owner may, and one that everybody may,
    /// which has the text of the first; and their inodes.
    fn tree() -> (Tree, [u64; 3]) {
        let mut tree = Tree::new(0o755, OWNER, 9, Time(0));
        let files = [("closed", 0o640), ("for_others", 0o044), ("same", 0o644)];
        let inodes = files.map(|(name, mode)| create(&mut tree, name, mode));
        for (inode, text) in inodes.into_iter().zip(["words one", "words two two", "words one"]) {
            write(&mut tree, inode, text);
        }
        (tree, inodes)
    }

    /// Sets of segments with the files of a tree: at first, with one of another branch beside it, and with both merged.
    fn segment_sets(tree: &Tree, inodes: &[u64]) -> [SegmentSet; 3] {
        let index = |tree: &Tree, inodes: &[u64]| {
            let content = |inode: &u64| IndexableContent::from_node(tree.node(*inode).unwrap()).unwrap();
            index_contents(inodes.iter().map(content).collect(), &NoPacks).segment.unwrap()
        };
        let mut other = Tree::default();
        let inode = create(&mut other, "other", 0o644);
        write(&mut other, inode, "words of another branch");
        let both = [index(tree, inodes), index(&other, &[inode])];
        let merged = merge_segments(&both, |_| true).unwrap().unwrap();
        [
            SegmentSet { version: 1, segments: vec![both[0].clone()] },
            SegmentSet { version: 2, segments: both.to_vec() },
            SegmentSet { version: 3, segments: vec![merged] },
        ]
    }

    fn update(files: &VisibleFiles, tree: &Tree, set: &SegmentSet) -> Arc<VisibleFiles> {
        Arc::new(files.updated_for(tree, &files.hidden, set).unwrap())
    }

    fn shown(files: &PermittedFiles) -> (Vec<(u32, u32)>, CollectionTotals) {
        let rows = |part: &VisiblePart| -> Vec<(u32, u32)> {
            part.visible_rows().map(|row| (row, part.file_count(row))).collect()
        };
        (files.parts().iter().flat_map(rows).collect(), files.passage_totals())
    }

    fn unreadable(files: &PermittedFiles) -> Vec<u64> {
        let mut inodes: Vec<u64> = files.permitted.unreadable.iter().copied().collect();
        inodes.sort_unstable();
        inodes
    }

    #[test]
    fn while_the_tree_is_the_same_other_segments_leave_what_a_reader_may_not_read() {
        let (tree, inodes) = tree();
        let [first, with_another, merged] = segment_sets(&tree, &inodes);
        let (none, stranger) = (VisibleFiles::none(nothing_hidden()), reader(2, 2));
        let files = update(&none, &tree, &first);
        let before = files.permitted(&stranger, OWNER).unwrap();
        assert_eq!((unreadable(&before), before.passage_totals().documents), (vec![inodes[0]], 2));

        // What another branch has indexed shows nothing here.
        let files = update(&files, &tree, &with_another);
        let beside = files.permitted(&stranger, OWNER).unwrap();
        assert!(Arc::ptr_eq(&beside.permitted, &before.permitted));

        let files = update(&files, &tree, &merged);
        let after = files.permitted(&stranger, OWNER).unwrap();
        assert!(Arc::ptr_eq(&after.permitted.unreadable, &before.permitted.unreadable));
        assert!(after.parts().iter().all(|part| Arc::ptr_eq(&part.segment, &merged.segments[0])));
        let anew = update(&none, &tree, &merged).permitted(&stranger, OWNER).unwrap();
        assert_eq!(shown(&after), shown(&anew));
        let again = files.permitted(&stranger, OWNER).unwrap();
        assert!(Arc::ptr_eq(&again.permitted, &after.permitted));
    }

    #[test]
    fn in_another_tree_or_under_other_rules_nothing_that_was_found_out_counts() {
        let (before, inodes) = tree();
        let [closed, for_others, same] = inodes;
        let [first, _, merged] = segment_sets(&before, &inodes);
        let stranger = reader(2, 2);
        let files = update(&VisibleFiles::none(nothing_hidden()), &before, &first);
        assert_eq!(unreadable(&files.permitted(&stranger, OWNER).unwrap()), [closed]);

        // One in which a file was closed, and one with the very same inodes that was given to the reader as a whole.
        let (mut changed, mut given) = (before.clone(), before.clone());
        set_mode(&mut changed, same, 0o600);
        given.transfer_owner(OWNER, 2);
        for (tree, expected) in [(changed, [closed, same]), (given, [closed, for_others])] {
            for set in [&first, &merged] {
                let files = update(&files, &tree, set);
                assert!(files.permitted.0.lock().is_empty());
                assert_eq!(unreadable(&files.permitted(&stranger, OWNER).unwrap()), expected);
            }
        }
        let hides = |path: &[u8]| path == b"same";
        let rules = HiddenPaths { rules: "same noindex".into(), hides: Some(Arc::new(hides)) };
        for set in [&first, &merged] {
            assert!(files.updated_for(&before, &rules, set).unwrap().permitted.0.lock().is_empty());
        }
    }

    #[test]
    fn what_was_found_out_counts_for_the_very_same_credentials_and_owner_of_the_root() {
        let (mut tree, inodes) = tree();
        let [closed, for_others, _] = inodes;
        let [first, _, merged] = segment_sets(&tree, &inodes);
        let (none, stranger) = (VisibleFiles::none(nothing_hidden()), reader(2, 2));
        let files = update(&none, &tree, &first);
        files.permitted(&stranger, OWNER).unwrap();
        let files = update(&files, &tree, &merged);
        let uncertain = Credentials { knows_all_groups: false, ..stranger.clone() };
        let found = [&stranger, &uncertain, &reader(2, 9), &reader(OWNER, 2)]
            .map(|reader| unreadable(&files.permitted(reader, OWNER).unwrap()));
        assert_eq!(found, [vec![closed], vec![closed], vec![], vec![for_others]]);

        set_mode(&mut tree, ROOT, 0o700);
        let files = update(&none, &tree, &first);
        files.permitted(&stranger, 2).unwrap();
        let files = update(&files, &tree, &merged);
        let found = [2, OWNER].map(|owner| unreadable(&files.permitted(&stranger, owner).unwrap()));
        assert_eq!(found, [vec![closed], inodes.to_vec()]);
    }
}
