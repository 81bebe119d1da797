//! A file of earlier states of branches, each as its difference from one before.
//!
//! The file holds no records and no contents of files: it names them by what they are. If they are stored is told by
//! `held`, the rows and chunks that its states need, and by `full_states`, whole states that deltas begin with. Both
//! are moved like any other state; the file never changes.
//!
//! ```text
//!  section 0  steps, in the order of their entries:
//!             state   0 full state's number | 1 + number of the step before it · records · files
//!             records a delta (branch/delta.rs)
//!             files   0 the same | 1 transfers · delta (workspace/delta.rs, chunks by hash)
//!             base    0 that of the step before | 1 full state's number | 2 number of a step
//!  section 1  u64 for each step: where it ends in section 0
//!  section 2  the index, a row for each state, in order of branch and entry; steps that bases alone refer to have none:
//!             branch u64 · entry u64 · time i64 · owner u32 · flags u32 (1 pinned) · step u32 · zeros u32
//! ```

mod full_states;
mod read;
mod write;

use std::sync::Arc;

use super::BranchVersion;
use crate::object::Time;

pub use full_states::FullState;
pub use read::StateFile;
pub use write::{WrittenStates, write_state_file};

const KIND: u8 = 0x7C;
/// Bytes of a row of the index: all are equally long, so that a search goes by halves.
const ROW_BYTES: usize = 40;
/// Set in the flags of a state that stays as long as any other does.
const PINNED: u32 = 1;

/// Codes in the bytes of a step; the drawing of the file says what follows each.
mod code {
    /// The files are those of the state that the step begins with.
    pub const SAME: u8 = 0;
    /// Transfers and a delta follow.
    pub const CHANGED: u8 = 1;
    /// The base is that of the step before; nothing follows.
    pub const BASE_OF_BEFORE: u8 = 0;
    /// A full state's number follows.
    pub const BASE_FULL: u8 = 1;
    /// A step's number follows, whose state is the base.
    pub const BASE_STEP: u8 = 2;
}

/// Names a state: the number of the branch, and that of the entry that made the state.
pub type StateKey = (u64, u64);

/// A state of a branch that stays readable.
#[derive(Clone)]
pub struct RetainedState {
    /// When the entry was made.
    pub time: Time,
    /// Uid of the branch's owner at that time.
    pub owner: u32,
    /// Whether the next step may be taken back as a whole, such as a merge: it stays as long as any other does.
    pub is_pinned: bool,
    /// What the branch held behind the entry.
    pub state: Arc<BranchVersion>,
    /// What its parent was when the branch was forked from it, merged or pulled last.
    pub base: Arc<BranchVersion>,
}

/// Facts about a state from the index, without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateInfo {
    /// The branch, and the entry that made the state.
    pub key: StateKey,
    /// When the entry was made.
    pub time: Time,
    /// Whether it stays as long as any other does.
    pub is_pinned: bool,
}
