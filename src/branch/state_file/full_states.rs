//! Which states a file has need of which whole state.

use std::sync::Arc;

use super::read::skip_state;
use super::{StateFile, StateKey, code};
use crate::branch::{BranchVersion, DeltaError};
use crate::object::{CodecError, Reader};

/// A whole state that a file holds in memory, and whom it serves.
pub struct FullState {
    /// The state that steps of the file begin with.
    pub state: Arc<BranchVersion>,
    /// Uid that owned the branch of the oldest state that refers to it. Later forks may belong to others.
    pub owner: u32,
    /// The states of the file that can't be read without it, oldest first. There is at least one.
    pub needed_by: Vec<StateKey>,
}

/// The full states, by their places, that a step rests on.
#[derive(Clone, Copy)]
struct FullStateIndexes {
    state: usize,
    base: usize,
}

impl StateFile {
    /// Returns the full states that the file refers to. Reads the file once, and no state.
    ///
    /// [`DeltaError::Codec`] if a step refers to a later one or to no full state.
    pub fn full_states_in_use(&self) -> Result<Vec<FullState>, DeltaError> {
        let roots = self.roots()?;
        let whole_states = self.full_states().iter();
        let mut full_states: Vec<FullState> =
            whole_states.map(|state| FullState { state: state.clone(), owner: 0, needed_by: Vec::new() }).collect();
        let rows = (0..self.state_count()?).map(|row| self.row(row)).collect::<Result<Vec<_>, _>>()?;
        let mut rows: Vec<_> = rows.iter().collect();
        // Oldest first: the first state that needs a full state says who pays for it.
        rows.sort_by_key(|row| row.info.key.1);
        for row in rows {
            let FullStateIndexes { state, base } = roots.get(to_index(row.step)?).copied().ok_or(CodecError::Number)?;
            for root in [Some(state), Some(base).filter(|base| *base != state)].into_iter().flatten() {
                let full_state = full_states.get_mut(root).ok_or(CodecError::Number)?;
                if full_state.needed_by.is_empty() {
                    full_state.owner = row.owner;
                }
                full_state.needed_by.push(row.info.key);
            }
        }
        full_states.retain(|full_state| !full_state.needed_by.is_empty());
        Ok(full_states)
    }

    /// Returns for each step the full states at the ends of its references: they lead to earlier steps only.
    fn roots(&self) -> Result<Vec<FullStateIndexes>, DeltaError> {
        let mut roots: Vec<FullStateIndexes> = Vec::new();
        for step in 0..self.step_count()? {
            let earlier = |step: u64| roots.get(to_index(step)?).copied().ok_or(CodecError::Number);
            let mut input = Reader::new(self.step_bytes(step)?);
            let before = input.number()?.checked_sub(1);
            let state = match before {
                None => to_index(input.number()?)?,
                Some(before) => {
                    skip_state(&mut input)?;
                    earlier(before)?.state
                }
            };
            let base = match (input.byte()?, before) {
                (code::BASE_OF_BEFORE, Some(before)) => earlier(before)?.base,
                (code::BASE_FULL, _) => to_index(input.number()?)?,
                (code::BASE_STEP, _) => earlier(input.number()?)?.state,
                (other, _) => return Err(CodecError::Code(other).into()),
            };
            roots.push(FullStateIndexes { state, base });
        }
        Ok(roots)
    }
}

fn to_index(number: u64) -> Result<usize, CodecError> {
    usize::try_from(number).map_err(|_| CodecError::Number)
}
