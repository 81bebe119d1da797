//! Conflicts of files under `manual` that somebody was shown: if they then write the file in the branch, that resolves it.
//!
//! A write tells what is wanted only from who knows of the other version. So it counts after a merge, promote or pull
//! of theirs was refused for the conflict, or a dry run named it, and for as long as the parent's version is the one
//! that they were shown. `Memory::resolve_written` makes a `resolve` for the child of it: entries alone decide what a
//! merge does.
//! What was shown is known in memory alone; after an opening it has to be shown again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::lineage::Decision;
use crate::memory::Actor;
use crate::memory::catalog::BranchId;
use crate::memory::command::merge_verb::MergeVerb;
use crate::merge::files::same_body;
use crate::object::Hash;
use crate::sync::Mutex;
use crate::workspace::{FileKind, FileNode, Tree};

/// A conflict as it was shown: a later write to its file resolves it.
#[derive(Clone)]
pub(in crate::memory) struct ConflictAck {
    /// The kind of merge whose conflict it is.
    pub merge: MergeVerb,
    /// The parent's version that was shown; while the parent has another, the ack counts for nothing.
    pub parent: Option<Hash>,
    /// The uids of those who were shown it: a write by anybody else resolves nothing.
    uids: HashSet<u32>,
}

type ShownConflicts = HashMap<Arc<str>, ConflictAck>;

/// A conflict that somebody was shown and whose file they then wrote: it is resolved before the next merge.
pub(in crate::memory) struct ResolvingWrite {
    /// Who wrote the file.
    pub uid: u32,
    /// The file, as `files/PATH`: records are resolved in words alone.
    pub id: Arc<str>,
    /// The conflict as they had been shown it.
    pub ack: ConflictAck,
}

/// What was shown of one branch, by the ids of the conflicts, and what of it was written since.
#[derive(Default)]
struct BranchAcks {
    shown: ShownConflicts,
    written: Vec<Arc<ResolvingWrite>>,
}

/// What was shown of each branch, in memory alone: after an opening nobody counts as having been shown anything.
#[derive(Default)]
pub(in crate::memory) struct ConflictAcks(Mutex<HashMap<BranchId, BranchAcks>>);

impl ConflictAcks {
    fn with_acks<T>(&self, work: impl FnOnce(&mut HashMap<BranchId, BranchAcks>) -> T) -> T {
        work(&mut self.0.lock())
    }

    /// Returns whether something was shown of a branch, so that writes to its files have to be compared.
    pub(in crate::memory) fn has_any(&self, branch: BranchId) -> bool {
        self.with_acks(|all| all.contains_key(&branch))
    }

    /// Returns the branches of which something that was shown was written since.
    pub(in crate::memory) fn branches_with_writes(&self) -> Vec<BranchId> {
        self.with_acks(|all| {
            all.iter().filter(|(_, acks)| !acks.written.is_empty()).map(|(branch, _)| *branch).collect()
        })
    }

    /// Returns what was written in a branch since it was shown and resolves nothing yet, oldest first.
    pub(in crate::memory) fn resolving_writes(&self, branch: BranchId) -> Vec<Arc<ResolvingWrite>> {
        self.with_acks(|all| all.get(&branch).map(|acks| acks.written.clone()).unwrap_or_default())
    }

    /// Returns whether nobody has resolved or removed what was written; asked again under the writer lock.
    pub(in crate::memory) fn is_unresolved(&self, branch: BranchId, one: &Arc<ResolvingWrite>) -> bool {
        self.resolving_writes(branch).iter().any(|other| Arc::ptr_eq(one, other))
    }

    /// Lets go of what was written, once it has resolved what it can.
    pub(in crate::memory) fn remove_writes(&self, branch: BranchId, written: &[Arc<ResolvingWrite>]) {
        self.with_acks(|all| {
            if let Some(acks) = all.get_mut(&branch) {
                acks.written.retain(|other| !written.iter().any(|one| Arc::ptr_eq(one, other)));
            }
        });
    }

    /// Notes the open conflicts of files that somebody is shown.
    pub(in crate::memory) fn note_shown<'a>(
        &self,
        (branch, merge): (BranchId, MergeVerb),
        to: &Actor,
        items: impl Iterator<Item = &'a Decision>,
    ) {
        for item in items.filter(|item| item.is_file() && item.decision.is_none()) {
            let fresh = ConflictAck { merge, parent: item.parent, uids: HashSet::new() };
            self.with_acks(|all| {
                let shown = &mut all.entry(branch).or_default().shown;
                let ack = shown.entry(item.id.clone()).or_insert_with(|| fresh.clone());
                // Whoever was shown another version of the parent does not know this one, so nobody counts but who is
                // shown it now.
                if ack.parent != item.parent {
                    *ack = fresh;
                }
                ack.merge = merge;
                ack.uids.insert(to.uid);
            });
        }
    }

    /// Forgets a conflict: what is written after that resolves nothing.
    pub(in crate::memory) fn remove(&self, branch: BranchId, id: &str) {
        self.with_acks(|all| {
            if let Some(acks) = all.get_mut(&branch) {
                acks.shown.remove(id);
                acks.written.retain(|written| *written.id != *id);
                if acks.shown.is_empty() && acks.written.is_empty() {
                    all.remove(&branch);
                }
            }
        });
    }

    /// Forgets all of a branch: both sides are one again, or it is gone.
    pub(in crate::memory) fn forget_branch(&self, branch: BranchId) {
        self.with_acks(|all| all.remove(&branch));
    }

    /// Notes what somebody was shown and wrote between two states of the files.
    pub(in crate::memory) fn note_written(&self, branch: BranchId, uid: u32, before: &Tree, after: &Tree) {
        // Called for each commit of files under the writer lock, so a branch of which nothing was shown costs one look-up.
        let Some(shown) = self.with_acks(|all| all.get(&branch).map(|acks| acks.shown.len())) else { return };
        // Goes through the differences where they are at most as many as the conflicts that were shown, else through the
        // conflicts: there may be very many of either.
        let differences = before.differences_at_most(after, shown);
        self.with_acks(|all| {
            let Some(BranchAcks { shown, written }) = all.get_mut(&branch) else { return };
            let mut note = |id: &Arc<str>, ack: &ConflictAck, path: &str| {
                if ack.uids.contains(&uid) && is_written(path.as_bytes(), before, after) {
                    written.push(Arc::new(ResolvingWrite { uid, id: id.clone(), ack: ack.clone() }));
                }
            };
            let Some(differences) = differences else {
                let all = shown.iter();
                return all.for_each(|(id, ack)| note(id, ack, id.strip_prefix("files/").unwrap_or_default()));
            };
            for path in differences.iter().filter_map(|it| std::str::from_utf8(&it.path).ok()) {
                if let Some((id, ack)) = shown.get_key_value(&*format!("files/{path}")) {
                    note(id, ack, path);
                }
            }
        });
    }
}

/// Returns whether a file has other bytes, came or went. What is in a folder is not the folder.
fn is_written(path: &[u8], before: &Tree, after: &Tree) -> bool {
    fn file<'a>(tree: &'a Tree, path: &[u8]) -> Option<&'a FileNode> {
        tree.resolve(path).ok().and_then(|inode| tree.node(inode).ok()).map(|node| &**node)
    }
    let (old, new) = (file(before, path), file(after, path));
    let is_folder = |node: Option<&FileNode>| node.is_some_and(|node| node.kind() == FileKind::Directory);
    match (old, new) {
        _ if is_folder(old) || is_folder(new) => false,
        (Some(old), Some(new)) => !same_body(old, new),
        (old, new) => old.is_some() != new.is_some(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::object::Time;
    use crate::workspace::{FileName, FileOp, NewInode, NoPacks, ROOT};

    fn write(tree: &mut Tree, name: &str, text: &'static [u8]) {
        let inode = tree.resolve(name.as_bytes()).unwrap_or_else(|_| {
            let name = FileName::new(name.as_bytes()).unwrap();
            let make = FileOp::Create { parent: ROOT, name, make: NewInode::File, mode: 0o644, uid: 1, gid: 1 };
            tree.apply(&make, Time(1), &NoPacks).unwrap().inode
        });
        tree.apply(&FileOp::Write { inode, offset: 0, bytes: text.into() }, Time(2), &NoPacks).unwrap();
    }

    #[test]
    fn what_was_written_is_noted_whether_more_was_shown_or_changed() {
        let (branch, who) = (BranchId(7), Actor { uid: 1, gid: 1, name: "ann".into() });
        let mut before = Tree::default();
        for name in ["a", "b", "c", "d", "e", "f"] {
            write(&mut before, name, b"before");
        }
        for (shown, changed) in
            [(&["a", "b", "c", "d"][..], &["b", "e"][..]), (&["b", "f"], &["a", "b", "c", "d", "e"])]
        {
            let acks = ConflictAcks::default();
            let open = |name: &&str| Decision { id: format!("files/{name}").into(), ..Decision::default() };
            let items: Vec<Decision> = shown.iter().map(open).collect();
            acks.note_shown((branch, MergeVerb::Merge), &who, items.iter());
            let mut after = before.clone();
            changed.iter().for_each(|name| write(&mut after, name, b"behind"));
            acks.note_written(branch, 2, &before, &after);
            assert!(acks.resolving_writes(branch).is_empty(), "to whom it was not shown");
            acks.note_written(branch, 1, &before, &after);
            let written: Vec<_> = acks.resolving_writes(branch).iter().map(|it| it.id.to_string()).collect();
            assert_eq!(written, ["files/b"]);
        }
    }
}
