//! Numbers of files for the kernel: nothing has to be remembered for each of them.
//!
//! ```text
//!  0 1 ┊ view: 22 bits ┊ inode in the tree, veiled by the view: 40 bits
//! ```
//!
//! The kernel finds what it holds by a hash to which the upper bits of a number hardly matter. A file
//! has the same inode in all forks: unveiled, all of them would stand in one row there, and each
//! look-up of one walk along it.

use std::collections::HashMap;

use super::FilesOf;
use crate::sync::RwLock;

const INODE_BITS: u32 = 40;
const VIEW_BITS: u32 = 22;
/// Set in the numbers of files, and never in a fingerprint.
const MARK: u64 = 1 << (INODE_BITS + VIEW_BITS);

/// Returns bits that are others for each view; what they veil, they unveil.
fn veil(view: u64) -> u64 {
    view.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - INODE_BITS)
}

/// The views whose files the kernel was told of, by the order in which that happened.
#[derive(Default)]
pub(in crate::fs) struct FileNumbers {
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    views: Vec<FilesOf>,
    numbers: HashMap<FilesOf, u64>,
}

impl FileNumbers {
    /// Returns the number of an inode, the same for ever; nothing when the numbers are used up.
    pub fn number(&self, of: &FilesOf, inode: u64) -> Option<u64> {
        let view = self.view(of).or_else(|| self.add(of))?;
        (inode >> INODE_BITS == 0).then_some(MARK | view << INODE_BITS | (inode ^ veil(view)))
    }

    /// Tells whether the kernel may know any of these files.
    pub fn is_told(&self, of: &FilesOf) -> bool {
        self.view(of).is_some()
    }

    /// Returns what has a number; nothing for one that no file ever got.
    pub fn find(&self, number: u64) -> Option<(FilesOf, u64)> {
        if number & MARK == 0 {
            return None;
        }
        let view = (number & !MARK) >> INODE_BITS;
        let known = self.known.read();
        let of = known.views.get(usize::try_from(view).ok()?)?;
        Some((of.clone(), (number & ((1 << INODE_BITS) - 1)) ^ veil(view)))
    }

    fn view(&self, of: &FilesOf) -> Option<u64> {
        self.known.read().numbers.get(of).copied()
    }

    fn add(&self, of: &FilesOf) -> Option<u64> {
        let mut known = self.known.write();
        if let Some(view) = known.numbers.get(of) {
            return Some(*view);
        }
        let view = known.views.len() as u64;
        if view >> VIEW_BITS != 0 {
            return None;
        }
        known.views.push(of.clone());
        known.numbers.insert(of.clone(), view);
        Some(view)
    }
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
}
