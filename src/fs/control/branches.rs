//! What rmdir(2) and rename(2) of a branch's directory mean.

use std::time::Duration;

use super::fixed::{ControlDirectory, check_no_uncommitted, set_ctl_answer};
use crate::fs::errno::Failure;
use crate::fs::handle::HandleTable;
use crate::fs::mount_context::{Caller, MountContext};
use crate::fs::node::FsNode;
use crate::fs::refusal::LayoutRefusal;
use crate::memory::{BranchError, BranchId, BranchInfo, MergeOptions, MergeVerb, View};
use crate::sync::Deadline;

/// How long a merge by rename(2) may be worked out: meanwhile the kernel holds the directories.
const MERGE_TIMEOUT: Duration = Duration::from_secs(5);
/// The root branch that every store has.
const MAIN: &str = "main";

/// Discards a branch with whatever it holds. Handles that are left open find it gone. Refused for `main` of the store
/// and where something is written that is not committed; EROFS if nothing can be changed, ENOTEMPTY if it has child
/// branches.
pub(super) fn discard(
    mount: &MountContext,
    handles: &HandleTable,
    caller: Caller,
    branch: BranchId,
) -> Result<(), Failure> {
    let info = mount.memory.info(branch)?;
    if info.parent.is_none() && &*info.name == MAIN {
        return Err(BranchError::MainStays.into());
    }
    mount.check_writable()?;
    check_no_uncommitted(handles, &info)?;
    mount.memory.discard(&mount.actor(caller), branch)?;
    if let Some(parent) = info.parent {
        let undo = format!("fork {0} from discarded {0}", info.name);
        let line = serde_json::json!({ "status": "discarded", "branch": &*info.path, "undo": undo });
        set_ctl_answer(mount, parent, caller, format!("{line}\n"));
    }
    mount.states.forget(branch);
    Ok(())
}

/// Gives a branch another name in its `branches/`, or merges it into its parent. A refused merge leaves its line in
/// `ctl` of the parent. Any other place than these two is refused by the shape of the tree.
pub(super) fn rename(
    mount: &MountContext,
    handles: &HandleTable,
    caller: Caller,
    branch: BranchId,
    (new_parent, new_name): (&FsNode, &str),
) -> Result<(), Failure> {
    let info = mount.memory.info(branch)?;
    let Some(parent) = info.parent else {
        return Err(rename_refusal(&info));
    };
    mount.check_writable()?;
    match new_parent {
        FsNode::Directory(View::Branch(target), ControlDirectory::Branches) if *target == parent => {
            if new_name != &*info.name {
                mount.memory.rename_branch(&mount.actor(caller), branch, new_name)?;
            }
            Ok(())
        }
        FsNode::Branch(target) if *target == parent && new_name == &*info.name => {
            let merged = merge(mount, handles, caller, &info);
            let line = merged.as_ref().map_or_else(Failure::to_line, |result| format!("{result}\n"));
            // A merge that gave up is repeated by a thread that may wait, which then reports the outcome.
            if !merged.as_ref().is_err_and(Failure::is_would_wait) {
                set_ctl_answer(mount, parent, caller, line);
            }
            merged.map(drop)
        }
        _ => Err(rename_refusal(&info)),
    }
}

/// Merges a branch that is named by its directory; returns the result as JSON.
fn merge(mount: &MountContext, handles: &HandleTable, caller: Caller, branch: &BranchInfo) -> Result<String, Failure> {
    check_no_uncommitted(handles, branch)?;
    let terms = MergeOptions { deadline: Some(Deadline::from_now(MERGE_TIMEOUT)), ..MergeOptions::default() };
    let outcome = mount.memory.merge_with(&mount.actor(caller), branch.id, MergeVerb::Merge, terms)?;
    mount.states.forget(branch.id);
    Ok(outcome.to_json())
}

/// Returns why a branch can't be moved where nothing is meant by that.
pub(super) fn rename_refusal(info: &BranchInfo) -> Failure {
    let path = info.path.to_string();
    match info.parent {
        Some(_) => LayoutRefusal::Rename(path).into(),
        None => BranchError::RootName(path).into(),
    }
}
