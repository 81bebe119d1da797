//! What a branch holds: names, and the state as a persistent map over segments.
//!
//! A [`BranchVersion`] is a value. Cloning it costs the same whatever it holds, so a fork, a checkpoint and
//! an open handle are all just clones; no clone ever sees another's later changes.
//!
//! All that can fail here is the reading of a segment, with its [`SegmentError`](crate::segment::SegmentError): the
//! records that are unsealed are in memory. If a change of a state fails nothing of it has happened, unless its
//! function says otherwise.

mod delta;
mod diff;
mod mem_table;
mod names;
mod purge;
mod rows;
mod state;
mod state_file;
mod stored;
mod visible_rows;

pub use delta::{DeltaError, NeededRows, VersionIndex};
pub use diff::{
    RecordDifference, RecordDifferences, changed_ids_at_most, differences, differences_at_most,
    differences_with_flags_at_most,
};
pub use mem_table::{CodeCache, Codes, MemTable};
pub use names::{NAME_BYTES_MAX, NameError, RECORD_ID_BYTES_MAX, check_name, check_record_id};
pub use purge::RowFinder;
pub use rows::RowIter;
pub use state::{BranchVersion, Layer};
pub use state_file::{FullState, RetainedState, StateFile, StateInfo, StateKey, WrittenStates, write_state_file};
pub use visible_rows::VisibleRows;
