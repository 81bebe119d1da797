//! Three-way merge: base, child and parent become actions and conflicts. Planned without touching
//! the disk, applied as one new state.

pub mod files;
pub mod gate;
mod plan;
mod strategy;

pub use plan::{Action, Plan, Sides, decision_on, plan, plan_one};
pub use strategy::{ParseStrategyError, Strategy};
