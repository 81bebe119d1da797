//! Merging files by kind: rules say which kind a path has, and each kind merges contents its own
//! way: `kind/mod.rs` has their table. Bytes in, bytes out: nothing here reads a disk, and nothing fails on what a file holds.

mod apply;
mod conflict_policy;
mod content;
mod kind;
mod new_owner;
mod node_change;
mod node_map;
mod one_sided;
mod plan;
mod protect;
mod protect_kept;
mod protect_places;
mod reader_guard;
mod resolver;
mod rule;
mod rules;
mod unit;
mod unit_diff;
mod unit_merge;
mod unit_paths;
mod unit_use;

#[cfg(test)]
mod protect_sequence_tests;
#[cfg(test)]
mod protect_tests;
#[cfg(test)]
mod test_files;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree_tests;
#[cfg(test)]
mod unit_tests;

pub use content::{
    CONTENT_BYTES_MAX, ContentChoice, ContentKey, ContentMerger, ContentVersion, Contents, Fallback, Loser,
    MERGED_BYTES_MAX, MergeAll, MergedContent, merge_contents,
};
pub use kind::FileMergeKind;
pub use new_owner::NewOwner;
pub use node_change::{FileDecision, same_body};
pub use node_map::MergeTrees;
pub use plan::{FileMerge, FilePlan, plan_files};
pub use reader_guard::{GuardScope, ReaderGuard};
pub use resolver::FileLoser;
pub use rule::{Principal, Rule};
pub use rules::{DEFAULT_RULES, RuleError, Rules};
pub use unit_merge::UnitConflict;
pub use unit_paths::unit_paths;
pub use unit_use::replaced_unit;

use crate::lineage::Side;
use crate::lineage::Strategy;
