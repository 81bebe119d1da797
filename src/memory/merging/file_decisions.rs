//! The decisions of a plan of files as entries and results have them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::lineage::{Decision, LostPart, Side};
use crate::memory::command::merge_verb::MergeVerb;
use crate::merge::files::{FileDecision, FilePlan, GuardScope, Loser, ReaderGuard};

/// Turns a side of the plan of files into the one that users know, and back: a pull is planned with the sides swapped.
pub fn swap_in_pull(side: Side, merge: MergeVerb) -> Side {
    match (side, merge) {
        (Side::Child, MergeVerb::Pull) => Side::Parent,
        (Side::Parent, MergeVerb::Pull) => Side::Child,
        (side, _) => side,
    }
}

/// Returns to whom a merge of a branch may open nothing that was closed to them: the owner of that branch.
pub fn reader_guard(uid: u32, merge: MergeVerb) -> Option<ReaderGuard> {
    let scope = match merge {
        MergeVerb::Merge | MergeVerb::Promote => GuardScope::Plan,
        MergeVerb::Pull => GuardScope::Files,
        MergeVerb::Revert(_) => GuardScope::EarlierFiles,
    };
    ReaderGuard::new(uid, scope)
}

/// Returns what a path is called in decisions and results: with `files/` in front, and U+FFFD for what is not UTF-8.
pub fn file_id(path: &[u8]) -> Arc<str> {
    format!("files/{}", String::from_utf8_lossy(path)).into()
}

/// Returns a decision of the plan of files as users know it.
pub fn shown_decision(item: &FileDecision, merge: MergeVerb) -> Decision {
    let id = file_id(&item.path);
    let decision = item.decision.map(|side| swap_in_pull(side, merge));
    // A pull is planned with its sides swapped, as inode numbers of the receiver stay; users see the sides as they are.
    let (child, parent) = if merge == MergeVerb::Pull { (item.parent, item.child) } else { (item.child, item.parent) };
    Decision { id, base: item.base, child, parent, decision, ..Decision::default() }
}

/// Lines and entries that an entry of the lineage shows of one file, and bytes of each.
const LOST_MAX: usize = 64;
const LOST_BYTES_MAX: usize = 1000;

/// Returns the decisions on files, each with what was not kept of a file that both sides keep, and
/// why it did not merge by its kind.
pub fn file_decisions(plan: &FilePlan, merge: MergeVerb) -> Vec<Decision> {
    let mut parts: HashMap<&[u8], Vec<LostPart>> = HashMap::new();
    let mut closed_parts: HashMap<&[u8], u64> = HashMap::new();
    for lost in &plan.losers {
        match &lost.what {
            Loser::Part { side, bytes } => {
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOST_BYTES_MAX)]).into();
                parts.entry(&lost.path).or_default().push(LostPart::new(swap_in_pull(*side, merge), text));
            }
            Loser::ClosedPart(_) => *closed_parts.entry(&lost.path).or_default() += 1,
            Loser::File(_) => {}
        }
    }
    let notes: HashMap<&[u8], Arc<str>> =
        plan.fallbacks.iter().map(|(path, note)| (&path[..], note.to_string().into())).collect();
    let with_losers = |item: &FileDecision| {
        let mut lost = parts.remove(&item.path[..]).unwrap_or_default();
        let closed = closed_parts.remove(&item.path[..]).unwrap_or_default();
        let lost_more = lost.len().saturating_sub(LOST_MAX) as u64 + closed;
        lost.truncate(LOST_MAX);
        Decision { lost, lost_more, note: notes.get(&item.path[..]).cloned(), ..shown_decision(item, merge) }
    };
    plan.both_changed.iter().map(with_losers).collect()
}
