//! Which inodes are open, so that one that loses its last name lives on until its last handle.

use std::collections::HashMap;

use super::FilesOf;
use crate::fs::errno::Failure;
use crate::sync::{Condvar, Mutex, MutexGuard, may_wait};

/// An inode of a branch.
pub(in crate::fs) type InodeKey = (FilesOf, u64);

/// All inodes that have handles, or are just about to lose a name.
#[derive(Default)]
pub(in crate::fs) struct OpenInodes {
    places: Mutex<HashMap<InodeKey, Uses>>,
    /// Some inode is no longer about to lose a name.
    settled: Condvar,
}

/// What some handles do beside reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fs) enum OpenIntent {
    /// A program is run by it.
    Run,
    /// A mapping may store by it: it reads and writes.
    Map,
}

#[derive(Default)]
struct Uses {
    handles: usize,
    /// How many of them do each [`OpenIntent`].
    doing: [usize; 2],
    /// Requests under way that take a name of it away.
    leaving: usize,
    /// It has no name any more.
    is_orphan: bool,
}

impl Uses {
    fn is_idle(&self) -> bool {
        self.handles == 0 && self.leaving == 0
    }
}

impl OpenInodes {
    /// Counts a handle. While a name of the inode is being taken away it waits, for no longer than
    /// one edit takes: afterwards the inode is gone, or kept for this handle. A thread that must not wait
    /// gives up.
    pub fn open(&self, place: &InodeKey) -> Result<(), Failure> {
        let mut places = self.places.lock();
        while places.get(place).is_some_and(|uses| uses.leaving > 0) {
            if !may_wait() {
                return Err(Failure::would_wait());
            }
            places = self.settled.wait(places);
        }
        places.entry(place.clone()).or_default().handles += 1;
        Ok(())
    }

    /// Takes a handle back. After the last one of an inode without a name, who opens it waits until what is returned is
    /// dropped: the inode is gone then.
    pub fn close(&self, place: &InodeKey) -> Option<Leaving<'_>> {
        let mut places = self.places.lock();
        let uses = places.get_mut(place)?;
        uses.handles = uses.handles.saturating_sub(1);
        if uses.handles == 0 && uses.is_orphan {
            uses.is_orphan = false;
            uses.leaving += 1;
            return Some(Leaving { opened: self, place: place.clone(), is_open: false });
        }
        forget_idle(&mut places, place);
        None
    }

    /// Notes what a handle does, until [`OpenInodes::end`].
    pub fn begin(&self, place: &InodeKey, doing: OpenIntent) {
        self.places.lock().entry(place.clone()).or_default().doing[doing as usize] += 1;
    }

    /// Takes [`OpenInodes::begin`] back, before the handle is.
    pub fn end(&self, place: &InodeKey, doing: OpenIntent) {
        if let Some(uses) = self.places.lock().get_mut(place) {
            uses.doing[doing as usize] = uses.doing[doing as usize].saturating_sub(1);
        }
    }

    /// Tells whether any handle does that.
    pub fn any(&self, place: &InodeKey, doing: OpenIntent) -> bool {
        self.places.lock().get(place).is_some_and(|uses| uses.doing[doing as usize] > 0)
    }

    /// Announces that a name of the inode is about to be taken away.
    pub fn leave(&self, place: InodeKey) -> Leaving<'_> {
        let mut places = self.places.lock();
        let uses = places.entry(place.clone()).or_default();
        uses.leaving += 1;
        Leaving { opened: self, place, is_open: uses.handles > 0 }
    }

    /// Notes that an inode with handles has lost its last name and was kept; tells whether its
    /// handles are gone meanwhile.
    pub fn orphan(&self, place: &InodeKey) -> bool {
        let mut places = self.places.lock();
        let uses = places.entry(place.clone()).or_default();
        uses.is_orphan = true;
        let is_closed = uses.handles == 0;
        forget_idle(&mut places, place);
        is_closed
    }

    /// Returns the inodes of a tree that have handles.
    pub fn of(&self, files: &FilesOf) -> Vec<u64> {
        let places = self.places.lock();
        let open = places.iter().filter(|((of, _), uses)| of == files && uses.handles > 0);
        open.map(|((_, inode), _)| *inode).collect()
    }
}

fn forget_idle(places: &mut MutexGuard<'_, HashMap<InodeKey, Uses>>, place: &InodeKey) {
    if places.get(place).is_some_and(Uses::is_idle) {
        places.remove(place);
    }
}

/// A name or an inode that is being taken away; dropping it lets those go on who want to open the inode.
pub(in crate::fs) struct Leaving<'a> {
    opened: &'a OpenInodes,
    place: InodeKey,
    /// Whether the inode has handles.
    pub is_open: bool,
}

impl Leaving<'_> {
    /// Notes that the inode has lost its last name and was kept; tells whether its handles are
    /// gone meanwhile.
    pub fn orphaned(&self) -> bool {
        self.opened.orphan(&self.place)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut places = self.opened.places.lock();
        if let Some(uses) = places.get_mut(&self.place) {
            uses.leaving -= 1;
        }
        forget_idle(&mut places, &self.place);
        self.opened.settled.notify_all();
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

    fn place() -> InodeKey {
        (FilesOf::branch(BranchId(1)), 7)
    }

    #[test]
    fn the_last_handle_of_an_orphan_is_told() {
        let opened = OpenInodes::default();
        opened.open(&place()).unwrap();
        opened.open(&place()).unwrap();
        let leaving = opened.leave(place());
        assert!(leaving.is_open);
        assert!(!leaving.orphaned());
        drop(leaving);
        assert_eq!(opened.of(&place().0), [7]);
        assert!(opened.close(&place()).is_none());
        assert!(opened.close(&place()).is_some());
        assert!(opened.places.lock().is_empty());
    }

    #[test]
    fn a_handle_that_closes_meanwhile_leaves_the_orphan_to_the_other() {
        let opened = OpenInodes::default();
        opened.open(&place()).unwrap();
        let leaving = opened.leave(place());
        assert!(opened.close(&place()).is_none());
        assert!(leaving.orphaned());
        drop(leaving);
        assert!(opened.places.lock().is_empty());
    }

    #[test]
    fn who_opens_waits_for_the_name_to_be_taken_away() {
        let opened = OpenInodes::default();
        let leaving = opened.leave(place());
        assert!(!leaving.is_open);
        std::thread::scope(|scope| {
            let hurried = without_waiting(|| opened.open(&place()));
            assert_eq!(hurried.unwrap_err().errno(), Errno::EAGAIN);
            let opening = scope.spawn(|| opened.open(&place()).unwrap());
            std::thread::sleep(Duration::from_millis(20));
            assert!(!opening.is_finished());
            drop(leaving);
        });
        assert_eq!(opened.of(&place().0), [7]);
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
    struct Stage {
        opened: OpenInodes,
        /// Whether the inode is there, and how often it was removed.
        inode: Mutex<(bool, usize)>,
    }

    impl Stage {
        fn place() -> InodeKey {
            (FilesOf::branch(BranchId(1)), 7)
        }

        fn remove(&self) {
            let mut inode = self.inode.lock();
            *inode = (false, inode.1 + 1);
        }

        fn use_it(&self) {
            self.opened.open(&Stage::place()).unwrap();
            let there = self.inode.lock().0;
            thread::yield_now();
            assert_eq!(self.inode.lock().0, there, "what is open stays");
            if let Some(_leaving) = self.opened.close(&Stage::place()) {
                self.remove();
            }
        }

        fn unlink(&self) {
            let leaving = self.opened.leave(Stage::place());
            if !leaving.is_open {
                return self.remove();
            }
            if leaving.orphaned() {
                self.remove();
            }
        }
    }

    #[test]
    fn an_inode_whose_name_goes_is_removed_once_and_never_while_it_is_open() {
        let run = || {
            let stage = Arc::new(Stage::default());
            stage.inode.lock().0 = true;
            let user = |stage: Arc<Stage>| thread::spawn(move || stage.use_it());
            let mut threads = vec![user(stage.clone()), user(stage.clone())];
            let unlinked = stage.clone();
            threads.push(thread::spawn(move || unlinked.unlink()));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(*stage.inode.lock(), (false, 1));
            assert!(stage.opened.places.lock().is_empty());
        };
        shuttle::check_random(run, 5000);
        shuttle::check_pct(run, 5000, 3);
    }
}
