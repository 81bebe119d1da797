//! The files that records come from and go to: JSON Lines, JSON arrays, NumPy arrays, fvecs and folders of notes.

mod fields;
mod folder;
#[cfg(any(fuzzing, debug_assertions))]
pub mod fuzzing;
mod fvecs;
mod half;
mod ids;
mod json_array;
mod jsonl;
mod npy;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::json;

use super::exit::Exit;
use super::failure::CommandError;
use crate::memory::{Error, RecordEdit, RecordError, RecordInput, RecordPatch, check_record_id};

pub use fields::FieldMap;
pub use folder::LeftOutCounts;
pub use fvecs::write_fvecs;

/// Bytes read from a file at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// Components of a vector in a file. No embedding comes near; more mean that the file is something else.
const DIM_MAX: usize = 1 << 20;

/// The kinds of files, known by the end of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.jsonl`: a record a line.
    JsonLines,
    /// `.json`: an array of records.
    JsonArray,
    /// `.npy`: a NumPy array, a vector a row.
    Npy,
    /// `.fvecs`: for each vector its length as i32 and its components as f32, little-endian.
    Fvecs,
}

impl Format {
    /// Tells the kind of file that `path` names. Exit code 2 for any other end of a name.
    pub fn from_path(path: &Path) -> Result<Format, CommandError> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("jsonl" | "ndjson") => Ok(Format::JsonLines),
            Some("json") => Ok(Format::JsonArray),
            Some("npy") => Ok(Format::Npy),
            Some("fvecs") => Ok(Format::Fvecs),
            _ => Err(CommandError::usage(
                format!("{} does not tell its format", path.display()),
                "end its name in .jsonl, .json, .npy or .fvecs",
            )),
        }
    }
}

/// Where a line of an import comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum RowPosition {
    /// The line with that number in the file, from 1.
    Line(usize),
    /// The element with that number of the array that the file is, from 1. It may have several lines, or share one.
    Element(usize),
    /// The note at that path, in a folder of them.
    Note(Arc<Path>),
}

impl RowPosition {
    /// Returns what it is called in a message about the import of `file`.
    pub fn describe(&self, file: &Path) -> String {
        match self {
            RowPosition::Line(number) => format!("line {number} of {}", file.display()),
            RowPosition::Element(number) => format!("element {number} of {}", file.display()),
            RowPosition::Note(note) => note.display().to_string(),
        }
    }
}

/// One row of an import, as its file has it; [`InputRow::into_line`] makes what `ingest` takes.
#[derive(Debug, Clone, PartialEq)]
pub enum InputRow {
    /// A line of JSON.
    Line {
        /// Where it comes from, for messages.
        position: RowPosition,
        /// Its bytes, without the line end.
        bytes: Vec<u8>,
    },
    /// A vector without anything else.
    Vector {
        /// Out of the file of ids, or made of the row's number.
        id: String,
        /// Its components, rounded to f32; [`InputRow::into_edit`] checks how many there are.
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

    /// Returns the edit that it asks for, if any, as the line `number` of a batch. Fails with the `RecordError` of a line
    /// that is not a record, an id that none can have, or a vector of another length than 1 to 65,536.
    pub fn into_edit(self, number: usize, fresh_id: &dyn Fn() -> Arc<str>) -> Result<Option<RecordEdit>, Error> {
        match self {
            InputRow::Line { bytes, .. } => Ok(RecordEdit::parse_line(&bytes, number, fresh_id)?),
            InputRow::Vector { id, vector } => {
                check_record_id(&id).map_err(|error| RecordError::from(error).at_line(number))?;
                let input = RecordInput::from_vector(vector).map_err(|error| error.at_line(number))?;
                let patch = RecordPatch { vector: Some(input.vector), ..RecordPatch::default() };
                Ok(Some(RecordEdit::Correct { id: id.into(), patch, line: number }))
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

/// The rows of a file or a folder, one after the other, whatever the format.
pub struct RowReader {
    /// How many bytes there are to read; 0 where that is not known.
    pub total_bytes: u64,
    /// What of a folder makes no record, complete once all rows were returned.
    pub left_out: Rc<Cell<LeftOutCounts>>,
    reader: Rows,
}

type Rows = Box<dyn Iterator<Item = Result<(InputRow, u64), CommandError>>>;

impl RowReader {
    /// Opens a file, a folder of notes, or with `-` JSON Lines from standard input; `ids` names the file with the ids
    /// of a format that has none of its own, `fields` says which fields become which keys. Fails if it can't be opened,
    /// its name ends as no format's does, or `ids` is given for a format that has its own.
    pub fn open(path: &Path, ids: Option<&Path>, fields: Option<&FieldMap>) -> Result<RowReader, CommandError> {
        let mut rows = if path.is_dir() {
            let notes = folder::TextFolder::open(path)?;
            let (total_bytes, left_out) = (notes.total_bytes, notes.left_out.clone());
            RowReader { total_bytes, left_out, reader: refuse_ids(ids).map(|()| Box::new(notes))? }
        } else if path == Path::new("-") {
            refuse_ids(ids)?;
            let input = BufReader::with_capacity(BUFFER_BYTES, io::stdin());
            let reader = Box::new(jsonl::Lines::new(path.to_owned(), input));
            RowReader { total_bytes: 0, left_out: Rc::default(), reader }
        } else {
            RowReader::from_path(path, ids, fields.is_some())?
        };
        if let Some(fields) = fields {
            let (fields, path) = (fields.clone(), path.to_owned());
            let mapped =
                rows.reader.map(move |row| row.and_then(|(row, bytes)| Ok((fields.apply(row, &path)?, bytes))));
            rows.reader = Box::new(mapped);
        }
        Ok(rows)
    }

    fn from_path(path: &Path, ids: Option<&Path>, is_mapped: bool) -> Result<RowReader, CommandError> {
        let format = Format::from_path(path)?;
        if matches!(format, Format::JsonLines | Format::JsonArray) {
            refuse_ids(ids)?;
        }
        let file = File::open(path).map_err(|e| CommandError::file("opened", path, &e))?;
        let total_bytes = file.metadata().map_err(|e| CommandError::file("opened", path, &e))?.len();
        let mut input = BufReader::with_capacity(BUFFER_BYTES, file);
        let path = path.to_owned();
        let reader: Rows = match format {
            Format::JsonLines => Box::new(jsonl::Lines::new(path, input)),
            Format::JsonArray => {
                let mut bytes = Vec::new();
                input.read_to_end(&mut bytes).map_err(|e| CommandError::file("read", &path, &e))?;
                Box::new(json_array::rows(path, &bytes, is_mapped)?)
            }
            Format::Npy => Box::new(npy::NpyRows::new(path, input, total_bytes, ids)?),
            Format::Fvecs => Box::new(fvecs::FvecsRows::new(path, input, total_bytes, ids)?),
        };
        Ok(RowReader { total_bytes, left_out: Rc::default(), reader })
    }
}

fn refuse_ids(ids: Option<&Path>) -> Result<(), CommandError> {
    let hint = "leave it out: the records have ids of their own";
    if ids.is_none() { Ok(()) } else { Err(CommandError::usage("--ids goes with .npy and .fvecs", hint)) }
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

/// Copies all of `input` to `output`. Returns how many bytes that were. The first error of either ends it.
pub fn copy(input: &mut dyn Read, output: &mut dyn Write) -> io::Result<u64> {
    io::copy(&mut BufReader::with_capacity(BUFFER_BYTES, input), output)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_format() {
        assert_eq!(Format::from_path(Path::new("a.b.npy")).unwrap(), Format::Npy);
        assert_eq!(Format::from_path(Path::new("a.fvecs")).unwrap(), Format::Fvecs);
        assert_eq!(Format::from_path(Path::new("a")).unwrap_err().exit, Exit::Usage);
        assert_eq!(Format::from_path(Path::new(".npy")).unwrap_err().exit, Exit::Usage);
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
    fn a_row_of_numbers_sets_the_vector_and_leaves_the_rest() {
        let row = || InputRow::Vector { id: "a".into(), vector: vec![1.5] };
        let (line, fresh_id) = (row().into_line(), || "unused".into());
        let in_a_mount = RecordEdit::parse_line(line.trim_ascii_end(), 7, &fresh_id).unwrap();
        let edit = row().into_edit(7, &fresh_id).unwrap();
        assert!(matches!(&edit, Some(RecordEdit::Correct { patch, .. }) if patch.text.is_none() && !patch.replaces));
        assert_eq!(format!("{edit:?}"), format!("{in_a_mount:?}"));
    }

    #[test]
    fn an_id_that_could_be_no_file_is_refused() {
        let row = InputRow::Vector { id: "a/b".into(), vector: vec![1.0] };
        assert!(row.into_edit(1, &|| "unused".into()).is_err());
    }

    #[test]
    fn ids_belong_to_arrays_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "{}\n").unwrap();
        assert_eq!(RowReader::open(&path, Some(&path), None).err().unwrap().exit, Exit::Usage);
        assert_eq!(RowReader::open(&path, None, None).unwrap().count(), 1);
    }
}
