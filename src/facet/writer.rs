//! Building one segment's metadata index in memory.

use std::collections::HashMap;

use roaring::RoaringBitmap;
use serde_json::Value;

use super::column_writer::encode_column;
use super::layout::{
    BITMAPS, FacetPart, HEADER_BYTES, MAGIC, NAMES_BYTES_AT, PARTS, PATHS_AT, ROWS_AT, UNINDEXED_BYTES_AT,
    bitmap_from_rows, put_bitmap,
};
use super::number::NumberKey;
use super::path::for_each_path;
use super::values::{Numbers, Strings};

/// Most paths of an index: those that most rows have. Beyond are metadata whose keys are data.
const PATHS_MAX: usize = 1024;
/// Most paths that are followed while an index is built.
const PATHS_BUILT_MAX: usize = 16 * PATHS_MAX;
/// Longest list whose elements are indexed.
pub(super) const ITEMS_MAX: usize = 256;

/// Builds the metadata index of one segment, row by row.
///
/// Memory grows with the metadata: 16 bytes and a string's beginning for each value, and 4 for each path of a row.
#[derive(Debug, Default)]
pub struct FacetsWriter {
    /// Each path's place in `values`.
    paths: HashMap<Box<str>, usize>,
    values: Vec<PathValues>,
    /// Rows with a path that is not followed.
    unindexed: MarkedRows,
    rows: u32,
    /// The path at hand, kept to reuse its memory.
    path: String,
}

impl FacetsWriter {
    /// Returns a writer without rows, which gives a valid index as it is.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the metadata of `row`; what is not an object counts as `{}`.
    ///
    /// Rows ascend and are below `u32::MAX`; one that is left out has none.
    ///
    /// # Panics
    ///
    /// When `row` is not above the row added before, or is `u32::MAX`.
    pub fn add(&mut self, row: u32, metadata: &Value) {
        assert!(self.rows <= row, "rows are added to an index in ascending order");
        assert!(row < u32::MAX, "an index has room for 2^32 - 1 rows");
        self.rows = row + 1;
        let mut path = std::mem::take(&mut self.path);
        for_each_path(metadata, &mut path, &mut |path, value| match value
            .and_then(|value| Some((self.path_values_mut(path)?, value)))
        {
            Some((values, value)) => values.add(row, value),
            None => self.unindexed.mark(row),
        });
        self.path = path;
    }

    /// Returns the values of a path; `None` for a new path where there are too many.
    fn path_values_mut(&mut self, path: &str) -> Option<&mut PathValues> {
        let place = match self.paths.get(path) {
            Some(place) => *place,
            None if self.values.len() == PATHS_BUILT_MAX => return None,
            None => {
                self.values.push(PathValues::default());
                self.paths.insert(path.into(), self.values.len() - 1);
                self.values.len() - 1
            }
        };
        self.values.get_mut(place)
    }

    /// Returns the index as the bytes that [`Facets::open`](super::Facets::open) reads.
    ///
    /// The bytes are a function of the rows and their metadata alone.
    pub fn finish(self) -> Vec<u8> {
        let (rows, mut unindexed) = (self.rows, self.unindexed.to_bitmap(self.rows));
        let mut values = self.values;
        let mut paths: Vec<(Box<str>, PathValues)> =
            self.paths.into_iter().map(|(path, place)| (path, std::mem::take(&mut values[place]))).collect();
        if paths.len() > PATHS_MAX {
            // The rarest paths go, and of equals the last by name, so that the bytes depend on the rows alone.
            paths.sort_unstable_by(|a, b| b.1.rows().cmp(&a.1.rows()).then_with(|| a.0.cmp(&b.0)));
            paths
                .drain(PATHS_MAX..)
                .for_each(|(_, values)| unindexed |= values.marked[FacetPart::Present as usize].to_bitmap(rows));
        }
        paths.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let number = paths.len() as u32;
        let (mut directory, mut names, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for (name, values) in paths {
            names.extend(name.bytes());
            values.encode(rows, &mut bodies);
            directory.extend((names.len() as u64).to_le_bytes());
            directory.extend((bodies.len() as u64).to_le_bytes());
        }
        let mut unindexed_bytes = Vec::new();
        put_bitmap(&mut unindexed_bytes, unindexed);
        let mut out = vec![0; HEADER_BYTES];
        out[..ROWS_AT].copy_from_slice(&MAGIC);
        out[ROWS_AT..PATHS_AT].copy_from_slice(&rows.to_le_bytes());
        out[PATHS_AT..NAMES_BYTES_AT].copy_from_slice(&number.to_le_bytes());
        out[NAMES_BYTES_AT..UNINDEXED_BYTES_AT].copy_from_slice(&(names.len() as u64).to_le_bytes());
        out[UNINDEXED_BYTES_AT..].copy_from_slice(&(unindexed_bytes.len() as u64).to_le_bytes());
        [directory, names, unindexed_bytes, bodies].into_iter().for_each(|part| out.extend(part));
        out
    }
}

#[derive(Debug, Default)]
struct PathValues {
    /// By [`FacetPart`].
    marked: [MarkedRows; BITMAPS],
    scalars: Scalars,
    items: Scalars,
}

#[derive(Debug, Default)]
struct Scalars {
    numbers: Numbers,
    strings: Strings,
}

impl PathValues {
    fn rows(&self) -> usize {
        self.marked[FacetPart::Present as usize].0.len()
    }

    fn mark(&mut self, part: FacetPart, row: u32) {
        self.marked[part as usize].mark(row);
    }

    fn add(&mut self, row: u32, value: &Value) {
        self.mark(FacetPart::Present, row);
        match value {
            Value::Object(_) => self.mark(FacetPart::Objects, row),
            Value::Array(items) => {
                self.mark(FacetPart::Lists, row);
                if items.len() > ITEMS_MAX {
                    self.mark(FacetPart::Long, row);
                } else {
                    items.iter().for_each(|item| self.add_item(row, item));
                }
            }
            scalar => self.add_scalar(row, scalar, |values| &mut values.scalars),
        }
    }

    fn add_item(&mut self, row: u32, item: &Value) {
        match item {
            Value::Object(_) | Value::Array(_) => self.mark(FacetPart::Nested, row),
            scalar => self.add_scalar(row, scalar, |values| &mut values.items),
        }
    }

    fn add_scalar(&mut self, row: u32, scalar: &Value, columns: impl Fn(&mut Self) -> &mut Scalars) {
        match scalar {
            Value::Number(number) => columns(self).numbers.add(NumberKey::from_number(number), row),
            Value::String(string) => columns(self).strings.add(string, row),
            Value::Bool(true) => self.mark(FacetPart::True, row),
            Value::Bool(false) => self.mark(FacetPart::False, row),
            Value::Null | Value::Object(_) | Value::Array(_) => self.mark(FacetPart::Null, row),
        }
    }

    fn encode(self, rows: u32, out: &mut Vec<u8>) {
        let (mut ends, mut parts) = (Vec::with_capacity(PARTS * size_of::<u64>()), Vec::new());
        let mut end = |parts: &Vec<u8>| ends.extend((parts.len() as u64).to_le_bytes());
        for marked in self.marked {
            put_bitmap(&mut parts, marked.to_bitmap(rows));
            end(&parts);
        }
        for (Scalars { numbers, mut strings }, ordered) in [(self.scalars, true), (self.items, false)] {
            parts.extend(encode_column(numbers.sort(), rows, ordered));
            end(&parts);
            parts.extend(encode_column(strings.sort(), rows, ordered));
            end(&parts);
        }
        out.extend(ends);
        out.extend(parts);
    }
}

/// Rows that have something, ascending, each once.
#[derive(Debug, Default)]
struct MarkedRows(Vec<u32>);

impl MarkedRows {
    fn mark(&mut self, row: u32) {
        if self.0.last() != Some(&row) {
            self.0.push(row);
        }
    }

    fn to_bitmap(&self, rows: u32) -> RoaringBitmap {
        bitmap_from_rows(self.0.iter().copied(), self.0.len() as u64, rows)
    }
}
