//! NumPy's array files: two dimensions, C order, little-endian floats of 2, 4 or 8 bytes.
//!
//! ```text
//! 0x93 "NUMPY" ‖ major ‖ minor ‖ header length (u16 LE in version 1, u32 LE after) ‖ header, a Python dict ‖ the rows
//! ```

use std::io::Read;
use std::path::{Path, PathBuf};

use super::half::to_f32;
use super::ids::IdReader;
use super::{DIM_MAX, InputRow, check_finite, malformed};
use crate::cli::failure::CommandError;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// NumPy's own writers stay far below.
const HEADER_BYTES_MAX: u32 = 64 << 10;
const CONVERT: &str = "write it with numpy.save(FILE, numpy.ascontiguousarray(a, dtype='<f4'))";
/// For an array of one dimension or none, which [`CONVERT`] would leave so.
const ONE_ROW: &str =
    "if it is one vector, write it with numpy.save(FILE, numpy.asarray(a, dtype='<f4').reshape(1, -1))";
const ROWS: &str = "write it with numpy.save(FILE, numpy.ascontiguousarray(a, dtype='<f4').reshape(len(a), -1))";

/// What the header of a `.npy` file says of its array, which has to be rows of floats in C order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NpyHeader {
    /// Bytes of a component: 2, 4 or 8.
    pub width: usize,
    /// Rows of the array. A file that is shorter than these is refused before its first row.
    pub rows: u64,
    /// Components of each row, 1 to 2^20; 0 where there are no rows.
    pub dim: usize,
    /// Where the rows begin, in bytes.
    pub offset: u64,
}

impl NpyHeader {
    /// Reads the beginning of a file, up to its first row. Fails if it ends before, is not NumPy's, or is not of two
    /// dimensions of little-endian float16, float32 or float64 in C order.
    pub fn read(path: &Path, input: &mut impl Read) -> Result<NpyHeader, CommandError> {
        let failed = |e: std::io::Error| CommandError::file("read", path, &e);
        let mut start = [0; 8];
        input.read_exact(&mut start).map_err(failed)?;
        if &start[..6] != MAGIC {
            return Err(malformed(path, "is no NumPy array", CONVERT));
        }
        let mut length = [0; 4];
        let length_bytes = if start[6] == 1 { 2 } else { 4 };
        input.read_exact(&mut length[..length_bytes]).map_err(failed)?;
        let length = u32::from_le_bytes(length);
        if length > HEADER_BYTES_MAX {
            return Err(malformed(path, "has a header too long to be right", CONVERT));
        }
        let mut text = vec![0; length as usize];
        input.read_exact(&mut text).map_err(failed)?;
        let offset = 8 + length_bytes as u64 + u64::from(length);
        parse(&String::from_utf8_lossy(&text), offset).map_err(|(what, hint)| malformed(path, what, hint))
    }

    /// Returns how many bytes one row takes in the file, before its components become f32.
    pub fn row_bytes(&self) -> usize {
        self.dim * self.width
    }
}

/// Reads the dict, such as `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }`. An error is what is wrong, and the hint.
fn parse(text: &str, offset: u64) -> Result<NpyHeader, (String, &'static str)> {
    let value = |key: &str| -> Option<&str> {
        let after = text.split_once(&format!("'{key}'")).or_else(|| text.split_once(&format!("\"{key}\"")))?.1;
        after.trim_start().strip_prefix(':').map(str::trim_start)
    };
    let descr = value("descr").and_then(|rest| rest.split(['\'', '"']).nth(1)).unwrap_or_default();
    let width = match descr {
        "<f2" => 2,
        "<f4" => 4,
        "<f8" => 8,
        _ => return Err((format!("holds {descr:?}, not float16, float32 or float64 in little-endian"), CONVERT)),
    };
    if !value("fortran_order").is_some_and(|rest| rest.starts_with("False")) {
        return Err(("is not in C order".to_owned(), CONVERT));
    }
    let shape = value("shape").and_then(|rest| rest.strip_prefix('(')).and_then(|rest| rest.split_once(')'));
    let sizes: Vec<&str> =
        shape.map_or("", |(inside, _)| inside).split(',').map(str::trim).filter(|s| !s.is_empty()).collect();
    let [rows, dim] = sizes[..] else {
        let hint = if sizes.len() < 2 { ONE_ROW } else { ROWS };
        return Err((format!("has {} dimensions, not two", sizes.len()), hint));
    };
    match (rows.parse::<u64>(), dim.parse::<usize>()) {
        // An export of a branch without vectors is of no rows with no components.
        (Ok(rows), Ok(dim)) if (1..=DIM_MAX).contains(&dim) || (rows, dim) == (0, 0) => {
            Ok(NpyHeader { width, rows, dim, offset })
        }
        _ => Err((format!("has an impossible shape, {rows} × {dim}"), "give rows of 1 to 1048576 numbers")),
    }
}

/// The rows of a `.npy` file, each read when it is asked for; doubles are rounded to f32.
pub struct NpyRows<R> {
    path: PathBuf,
    input: R,
    header: NpyHeader,
    ids: IdReader,
    row: u64,
    buffer: Vec<u8>,
}

impl<R: Read> NpyRows<R> {
    /// Reads the header of `input`, a file of `length` bytes, and opens the ids. Fails like [`NpyHeader::read`], if the
    /// file is shorter than its rows, and as [`IdReader::open`] does.
    pub fn new(path: PathBuf, mut input: R, length: u64, ids: Option<&Path>) -> Result<NpyRows<R>, CommandError> {
        let header = NpyHeader::read(&path, &mut input)?;
        let whole =
            (header.row_bytes() as u64).checked_mul(header.rows).and_then(|bytes| bytes.checked_add(header.offset));
        if whole.is_none_or(|whole| whole > length) {
            let what = format!("ends before its {} rows of {} components do", header.rows, header.dim);
            return Err(malformed(&path, what, "copy it again"));
        }
        let ids = IdReader::open(ids, header.rows)?;
        Ok(NpyRows { path, input, header, ids, row: 0, buffer: vec![0; header.row_bytes()] })
    }

    fn read_row(&mut self) -> Result<(InputRow, u64), CommandError> {
        self.input.read_exact(&mut self.buffer).map_err(|e| CommandError::file("read", &self.path, &e))?;
        let vector = components(&self.buffer, self.header.width);
        check_finite(&self.path, self.row, &vector)?;
        let id = self.ids.next(self.row)?;
        let before = if self.row == 0 { self.header.offset } else { 0 };
        self.row += 1;
        Ok((InputRow::Vector { id, vector }, before + self.buffer.len() as u64))
    }
}

impl<R: Read> Iterator for NpyRows<R> {
    type Item = Result<(InputRow, u64), CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.row < self.header.rows).then(|| self.read_row())
    }
}

fn components(bytes: &[u8], width: usize) -> Vec<f32> {
    match width {
        2 => bytes.as_chunks().0.iter().map(|half| to_f32(u16::from_le_bytes(*half))).collect(),
        4 => bytes.as_chunks().0.iter().map(|single| f32::from_le_bytes(*single)).collect(),
        // Rounds to the nearest; what overflows becomes infinite and is refused.
        _ => bytes.as_chunks().0.iter().map(|double| f64::from_le_bytes(*double) as f32).collect(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn file(dict: &str, data: &[u8]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([1, 0]);
        out.extend(u16::try_from(dict.len()).unwrap().to_le_bytes());
        out.extend(dict.as_bytes());
        out.extend(data);
        out
    }

    fn rows(bytes: &[u8]) -> Result<Vec<(InputRow, u64)>, CommandError> {
        NpyRows::new("a.npy".into(), bytes, bytes.len() as u64, None)?.collect()
    }

    fn dict(descr: &str, shape: &str) -> String {
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n")
    }

    #[test]
    fn three_widths_give_the_same_floats() {
        let values = [1.0_f32, -2.0, 0.5, 4.0];
        let single: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let double: Vec<u8> = values.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect();
        let half: Vec<u8> = [0x3c00_u16, 0xc000, 0x3800, 0x4400].iter().flat_map(|v| v.to_le_bytes()).collect();
        for (descr, data) in [("<f4", single), ("<f8", double), ("<f2", half)] {
            let bytes = file(&dict(descr, "(2, 2)"), &data);
            let found = rows(&bytes).unwrap();
            let second = InputRow::Vector { id: "row-00000001".into(), vector: vec![0.5, 4.0] };
            assert_eq!((found.len(), &found[1].0), (2, &second), "{descr}");
            assert_eq!(found.iter().map(|(_, taken)| taken).sum::<u64>(), bytes.len() as u64);
        }
    }

    #[test]
    fn what_cannot_be_read_right_is_refused_by_name() {
        let refused = |dict: &str, word: &str| {
            let failure = rows(&file(dict, &[0; 64])).unwrap_err();
            assert!(failure.message.contains(word), "{}", failure.message);
        };
        refused(&dict(">f4", "(2, 2)"), ">f4");
        refused(&dict("<i4", "(2, 2)"), "<i4");
        refused(&dict("<f4", "(4,)"), "1 dimensions");
        refused(&dict("<f4", "(4, 2, 2)"), "3 dimensions");
        refused(&dict("<f4", "(2, 0)"), "impossible shape");
        // Such a file is as long as its rows; a buffer for one of them would be of 32 GiB.
        refused(&dict("<f8", "(0, 4294967295)"), "impossible shape");
        refused(&dict("<f4", "(5, 4)"), "ends before");
        refused(&dict("<f4", "(18446744073709551615, 4)"), "ends before");
        refused(&dict("<f4", "(2, 2)").replace("False", "True"), "C order");
        assert!(rows(b"not numpy at all").unwrap_err().message.contains("no NumPy array"));
    }

    #[test]
    fn the_hint_makes_rows_of_an_array_of_other_dimensions() {
        let hint = |shape: &str| rows(&file(&dict("<f4", shape), &[0; 64])).unwrap_err().hint;
        assert!(hint("(4,)").contains(".reshape(1, -1)") && hint("()").contains(".reshape(1, -1)"));
        assert!(hint("(4, 2, 2)").contains(".reshape(len(a), -1)") && hint("(2, 0)").contains("1 to 1048576"));
    }

    #[test]
    fn an_array_of_nothing_has_no_rows() {
        assert!(rows(&file(&dict("<f4", "(0, 0)"), &[])).unwrap().is_empty());
    }

    #[test]
    fn a_row_with_nan_is_named() {
        let mut data = [0_u8; 16];
        data[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
        let failure = rows(&file(&dict("<f4", "(2, 2)"), &data)).unwrap_err();
        assert!(failure.message.contains("row 1"), "{}", failure.message);
    }

    #[test]
    fn version_2_has_a_longer_header_length() {
        let dict = dict("<f4", "(0, 3)");
        let mut bytes = MAGIC.to_vec();
        bytes.extend([2, 0]);
        bytes.extend(u32::try_from(dict.len()).unwrap().to_le_bytes());
        bytes.extend(dict.as_bytes());
        let header = NpyHeader::read(Path::new("a"), &mut &bytes[..]).unwrap();
        assert_eq!((header.rows, header.dim, header.offset), (0, 3, bytes.len() as u64));
    }
}
