//! Three-way merge: base, child and parent become actions and conflicts. Planned without touching
//! the disk, applied as one new state.
//!
//! Nothing here refuses a merge: what contradicts is in the plan, and a [`gate`] says what it makes of it. Functions
//! fail where a version or a content can't be read, with the error of the segment or the tree; nothing is half done
//! then.
//!
//! ```
//! use engramfs::lineage::Side;
//! use engramfs::lineage::Strategy;
//! use engramfs::object::Time;
//!
//! # fn main() -> Result<(), engramfs::lineage::ParseStrategyError> {
//! let strategy: Strategy = "newest-wins".parse()?;
//! assert_eq!(strategy.winner(Time(1), Time(2)), Some(Side::Parent));
//! assert_eq!(strategy.winner(Time(2), Time(2)), Some(Side::Child), "a tie goes to the child");
//! assert_eq!(Strategy::Manual.winner(Time(1), Time(2)), None, "somebody has to decide");
//! # Ok(())
//! # }
//! ```

pub mod files;
pub mod gate;
mod plan;

pub use plan::{Action, RecordPlan, Sides, decision_on, plan_one, plan_records, plan_stale_flag};
