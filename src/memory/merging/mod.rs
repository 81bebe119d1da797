//! Merges, promotes, pulls and rollbacks: planned without a lock, brought up to date and applied under it.

pub mod changed_paths;
pub mod conflict_acks;
pub mod file_decisions;
pub mod find_state;
pub mod gate_check;
pub mod integration;
pub mod merge;
pub mod merge_budget;
pub mod merge_plan;
pub mod merge_result;
pub mod plan_hash;
pub mod planner;
pub mod proposal_plan;
pub mod purge;
pub mod record_merge;
pub mod resolve;
pub mod revert;
pub mod rollback;
pub mod undo;
pub mod unit_use;

use std::collections::HashMap;

use super::catalog::BranchId;
use crate::object::Time;
use crate::sync::Mutex;

/// What is kept between attempts to merge, in memory alone.
#[derive(Default)]
pub(in crate::memory) struct MergeState {
    /// Plans, and contents that were merged for them, so that a merge that was too long is quick the next time.
    pub planner: planner::Planner,
    /// Which conflicts somebody was shown, so that writing such a file resolves it.
    pub acks: conflict_acks::ConflictAcks,
    /// When a refusal of a branch was last noted in the lineage, which happens once a second at most.
    pub refused_at: Mutex<HashMap<BranchId, Time>>,
}
