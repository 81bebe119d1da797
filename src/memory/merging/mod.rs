//! Merges, promotes, pulls and rollbacks: planned without a lock, brought up to date and applied under it.

pub mod conflict_acks;
pub mod merge;
pub mod merge_budget;
pub mod merge_plan;
pub mod planner;
pub mod record_merge;
pub mod resolve;
pub mod rollback;
