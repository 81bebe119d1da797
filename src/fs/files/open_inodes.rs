//! Which inodes are open, so that one that loses its last name lives on until its last handle.

use std::collections::HashMap;

use super::FileTreeId;
use crate::fs::errno::Failure;
use crate::sync::{Condvar, Mutex, MutexGuard, may_wait};

/// A tree of files, and the number of an inode in it.
pub(in crate::fs) type InodeKey = (FileTreeId, u64);

/// All inodes that have handles, or are just about to lose a name.
#[derive(Default)]
pub(in crate::fs) struct OpenInodes {
    inodes: Mutex<HashMap<InodeKey, InodeUses>>,
    /// Some inode is no longer about to lose a name, or files may be opened again.
    unblocked: Condvar,
}

/// What some handles do beside reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fs) enum OpenIntent {
    /// A program is run by it.
    Run,
    /// A mapping may store by it: it reads and writes.
    Map,
}

/// Which handles of a tree's files nobody gets for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fs) enum BlockedOpens {
    /// Those that write.
    Writers,
    /// Each, also those that only read.
    All,
}

impl BlockedOpens {
    /// The number that stands for all inodes of a tree which are blocked so; no inode has it.
    fn inode(self) -> u64 {
        match self {
            BlockedOpens::Writers => 0,
            BlockedOpens::All => u64::MAX,
        }
    }
}

#[derive(Default)]
struct InodeUses {
    handles: usize,
    /// How many of them write.
    writers: usize,
    /// How many of them do each [`OpenIntent`].
    intent_counts: [usize; 2],
    /// Requests under way that take a name of it away.
    pending_unlinks: usize,
    /// It has no name any more.
    is_orphan: bool,
}

impl InodeUses {
    fn is_idle(&self) -> bool {
        self.handles == 0 && self.pending_unlinks == 0
    }
}

impl OpenInodes {
    /// Counts a handle. Waits while a name of the inode is being removed or such handles are blocked, which lasts no
    /// longer than one change of the branch. Afterwards the inode is gone, or kept for this handle. Fails only on a
    /// thread that must not wait.
    pub fn open(&self, key: &InodeKey, writes: bool) -> Result<(), Failure> {
        let mut inodes = self.inodes.lock();
        // Looked at again after each wake-up: all who wait are woken, and another name may be about to go by then.
        while inodes.get(key).is_some_and(|uses| uses.pending_unlinks > 0)
            || is_blocked(&inodes, &key.0, BlockedOpens::All)
            || (writes && is_blocked(&inodes, &key.0, BlockedOpens::Writers))
        {
            if !may_wait() {
                return Err(Failure::would_wait());
            }
            inodes = self.unblocked.wait(inodes);
        }
        let uses = inodes.entry(key.clone()).or_default();
        uses.handles += 1;
        uses.writers += usize::from(writes);
        Ok(())
    }

    /// Takes a handle back. After the last one of an inode without a name, who opens it waits until what is returned is
    /// dropped: the inode is gone then.
    pub fn close(&self, key: &InodeKey, writes: bool) -> Option<UnlinkGuard<'_>> {
        let mut inodes = self.inodes.lock();
        let uses = inodes.get_mut(key)?;
        uses.handles = uses.handles.saturating_sub(1);
        uses.writers = uses.writers.saturating_sub(usize::from(writes));
        if uses.handles == 0 && uses.is_orphan {
            uses.is_orphan = false;
            // It counts as being unlinked until the inode is dropped, so that nobody opens what is about to be taken away.
            uses.pending_unlinks += 1;
            return Some(UnlinkGuard { open_inodes: self, key: key.clone(), is_open: false });
        }
        forget_idle(&mut inodes, key);
        None
    }

    /// Notes what a handle does, until [`OpenInodes::end`].
    pub fn begin(&self, key: &InodeKey, intent: OpenIntent) {
        self.inodes.lock().entry(key.clone()).or_default().intent_counts[intent as usize] += 1;
    }

    /// Takes [`OpenInodes::begin`] back, before the handle is.
    pub fn end(&self, key: &InodeKey, intent: OpenIntent) {
        if let Some(uses) = self.inodes.lock().get_mut(key) {
            uses.intent_counts[intent as usize] = uses.intent_counts[intent as usize].saturating_sub(1);
        }
    }

    /// Returns whether any handle holds the inode open with this intent.
    pub fn is_open_for(&self, key: &InodeKey, intent: OpenIntent) -> bool {
        self.inodes.lock().get(key).is_some_and(|uses| uses.intent_counts[intent as usize] > 0)
    }

    /// Returns the inodes of a tree that have such handles. No other one gets one until [`OpenInodes::unblock`].
    pub fn block(&self, files: &FileTreeId, blocked: BlockedOpens) -> Vec<u64> {
        let mut inodes = self.inodes.lock();
        // Set before handles are listed, under one lock: whoever comes later waits, and whoever came before is in the
        // list.
        inodes.entry((files.clone(), blocked.inode())).or_default().pending_unlinks += 1;
        let is_open =
            |uses: &InodeUses| if blocked == BlockedOpens::Writers { uses.writers > 0 } else { uses.handles > 0 };
        let open = inodes.iter().filter(|((tree_id, _), uses)| tree_id == files && is_open(uses));
        open.map(|((_, inode), _)| *inode).collect()
    }

    /// Takes [`OpenInodes::block`] back.
    pub fn unblock(&self, files: &FileTreeId, blocked: BlockedOpens) {
        let (mut inodes, key) = (self.inodes.lock(), (files.clone(), blocked.inode()));
        if let Some(uses) = inodes.get_mut(&key) {
            uses.pending_unlinks = uses.pending_unlinks.saturating_sub(1);
        }
        forget_idle(&mut inodes, &key);
        self.unblocked.notify_all();
    }

    /// Announces that a name of the inode is about to be taken away.
    pub fn begin_unlink(&self, key: InodeKey) -> UnlinkGuard<'_> {
        let mut inodes = self.inodes.lock();
        let uses = inodes.entry(key.clone()).or_default();
        uses.pending_unlinks += 1;
        UnlinkGuard { open_inodes: self, key, is_open: uses.handles > 0 }
    }

    /// Notes that an inode with handles has lost its last name and was kept; tells whether its
    /// handles are gone meanwhile.
    pub fn mark_orphaned(&self, key: &InodeKey) -> bool {
        let mut inodes = self.inodes.lock();
        let uses = inodes.entry(key.clone()).or_default();
        // Noted whether or not it has handles: where the last one closed meanwhile, the caller drops the inode.
        uses.is_orphan = true;
        let is_closed = uses.handles == 0;
        forget_idle(&mut inodes, key);
        is_closed
    }

    /// Returns the inodes of a tree that have handles.
    pub fn inodes_with_handles(&self, files: &FileTreeId) -> Vec<u64> {
        let inodes = self.inodes.lock();
        let open = inodes.iter().filter(|((tree_id, _), uses)| tree_id == files && uses.handles > 0);
        open.map(|((_, inode), _)| *inode).collect()
    }
}

fn is_blocked(inodes: &HashMap<InodeKey, InodeUses>, files: &FileTreeId, blocked: BlockedOpens) -> bool {
    inodes.get(&(files.clone(), blocked.inode())).is_some_and(|uses| uses.pending_unlinks > 0)
}

fn forget_idle(inodes: &mut MutexGuard<'_, HashMap<InodeKey, InodeUses>>, key: &InodeKey) {
    if inodes.get(key).is_some_and(InodeUses::is_idle) {
        inodes.remove(key);
    }
}

/// A name or an inode that is being taken away; dropping it lets those go on who want to open the inode.
pub(in crate::fs) struct UnlinkGuard<'a> {
    open_inodes: &'a OpenInodes,
    key: InodeKey,
    /// Whether the inode had handles when the unlink began.
    pub is_open: bool,
}

impl UnlinkGuard<'_> {
    /// Notes that the inode has lost its last name and was kept; tells whether its handles are
    /// gone meanwhile.
    pub fn mark_orphaned(&self) -> bool {
        self.open_inodes.mark_orphaned(&self.key)
    }
}

impl Drop for UnlinkGuard<'_> {
    fn drop(&mut self) {
        let mut inodes = self.open_inodes.inodes.lock();
        if let Some(uses) = inodes.get_mut(&self.key) {
            uses.pending_unlinks -= 1;
        }
        forget_idle(&mut inodes, &self.key);
        self.open_inodes.unblocked.notify_all();
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::fs::Errno;
    use crate::memory::BranchId;
    use crate::sync::without_waiting;
    use std::time::Duration;

    fn key() -> InodeKey {
        (FileTreeId::branch(BranchId(1)), 7)
    }

    #[test]
    fn the_last_handle_of_an_orphan_is_told() {
        let opened = OpenInodes::default();
        opened.open(&key(), false).unwrap();
        opened.open(&key(), false).unwrap();
        let unlink = opened.begin_unlink(key());
        assert!(unlink.is_open);
        assert!(!unlink.mark_orphaned());
        drop(unlink);
        assert_eq!(opened.inodes_with_handles(&key().0), [7]);
        assert!(opened.close(&key(), false).is_none());
        assert!(opened.close(&key(), false).is_some());
        assert!(opened.inodes.lock().is_empty());
    }

    #[test]
    fn a_handle_that_closes_meanwhile_leaves_the_orphan_to_the_other() {
        let opened = OpenInodes::default();
        opened.open(&key(), false).unwrap();
        let unlink = opened.begin_unlink(key());
        assert!(opened.close(&key(), false).is_none());
        assert!(unlink.mark_orphaned());
        drop(unlink);
        assert!(opened.inodes.lock().is_empty());
    }

    #[test]
    fn who_opens_for_writing_waits_while_writers_are_blocked() {
        let opened = OpenInodes::default();
        opened.open(&key(), true).unwrap();
        opened.open(&(key().0, 8), false).unwrap();
        assert_eq!(opened.block(&key().0, BlockedOpens::Writers), [7]);
        opened.open(&key(), false).unwrap();
        assert_eq!(without_waiting(|| opened.open(&key(), true)).unwrap_err().errno(), Errno::EAGAIN);
        opened.unblock(&key().0, BlockedOpens::Writers);
        opened.open(&key(), true).unwrap();
        for writes in [true, false, true] {
            assert!(opened.close(&key(), writes).is_none());
        }
        assert_eq!(opened.block(&key().0, BlockedOpens::Writers), [0_u64; 0]);
    }

    #[test]
    fn nobody_opens_while_all_are_blocked() {
        let opened = OpenInodes::default();
        opened.open(&key(), false).unwrap();
        assert_eq!(opened.block(&key().0, BlockedOpens::Writers), [0_u64; 0]);
        assert_eq!(opened.block(&key().0, BlockedOpens::All), [7]);
        opened.unblock(&key().0, BlockedOpens::Writers);
        for inode in [7, 8] {
            let refused = without_waiting(|| opened.open(&(key().0, inode), false));
            assert_eq!(refused.unwrap_err().errno(), Errno::EAGAIN);
        }
        opened.open(&(FileTreeId::branch(BranchId(2)), 7), false).unwrap();
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| opened.open(&(key().0, 8), false).unwrap());
            std::thread::sleep(Duration::from_millis(20));
            assert!(!opening.is_finished());
            opened.unblock(&key().0, BlockedOpens::All);
        });
        assert!(opened.close(&key(), false).is_none());
        assert_eq!(opened.inodes_with_handles(&key().0), [8]);
    }

    #[test]
    fn who_opens_waits_for_the_name_to_be_taken_away() {
        let opened = OpenInodes::default();
        let unlink = opened.begin_unlink(key());
        assert!(!unlink.is_open);
        std::thread::scope(|scope| {
            let refused = without_waiting(|| opened.open(&key(), false));
            assert_eq!(refused.unwrap_err().errno(), Errno::EAGAIN);
            let opening = scope.spawn(|| opened.open(&key(), false).unwrap());
            std::thread::sleep(Duration::from_millis(20));
            assert!(!opening.is_finished());
            drop(unlink);
        });
        assert_eq!(opened.inodes_with_handles(&key().0), [7]);
    }
}

/// Orders of threads that shuttle chooses: `scripts/nightly.sh schedules`.
#[cfg(all(test, shuttle))]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod schedules {
    use std::sync::Arc;

    use shuttle::thread;

    use super::*;
    use crate::memory::BranchId;

    /// A file whose name goes while others open and close it.
    #[derive(Default)]
    struct Fixture {
        open_inodes: OpenInodes,
        /// Whether the inode is there, and how often it was removed.
        inode: Mutex<(bool, usize)>,
    }

    impl Fixture {
        fn key() -> InodeKey {
            (FileTreeId::branch(BranchId(1)), 7)
        }

        fn remove(&self) {
            let mut inode = self.inode.lock();
            *inode = (false, inode.1 + 1);
        }

        fn open_and_close(&self) {
            self.open_inodes.open(&Fixture::key(), false).unwrap();
            let there = self.inode.lock().0;
            thread::yield_now();
            assert_eq!(self.inode.lock().0, there, "what is open stays");
            if let Some(_unlink) = self.open_inodes.close(&Fixture::key(), false) {
                self.remove();
            }
        }

        fn unlink(&self) {
            let unlink = self.open_inodes.begin_unlink(Fixture::key());
            if !unlink.is_open {
                return self.remove();
            }
            if unlink.mark_orphaned() {
                self.remove();
            }
        }
    }

    #[test]
    fn an_inode_whose_name_goes_is_removed_once_and_never_while_it_is_open() {
        let run = || {
            let fixture = Arc::new(Fixture::default());
            fixture.inode.lock().0 = true;
            let user = |fixture: Arc<Fixture>| thread::spawn(move || fixture.open_and_close());
            let mut threads = vec![user(fixture.clone()), user(fixture.clone())];
            let unlinked = fixture.clone();
            threads.push(thread::spawn(move || unlinked.unlink()));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(*fixture.inode.lock(), (false, 1));
            assert!(fixture.open_inodes.inodes.lock().is_empty());
        };
        shuttle::check_random(run, 5000);
        shuttle::check_pct(run, 5000, 3);
    }
}
