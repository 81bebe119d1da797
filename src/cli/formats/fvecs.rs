//! fvecs, the files of the nearest-neighbour benchmarks: for each vector its length as i32, then its components as f32.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::ids::IdReader;
use super::npy::NpyHeader;
use super::{DIM_MAX, InputRow, check_finite, malformed};
use crate::cli::failure::CommandError;

const HINT: &str = "each vector is its length as a little-endian i32 and that many f32, and all have one length";

/// The rows of an `.fvecs` file. The first one's length is that of all, or the row is refused.
pub struct FvecsRows<R> {
    path: PathBuf,
    input: R,
    ids: IdReader,
    rows: u64,
    row: u64,
    dim: usize,
}

impl<R: Read> FvecsRows<R> {
    /// Reads `input`, a file of `length` bytes, and opens the ids. Fails if the length is not a whole number of rows.
    pub fn new(path: PathBuf, mut input: R, length: u64, ids: Option<&Path>) -> Result<FvecsRows<R>, CommandError> {
        if length == 0 {
            return Ok(FvecsRows { ids: IdReader::open(ids, 0)?, path, input, rows: 0, row: 0, dim: 0 });
        }
        let dim = read_length(&path, 0, &mut input)?;
        let row_bytes = 4 + 4 * dim as u64;
        if !length.is_multiple_of(row_bytes) {
            let what = format!("has {length} bytes, which are no whole number of vectors with {dim} components");
            return Err(malformed(&path, what, HINT));
        }
        let rows = length / row_bytes;
        Ok(FvecsRows { ids: IdReader::open(ids, rows)?, path, input, rows, row: 0, dim })
    }

    fn read_row(&mut self) -> Result<(InputRow, u64), CommandError> {
        // The first length was read to know how many rows there are.
        if self.row > 0 && read_length(&self.path, self.row, &mut self.input)? != self.dim {
            let what = format!("has another length than {} in row {}", self.dim, self.row);
            return Err(malformed(&self.path, what, HINT));
        }
        let mut bytes = vec![0; 4 * self.dim];
        self.input.read_exact(&mut bytes).map_err(|e| CommandError::file("read", &self.path, &e))?;
        let vector: Vec<f32> = bytes.as_chunks().0.iter().map(|single| f32::from_le_bytes(*single)).collect();
        check_finite(&self.path, self.row, &vector)?;
        let id = self.ids.next(self.row)?;
        self.row += 1;
        Ok((InputRow::Vector { id, vector }, 4 + bytes.len() as u64))
    }
}

impl<R: Read> Iterator for FvecsRows<R> {
    type Item = Result<(InputRow, u64), CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.row < self.rows).then(|| self.read_row())
    }
}

fn read_length(path: &Path, row: u64, input: &mut impl Read) -> Result<usize, CommandError> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes).map_err(|e| CommandError::file("read", path, &e))?;
    let length = i32::from_le_bytes(bytes);
    match usize::try_from(length) {
        Ok(dim) if (1..=DIM_MAX).contains(&dim) => Ok(dim),
        _ => Err(malformed(path, format!("gives {length} as the length of row {row}"), HINT)),
    }
}

/// Writes the rows of a float32 array in `npy` as fvecs. Fails if the array can't be read or ends early, its rows have
/// more numbers than an i32 counts, or `output` can't be written.
pub fn write_fvecs(npy: &mut dyn Read, mut output: impl Write) -> Result<(), CommandError> {
    let source = Path::new("export/vectors.npy");
    let mut npy = io::BufReader::with_capacity(super::BUFFER_BYTES, npy);
    let header = NpyHeader::read(source, &mut npy)?;
    let length =
        i32::try_from(header.dim).map_err(|_| malformed(source, "has rows too long for fvecs", "export .npy"))?;
    let mut row = vec![0; header.row_bytes()];
    for _ in 0..header.rows {
        npy.read_exact(&mut row).map_err(|e| CommandError::file("read", source, &e))?;
        let written = output.write_all(&length.to_le_bytes()).and_then(|()| output.write_all(&row));
        written.map_err(|e| CommandError::file("written", Path::new("the fvecs file"), &e))?;
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn rows(bytes: &[u8]) -> Result<Vec<(InputRow, u64)>, CommandError> {
        FvecsRows::new("a.fvecs".into(), bytes, bytes.len() as u64, None)?.collect()
    }

    fn npy() -> Vec<u8> {
        let dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(dict.len()).unwrap().to_le_bytes());
        bytes.extend(dict.as_bytes());
        bytes.extend((1..=6_u8).flat_map(|n| f32::from(n).to_le_bytes()));
        bytes
    }

    #[test]
    fn a_branch_without_vectors_gives_an_empty_file() {
        let dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 0), }\n";
        let npy = [&b"\x93NUMPY\x01\x00"[..], &[dict.len() as u8, 0][..], dict.as_bytes()].concat();
        let mut written = Vec::new();
        write_fvecs(&mut &npy[..], &mut written).unwrap();
        assert!(written.is_empty() && rows(&written).unwrap().is_empty());
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut out = Vec::new();
        write_fvecs(&mut &npy()[..], &mut out).unwrap();
        assert_eq!(out.len(), 2 * (4 + 12));
        let found = rows(&out).unwrap();
        assert_eq!(found[1], (InputRow::Vector { id: "row-00000001".into(), vector: vec![4.0, 5.0, 6.0] }, 16));
    }

    #[test]
    fn a_cut_or_foreign_file_is_refused() {
        let mut out = Vec::new();
        write_fvecs(&mut &npy()[..], &mut out).unwrap();
        assert!(rows(&out[..20]).unwrap_err().message.contains("no whole number"));
        assert!(rows(&[0xff; 16]).unwrap_err().message.contains("-1"));
        out[16] = 2;
        assert!(rows(&out).unwrap_err().message.contains("row 1"));
        assert!(rows(&[]).unwrap().is_empty());
    }
}
