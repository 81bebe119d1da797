//! What of the index one tree of files shows: a value that follows the tree at the cost of what changed.

use std::ops::Range;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use roaring::RoaringBitmap;

use super::access::is_restricted;
use super::content::{IndexKey, IndexableContent};
use super::index_segment::IndexSegment;
use super::permitted::PermittedCache;
use crate::segment::SegmentError;
use crate::text::CollectionTotals;
use crate::workspace::{FileNode, Tree};

/// The segments of an index at one moment; each change makes another set.
#[derive(Clone, Default)]
pub struct SegmentSet {
    /// Grows with every change: [`VisibleFiles::is_current_for`] compares it in place of the segments.
    pub version: u64,
    /// Newest last: look-ups begin with that.
    pub segments: Vec<Arc<IndexSegment>>,
}

impl SegmentSet {
    /// Returns the newest sound segment that has a content, and its rows there.
    fn find(&self, key: &IndexKey) -> Option<(&Arc<IndexSegment>, Range<u32>)> {
        // A broken segment is as good as none: its contents are indexed again.
        self.segments.iter().rev().find_map(|segment| Some((segment, segment.find(key).ok()??)))
    }

    fn contains(&self, segment: &Arc<IndexSegment>) -> bool {
        self.segments.iter().any(|other| Arc::ptr_eq(other, segment))
    }
}

type HidesPath = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Which paths of a tree are kept out of the index.
#[derive(Clone)]
pub struct HiddenPaths {
    /// Stands for `hides` where rules are compared, since closures can't be.
    pub rules: Arc<str>,
    /// Whether a path, names joined by `/`, is kept out; `None` if nothing is.
    pub hides: Option<HidesPath>,
}

impl HiddenPaths {
    /// Returns whether a path, names joined by `/`, is kept out.
    pub(super) fn hides(&self, path: &[u8]) -> bool {
        self.hides.as_ref().is_some_and(|hides| hides(path))
    }
}

/// The files with one content: usually one, but all empty files share one.
#[derive(Clone)]
pub(super) enum Inodes {
    /// The one file; no set is made for it.
    One(u64),
    /// Two or more at some time. It never goes back to `One`, and is never empty.
    Many(OrdSet<u64>),
}

impl Inodes {
    /// Iterates over the inodes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        let (one, many) = match self {
            Inodes::One(inode) => (Some(*inode), None),
            Inodes::Many(all) => (None, Some(all.iter().copied())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    fn len(&self) -> usize {
        match self {
            Inodes::One(_) => 1,
            Inodes::Many(all) => all.len(),
        }
    }

    fn with_inode(&self, inode: u64) -> Inodes {
        Inodes::Many(match self {
            Inodes::One(other) => OrdSet::from_iter([*other, inode]),
            Inodes::Many(all) => all.update(inode),
        })
    }

    fn without_inode(&self, inode: u64) -> Option<Inodes> {
        match self {
            Inodes::One(other) => (*other != inode).then(|| self.clone()),
            Inodes::Many(all) => Some(all.without(&inode)).filter(|left| !left.is_empty()).map(Inodes::Many),
        }
    }
}

/// The visible rows of one segment, and how many files show each.
#[derive(Clone)]
pub struct VisiblePart {
    /// The segment of the rows.
    pub segment: Arc<IndexSegment>,
    /// Its rows that some file shows.
    pub(super) rows: Arc<RoaringBitmap>,
    /// The number of files for rows shown by several.
    pub(super) repeated: OrdMap<u32, u32>,
}

impl VisiblePart {
    /// Returns how many files show a row; 0 if none does.
    pub fn file_count(&self, row: u32) -> u32 {
        if !self.rows.contains(row) {
            return 0;
        }
        self.repeated.get(&row).copied().unwrap_or(1)
    }

    /// Returns the first row from `row` on that some file shows; `None` if there is none.
    pub fn next_visible_row(&self, row: u32) -> Option<u32> {
        self.rows.range(row..).next()
    }

    /// Returns how many rows some file shows.
    pub fn visible_row_count(&self) -> u64 {
        self.rows.len()
    }

    /// Iterates over the rows that some file shows, ascending.
    pub fn visible_rows(&self) -> impl Iterator<Item = u32> {
        self.rows.iter()
    }

    /// Returns whether each row is shown by exactly one file.
    pub fn shows_each_row_once(&self) -> bool {
        self.repeated.is_empty() && self.rows.len() == u64::from(self.segment.rows())
    }

    /// Shows rows once more, or once less; the totals follow. [`SegmentError::Io`] or [`SegmentError::Damaged`] if the
    /// segment's postings can't be read; nothing has changed then.
    pub(super) fn show_rows(
        &mut self,
        rows: Range<u32>,
        is_added: bool,
        totals: &mut CollectionTotals,
    ) -> Result<(), SegmentError> {
        let postings = self.segment.postings()?;
        for row in rows {
            let times = self.file_count(row);
            let times = if is_added { times + 1 } else { times.saturating_sub(1) };
            let shown = Arc::make_mut(&mut self.rows);
            _ = if times == 0 { shown.remove(row) } else { shown.insert(row) };
            _ = if times > 1 { self.repeated.insert(row, times) } else { self.repeated.remove(&row) };
            let length = u64::from(postings.length(row));
            match is_added {
                true => totals.add(postings.length(row)),
                false => (totals.documents, totals.length) = (totals.documents - 1, totals.length - length),
            }
        }
        Ok(())
    }
}

/// The indexed files of a tree. A clone shares everything with its original until one of them changes.
pub struct VisibleFiles {
    /// The tree that all else was worked out from. Other trees are compared with it.
    pub(super) tree: Tree,
    /// The rules by which files were left out; other rules make all of it anew.
    pub(super) hidden: HiddenPaths,
    /// By inode, the content of each file that is not hidden.
    pub(super) keys: OrdMap<u64, IndexKey>,
    /// The inverse of `keys`.
    pub(super) files: OrdMap<IndexKey, Inodes>,
    /// Contents that no segment has.
    unindexed: OrdSet<IndexKey>,
    /// Files and directories that not everybody may read or search.
    pub(super) restricted: OrdSet<u64>,
    /// Segments that showed something at some time. At most one of them shows a given content.
    pub(super) parts: Vec<VisiblePart>,
    /// Over all parts; a passage counts once for each file that shows it.
    pub(super) totals: CollectionTotals,
    version: u64,
    /// Answers for readers of exactly this value. What is advanced from it to another tree begins without any.
    pub(super) permitted: PermittedCache,
}

impl VisibleFiles {
    /// Begins with no file; [`VisibleFiles::updated_for`] takes in those of a tree.
    pub fn none(hidden: HiddenPaths) -> VisibleFiles {
        VisibleFiles {
            tree: Tree::default(),
            hidden,
            keys: OrdMap::new(),
            files: OrdMap::new(),
            unindexed: OrdSet::new(),
            restricted: OrdSet::new(),
            parts: Vec::new(),
            totals: CollectionTotals::default(),
            version: 0,
            permitted: PermittedCache::default(),
        }
    }

    /// Returns whether this was made from this tree, these rules and these segments.
    pub fn is_current_for(&self, tree: &Tree, hidden: &HiddenPaths, set: &SegmentSet) -> bool {
        self.version == set.version && self.tree.is_clone_of(tree) && self.hidden.rules == hidden.rules
    }

    /// Returns what another tree shows. It costs what differs between the trees and the sets of segments; all of them
    /// where the rules have changed.
    ///
    /// This one stays as it is. After an error begin with [`VisibleFiles::none`].
    pub fn updated_for(
        &self,
        tree: &Tree,
        hidden: &HiddenPaths,
        set: &SegmentSet,
    ) -> Result<VisibleFiles, SegmentError> {
        let is_other =
            self.hidden.rules != hidden.rules || hidden.hides.is_some() && moves_directories(&self.tree, tree);
        let mut next = if is_other { VisibleFiles::none(hidden.clone()) } else { self.fresh_clone() };
        if next.version != set.version {
            next.update_segments(set)?;
        }
        let before = next.tree.clone();
        next.tree = tree.clone();
        for changed in before.changed_nodes(tree) {
            next.update_inode(changed.inode, changed.new.map(|node| &**node), set)?;
        }
        // Who may read what depends on tree and rules alone; if either is another, nothing that was found out holds.
        if !is_other && before.is_clone_of(tree) {
            next.permitted = self.permitted.for_same_tree(next.shows_same_rows(self));
        }
        Ok(next)
    }

    fn fresh_clone(&self) -> VisibleFiles {
        VisibleFiles {
            tree: self.tree.clone(),
            hidden: self.hidden.clone(),
            keys: self.keys.clone(),
            files: self.files.clone(),
            unindexed: self.unindexed.clone(),
            restricted: self.restricted.clone(),
            parts: self.parts.clone(),
            permitted: PermittedCache::default(),
            ..*self
        }
    }

    /// Returns whether this shows the very same rows as the value that it was made from. Values that came to show equal ones
    /// by different ways count as different.
    fn shows_same_rows(&self, other: &VisibleFiles) -> bool {
        let is_same = |(part, other): (&VisiblePart, &VisiblePart)| {
            Arc::ptr_eq(&part.segment, &other.segment)
                && Arc::ptr_eq(&part.rows, &other.rows)
                && part.repeated.ptr_eq(&other.repeated)
        };
        self.parts.len() == other.parts.len() && self.parts.iter().zip(&other.parts).all(is_same)
    }

    /// Returns how many files there are, and how many of them are not indexed yet.
    pub fn counts(&self) -> (u64, u64) {
        let files = |key: &IndexKey| self.files.get(key).map_or(0, |inodes| inodes.len() as u64);
        (self.keys.len() as u64, self.unindexed.iter().map(files).sum())
    }

    /// Iterates over the contents that are not indexed yet, each once, whatever number of files has it.
    pub fn unindexed(&self) -> impl Iterator<Item = IndexableContent> {
        self.unindexed.iter().filter_map(|key| {
            let inode = self.files.get(key)?.iter().next()?;
            IndexableContent::from_node(self.tree.node(inode).ok()?)
        })
    }

    /// Iterates over the keys of the contents of all files that are not hidden, indexed or not, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &IndexKey> {
        self.files.keys()
    }

    /// Takes over other segments: contents move from those that are gone to those that have them now.
    fn update_segments(&mut self, set: &SegmentSet) -> Result<(), SegmentError> {
        self.version = set.version;
        let (kept, gone) =
            std::mem::take(&mut self.parts).into_iter().partition::<Vec<_>, _>(|part| set.contains(&part.segment));
        self.parts = kept;
        // What a broken segment shows could only be taken back by reading it, so everything is shown anew.
        if gone.iter().any(|part| part.segment.is_broken()) {
            self.parts.clear();
            self.totals = CollectionTotals::default();
            self.unindexed = self.files.keys().copied().collect();
        } else {
            for mut part in gone {
                // From visible row to visible row: most contents of the segment may be those of other branches.
                let mut next = part.next_visible_row(0);
                while let Some(row) = next {
                    let (key, rows) = part.segment.row_content(row)?;
                    for _ in 0..part.file_count(row) {
                        part.show_rows(rows.clone(), false, &mut self.totals)?;
                    }
                    self.unindexed.insert(key);
                    next = part.next_visible_row(rows.end);
                }
            }
        }
        let unindexed: Vec<IndexKey> = self.unindexed.iter().copied().collect();
        for key in unindexed {
            let times = self.files.get(&key).map_or(0, |inodes| inodes.len());
            if self.show(&key, times, set)? {
                self.unindexed.remove(&key);
            }
        }
        Ok(())
    }

    /// Brings the visible passages up to a change of one inode; `node` is none for one that is gone.
    fn update_inode(&mut self, inode: u64, node: Option<&FileNode>, set: &SegmentSet) -> Result<(), SegmentError> {
        match node.is_some_and(is_restricted) {
            true => _ = self.restricted.insert(inode),
            false => _ = self.restricted.remove(&inode),
        }
        let shown = node.filter(|node| node.nlink() > 0 && !self.is_hidden(inode, node));
        let new_key = shown.and_then(IndexableContent::from_node).map(|content| content.key);
        let old_key = self.keys.get(&inode).copied();
        // A change of attributes or names alone leaves the passages as they are.
        if old_key == new_key {
            return Ok(());
        }
        if let Some(key) = old_key {
            self.remove(inode, &key)?;
        }
        if let Some(key) = new_key {
            self.add(inode, key, set)?;
        }
        Ok(())
    }

    fn add(&mut self, inode: u64, key: IndexKey, set: &SegmentSet) -> Result<(), SegmentError> {
        self.keys.insert(inode, key);
        let inodes = self.files.get(&key).map_or(Inodes::One(inode), |inodes| inodes.with_inode(inode));
        let is_first = matches!(inodes, Inodes::One(_));
        self.files.insert(key, inodes);
        let is_unindexed = if is_first { false } else { self.unindexed.contains(&key) };
        if !is_unindexed && !self.show(&key, 1, set)? {
            self.unindexed.insert(key);
        }
        Ok(())
    }

    fn remove(&mut self, inode: u64, key: &IndexKey) -> Result<(), SegmentError> {
        self.keys.remove(&inode);
        let left = self.files.get(key).and_then(|inodes| inodes.without_inode(inode));
        let is_last = left.is_none();
        match left {
            Some(inodes) => _ = self.files.insert(*key, inodes),
            None => _ = self.files.remove(key),
        }
        // Nothing of the content is shown yet, so that there is nothing to take back.
        if self.unindexed.contains(key) {
            if is_last {
                self.unindexed.remove(key);
            }
            return Ok(());
        }
        for part in &mut self.parts {
            if let Some(rows) = part.segment.find(key)?
                && !rows.is_empty()
                && part.file_count(rows.start) > 0
            {
                return part.show_rows(rows, false, &mut self.totals);
            }
        }
        Ok(())
    }

    /// Shows the passages of a content in `times` more files; returns whether some segment has it.
    fn show(&mut self, key: &IndexKey, times: usize, set: &SegmentSet) -> Result<bool, SegmentError> {
        // First the segment that shows the content already: its passages must not appear from two segments.
        for part in &mut self.parts {
            if let Some(rows) = part.segment.find(key)?
                && part.file_count(rows.start) > 0
                && !rows.is_empty()
            {
                for _ in 0..times {
                    part.show_rows(rows.clone(), true, &mut self.totals)?;
                }
                return Ok(true);
            }
        }
        let Some((segment, rows)) = set.find(key) else { return Ok(false) };
        if rows.is_empty() {
            return Ok(true);
        }
        let place = self.parts.iter().position(|part| Arc::ptr_eq(&part.segment, segment));
        let place = place.unwrap_or_else(|| {
            let (segment, rows) = (segment.clone(), Arc::default());
            self.parts.push(VisiblePart { segment, rows, repeated: OrdMap::new() });
            self.parts.len() - 1
        });
        for _ in 0..times {
            self.parts[place].show_rows(rows.clone(), true, &mut self.totals)?;
        }
        Ok(true)
    }

    /// Returns whether every name of a file is hidden.
    fn is_hidden(&self, inode: u64, node: &FileNode) -> bool {
        self.hidden.hides.is_some()
            && node.content().is_some()
            && paths(&self.tree, inode).all(|(_, path)| self.hidden.hides(&path))
    }
}

/// Iterates over the paths of a file, each with the directory that it is in.
pub(super) fn paths(tree: &Tree, inode: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let names = tree.node(inode).ok().into_iter().flat_map(|node| node.names());
    names.filter_map(|(directory, name)| {
        let mut path = tree.path(directory)?;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Some((directory, path))
    })
}

/// Returns whether a directory has another place, so that all below it has another path.
fn moves_directories(old: &Tree, new: &Tree) -> bool {
    old.changed_nodes(new).any(|changed| match (changed.old, changed.new) {
        (Some(old), Some(new)) => old.directory().is_some() && !old.names().eq(new.names()),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a map takes for an entry. Its nodes have 16 places, of which half are free at worst as long as files only
    /// come; the nodes above those with entries take about an eighth of that.
    fn entry_bytes<K, V>(_: &OrdMap<K, V>) -> usize {
        2 * size_of::<(K, V)>() * 9 / 8
    }

    fn member_bytes<K>(_: &OrdSet<K>) -> usize {
        2 * size_of::<K>() * 9 / 8
    }

    #[test]
    fn what_is_kept_of_a_view_takes_some_300_bytes_a_file() {
        let files = VisibleFiles::none(HiddenPaths { rules: "".into(), hides: None });
        // Without `..`, so that a new field has to be thought of here. The tree is the branch's own, rows are bits.
        let VisibleFiles {
            keys,
            files,
            unindexed,
            restricted,
            tree: _,
            hidden: _,
            parts: _,
            totals: _,
            version: _,
            permitted: _,
        } = &files;
        // A file that is not indexed yet, has a content of its own and may not be read by everybody.
        let bytes = entry_bytes(keys) + entry_bytes(files) + member_bytes(unindexed) + member_bytes(restricted);
        assert!((270..=330).contains(&bytes), "{bytes}");
    }
}
