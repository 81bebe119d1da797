//! What a merge changes, as a gate looks at it.

use std::collections::HashSet;
use std::sync::Arc;

use super::file_decisions::file_id;
use super::merge_budget::PlanError;
use super::record_merge::RecordMerge;
use crate::branch::{BranchVersion, differences_at_most};
use crate::lineage::{Counts, Detail, ITEMS_MAX};
use crate::memory::Error;
use crate::memory::command::merge_verb::MergeVerb;
use crate::merge::gate::ChangedPath;
use crate::workspace::{FileNode, TreeDifference};

/// Returns what differs between two states; `None` if more than `limit` records or paths differ.
///
/// A renamed file is at both of its names. A directory that came or went with what is in it is not named. Records come
/// first, by id, then files, by path. Kind `Io` or `Damaged` if a version of a record can't be read.
pub fn changed_paths(
    before: &BranchVersion,
    after: &BranchVersion,
    limit: usize,
) -> Result<Option<Vec<ChangedPath>>, Error> {
    let Some(records) = differences_at_most(before, after, limit)? else { return Ok(None) };
    let Some(files) = before.files().differences_at_most(after.files(), limit) else { return Ok(None) };
    let directories = ancestors(&files);
    // A directory that comes or goes with a file in it is implied by that file's path; an empty one, or one of another
    // kind, is not.
    let is_implied = |change: &TreeDifference| {
        let is_whole = change.old.is_none() || change.new.is_none();
        is_whole && change.has_only_directories() && directories.contains(&change.path[..])
    };
    let records = records.into_iter().map(|change| {
        let path: Arc<str> = format!("vectors/{}", change.id).into();
        ChangedPath { path, is_deleted: change.new.is_none() }
    });
    let files = files.iter().filter(|change| !is_implied(change));
    let files =
        files.map(|change| ChangedPath { path: file_id(&change.path), is_deleted: is_gone_or_other_kind(change) });
    Ok(Some(records.chain(files).collect()))
}

/// Returns the first records and files that a merge changes in the receiving branch, at most 20. Directories are not
/// named, nor what not everybody could list. [`PlanError::Exceeded`] if more than `limit` differ.
pub fn first_items(
    (before, after): (&BranchVersion, &BranchVersion),
    (merge, records): (MergeVerb, &RecordMerge),
    counts: Counts,
    limit: usize,
) -> Result<Vec<Arc<str>>, PlanError> {
    let mut items: Vec<Arc<str>> = match merge {
        MergeVerb::Pull => {
            let changes = differences_at_most(before, after, limit)?.ok_or(PlanError::Exceeded)?;
            changes.into_iter().take(ITEMS_MAX).map(|change| change.id).collect()
        }
        MergeVerb::Merge | MergeVerb::Promote | MergeVerb::Revert(_) => {
            records.changed_ids().take(ITEMS_MAX).cloned().collect()
        }
    };
    // Trees are compared only where there is room left for a path: comparing them costs what differs, however few are
    // shown.
    if counts.files > 0 && items.len() < ITEMS_MAX {
        let trees = [before.files(), after.files()];
        let files = trees[0].differences_at_most(trees[1], limit).ok_or(PlanError::Exceeded)?;
        let is_named = |change: &TreeDifference| !change.has_only_directories() && change.is_listed_by_everybody(trees);
        let files = files.into_iter().filter(is_named);
        items.extend(files.take(ITEMS_MAX - items.len()).map(|change| file_id(&change.path)));
    }
    Ok(Detail::from_items(items).items)
}

/// Returns whether what was there is so no longer: it is gone, or something of another kind.
fn is_gone_or_other_kind(change: &TreeDifference) -> bool {
    let kind = |side: &Option<(u64, Arc<FileNode>)>| side.as_ref().map(|(_, node)| node.kind());
    change.old.is_some() && kind(&change.old) != kind(&change.new)
}

/// Returns the directories that some of the paths lie in, at any depth.
fn ancestors(changes: &[TreeDifference]) -> HashSet<&[u8]> {
    let mut directories = HashSet::new();
    for change in changes {
        let mut path = &change.path[..];
        while let Some(end) = path.iter().rposition(|byte| *byte == b'/') {
            path = &path[..end];
            // Those above a known directory are known, too.
            if !directories.insert(path) {
                break;
            }
        }
    }
    directories
}
