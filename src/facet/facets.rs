//! Reading one segment's metadata index in place: nothing is decoded before it is asked for.

use std::cmp::Ordering;
use std::ops::Range;

use roaring::RoaringBitmap;
use serde_json::Value;

use super::RowSet;
use super::column::{Column, OperandMatch, SortPosition};
use super::layout::{
    FacetPart, HEADER_BYTES, MAGIC, NAMES_BYTES_AT, PARTS, PATH_ENTRY_BYTES, PATHS_AT, ROWS_AT, UNINDEXED_BYTES_AT,
    bitmap, nth_piece, size_at, u32_at,
};
use super::number::NumberKey;

/// Elements of a list that are looked up to find lists equal to it.
const ELEMENTS_USED: usize = 8;

/// Why bytes can't be read as an index of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FacetError {
    /// The bytes do not begin with the mark of an index.
    #[error("the metadata index does not begin with its mark")]
    Magic,
    /// The layout is another version than this program reads.
    #[error("the metadata index has layout version {found}, and this engramfs reads {}", MAGIC[7])]
    Version {
        /// The version that the bytes name.
        found: u8,
    },
    /// The sizes in the header do not add up to the bytes there are.
    #[error("the metadata index has {bytes} bytes where its header tells otherwise")]
    Size {
        /// How many bytes were given, header included.
        bytes: usize,
    },
}

/// The metadata index of one segment, read in place from mapped or owned bytes.
///
/// Opening checks the header alone, at a cost that does not depend on the size. Damage after it makes rows missing, and
/// is never a panic. Damage is found by the hashes that a segment keeps of its blocks.
#[derive(Clone, Copy, Debug)]
pub struct Facets<'a> {
    rows: u32,
    directory: &'a [u8],
    names: &'a [u8],
    unindexed: &'a [u8],
    bodies: &'a [u8],
}

impl<'a> Facets<'a> {
    /// Opens what [`FacetsWriter::finish`](super::FacetsWriter::finish) gave.
    ///
    /// [`FacetError::Magic`], [`FacetError::Version`] or [`FacetError::Size`] if it is something else.
    pub fn open(bytes: &'a [u8]) -> Result<Self, FacetError> {
        let mark = bytes.first_chunk::<{ MAGIC.len() }>().ok_or(FacetError::Magic)?;
        if mark[..7] != MAGIC[..7] {
            return Err(FacetError::Magic);
        }
        if mark[7] != MAGIC[7] {
            return Err(FacetError::Version { found: mark[7] });
        }
        Self::sections(bytes).ok_or(FacetError::Size { bytes: bytes.len() })
    }

    /// Cuts the bytes where the header says; `None` unless they are long enough.
    fn sections(bytes: &'a [u8]) -> Option<Self> {
        let (rows, paths) = (u32_at(bytes, ROWS_AT)?, u32_at(bytes, PATHS_AT)? as usize);
        let (_, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let (directory, rest) = rest.split_at_checked(paths.checked_mul(PATH_ENTRY_BYTES)?)?;
        let (names, rest) = rest.split_at_checked(size_at(bytes, NAMES_BYTES_AT)?)?;
        let (unindexed, bodies) = rest.split_at_checked(size_at(bytes, UNINDEXED_BYTES_AT)?)?;
        let end = if paths == 0 { 0 } else { size_at(directory, directory.len() - size_of::<u64>())? };
        (end == bodies.len()).then_some(Self { rows, directory, names, unindexed, bodies })
    }

    /// Returns how many rows there are; rows are numbered from 0.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns the rows that have a path, whatever its value, null included.
    pub fn rows_with_path(&self, path: &str) -> RowSet {
        self.body(path)
            .map_or_else(|| self.unindexed_path_rows(), |body| RowSet::from_certain(body.bitmap(FacetPart::Present)))
    }

    /// Returns the rows whose value under a path is `value`, or is a list with that element.
    ///
    /// For a list or an object, all rows that may have it are to be looked at.
    pub fn rows_equal_to(&self, path: &str, value: &Value) -> RowSet {
        self.rows_equal_to_any(path, std::slice::from_ref(value))
    }

    /// Returns the rows whose value under a path is one of `values`, or is a list with such an element.
    ///
    /// For a list or an object among them, all rows that may have it are to be looked at.
    pub fn rows_equal_to_any(&self, path: &str, values: &[Value]) -> RowSet {
        self.body(path).map_or_else(|| self.unindexed_path_rows(), |body| body.rows_equal_to_any(values))
    }

    /// Returns the rows whose value under a path is a number or a string within all of `bounds`;
    /// none for no bounds.
    pub fn rows_in_bounds(&self, path: &str, bounds: &[Bound<'_>]) -> RowSet {
        self.body(path).map_or_else(|| self.unindexed_path_rows(), |body| body.rows_in_bounds(bounds))
    }

    /// The answer for a path that is not indexed: no row has it, unless it has paths beyond those.
    fn unindexed_path_rows(&self) -> RowSet {
        RowSet::from_uncertain(bitmap(self.unindexed, self.rows))
    }

    fn body(&self, path: &str) -> Option<FacetBody<'a>> {
        let (mut low, mut high) = (0, self.directory.len() / PATH_ENTRY_BYTES);
        while low < high {
            let middle = low + (high - low) / 2;
            match nth_piece(self.directory, PATH_ENTRY_BYTES, 0, self.names, middle)?.cmp(path.as_bytes()) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => {
                    let body = nth_piece(self.directory, PATH_ENTRY_BYTES, size_of::<u64>(), self.bodies, middle)?;
                    let (ends, parts) = body.split_at_checked(PARTS * size_of::<u64>())?;
                    return Some(FacetBody { ends, parts, rows: self.rows });
                }
            }
        }
        None
    }
}

#[derive(Clone, Copy)]
struct FacetBody<'a> {
    ends: &'a [u8],
    parts: &'a [u8],
    rows: u32,
}

impl<'a> FacetBody<'a> {
    fn part(&self, part: FacetPart) -> &'a [u8] {
        nth_piece(self.ends, size_of::<u64>(), 0, self.parts, part as usize).unwrap_or_default()
    }

    fn bitmap(&self, part: FacetPart) -> RoaringBitmap {
        bitmap(self.part(part), self.rows)
    }

    fn column(&self, part: FacetPart) -> Option<Column<'a>> {
        Column::open(self.part(part), self.rows)
    }

    fn rows_equal_to_any(&self, values: &[Value]) -> RowSet {
        let (scalars, others): (Vec<&Value>, Vec<&Value>) =
            values.iter().partition(|value| value.is_number() || value.is_string());
        let mut rows =
            RowSet::from_uncertain(if values.is_empty() { RoaringBitmap::new() } else { self.bitmap(FacetPart::Long) });
        if !scalars.is_empty() {
            for part in [FacetPart::Numbers, FacetPart::Strings, FacetPart::NumberItems, FacetPart::StringItems] {
                rows = rows.or(self.rows_with_any(part, &scalars));
            }
        }
        others.into_iter().map(|value| self.rows_equal_to(value)).fold(rows, RowSet::or)
    }

    /// Returns the rows that are equal to a value which no column has.
    fn rows_equal_to(&self, value: &Value) -> RowSet {
        match value {
            Value::Bool(true) => RowSet::from_certain(self.bitmap(FacetPart::True)),
            Value::Bool(false) => RowSet::from_certain(self.bitmap(FacetPart::False)),
            Value::Array(elements) => self.rows_equal_to_list(elements),
            Value::Object(_) => {
                RowSet::from_uncertain(self.bitmap(FacetPart::Objects) | self.bitmap(FacetPart::Nested))
            }
            Value::Null | Value::Number(_) | Value::String(_) => RowSet::from_certain(self.bitmap(FacetPart::Null)),
        }
    }

    /// A list that is equal has all the elements; one that holds an equal list is nested.
    fn rows_equal_to_list(&self, elements: &[Value]) -> RowSet {
        let mut lists = self.bitmap(FacetPart::Lists);
        let scalars = elements.iter().filter(|element| !element.is_array() && !element.is_object());
        for element in scalars.take(ELEMENTS_USED) {
            lists &= self.rows_equal_to_any(std::slice::from_ref(element)).possible();
        }
        RowSet::from_uncertain(lists | self.bitmap(FacetPart::Nested))
    }

    /// Returns the rows that have any of these numbers and strings in a column.
    fn rows_with_any(&self, part: FacetPart, scalars: &[&Value]) -> RowSet {
        let Some(column) = self.column(part) else { return RowSet::none() };
        let is_number = matches!(part, FacetPart::Numbers | FacetPart::NumberItems);
        let (mut certain, mut uncertain) = (Vec::new(), Vec::new());
        for scalar in scalars.iter().filter(|scalar| scalar.is_number() == is_number) {
            match find_position(&column, scalar) {
                Some(SortPosition { lower_count, same: OperandMatch::Yes }) => {
                    certain.push(lower_count..lower_count + 1)
                }
                Some(SortPosition { lower_count, same: OperandMatch::Uncertain }) => {
                    uncertain.push(lower_count..lower_count + 1)
                }
                _ => {}
            }
        }
        RowSet::from_certain(column.rows_in_ranges(&certain))
            .or(RowSet::from_uncertain(column.rows_in_ranges(&uncertain)))
    }

    fn rows_in_bounds(&self, bounds: &[Bound<'_>]) -> RowSet {
        let Some((first, rest)) = bounds.split_first() else { return RowSet::none() };
        if rest.iter().any(|bound| bound.operand.is_number() != first.operand.is_number()) {
            return RowSet::none();
        }
        let part = if first.operand.is_number() { FacetPart::Numbers } else { FacetPart::Strings };
        let Some(column) = self.column(part) else { return RowSet::none() };
        // Two ranges of values: `certain` match for certain; `possible` has one value more at each end where the stored
        // value was cut short.
        let (mut certain, mut possible) = (0..column.values, 0..column.values);
        for bound in bounds {
            let Some((inner, outer)) = bound.ranges(&column) else { return RowSet::none() };
            certain = certain.start.max(inner.start)..certain.end.min(inner.end);
            possible = possible.start.max(outer.start)..possible.end.min(outer.end);
        }
        if certain.is_empty() {
            return RowSet::from_uncertain(column.rows_in_ranges(&[possible]));
        }
        let uncertain = column.rows_in_ranges(&[possible.start..certain.start, certain.end..possible.end]);
        // `or` keeps the two sets disjoint: damaged bytes may name a row in both.
        RowSet::from_certain(column.rows_in_ranges(&[certain])).or(RowSet::from_uncertain(uncertain))
    }
}

/// One end of a range: values whose order against `operand` is any of `wanted`.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'a> {
    /// A number or a string.
    pub operand: &'a Value,
    /// How a value may compare to it: less or greater, and equal where the end belongs to the range.
    pub wanted: [Ordering; 2],
}

impl Bound<'_> {
    /// Returns the values of a column within the bound for certain, and those that may be.
    fn ranges(&self, column: &Column<'_>) -> Option<(Range<u32>, Range<u32>)> {
        let SortPosition { lower_count, same } = find_position(column, self.operand)?;
        let greater = lower_count + u32::from(same != OperandMatch::No);
        let equal = same == OperandMatch::Yes && self.wanted.contains(&Ordering::Equal);
        let uncertain = same == OperandMatch::Uncertain;
        let (with, without) =
            (|is: bool| if is { greater } else { lower_count }, |is: bool| if is { lower_count } else { greater });
        Some(if self.wanted.contains(&Ordering::Less) {
            (0..with(equal), 0..with(equal || uncertain))
        } else {
            (without(equal)..column.values, without(equal || uncertain)..column.values)
        })
    }
}

fn find_position(column: &Column<'_>, value: &Value) -> Option<SortPosition> {
    match value {
        Value::Number(number) => column.find_number(NumberKey::from_number(number)),
        Value::String(string) => column.find_string(string.as_bytes()),
        _ => None,
    }
}
