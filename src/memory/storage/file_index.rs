//! The index of files of a store: its segments, and which contents somebody is indexing.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::file_index::{IndexKey, IndexOutcome, IndexSegment, IndexableContent, SegmentSet};
use crate::memory::{Error, Kind};
use crate::object::{BlobStore, Hash};
use crate::segment::{DerivedFile, container_kind};
use crate::sync::{Condvar, Mutex};

/// So many segments of about one size become one, so that a query looks into few.
const MERGE_FANOUT: usize = 8;
/// Bytes up to which segments count as of one size; each next size is eight times as large.
const FIRST_TIER_BYTES: u64 = 16 << 10;
/// Bytes from which on a segment is merged no more, since that would write all of them again.
const MERGED_BYTES_MAX: u64 = 256 << 20;

/// The segments of the index of files. Each change makes another set, and a query goes on with the one that it took.
#[derive(Default)]
pub(in crate::memory) struct FileIndex {
    state: Mutex<FileIndexState>,
    unclaimed: Condvar,
}

#[derive(Default)]
struct FileIndexState {
    set: Arc<SegmentSet>,
    /// Contents that somebody is indexing: nobody else takes them meanwhile.
    claimed: HashSet<IndexKey>,
    /// Contents that could not be read; they are not tried again by the same process.
    unreadable: HashSet<IndexKey>,
    /// Files that the manifest on disk names: an opening after a crash needs them.
    manifest_names: Vec<Hash>,
    /// Purges so far: what was read before one is not indexed after it.
    purge_count: u64,
}

/// How much is claimed at once: a claim ends at the first of its limits.
#[derive(Clone, Copy)]
pub(in crate::memory) struct ClaimLimits {
    /// How many contents at most.
    pub files: usize,
    /// Bytes that are read of them at most.
    pub bytes: u64,
    /// Whether a content that is larger than `bytes` is claimed, too, alone; else it is passed over.
    pub allows_larger: bool,
}

/// Contents that the holder indexes; nobody else does meanwhile.
pub(in crate::memory) struct IndexClaim<'a> {
    index: &'a FileIndex,
    /// Contents to index, within the limits of the claim; each once.
    pub contents: Vec<IndexableContent>,
    keys: Vec<IndexKey>,
    purge_count: u64,
}

impl Drop for IndexClaim<'_> {
    fn drop(&mut self) {
        let mut state = self.index.state.lock();
        for key in &self.keys {
            state.claimed.remove(key);
        }
        drop(state);
        self.index.unclaimed.notify_all();
    }
}

impl FileIndex {
    /// Opens the files that a manifest names, and the vectors of their passages among the sidecars. One that is missing or
    /// damaged is left out, and made again later.
    pub fn open(blobs: &BlobStore, manifest_names: Vec<Hash>, sidecars: &BTreeSet<Hash>) -> FileIndex {
        let open = |name: &Hash| match IndexSegment::open(blobs, *name) {
            Ok(segment) => Some(segment),
            Err(error) => {
                log::warn!("a part of the index of files is made again: {error}");
                None
            }
        };
        let set = SegmentSet { version: 1, segments: manifest_names.iter().filter_map(open).collect() };
        let state = FileIndexState { set: Arc::new(set), manifest_names, ..FileIndexState::default() };
        let index = FileIndex { state: Mutex::new(state), unclaimed: Condvar::default() };
        if !index.segment_set().segments.is_empty() {
            index.attach(blobs, sidecars);
        }
        index
    }

    fn attach(&self, blobs: &BlobStore, sidecars: &BTreeSet<Hash>) {
        let is_derived = |name: &&Hash| container_kind(blobs, **name).is_ok_and(|kind| kind == DerivedFile::KIND);
        for name in sidecars.iter().filter(is_derived) {
            match DerivedFile::open(blobs, *name) {
                Ok(derived) => self.attach_derived(&Arc::new(derived)),
                Err(error) => log::warn!("vectors of passages are made again: {error}"),
            }
        }
    }

    /// Returns the segments of this moment; the set never changes, so a query holds it for as long as it runs.
    pub fn segment_set(&self) -> Arc<SegmentSet> {
        self.state.lock().set.clone()
    }

    /// Returns how many purges there were; what is claimed or kept must have been looked up after the last one.
    pub fn purge_count(&self) -> u64 {
        self.state.lock().purge_count
    }

    /// Notes that contents were purged: the result of indexing that runs now is discarded.
    pub fn note_purge(&self) {
        let mut state = self.state.lock();
        state.purge_count += 1;
        // A purge may have taken away what could not be read, so each content gets another try.
        state.unreadable.clear();
    }

    /// Returns the names of the files of the present segments, sorted, each once.
    pub fn names(&self) -> Vec<Hash> {
        let set = self.segment_set();
        // Equal contents have equal files: one that was damaged may have been made again under its name.
        let names: BTreeSet<Hash> = set.segments.iter().filter_map(|segment| segment.name()).collect();
        names.into_iter().collect()
    }

    /// Returns the files of derived vectors that the present segments have, of all sets.
    pub fn derived_files(&self) -> Vec<Arc<DerivedFile>> {
        self.segment_set().segments.iter().flat_map(|segment| segment.derived().list()).collect()
    }

    /// Adds a file of derived vectors to its segment, if that is open.
    pub fn attach_derived(&self, derived: &Arc<DerivedFile>) {
        let set = self.segment_set();
        if let Some(segment) = set.segments.iter().find(|segment| segment.name() == Some(derived.segment())) {
            segment.derived().attach(derived.clone());
        }
    }

    /// Returns all files that must stay: those of the present segments, and those that the manifest names.
    pub fn live_files(&self) -> HashSet<Hash> {
        let mut live: HashSet<Hash> = self.names().into_iter().collect();
        live.extend(self.derived_files().iter().map(|file| file.name()));
        // What the manifest names is needed by an opening after a crash, though nothing here uses it any more.
        live.extend(&self.state.lock().manifest_names);
        live
    }

    /// Notes which files the manifest names; returns whether it named others that nothing needs any longer.
    pub fn replace_manifest_names(&self, named: &[Hash]) -> bool {
        let before = std::mem::replace(&mut self.state.lock().manifest_names, named.to_vec());
        before.iter().any(|name| !named.contains(name))
    }

    /// Takes contents that nobody else is indexing, as many as the limits allow.
    pub fn claim(
        &self,
        wanted: impl Iterator<Item = IndexableContent>,
        purge_count: u64,
        limits: ClaimLimits,
    ) -> IndexClaim<'_> {
        let mut claim = IndexClaim { index: self, contents: Vec::new(), keys: Vec::new(), purge_count };
        let mut taken = 0;
        let may_claim = |content: &IndexableContent| limits.allows_larger || content.bytes() <= limits.bytes;
        for content in wanted.filter(may_claim) {
            let is_full = claim.contents.len() >= limits.files || taken + content.bytes() > limits.bytes;
            if is_full && !claim.contents.is_empty() {
                break;
            }
            let mut state = self.state.lock();
            if !state.unreadable.contains(&content.key) && state.claimed.insert(content.key) {
                taken += content.bytes();
                claim.keys.push(content.key);
                claim.contents.push(content);
            }
        }
        claim
    }

    /// Adds what was made of a claim, unless a purge came in between. Contents that could not be read are not tried again.
    pub fn publish(&self, claim: IndexClaim<'_>, indexed: IndexOutcome) {
        let mut state = self.state.lock();
        // Compared under the lock that changes the set: a purge in between has looked through the segments that were
        // there.
        if claim.purge_count == state.purge_count {
            for (key, error) in &indexed.failed {
                log::warn!("a file could not be read and is not found by its words: {error}");
                state.unreadable.insert(*key);
            }
            state.change(|segments| segments.extend(indexed.segment));
        }
        // Dropping a claim takes this lock.
        drop(state);
        drop(claim);
    }

    /// Waits until nobody is indexing any of these contents, for so long at most.
    pub fn wait_for(&self, keys: &[IndexKey], limit: Duration) {
        let state = self.state.lock();
        drop(
            self.unclaimed.wait_timeout_while(state, limit, |state| keys.iter().any(|key| state.claimed.contains(key))),
        );
    }

    /// Puts a segment in place of others, if all of those are still there; returns whether it did.
    pub fn replace(&self, old: &[Arc<IndexSegment>], new: Option<Arc<IndexSegment>>) -> bool {
        let mut state = self.state.lock();
        let is = |one: &Arc<IndexSegment>, other: &Arc<IndexSegment>| Arc::ptr_eq(one, other);
        // Somebody else may have merged or dropped one of them meanwhile; putting this one in would show its contents
        // twice.
        let all = old.iter().all(|gone| state.set.segments.iter().any(|segment| is(segment, gone)));
        if all {
            state.change(|segments| {
                segments.retain(|segment| !old.iter().any(|gone| is(segment, gone)));
                segments.extend(new);
            });
        }
        all
    }

    /// Lets go of what turned out to be damaged, and returns whether what failed with `error` may go well with the segments
    /// that are there now: it looked at those of a version, and somebody else may have let go of one meanwhile.
    pub fn drop_broken_and_may_retry(&self, error: &Error, version: u64) -> bool {
        error.kind() == Kind::Damaged && (self.drop_broken() || self.segment_set().version != version)
    }

    /// Lets go of segments that turned out to be damaged; returns whether there were any.
    pub fn drop_broken(&self) -> bool {
        let mut state = self.state.lock();
        let is_broken = state.set.segments.iter().any(|segment| segment.is_broken());
        if is_broken {
            state.change(|segments| segments.retain(|segment| !segment.is_broken()));
        }
        is_broken
    }

    /// Returns how many bytes of memory the segments take that have no file yet.
    pub fn bytes_in_memory(&self) -> u64 {
        segments_in_memory(&self.segment_set()).iter().map(|segment| segment.bytes()).sum()
    }
}

impl FileIndexState {
    fn change(&mut self, change: impl FnOnce(&mut Vec<Arc<IndexSegment>>)) {
        let mut set = SegmentSet { version: self.set.version + 1, segments: self.set.segments.clone() };
        change(&mut set.segments);
        self.set = Arc::new(set);
    }
}

/// Returns the segments that have no file: a crash loses them, and their contents are indexed anew.
pub(in crate::memory) fn segments_in_memory(set: &SegmentSet) -> Vec<Arc<IndexSegment>> {
    set.segments.iter().filter(|segment| segment.name().is_none()).cloned().collect()
}

/// Returns segments of about one size that should become one; none if there are few of each size.
pub(in crate::memory) fn segments_to_merge(
    segments: impl Iterator<Item = Arc<IndexSegment>>,
) -> Vec<Arc<IndexSegment>> {
    let mut tiers: BTreeMap<u32, Vec<Arc<IndexSegment>>> = BTreeMap::new();
    for segment in segments {
        if segment.bytes() < MERGED_BYTES_MAX {
            let tier =
                (segment.bytes() / FIRST_TIER_BYTES).checked_ilog(MERGE_FANOUT as u64).map_or(0, |tier| tier + 1);
            tiers.entry(tier).or_default().push(segment);
        }
    }
    tiers.into_values().find(|tier| tier.len() >= MERGE_FANOUT).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::file_index::index_contents;
    use crate::object::Time;
    use crate::workspace::{FileName, FileOp, NewInode, NoPacks, ROOT, Tree};

    /// A segment of files that are no text: each takes 36 bytes.
    fn segment(files: usize) -> Arc<IndexSegment> {
        let mut tree = Tree::new(0o755, 0, 0, Time(0));
        let content = |number: usize| {
            let (name, make) = (FileName::new(number.to_string().as_bytes()).unwrap(), NewInode::File);
            let create = FileOp::Create { parent: ROOT, name, make, mode: 0o644, uid: 0, gid: 0 };
            let inode = tree.apply(&create, Time(0), &NoPacks).unwrap().inode;
            let bytes = format!("\0{number}").into_bytes();
            tree.apply(&FileOp::Write { inode, offset: 0, bytes: bytes.into() }, Time(0), &NoPacks).unwrap();
            IndexableContent::from_node(tree.node(inode).unwrap()).unwrap()
        };
        index_contents((0..files).map(content).collect(), &NoPacks).segment.unwrap()
    }

    #[test]
    fn eight_segments_of_about_one_size_become_one() {
        let [tiny, small, medium, large] = [1, 400, 500, 2_000].map(segment);
        assert!(small.bytes() < 16 << 10 && medium.bytes() >= 16 << 10 && large.bytes() < 128 << 10);
        let merged = |parts: [(&Arc<IndexSegment>, usize); 2]| {
            let segments = parts.into_iter().flat_map(|(segment, count)| std::iter::repeat_n(segment.clone(), count));
            segments_to_merge(segments).len()
        };
        assert_eq!(merged([(&tiny, 4), (&small, 4)]), 8, "below 16 KiB all count as of one size");
        assert_eq!(merged([(&medium, 4), (&large, 4)]), 8, "and from there up to 128 KiB");
        assert_eq!(merged([(&small, 7), (&medium, 7)]), 0);
        assert_eq!(merged([(&small, 7), (&medium, 8)]), 8);
    }
}
