//! What a merge changes, as a gate looks at it.

use std::collections::HashSet;
use std::sync::Arc;

use super::file_decisions::id_of_file;
use crate::branch::{BranchVersion, differences_at_most};
use crate::memory::Error;
use crate::merge::gate::ChangedPath;
use crate::workspace::{FileKind, FileNode, TreeDifference};

/// Returns what differs between two states; none where that is more than so many records or paths.
///
/// A renamed file is at both of its names. A folder that came or went with what is in it is not named.
pub fn changed_paths(
    before: &BranchVersion,
    after: &BranchVersion,
    most: usize,
) -> Result<Option<Vec<ChangedPath>>, Error> {
    let Some(records) = differences_at_most(before, after, most)? else { return Ok(None) };
    let Some(files) = before.files().differences_at_most(after.files(), most) else { return Ok(None) };
    let folders = folders_above(&files);
    let is_implied = |change: &TreeDifference| {
        let is_folder = |side: &Option<(u64, Arc<FileNode>)>| {
            side.as_ref().is_none_or(|(_, node)| node.kind() == FileKind::Directory)
        };
        let is_whole = change.old.is_none() || change.new.is_none();
        is_whole && is_folder(&change.old) && is_folder(&change.new) && folders.contains(&change.path[..])
    };
    let records = records.into_iter().map(|change| {
        let path: Arc<str> = format!("vectors/{}", change.id).into();
        ChangedPath { path, is_deleted: change.new.is_none() }
    });
    let files = files.iter().filter(|change| !is_implied(change));
    let files = files.map(|change| ChangedPath { path: id_of_file(&change.path), is_deleted: change.new.is_none() });
    Ok(Some(records.chain(files).collect()))
}

/// Returns the folders that lie above some of the paths.
fn folders_above(changes: &[TreeDifference]) -> HashSet<&[u8]> {
    let mut folders = HashSet::new();
    for change in changes {
        let mut path = &change.path[..];
        while let Some(end) = path.iter().rposition(|byte| *byte == b'/') {
            path = &path[..end];
            if !folders.insert(path) {
                break;
            }
        }
    }
    folders
}
