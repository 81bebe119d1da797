//! Numbers of files for the kernel: nothing has to be remembered for each of them.
//!
//! ```text
//!  0 1 ┊ view: 22 bits ┊ inode in the tree, scrambled by the view: 40 bits
//! ```
//!
//! The kernel finds what it holds by a hash to which the upper bits of a number hardly matter. A file
//! has the same inode in all forks: without scrambling, the inodes of N forks would share one bucket
//! there, and a look-up would cost O(N).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::FilesOf;
use crate::sync::RwLock;

const INODE_BITS: u32 = 40;
const VIEW_BITS: u32 = 22;
/// So many views stay without a look at whether they are gone.
const RECLAIM_AT: usize = 1_024;
/// Set in the numbers of files, and never in a fingerprint.
const MARK: u64 = 1 << (INODE_BITS + VIEW_BITS);

/// Returns bits that differ by view; applying them twice gives the inode again.
fn scramble(view: u64) -> u64 {
    view.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - INODE_BITS)
}

/// The views whose files the kernel was told of.
///
/// A view that is gone gives its place to another one once the kernel holds none of its files.
#[derive(Default)]
pub(in crate::fs) struct FileNumbers {
    known: RwLock<NumberedFile>,
}

#[derive(Default)]
struct NumberedFile {
    /// In the order in which the kernel was told of them; nothing where a place is free.
    views: Vec<Option<Told>>,
    free: Vec<u64>,
    numbers: HashMap<FilesOf, u64>,
    /// How many views there are when those that are gone are looked for.
    due: usize,
}

struct Told {
    of: FilesOf,
    /// Look-ups that the kernel holds of its files.
    lookups: AtomicU64,
}

impl FileNumbers {
    /// Returns the number of an inode, the same as long as its view is there; nothing when the numbers are used up.
    pub fn number(&self, of: &FilesOf, inode: u64) -> Option<u64> {
        let view = self.view(of).or_else(|| self.add(of))?;
        number(view, inode)
    }

    /// The same for an inode that the kernel is about to be told of, and counts that look-up.
    pub fn remember(&self, of: &FilesOf, inode: u64) -> Option<u64> {
        loop {
            // Counted before the place can be given away.
            let known = self.known.read();
            if let Some(view) = known.numbers.get(of) {
                let number = number(*view, inode)?;
                known.told(*view)?.lookups.fetch_add(1, Ordering::Relaxed);
                return Some(number);
            }
            drop(known);
            self.add(of)?;
        }
    }

    /// Takes back look-ups of a number.
    pub fn forget(&self, number: u64, lookups: u64) {
        let known = self.known.read();
        if let Some(told) = view_of(number).and_then(|view| known.told(view)) {
            let less = |held: u64| Some(held.saturating_sub(lookups));
            // It never refuses.
            let _ = told.lookups.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Frees the places of views that are gone and of which the kernel holds nothing, once there are twice as many as
    /// the last time.
    pub fn reclaim(&self, is_there: impl Fn(&FilesOf) -> bool) {
        let is_due = |known: &NumberedFile| known.numbers.len() >= known.due.max(RECLAIM_AT);
        if !is_due(&self.known.read()) {
            return;
        }
        let gone: Vec<FilesOf> = {
            let views: Vec<FilesOf> = self.known.read().numbers.keys().cloned().collect();
            views.into_iter().filter(|of| !is_there(of)).collect()
        };
        let mut known = self.known.write();
        for of in gone {
            known.free(&of);
        }
        known.due = 2 * known.numbers.len();
    }

    /// Tells whether the kernel may know any of these files.
    pub fn is_told(&self, of: &FilesOf) -> bool {
        self.view(of).is_some()
    }

    /// Returns what has a number; nothing for one that no file ever got.
    pub fn find(&self, number: u64) -> Option<(FilesOf, u64)> {
        let known = self.known.read();
        let view = view_of(number)?;
        let told = known.told(view)?;
        Some((told.of.clone(), (number & ((1 << INODE_BITS) - 1)) ^ scramble(view)))
    }

    fn view(&self, of: &FilesOf) -> Option<u64> {
        self.known.read().numbers.get(of).copied()
    }

    fn add(&self, of: &FilesOf) -> Option<u64> {
        let mut known = self.known.write();
        if let Some(view) = known.numbers.get(of) {
            return Some(*view);
        }
        let told = Told { of: of.clone(), lookups: AtomicU64::new(0) };
        let view = known.free.pop().unwrap_or(known.views.len() as u64);
        if view >> VIEW_BITS != 0 {
            return None;
        }
        match known.views.get_mut(usize::try_from(view).ok()?) {
            Some(place) => *place = Some(told),
            None => known.views.push(Some(told)),
        }
        known.numbers.insert(of.clone(), view);
        Some(view)
    }
}

impl NumberedFile {
    fn told(&self, view: u64) -> Option<&Told> {
        self.views.get(usize::try_from(view).ok()?)?.as_ref()
    }

    /// Frees the place of a view, unless the kernel holds some of its files.
    fn free(&mut self, of: &FilesOf) {
        let view = self.numbers.get(of).copied();
        let Some(view) =
            view.filter(|view| self.told(*view).is_some_and(|told| told.lookups.load(Ordering::Relaxed) == 0))
        else {
            return;
        };
        self.numbers.remove(of);
        self.views[view as usize] = None;
        self.free.push(view);
    }
}

fn number(view: u64, inode: u64) -> Option<u64> {
    (inode >> INODE_BITS == 0).then_some(MARK | view << INODE_BITS | (inode ^ scramble(view)))
}

/// Returns the view of a number; nothing for what is not a file's.
fn view_of(number: u64) -> Option<u64> {
    (number & MARK != 0).then_some((number & !MARK) >> INODE_BITS)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::collections::HashSet;

    use super::super::Area;
    use super::*;
    use crate::memory::{BranchId, Time, View};

    fn files(branch: u64, taken: i64) -> FilesOf {
        FilesOf { area: Area::Files, view: View::Checkpoint(BranchId(branch), "v1".into()), taken: Time(taken) }
    }

    #[test]
    fn a_number_leads_back_to_its_inode() {
        let numbers = FileNumbers::default();
        let all = [(files(1, 1), 1), (files(1, 2), 1), (files(2, 1), (1 << INODE_BITS) - 1)];
        let given = all.clone().map(|(of, inode)| numbers.number(&of, inode).unwrap());
        for (number, expected) in given.into_iter().zip(all) {
            assert_eq!(numbers.find(number), Some(expected.clone()));
            assert_eq!(numbers.number(&expected.0, expected.1), Some(number));
        }
    }

    #[test]
    fn one_file_in_many_forks_has_numbers_far_apart() {
        let numbers = FileNumbers::default();
        let lower: HashSet<u64> =
            (0..1000).map(|view| numbers.number(&files(view, 1), 7).unwrap() >> 6 & 0xffff).collect();
        assert!(lower.len() > 900, "{}", lower.len());
    }

    #[test]
    fn what_does_not_fit_gets_no_number() {
        let numbers = FileNumbers::default();
        assert_eq!(numbers.number(&files(1, 1), 1 << INODE_BITS), None);
        assert_eq!(numbers.find(7), None);
        assert_eq!(numbers.find(MARK | 9 << INODE_BITS | 1), None);
        assert!(numbers.is_told(&files(1, 1)) && !numbers.is_told(&files(9, 9)));
    }

    #[test]
    fn places_of_views_that_are_gone_are_given_again_once_the_kernel_holds_nothing_there() {
        let numbers = FileNumbers::default();
        let held = numbers.remember(&files(0, 1), 7).unwrap();
        for round in 0..20_i64 {
            for branch in 0..RECLAIM_AT as u64 {
                let ino = numbers.remember(&files(branch, 2 + round), 1).unwrap();
                numbers.forget(ino, 1);
            }
            // All of them are gone.
            numbers.reclaim(|_| false);
        }
        assert!(numbers.known.read().views.len() < 3 * RECLAIM_AT);
        assert_eq!(numbers.find(held), Some((files(0, 1), 7)), "the kernel holds it");
        numbers.forget(held, 1);
        numbers.known.write().due = 0;
        for branch in 0..RECLAIM_AT as u64 {
            numbers.number(&files(branch, 99), 1).unwrap();
        }
        numbers.reclaim(|of| of.taken == Time(99));
        assert_eq!(numbers.find(held), None);
        assert!(numbers.is_told(&files(5, 99)));
    }
}
