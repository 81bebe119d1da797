//! Earlier states on their way out of memory: a seal writes them into files, and those that need not stay go.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use imbl::OrdMap;

use crate::branch::{RetainedState, StateFile, StateInfo, StateKey, write_state_file};
use crate::memory::catalog::{BranchId, Catalog, EndedBranch};
use crate::memory::{Error, Kind};
use crate::object::{BlobStore, Time};

/// States of a file, and of newer ones, that a seal writes again together.
const MERGED_STATES_MAX: usize = 4096;
/// Files with fewer states are merged with any that are newer.
const MERGED_STATES_MIN: usize = 16;
/// States of one file at the most: reading all of them takes some 5 KiB each.
const FILE_STATES_MAX: usize = 8192;
/// A file is written again where one in so many of its states need not stay.
const OUTDATED_ONE_IN: usize = 4;

impl Catalog {
    /// Writes the earlier states that are in no file yet into one, with those of the newest file while that is small,
    /// and without those that are outdated; returns whether there are files that are not in use any more. All states
    /// are sealed. Fails if a file of states can't be read or written. This catalog lacks the states that are in no
    /// file then, so work on a clone.
    pub(in crate::memory) fn write_retained(&mut self, blobs: &BlobStore) -> Result<bool, Error> {
        let (outdated, excess) = (self.retained.outdated.clone(), self.retained.excess.clone());
        let mut files = self.retained.files.to_vec();
        let recent = std::mem::replace(&mut self.retained.recent, OrdMap::new());
        let mut is_changed = !recent.is_empty();
        let mut states: BTreeMap<StateKey, RetainedState> =
            recent.into_iter().map(|((branch, entry), recent)| ((branch.0, entry), recent.retained)).collect();
        // The newest files are taken in while they are small against what is new, so that each state is written again a
        // few times only.
        while is_changed
            && let Some(last) = files.last()
            && is_worth_merging(last.state_count()?, states.len())
        {
            let Some(older) = read_undamaged(last)? else { break };
            for (key, state) in older {
                // Where both have a state, the recent one counts: a pin may have been added to it.
                states.entry(key).or_insert(state);
            }
            files.pop();
        }
        // What need not stay is left out only now, when the states of merged files are among them.
        states.retain(|key, _| !outdated.contains(key));
        let mut kept = self.write_files(blobs, states)?;
        kept.reverse();
        for file in files.into_iter().rev() {
            let is_outdated = |info: &StateInfo| outdated.contains(&info.key);
            let gone = if outdated.is_empty() { 0 } else { file.infos()?.iter().filter(|it| is_outdated(it)).count() };
            let is_excess = |info: &StateInfo| excess.contains(&info.key);
            // What takes too much memory goes now; what is only outdated waits until rewriting the file is worth it.
            let must_go = !excess.is_empty() && file.infos()?.iter().any(is_excess);
            if gone == 0 || (gone * OUTDATED_ONE_IN < file.state_count()? && !must_go) {
                kept.push(file);
                continue;
            }
            let Some(mut states) = read_undamaged(&file)? else {
                kept.push(file);
                continue;
            };
            is_changed = true;
            states.retain(|key, _| !outdated.contains(key));
            kept.extend(self.write_files(blobs, states)?.into_iter().rev());
        }
        if !is_changed {
            return Ok(false);
        }
        kept.reverse();
        let before = std::mem::replace(&mut self.retained.files, Arc::new(kept));
        let is_left = |file: &Arc<StateFile>| self.retained.files.iter().any(|left| left.name() == file.name());
        Ok(!before.iter().all(is_left))
    }

    /// Writes states into files, as many as belong into one at most, oldest first.
    fn write_files(
        &self,
        blobs: &BlobStore,
        states: BTreeMap<StateKey, RetainedState>,
    ) -> Result<Vec<Arc<StateFile>>, Error> {
        let parents = self.parents();
        let mut order: Vec<(StateKey, RetainedState)> = states.into_iter().collect();
        order.sort_by_key(|((branch, entry), _)| (*entry, *branch));
        let mut files = Vec::new();
        for part in order.chunks(FILE_STATES_MAX) {
            let parent_of = |branch| parents.get(&BranchId(branch)).map(|parent| parent.0);
            let written = write_state_file(blobs, &part.iter().cloned().collect(), parent_of)?;
            files.push(Arc::new(StateFile::open(blobs, written)?));
        }
        Ok(files)
    }

    fn parents(&self) -> HashMap<BranchId, BranchId> {
        let live = self.branches.values().map(|branch| (branch.id, branch.parent));
        let ended = self.retained.ended.values().map(|ended| (ended.id, ended.parent));
        live.chain(ended).filter_map(|(id, parent)| Some((id, parent?))).collect()
    }

    /// Tells of states, in order of branch and entry, which of them stay.
    fn retained_mask(&self, infos: &[StateInfo], newer: &NewerStates, now: Time) -> Vec<bool> {
        let mut stay = Vec::with_capacity(infos.len());
        let ended = self.retained.ended.values();
        let ended: HashMap<BranchId, &EndedBranch> = ended.map(|ended| (ended.id, &**ended)).collect();
        for of_branch in infos.chunk_by(|one, other| one.key.0 == other.key.0) {
            let branch = BranchId(of_branch[0].key.0);
            let live = self.branches.get(&branch).map(|branch| (branch.settings.retention(), None));
            let known = live.or_else(|| ended.get(&branch).map(|it| (it.settings.retention(), Some(it.ended))));
            match known {
                Some((retention, ended)) => {
                    let (count, next) = newer.get(branch.0);
                    stay.extend(retention.select_retained(of_branch, count, next.or(ended), now));
                }
                None => stay.extend(of_branch.iter().map(|_| false)),
            }
        }
        stay
    }

    /// Returns the earlier states that need not stay. Where several files hold a state, the newest decides, which is
    /// also the one that is found: only it may be pinned. Kind `Io` or `Damaged` if a file of states can't be read.
    pub(in crate::memory) fn outdated_states(&self, now: Time) -> Result<HashSet<StateKey>, Error> {
        let (mut newer, mut outdated, mut seen) = (NewerStates::default(), HashSet::new(), HashSet::new());
        let recent = std::iter::once_with(|| Ok(self.retained.recent_infos()));
        let files = self.retained.files.iter().rev().map(|file| file.infos());
        for infos in recent.chain(files) {
            let mut infos: Vec<StateInfo> = infos?;
            // From the newest file to the oldest, so that of several copies of a state the one that may be pinned
            // decides.
            infos.retain(|info| seen.insert(info.key));
            let stay = self.retained_mask(&infos, &newer, now);
            outdated.extend(infos.iter().zip(stay).filter(|(_, stays)| !stays).map(|(info, _)| info.key));
            newer.add(infos.iter().map(|info| (info.key.0, info.time)));
        }
        Ok(outdated)
    }

    /// Lets branches be forgotten that ended longer ago than their `config/keep`, so that no state of theirs need stay.
    pub(in crate::memory) fn forget_ended_branches(&mut self, now: Time) {
        let is_over = |ended: &EndedBranch| {
            let keep = ended.settings.retention().keep_nanos;
            now.0.saturating_sub(ended.ended.0) >= keep
        };
        let over: Vec<u64> =
            self.retained.ended.iter().filter(|(_, ended)| is_over(ended)).map(|(entry, _)| *entry).collect();
        over.iter().for_each(|entry| drop(self.retained.ended.remove(entry)));
    }
}

/// Returns the states of a file. `None` if it, or a segment that they name, is damaged: the file stays as it is then,
/// since that is not a reason to seal nothing. Fails if the disk refuses.
fn read_undamaged(file: &StateFile) -> Result<Option<BTreeMap<StateKey, RetainedState>>, Error> {
    match file.read_all().map_err(Error::from) {
        Err(error) if error.kind() == Kind::Damaged => {
            log::warn!("a file of earlier states is not written again now: {error}; {}", error.hint());
            Ok(None)
        }
        states => states.map(Some),
    }
}

/// Returns whether a seal reads so many states and writes them again, together with newer ones: not many for few, so
/// that each is written again only some ten times.
fn is_worth_merging(states: usize, newer: usize) -> bool {
    states <= MERGED_STATES_MIN.max(2 * newer) && states + newer <= MERGED_STATES_MAX
}

/// How many states of each branch are newer than those that are looked at, and when the oldest of them was made.
#[derive(Default)]
struct NewerStates(HashMap<u64, (usize, Time)>);

impl NewerStates {
    fn add(&mut self, states: impl Iterator<Item = (u64, Time)>) {
        for (branch, time) in states {
            let (count, oldest) = self.0.entry(branch).or_insert((0, time));
            (*count, *oldest) = (*count + 1, time.min(*oldest));
        }
    }

    fn get(&self, branch: u64) -> (usize, Option<Time>) {
        self.0.get(&branch).map_or((0, None), |(count, oldest)| (*count, Some(*oldest)))
    }
}
