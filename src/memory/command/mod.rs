//! Commands: what a caller asks for, checked for form; as a record of the log; and as a change that passed the rules.

pub mod imported;
pub mod log_record;
pub mod merge_outcome;
pub mod merge_verb;
pub mod plan_context;
pub mod prepared;
pub mod purge_selection;
pub mod record_change;
pub mod record_input;
pub mod record_patch;
pub mod shared_log_entry;
