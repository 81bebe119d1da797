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

    /// Takes a handle back, and tells whether it was the last one of an inode without a name.
    pub fn close(&self, place: &InodeKey) -> bool {
        let mut places = self.places.lock();
        let Some(uses) = places.get_mut(place) else { return false };
        uses.handles = uses.handles.saturating_sub(1);
        let is_last = uses.handles == 0 && uses.is_orphan;
        forget_idle(&mut places, place);
        is_last
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

/// A name that is being taken away; dropping it lets those go on who want to open the inode.
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
        assert!(!opened.close(&place()));
        assert!(opened.close(&place()));
        assert!(opened.places.lock().is_empty());
    }

    #[test]
    fn a_handle_that_closes_meanwhile_leaves_the_orphan_to_the_other() {
        let opened = OpenInodes::default();
        opened.open(&place()).unwrap();
        let leaving = opened.leave(place());
        assert!(!opened.close(&place()));
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
