//! Merges, promotes, pulls and rollbacks: planned without a lock, brought up to date and applied under it.

pub(in crate::memory) mod conflict_acks;
pub(in crate::memory) mod merge;
pub(in crate::memory) mod merge_budget;
pub(in crate::memory) mod merge_plan;
pub(in crate::memory) mod planner;
pub(in crate::memory) mod record_merge;
pub(in crate::memory) mod resolve;
pub(in crate::memory) mod rollback;
