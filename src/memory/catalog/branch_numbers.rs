//! Small numbers of branches, from which inode numbers are made.

use imbl::OrdSet;

/// The numbers of branches are below this one; `fs` gives those behind it to views that are no branches.
pub const BRANCH_NUMBERS: u32 = 1 << 21;

/// The numbers of all branches, from 1 on.
///
/// The next one is the first free one after the last that was given, and 1 comes after the largest one, so that the number of a
/// branch that ended is not soon that of another.
#[derive(Clone, Default)]
pub struct BranchNumbers {
    taken: OrdSet<u32>,
    last_number: u32,
}

impl BranchNumbers {
    /// Continues after the last number in the manifest, so that free numbers stay unused for as long after an opening.
    pub fn resume_after(&mut self, last: u32) {
        self.last_number = last;
    }

    /// Returns the number that was given last; 0 before the first.
    pub fn last(&self) -> u32 {
        self.last_number
    }

    /// Notes the number of a branch that is there; false if it is too large, or another branch has it. 0, which stands
    /// for none, is always right.
    pub fn reserve(&mut self, number: u32) -> bool {
        number == 0 || (number < BRANCH_NUMBERS && self.taken.insert(number).is_none())
    }

    /// Takes the next free number after the last one, from 1 again after the largest; 0 if none is free.
    pub fn allocate(&mut self) -> u32 {
        let Some(number) =
            self.first_free(self.last_number + 1, BRANCH_NUMBERS).or_else(|| self.first_free(1, self.last_number + 1))
        else {
            return 0;
        };
        self.taken.insert(number);
        self.last_number = number;
        number
    }

    /// Frees the number of a branch that ends, for when `allocate` comes round to it.
    pub fn free(&mut self, number: u32) {
        self.taken.remove(&number);
    }

    fn first_free(&self, from: u32, end: u32) -> Option<u32> {
        let mut taken = self.taken.range(from..end);
        (from..end).find(|number| taken.next() != Some(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_freed_is_given_again_after_all_others() {
        let mut numbers = BranchNumbers::default();
        assert_eq!([(); 3].map(|()| numbers.allocate()), [1, 2, 3]);
        numbers.free(2);
        assert_eq!(numbers.allocate(), 4);
        numbers.resume_after(BRANCH_NUMBERS - 2);
        assert_eq!([(); 4].map(|()| numbers.allocate()), [BRANCH_NUMBERS - 1, 2, 5, 6]);
    }

    #[test]
    fn there_is_none_where_all_are_taken() {
        let mut numbers = BranchNumbers { taken: (1..BRANCH_NUMBERS).collect(), last_number: 7 };
        assert_eq!(numbers.taken.len(), 2_097_151, "as the page says");
        assert_eq!(numbers.allocate(), 0);
        assert!(numbers.reserve(0) && !numbers.reserve(8) && !numbers.reserve(BRANCH_NUMBERS));
        numbers.free(9);
        assert_eq!((numbers.allocate(), numbers.last()), (9, 9));
    }
}
