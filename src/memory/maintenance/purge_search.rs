//! Looking for all that a purge has to take out: versions under a name, their copies, the segments that hold either, seen or
//! not, and the entries that quote it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::unfinished_purge::UnfinishedPurge;
use crate::branch::BranchVersion;
use crate::memory::catalog::shared_log::{LogEntryName, log_entry_id};
use crate::memory::catalog::{Branch, BranchId, Catalog, for_each_state};
use crate::memory::command::purge_selection::PurgeSelection;
use crate::memory::command::shared_log_entry::purged_content;
use crate::memory::history::PurgedItems;
use crate::memory::{Error, Memory};
use crate::object::{Hash, Time};
use crate::record::Version;
use crate::segment::{Blocks, Row, Segment};
use crate::workspace::{PackMarks, Packs, PurgedFiles, Tree};

/// What is looked for, and what was found of it, in all rounds of one purge.
#[derive(Default)]
pub(in crate::memory) struct PurgeSearch {
    ids: Vec<Arc<str>>,
    paths: Vec<Vec<u8>>,
    /// Names of entries of logs, as [`LogEntryName`] parses them.
    entries: Vec<Arc<str>>,
    items: BTreeSet<Arc<str>>,
    with_copies: bool,
    /// Content hashes of all versions of records under the names.
    records: HashSet<Hash>,
    /// Versions of records under other names that say the same.
    copies: HashSet<Hash>,
    /// Versions under the same names elsewhere: in a shared log, or in another root branch.
    elsewhere: HashSet<Hash>,
    /// Hashes of what records say, whatever their ids; without a text there is none.
    content_hashes: HashSet<Hash>,
    /// Hashes of what the files under the names hold.
    contents: HashSet<Hash>,
    /// Hashes of files, which decisions on merges name.
    files: HashSet<Hash>,
    /// When the files under the names were made.
    births: HashSet<Time>,
    /// Paths of files that the branch has at present: what stood there earlier is not followed elsewhere.
    present: HashSet<Vec<u8>>,
    /// Items that some state had, or once had.
    found: HashSet<Arc<str>>,
    /// Segments with rows of `records` or `copies`, seen by a state or not.
    segments: BTreeSet<Hash>,
}

fn single_path(path: &[u8]) -> PurgedFiles {
    PurgedFiles { paths: vec![path.to_vec()], ..PurgedFiles::default() }
}

/// Returns the hash of what a record says, whatever its id. Records without a text are no copies of each other.
fn nonempty_content_hash(version: &Version) -> Option<Hash> {
    let has_text = version.content.text.as_ref().is_some_and(|text| !text.is_empty());
    has_text.then(|| version.content.hash(""))
}

impl PurgeSearch {
    /// Makes a search for the names of one purge; nothing is read yet.
    pub fn new(items: BTreeSet<Arc<str>>, with_copies: bool) -> PurgeSearch {
        let selection = PurgeSelection { items: items.iter().cloned().collect(), ..PurgeSelection::default() };
        let (ids, paths) = (selection.ids(), selection.paths());
        let entries = items.iter().filter(|item| LogEntryName::parse(item).is_some()).cloned().collect();
        PurgeSearch { ids, paths, entries, items, with_copies, ..PurgeSearch::default() }
    }

    /// Looks at all that a catalog has, from a branch on. Fails with `Error::Gone` if the branch is not in the catalog,
    /// or if a state or a segment can't be read.
    pub fn scan_catalog(&mut self, memory: &Memory, catalog: &Catalog, branch: BranchId) -> Result<(), Error> {
        let branch = catalog.branch(branch)?;
        let root = branch.root;
        for path in self.paths.clone() {
            if self.note_births(branch.state.files(), &path) {
                self.present.insert(path);
            }
        }
        // Entries of logs first, as they give contents by which copies are found below.
        self.log_entries(catalog, branch)?;
        let (mut own, mut all) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        // A state that several branches or entries share is looked at once.
        for branch in catalog.branches.values() {
            let one = Catalog { branches: [(branch.id, branch.clone())].into_iter().collect(), ..Catalog::default() };
            for_each_state(&one, |state| {
                let is_own = branch.root == root && branch.log_totals.is_none();
                if seen.insert((Arc::as_ptr(state), is_own)) {
                    if is_own { own.push(state.clone()) } else { all.push(state.clone()) }
                }
            });
        }
        let root_name = catalog.branch(root)?.name.clone();
        let mut earlier = |branch: BranchId, state: &Arc<BranchVersion>| {
            let is_own = catalog.root_name(branch).is_some_and(|name| *name == *root_name);
            if seen.insert((Arc::as_ptr(state), is_own)) {
                if is_own { own.push(state.clone()) } else { all.push(state.clone()) }
            }
        };
        for ((branch, _), recent) in &catalog.retained.recent {
            earlier(*branch, &recent.retained.state);
            earlier(*branch, &recent.retained.base);
        }
        // First what the names mean below this root branch, then what else has the same ids, and copies last: a
        // copy is known only by what the named records say.
        own.iter().try_for_each(|state| self.search_by_name(state))?;
        for file in catalog.retained.files.iter() {
            for ((branch, _), retained) in file.read_all()? {
                if catalog.root_name(BranchId(branch)).is_some_and(|name| *name == *root_name) {
                    self.search_by_name(&retained.state)?;
                }
            }
        }
        all.iter().try_for_each(|state| self.search_elsewhere_by_name(state))?;
        all.extend(own);
        for state in &all {
            for version in state.unsealed().values() {
                self.search_version(version);
            }
        }
        memory.storage.segments.list().iter().try_for_each(|segment| self.search_segment(segment))
    }

    /// Notes the entries of logs that are named, and what they say: copies are found by it.
    fn log_entries(&mut self, catalog: &Catalog, branch: &Branch) -> Result<(), Error> {
        for item in &self.entries {
            let Some(name) = LogEntryName::parse(item) else { continue };
            let Some(log) = catalog.entry_log(branch, name)? else { continue };
            let Some(row) = log.state.find(&log_entry_id(name.number))? else { continue };
            let version = row.version()?;
            if version.content != purged_content(name.number, &version) {
                self.records.insert(version.hash);
                self.content_hashes.extend(nonempty_content_hash(&version));
                self.found.insert(item.clone());
            }
        }
        Ok(())
    }

    /// Notes the entries of those names in a state of the branch's own root branch.
    fn search_by_name(&mut self, state: &BranchVersion) -> Result<(), Error> {
        for id in &self.ids {
            if state.deleted_at(id).is_some() {
                self.found.insert(id.clone());
            }
            if let Some(row) = state.find(id)? {
                let version = row.version()?;
                self.records.insert(version.hash);
                self.content_hashes.extend(nonempty_content_hash(&version));
                self.found.insert(id.clone());
            }
        }
        for (path, item) in
            self.paths.clone().into_iter().zip(self.items.clone().iter().filter(|item| item.starts_with("files/")))
        {
            let files = state.files().files_to_purge(&single_path(&path));
            if !files.is_empty() {
                self.found.insert(item.clone());
            }
            for file in files {
                self.contents.extend(file.content);
                self.files.extend(file.hash);
            }
            // Where the branch has the path now, only that file is meant: what stood there earlier keeps its other
            // names.
            if !self.present.contains(&path) {
                self.note_births(state.files(), &path);
            }
        }
        Ok(())
    }

    /// Notes the entries of those names in a state of a log, or of another root branch: they are not what was named.
    fn search_elsewhere_by_name(&mut self, state: &BranchVersion) -> Result<(), Error> {
        for id in &self.ids {
            if let Some(row) = state.find(id)? {
                self.elsewhere.insert(row.version()?.hash);
            }
        }
        Ok(())
    }

    /// Notes which files are at a path, to find them under other names; returns whether there is anything.
    fn note_births(&mut self, files: &Tree, path: &[u8]) -> bool {
        let files = files.files_to_purge(&single_path(path));
        self.births.extend(files.iter().filter_map(|file| file.birth));
        !files.is_empty()
    }

    fn search_version(&mut self, version: &Version) {
        if !self.records.contains(&version.hash)
            && nonempty_content_hash(version).is_some_and(|hash| self.content_hashes.contains(&hash))
        {
            self.copies.insert(version.hash);
        }
    }

    /// Looks through all rows of a segment, seen or not.
    fn search_segment(&mut self, segment: &Arc<Segment>) -> Result<(), Error> {
        for id in &self.ids {
            let mut row = segment.lower_bound(id, 0)?;
            while row < segment.rows() && segment.id(row)? == &**id {
                if !self.elsewhere.contains(&segment.hash(row)?) {
                    self.segments.insert(segment.name());
                    self.found.insert(id.clone());
                }
                row += 1;
            }
        }
        let mut blocks = Blocks::default();
        for row in 0..segment.rows() {
            let hash = segment.hash(row)?;
            // A whole row is read and hashed only where a copy could be found by it at all.
            if !self.content_hashes.is_empty() && !self.records.contains(&hash) && !self.copies.contains(&hash) {
                self.search_version(&*Row::Sealed(segment.clone(), row).read_version(&mut blocks)?);
            }
            // A copy that no state has any longer goes in any case.
            if self.records.contains(&hash) || self.copies.contains(&hash) {
                self.segments.insert(segment.name());
            }
        }
        Ok(())
    }

    /// Forgets the names, and unless copies are purged the contents found under them, too: what is written under the names
    /// from now on is new and stays, but for the hashes given to [`PurgeSearch::note`].
    pub fn forget_names(&mut self) {
        self.ids.clear();
        self.paths.clear();
        self.entries.clear();
        self.segments.clear();
        if !self.with_copies {
            self.content_hashes.clear();
            self.copies.clear();
        }
    }

    /// Adds purged versions that were written during the search.
    pub fn note(&mut self, versions: &[(Arc<str>, Hash)]) {
        for (item, hash) in versions {
            if item.starts_with("files/") {
                self.files.insert(*hash)
            } else {
                self.records.insert(*hash)
            };
        }
    }

    /// Returns whether there are segments with rows of it, which have to be written again.
    pub fn has_rows(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Returns the items that were found nowhere in the store.
    pub fn not_found(&self) -> Vec<Arc<str>> {
        self.items.iter().filter(|item| !self.found.contains(*item)).cloned().collect()
    }

    /// Returns whether nothing was found under the names, and no entry quotes them.
    pub fn found_nothing(&self, mark: &UnfinishedPurge) -> bool {
        self.found.is_empty() && mark.segments.is_empty() && mark.quotes.is_empty()
    }

    /// Returns what the purge takes out, sorted, so that equal purges are equal commands; by content alone once the names
    /// were forgotten.
    pub fn selection(&self) -> PurgeSelection {
        let sorted = |hashes: &HashSet<Hash>| {
            let mut hashes: Vec<Hash> = hashes.iter().copied().collect();
            hashes.sort_unstable();
            hashes
        };
        let is_named = !self.ids.is_empty() || !self.paths.is_empty() || !self.entries.is_empty();
        let mut births: Vec<Time> = self.births.iter().copied().collect();
        births.sort_unstable();
        let mut selection = PurgeSelection {
            items: if is_named { self.items.iter().cloned().collect() } else { Vec::new() },
            records: sorted(&self.records),
            contents: Vec::new(),
            births,
        };
        if self.with_copies {
            let copies = self.copies();
            selection.records = sorted(&self.records.union(&self.copies).copied().collect());
            selection.contents = copies.contents;
        }
        selection
    }

    /// Returns the copies: items with the same content under other names, found by their hashes.
    pub fn copies(&self) -> PurgeSelection {
        PurgeSelection {
            records: self.copies.iter().copied().collect(),
            contents: self.contents.iter().copied().collect(),
            ..PurgeSelection::default()
        }
    }

    /// Returns what a finish of the purge has to know; `versions` are those that go. Kind `Io` or `Damaged` if an entry
    /// of the history can't be read.
    pub fn mark(&self, memory: &Memory, versions: &BTreeSet<(Arc<str>, Hash)>) -> Result<UnfinishedPurge, Error> {
        let names = versions.iter().map(|(item, _)| item).chain(&self.items);
        let quoted = PurgedItems {
            names: names.map(|item| item.trim_end_matches('/').into()).collect(),
            versions: versions.iter().map(|(_, hash)| *hash).chain(self.files.iter().copied()).collect(),
        };
        // Entries quote lines that merges lost, and those outlive every state; so all of the history is looked through.
        let quotes = memory.history.quotes(&memory.storage.segments.blobs, 1..memory.last_seq() + 1, &quoted)?;
        Ok(UnfinishedPurge { before: memory.last_seq(), segments: self.segments.clone(), quotes })
    }
}

impl Memory {
    /// Returns the packs that hold a chunk which no file has. Fails if a pack can't be opened or read.
    pub(in crate::memory) fn packs_with_dead_chunks(&self, catalog: &Catalog) -> Result<HashSet<Hash>, Error> {
        let mut states = Vec::new();
        for_each_state(catalog, |state| states.push(state.clone()));
        let mut packs = HashSet::new();
        let mut marks = PackMarks::default();
        marks.mark_counting_bytes(states.iter().map(|state| state.files()));
        for (name, needed) in marks.marked() {
            if self.storage.trees.pack(&name)?.chunk_bytes()? > needed {
                packs.insert(name);
            }
        }
        Ok(packs)
    }
}
