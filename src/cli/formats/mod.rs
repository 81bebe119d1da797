//! The files that records come from and go to: JSON Lines, NumPy arrays and fvecs.

#[cfg(fuzzing)]
pub mod fuzzing;
mod fvecs;
mod half;
mod ids;
mod jsonl;
mod npy;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::exit::Exit;
use super::failure::CommandError;
use crate::memory::{Error, RecordEdit, RecordInput, check_record_id};

pub use fvecs::write_fvecs;

/// Bytes read from a file at a time.
const BUFFER: usize = 1 << 20;

/// The kinds of files, told by the end of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.jsonl`: a record a line.
    JsonLines,
    /// `.npy`: a NumPy array, a vector a row.
    Npy,
    /// `.fvecs`: for each vector its length as i32 and its components as f32, little-endian.
    Fvecs,
}

impl Format {
    /// Tells the kind of file that `path` names.
    pub fn of(path: &Path) -> Result<Format, CommandError> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("jsonl" | "ndjson") => Ok(Format::JsonLines),
            Some("npy") => Ok(Format::Npy),
            Some("fvecs") => Ok(Format::Fvecs),
            _ => Err(CommandError::usage(
                format!("{} does not tell its format", path.display()),
                "end its name in .jsonl, .npy or .fvecs",
            )),
        }
    }
}

/// One record, as a file has it.
#[derive(Debug, Clone, PartialEq)]
pub enum InputRow {
    /// A line of JSON, with its number from 1.
    Line {
        /// Its number in the file.
        number: usize,
        /// Its bytes, without the line end.
        bytes: Vec<u8>,
    },
    /// A vector without anything else.
    Vector {
        /// The record's id.
        id: String,
        vector: Vec<f32>,
    },
}

impl InputRow {
    /// Returns about how many bytes it holds.
    pub fn size(&self) -> usize {
        match self {
            InputRow::Line { bytes, .. } => bytes.len(),
            InputRow::Vector { id, vector } => id.len() + vector.len() * size_of::<f32>(),
        }
    }

    /// Returns the edit that it asks for.
    pub fn into_edit(self, fresh_id: &dyn Fn() -> Arc<str>) -> Result<RecordEdit, Error> {
        match self {
            InputRow::Line { number, bytes } => Ok(RecordEdit::parse_line(&bytes, number, fresh_id)?),
            InputRow::Vector { id, vector } => {
                check_record_id(&id)?;
                let draft = RecordInput::of_vector(vector)?;
                Ok(RecordEdit::Put { id: id.into(), draft })
            }
        }
    }

    /// Returns the line that `ingest` takes, with its line end.
    pub fn into_line(self) -> Vec<u8> {
        let mut line = match self {
            InputRow::Line { bytes, .. } => bytes,
            InputRow::Vector { id, vector } => json!({ "id": id, "vector": vector }).to_string().into_bytes(),
        };
        line.push(b'\n');
        line
    }
}

/// The records of a file, one after the other, in flat memory.
pub struct RowReader {
    /// How many bytes there are to read.
    pub length: u64,
    reader: Box<dyn Iterator<Item = Result<(InputRow, u64), CommandError>>>,
}

impl RowReader {
    /// Opens `path`; `ids` names the file with the ids of a format that has none of its own.
    pub fn open(path: &Path, ids: Option<&Path>) -> Result<RowReader, CommandError> {
        let format = Format::of(path)?;
        let file = File::open(path).map_err(|e| CommandError::file("opened", path, &e))?;
        let length = file.metadata().map_err(|e| CommandError::file("opened", path, &e))?.len();
        let input = BufReader::with_capacity(BUFFER, file);
        let path = path.to_owned();
        let reader: Box<dyn Iterator<Item = _>> = match format {
            Format::JsonLines if ids.is_some() => {
                return Err(CommandError::usage(
                    "--ids goes with .npy and .fvecs",
                    "leave it out: the lines hold their ids",
                ));
            }
            Format::JsonLines => Box::new(jsonl::Lines::new(path, input)),
            Format::Npy => Box::new(npy::NpyRows::new(path, input, length, ids)?),
            Format::Fvecs => Box::new(fvecs::FvecsRows::new(path, input, length, ids)?),
        };
        Ok(RowReader { length, reader })
    }
}

impl Iterator for RowReader {
    /// A row, and how many bytes of the file it took.
    type Item = Result<(InputRow, u64), CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.reader.next()
    }
}

/// Returns the failure of a file whose content is not as its name says.
fn malformed(path: &Path, what: impl std::fmt::Display, hint: &str) -> CommandError {
    CommandError::new(Exit::Failed, "malformed", format!("{} {what}", path.display()), hint)
}

/// Refuses what no record may hold, naming the row (from 0, as arrays count).
fn check_finite(path: &Path, row: u64, vector: &[f32]) -> Result<(), CommandError> {
    if vector.iter().all(|component| component.is_finite()) {
        return Ok(());
    }
    Err(malformed(path, format!("holds NaN or infinity in row {row}"), "take that row out, or repair it"))
}

/// Copies all of `input` to `output`.
pub fn copy(input: &mut dyn Read, output: &mut dyn Write) -> io::Result<u64> {
    io::copy(&mut BufReader::with_capacity(BUFFER, input), output)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_format() {
        assert_eq!(Format::of(Path::new("a.b.npy")).unwrap(), Format::Npy);
        assert_eq!(Format::of(Path::new("a.fvecs")).unwrap(), Format::Fvecs);
        assert_eq!(Format::of(Path::new("a")).unwrap_err().exit, Exit::Usage);
        assert_eq!(Format::of(Path::new(".npy")).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn a_vector_becomes_a_line_that_reads_back_to_the_same_floats() {
        let vector = vec![0.1_f32, -1.0e-30, 3.402_823_5e38];
        let line = InputRow::Vector { id: "a\"b".into(), vector: vector.clone() }.into_line();
        assert_eq!(line.last(), Some(&b'\n'));
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["id"], "a\"b");
        let back: Vec<f32> = serde_json::from_value(value["vector"].clone()).unwrap();
        assert_eq!(back, vector);
    }

    #[test]
    fn an_id_that_could_be_no_file_is_refused() {
        let row = InputRow::Vector { id: "a/b".into(), vector: vec![1.0] };
        assert!(row.into_edit(&|| "unused".into()).is_err());
    }

    #[test]
    fn ids_belong_to_arrays_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "{}\n").unwrap();
        assert_eq!(RowReader::open(&path, Some(&path)).err().unwrap().exit, Exit::Usage);
        assert_eq!(RowReader::open(&path, None).unwrap().count(), 1);
    }
}
