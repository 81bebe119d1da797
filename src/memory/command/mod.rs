//! Commands: what a caller asks for, checked for form; as a record of the log; and as a change that passed the rules.

pub(in crate::memory) mod log_record;
pub(in crate::memory) mod prepared;
pub(in crate::memory) mod record_input;
