//! What a purge does to the catalog: every state of every branch without what goes.
//!
//! Base, child and parent lose it alike, so that a merge sees no difference where there is nothing left, and brings nothing
//! back. Each distinct state is worked out once, before the writer's lock is taken; under it only those that are new.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::branch::{BranchVersion, RetainedState, StateKey};
use crate::lineage::{Counts, Decision, Detail, EntryOp};
use crate::memory::catalog::shared_log::log_entry_number;
use crate::memory::catalog::{BranchId, BranchRef, Catalog, CatalogChange, Checkpoint};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::command::purge_selection::PurgeSelection;
use crate::memory::command::shared_log_entry::purged_content;
use crate::memory::storage::trees::tree_error;
use crate::memory::{BranchError, Error};
use crate::object::{CodecError, Hash, Reader, Time, Writer};
use crate::record::Version;
use crate::segment::{Row, Segment, SegmentError};
use crate::workspace::PurgedFiles;

/// Records and files go for good, from a branch and all that hold the same.
#[derive(Debug)]
pub(in crate::memory) struct PurgeItems {
    /// The branch that was named: below its root branch items go by their names.
    pub branch: BranchId,
    /// What goes, by name there and by content everywhere.
    pub selection: Arc<PurgeSelection>,
}

pub(in crate::memory) const PURGE: CommandSpec =
    CommandSpec { code: 23, name: "purge", read: |input| Ok(Box::new(PurgeItems::read(input)?)) };

impl PurgeItems {
    fn read(input: &mut Reader<'_>) -> Result<PurgeItems, CodecError> {
        Ok(PurgeItems { branch: BranchId::read(input)?, selection: Arc::new(PurgeSelection::read(input)?) })
    }
}

impl Command for PurgeItems {
    fn spec(&self) -> &'static CommandSpec {
        &PURGE
    }

    fn write(&self, out: &mut Writer) {
        self.selection.write(out.number(self.branch.0));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let mut purge = PurgePlan::new(self.branch, self.selection.clone(), log_record.planned);
        purge.prepare(context.catalog, log_record)
    }

    fn may_use_reserve(&self) -> bool {
        true
    }
}

type KeyedState = (StateKey, RetainedState);

/// A state before and after, and what went from it, kept so that a state that many share is worked out once.
struct PurgedState {
    /// Held, so that its address stays its own.
    before: Arc<BranchVersion>,
    after: Arc<BranchVersion>,
    removed: Vec<(Arc<str>, Hash)>,
}

/// Which names of the selection count in a state; hashes count in all.
#[derive(Clone, Copy)]
enum NameScope<'a> {
    /// Those of records and files: it is of the root branch for which they were given.
    All,
    /// None: it is of another root branch.
    None,
    /// None: its records are entries of a log, whose names begin so. In place of what goes stays that there was an entry.
    Log(&'a str),
}

/// Removes a selection from states, from each distinct one once.
pub struct PurgePlan {
    branch: BranchId,
    selection: Arc<PurgeSelection>,
    ids: Vec<Arc<str>>,
    records: HashSet<Hash>,
    files: PurgedFiles,
    /// The same without paths, for states below other root branches.
    files_elsewhere: PurgedFiles,
    /// By address, and whether names count there.
    states: HashMap<(*const BranchVersion, bool), PurgedState>,
    /// The rows of each segment that go by their hash, found once for all states.
    rows: HashMap<Hash, Arc<[u32]>>,
    /// Files of earlier states that were read, and [`Catalog::rewrite_count`] at that time.
    state_files: HashMap<Hash, Arc<Vec<KeyedState>>>,
    rewrite_count: u64,
    time: Time,
}

/// All that holds purged items, as it is without them.
#[derive(Default)]
pub struct PurgeEffects {
    /// The changed branches, each without the purged items.
    pub branches: Vec<BranchRef>,
    /// The changed earlier states, with all others of the same files.
    pub states: Vec<KeyedState>,
    /// Files of earlier states that are in `states` now.
    pub replaced_state_files: Vec<Hash>,
    /// The branches that held purged items, now or earlier, including those that have ended.
    pub holders: BTreeSet<BranchId>,
    /// The purged versions: an id, or a path with `files/` in front, and the hash; zeros for a folder.
    pub versions: BTreeSet<(Arc<str>, Hash)>,
}

impl PurgePlan {
    /// Begins with no state looked at; `time` is when directories of files change.
    pub fn new(branch: BranchId, selection: Arc<PurgeSelection>, time: Time) -> PurgePlan {
        let files_elsewhere = PurgedFiles {
            paths: Vec::new(),
            contents: selection.contents.iter().copied().collect(),
            births: selection.births.iter().copied().collect(),
        };
        PurgePlan {
            branch,
            ids: selection.ids(),
            records: selection.records.iter().copied().collect(),
            files: PurgedFiles { paths: selection.paths(), ..files_elsewhere.clone() },
            files_elsewhere,
            selection,
            states: HashMap::new(),
            rows: HashMap::new(),
            state_files: HashMap::new(),
            rewrite_count: 0,
            time,
        }
    }

    /// Returns the command: it names what goes, and no state that it leads to.
    pub fn command(&self) -> PurgeItems {
        PurgeItems { branch: self.branch, selection: self.selection.clone() }
    }

    /// Returns the time that changed directories get, lowered to `latest` where the clock was set back; states worked out
    /// with a later one are dropped.
    pub fn clamp_time(&mut self, latest: Time) -> Time {
        if self.time > latest {
            self.time = latest;
            // They were worked out with the later time, which is in the directories of their trees.
            self.states.clear();
        }
        self.time
    }

    /// Finds all branches with purged items, and returns them without those. The catalog does not change. Fails with
    /// `Error::Gone` if the branch is not in the catalog, and with kind `Io` or `Damaged` if a state can't be read.
    pub fn find_affected(&mut self, catalog: &Catalog) -> Result<PurgeEffects, Error> {
        let root = catalog.branch(self.branch)?.root;
        if self.rewrite_count != catalog.rewrite_count {
            // A compaction moves what a file of states refers to and leaves the file its name, so what was read before
            // leads to segments and packs that are removed.
            self.state_files.clear();
            self.rewrite_count = catalog.rewrite_count;
        }
        let mut purged = PurgeEffects::default();
        for branch in catalog.branches.values() {
            let log = catalog.is_log(branch.id).then(|| catalog.log_entry_prefix(branch));
            let names = match &log {
                Some(prefix) => NameScope::Log(prefix),
                None if branch.root == root => NameScope::All,
                None => NameScope::None,
            };
            let after = self.purge_branch(branch, names, &mut purged.versions)?;
            if after != *branch {
                purged.holders.insert(branch.id);
                purged.branches.push(after);
            }
        }
        let path = catalog.branch(self.branch)?.path.clone();
        // Earlier states may be of branches that have ended and are in no catalog; the root's name in their paths tells
        // whose they are.
        self.purge_retained(catalog, path.split('/').next().unwrap_or_default(), &mut purged)?;
        Ok(purged)
    }

    /// Returns the entry, and its changes of a catalog. A caller without privileges must own all branches with purged
    /// items. Fails like [`PurgePlan::find_affected`].
    pub fn prepare(&mut self, catalog: &Catalog, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let mut purged = self.find_affected(catalog)?;
        let branch = catalog.branch(self.branch)?;
        let after = purged.branches.iter().find(|after| after.id == branch.id).map_or(branch, |after| &**after);
        let mut prepared = prepare_on_branch(catalog, log_record, after, EntryOp::Purge);
        prepared.labels = prepare_on_branch(catalog, log_record, branch, EntryOp::Purge).labels;
        let of_files = purged.versions.iter().filter(|(item, _)| item.starts_with("files/")).count() as u64;
        prepared.counts = Counts { put: 0, deleted: purged.versions.len() as u64 - of_files, files: of_files };
        let version = |(id, hash): (Arc<str>, Hash)| {
            let base = Some(hash).filter(|hash| *hash != Hash::ZERO);
            Decision { id, base, ..Decision::default() }
        };
        let text = Some(self.selection.items.join(" ").into());
        let conflicts = std::mem::take(&mut purged.versions).into_iter().map(version).collect();
        let prepared = prepared.with_detail(Detail { text, conflicts, ..Detail::default() });
        let prepared = prepared.with_change(CatalogChange::PurgedStates(purged.states, purged.replaced_state_files));
        Ok(prepared.with_change(CatalogChange::Purged(purged.branches)))
    }

    /// Returns a branch without it, in its present state, its base and its frozen states; itself where it has nothing
    /// of it.
    fn purge_branch(
        &mut self,
        branch: &BranchRef,
        names: NameScope<'_>,
        versions: &mut BTreeSet<(Arc<str>, Hash)>,
    ) -> Result<BranchRef, Error> {
        let mut after = branch.clone();
        let mut purged = |state: &Arc<BranchVersion>| self.purge_shared_state(state, names, versions);
        if let Some(state) = purged(&branch.state)? {
            after.make_mut().state = state;
        }
        if let Some(base) = purged(&branch.base)? {
            after.make_mut().base = base;
        }
        after.replace_frozen(|old| {
            let states = (purged(&old.state)?, purged(&old.base)?);
            Ok::<_, Error>((states.0.is_some() || states.1.is_some()).then(|| {
                let (state, base) = (states.0.unwrap_or(old.state.clone()), states.1.unwrap_or(old.base.clone()));
                Checkpoint { state, base, ..old.clone() }
            }))
        })?;
        Ok(after)
    }

    /// Works out the earlier states that have something of it; those of a file that has one are all read.
    fn purge_retained(&mut self, catalog: &Catalog, root: &str, purged: &mut PurgeEffects) -> Result<(), Error> {
        let mut all: Vec<(Option<Hash>, Vec<KeyedState>)> = Vec::new();
        for file in catalog.retained.files.iter() {
            let states = match self.state_files.get(&file.name()) {
                Some(states) => states.clone(),
                None => Arc::new(file.read_all()?.into_iter().collect::<Vec<_>>()),
            };
            self.state_files.insert(file.name(), states.clone());
            all.push((Some(file.name()), states.to_vec()));
        }
        let recent = catalog.retained.recent.iter();
        all.push((
            None,
            recent.map(|((branch, entry), recent)| ((branch.0, *entry), recent.retained.clone())).collect(),
        ));
        for (file, states) in all {
            let (mut after, mut has_any) = (Vec::with_capacity(states.len()), false);
            for (key, retained) in states {
                let branch = BranchId(key.0);
                let is_own = catalog.root_name(branch).is_some_and(|name| name == root);
                let names = if is_own { NameScope::All } else { NameScope::None };
                let state = self.purge_shared_state(&retained.state, names, &mut purged.versions)?;
                let base = self.purge_shared_state(&retained.base, names, &mut purged.versions)?;
                if state.is_some() || base.is_some() {
                    has_any = true;
                    purged.holders.insert(branch);
                }
                let (state, base) = (state.unwrap_or(retained.state.clone()), base.unwrap_or(retained.base.clone()));
                after.push((key, RetainedState { state, base, ..retained }));
            }
            // A file of states never changes, so one that has some of it is replaced as a whole.
            if has_any {
                purged.replaced_state_files.extend(file);
                purged.states.extend(after);
            }
        }
        Ok(())
    }

    /// Returns a state without it, and adds what went to `versions`; `None` if it has nothing of it.
    fn purge_shared_state(
        &mut self,
        before: &Arc<BranchVersion>,
        names: NameScope<'_>,
        versions: &mut BTreeSet<(Arc<str>, Hash)>,
    ) -> Result<Option<Arc<BranchVersion>>, Error> {
        // States are shared by forks, checkpoints and entries. The address tells them apart, and `PurgedState` holds
        // what it is of.
        let key = (Arc::as_ptr(before), matches!(names, NameScope::All));
        if !self.states.contains_key(&key) {
            let purged = self.purge_state(before, names)?;
            self.states.insert(key, purged);
        }
        let purged = self.states.get(&key).ok_or(BranchError::Moves)?;
        versions.extend(purged.removed.iter().cloned());
        Ok((!Arc::ptr_eq(&purged.before, &purged.after)).then(|| purged.after.clone()))
    }

    fn purge_state(&mut self, before: &Arc<BranchVersion>, names: NameScope<'_>) -> Result<PurgedState, Error> {
        let (ids, chosen) = match names {
            NameScope::All => (&*self.ids, &self.files),
            NameScope::None | NameScope::Log(_) => (&[][..], &self.files_elsewhere),
        };
        let (hashes, rows) = (&self.records, &mut self.rows);
        let mut after = BranchVersion::clone(before);
        let mut removed = after.purge(ids, hashes, &mut |segment| rows_with_hashes(rows, segment, hashes))?;
        if let NameScope::Log(prefix) = names {
            removed = put_purged_entries(prefix, before, &mut after, removed)?;
        }
        let had_records = !removed.is_empty();
        let files = before.files().without_purged(chosen, self.time).map_err(tree_error)?;
        let had_files = files.is_some();
        if let Some(files) = files {
            // One without a name is not named here: no opening has such a file, and each has to make the same entry again.
            for file in before.files().files_to_purge(chosen).into_iter().filter(|file| !file.path.is_empty()) {
                let path = format!("files/{}", String::from_utf8_lossy(&file.path)).into();
                removed.push((path, file.hash.unwrap_or(Hash::ZERO)));
            }
            after.set_files(files);
        }
        let after = if had_records || had_files { Arc::new(after) } else { before.clone() };
        Ok(PurgedState { before: before.clone(), after, removed })
    }
}

/// Puts into a log what is left of entries that go; returns those of which something went, by the names that users know.
fn put_purged_entries(
    prefix: &str,
    before: &BranchVersion,
    after: &mut BranchVersion,
    gone: Vec<(Arc<str>, Hash)>,
) -> Result<Vec<(Arc<str>, Hash)>, Error> {
    let mut named = Vec::with_capacity(gone.len());
    for (id, hash) in gone {
        let (Some(number), Some(row)) = (log_entry_number(&id), before.find(&id)?) else { continue };
        let version = row.version()?;
        let left = Version::new(id, purged_content(number, &version), version.provenance.clone());
        // What is left of an entry that was purged before is the same again, so nothing went now.
        if left.hash != hash {
            named.push((format!("{prefix}{number}").into(), hash));
        }
        after.put(Row::Unsealed(Arc::new(left)))?;
    }
    Ok(named)
}

/// Returns the rows of a segment that have one of some hashes, in order; a scan of all rows at the first call.
fn rows_with_hashes(
    rows_by_segment: &mut HashMap<Hash, Arc<[u32]>>,
    segment: &Arc<Segment>,
    hashes: &HashSet<Hash>,
) -> Result<Arc<[u32]>, SegmentError> {
    if hashes.is_empty() {
        return Ok(Arc::default());
    }
    // Segments are immutable, so the rows found once hold for every state that shows the segment.
    if let Some(rows) = rows_by_segment.get(&segment.name()) {
        return Ok(rows.clone());
    }
    let is_one = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).is_ok_and(|bytes| hashes.contains(&Hash(bytes)));
    let all = segment.hashes()?.chunks_exact(32).zip(0u32..);
    let rows: Arc<[u32]> = all.filter(|(bytes, _)| is_one(bytes)).map(|(_, row)| row).collect();
    rows_by_segment.insert(segment.name(), rows.clone());
    Ok(rows)
}
