//! Reading a file of states: one is made from the nearest that is at hand, step by step. Steps lead to earlier ones
//! only, so that not even damaged ones lead in a circle.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use super::{KIND, PINNED, ROW_BYTES, RetainedState, StateInfo, StateKey, WrittenStates, code};
use crate::branch::{BranchVersion, DeltaError, VersionIndex};
use crate::object::{BlobStore, CodecError, Hash, Reader, Time};
use crate::segment::{Container, SegmentError};
use crate::sync::Mutex;
use crate::workspace::{HeldChunks, Transfers};

/// Steps and states of a file that are remembered once they were read.
const READ_CACHE_MAX: usize = 64;

/// An open file of states, with the rows, chunks and full states that they refer to.
pub struct StateFile {
    container: Arc<Container>,
    /// The rows and chunks that its states need.
    held: Arc<BranchVersion>,
    /// Whole states that its steps refer to.
    full_states: Vec<Arc<BranchVersion>>,
    held_index: OnceLock<HeldIndex>,
    steps: ReadCache<u64, Arc<BranchVersion>>,
    states: ReadCache<StateKey, RetainedState>,
}

/// The last [`READ_CACHE_MAX`] that were read, the oldest in front.
struct ReadCache<K, V>(Mutex<VecDeque<(K, V)>>);

impl<K: PartialEq, V: Clone> ReadCache<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        self.0.lock().iter().find(|(known, _)| known == key).map(|(_, value)| value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut last = self.0.lock();
        // Two readers may have read the same one at once; one copy is enough.
        if last.iter().any(|(known, _)| *known == key) {
            return;
        }
        last.push_back((key, value));
        if last.len() > READ_CACHE_MAX {
            last.pop_front();
        }
    }
}

/// The held rows and chunks, by their hashes: a step names them so.
struct HeldIndex {
    versions: VersionIndex,
    chunks: HeldChunks,
}

/// One row of the index: a state, the uid of its branch's owner then, and the step that gives it.
pub(super) struct IndexRow {
    /// Which state it is; rows are sorted by its key.
    pub info: StateInfo,
    /// Uid of the branch's owner behind that entry.
    pub owner: u32,
    /// Number of the step in section 0, from 0.
    pub step: u64,
}

impl StateFile {
    /// Opens a file of states with the rows, chunks and full states that it needs from other files.
    /// [`SegmentError::Damaged`] if the file with that name is no file of states.
    pub fn open(blobs: &BlobStore, written: WrittenStates) -> Result<StateFile, SegmentError> {
        let container = Arc::new(Container::open(blobs, written.name, KIND)?);
        Ok(StateFile::new(container, written.held, written.full_states))
    }

    /// Checks a file that nothing names; `None` if it is of another kind. The error is that of [`StateFile::verify`].
    pub fn check(blobs: &BlobStore, name: Hash) -> Option<Result<(), SegmentError>> {
        Container::open(blobs, name, KIND).ok().map(|file| file.verify())
    }

    fn new(container: Arc<Container>, held: Arc<BranchVersion>, full_states: Vec<Arc<BranchVersion>>) -> StateFile {
        let (steps, states) = (ReadCache(Mutex::default()), ReadCache(Mutex::default()));
        StateFile { container, held, full_states, held_index: OnceLock::new(), steps, states }
    }

    /// Returns the same file with its rows and chunks found in other files: each state that `place` gives has to equal
    /// the one before.
    pub fn relocated(&self, mut place: impl FnMut(&Arc<BranchVersion>) -> Arc<BranchVersion>) -> StateFile {
        let (held, full_states) = (place(&self.held), self.full_states.iter().map(place).collect());
        StateFile::new(self.container.clone(), held, full_states)
    }

    /// Returns the file's name, which is the hash of its footer.
    pub fn name(&self) -> Hash {
        self.container.name()
    }

    /// Returns the length of the file on disk in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.container.file_bytes()
    }

    /// Returns the rows and chunks that its states need, in the form of a state, though no branch had it.
    pub fn held(&self) -> &Arc<BranchVersion> {
        &self.held
    }

    /// Returns the whole states that it needs, by the numbers that its steps have for them.
    pub fn full_states(&self) -> &[Arc<BranchVersion>] {
        &self.full_states
    }

    /// Checks every byte of the file. What `held` and the full states need is checked with the segments and packs that have
    /// it. The first damage ends it: `SegmentError::Damaged`.
    pub fn verify(&self) -> Result<(), SegmentError> {
        self.container.verify()
    }

    /// Returns the number of its states. [`SegmentError::Io`] or [`SegmentError::Damaged`] if the section of rows can't
    /// be read or is damaged.
    pub fn state_count(&self) -> Result<usize, SegmentError> {
        Ok(self.container.section(2)?.len() / ROW_BYTES)
    }

    /// Returns what is known of all its states, in order of branch and entry; [`SegmentError::Damaged`] if they are not
    /// in it.
    pub fn infos(&self) -> Result<Vec<StateInfo>, SegmentError> {
        let rows = (0..self.state_count()?).map(|row| self.row(row).map(|row| row.info));
        let infos = rows.collect::<Result<Vec<StateInfo>, SegmentError>>()?;
        // A state is found by halving the range, which would miss those that are out of order.
        if infos.is_sorted_by(|one, next| one.key < next.key) {
            Ok(infos)
        } else {
            Err(self.container.damaged(2, "its states are not in order"))
        }
    }

    /// Returns the newest state of a branch at or before an entry, if the file has one. Fails like
    /// [`StateFile::state_count`].
    pub fn newest_at_or_before(&self, branch: u64, entry: u64) -> Result<Option<StateInfo>, SegmentError> {
        let row = self.rows_until((branch, entry))?;
        let Some(row) = row.checked_sub(1) else { return Ok(None) };
        Ok(Some(self.row(row)?.info).filter(|info| info.key.0 == branch))
    }

    /// Returns the oldest state of a branch, if the file has one. Fails like [`StateFile::state_count`].
    pub fn oldest(&self, branch: u64) -> Result<Option<StateInfo>, SegmentError> {
        self.first_after(branch, 0)
    }

    /// Returns the oldest state of a branch behind an entry, if the file has one. Fails like
    /// [`StateFile::state_count`].
    pub fn first_after(&self, branch: u64, entry: u64) -> Result<Option<StateInfo>, SegmentError> {
        let row = self.rows_until((branch, entry))?;
        if row >= self.state_count()? {
            return Ok(None);
        }
        Ok(Some(self.row(row)?.info).filter(|info| info.key.0 == branch))
    }

    /// Returns the newest state of a branch at or before a time, if the file has one. Fails like
    /// [`StateFile::state_count`].
    pub fn newest_at(&self, branch: u64, time: Time) -> Result<Option<StateInfo>, SegmentError> {
        let (mut low, mut high) = (self.rows_until((branch, 0))?, self.rows_until((branch, u64::MAX))?);
        let first = low;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.row(middle)?.info.time <= time { low = middle + 1 } else { high = middle }
        }
        if low == first { Ok(None) } else { self.row(low - 1).map(|row| Some(row.info)) }
    }

    /// Reads a state; `None` if it is not here. The last 64 that were read are remembered.
    ///
    /// [`DeltaError::Missing`] if neither `held` nor a full state has a version that it names.
    pub fn state(&self, key: StateKey) -> Result<Option<RetainedState>, DeltaError> {
        if let Some(known) = self.states.get(&key) {
            return Ok(Some(known));
        }
        // The last row that is not behind the key is the one of the key, or there is none.
        let Some(row) = self.rows_until(key)?.checked_sub(1) else { return Ok(None) };
        let IndexRow { info, owner, step } = self.row(row)?;
        if info.key != key {
            return Ok(None);
        }
        let (state, base) = (self.step(step)?, self.base(step)?);
        let retained = RetainedState { time: info.time, owner, is_pinned: info.is_pinned, state, base };
        self.states.put(key, retained.clone());
        Ok(Some(retained))
    }

    /// Reads all states, in the order of their entries: each from the one before it. Fails like [`StateFile::state`],
    /// and then returns none of them.
    pub fn read_all(&self) -> Result<BTreeMap<StateKey, RetainedState>, DeltaError> {
        let mut keys: Vec<StateKey> = self.infos()?.into_iter().map(|info| info.key).collect();
        keys.sort_by_key(|(branch, entry)| (*entry, *branch));
        let mut states = BTreeMap::new();
        for key in keys {
            states.extend(self.state(key)?.map(|state| (key, state)));
        }
        Ok(states)
    }

    /// Returns the number of rows that are not behind a key.
    fn rows_until(&self, key: StateKey) -> Result<usize, SegmentError> {
        let (mut low, mut high) = (0, self.state_count()?);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.row(middle)?.info.key <= key { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Returns a row of the index, counted from 0. [`SegmentError::Damaged`] if the file has no row with that number;
    /// else it fails like [`StateFile::state_count`].
    pub(super) fn row(&self, row: usize) -> Result<IndexRow, SegmentError> {
        let bytes = self.container.section(2)?.get(row * ROW_BYTES..(row + 1) * ROW_BYTES);
        let bytes = bytes.ok_or_else(|| self.container.damaged(2, "a row of the index is not there"))?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        let info = StateInfo {
            key: (word(0), word(8)),
            time: Time(word(16).cast_signed()),
            is_pinned: half(28) & PINNED != 0,
        };
        Ok(IndexRow { info, owner: half(24), step: u64::from(half(32)) })
    }

    /// Returns the number of its steps. [`SegmentError::Io`] or [`SegmentError::Damaged`] if the section of their ends
    /// can't be read or is damaged.
    pub(super) fn step_count(&self) -> Result<u64, SegmentError> {
        Ok(self.container.section(1)?.len() as u64 / 8)
    }

    /// Returns the bytes of a step, counted from 0. [`SegmentError::Damaged`] if it has no end, or one that is not in
    /// the file; also fails if the sections of steps can't be read or are damaged.
    pub(super) fn step_bytes(&self, step: u64) -> Result<&[u8], SegmentError> {
        let (steps, ends) = (self.container.section(0)?, self.container.section(1)?);
        let end = |step: u64| {
            let at = usize::try_from(step).ok()?.checked_mul(8)?;
            let bytes = ends.get(at..at.checked_add(8)?)?;
            usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
        };
        let start = if step == 0 { Some(0) } else { end(step - 1) };
        let found = start.zip(end(step)).and_then(|(start, end)| steps.get(start..end));
        found.ok_or_else(|| self.container.damaged(1, "a step is not where it should be"))
    }

    /// Returns the state of a step: from the nearest one that is at hand on.
    fn step(&self, step: u64) -> Result<Arc<BranchVersion>, DeltaError> {
        let (mut deltas, mut at) = (Vec::new(), step);
        let mut state = loop {
            if let Some(known) = self.steps.get(&at) {
                break known;
            }
            let mut input = Reader::new(self.step_bytes(at)?);
            match input.number()?.checked_sub(1) {
                None => break self.full_state(input.number()?)?,
                // A step refers to earlier ones only, so that not even damaged ones lead in a circle.
                Some(before) if before < at => {
                    deltas.push(input);
                    at = before;
                }
                Some(_) => return Err(CodecError::Number.into()),
            }
        };
        for mut input in deltas.into_iter().rev() {
            state = Arc::new(self.apply(&state, &mut input)?);
        }
        self.steps.put(step, state.clone());
        Ok(state)
    }

    fn apply(&self, before: &BranchVersion, input: &mut Reader<'_>) -> Result<BranchVersion, DeltaError> {
        let held_index = self.held_index()?;
        let mut state = before.with_delta(input, &held_index.versions)?;
        if input.byte()? == code::CHANGED {
            let transfers = Transfers::read(input)?;
            let files = before.files().with_held_delta(input.bytes()?, &held_index.chunks)?;
            state.set_files(files.with_transfers(transfers));
        }
        Ok(state)
    }

    /// Returns the base of a step, which may be that of one before it.
    fn base(&self, mut step: u64) -> Result<Arc<BranchVersion>, DeltaError> {
        loop {
            let mut input = Reader::new(self.step_bytes(step)?);
            let before = input.number()?.checked_sub(1);
            match before {
                None => drop(input.number()?),
                Some(_) => skip_state(&mut input)?,
            }
            match (input.byte()?, before) {
                // Each round goes to an earlier step, so it ends even where the steps are damaged.
                (code::BASE_OF_BEFORE, Some(before)) if before < step => step = before,
                (code::BASE_FULL, _) => return self.full_state(input.number()?),
                (code::BASE_STEP, _) => {
                    let other = input.number()?;
                    return if other < step { self.step(other) } else { Err(CodecError::Number.into()) };
                }
                (other, _) => return Err(CodecError::Code(other).into()),
            }
        }
    }

    fn full_state(&self, number: u64) -> Result<Arc<BranchVersion>, DeltaError> {
        let full_state = usize::try_from(number).ok().and_then(|number| self.full_states.get(number));
        full_state.cloned().ok_or_else(|| CodecError::Number.into())
    }

    fn held_index(&self) -> Result<&HeldIndex, DeltaError> {
        if let Some(held_index) = self.held_index.get() {
            return Ok(held_index);
        }
        // Making it can fail, which `get_or_init` has no way to say: two readers may both do so, and the first one
        // stays.
        let versions = VersionIndex::new(self.held.layers())?;
        let chunks = HeldChunks::from_tree(self.held.files());
        Ok(self.held_index.get_or_init(|| HeldIndex { versions, chunks }))
    }
}

/// Reads over what a step's state is. [`DeltaError::Codec`] if the bytes are none that were written, or end too early.
pub(super) fn skip_state(input: &mut Reader<'_>) -> Result<(), DeltaError> {
    BranchVersion::skip_delta(input)?;
    if input.byte()? == code::CHANGED {
        Transfers::read(input)?;
        input.bytes()?;
    }
    Ok(())
}
