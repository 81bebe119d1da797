//! Sums over rows, kept with a segment and with a branch version.

use crate::object::{CodecError, Reader, Writer};

/// What all rows of a segment, or all records of a branch, add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowTotals {
    /// Number of records, with or without a vector.
    pub records: u64,
    /// Records with a vector.
    pub vectors: u64,
    /// Bytes of `id\n` over the records with a vector.
    pub id_line_bytes: u64,
    /// Bytes of id, text and metadata as JSON.
    pub json_bytes: u64,
    /// Number of terms in the documents that text queries search.
    pub terms: u64,
    /// Bytes of ids, vectors, texts and metadata as stored.
    pub raw_bytes: u64,
}

impl RowTotals {
    const FIELDS: usize = 6;

    fn fields(&mut self) -> [&mut u64; RowTotals::FIELDS] {
        [
            &mut self.records,
            &mut self.vectors,
            &mut self.id_line_bytes,
            &mut self.json_bytes,
            &mut self.terms,
            &mut self.raw_bytes,
        ]
    }

    /// Adds another sum; sums stop at the largest u64.
    pub fn add(&mut self, mut other: RowTotals) {
        self.fields().into_iter().zip(other.fields()).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
    }

    /// Subtracts what was added before. Sums stop at 0.
    pub fn subtract(&mut self, mut other: RowTotals) {
        self.fields().into_iter().zip(other.fields()).for_each(|(sum, less)| *sum = sum.saturating_sub(*less));
    }

    /// Appends the stored form: six varints, which [`RowTotals::read`] takes.
    pub fn write(&self, out: &mut Writer) {
        let mut copy = *self;
        copy.fields().into_iter().for_each(|field| {
            out.number(*field);
        });
    }

    /// Reads the stored form. Six varints; fails with the `CodecError` of the first that is not one.
    pub fn read(input: &mut Reader<'_>) -> Result<RowTotals, CodecError> {
        let mut totals = RowTotals::default();
        for field in totals.fields() {
            *field = input.number()?;
        }
        Ok(totals)
    }
}
