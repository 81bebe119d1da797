//! Rows that match, as far as the index can tell.

use roaring::RoaringBitmap;

/// Rows that match for certain, and rows that may.
///
/// A row is never in both. A row in neither does not match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowSet {
    /// Rows that match for certain, without a look at their metadata.
    pub certain: RoaringBitmap,
    /// Rows whose metadata must be looked at.
    pub uncertain: RoaringBitmap,
}

impl RowSet {
    /// Returns the set without rows, certain or not: what [`RowSet::or`] begins with.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the rows below `rows`, for certain: no row's metadata is looked at.
    pub fn all(rows: u32) -> Self {
        let mut all = RoaringBitmap::new();
        all.insert_range(0..rows);
        Self::from_certain(all)
    }

    /// Returns a set of these rows and none to look at.
    pub fn from_certain(certain: RoaringBitmap) -> Self {
        Self { certain, uncertain: RoaringBitmap::new() }
    }

    /// Returns a set in which each of these rows must still be checked.
    pub fn from_uncertain(uncertain: RoaringBitmap) -> Self {
        Self { certain: RoaringBitmap::new(), uncertain }
    }

    /// Returns all rows that may match: a superset of those that do.
    pub fn possible(self) -> RoaringBitmap {
        if self.uncertain.is_empty() { self.certain } else { self.certain | self.uncertain }
    }

    /// Returns whether no row can match.
    pub fn is_empty(&self) -> bool {
        self.certain.is_empty() && self.uncertain.is_empty()
    }

    /// Returns the rows that match both, for certain where both are certain.
    pub fn and(self, other: Self) -> Self {
        if self.uncertain.is_empty() && other.uncertain.is_empty() {
            return Self::from_certain(self.certain & other.certain);
        }
        let certain = &self.certain & &other.certain;
        let uncertain = (self.possible() & other.possible()) - &certain;
        Self { certain, uncertain }
    }

    /// Returns the rows that match one or both, for certain where either is certain.
    pub fn or(self, other: Self) -> Self {
        let certain = self.certain | other.certain;
        let uncertain = self.uncertain | other.uncertain;
        let uncertain = if uncertain.is_empty() { uncertain } else { uncertain - &certain };
        Self { certain, uncertain }
    }

    /// Returns the rows below `rows` that don't match; what is uncertain stays uncertain.
    pub fn not(self, rows: u32) -> Self {
        let uncertain = self.uncertain.clone();
        // Built from bits, since a range would become a run container, out of which single rows are removed many times
        // more slowly.
        let bits = vec![u8::MAX; rows.div_ceil(8) as usize];
        let mut all = RoaringBitmap::from_lsb0_bytes(0, &bits);
        all.remove_range(rows..);
        Self { certain: all - self.possible(), uncertain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row is in one of three states: 0 no, 1 certain, 2 uncertain.
    fn rows(states: &[u8]) -> RowSet {
        let rows_in_state = |state: u8| (0..states.len() as u32).filter(|row| states[*row as usize] == state).collect();
        RowSet { certain: rows_in_state(1), uncertain: rows_in_state(2) }
    }

    #[test]
    fn three_states_combine() {
        let (a, b) = (rows(&[0, 0, 0, 1, 1, 1, 2, 2, 2]), rows(&[0, 1, 2, 0, 1, 2, 0, 1, 2]));
        assert_eq!(a.clone().and(b.clone()), rows(&[0, 0, 0, 0, 1, 2, 0, 2, 2]));
        assert_eq!(a.clone().or(b), rows(&[0, 1, 2, 1, 1, 1, 2, 1, 2]));
        assert_eq!(a.clone().not(9), rows(&[1, 1, 1, 0, 0, 0, 2, 2, 2]));
        assert_eq!(a.possible(), (3..9).collect());
        assert_eq!(RowSet::all(3).possible().len(), 3);
        assert!(RowSet::none().is_empty());
    }
}
