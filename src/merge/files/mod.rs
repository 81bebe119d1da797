//! Merging files by kind: rules say which kind a path has, and each kind merges contents its own
//! way. Bytes in, bytes out: nothing here reads a disk, and nothing fails on what a file holds.

mod alone;
mod build;
mod content;
mod decide;
mod item;
mod items;
mod json;
mod kin;
mod manifest;
mod plan;
mod rule;
mod rules;
mod text;
mod union;
mod verdict;

#[cfg(test)]
mod test_files;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree_tests;

pub use content::{
    CONTENT_BYTES_MAX, ContentKey, ContentMerger, Contents, Loser, MERGED_BYTES_MAX, MergeAll, Merged, Note, Take,
    Version, merge_contents,
};
pub use decide::Lost;
pub use item::{FileDecision, same_body};
pub use kin::Trees;
pub use plan::{FileMerge, FilePlan, plan_files};
pub use rule::{Kind, Principal, Rule};
pub use rules::{DEFAULT_RULES, RuleError, Rules};

use super::Strategy;
use crate::lineage::Side;
