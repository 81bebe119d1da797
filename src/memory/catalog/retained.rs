//! States that stay readable for `config/keep`, and branches that have ended.
//!
//! States since the last seal are held in memory; a seal writes them to files, which are read when somebody asks for a state.
//! [`Retention::select_retained`] decides for both which of them stay. Beside time, memory decides: see
//! `maintenance::excess_states`.

use std::collections::HashSet;
use std::sync::Arc;

use imbl::OrdMap;

use super::settings::Settings;
use super::{Branch, BranchId, Catalog, without_orphans};
use crate::branch::{BranchVersion, RetainedState, StateFile, StateInfo, StateKey};
use crate::memory::Error;
use crate::object::{CodecError, Hash, Reader, Time, Writer};

/// The newest states of a branch that stay, however close together they are.
pub const NEWEST_STATES_KEPT: usize = 1000;
/// States of one branch in memory at which outdated ones are dropped.
const DROP_THRESHOLD_STATES: u32 = 2 * NEWEST_STATES_KEPT as u32;

/// Deletes in a row from which on the state before them stays: `rm -r` makes an entry for each record, and more of them than the
/// newest that stay.
const MANY_DELETES: u32 = 100;

/// The states that stay readable, and the branches that have ended.
///
/// **Invariants:**
///
/// - A key is a branch and the entry that gave it the state, which it had until its next change. What a key means never changes.
///   A seal replaces the state by an equal one in other files, a purge by one without what was purged.
/// - Only `Catalog::apply` adds states, at commits and at replay alike, in order of entries.
/// - A seal writes the states of its rotation to a file and installs that while those pushed meanwhile stay in `recent`. A key
///   may be in both: [`RetainedStates::pin`] adds the newest state again to set its flag. `recent` is asked first.
/// - A state goes in two ways. [`RetainedStates::drop_outdated`] removes states from `recent`, which bounds the memory
///   between seals. Collection only names keys in `outdated`, which hides them from that moment on; the next seal leaves
///   them out of the files. One that is added or pinned after that is found again.
#[derive(Clone, Default)]
pub struct RetainedStates {
    /// Those that are in no file yet, by branch and entry.
    pub recent: OrdMap<(BranchId, u64), RecentState>,
    /// The files of all others, oldest first: one is read when a state of it is asked for.
    pub files: Arc<Vec<Arc<StateFile>>>,
    /// Those that need not stay. Nobody finds them any more, and a seal that begins after that lets go of them: so an opening finds
    /// all that the log names, since what is named after a seal's beginning is in what it writes.
    pub outdated: Arc<HashSet<StateKey>>,
    /// Those of them that go for the memory that they take: the next seal writes their files again, however few they are.
    pub excess: Arc<HashSet<StateKey>>,
    /// Branches that were discarded or merged, by the entry that did so.
    pub ended: OrdMap<u64, Arc<EndedBranch>>,
    /// Whether no state is removed, as while the journal is replayed. If a process dropped states depends on when its
    /// seals began, which no log says, so a replay that dropped some could miss a state that a later log record names.
    /// The first commit behind it drops them. Nor is one removed while a purge makes its entry, which names what is in
    /// them.
    pub keeps_all: bool,
    /// Branches whose newest entries delete and do nothing else; not stored.
    deletes: OrdMap<BranchId, DeleteRun>,
}

/// Deletes of a branch in a row. The state before them is pinned when there are [`MANY_DELETES`].
#[derive(Clone, Copy, PartialEq, Eq)]
struct DeleteRun {
    /// The entry that gave the branch the state before them.
    after: u64,
    count: u32,
}

/// A state that is in no file yet. The next seal writes it to one, if it is kept.
#[derive(Clone)]
pub struct RecentState {
    /// The state with its base, its owner then, and when the branch got it.
    pub retained: RetainedState,
    /// At least the number of states of the branch before it here. It only says when to drop outdated ones: after a seal has
    /// taken the first ones out the later ones keep theirs, until dropping numbers all anew.
    position: u32,
}

/// What is remembered of a branch that was discarded or merged. What it held is the state after its last entry.
#[derive(Clone)]
pub struct EndedBranch {
    /// Its id, under which its states are kept.
    pub id: BranchId,
    /// Its name at its end.
    pub name: Arc<str>,
    /// Its name path at its end, which begins with the name of its root branch.
    pub path: Arc<str>,
    /// The branch above it, below which it is looked for; `None` for a root branch.
    pub parent: Option<BranchId>,
    /// Uid of its owner, who may bring it back.
    pub uid: u32,
    /// Mode bits of its directory, which it gets back.
    pub mode: u32,
    /// When it was forked, or made as a root branch.
    pub created: Time,
    /// When it was discarded or merged.
    pub ended: Time,
    /// Whether it was merged; else it was discarded, or expired.
    pub is_merged: bool,
    /// Number of the entry that gave it its last state.
    pub last_entry: u64,
    /// Its settings at its end, which it gets back.
    pub settings: Settings,
}

/// By the id alone: what is remembered of a branch never changes.
impl PartialEq for EndedBranch {
    fn eq(&self, other: &EndedBranch) -> bool {
        self.id == other.id
    }
}

impl EndedBranch {
    /// Appends the stored form without the settings, which are stored by number among those of all branches.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        out.number(self.id.0).text(&self.name).text(&self.path).number(self.parent.map_or(0, |id| id.0));
        out.number(u64::from(self.uid)).number(u64::from(self.mode)).signed(self.created.0).signed(self.ended.0);
        out.byte(u8::from(self.is_merged)).number(self.last_entry)
    }

    /// Reads the stored form; the settings are the default ones. [`CodecError::Number`] for a uid or a mode of more
    /// than 32 bits.
    pub fn read(input: &mut Reader<'_>) -> Result<EndedBranch, CodecError> {
        let to_u32 = |number: u64| u32::try_from(number).map_err(|_| CodecError::Number);
        let (id, name, path) = (BranchId(input.number()?), input.text()?.into(), input.text()?.into());
        let parent = Some(BranchId(input.number()?)).filter(|id| id.0 != 0);
        let (uid, mode) = (to_u32(input.number()?)?, to_u32(input.number()?)?);
        let (created, ended) = (Time(input.signed()?), Time(input.signed()?));
        let (is_merged, last_entry) = (input.byte()? == 1, input.number()?);
        let settings = Settings::default();
        Ok(EndedBranch { id, name, path, parent, uid, mode, created, ended, is_merged, last_entry, settings })
    }
}

/// How long states of a branch stay, by `config/keep` and `config/keep_every`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How many nanoseconds a state stays readable after it was left.
    pub keep_nanos: i64,
    /// Of states within this interval the newest stays; 0 keeps all.
    pub interval_nanos: i64,
}

impl Retention {
    /// Tells of states of one branch, oldest first, which of them stay. `newer` is how many more there are, and `left` when the
    /// last one was left, if the branch has another by now.
    pub fn select_retained(&self, states: &[StateInfo], newer: usize, left: Option<Time>, now: Time) -> Vec<bool> {
        if self.keep_nanos <= 0 {
            return vec![false; states.len()];
        }
        let bucket = |time: Time| if self.interval_nanos > 0 { time.0.div_euclid(self.interval_nanos) } else { time.0 };
        let next = |place: usize| states.get(place + 1).map(|next| next.time);
        let stays = |(place, state): (usize, &StateInfo)| {
            let after = next(place).or(left);
            // Its age counts from when it was left, so that the state which a branch still has never runs out.
            if after.is_some_and(|left| now.0.saturating_sub(left.0) >= self.keep_nanos) {
                return false;
            }
            let is_new = states.len() - place + newer <= NEWEST_STATES_KEPT;
            is_new
                || state.is_pinned
                || self.interval_nanos == 0
                || after.is_none_or(|after| bucket(after) != bucket(state.time))
        };
        states.iter().enumerate().map(stays).collect()
    }
}

impl RetainedStates {
    /// Keeps what a branch is behind an entry; nothing if its `config/keep` is 0.
    pub(super) fn push(&mut self, branch: &Branch, entry: u64, time: Time, is_pinned: bool) {
        let retention = branch.settings.retention();
        if retention.keep_nanos <= 0 {
            return;
        }
        let position = self.newest_state(branch.id).map_or(0, |newest| newest.position + 1);
        let (state, base) = (without_orphans(&branch.state), branch.base.clone());
        let retained = RetainedState { time, owner: branch.uid, is_pinned, state, base };
        self.recent.insert((branch.id, entry), RecentState { retained, position });
        self.unhide((branch.id.0, entry));
        if position >= DROP_THRESHOLD_STATES && !self.keeps_all {
            self.drop_outdated(branch.id, retention, time);
        }
    }

    /// Pins the present state of a branch, as the next step may be taken back as a whole.
    pub(super) fn pin(&mut self, branch: &Branch) {
        let key = (branch.id, branch.state_entry);
        match self.recent.get_mut(&key) {
            Some(recent) => {
                recent.retained.is_pinned = true;
                self.unhide((branch.id.0, branch.state_entry));
            }
            None => self.push(branch, branch.state_entry, branch.changed, true),
        }
    }

    /// Has a state found again that a collection let go of while the branch still had it, as where nothing was to be kept then.
    fn unhide(&mut self, key: StateKey) {
        for hidden in [&mut self.outdated, &mut self.excess] {
            // Asked first, since a set that others share is copied to be changed.
            if hidden.contains(&key) {
                Arc::make_mut(hidden).remove(&key);
            }
        }
    }

    /// Notes an entry that gives a branch another state, before it does so, and whether the branch has fewer records then. The
    /// state before many deletes stays as long as any other.
    pub(super) fn track_deletes(&mut self, branch: &Branch, deletes: bool) {
        if !deletes {
            self.deletes.remove(&branch.id);
            return;
        }
        // A seal has moved it to a file, where nothing can be pinned.
        if !self.deletes.contains_key(&branch.id) && !self.recent.contains_key(&(branch.id, branch.state_entry)) {
            self.pin(branch);
        }
        let run = self.deletes.entry(branch.id).or_insert(DeleteRun { after: branch.state_entry, count: 0 });
        run.count = run.count.saturating_add(1);
        let key = (branch.id, run.after);
        if run.count == MANY_DELETES
            && let Some(before) = self.recent.get_mut(&key)
        {
            before.retained.is_pinned = true;
        }
    }

    /// Pins the state before each unfinished run of deletes. A seal is about to move it to a file, where it can't be
    /// pinned later.
    pub fn pin_states_before_deletes(&mut self) {
        for (branch, run) in &self.deletes {
            if let Some(before) = self.recent.get_mut(&(*branch, run.after)) {
                before.retained.is_pinned = true;
            }
        }
    }

    fn newest_state(&self, branch: BranchId) -> Option<&RecentState> {
        self.recent.range((branch, 0)..=(branch, u64::MAX)).next_back().map(|(_, recent)| recent)
    }

    fn drop_outdated(&mut self, branch: BranchId, retention: Retention, now: Time) {
        let of_branch = self.recent.range((branch, 0)..=(branch, u64::MAX));
        let infos: Vec<StateInfo> = of_branch.map(|(key, recent)| recent.info(*key)).collect();
        let stays = retention.select_retained(&infos, 0, None, now);
        let mut position = 0;
        for (info, stays) in infos.iter().zip(stays) {
            let key = (branch, info.key.1);
            match self.recent.get_mut(&key) {
                Some(recent) if stays => {
                    recent.position = position;
                    position += 1;
                }
                _ => drop(self.recent.remove(&key)),
            }
        }
    }

    /// Returns what is known of those that are in no file, in order of branch and entry.
    pub fn recent_infos(&self) -> Vec<StateInfo> {
        self.recent.iter().map(|(key, recent)| recent.info(*key)).collect()
    }

    /// Returns the state of a branch after an entry; `None` if it is not kept. An outdated state counts as not kept,
    /// even if a file still holds it. Fails if the file of states that has it, or a segment that its state names, can't
    /// be read or is damaged.
    pub fn find(&self, branch: BranchId, entry: u64) -> Result<Option<RetainedState>, Error> {
        if self.outdated.contains(&(branch.0, entry)) {
            return Ok(None);
        }
        if let Some(recent) = self.recent.get(&(branch, entry)) {
            return Ok(Some(recent.retained.clone()));
        }
        for file in self.files.iter().rev() {
            if let Some(state) = file.state((branch.0, entry))? {
                return Ok(Some(state));
            }
        }
        Ok(None)
    }

    /// Returns the newest state of a branch at or before an entry, if one is kept. It costs a binary search in each
    /// file of states. Fails if a file of states can't be read or is damaged.
    pub fn newest_at_or_before(&self, branch: BranchId, entry: u64) -> Result<Option<StateInfo>, Error> {
        let recent = self.recent.range((branch, 0)..=(branch, entry)).rev().map(|(key, recent)| recent.info(*key));
        let mut newest = recent.into_iter().find(|info| self.is_retained(info));
        for file in self.files.iter() {
            let mut found = file.newest_at_or_before(branch.0, entry)?;
            while let Some(info) = found
                && !self.is_retained(&info)
            {
                // An outdated state is in its file until the next seal, so the one before it is looked for.
                found = file.newest_at_or_before(branch.0, info.key.1 - 1)?;
            }
            newest = newest.into_iter().chain(found).max_by_key(|info| info.key);
        }
        Ok(newest)
    }

    /// Returns the newest state of a branch at or before a time, if one is kept. It costs a binary search in each file
    /// of states. Fails if a file of states can't be read or is damaged.
    pub fn newest_at(&self, branch: BranchId, time: Time) -> Result<Option<StateInfo>, Error> {
        let recent = self.recent.range((branch, 0)..=(branch, u64::MAX)).rev();
        let recent =
            recent.map(|(key, recent)| recent.info(*key)).find(|info| info.time <= time && self.is_retained(info));
        let mut newest = recent;
        for file in self.files.iter() {
            let mut found = file.newest_at(branch.0, time)?;
            while let Some(info) = found
                && !self.is_retained(&info)
            {
                found = file.newest_at_or_before(branch.0, info.key.1 - 1)?;
            }
            newest = newest.into_iter().chain(found).max_by_key(|info| info.key);
        }
        Ok(newest)
    }

    /// Returns the oldest state of a branch, if one is kept. Fails if a file of states can't be read or is damaged.
    pub fn oldest(&self, branch: BranchId) -> Result<Option<StateInfo>, Error> {
        let mut recent = self.recent.range((branch, 0)..=(branch, u64::MAX)).map(|(key, recent)| recent.info(*key));
        let mut oldest = recent.find(|info| self.is_retained(info));
        for file in self.files.iter() {
            let mut found = file.oldest(branch.0)?;
            while let Some(info) = found
                && !self.is_retained(&info)
            {
                found = file.first_after(branch.0, info.key.1)?;
            }
            oldest = oldest.into_iter().chain(found).min_by_key(|info| info.key);
        }
        Ok(oldest)
    }

    fn is_retained(&self, info: &StateInfo) -> bool {
        !self.outdated.contains(&info.key)
    }

    /// Looks through all kept states of a branch until one is what is looked for; each comes with another one that was
    /// looked at. It reads every state until then, one file at a time. An error of `look` ends it.
    pub fn find_in<T>(
        &self,
        branch: BranchId,
        mut look: impl FnMut(&BranchVersion, &BranchVersion) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let mut before = Arc::new(BranchVersion::default());
        for (key, recent) in self.recent.range((branch, 0)..=(branch, u64::MAX)) {
            if !self.is_retained(&recent.info(*key)) {
                continue;
            }
            if let Some(found) = look(&recent.retained.state, &before)? {
                return Ok(Some(found));
            }
            before = recent.retained.state.clone();
        }
        for file in self.files.iter().rev() {
            for info in file.infos()?.into_iter().filter(|info| info.key.0 == branch.0 && self.is_retained(info)) {
                let Some(retained) = file.state(info.key)? else { continue };
                if let Some(found) = look(&retained.state, &before)? {
                    return Ok(Some(found));
                }
                before = retained.state;
            }
        }
        Ok(None)
    }

    /// Notes that a branch ends, unless its `config/keep` is 0.
    pub(super) fn end(&mut self, branch: &Branch, entry: u64, time: Time, is_merged: bool) {
        self.deletes.remove(&branch.id);
        if branch.settings.retention().keep_nanos <= 0 {
            return;
        }
        // Bringing the branch back needs its last state.
        self.pin(branch);
        let ended = EndedBranch {
            id: branch.id,
            name: branch.name.clone(),
            path: branch.path.clone(),
            parent: branch.parent,
            uid: branch.uid,
            mode: branch.mode,
            created: branch.created,
            ended: time,
            is_merged,
            last_entry: branch.state_entry,
            settings: branch.settings.clone(),
        };
        self.ended.insert(entry, Arc::new(ended));
    }

    /// Lets go of the older half of the files, and where there are none of all states that are in none; returns whether anything
    /// went.
    pub(in crate::memory) fn drop_oldest(&mut self) -> bool {
        let gone = self.files.len().div_ceil(2);
        self.files = Arc::new(self.files[gone..].to_vec());
        // The newest states go last, once no file is left.
        gone > 0 || !std::mem::take(&mut self.recent).is_empty()
    }

    /// Puts states in the place of those of that branch and entry, and lets go of some files.
    pub(super) fn replace(&mut self, states: Vec<(StateKey, RetainedState)>, files: &[Hash]) {
        for ((branch, entry), retained) in states {
            let position = self.recent.get(&(BranchId(branch), entry)).map_or(0, |recent| recent.position);
            self.recent.insert((BranchId(branch), entry), RecentState { retained, position });
        }
        if !files.is_empty() {
            let left = self.files.iter().filter(|file| !files.contains(&file.name()));
            self.files = Arc::new(left.cloned().collect());
        }
    }

    /// Calls `each` with every state that is held in memory, and with what state files refer to: whole states, and
    /// pseudo-states that hold the rows and chunks of all others.
    pub fn for_each_held(&self, each: &mut impl FnMut(&Arc<BranchVersion>)) {
        for recent in self.recent.values() {
            each(&recent.retained.state);
            each(&recent.retained.base);
        }
        for file in self.files.iter() {
            each(file.held());
            file.full_states().iter().for_each(&mut *each);
        }
    }
}

/// By address, which is all that the diff of two catalogs needs: a state that was relocated counts as another one.
impl PartialEq for RecentState {
    fn eq(&self, other: &RecentState) -> bool {
        let (one, two) = (&self.retained, &other.retained);
        Arc::ptr_eq(&one.state, &two.state)
            && Arc::ptr_eq(&one.base, &two.base)
            && (one.time, one.owner, one.is_pinned, self.position)
                == (two.time, two.owner, two.is_pinned, other.position)
    }
}

impl RecentState {
    /// Returns the same state after a relocation: its rows or chunks are in other files.
    pub fn with_state(&self, state: Arc<BranchVersion>, base: Arc<BranchVersion>) -> RecentState {
        RecentState { retained: RetainedState { state, base, ..self.retained.clone() }, position: self.position }
    }

    fn info(&self, (branch, entry): (BranchId, u64)) -> StateInfo {
        let RetainedState { time, is_pinned, .. } = self.retained;
        StateInfo { key: (branch.0, entry), time, is_pinned }
    }
}

impl Catalog {
    /// Returns the name of the root branch above a branch, whether it lives or has ended; `None` if neither is known.
    pub fn root_name(&self, branch: BranchId) -> Option<&str> {
        self.last_path(branch)?.split('/').next()
    }

    /// Returns the name path of a branch; of one that has ended the last that it had, `None` if that is not kept.
    pub fn last_path(&self, branch: BranchId) -> Option<&str> {
        let live = self.branches.get(&branch).map(|branch| &*branch.path);
        // The latest first, of which is asked soonest.
        let mut ended = self.retained.ended.iter().rev().map(|(_, ended)| ended);
        live.or_else(|| ended.find(|ended| ended.id == branch).map(|ended| &*ended.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lets_go_of_states_hears_when_none_are_left() {
        assert!(!RetainedStates::default().drop_oldest());
    }

    #[test]
    fn the_newest_1000_states_stay_for_as_long_after_each_was_left_as_keep_says() {
        let info = |number: u32| StateInfo { key: (1, number.into()), time: Time(number.into()), is_pinned: false };
        let states: Vec<StateInfo> = (0..1_002).map(info).collect();
        let retention = Retention { keep_nanos: 5_000, interval_nanos: 1 << 40 };
        let stay = |now| retention.select_retained(&states, 0, None, Time(now));
        // State 2 was left at 3.
        let oldest = |now| stay(now).iter().position(|stays| *stays);
        assert_eq!([2_000, 5_002, 5_003].map(oldest), [Some(2), Some(2), Some(3)]);
        assert!(stay(2_000)[2..].iter().all(|stays| *stays));
    }
}
