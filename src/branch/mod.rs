//! What a branch holds: names, and the state as a persistent map over segments.
//!
//! A [`State`] is a value. Cloning it costs the same whatever it holds, so a fork, a checkpoint and
//! an open handle are all just clones; no clone ever sees another's later changes.

mod diff;
mod mem_table;
mod names;
mod rows;
mod state;
mod stored;
mod visible;

pub use diff::{Difference, differences, differences_at_most, touched_at_most};
pub use mem_table::{CodeCache, Codes, MemTable};
pub use names::{NAME_BYTES_MAX, NameError, RECORD_ID_BYTES_MAX, check_name, check_record_id};
pub use rows::Rows;
pub use state::{Layer, State};
pub use visible::Visible;
