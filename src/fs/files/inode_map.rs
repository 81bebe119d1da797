//! Numbers of files for the kernel: nothing has to be remembered for each of them.
//!
//! ```text
//!  0 1 ┊ slot: 22 bits ┊ inode in the tree, scrambled by the slot: 40 bits
//! ```
//!
//! The slot of a branch's `files/` is the branch's own number, so that its files have the same inode numbers in every
//! mount. Checkpoints and `scratch/` get slots behind those, which hold for the mount; so does a branch whose slot the kernel
//! still knows as that of a branch that ended.
//!
//! The kernel finds what it holds by a hash to which the upper bits of a number hardly matter. A file
//! has the same inode in all forks: without scrambling, the inodes of N forks would share one bucket
//! there, and a look-up would cost O(N).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Area, FileTreeId};
use crate::memory::{BRANCH_NUMBERS, BranchId, View};
use crate::sync::{Rank, RwLock};

const INODE_BITS: u32 = 40;
const SLOT_BITS: u32 = 22;
/// The first slot behind the numbers of branches.
const MOUNT_SLOTS: u64 = BRANCH_NUMBERS as u64;
/// Views that are kept before it is checked which of them are gone.
const RECLAIM_AT: usize = 1_024;
/// Set in the numbers of files, and never in a fingerprint.
const FILE_INODE_BIT: u64 = 1 << (INODE_BITS + SLOT_BITS);

/// Returns bits that differ by slot; applying them twice gives the inode again.
fn scramble(slot: u64) -> u64 {
    slot.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - INODE_BITS)
}

/// Returns the number of a branch; 0 for one that has none.
pub(in crate::fs) type BranchNumberLookup = Box<dyn Fn(BranchId) -> u32 + Send + Sync>;

/// The views whose files the kernel was told of.
///
/// A view that is gone gives its slot to another one once the kernel holds none of its files.
pub(in crate::fs) struct InodeMap {
    branch_number: BranchNumberLookup,
    known: RwLock<TreeSlots>,
}

struct TreeSlots {
    by_slot: HashMap<u64, TreeSlot>,
    slots: HashMap<FileTreeId, u64>,
    /// Slots of this mount that are free again.
    free_slots: Vec<u64>,
    /// The first slot of this mount that was never used.
    next_slot: u64,
    /// How many views there are when those that are gone are looked for.
    reclaim_at: usize,
}

struct TreeSlot {
    files: FileTreeId,
    /// Look-ups that the kernel holds of its files.
    lookup_count: AtomicU64,
}

impl InodeMap {
    /// Begins with no file known; `branch_number` as for [`BranchNumberLookup`].
    pub fn new(branch_number: BranchNumberLookup) -> InodeMap {
        let known = TreeSlots {
            by_slot: HashMap::new(),
            slots: HashMap::new(),
            free_slots: Vec::new(),
            next_slot: MOUNT_SLOTS,
            reclaim_at: 0,
        };
        InodeMap { branch_number, known: RwLock::with_rank(Rank::Leaf, known) }
    }

    /// Returns the number of an inode, the same as long as its view is there; `None` if the numbers are used up.
    pub fn ino(&self, files: &FileTreeId, inode: u64) -> Option<u64> {
        let slot = self.find_slot(files).or_else(|| self.add(files))?;
        encode_number(slot, inode)
    }

    /// As [`InodeMap::ino`], for an inode that the kernel is about to be told of, and counts that look-up.
    pub fn remember(&self, files: &FileTreeId, inode: u64) -> Option<u64> {
        loop {
            // The look-up is counted under the read lock: reclaiming takes the write lock, so the slot can't be reused
            // in between.
            let known = self.known.read();
            if let Some(slot) = known.slots.get(files) {
                let number = encode_number(*slot, inode)?;
                known.by_slot.get(slot)?.lookup_count.fetch_add(1, Ordering::Relaxed);
                return Some(number);
            }
            drop(known);
            self.add(files)?;
        }
    }

    /// Takes back look-ups of a number.
    pub fn forget(&self, number: u64, lookup_count: u64) {
        let known = self.known.read();
        if let Some(view) = decode_slot(number).and_then(|slot| known.by_slot.get(&slot)) {
            let less = |held: u64| Some(held.saturating_sub(lookup_count));
            // The closure always returns a value, so the update can't fail.
            let _ = view.lookup_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Frees the slots of views that are gone and of which the kernel holds nothing, once there are twice as many as
    /// the last time.
    pub fn reclaim(&self, is_there: impl Fn(&FileTreeId) -> bool) {
        let is_due = |known: &TreeSlots| known.slots.len() >= known.reclaim_at.max(RECLAIM_AT);
        if !is_due(&self.known.read()) {
            return;
        }
        let gone: Vec<FileTreeId> = {
            let views: Vec<FileTreeId> = self.known.read().slots.keys().cloned().collect();
            views.into_iter().filter(|tree_id| !is_there(tree_id)).collect()
        };
        // Views are looked at above with no lock held, as `is_there` asks the store; here `free` keeps what the kernel
        // holds.
        let mut known = self.known.write();
        for slot in gone.iter().filter_map(|tree_id| known.slots.get(tree_id).copied()).collect::<Vec<_>>() {
            known.free(slot);
        }
        known.reclaim_at = 2 * known.slots.len();
    }

    /// Returns whether the kernel may know any of these files.
    pub fn may_be_known_to_kernel(&self, files: &FileTreeId) -> bool {
        self.find_slot(files).is_some()
    }

    /// Returns the trees of a branch whose files the kernel may know, those of its earlier states among them.
    pub fn known_trees(&self, branch: BranchId) -> Vec<FileTreeId> {
        self.known.read().slots.keys().filter(|files| files.view.branch() == branch).cloned().collect()
    }

    /// Returns the tree and inode behind an inode number; `None` for a number never given to a file.
    pub fn find(&self, number: u64) -> Option<(FileTreeId, u64)> {
        let known = self.known.read();
        let slot = decode_slot(number)?;
        let view = known.by_slot.get(&slot)?;
        Some((view.files.clone(), (number & ((1 << INODE_BITS) - 1)) ^ scramble(slot)))
    }

    fn find_slot(&self, files: &FileTreeId) -> Option<u64> {
        self.known.read().slots.get(files).copied()
    }

    fn add(&self, files: &FileTreeId) -> Option<u64> {
        // Asked before the lock is taken, since the branch's number comes from the store.
        let own = match (files.area, &files.view) {
            (Area::Files, View::Branch(branch)) => u64::from((self.branch_number)(*branch)),
            _ => 0,
        };
        let mut known = self.known.write();
        // Another thread may have added it between the look under the read lock and this one.
        if let Some(slot) = known.slots.get(files) {
            return Some(*slot);
        }
        let slot = if own != 0 && known.free(own) { own } else { known.mount_slot()? };
        known.by_slot.insert(slot, TreeSlot { files: files.clone(), lookup_count: AtomicU64::new(0) });
        known.slots.insert(files.clone(), slot);
        Some(slot)
    }
}

impl TreeSlots {
    /// Frees a slot, unless the kernel holds some of its files, and returns whether it is free.
    fn free(&mut self, slot: u64) -> bool {
        if self.by_slot.get(&slot).is_some_and(|view| view.lookup_count.load(Ordering::Relaxed) != 0) {
            return false;
        }
        if let Some(view) = self.by_slot.remove(&slot) {
            self.slots.remove(&view.files);
            if slot >= MOUNT_SLOTS {
                self.free_slots.push(slot);
            }
        }
        true
    }

    /// Takes a slot of this mount.
    fn mount_slot(&mut self) -> Option<u64> {
        if let Some(slot) = self.free_slots.pop() {
            return Some(slot);
        }
        let slot = self.next_slot;
        (slot >> SLOT_BITS == 0).then(|| {
            self.next_slot += 1;
            slot
        })
    }
}

fn encode_number(slot: u64, inode: u64) -> Option<u64> {
    (inode >> INODE_BITS == 0).then_some(FILE_INODE_BIT | slot << INODE_BITS | (inode ^ scramble(slot)))
}

/// Returns the slot of a number; `None` for what is not a file's.
fn decode_slot(number: u64) -> Option<u64> {
    (number & FILE_INODE_BIT != 0).then_some((number & !FILE_INODE_BIT) >> INODE_BITS)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::memory::Time;

    fn inode_map() -> InodeMap {
        InodeMap::new(Box::new(|branch| branch.0 as u32 % 100))
    }

    fn checkpoint(branch: u64, taken: i64) -> FileTreeId {
        FileTreeId { area: Area::Files, view: View::Checkpoint(BranchId(branch), "v1".into()), taken: Time(taken) }
    }

    #[test]
    fn a_number_leads_back_to_its_inode() {
        let inode_map = inode_map();
        let all = [(checkpoint(1, 1), 1), (checkpoint(1, 2), 1), (checkpoint(2, 1), (1 << INODE_BITS) - 1)];
        let given = all.clone().map(|(tree_id, inode)| inode_map.ino(&tree_id, inode).unwrap());
        for (number, expected) in given.into_iter().zip(all) {
            assert_eq!(inode_map.find(number), Some(expected.clone()));
            assert_eq!(inode_map.ino(&expected.0, expected.1), Some(number));
        }
    }

    #[test]
    fn files_of_a_branch_have_the_same_numbers_in_every_mount() {
        let (one, other) = (inode_map(), inode_map());
        let main = FileTreeId::branch(BranchId(7));
        let number = one.ino(&main, 12).unwrap();
        for view in [checkpoint(7, 1), FileTreeId::branch(BranchId(8))] {
            other.ino(&view, 12).unwrap();
        }
        assert_eq!(other.ino(&main, 12), Some(number));
        let scratch = FileTreeId { area: Area::Scratch, ..main };
        assert_ne!(other.ino(&scratch, 12), Some(number));
    }

    #[test]
    fn views_that_are_no_branch_have_slots_behind_all_numbers_of_branches() {
        let inode_map = inode_map();
        let scratch = FileTreeId { area: Area::Scratch, ..FileTreeId::branch(BranchId(7)) };
        for view in [checkpoint(7, 1), scratch] {
            assert!(decode_slot(inode_map.ino(&view, 12).unwrap()).unwrap() >= MOUNT_SLOTS);
        }
    }

    #[test]
    fn a_number_given_again_is_another_slot_while_the_kernel_holds_files_of_the_one_before() {
        let inode_map = inode_map();
        let (ended, next) = (FileTreeId::branch(BranchId(7)), FileTreeId::branch(BranchId(107)));
        let held = inode_map.remember(&ended, 12).unwrap();
        let meanwhile = inode_map.ino(&next, 12).unwrap();
        assert_ne!(meanwhile, held);
        assert_eq!(inode_map.find(held), Some((ended, 12)));
        assert_eq!(inode_map.ino(&next, 12), Some(meanwhile), "it stays");
        inode_map.forget(held, 1);
        let last = FileTreeId::branch(BranchId(207));
        assert_eq!(inode_map.ino(&last, 12), Some(held));
        assert_eq!(inode_map.find(held), Some((last, 12)));
    }

    #[test]
    fn one_file_in_many_forks_has_numbers_far_apart() {
        let inode_map = inode_map();
        let lower: HashSet<u64> =
            (0..1000).map(|view| inode_map.ino(&checkpoint(view, 1), 7).unwrap() >> 6 & 0xffff).collect();
        assert!(lower.len() > 900, "{}", lower.len());
    }

    #[test]
    fn what_does_not_fit_gets_no_number() {
        let slots_of_mount = (1_u64 << SLOT_BITS) - MOUNT_SLOTS;
        assert_eq!((INODE_BITS, slots_of_mount), (40, 1 << 21), "as the page says");
        let inode_map = inode_map();
        assert_eq!(inode_map.ino(&checkpoint(1, 1), 1 << INODE_BITS), None);
        assert_eq!(inode_map.find(7), None);
        assert_eq!(inode_map.find(FILE_INODE_BIT | 9 << INODE_BITS | 1), None);
        assert!(
            inode_map.may_be_known_to_kernel(&checkpoint(1, 1)) && !inode_map.may_be_known_to_kernel(&checkpoint(9, 9))
        );
    }

    #[test]
    fn slots_of_views_that_are_gone_are_given_again_once_the_kernel_holds_nothing_there() {
        let inode_map = inode_map();
        let held = inode_map.remember(&checkpoint(0, 1), 7).unwrap();
        for round in 0..20_i64 {
            for branch in 0..RECLAIM_AT as u64 {
                let ino = inode_map.remember(&checkpoint(branch, 2 + round), 1).unwrap();
                inode_map.forget(ino, 1);
            }
            // None is in use any more, so that their slots are free for the next round.
            inode_map.reclaim(|_| false);
        }
        assert!(inode_map.known.read().next_slot < MOUNT_SLOTS + 3 * RECLAIM_AT as u64);
        assert_eq!(inode_map.find(held), Some((checkpoint(0, 1), 7)), "the kernel holds it");
        inode_map.forget(held, 1);
        inode_map.known.write().reclaim_at = 0;
        for branch in 0..RECLAIM_AT as u64 {
            inode_map.ino(&checkpoint(branch, 99), 1).unwrap();
        }
        inode_map.reclaim(|tree_id| tree_id.taken == Time(99));
        assert_eq!(inode_map.find(held), None);
        assert!(inode_map.may_be_known_to_kernel(&checkpoint(5, 99)));
    }
}
