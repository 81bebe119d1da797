//! Which rows move into which new segment, and the states that see them there.

mod catch_up;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

use super::compact::RewriteSet;
use super::relocated_states::add_retained;
use crate::branch::{BranchVersion, VisibleRows};
use crate::memory::catalog::{Branch, BranchId, BranchRef, Catalog, Checkpoint, for_each_branch_state, for_each_state};
use crate::memory::storage::trees::tree_error;
use crate::memory::{Error, Kind, Memory};
use crate::object::Hash;
use crate::record::Version;
use crate::segment::{Row, Segment, write_segment};
use crate::workspace::{Tree, TreeRelocator, TreeSealer, write_packs};

/// Segments of one dimension from which on the smallest are compacted into one.
const SEGMENTS_MAX: usize = 8;
/// How many of them are left then, the largest, beside the new one.
const SEGMENTS_LEFT: usize = 4;
/// Rows of older segments that are rewritten at once. What is larger stays: rewriting it would cost
/// more, its graph above all, than one segment less to search saves.
pub(in crate::memory) const COMPACTED_ROWS_MAX: u32 = 1 << 20;
/// Records of a root branch from which on no segment holds rows of it and of others.
const OWN_SEGMENT_RECORDS: u64 = 16_384;
/// In a row map: a row of an older segment that no state sees any longer, and that got no new row.
const UNREFERENCED: u32 = u32::MAX;

/// Which older segments a seal compacts into the new one.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::memory) enum Compaction {
    /// Small ones, where that makes them few or worth a graph.
    Small,
    /// All that have no graph, so that one is built instead of many: walking one that is twice as
    /// large costs little more, walking two costs twice as much.
    WithoutGraph,
    /// The segments and packs of that set, without what nothing references.
    Rewrite(Arc<RewriteSet>),
}

/// A new segment, and which rows moved into it. The rows are held, so that no version is freed whose address is a key here:
/// another one could get the same address.
pub(in crate::memory) struct SealedSegment {
    segment: Arc<Segment>,
    /// The new row of each version that was unsealed, by its address.
    rows_of_versions: HashMap<*const Version, u32>,
    /// For each older segment the new row of each of its rows, or [`UNREFERENCED`].
    row_maps: HashMap<Hash, Vec<u32>>,
    _held: Vec<Row>,
}

impl SealedSegment {
    /// Returns whether rows of older segments moved.
    pub(in crate::memory) fn compacts(&self) -> bool {
        !self.row_maps.is_empty()
    }
}

type WrittenGroup = (Arc<Segment>, Vec<Row>);

/// What goes into one new segment: rows of one dimension, and of one root branch where that is large.
#[derive(Default)]
pub(super) struct CompactionGroup {
    /// Versions that are in no segment yet, by address: equal ones that were written twice are two rows.
    pub(super) unsealed: HashMap<*const Version, Arc<Version>>,
    /// Each older segment, and the rows that some state sees.
    pub(super) segments: HashMap<Hash, (Arc<Segment>, VisibleRows)>,
}

impl CompactionGroup {
    /// Leaves those segments that are compacted: the smallest of those that may be, as many as `compaction` says.
    fn choose(&mut self, graph_rows: u32, compaction: &Compaction, spare_bytes: &mut u64) {
        if let Compaction::Rewrite(rewrite_set) = compaction {
            self.segments.retain(|name, _| rewrite_set.segments.contains(name));
            return;
        }
        let may = |segment: &Segment| *compaction == Compaction::Small || segment.graphs().next().is_none();
        let segments = self.segments.values().filter(|(segment, _)| may(segment));
        let mut sizes: Vec<(u32, Hash)> = segments.map(|(segment, seen)| (seen.count(), segment.name())).collect();
        // The smallest come first, and the name decides between equals, so that the same store is compacted in the same
        // way.
        sizes.sort_unstable();
        let count =
            if *compaction == Compaction::Small { self.small_segment_count(&sizes, graph_rows) } else { sizes.len() };
        let mut rows = 0u32;
        let fits = |(more, name): &&(u32, Hash)| {
            rows = rows.saturating_add(*more);
            let left = self.segments.get(name).and_then(|(segment, _)| spare_bytes.checked_sub(segment.file_bytes()));
            *spare_bytes = left.unwrap_or(*spare_bytes);
            // Old files stay until the manifest is written, so a seal needs room for both and takes no more than it was
            // given.
            rows <= COMPACTED_ROWS_MAX && left.is_some()
        };
        let mut chosen: HashSet<Hash> = sizes.iter().take(count).take_while(fits).map(|(_, name)| *name).collect();
        // One segment alone would be copied, and nothing would become one.
        if *compaction == Compaction::WithoutGraph && chosen.len() < 2 {
            chosen.clear();
        }
        self.segments.retain(|name, _| chosen.contains(name));
    }

    /// Returns how many of the smallest are compacted in passing: so many that few are left, and all that
    /// are too small for a graph once one of `graph_rows` rows can be made of them.
    fn small_segment_count(&self, sizes: &[(u32, Hash)], graph_rows: u32) -> usize {
        let too_many = if sizes.len() > SEGMENTS_MAX { sizes.len() - SEGMENTS_LEFT } else { 0 };
        let small = sizes.partition_point(|(rows, _)| *rows < graph_rows);
        let together = sizes[..small].iter().fold(self.unsealed.len() as u64, |sum, (rows, _)| sum + u64::from(*rows));
        if together >= u64::from(graph_rows) { too_many.max(small) } else { too_many }
    }

    /// All rows of the new segment, in order of ids, then of hashes.
    fn rows(&self) -> Result<Vec<Row>, Error> {
        let mut rows: Vec<Row> = self.unsealed.values().map(|version| Row::Unsealed(version.clone())).collect();
        for (segment, seen) in self.segments.values() {
            rows.extend(seen.iter().map(|row| Row::Sealed(segment.clone(), row)));
        }
        // Ids are read once here, where an error can be returned; the comparison below can't.
        rows.iter().try_for_each(|row| row.id().map(|_| ()))?;
        // Each segment's rows are a run in order already, which this sort makes use of.
        rows.sort_by(|a, b| match (a.id(), b.id()) {
            (Ok(first), Ok(second)) => first.cmp(&second).then_with(|| a.hash().ok().cmp(&b.hash().ok())),
            _ => std::cmp::Ordering::Equal,
        });
        Ok(rows)
    }
}

impl Memory {
    /// Writes every unsealed version that the catalog reaches, one segment for each dimension and large root branch,
    /// with the rows of the older segments that are compacted, which take at most `spare_bytes`. Kind `Io` or `Damaged`
    /// if a row can't be read, `Full` or `Io` if the disk refuses a file; those that were written are named by nothing.
    pub(in crate::memory) fn write_segments(
        &self,
        catalog: &Catalog,
        compaction: &Compaction,
        mut spare_bytes: u64,
    ) -> Result<Vec<SealedSegment>, Error> {
        let mut sealed = Vec::new();
        for ((dim, _), mut group) in groups(catalog) {
            group.choose(self.environment.graph_rows, compaction, &mut spare_bytes);
            let written = match self.write_group(&group, dim) {
                // Damage in an old segment is not a reason to seal nothing. What is written again by name, as for a purge, must be.
                Err(error) if !matches!(compaction, Compaction::Rewrite(_)) && is_input_damage(&group, &error) => {
                    log::warn!("older segments are not compacted now: {error}; {}", error.hint());
                    group.segments.clear();
                    self.write_group(&group, dim)?
                }
                written => written?,
            };
            let Some((segment, rows)) = written else { continue };
            // Before the segment is in use: no query by vector then meets rows whose derived vectors were in memory a
            // moment ago.
            self.carry_over_vectors(&segment);
            let mut rows_of_versions = HashMap::new();
            // What stays unreferenced here was seen by no state: a layer that has such a row is not moved.
            let blank = |(name, (segment, _)): (&Hash, &(Arc<Segment>, VisibleRows))| {
                (*name, vec![UNREFERENCED; segment.rows() as usize])
            };
            let mut row_maps: HashMap<Hash, Vec<u32>> = group.segments.iter().map(blank).collect();
            for (row, number) in rows.iter().zip(0..) {
                match row {
                    Row::Unsealed(version) => {
                        rows_of_versions.insert(Arc::as_ptr(version), number);
                    }
                    Row::Sealed(segment, old) => {
                        if let Some(new_rows) = row_maps.get_mut(&segment.name()) {
                            new_rows[*old as usize] = number;
                        }
                    }
                }
            }
            // Unsealed versions are found by address, so `rows` keeps them allocated until layers were moved.
            sealed.push(SealedSegment { segment, rows_of_versions, row_maps, _held: rows });
        }
        Ok(sealed)
    }

    /// Writes what a group has into one segment, and returns that with its rows in order; `None` if it has nothing.
    /// Kind `Io` or `Damaged` if a row can't be read, `Full` or `Io` if the disk refuses the file.
    fn write_group(&self, group: &CompactionGroup, dim: usize) -> Result<Option<WrittenGroup>, Error> {
        let rows = group.rows()?;
        if rows.is_empty() {
            return Ok(None);
        }
        let segment =
            self.storage.segments.get_prefetched(&write_segment(&self.storage.segments.blobs, &rows, dim)?)?;
        Ok(Some((segment, rows)))
    }

    /// Writes every content of files that is in no pack yet into one. Kind `Io` or `Damaged` if a content can't be
    /// read, `Full` or `Io` if the disk refuses a pack.
    pub(in crate::memory) fn pack_files(&self, catalog: &Catalog) -> Result<TreeSealer, Error> {
        let mut states = Vec::new();
        for_each_state(catalog, |state| states.push(state.clone()));
        let trees = states.iter().map(|state| state.files());
        write_packs(&self.storage.segments.blobs, &self.storage.trees, trees).map_err(tree_error)
    }

    /// Writes what is needed of some packs into a new one; `None` if there are none. Kind `Io` or `Damaged` if a
    /// content can't be read, `Full` or `Io` if the disk refuses the pack.
    pub(in crate::memory) fn repack_files(
        &self,
        catalog: &Catalog,
        compaction: &Compaction,
    ) -> Result<Option<TreeRelocator>, Error> {
        let Compaction::Rewrite(rewrite_set) = compaction else { return Ok(None) };
        if rewrite_set.packs.is_empty() {
            return Ok(None);
        }
        let mut states = Vec::new();
        for_each_state(catalog, |state| states.push(state.clone()));
        let (trees, from) = (states.iter().map(|state| state.files()), rewrite_set.packs.clone());
        TreeRelocator::repack(&self.storage.segments.blobs, &self.storage.trees, trees, from)
            .map(Some)
            .map_err(tree_error)
    }
}

/// Returns whether a segment could not be written since one of those that were to be compacted is damaged.
fn is_input_damage(group: &CompactionGroup, error: &Error) -> bool {
    !group.segments.is_empty() && error.kind() == Kind::Damaged
}

/// What goes into one new segment: vectors of one dimension, and of one large tree of branches or of all small ones.
pub(super) type GroupKey = (usize, Option<BranchId>);

/// Gathers all that the catalog reaches, by dimension and root branch.
fn groups(catalog: &Catalog) -> BTreeMap<GroupKey, CompactionGroup> {
    let mut groups: BTreeMap<GroupKey, CompactionGroup> = BTreeMap::new();
    let (mut seen, owners) = (HashSet::new(), sole_root_by_segment(catalog));
    for branch in catalog.branches.values() {
        for_each_branch_state(branch, &mut |state| {
            // Forks share states, so the address tells one that was looked at; the catalog holds all of them meanwhile.
            if !seen.insert(Arc::as_ptr(state)) {
                return;
            }
            for version in state.unsealed().values() {
                let dim = version.content.vector.as_ref().map_or(0, |vector| vector.len());
                let group = groups.entry((dim, large_root_branch(catalog, branch))).or_default();
                group.unsealed.insert(Arc::as_ptr(version), version.clone());
            }
            add_layers(state, &owners, &mut groups);
        });
    }
    add_retained(catalog, &owners, &mut groups);
    groups
}

/// Adds the rows of segments that a state sees.
pub(super) fn add_layers(
    state: &BranchVersion,
    owners: &HashMap<Hash, Option<BranchId>>,
    groups: &mut BTreeMap<GroupKey, CompactionGroup>,
) {
    for layer in state.layers() {
        let name = layer.segment.name();
        let group = groups.entry((layer.segment.dim(), owners.get(&name).copied().flatten())).or_default();
        let none = || (layer.segment.clone(), VisibleRows::none(layer.segment.rows()));
        let (_, seen) = group.segments.entry(name).or_insert_with(none);
        seen.union_with(&layer.visible);
    }
}

/// Returns the root branch that alone sees each segment, if that is a large one.
pub(in crate::memory) fn sole_root_by_segment(catalog: &Catalog) -> HashMap<Hash, Option<BranchId>> {
    let mut owners = HashMap::new();
    for branch in catalog.branches.values() {
        let root = large_root_branch(catalog, branch);
        for_each_branch_state(branch, &mut |state| {
            for layer in state.layers() {
                let owner = owners.entry(layer.segment.name()).or_insert(root);
                // A segment that two root branches see has no owner from then on, whichever of them is looked at later.
                *owner = owner.filter(|owner| Some(*owner) == root);
            }
        });
    }
    owners
}

/// Returns the root branch above a branch where it holds so much that its rows have segments of their own: rows of others beside
/// them would be passed over in each query.
pub(super) fn large_root_branch(catalog: &Catalog, branch: &Branch) -> Option<BranchId> {
    let root = catalog.branches.get(&branch.root)?;
    (root.state.totals().records >= OWN_SEGMENT_RECORDS).then_some(branch.root)
}

/// A state, and the equal one that stands where its rows are now.
pub(super) type RelocatedState = (Arc<BranchVersion>, Arc<BranchVersion>);

/// Moves states over to new segments, each distinct state once.
pub(in crate::memory) struct Relocations<'a> {
    sealed: &'a [SealedSegment],
    tree_sealer: &'a mut TreeSealer,
    tree_relocator: Option<&'a mut TreeRelocator>,
    /// Old state to new, by the old one's address, which it keeps while it is held here.
    done: HashMap<*const BranchVersion, RelocatedState>,
}

impl<'a> Relocations<'a> {
    /// Begins with no state relocated. States stay where they are unless the arguments have something of them.
    pub(in crate::memory) fn new(
        sealed: &'a [SealedSegment],
        tree_sealer: &'a mut TreeSealer,
        tree_relocator: Option<&'a mut TreeRelocator>,
    ) -> Relocations<'a> {
        Relocations { sealed, tree_sealer, tree_relocator, done: HashMap::new() }
    }

    /// Returns whether rows or chunks move that were sealed already.
    pub(in crate::memory) fn compacts(&self) -> bool {
        self.tree_relocator.is_some() || self.sealed.iter().any(SealedSegment::compacts)
    }

    /// Relocates every state that the catalog reaches; branches whose states stay are left as they are.
    pub(in crate::memory) fn relocate_catalog(&mut self, catalog: &mut Catalog) {
        let before = catalog.clone();
        for branch in before.branches.values() {
            let relocated = self.relocate_branch(branch, None);
            // An unchanged branch keeps its node of the persistent map: a diff of two catalogs skips shared nodes.
            if relocated != *branch {
                catalog.branches.insert(branch.id, relocated);
            }
        }
        self.relocate_retained(&mut catalog.retained, &before.branches);
    }

    /// Returns a branch with its states moved, those that are new like a relocated one; itself, by reference, where none
    /// moves.
    fn relocate_branch(&mut self, branch: &BranchRef, like: Option<&RelocatedState>) -> BranchRef {
        let mut relocate = |state: &Arc<BranchVersion>| {
            let relocated = self.relocate_state_like(state, like);
            (!Arc::ptr_eq(&relocated, state)).then_some(relocated)
        };
        let mut after = branch.clone();
        if let Some(state) = relocate(&branch.state) {
            after.make_mut().state = state;
        }
        if let Some(base) = relocate(&branch.base) {
            after.make_mut().base = base;
        }
        let Ok(()) = after.replace_frozen(|old| {
            let (state, base) = (relocate(&old.state), relocate(&old.base));
            Ok::<_, Infallible>((state.is_some() || base.is_some()).then(|| {
                let (state, base) = (state.unwrap_or(old.state.clone()), base.unwrap_or(old.base.clone()));
                Checkpoint { state, base, ..old.clone() }
            }))
        });
        after
    }

    /// Returns a state with all that moved standing where it is now; the same one for the same one, so that what shared
    /// it shares it again.
    pub(super) fn relocate_state(&mut self, old: &Arc<BranchVersion>) -> Arc<BranchVersion> {
        if let Some((_, new)) = self.done.get(&Arc::as_ptr(old)) {
            return new.clone();
        }
        let new = self.relocate(old);
        // The old state is held with the new one: freed, its address could become that of another state.
        self.done.insert(Arc::as_ptr(old), (old.clone(), new.clone()));
        new
    }

    fn relocate(&mut self, old: &Arc<BranchVersion>) -> Arc<BranchVersion> {
        let mut new = old.clone();
        for sealed in self.sealed {
            if !new.unsealed().is_empty() {
                let place = |version: &Arc<Version>| sealed.rows_of_versions.get(&Arc::as_ptr(version)).copied();
                new = Arc::new(new.with_versions_sealed(&sealed.segment, place));
            }
            if new.layers().iter().any(|layer| sealed.row_maps.contains_key(&layer.segment.name())) {
                let place = |name: &Hash, row: u32| {
                    sealed.row_maps.get(name)?.get(row as usize).copied().filter(|row| *row != UNREFERENCED)
                };
                new = Arc::new(new.relocated(&sealed.segment, place));
            }
        }
        if let Some(files) = self.relocated_files(new.files()) {
            let mut relocated = BranchVersion::clone(&new);
            // The contents are the same in another place, so the head stays and is not hashed again.
            relocated.replace_by_equal_files(files);
            new = Arc::new(relocated);
        }
        new
    }

    /// Returns a tree that refers to the new places of its chunks; `None` if none moves.
    fn relocated_files(&mut self, old: &Tree) -> Option<Tree> {
        let sealed = old.is_unsealed().then(|| self.tree_sealer.sealed_tree(old));
        match &mut self.tree_relocator {
            Some(relocator) => Some(relocator.relocated_tree(sealed.as_ref().unwrap_or(old))),
            None => sealed,
        }
    }

    /// Returns where a row is now; `None` if it did not move.
    fn new_row(&self, row: &Row) -> Option<Row> {
        self.sealed.iter().find_map(|sealed| {
            let number = match row {
                Row::Unsealed(version) => sealed.rows_of_versions.get(&Arc::as_ptr(version)).copied(),
                Row::Sealed(segment, row) => sealed.row_maps.get(&segment.name())?.get(*row as usize).copied(),
            };
            number.filter(|number| *number != UNREFERENCED).map(|number| Row::Sealed(sealed.segment.clone(), number))
        })
    }

    /// Relocates a state that has most in common with another one that was relocated. It costs only what they differ in.
    pub(super) fn relocate_state_like(
        &mut self,
        old: &Arc<BranchVersion>,
        like: Option<&RelocatedState>,
    ) -> Arc<BranchVersion> {
        let Some((before, relocated)) = like.filter(|_| !self.done.contains_key(&Arc::as_ptr(old))) else {
            return self.relocate_state(old);
        };
        let Ok(Some(mut new)) = old.with_relocation(before, relocated, |row| self.new_row(row)) else {
            // Where the difference alone does not tell, the state is relocated by itself, which can't fail.
            return self.relocate_state(old);
        };
        if let Some(files) = old.files().with_relocation(before.files(), relocated.files()) {
            new.replace_by_equal_files(files);
        } else if let Some(files) = self.relocated_files(old.files()) {
            new.replace_by_equal_files(files);
        }
        let new = Arc::new(new);
        self.done.insert(Arc::as_ptr(old), (old.clone(), new.clone()));
        new
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Environment, OpenMode, RecordEdit, RecordInput};

    /// Commits so many records, each thousand as a segment of its own.
    fn fill(memory: &Memory, who: &Actor, branch: BranchId, count: u64) {
        for first in (0..count).step_by(1_024) {
            let input = RecordInput { vector: None, text: Some("a".into()), metadata: "{}".into() };
            let put = |n: u64| RecordEdit::Put { id: format!("{n}").into(), input: input.clone() };
            memory.commit(who, branch, (first..first + 1_024).map(put).collect()).unwrap();
        }
    }

    #[test]
    fn a_large_root_branch_shares_no_segment_with_others_and_small_ones_do() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let environment = Environment { graph_rows: u32::MAX, reserve_bytes: 0, ..Environment::real(who.clone()) };
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        let [first, second] = ["first", "second"].map(|name| memory.create_root(&who, name).unwrap());
        fill(&memory, &who, main, OWN_SEGMENT_RECORDS);
        for small in [first, second] {
            fill(&memory, &who, small, 6 * 1_024);
        }
        memory.seal().unwrap();
        let segments = |branch: BranchId| -> HashSet<Hash> {
            let catalog = memory.catalog().clone();
            catalog.branch(branch).unwrap().state.layers().iter().map(|layer| layer.segment.name()).collect()
        };
        assert!(segments(main).is_disjoint(&segments(first)) && segments(main).is_disjoint(&segments(second)));
        assert!(!segments(first).is_disjoint(&segments(second)), "a control: small ones are compacted together");
        assert!(segments(main).len() <= SEGMENTS_MAX);
    }
}
