//! Compaction: rewrites segments and packs without the rows and chunks that nothing references, and small packs into one.
//!
//! It runs without the writer lock, while others commit. That is safe for three reasons:
//!
//! - Segments and packs never change, and each step is a seal (`seal.rs`): it works on the catalog as of the journal's
//!   rotation and writes new files beside the old ones.
//! - A commit meanwhile adds unsealed versions, or takes rows out of view or over from another state. It never needs a row
//!   that no state saw at the rotation, except those of a segment that is newer than it, which no compaction reads. So the
//!   table of relocated rows fits every later state as well; a layer with a row it does not know is left where it is.
//! - `Memory::install` ends under the writer lock: the branches that changed since the rotation are relocated too, and then the
//!   catalog is swapped. Whoever planned on old states without a lock, such as a merge, has to plan again: the swap
//!   raises `Catalog::rewrite_count`, which plans compare under the lock. Otherwise a plan would bring back layers of files
//!   that the sweep is about to remove.
//!
//! The lock of `storage.manifest`, held throughout, keeps a second seal and a sweep out: one thread at a time writes
//! the next manifest or removes files. Old files are removed last, and only those that neither the new manifest
//! nor the present catalog reaches.

use std::collections::HashSet;
use std::sync::Arc;

use super::relocations::Compaction;
use super::usage::FileUsage;
use crate::memory::history::DecisionRef;
use crate::memory::storage::manifest::StoredManifest;
use crate::memory::{Error, Memory};
use crate::object::Hash;

/// Compaction writes so often again at most what the disk has room for at once.
const STEPS_MAX: usize = 32;
/// What one step in the background writes, beside a file that is larger.
const STEP_BYTES: u64 = 64 << 20;
/// Packs below this length in bytes are combined where there are more than `small_packs_max`.
const SMALL_PACK_BYTES: u64 = 1 << 20;
/// Bytes nobody needs that are left alone while the store is written to.
const DEAD_BYTES_MIN: u64 = 16 << 20;

/// Which files compaction writes again: those of which enough is dead, in bytes and as a share, and small packs if many.
#[derive(Clone, Copy)]
pub(in crate::memory) struct CompactionPolicy {
    /// Those of which one in so many bytes is needed by nobody.
    dead_one_in: u64,
    /// Fewer bytes of a file are not worth a seal.
    freed_bytes_min: u64,
    /// The most that a step writes, one larger file aside.
    step_bytes: u64,
    /// Packs below 1 MiB that may stay beside each other; where there are more, all are combined.
    small_packs_max: usize,
}

impl CompactionPolicy {
    /// While the store is written to: few and large.
    pub const BUSY: CompactionPolicy =
        CompactionPolicy { dead_one_in: 2, freed_bytes_min: 1 << 20, step_bytes: STEP_BYTES, small_packs_max: 32 };
    /// While nothing else is to be done: a fourth of a file is enough, in steps of 64 MiB.
    pub const IDLE: CompactionPolicy =
        CompactionPolicy { dead_one_in: 4, freed_bytes_min: 16 << 10, step_bytes: STEP_BYTES, small_packs_max: 4 };
    /// When somebody asks for a collection: a sixteenth of a file is enough, in one step.
    pub const GC: CompactionPolicy =
        CompactionPolicy { dead_one_in: 16, freed_bytes_min: 4 << 10, step_bytes: u64::MAX, small_packs_max: 1 };
    /// On a disk that is full: only files that give back 64 KiB or more, and no packs are combined.
    pub const TIGHT: CompactionPolicy = CompactionPolicy {
        dead_one_in: 16,
        freed_bytes_min: 64 << 10,
        step_bytes: u64::MAX,
        small_packs_max: usize::MAX,
    };
}

/// Files to rewrite without what nothing references; empty if nothing is worth it.
#[derive(Default, PartialEq, Eq)]
pub(in crate::memory) struct RewriteSet {
    /// Segments to rewrite, by name.
    pub segments: HashSet<Hash>,
    /// Packs to rewrite, by name.
    pub packs: HashSet<Hash>,
    /// Decisions of entries whose lost lines go.
    pub quotes: Vec<DecisionRef>,
}

impl Memory {
    /// Writes files again as a policy says, in steps that each free more than they take; returns how many bytes that
    /// freed. The caller holds the lock of `storage.manifest`. At most 32 steps are made. Fails if a file can't be read
    /// or a seal fails; what earlier steps freed stays freed.
    pub(in crate::memory) fn compact(
        &self,
        stored: &mut StoredManifest,
        policy: CompactionPolicy,
    ) -> Result<u64, Error> {
        let (mut freed, mut before) = (0, u64::MAX);
        for _ in 0..STEPS_MAX {
            // Counted anew in each step, as the one before has moved rows and others have written meanwhile.
            let files = self.file_usage(&self.catalog_now())?;
            let length = files.iter().map(|file| file.length_bytes).sum();
            let rewrite_set = self.choose_files(files, policy);
            // If the last step did not shrink the files, the next one would not either.
            if rewrite_set == RewriteSet::default() || length >= before || self.maintenance.thread.is_stopping() {
                break;
            }
            before = length;
            let sealed = self.seal_locked(stored, &Compaction::Rewrite(Arc::new(rewrite_set)))?;
            // Swept after each step, so that the next one has the room that this one gave back.
            freed += self.sweep(stored, &sealed)?;
        }
        Ok(freed)
    }

    /// Removes what a seal has left without use, and compacts where more of the files is dead than alive. The caller
    /// holds the lock of `storage.manifest`, with the catalog that the manifest names. Fails like `Memory::compact`.
    pub(in crate::memory) fn compact_if_mostly_dead(&self, stored: &mut StoredManifest) -> Result<(), Error> {
        let files = self.file_usage(&self.catalog_now())?;
        let dead: u64 = files.iter().map(FileUsage::freed_bytes).sum();
        let length: u64 = files.iter().map(|file| file.length_bytes).sum();
        if is_mostly_dead(dead, length) {
            self.compact(stored, CompactionPolicy::BUSY)?;
        }
        Ok(())
    }

    /// Returns the files that are worth a step: those of which the least is needed, as many as there is room for.
    fn choose_files(&self, mut files: Vec<FileUsage>, policy: CompactionPolicy) -> RewriteSet {
        let small: HashSet<Hash> = files
            .iter()
            .filter(|file| file.is_pack && file.length_bytes < SMALL_PACK_BYTES)
            .map(|file| file.name)
            .collect();
        let combines = small.len() > policy.small_packs_max;
        files.retain(|file| {
            // Both bounds have to hold: a small part of a large file, and nearly all of a tiny one, are not worth a
            // seal.
            let is_sparse = file.freed_bytes() >= policy.freed_bytes_min
                && file.freed_bytes().saturating_mul(policy.dead_one_in) >= file.length_bytes;
            is_sparse || (combines && small.contains(&file.name))
        });
        // The cheapest come first; the name decides between equals, so that the choice does not vary.
        files.sort_by_key(|file| (file.needed_bytes, file.name));
        let (mut spare_bytes, mut rewrite_set) = (self.compactable_bytes(), RewriteSet::default());
        let mut written = 0u64;
        for FileUsage { name, is_pack, needed_bytes, .. } in files {
            let Some(left) = spare_bytes.checked_sub(needed_bytes) else { break };
            // The first file is taken however large it is, or a large one would never be.
            if written > 0 && written.saturating_add(needed_bytes) > policy.step_bytes {
                break;
            }
            (spare_bytes, written) = (left, written + needed_bytes);
            if is_pack {
                rewrite_set.packs.insert(name)
            } else {
                rewrite_set.segments.insert(name)
            };
        }
        rewrite_set
    }
}

/// Returns whether so much of files of a length is dead that they are written again while the store is written to.
fn is_mostly_dead(dead: u64, length: u64) -> bool {
    dead >= DEAD_BYTES_MIN && dead >= length / 2
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::{Disk, ForgetfulDisk};
    use crate::memory::{Actor, Attrs, Environment, FILES_ROOT, FileName, FileOp, NewInode, OpenMode, Setting};

    #[test]
    fn while_the_store_is_written_to_half_must_be_unused_and_16_mib_at_least() {
        assert!(is_mostly_dead(16 << 20, 32 << 20) && is_mostly_dead(1 << 30, 2 << 30));
        assert!(!is_mostly_dead((16 << 20) - 1, 17 << 20), "less than 16 MiB");
        assert!(!is_mostly_dead(16 << 20, (32 << 20) + 2), "less than half");
    }

    fn file(number: u8, is_pack: bool, length_bytes: u64, needed_bytes: u64) -> FileUsage {
        FileUsage { name: Hash([number; 32]), is_pack, length_bytes, needed_bytes }
    }

    fn memory_on(disk: &ForgetfulDisk, who: &Actor) -> Arc<Memory> {
        let idle_interval = std::time::Duration::from_secs(3600);
        let environment = Environment { reserve_bytes: 0, idle_interval, ..Environment::real(who.clone()) };
        Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment).unwrap()
    }

    /// Chooses among files of which one in so many bytes is dead, or just less, and those with `least` dead bytes, or one
    /// less: both bounds must hold.
    fn assert_bounds(policy: CompactionPolicy, one_in: u64, least: u64) {
        let memory = memory_on(&ForgetfulDisk::new(), &Actor { uid: 0, gid: 0, name: "root".into() });
        let length = 16 << 20;
        let needed = length - length / one_in;
        let packs = vec![file(1, true, length, needed), file(2, true, length, needed + 1)];
        assert_eq!(memory.choose_files(packs, policy).packs, HashSet::from([Hash([1; 32])]), "one in {one_in}");
        let of_length = |number, length| file(number, false, length, 0);
        let few = [of_length(3, least), of_length(4, least - 1)];
        let segments = [file(1, false, length, needed), file(2, false, length, needed + 1)].into_iter().chain(few);
        let chosen = memory.choose_files(segments.collect(), policy).segments;
        assert_eq!(chosen, HashSet::from([Hash([1; 32]), Hash([3; 32])]), "{least} bytes at least");
    }

    #[test]
    fn a_store_that_is_written_to_rewrites_files_from_a_half_and_1_mib_on() {
        assert_bounds(CompactionPolicy::BUSY, 2, 1 << 20);
    }

    #[test]
    fn a_store_left_alone_rewrites_from_a_fourth_and_gc_from_a_sixteenth_on() {
        assert_bounds(CompactionPolicy::IDLE, 4, 16 << 10);
        assert_bounds(CompactionPolicy::GC, 16, 4 << 10);
        assert_bounds(CompactionPolicy::TIGHT, 16, 64 << 10);
    }

    #[test]
    fn packs_below_1_mib_are_combined_where_more_than_32_or_left_alone_four_are_there_and_by_gc_always() {
        let memory = memory_on(&ForgetfulDisk::new(), &Actor { uid: 0, gid: 0, name: "root".into() });
        let small = |count: u8, length: u64| (1..=count).map(|number| file(number, true, length, length)).collect();
        let combined = |count, length, policy| memory.choose_files(small(count, length), policy).packs.len();
        let (below, one) = ((1 << 20) - 1, 1 << 20);
        assert_eq!((combined(32, below, CompactionPolicy::BUSY), combined(33, below, CompactionPolicy::BUSY)), (0, 33));
        assert_eq!((combined(33, one, CompactionPolicy::BUSY), combined(255, below, CompactionPolicy::TIGHT)), (0, 0));
        assert_eq!((combined(4, below, CompactionPolicy::IDLE), combined(5, below, CompactionPolicy::IDLE)), (0, 5));
        assert_eq!((combined(5, one, CompactionPolicy::IDLE), combined(9, one, CompactionPolicy::GC)), (0, 0));
        assert_eq!((combined(1, below, CompactionPolicy::GC), combined(2, below, CompactionPolicy::GC)), (0, 2));
    }

    /// A pack of which little is left goes with a seal, while the store is written to.
    #[test]
    fn maintenance_compacts_what_is_dead_for_the_most_part() {
        let (who, disk) = (Actor { uid: 0, gid: 0, name: "root".into() }, ForgetfulDisk::new());
        let memory = memory_on(&disk, &who);
        let main = memory.root("main").unwrap();
        memory.set(&who, main, Setting::Keep, "0s").unwrap();
        let edit = |op: FileOp<'_>| memory.edit(&who, main, op).unwrap().inode;
        let name = FileName::new(b"a").unwrap();
        let inode =
            edit(FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 });
        // No two chunks are alike.
        let bytes: Vec<u8> =
            (0..5_u64 << 19).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
        edit(FileOp::Write { inode, offset: 0, bytes: bytes.into() });
        memory.seal_and_reclaim().unwrap();
        let used = || {
            let names = disk.list("segments").unwrap();
            names.iter().map(|name| disk.open(&format!("segments/{name}")).unwrap().len().unwrap()).sum::<u64>()
        };
        assert!(used() > 20 << 20, "a control");
        edit(FileOp::SetAttr { inode, attrs: Attrs { size: Some(64 << 10), ..Attrs::default() } });
        // The first drops the earlier states that have the content, the second the content.
        (0..2).for_each(|_| memory.seal_and_reclaim().unwrap());
        assert!(used() < 1 << 20, "{}", used());
    }
}
