//! Writing a file of states as steps, each what differs from an earlier one. Rows of steps are kept short, since
//! all of one has to be read for its last state.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{KIND, PINNED, RetainedState, StateKey, code};
use crate::branch::delta::NeededRows;
use crate::branch::{BranchVersion, DeltaError};
use crate::object::{BlobStore, Hash, Writer};
use crate::segment::{ContainerWriter, SegmentError};
use crate::workspace::HeldChunks;

/// Records that one step may have other than the one before, beyond which it is a full state, and likewise for one in so many of the
/// times of deletes: a full state has all of them.
const STEP_RECORDS_MAX: usize = 1024;
const STEP_DELETES_ONE_IN: usize = 8;
/// Bytes that the files of one step may take, likewise.
const STEP_FILE_BYTES_MAX: usize = 64 << 10;
/// Records and kilobytes of files that a row of steps may change, or one in so many of the times of deletes, beyond which the next
/// is a full state: what is read for one state.
const ROW_COST_MAX: usize = 4096;
const ROW_DELETES_ONE_IN: usize = 2;

/// A file that was written, with what it needs from other files.
pub struct WrittenStates {
    /// Name of the file in the blob store.
    pub name: Hash,
    /// The rows and chunks that its states need: they are moved as a state is, and the file stays as it is.
    pub held: Arc<BranchVersion>,
    /// Whole states that its steps begin with, in the order of their numbers.
    pub full_states: Vec<Arc<BranchVersion>>,
}

/// What later steps may refer to.
#[derive(Clone)]
struct Step {
    number: u64,
    cost: usize,
    state: Arc<BranchVersion>,
    base: Arc<BranchVersion>,
}

#[derive(Default)]
struct StepWriter {
    out: Writer,
    step_ends: Vec<u64>,
    rows: NeededRows,
    chunks: HeldChunks,
    full_states: Vec<Arc<BranchVersion>>,
    /// The last step of each branch.
    last_steps: HashMap<u64, Step>,
    /// The first step of each head: bases refer to it, and references lead to earlier steps only.
    steps_by_head: HashMap<Hash, Step>,
}

/// Writes states, all of them sealed, into one file. `parent_of` tells the parent of a branch where that is known.
///
/// Versions are read, as far as they are named. If one is damaged its state is written whole; where the disk refuses
/// there is no file.
pub fn write_state_file(
    blobs: &BlobStore,
    states: &BTreeMap<StateKey, RetainedState>,
    parent_of: impl Fn(u64) -> Option<u64>,
) -> Result<WrittenStates, DeltaError> {
    // Steps are in the order of entries, so that a fork follows the state that it was forked from; the index is in the
    // order of keys.
    let mut order: Vec<(&StateKey, &RetainedState)> = states.iter().collect();
    order.sort_by_key(|((branch, entry), _)| (*entry, *branch));
    let (mut steps, mut index) = (StepWriter::default(), Writer::new());
    let mut numbers = HashMap::new();
    for (key, retained) in order {
        if let Some(parent) = parent_of(key.0) {
            steps.add_base(parent, &retained.base)?;
        }
        // After the base, which may have become a step of its own and taken the number before.
        numbers.insert(*key, steps.step_ends.len() as u32);
        steps.add(key.0, retained)?;
    }
    for (key, retained) in states {
        let flags = if retained.is_pinned { PINNED } else { 0 };
        index.raw(&key.0.to_le_bytes()).raw(&key.1.to_le_bytes()).raw(&retained.time.0.to_le_bytes());
        index.raw(&retained.owner.to_le_bytes()).raw(&flags.to_le_bytes());
        index.raw(&numbers[key].to_le_bytes()).raw(&[0; 4]);
    }
    let ends: Vec<u8> = steps.step_ends.iter().flat_map(|end| end.to_le_bytes()).collect();
    let mut file = ContainerWriter::new(blobs)?;
    for section in [steps.out.as_slice(), &ends, index.as_slice()] {
        file.begin()?;
        file.write(section)?;
    }
    let name = file.finish(KIND, &[])?;
    let mut held = BranchVersion::from_layers(steps.rows.into_layers());
    held.replace_by_equal_files(steps.chunks.tree()?);
    Ok(WrittenStates { name, held: Arc::new(held), full_states: steps.full_states })
}

impl StepWriter {
    /// Adds a base that is not among the states, because its parent does not keep it any more, as if the parent did: forks of
    /// states close together are close together, too.
    fn add_base(&mut self, parent: u64, base: &Arc<BranchVersion>) -> Result<(), DeltaError> {
        if self.steps_by_head.contains_key(&base.head()) {
            return Ok(());
        }
        let before = self.last_steps.get(&parent).cloned();
        let of_parent = before.as_ref().map_or(base, |step| &step.base).clone();
        self.add_step(parent, before, base, of_parent)
    }

    fn add(&mut self, branch: u64, retained: &RetainedState) -> Result<(), DeltaError> {
        // The last state of its branch, or the one that it was forked from.
        let before = self.last_steps.get(&branch).or_else(|| self.steps_by_head.get(&retained.base.head())).cloned();
        self.add_step(branch, before, &retained.state, retained.base.clone())
    }

    /// Adds a state of a branch as a change of the step before, where that is not large or far from a whole state.
    fn add_step(
        &mut self,
        branch: u64,
        before: Option<Step>,
        state: &Arc<BranchVersion>,
        base: Arc<BranchVersion>,
    ) -> Result<(), DeltaError> {
        let number = self.step_ends.len() as u64;
        let mut cost = 0;
        // Its cost bounds what reading one state takes: every step of its row has to be applied.
        let delta = match &before {
            Some(step) if step.cost <= ROW_COST_MAX.max(state.timed_delete_count() / ROW_DELETES_ONE_IN) => {
                match self.delta(&step.state, state) {
                    // A whole state names its rows and reads none of them, so that damage in one is not a reason to write
                    // no file.
                    Err(DeltaError::Segment(SegmentError::Damaged { .. })) => None,
                    delta => delta?.map(|delta| (step, delta)),
                }
            }
            _ => None,
        };
        match delta {
            Some((step, (bytes, more))) => {
                cost = step.cost + more;
                self.out.number(step.number + 1).raw(&bytes);
                self.write_base(Some(step), &base);
            }
            None => {
                let full_state = self.full_state_index(state);
                self.out.number(0).number(full_state);
                self.write_base(None, &base);
            }
        }
        self.step_ends.push(self.out.as_slice().len() as u64);
        let step = Step { number, cost, state: state.clone(), base };
        // The first step of a head stays the one that bases refer to, as references lead to earlier steps only.
        self.steps_by_head.entry(state.head()).or_insert_with(|| step.clone());
        self.last_steps.insert(branch, step);
        Ok(())
    }

    /// Returns a delta with its cost; `None` if it is better written whole.
    fn delta(&mut self, before: &BranchVersion, state: &BranchVersion) -> Result<Option<(Vec<u8>, usize)>, DeltaError> {
        let mut out = Writer::new();
        let most = STEP_RECORDS_MAX.max(state.timed_delete_count() / STEP_DELETES_ONE_IN);
        let Some(records) = state.write_delta(before, most, &mut self.rows, &mut out)? else {
            return Ok(None);
        };
        if state.files().is_clone_of(before.files()) {
            out.byte(code::SAME);
            return Ok(Some((out.finish(), records + 1)));
        }
        let files = state.files().held_delta_within(before.files(), &mut self.chunks, STEP_FILE_BYTES_MAX)?;
        // Rows that the refused delta has noted stay in `rows`: they cost space, and never a wrong state.
        let Some(files) = files else { return Ok(None) };
        out.byte(code::CHANGED);
        state.files().transfers().write(&mut out);
        out.bytes(&files);
        Ok(Some((out.finish(), records + 1 + files.len() / 1024)))
    }

    fn write_base(&mut self, before: Option<&Step>, base: &Arc<BranchVersion>) {
        if before.is_some_and(|step| Arc::ptr_eq(&step.base, base)) {
            self.out.byte(code::BASE_OF_BEFORE);
        } else if let Some(step) = self.steps_by_head.get(&base.head()) {
            self.out.byte(code::BASE_STEP).number(step.number);
        } else {
            let full_state = self.full_state_index(base);
            self.out.byte(code::BASE_FULL).number(full_state);
        }
    }

    fn full_state_index(&mut self, state: &Arc<BranchVersion>) -> u64 {
        let known = self.full_states.iter().position(|full_state| Arc::ptr_eq(full_state, state));
        known.unwrap_or_else(|| {
            self.full_states.push(state.clone());
            self.full_states.len() - 1
        }) as u64
    }
}
