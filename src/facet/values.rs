//! The values of one column while the index is built: as they come, then sorted.

use std::ops::Range;

use super::layout::STRING_BYTES_MAX;
use super::number::NumberKey;

/// Distinct values in their order, and the rows of each.
pub(super) struct SortedValues<V> {
    /// Ascending, each once.
    pub(super) values: Vec<V>,
    /// Where each value's rows end.
    ends: Vec<usize>,
    /// The values' rows one after the other, ascending within a value.
    rows: Vec<u32>,
}

impl<V: PartialEq> SortedValues<V> {
    /// Takes values in their order, those of one value with ascending rows. The same value of the
    /// same row counts once.
    fn new(uses: impl Iterator<Item = (V, u32)>) -> Self {
        let mut sorted = Self { values: Vec::new(), ends: Vec::new(), rows: Vec::new() };
        for (value, row) in uses {
            if sorted.values.last() != Some(&value) {
                sorted.ends.push(sorted.rows.len());
                sorted.values.push(value);
            } else if sorted.rows.last() == Some(&row) {
                continue;
            }
            sorted.rows.push(row);
            if let Some(end) = sorted.ends.last_mut() {
                *end = sorted.rows.len();
            }
        }
        sorted
    }
}

impl<V> SortedValues<V> {
    /// Returns the rows that have the i-th value, ascending.
    pub(super) fn rows(&self, i: usize) -> &[u32] {
        &self.rows[self.range(i)]
    }

    fn range(&self, i: usize) -> Range<usize> {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        start..self.ends[i]
    }
}

/// Numbers and the rows that have them, rows ascending.
#[derive(Debug, Default)]
pub(super) struct Numbers(Vec<(NumberKey, u32)>);

impl Numbers {
    /// Adds a number of a row, which is not below the row added before.
    pub(super) fn add(&mut self, number: NumberKey, row: u32) {
        self.0.push((number, row));
    }

    /// Sorts by number, with the rows of one number ascending.
    pub(super) fn sort(mut self) -> SortedValues<NumberKey> {
        // The rows need no key: they come in ascending order and the sort is stable.
        self.0.sort_by_key(|(number, _)| *number);
        SortedValues::new(self.0.into_iter())
    }
}

/// The beginnings of strings and the rows that have them, rows ascending.
#[derive(Debug, Default)]
pub(super) struct Strings {
    bytes: Vec<u8>,
    /// Each string's end in `bytes`, its length and its row.
    uses: Vec<(u64, u8, u32)>,
}

impl Strings {
    /// Adds a string of a row; [`STRING_BYTES_MAX`] bytes of it are kept.
    pub(super) fn add(&mut self, string: &str, row: u32) {
        let kept = &string.as_bytes()[..string.len().min(STRING_BYTES_MAX)];
        self.bytes.extend(kept);
        self.uses.push((self.bytes.len() as u64, kept.len() as u8, row));
    }

    /// Sorts the kept beginnings bytewise, so that strings cut to the same bytes become one value.
    pub(super) fn sort(&mut self) -> SortedValues<&[u8]> {
        let bytes = &self.bytes;
        let string = |end: u64, length: u8| &bytes[end as usize - usize::from(length)..end as usize];
        self.uses.sort_by(|a, b| string(a.0, a.1).cmp(string(b.0, b.1)));
        SortedValues::new(self.uses.iter().map(|(end, length, row)| (string(*end, *length), *row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_sorted_with_their_rows() {
        let mut strings = Strings::default();
        for (row, string) in [(0, "b"), (0, "a"), (0, "b"), (3, "b"), (7, "c"), (9, "a")] {
            strings.add(string, row);
        }
        let sorted = strings.sort();
        assert_eq!(sorted.values, [b"a", b"b", b"c"]);
        assert_eq!((sorted.rows(0), sorted.rows(1), sorted.rows(2)), (&[0, 9][..], &[0, 3][..], &[7][..]));
    }
}
