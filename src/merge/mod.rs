//! Three-way merge: base, child and parent become actions and conflicts. Planned without touching
//! the disk, applied as one new state.
//!
//! Nothing here refuses a merge: what contradicts is in the plan, and a [`gate`] says what it makes of it. Functions
//! fail where a version or a content can't be read, with the error of the segment or the tree; nothing is half done
//! then.

pub mod files;
pub mod gate;
mod plan;
mod strategy;

pub use plan::{Action, Plan, Sides, decision_on, plan, plan_one};
pub use strategy::{ParseStrategyError, Strategy};
