//! The order in which locks are taken, and its check in debug builds.

/// The place of a lock in the order: each is taken after those above it only.
///
/// Two locks of one rank are never held together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Rank {
    /// What one open file or directory holds.
    Handle,
    /// The temporaries of a branch, by name.
    Temporaries,
    /// The trees of `scratch/`, by branch.
    ScratchTrees,
    /// One tree of `scratch/`.
    Scratch,
    /// What branches hold, as it counts for quotas.
    Quotas,
    /// One seal, compaction or sweep at a time.
    Seal,
    /// The end of the log: its holder is the one writer.
    Writer,
    /// All branches as they are now.
    Catalog,
    /// The entries of the lineage.
    History,
    /// Who is asked which files are open.
    OpenFiles,
    /// Open segments, packs and snapshots of trees.
    Objects,
    /// The end of a journal file.
    JournalTail,
    /// How far a journal file is flushed.
    JournalFlush,
    /// A lock under which nothing else is taken but the next one.
    Leaf,
    /// Who holds how much memory: buffers grow under locks of all kinds.
    Budget,
}

/// A lock that this thread holds, from its taking to its drop.
#[derive(Debug)]
pub(super) struct HeldRank {
    #[cfg(debug_assertions)]
    rank: Rank,
}

#[cfg(debug_assertions)]
mod check {
    use std::cell::RefCell;

    use super::{HeldRank, Rank};

    crate::sync::backend::thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    impl HeldRank {
        /// Notes that this thread is about to take a lock.
        ///
        /// # Panics
        ///
        /// If the thread holds a lock that comes later in the order, or one of the same rank.
        pub(in crate::sync) fn take(rank: Rank) -> HeldRank {
            HELD.with(|held| {
                let mut held = held.borrow_mut();
                // The greatest and not the last taken: guards may be dropped in another order than they were taken in.
                let last = held.iter().max().copied();
                assert!(last.is_none_or(|last| last < rank), "a lock of rank {rank:?} is taken under one of {last:?}");
                held.push(rank);
            });
            HeldRank { rank }
        }
    }

    impl Drop for HeldRank {
        fn drop(&mut self) {
            // Guards may be dropped in any order. A thread that ends has no list any more.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|rank| *rank == self.rank) {
                    held.remove(at);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
impl HeldRank {
    /// Notes nothing: only debug builds check the order.
    #[inline(always)]
    pub(super) fn take(_: Rank) -> HeldRank {
        HeldRank {}
    }
}
